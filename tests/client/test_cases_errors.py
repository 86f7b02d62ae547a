"""The error and connection cases (ER, CN): what fails, of which kind, with what was received until then."""

import asyncio
import gzip
import json
import sys
import zlib
from typing import Any

import pytest
from scripted_server import (
    DONE,
    FIN,
    HEAD,
    LAST,
    ROLE,
    UNTIL_CLOSE,
    USE,
    Act,
    C,
    Scripted,
    arrival,
    chunk,
    client_on,
    delta,
    event,
    framed,
    jump,
    record_of,
    reply,
    same_however_cut,
    stream,
)

from loadramp.analysis.error_classes import class_of
from loadramp.client.measuring_client import MeasuringClient
from loadramp.record.codec import decode, encode
from loadramp.record.table import Table
from loadramp.record.types import Record
from loadramp.report.probe_text import probe_document

SSE = b"HTTP/1.1 %s\r\nContent-Type: text/event-stream\r\n%s\r\n"


def near(*values_ms: float) -> Any:
    return pytest.approx([value / 1000 for value in values_ms])


def at(ms: float) -> Any:
    return pytest.approx(ms / 1000)


def failed(record: Record) -> tuple[str, str | None]:
    """Status and kind; every failure has words."""
    assert record.error_detail
    assert len(record.error_detail) <= 500
    return record.status, record.error


# -- ER-01: an error inside a 200 stream

OVERLOADED = {"message": "overloaded", "type": "ServerError", "code": 503}


def test_er01_an_error_event_is_a_failure_although_done_follows() -> None:
    record = record_of(stream((300, event({"error": OVERLOADED})), (300, DONE)))
    assert failed(record) == ("error", "in_band")
    assert record.error_detail == "overloaded (ServerError, 503)"
    assert (record.http_status, record.event_s, record.output_tokens, record.ttft_s) == (200, [], None, None)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"error": "overloaded"}, "overloaded"),
        ({"error": {"message": "overloaded"}}, "overloaded"),
        ({"error": {"error": {"message": "overloaded"}}}, "overloaded"),
        ({"error": {"code": 500, "message": "overloaded", "type": "server_error"}}, "overloaded (server_error, 500)"),
        ({"error": [{"message": "overloaded"}]}, "overloaded"),
        ({"error": {"status": 3}}, "error without a message"),
        ({"error": True}, "True"),
        ({"error": OVERLOADED, "choices": []}, "overloaded (ServerError, 503)"),
        ({"object": "error", "message": "overloaded", "type": "Busy", "code": 503}, "overloaded (Busy, 503)"),
        ({"type": "error", "message": "overloaded"}, "overloaded"),
        ({"detail": "overloaded"}, "overloaded"),
        ({"detail": [{"loc": ["body", "n"], "msg": "overloaded", "input": "secret prompt"}]}, "body.n: overloaded"),
        ({"message": "overloaded", "code": 500}, "overloaded (500)"),
        ({"choices": [{"index": 0, "delta": {}, "error": {"message": "overloaded"}}]}, "overloaded"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "error"}]}, "finish_reason 'error'"),
        ({"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}]}, "finish_reason 'abort'"),
    ],
)
@pytest.mark.parametrize("before", [b"", C("a")], ids=["nothing", "partial"])
def test_er01_errors_in_every_shape(data: dict[str, Any], words: str, before: bytes) -> None:
    record = record_of(stream((100, before + event(data)), (110, DONE)))
    assert failed(record) == ("error", "in_band")
    assert words in (record.error_detail or "")
    assert "secret" not in (record.error_detail or "")
    assert (len(record.event_s), record.output_tokens) == ((1, 1) if before else (0, None))


@pytest.mark.parametrize("data", [b"out of memory", b'{"message":"out of memory"}', b'"out of memory"', b'{"x":1}'])
def test_er01_an_event_called_error_is_one(data: bytes) -> None:
    record = record_of(stream((100, C("a")), (110, b"event: error\ndata: " + data + b"\n\n")))
    assert failed(record) == ("error", "in_band")


