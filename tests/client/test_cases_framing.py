"""Bodies that are framed or coded as no document has it, and what they must give all the same."""

import json
import zlib
from itertools import pairwise
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
    C,
    event,
    framed,
    record_of,
    reply,
    same_however_cut,
    stream,
)

OPEN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


def at(ms: float) -> Any:
    return pytest.approx(ms / 1000)


def near(*values_ms: float) -> Any:
    return pytest.approx([value / 1000 for value in values_ms])


def line(data: Any) -> bytes:
    return json.dumps(data).encode() + b"\n"


# -- how the body is coded and framed


@pytest.mark.parametrize("coding", ["none", "None", "identity, identity", "utf-8", "UTF-8", "identity,", "aws-chunked"])
def test_a_content_encoding_that_changes_nothing_is_none(coding: str) -> None:
    head = HEAD.replace(b"\r\n\r\n", f"\r\nContent-Encoding: {coding}\r\n\r\n".encode())
    record = record_of([(0, head), (10, framed(C("a"))), (20, framed(FIN("stop") + DONE) + LAST)])
    assert (record.status, record.event_s, record.done_marker, record.warnings) == ("ok", near(10), True, ["no_usage"])


@pytest.mark.parametrize("coding", ["gzip, identity", "identity, gzip", "GZIP"])
def test_identity_beside_a_compression_is_passed_over(coding: str) -> None:
    body = zlib.compress(C("a") + FIN("stop") + DONE, wbits=31)
    record = record_of(reply(body, content_type="text/event-stream", Content_Encoding=coding))
    assert (record.status, record.text) == ("ok", "a")
    assert "compressed" in record.warnings


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br"])
def test_an_unknown_coding_is_named_where_nothing_can_be_read(coding: str) -> None:
    record = record_of(reply(b"\x0b\x02\x80xxxx", content_type="text/event-stream", Content_Encoding=coding))
    assert (record.status, record.error) == ("error", "in_band")
    assert record.error_detail == f"content-encoding {coding} although identity was asked"


@pytest.mark.parametrize(
    ("last", "status", "tokens"),
    [(FIN("stop"), "ok", 2), (b"", "incomplete", 2), (C("c").rstrip(), "incomplete", 3)],
    ids=["finished", "unfinished", "no blank line"],
)
def test_an_identity_transfer_coding_ends_with_the_connection(last: bytes, status: str, tokens: int) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: identity\r\n\r\n"
    record = record_of([(5, head + C("a")), (10, C("b") + last), (20, "close")])
    assert (record.status, len(record.event_s)) == (status, tokens)


@pytest.mark.parametrize("window", [31, 15, -15], ids=["gzip", "zlib", "raw deflate"])
@pytest.mark.parametrize("behind", [b"", b"\0", b"\0\0\0\0", b"\0\x1f\x8bxx", b"\x1f"], ids=repr)
def test_compressed_bodies_in_single_bytes_and_padded(window: int, behind: bytes) -> None:
    squeezed = zlib.compressobj(wbits=window)
    body = squeezed.compress(C("a") + FIN("stop") + DONE) + squeezed.flush() + behind
    coding = b"gzip" if window == 31 else b"deflate"
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (coding, len(body))
    for size in (1, 2, 7, len(body)):
        pieces = [body[i : i + size] for i in range(0, len(body), size)]
        record = record_of([(0.0, head), *[(1.0 + i, piece) for i, piece in enumerate(pieces)]])
        assert (record.status, record.text, record.done_marker) == ("ok", "a", True), size


@pytest.mark.parametrize("before", [b"", b"Content-Type: text/event-stream\r\n"], ids=["first", "later"])
@pytest.mark.parametrize("bad", [b"Content-Length: 5\r\nContent-Length: 5\r\n", b"Content-Length: 5, 5\r\n",
                                 b"Content-Length: x\r\n", b"Bad Header\r\n"])  # fmt: skip
