"""The probe's document, and what is found out before a run."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from scripted_server import BASE_URL, CU, DONE, FIN, ROLE, USE, Act, C, Scripted, delta, jump, reply, stream

from loadramp.client.endpoint import endpoint_of
from loadramp.client.probe import AcceptedFields, SingleRequests, find_accepted_fields, probe
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.record.types import Record
from loadramp.registry import ScenarioError
from loadramp.report.probe_text import probe_document
from loadramp.scenario.scenario import Target

KEYS = [
    "status", "error", "error_detail", "http_status", "ttft_s", "sent_ttft_s", "e2e_s", "stream_end_s",
    "time_to_first_byte_s", "time_to_first_answer_s", "gap_s", "itl_s", "tpot_s", "output_tokens", "prompt_tokens",
    "token_source", "finish_reason", "done_marker", "keepalives", "malformed_events", "warnings",
]  # fmt: skip
ANSWER = stream((20, ROLE), (40, CU("a", 1)), (60, CU("b", 2)), (60, FIN("length") + USE(9, 2) + DONE))
ALL = sorted(OPTIONAL_FIELDS)


def near(*values_ms: float) -> Any:
    return pytest.approx([value / 1000 for value in values_ms])


def asked(server: Scripted, tokens: int = 2, save_text: bool = False, **options: Any) -> Record:
    async def main() -> Record:
        loop = asyncio.get_running_loop()
        target = Target(base_url=BASE_URL, **options)
        return await probe(
            target, prompt="hi", output_tokens=tokens, clock=loop.time, connect=server.connect, save_text=save_text
        )

    return jump(main())


def test_the_document_has_the_agreed_keys_and_durations() -> None:
    document = probe_document(asked(Scripted([ANSWER])))
    assert list(document) == KEYS
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert [
        document[key] for key in ("ttft_s", "sent_ttft_s", "e2e_s", "stream_end_s", "time_to_first_byte_s")
    ] == near(40, 40, 60, 60, 20)
    assert (document["gap_s"], document["itl_s"], document["tpot_s"]) == (near(20), near(20), pytest.approx(0.02))
    assert (document["status"], document["token_source"], document["warnings"]) == ("ok", "continuous", [])


def test_the_text_is_in_the_document_only_when_asked_for() -> None:
    assert probe_document(asked(Scripted([ANSWER]), save_text=True))["text"] == "ab"


def test_a_failure_has_nulls_where_there_is_nothing_to_measure() -> None:
    document = probe_document(asked(Scripted([[(5, "reset")]])))
    assert (document["status"], document["error"], document["error_detail"]) == (
        "error", "reset", "Connection reset by peer",
    )  # fmt: skip
    empty = [key for key in KEYS if document[key] is None]
    assert empty == [
        "http_status", "ttft_s", "sent_ttft_s", "e2e_s", "time_to_first_byte_s", "time_to_first_answer_s", "tpot_s",
        "output_tokens", "prompt_tokens", "token_source", "finish_reason",
    ]  # fmt: skip
    assert (document["gap_s"], document["itl_s"], document["stream_end_s"]) == ([], [], pytest.approx(0.005))


def test_durations_count_from_the_due_time_and_sent_ones_from_the_writing() -> None:
    record = Record(
        0, 0, due_s=1.0, sent_s=1.5, first_byte_s=1.6, event_s=[2.0, 2.5], stream_end_s=3.0, output_tokens=2
    )
    document = probe_document(record)
    assert [document[key] for key in ("ttft_s", "sent_ttft_s", "e2e_s", "stream_end_s", "time_to_first_byte_s")] == [
        1.0, 0.5, 1.5, 2.0, pytest.approx(0.6),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tokens", "itl_ms"),
    [([1, 2], [15.0, 15.0]), ([1, 0], []), ([3, 1], [30.0]), ([], [30.0])],
    ids=["two", "none", "several first", "one each"],
)
def test_an_event_of_k_tokens_is_k_entries_of_its_gap_over_k(tokens: list[int], itl_ms: list[float]) -> None:
    record = Record(0, 0, 0.0, event_s=[0.1, 0.13], event_tokens=tokens, output_tokens=sum(tokens) or 2)
    assert probe_document(record)["itl_s"] == near(*itl_ms)


def test_a_single_request_goes_out_whatever_comes_back() -> None:
    for script in (
        ANSWER,
        reply(b"{}", "429 Too Many Requests"),
        reply(b"{}", "503 Service Unavailable"),
        [(1.0, "close")],
    ):
        server = Scripted([script, ANSWER])
        asked(server)
        assert len(server.requests) == 1


# -- DS-09: servers that refuse what they do not know


def strict(
    *unknown: str, form: Callable[[list[str]], bytes] | None = None, status: str = "400 Bad Request"
) -> Scripted:
    """A server that refuses bodies with any of these fields."""

    class Strict(Scripted):
        def take(self, head: bytes, body: bytes, connection: int) -> list[Act]:
            super().take(head, body, connection)
            text = json.dumps(self.requests[-1].body)
            found = [name for name in unknown if f'"{name}"' in text]
            return reply((form or _openai)(found), status) if found else list(ANSWER)

    return Strict([ANSWER])


def _openai(found: list[str]) -> bytes:
    return json.dumps({"error": {"message": f"Unrecognized request argument supplied: {found[0]}"}}).encode()


def _pydantic(found: list[str]) -> bytes:
    detail = [
        {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"} for name in found
    ]
    return json.dumps({"detail": detail}).encode()


def _transformers(found: list[str]) -> bytes:
    return json.dumps({"detail": f"Unexpected fields in the request: {set(found)}"}).encode()


def _mute(found: list[str]) -> bytes:
    return b'{"error":"invalid request"}'


def found_out(server: Scripted, **options: Any) -> AcceptedFields:
    async def main() -> AcceptedFields:
        loop = asyncio.get_running_loop()
        target = Target(base_url=BASE_URL, **options)
        requests = SingleRequests(target, endpoint_of(target, {}), "m", loop.time, server.connect)
        return await find_accepted_fields(requests, output_tokens=2)

    return jump(main())


def test_cancelling_what_is_found_out_before_a_run_is_not_lost() -> None:
    """A request that is cut off is a record; taken for an answer, it let the run begin that was to be stopped."""
    server = Scripted([stream((20, ROLE), (40, C("a")), (60_000, FIN("length") + DONE))])

    async def main() -> None:
        loop = asyncio.get_running_loop()
        target = Target(base_url=BASE_URL)
        requests = SingleRequests(target, endpoint_of(target, {}), "m", loop.time, server.connect)
        task = asyncio.ensure_future(find_accepted_fields(requests, output_tokens=2))
        await asyncio.sleep(1.0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        jump(main())


def test_ds09_a_server_that_takes_everything_is_asked_once() -> None:
    server = Scripted([ANSWER])
    found = found_out(server)
    assert (found.fields, found.warnings, found.prompt_tokens, len(server.requests)) == (OPTIONAL_FIELDS, (), 9, 1)


@pytest.mark.parametrize("form", [_openai, _pydantic, _transformers])
@pytest.mark.parametrize("status", ["400 Bad Request", "422 Unprocessable Entity"])
@pytest.mark.parametrize(
    ("unknown", "dropped"),
    [
        (["ignore_eos"], ["ignore_eos"]),
        (["ignore_eos", "min_tokens"], ["ignore_eos", "min_tokens"]),
        (["stream_options"], ["continuous_usage_stats", "include_usage"]),
        (["continuous_usage_stats"], ["continuous_usage_stats"]),
        (["include_usage", "ignore_eos"], ["continuous_usage_stats", "ignore_eos", "include_usage"]),
        (["stream_options", "ignore_eos", "min_tokens"], ALL),
    ],
)
def test_ds09_fields_that_a_refusal_names_are_dropped(
    form: Any, status: str, unknown: list[str], dropped: list[str]
) -> None:
    server = strict(*unknown, form=form, status=status)
    found = found_out(server)
    assert sorted(OPTIONAL_FIELDS - found.fields) == dropped
    assert list(found.warnings) == [f"dropped_{name}" for name in dropped]
    assert found.record.ok


@pytest.mark.parametrize("unknown", [["ignore_eos"], ["stream_options"], ["continuous_usage_stats", "min_tokens"]])
def test_ds09_a_refusal_that_names_nothing_is_tried_field_by_field(unknown: list[str]) -> None:
    found = found_out(strict(*unknown, form=_mute))
    asked = json.dumps(list(found.fields))
    assert not any(name in asked for name in unknown)
    assert found.record.ok
    expected = (
        set(ALL)
        - set(unknown)
        - ({"include_usage", "continuous_usage_stats"} if "stream_options" in unknown else set())
    )
    assert found.fields == expected


def test_ds09_a_refusal_of_something_else_is_left_to_the_caller() -> None:
    server = Scripted([reply(b'{"error":{"message":"the model m does not exist"}}', "404 Not Found")])
    found = found_out(server)
    assert (found.record.error, len(server.requests)) == ("http_4xx", 1)
    bad = Scripted([reply(b'{"error":"temperature is out of range"}', "400 Bad Request")])
    found = found_out(bad)
    assert (found.record.error, found.fields, len(bad.requests)) == ("http_4xx", OPTIONAL_FIELDS, 2)


def test_ds09_the_newer_name_of_the_limit_is_taken_where_the_older_is_refused() -> None:
    class Modern(Scripted):
        def take(self, head: bytes, body: bytes, connection: int) -> list[Act]:
            super().take(head, body, connection)
            said = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            refuses = "max_tokens" in self.requests[-1].body
            return (
                reply(json.dumps({"error": {"message": said}}).encode(), "400 Bad Request") if refuses else list(ANSWER)
            )

    server = Modern([ANSWER])
    found = found_out(server)
    assert (found.record.ok, server.requests[-1].body["max_completion_tokens"]) == (True, 2)
    assert found.fields == OPTIONAL_FIELDS | {"max_completion_tokens"}
    assert found.warnings == ()


def test_ds09_an_error_inside_the_stream_may_name_the_field_too() -> None:
    refusal = stream((5, b'data: {"error":{"message":"min_tokens is not supported","code":400}}\n\n' + DONE))
    found = found_out(Scripted([refusal, ANSWER]))
    assert (found.record.ok, sorted(OPTIONAL_FIELDS - found.fields)) == (True, ["min_tokens"])


def test_ds09_without_usage_the_token_source_falls_back_and_is_reported() -> None:
    bare = stream((20, C("a")), (30, C("b") + FIN("length") + DONE))
    found = found_out(Scripted([reply(_openai(["stream_options"]), "400 Bad Request"), bare]))
    assert found.warnings == ("dropped_continuous_usage_stats", "dropped_include_usage", "no_usage")
    assert found.record.token_source == "events"


def test_ds07_a_server_that_stops_early_is_said_before_the_run() -> None:
    early = stream((20, C("a") + FIN("stop") + USE(9, 1) + DONE))
    assert "short_output" in found_out(Scripted([early])).warnings


def test_ds09_a_probe_drops_what_is_refused_by_name_and_says_so() -> None:
    server = strict("ignore_eos", "min_tokens", form=_pydantic)
    record = asked(server)
    assert (record.status, len(server.requests)) == ("ok", 2)
    assert record.warnings == ["dropped_ignore_eos", "dropped_min_tokens"]
    assert record.sent_ttft_s == pytest.approx(0.04)  # of the request that was taken


# -- on a real socket


def probed(health: list[list[Act]], **options: Any) -> tuple[Record, Scripted]:
    async def main() -> tuple[Record, Scripted]:
        server = Scripted(health)
        listener, url = await server.serve()
        target = Target(base_url=url, **options)
        try:
            record = await probe(target, prompt="hi", output_tokens=2, clock=time.monotonic, save_text=True)
        finally:
            listener.close()
        return record, server

    return asyncio.run(main())


@pytest.mark.parametrize("via", ["direct", "httpx", "openai"])
def test_the_model_is_the_only_one_listed_whatever_the_client(via: Any) -> None:
    listed = reply(b'{"data":[{"id":"tiny"}]}')
    record, server = probed([listed, ANSWER], via=via)
    assert (record.status, record.text, record.output_tokens) == ("ok", "ab", 2)
    assert [request.path for request in server.requests] == ["/v1/models", "/v1/chat/completions"]
    assert server.requests[1].body["model"] == "tiny"
    assert "kernel_stamps_unavailable" not in record.warnings or record.stamps == "user"


def test_a_server_without_a_list_of_models_is_asked_for_the_default_one() -> None:
    record, server = probed([reply(b"{}", "404 Not Found"), ANSWER])
    assert (record.status, server.requests[1].body["model"]) == ("ok", "default")


def test_several_models_and_none_named_is_an_error_of_the_user() -> None:
    with pytest.raises(ScenarioError, match="the server lists 2: a, b"):
        probed([reply(b'{"data":[{"id":"a"},{"id":"b"}]}')])


def test_an_unreachable_server_is_a_record() -> None:
    async def main() -> Record:
        target = Target(base_url="http://127.0.0.1:9")
        return await probe(target, prompt="hi", output_tokens=2, clock=time.monotonic)

    record = asyncio.run(main())
    assert (record.status, record.error) == ("error", "connect")
    assert "connection refused by 127.0.0.1:9" in (record.error_detail or "")


def test_a_tool_call_alone_is_an_answer() -> None:
    call = delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{}"}}])
    record = asked(Scripted([stream((20, call), (30, FIN("tool_calls") + USE(1, 5) + DONE))]))
    assert (record.status, record.finish_reason, record.answer_s) == ("ok", "tool_calls", pytest.approx(0.02))