@pytest.mark.parametrize("nothing", [None, "", {}, [], 0, False])
def test_er01_an_empty_error_is_none(nothing: Any) -> None:
    got = record_of(
        stream((100, chunk({"index": 0, "delta": {"content": "a"}}, error=nothing)), (110, FIN("stop") + DONE))
    )
    assert got.status == "ok"


def test_er01_an_error_left_open_ends_the_request_soon() -> None:
    record = record_of(stream((100, C("a")), (110, event({"error": "overloaded"})), end=False))
    assert failed(record) == ("error", "in_band")
    assert (record.stream_end_s, len(record.event_s)) == (at(110), 1)


@pytest.mark.parametrize("said", [b"event: error\n\n", b"event: Error\ndata: no\n\n", b"error: no\n\n"])
def test_er01_an_error_without_json_left_open_ends_the_request_soon(said: bytes) -> None:
    record = record_of(stream((110, said), end=False))
    assert (failed(record), record.stream_end_s) == (("error", "in_band"), at(110))


def test_er01_an_error_without_done_after_output_keeps_the_partial_answer() -> None:
    record = record_of(stream((100, C("a")), (120, C("b")), (130, event({"error": OVERLOADED}))))
    assert (record.status, record.event_s, record.text) == ("error", near(100, 120), "ab")
    assert record.stream_end_s == at(130)


# -- ER-03: 200 with plain JSON

ERROR_JSON = b'{"error":"Input validation error: too long","error_type":"validation"}'


@pytest.mark.parametrize(
    "script",
    [
        [(30.0, b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + ERROR_JSON)],
        [
            (
                30.0,
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
                + framed(ERROR_JSON),
            )
        ],
        [(30.0, HEAD + framed(ERROR_JSON[:20])), (30.0, framed(ERROR_JSON[20:]))],
        reply(ERROR_JSON, at_ms=30),
        reply(b"\xef\xbb\xbf " + ERROR_JSON + b"\n", at_ms=30),
        reply(ERROR_JSON, content_type="text/plain", at_ms=30),
    ],
    ids=["open", "chunked open", "event-stream", "length", "BOM", "text"],
)
def test_er03_a_json_error_with_200_fails_at_once(script: list[Act]) -> None:
    record = record_of(script)
    assert failed(record) == ("error", "in_band")
    assert record.error_detail == "Input validation error: too long"
    assert (record.stream_end_s, record.event_s) == (at(30), [])


@pytest.mark.parametrize(
    "body", [b'{"detail":"Not Found"}', b'{"message":"no","code":400}', b'{"object":"error","message":"no"}']
)
def test_er03_json_errors_in_other_shapes(body: bytes) -> None:
    assert failed(record_of(reply(body))) == ("error", "in_band")


def test_er03_a_whole_reply_where_a_stream_was_asked_for_is_one_event() -> None:
    body = (
        b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"usage":{"completion_tokens":2}}'
    )
    got = probe_document(record_of(reply(body, at_ms=40)))
    assert (got["status"], got["ttft_s"], got["gap_s"], got["text"]) == ("ok", at(40), [], "hi")
    assert (got["output_tokens"], got["token_source"], got["done_marker"]) == (2, "usage", False)
    assert "not_streamed" in got["warnings"]
    assert "no_done" not in got["warnings"]


@pytest.mark.parametrize(
    "body", [b'{"status":"ok"}', b"[]", b'{"choices":[]}', b'{"choices":[{"message":{"content":""}}]}']
)
def test_er03_json_that_answers_nothing_is_empty(body: bytes) -> None:
    assert failed(record_of(reply(body))) == ("empty", "empty")


def test_er03_html_with_200_is_empty_and_says_what_it_was() -> None:
    record = record_of(reply(b"<html><body>Sign in</body></html>", content_type="text/html; charset=utf-8"))
    assert failed(record) == ("empty", "empty")
    assert record.error_detail == "HTTP 200 (text/html) without any output"


# -- ER-06: the connection dropped in mid-stream