def test_a_head_that_breaks_http_is_named_as_what_it_is(before: bytes, bad: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + before + bad + b"\r\nhello"
    for script in ([(5.0, head)], [(5.0 + i, head[i : i + 1]) for i in range(len(head))]):
        record = record_of(script)
        assert (record.status, record.error) == ("error", "truncated")
        assert (record.error_detail or "").startswith("the reply breaks HTTP: ")


@pytest.mark.parametrize(
    "more", [b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"", b"Connection: Upgrade\r\nUpgrade: h2c\r\n"]
)
def test_a_server_that_switches_protocols_fails_at_once(more: bytes) -> None:
    record = record_of([(5, b"HTTP/1.1 101 Switching Protocols\r\n" + more + b"\r\n\x81\x05hello")])
    assert (record.status, record.error, record.stream_end_s) == ("error", "connect", at(5))
    assert "101" in (record.error_detail or "")


def test_one_event_too_deep_to_read_costs_no_other() -> None:
    deep = C("b").replace(b'"finish_reason"', b'"x": %s, "finish_reason"' % (b"[" * 12_000 + b"]" * 12_000))
    script = stream(*[(10.0 + i, C("a")) for i in range(40)], (60, deep), *[(61.0 + i, C("c")) for i in range(40)],
                    (120, FIN("stop") + DONE))  # fmt: skip
    record = record_of(script)
    assert (record.status, len(record.event_s), record.malformed_events) == ("ok", 80, 1)


@pytest.mark.parametrize("depth", [100, 480, 900, 1100, 100_000])
@pytest.mark.parametrize("place", ['{"choices":[{"delta":{"content":%s}}]}', '{"choices":[{"delta":{"thought":%s}}]}',
                                   '{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":%s}}]}}]}',
                                   '{"error":%s}'])  # fmt: skip
def test_no_depth_breaks_a_record(depth: int, place: str) -> None:
    body = place % ("[" * depth + '"x"' + "]" * depth)
    record = record_of(stream((10, C("a") + event(body)), (30, C("b") + FIN("stop") + DONE)))
    assert (record.text, record.error) in (("ab", None), ("ab", "in_band"))
    refused = record_of(reply(body.encode(), "500 Internal Server Error"))
    assert (refused.status, refused.error) == ("error", "http_5xx")


# -- JSON that no field brings


def _text(text: str, reason: Any = None) -> dict[str, Any]:
    return {"choices": [{"text": text, "finish_reason": reason}]}


def _delta(text: str, reason: Any = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


METADATA = {"choices": [], "prompt_filter_results": []}


@pytest.mark.parametrize(
    "parts",
    [
        [_text("a"), _text("b", "stop")],
        [_text("a"), _text("b"), _text("", "stop")],
        [METADATA, _delta("a"), _delta("b", "stop")],
        [METADATA, _text("a"), _text("b", "stop")],
        [_delta("a"), _delta("b"), {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}, "[DONE]"],
    ],
    ids=["text", "text and end", "metadata, chat", "metadata, text", "chat"],
)
@pytest.mark.parametrize("between", [b"\n", b"\n\n", b"\r\n", b"", b" \n"], ids=["LF", "LFLF", "CRLF", "none", "space"])
def test_json_lines_of_every_kind_are_a_stream(parts: list[Any], between: bytes) -> None:
    bodies = [b"[DONE]" if part == "[DONE]" else json.dumps(part).encode() for part in parts]
    acts = [(10.0 * i, body + between) for i, body in enumerate(bodies, 1)]
    record = record_of(stream(*acts))
    assert (record.status, record.text, len(record.event_s)) == ("ok", "ab", 2)
    assert "not_streamed" not in record.warnings
    assert record.event_s[1] - record.event_s[0] == at(10)
    assert same_however_cut(between.join([*bodies, b""])).text == "ab"


def test_a_document_of_text_alone_is_a_whole_reply_still() -> None:
    record = record_of(reply(json.dumps(_text("abc")).encode(), at_ms=9))
    assert (record.status, record.text, record.event_s, record.warnings) == ("ok", "abc", near(9),
                                                                             ["not_streamed", "no_usage"])  # fmt: skip


@pytest.mark.parametrize(
    "error",
    [
        b'{"error":{"message":"boom"}}',
        b'[{"error":{"message":"boom","code":429}}]',
        b'{\n "error": {\n  "message": "boom"\n }\n}',
        b'{\n"error": {\n"message": "boom}"\n}\n}',
        b'[\n {"error": {"message": "boom"}}\n]',
        b'{"code":1302,"msg":"boom"}',
    ],
    ids=["line", "list", "pretty", "no indent", "pretty list", "msg"],
)
@pytest.mark.parametrize("before", [b"", C("a"), ROLE], ids=["nothing", "output", "role"])
@pytest.mark.parametrize("behind", [b"", b"\n", b"\n\ndata: [DONE]\n\n", DONE, b"\n" + C("b") + DONE],
                         ids=["end", "LF", "done", "done at once", "more"])  # fmt: skip
def test_a_bare_error_is_one_wherever_it_is_cut(error: bytes, before: bytes, behind: bytes) -> None:
    record = same_however_cut(before + error + behind)
    assert (record.status, record.error) == ("error", "in_band")
    assert "boom" in (record.error_detail or "")
    left_open = record_of([(0, HEAD), (10, framed(before + error + behind))])
    assert (left_open.error, left_open.stream_end_s) == ("in_band", at(10))


def test_a_bare_first_event_may_be_followed_by_framed_ones() -> None:
    for separator in (b"\n", b"\n\n", b""):
        body = json.dumps(_delta("a")).encode() + separator + C("b") + FIN("stop") + DONE
        record = same_however_cut(body)
        assert (record.status, record.text, record.done_marker) == ("ok", "ab", True), separator


WHOLE = {
    "id": "c1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": 'a "}" b'}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2},
}


