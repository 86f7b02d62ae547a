"""The comparison clients on a real socket: same verbs, same kinds of failure, stamps as their iterators yield."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from certs import Certificates, certificates
from scripted_server import (
    CU,
    DONE,
    FIN,
    HEAD,
    ROLE,
    USE,
    Act,
    C,
    Scripted,
    arrival,
    delta,
    event,
    framed,
    reply,
    stream,
)

from loadramp.client.comparison_clients import HttpxClient, OpenaiClient
from loadramp.client.endpoint import endpoint_of
from loadramp.record.types import Record
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target

CLIENTS: dict[str, Any] = {"httpx": HttpxClient, "openai": OpenaiClient}
ANSWER = stream(
    (5, ROLE), (25, delta(reasoning="hm")), (45, C("a")), (65, C("b")), (65, FIN("stop") + USE(9, 3) + DONE)
)  # fmt: skip


def client_on(url: str, via: Any, env: dict[str, str] | None = None, **options: Any) -> Any:
    target = Target(base_url=url, via=via, **options)
    return CLIENTS[via](
        target, endpoint_of(target, env or {}), "m", clock=time.monotonic, t0_s=time.monotonic(), save_text=True
    )


def sent(script: Sequence[Act], via: str, tls: Any = None, **options: Any) -> tuple[Record, Scripted, Any]:
    async def main() -> tuple[Record, Scripted, Any]:
        server = Scripted([script])
        listener, url = await server.serve(tls)
        client = client_on(url, via, **options)
        asked = arrival(due_s=client.now_s(), output_tokens=3)
        record = await client.send(asked, client.prepare(asked, "hi"))
        await client.close()
        listener.close()
        await asyncio.sleep(0.005)  # the server's side of the connection goes as well
        return record, server, client.counts

    return asyncio.run(main())


@pytest.fixture(params=list(CLIENTS))
def via(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_an_answer_is_recorded_as_its_iterator_yields(via: str) -> None:
    record, server, counts = sent(ANSWER, via, env={"OPENAI_API_KEY": "sk-1"}, headers={"X-Team": "blue"})
    assert (record.status, record.error, record.text, record.finish_reason) == ("ok", None, "ab", "stop")
    assert (record.output_tokens, record.prompt_tokens, record.token_source) == (3, 9, "usage")
    assert (record.http_status, record.stamps, len(record.event_s)) == (200, "user", 3)
    assert record.event_s == sorted(record.event_s)
    assert (record.e2e_s or 0) > 0.06
    assert record.answer_s == record.event_s[1]
    assert record.warnings == []
    assert (counts.sent, counts.finished, counts.tokens, counts.in_flight, counts.waiting) == (1, 1, 3, 0, 0)
    asked = server.requests[0]
    assert (asked.headers["authorization"], asked.headers["x-team"], asked.headers["accept-encoding"]) == (
        "Bearer sk-1", "blue", "identity",
    )  # fmt: skip
    assert asked.headers["x-request-id"].startswith("loadramp-")
    assert asked.body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert (asked.body["min_tokens"], asked.body["ignore_eos"]) == (3, True)


def test_an_encoding_that_is_none_is_no_compression(via: str) -> None:
    (at_ms, head), *rest = ANSWER
    assert isinstance(head, bytes)
    coded = head.replace(b"\r\n\r\n", b"\r\nContent-Encoding: none\r\n\r\n")
    record, _, _ = sent([(at_ms, coded), *rest], via)
    assert (record.status, record.text, record.warnings) == ("ok", "ab", [])


def test_running_counts_come_through(via: str) -> None:
    record, _, _ = sent(stream((5, CU("a", 1)), (15, CU("bc", 3)), (15, FIN("stop") + DONE)), via)
    assert (record.event_tokens, record.token_source, record.output_tokens) == ([1, 2], "continuous", 3)


def test_text_behind_a_finish_reason_ends_with_the_stream(via: str) -> None:
    record, _, _ = sent(stream((5, C("a")), (10, FIN("stop")), (15, C("b"))), via)
    assert (record.status, record.text, record.finish_reason) == ("ok", "ab", "stop")


def test_a_count_beyond_what_was_asked_is_not_believed(via: str) -> None:
    record, _, _ = sent(stream((5, CU("a", 1)), (15, CU("bcd", 4)), (15, FIN("stop") + DONE)), via)
    assert (record.event_tokens, record.token_source, record.output_tokens) == ([], "events", 2)
    assert "implausible_usage" in record.warnings


def test_no_key_means_no_header(via: str) -> None:
    _, server, _ = sent(ANSWER, via)
    assert "authorization" not in server.requests[0].headers


def test_the_environment_s_proxies_are_not_used(via: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,::1")
    assert sent(ANSWER, via)[0].status == "ok"


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        (reply(b'{"error":{"message":"slow down"}}', "429 Too Many Requests", Retry_After="2"), "error", "http_429"),
        (reply(b'{"error":"no"}', "400 Bad Request"), "error", "http_4xx"),
        (reply(b"down", "503 Service Unavailable"), "error", "http_5xx"),
        (stream((5, C("a")), (9, event({"error": {"message": "overloaded", "code": 503}}) + DONE)), "error", "in_band"),
        (stream((5, C("a")), (9, "close"), end=False), "error", "truncated"),
        (stream((5, C("a")), (9, "reset"), end=False), "error", "reset"),
        ([(5.0, "close")], "error", "reset"),
        (stream((5, C("a"))), "incomplete", "truncated"),
        (stream((5, ROLE), (6, DONE)), "empty", "empty"),
        (stream((5, ROLE), end=False), "error", "timeout_first"),
        (stream((5, C("a")), end=False), "error", "timeout_idle"),
        (stream((5, C("a")), (9, FIN("stop") + DONE), end=False), "ok", None),
        (stream((5, C("a")), (9, FIN("stop")), end=False), "ok", None),
    ],
    ids=["429", "400", "503", "in band", "FIN", "RST", "mute", "incomplete", "empty", "no first", "stall", "open",
         "finished"],
)  # fmt: skip
def test_failures_have_the_same_kinds(via: str, script: list[Act], status: str, error: str | None) -> None:
    waits = {"first_timeout_s": 0.3, "idle_timeout_s": 0.3} if "timeout" in str(error) else {}
    record, server, counts = sent(script, via, grace_s=0.1, **waits)
    assert (record.status, record.error) == (status, error)
    assert (record.error_detail is None) == (error is None)
    assert len(server.requests) == 1  # nothing is tried twice
    assert (counts.in_flight, counts.waiting, counts.finished) == (0, 0, 1)
    if error == "http_429":
        assert record.retry_after_s == 2.0


def test_a_whole_reply_is_one_event(via: str) -> None:
    body = b"""{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,
        "finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4}}"""
    record, _, _ = sent(reply(body), via, stream=False)
    assert (record.status, record.text, record.output_tokens, len(record.event_s)) == ("ok", "hi", 3, 1)
    assert record.token_source == "usage"


def test_completions_go_through(via: str) -> None:
    def piece(text: str, reason: str | None = None) -> bytes:
        head = {"id": "c", "object": "text_completion", "created": 1, "model": "m"}
        return event({**head, "choices": [{"index": 0, "text": text, "finish_reason": reason, "logprobs": None}]})

    record, server, _ = sent(stream((5, piece("a")), (15, piece("b", "length") + DONE)), via, api="completions")
    assert (record.status, record.text, server.requests[0].path) == ("ok", "ab", "/v1/completions")


def test_a_refused_connection_is_a_record(via: str) -> None:
    async def main() -> Record:
        client = client_on("http://127.0.0.1:9", via)
        record = await client.send(arrival(), client.prepare(arrival(), "hi"))
        await client.close()
        return record

    record = asyncio.run(main())
    assert (record.status, record.error) == ("error", "connect")


def test_a_certificate_that_is_not_trusted_is_named(via: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    made: Certificates = certificates(tmp_path_factory.mktemp("tls"))
    refused, _, _ = sent(ANSWER, via, tls=made.server)
    assert (refused.status, refused.error) == ("error", "tls")
    assert "certificate" in (refused.error_detail or "")
    assert sent(ANSWER, via, tls=made.server, ca_file=str(made.ca_file))[0].status == "ok"


def test_cancelling_gives_a_record_and_snapshots_show_what_came(via: str) -> None:
    async def main() -> tuple[list[Record], Record]:
        server = Scripted([[(1, HEAD + framed(C("a")))]])
        listener, url = await server.serve()
        client = client_on(url, via)
        task = asyncio.create_task(client.send(arrival(), client.prepare(arrival(), "hi")))
        async with asyncio.timeout(10):
            while client.counts.tokens == 0:  # noqa: ASYNC110  # the counts are what is waited for
                await asyncio.sleep(0.001)
        seen = client.snapshot()
        task.cancel()
        record = await task
        await client.close()
        listener.close()
        await asyncio.sleep(0.005)
        return seen, record

    seen, record = asyncio.run(main())
    assert [(copy.status, len(copy.event_s)) for copy in seen] == [("in_flight", 1)]
    assert (record.status, record.error, len(record.event_s)) == ("unfinished", None, 1)


def test_in_memory_only_the_measuring_client_works(via: Any) -> None:
    target = Target(base_url="http://h", via=via)
    with pytest.raises(ScenarioError, match=f"via: '{via}' needs a real server"):
        CLIENTS[via](target, endpoint_of(target, {}), "m", connect=Scripted([]).connect, clock=time.monotonic, t0_s=0.0)