@pytest.mark.parametrize(
    ("end", "kind"), [([(70.0, "reset")], "reset"), ([(70.0, "close")], "truncated")], ids=["RST", "FIN"]
)
def test_er06_a_broken_stream_keeps_what_came(end: list[Act], kind: str) -> None:
    record = record_of(stream((50, C("a")), (60, C("b")), *end, end=False))
    assert failed(record) == ("error", kind)
    assert (record.event_s, record.output_tokens, record.text) == (near(50, 60), 2, "ab")
    assert record.stream_end_s == at(70)
    assert "after 2 output events" in (record.error_detail or "")


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([(5.0, "close")], "reset"),
        ([(5.0, "reset")], "reset"),
        ([(5.0, b"HTTP/1.1 200"), (6.0, "close")], "truncated"),
        ([(5.0, HEAD), (6.0, "close")], "truncated"),
        ([(5.0, HEAD), (6.0, "reset")], "reset"),
        ([(5.0, HEAD + framed(C("a"))[:40]), (6.0, "close")], "truncated"),
        ([(5.0, HEAD + framed(C("a") + C("b"))[:-40]), (6.0, "close")], "truncated"),
        ([(5.0, HEAD + framed(C("a")) + b"zz\r\nbroken"), (6.0, "close")], "truncated"),
        ([(5.0, SSE % (b"200 OK", b"Content-Length: 999\r\n") + C("a")), (6.0, "close")], "truncated"),
        ([(5.0, UNTIL_CLOSE + C("a")), (6.0, "reset")], "reset"),
    ],
)
def test_er06_broken_replies_at_every_stage(script: list[Act], kind: str) -> None:
    assert failed(record_of(script)) == ("error", kind)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_er06_an_event_cut_off_by_the_break_is_not_output(how: Any) -> None:
    record = record_of([(5, HEAD + framed(C("a")) + b"100\r\n" + C("b")[:-1]), (6, how)])
    assert (record.status, len(record.event_s), record.text) == ("error", 1, "a")


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("last", [FIN("stop"), FIN("stop") + DONE, DONE], ids=["finish", "both", "done"])
def test_er06_a_break_after_the_end_of_the_answer_changes_nothing(how: Any, last: bytes) -> None:
    record = record_of(stream((50, C("a")), (60, last), (61, how), end=False))
    assert (record.status, record.error, record.finish_reason) == ("ok", None, "stop" if b"stop" in last else None)


# -- ER-07, ER-11, ER-12: HTTP statuses


def test_er07_a_429_is_one_failed_request_with_the_wait_it_asks_for() -> None:
    server = Scripted([reply(b'{"error":{"message":"slow down"}}', "429 Too Many Requests", Retry_After="2"), _ok()])
    record = jump(_ask(server))
    assert failed(record) == ("error", "http_429")
    assert (record.retry_after_s, record.http_status, len(server.requests)) == (2.0, 429, 1)
    assert record.error_detail == "HTTP 429 Too Many Requests: slow down"


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"Retry_After": "1.5"}, 1.5),
        ({"retry_after_ms": "250", "Retry_After": "9"}, 0.25),
        ({"Retry_After": "Fri, 27 Nov 2026 21:00:30 GMT", "Date": "Fri, 27 Nov 2026 21:00:00 GMT"}, 30.0),
        ({"Retry_After": "Fri, 27 Nov 2026 21:00:30 GMT"}, None),
        ({"Retry_After": "soon"}, None),
        ({}, None),
    ],
)
def test_er07_retry_after_in_its_forms(headers: dict[str, str], wait_s: float | None) -> None:
    assert record_of(reply(b"{}", "429 Too Many Requests", **headers)).retry_after_s == wait_s


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", "http_4xx"), ("401 Unauthorized", "http_4xx"), ("404 Not Found", "http_4xx"),
        ("422 Unprocessable Entity", "http_4xx"), ("429 Too Many Requests", "http_429"),
        ("500 Internal Server Error", "http_5xx"), ("503 Service Unavailable", "http_5xx"),
        ("529 Overloaded", "http_5xx"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"message":"no such thing","type":"Bad","code":1}}', "no such thing (Bad, 1)"),
        (b'{"error":"no such thing"}', "no such thing"),
        (b'{"detail":"no such thing"}', "no such thing"),
        (b'{"detail":[{"type":"extra_forbidden","loc":["body","x"],"msg":"no such thing","input":{"a":1}}]}',
         "body.x: no such thing (extra_forbidden)"),
        (b'{"message":"no such thing"}', "no such thing"),
        (b'{"object":"error","message":"no such thing"}', "no such thing"),
        (b'data: {"error":{"message":"no such thing"}}\n\n', "no such thing"),
        (b"no such thing", "no such thing"),
        (b"", ""),
        (b'"no such thing"', "no such thing"),
    ],
    ids=["object", "string", "detail", "pydantic", "message", "vllm", "event", "plain", "none", "json string"],
)  # fmt: skip
def test_er07_refusals_with_bodies_of_every_shape(status: str, kind: str, body: bytes, words: str) -> None:
    record = record_of(reply(body, status, at_ms=7))
    assert failed(record) == ("error", kind)
    assert record.http_status == int(status[:3])
    assert (record.error_detail or "").startswith(f"HTTP {status[:3]}")
    assert (record.error_detail or "").endswith(words)
    assert (record.stream_end_s, record.event_s, record.finish_reason) == (at(7), [], None)