@pytest.mark.parametrize("indent", [None, 0, 1], ids=["line", "no indent", "indent"])
@pytest.mark.parametrize(
    "before", [b"", b"\xef\xbb\xbf", b"\n\n \n", b": wait\n\n"], ids=["", "BOM", "blank", "comment"]
)
def test_a_whole_reply_is_one_however_it_is_set(indent: int | None, before: bytes) -> None:
    body = before + json.dumps(WHOLE, indent=indent).encode()
    for end in (b"", b"\n"):
        record = same_however_cut(body + end)
        assert (record.status, record.text, len(record.event_s), record.output_tokens) == ("ok", 'a "}" b', 1, 2)
        assert (record.token_source, "not_streamed" in record.warnings) == ("usage", True)
    left_open = record_of([(0, HEAD), (10, framed(body[:60])), (30, framed(body[60:]))])
    assert (left_open.status, left_open.stream_end_s) == ("ok", at(30))


def test_a_list_of_one_error_left_open_fails_at_once() -> None:
    record = record_of([(30, OPEN + b'[{"error":{"message":"m","code":429}}]')])
    assert (record.error, record.error_detail, record.stream_end_s) == ("in_band", "m (429)", at(30))


@pytest.mark.parametrize("marker", [b"[DONE]\n", b"[done]\n", b"data: [done]\n\n", b'data: "[Done]"\n\n', b"[DONE]",
                                    b'"[DONE]"\n', b" [DONE] \n"])  # fmt: skip
def test_the_end_marker_needs_no_field_and_no_capitals(marker: bytes) -> None:
    record = same_however_cut(C("a") + C("b") + marker)
    assert (record.status, record.done_marker, record.malformed_events) == ("ok", True, 0)
    again = same_however_cut(C("a") + C("b").removesuffix(b"\n") + marker)
    assert (again.status, again.text, again.done_marker) == ("ok", "ab", True)


@pytest.mark.parametrize("between", [b"", C("late"), event({"error": "late"})])
def test_token_counts_behind_the_end_are_read_and_nothing_else(between: bytes) -> None:
    record = same_however_cut(C("a") + C("b") + DONE + between + USE(9, 5))
    assert (record.status, record.text, record.prompt_tokens, record.output_tokens) == ("ok", "ab", 9, 5)
    apart = record_of(stream((10, C("a")), (20, DONE), (30, USE(9, 1))))
    assert (apart.prompt_tokens, apart.token_source) == (9, "usage")


def test_until_close_the_same_holds() -> None:
    record = record_of([(5, UNTIL_CLOSE + json.dumps(_text("a")).encode()), (9, b"\n" + line(_text("b", "stop"))),
                        (20, "close")])  # fmt: skip
    assert (record.status, record.text, [b - a for a, b in pairwise(record.event_s)]) == ("ok", "ab", near(4))