def test_er07_a_refusal_left_open_ends_the_request_soon() -> None:
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n\r\n"
    record = record_of([(10, head + b'{"error":"busy"}')])
    assert (failed(record), record.stream_end_s) == (("error", "http_5xx"), at(10))


def test_er07_a_list_of_one_refusal_left_open_ends_the_request_soon() -> None:
    head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n\r\n"
    record = record_of([(10, head + b'[{"error":{"message":"busy","code":429}}]')])
    assert (failed(record), record.stream_end_s) == (("error", "http_429"), at(10))
    assert record.error_detail == "HTTP 429 Too Many Requests: busy (429)"


def test_er07_a_huge_refusal_is_cut_short() -> None:
    record = record_of(reply(b"x" * 1_000_000, "500 Internal Server Error"))
    assert len(record.error_detail or "") < 300


def test_er07_a_redirect_is_a_failure_that_names_the_address() -> None:
    record = record_of(reply(b"", "307 Temporary Redirect", Location="https://elsewhere/v1"))
    assert failed(record) == ("error", "http_4xx")
    assert record.error_detail == "HTTP 307 Temporary Redirect: redirect to https://elsewhere/v1"


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://sso.example/login?state=s3cret&nonce=1#x", "https://sso.example/login"),
        ("//user:s3cret@sso.example/a", "//sso.example/a"),
        ("/login?next=%2Fv1%2Fchat", "/login"),
    ],
)
def test_er07_a_login_that_a_gateway_redirects_to_is_named_though_the_reply_has_a_body(
    location: str, shown: str
) -> None:
    record = record_of(reply(b"<html><h1>302 Found</h1></html>", "302 Found", Location=location))
    assert record.error_detail == f"HTTP 302 Found: redirect to {shown}"
    assert class_of(record.error or "", record.error_detail, record.http_status) == ("redirected", False)


@pytest.mark.parametrize(
    "script",
    [
        [(9.0, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")],
        [(9.0, b"HTTP/1.1 204 No Content\r\n\r\n")],
        [(9.0, HEAD + LAST)],
        [(9.0, UNTIL_CLOSE), (9.0, "close")],
        stream((9, DONE)),
        stream((9, ROLE), (9, FIN("stop") + DONE)),
        stream((9, ROLE + b": hello\n\n")),
    ],
    ids=["length 0", "204", "chunked", "close", "done only", "finish only", "role only"],
)
def test_er11_a_200_without_output_is_empty(script: list[Act]) -> None:
    record = record_of(script)
    assert failed(record) == ("empty", "empty")
    assert (record.output_tokens, record.event_s, record.stream_end_s) == (None, [], at(9))


def test_er11_tokens_that_nobody_can_see_are_empty_although_they_were_counted() -> None:
    record = record_of(stream((9, ROLE), (20, delta(finish_reason="length", content="")), (20, USE(3, 5) + DONE)))
    assert failed(record) == ("empty", "empty")
    assert (record.output_tokens, record.finish_reason, record.token_source) == (5, "length", None)
    assert record.error_detail == "finished (length) without any visible output; the server counted 5 tokens"


@pytest.mark.parametrize("status", ["201 Created", "202 Accepted", "206 Partial Content", "299 Fine"])
def test_er12_every_2xx_is_a_success(status: str) -> None:
    script = [(10.0, HEAD.replace(b"200 OK", status.encode())), (20.0, framed(C("a") + FIN("stop") + DONE) + LAST)]
    record = record_of(script)
    assert (record.status, record.http_status, record.output_tokens) == ("ok", int(status[:3]), 1)


@pytest.mark.parametrize(
    "interim", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"]
)
def test_er12_an_interim_reply_is_not_the_reply(interim: bytes) -> None:
    record = record_of([(5, interim), *stream((10, C("a") + FIN("stop") + DONE))])
    assert (record.status, record.http_status, record.first_byte_s) == ("ok", 200, at(10))


@pytest.mark.parametrize(
    ("junk", "kind"),
    [(b"SSH-2.0-OpenSSH_9.6\r\n", "connect"), (b"\x15\x03\x01\x00\x02\x02F", "tls"), (b"\x00" * 40, "connect")],
)
def test_what_is_not_http_is_told_apart(junk: bytes, kind: str) -> None:
    assert failed(record_of([(5, junk)])) == ("error", kind)


# -- ER-09: failures stay out of the averages


def test_er09_failures_are_counted_and_leave_the_latencies_alone() -> None:
    good = record_of(stream((100, C("a")), (120, FIN("stop") + DONE)))
    bad = record_of([(0, HEAD)], first_timeout_s=60.0)
    table = Table.of([good] * 90 + [bad] * 10)
    assert float(table.ttft_s[table.ok].mean()) == at(100)
    assert float(table.failed.mean()) == pytest.approx(0.1)
    assert (bad.error, bad.stream_end_s) == ("timeout_first", at(60_000))


# -- CN: connections


def _ok(ms: float = 100.0) -> list[Act]:
    return stream((ms, C("a")), (ms + 10, C("b")), (ms + 10, FIN("stop") + USE(1, 2) + DONE))


async def _ask(server: Scripted, seq: int = 0, client: MeasuringClient | None = None, **options: Any) -> Record:
    client = client or client_on(server, **options)
    asked = arrival(seq, due_s=client.now_s())
    return await client.send(asked, client.prepare(asked, "hi"))


def test_cn01_four_hundred_streams_run_side_by_side() -> None:
    server = Scripted([stream((50, C("a")), (2000, C("b") + FIN("stop") + DONE))])

    async def main() -> list[Record]:
        client = client_on(server)
        return await asyncio.gather(*(_ask(server, i, client) for i in range(400)))

    records = jump(main())
    assert len(server.pipes) == 400
    assert {round(r.ttft_s or 0.0, 6) for r in records} == {0.05}


def test_cn02_a_request_does_the_same_work_in_a_pool_of_any_size() -> None:
    def calls(idle: int) -> int:
        server = Scripted([_ok()])

        async def main() -> int:
            client = client_on(server)
            await asyncio.gather(*(_ask(server, i, client) for i in range(idle)))
            made = 0

            def count(frame: Any, what: str, arg: Any) -> None:
                nonlocal made
                made += "loadramp" in frame.f_code.co_filename and what == "call"

            sys.setprofile(count)
            try:
                for i in range(20):
                    await _ask(server, idle + i, client)
            finally:
                sys.setprofile(None)
            return made

        return jump(main())

    assert calls(1000) == calls(10)


def test_cn04_a_stalled_stream_fails_alone_and_in_time() -> None:
    server = Scripted([_ok(), stream((100, C("a")), end=False), _ok()])

    async def main() -> tuple[list[Record], float]:
        client = client_on(server, idle_timeout_s=0.5)
        records = await asyncio.gather(*(_ask(server, i, client) for i in range(3)))
        return records, client.now_s()

    records, end_s = jump(main())
    assert [(r.status, r.error, len(r.event_s)) for r in records] == [
        ("ok", None, 2), ("error", "timeout_idle", 1), ("ok", None, 2),
    ]  # fmt: skip
    assert end_s == at(600)


def _gzip_stream(flush: bool, window: int = 31) -> list[Act]:
    squeeze = zlib.compressobj(wbits=window)
    head = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Encoding: %s\r\n\r\n" % (b"gzip" if window == 31 else b"deflate"))
    acts: list[Act] = [(10.0, head)]
    for at_ms, data in ((100.0, C("a")), (120.0, C("é")), (150.0, C("c")), (160.0, FIN("stop") + USE(2, 3) + DONE)):
        out = squeeze.compress(data) + (squeeze.flush(zlib.Z_SYNC_FLUSH) if flush else b"")
        if out:
            acts.append((at_ms, framed(out)))
    return [*acts, (160.0, framed(squeeze.flush()) + LAST)]


@pytest.mark.parametrize("window", [31, 15, -15], ids=["gzip", "zlib", "raw deflate"])
def test_cn08_a_compressed_stream_flushed_by_event_is_timed_exactly(window: int) -> None:
    got = probe_document(record_of(_gzip_stream(flush=True, window=window)))
    assert (got["status"], got["ttft_s"], got["itl_s"], got["text"]) == ("ok", at(100), near(20, 30), "aéc")
    assert "compressed" in got["warnings"]
    assert "burst_delivery" not in got["warnings"]


def test_cn08_a_compressed_stream_flushed_at_its_end_is_a_burst() -> None:
    got = probe_document(record_of(_gzip_stream(flush=False)))
    assert (got["status"], got["text"], got["output_tokens"], got["ttft_s"]) == ("ok", "aéc", 3, at(160))
    assert "burst_delivery" in got["warnings"]


def test_cn08_every_cut_of_a_compressed_stream_gives_the_same_text() -> None:
    whole = b"".join(what for _, what in _gzip_stream(flush=True) if isinstance(what, bytes))
    for offset in range(1, len(whole)):
        record = record_of([(0, whole[:offset]), (1, whole[offset:])])
        assert (record.status, record.text, record.output_tokens) == ("ok", "aéc", 3), offset


@pytest.mark.parametrize(
    "body",
    [gzip.compress(ERROR_JSON), gzip.compress(ERROR_JSON[:9]) + gzip.compress(ERROR_JSON[9:])],
    ids=["one member", "two members"],
)
def test_cn08_a_compressed_error_is_read(body: bytes) -> None:
    record = record_of(reply(body, "400 Bad Request", Content_Encoding="gzip"))
    assert record.error_detail == "HTTP 400 Bad Request: Input validation error: too long"


def test_cn08_broken_and_unknown_compression_are_failures() -> None:
    bad = record_of(reply(b"not gzip at all", content_type="text/event-stream", Content_Encoding="gzip"))
    assert failed(bad) == ("error", "truncated")
    brotli = record_of(reply(b"xxxx", content_type="text/event-stream", Content_Encoding="br"))
    assert failed(brotli) == ("error", "in_band")
    assert "br" in (brotli.error_detail or "")


# -- errors and heads that are not quite what they should be


@pytest.mark.parametrize("said", [b'error: {"code":500,"message":"boom"}\n\n', b'{"error":{"message":"boom"}}\n\n'])
def test_er01_an_error_outside_any_data_field_is_one(said: bytes) -> None:
    record = record_of(stream((10, C("a")), (30, said), (40, DONE)))
    assert failed(record) == ("error", "in_band")
    assert "boom" in (record.error_detail or "")


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\nContent-Type: text/event-stream\nTransfer-Encoding: chunked\n\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["line feeds alone", "a length beside chunks"],
)
def test_a_head_that_browsers_take_is_taken(head: bytes) -> None:
    record = record_of([(0, head), (10, framed(C("a"))), (30, b"%x  \r\n%s\r\n" % (len(DONE), DONE) + LAST)])
    assert (record.status, record.event_s, record.done_marker) == ("ok", near(10), True)


@pytest.mark.parametrize(
    "data",
    [
        {"choices": [{"index": 0, "delta": {"\ud800": 1, "content": "a"}}]},
        {"choices": [{"index": 0, "delta": {"\ud800": 1, "thought": "a"}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"\ud800": 1, "completion_tokens": 1}},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "usage": {"\ud800": 1}}]},
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "x_groq": {"usage": {"\udfff": 1}}},
        {"choices": [{"index": 0, "delta": {"content": "a"}, "\udc00": {"\udc00": "\udc00"}}]},
    ],
)
def test_half_a_character_in_a_key_is_no_reason_to_fail(data: dict[str, Any]) -> None:
    record = record_of(stream((10, event(json.dumps(data))), (20, FIN("stop") + DONE)))
    assert (record.status, len(record.event_s), record.malformed_events) == ("ok", 1, 0)


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry_After": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "Date": "Mon, 01 Jan 2024 00:00:00 GMT"},
        {"Retry_After": "Mon, 01 Jan 2024 00:00:00 GMT", "Date": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"},
        {"Retry_After": "9" * 400},
        {"Retry_After": "-3"},
        {"Retry_After": "nan"},
        {"Retry_After": "\u00b2"},
        {"retry_after_ms": "nan"},
        {"retry_after_ms": "1e999"},
        {"retry_after_ms": "-5"},
        {"retry_after_ms": "soon"},
    ],
)
def test_a_wait_that_cannot_be_is_none(headers: dict[str, str]) -> None:
    record = record_of(reply(b'{"error": "busy"}', "429 Too Many Requests", **headers))
    assert (record.error, record.retry_after_s) == ("http_429", None)
    assert decode(encode(record)).retry_after_s is None


@pytest.mark.parametrize(
    "data",
    [
        {"object": "response", "status": "\udc00x", "output": []},
        {"object": "response", "status": "incomplete", "incomplete_details": {"reason": "\ud800"}},
        {"object": "response", "status": {"\ud800": ["\ud800"] * 90}},
        {"choices": [{"index": 0, "delta": {"content": "\ud83d"}, "finish_reason": "\ud800"}]},
        {"error": {"message": "\ud800", "code": "\udfff"}},
    ],
)
def test_half_a_character_in_any_word_can_be_written(data: dict[str, Any]) -> None:
    record = record_of(stream((10, event(json.dumps(data)) + DONE)))
    assert encode(decode(encode(record))) == encode(record)
    assert len(record.finish_reason or "") <= 100


LONG = "This model's maximum context length is 4096 tokens. " + "You asked for many more than that. " * 20


@pytest.mark.parametrize(
    ("error", "name", "of_load"),
    [
        ({"message": LONG, "type": "BadRequestError", "code": 400}, "long", False),
        ({"message": "no good. " * 80, "type": "BadRequestError", "code": 400}, "invalid", False),
        ({"message": "no good. " * 80, "type": "ServerError", "code": 503}, "full", True),
        ({"message": "prompt blocked", "code": "content_filter"}, "filtered", False),
        (
            {"message": "litellm: nothing of that name", "type": "None", "param": "None", "code": "404"},
            "unknown",
            False,
        ),
        ({"message": "slow down", "type": "rate_limit_error"}, "full", True),
        ({"message": "boom", "type": "server_error"}, "in_band", True),
    ],
)
def test_an_error_inside_a_stream_depends_on_load_or_not_as_it_says(
    error: dict[str, Any], name: str, of_load: bool
) -> None:
    record = record_of(stream((1, event({"error": error}))))
    assert failed(record) == ("error", "in_band")
    assert class_of("in_band", record.error_detail or "", record.failure_status) == (name, of_load)


@pytest.mark.parametrize("key", ["object", "code", "created", "status", "type", "index"])
@pytest.mark.parametrize("digits", [19, 20, 30, 400, 5_000])
def test_an_integer_of_any_length_is_read_over(key: str, digits: int) -> None:
    number = b'{"%s": %s, "choices"' % (key.encode(), b"9" * digits)
    one = C("a").replace(
        b'{"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices"', number
    )
    assert number in one
    for events in (one, one * 40):
        record = record_of(
            stream((5, C("a")), (10, events), *[(20.0 + i, one) for i in range(40)], (90, FIN("stop") + DONE))
        )
        assert (record.status, record.malformed_events, set(record.text or "")) == ("ok", 0, {"a"})
    if digits <= 30:
        same_however_cut(C("a") + one + FIN("stop"))
