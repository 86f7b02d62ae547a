"""One HTTP response without I/O: no cut of its bytes changes the record, and each event has the instant of its read."""

from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import CU, DONE, FIN, HEAD, LAST, ROLE, UNTIL_CLOSE, USE, C, chunk, delta, event, framed

from loadramp.client.http.response import BATCH_READS, ResponseReader
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.types import Record

EVENTS = {
    "role": ROLE,
    "text": C("hello"),
    "wide": C("é世🙂"),
    "empty": C(""),
    "thought": delta(reasoning="hm"),
    "call": delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{}"}}]),
    "other": C("b", 1),
    "counted": CU("x", 3),
    "ping": b": ping\n\n",
    "crlf": C("c").replace(b"\n", b"\r\n"),
    "cr": C("c").replace(b"\n", b"\r"),
    "broken": b"data: {broken\n\n",
    "named": b"id: 3\nevent: message\n" + C("n"),
    "finish": FIN("stop"),
    "usage": USE(3, 4),
    "error": event({"error": {"message": "no", "code": 500}}),
    "done": DONE,
    "done bare": b"[done]\n",
    "bare": C("b").removeprefix(b"data: "),
    "bare line": C("b").removeprefix(b"data: ").rstrip() + b"\n",
    "bare without line end": C("b").removeprefix(b"data: ").rstrip(),
    "bare text": b'{"choices":[{"text":"t"}]}\n',
    "bare metadata": b'{"choices":[]}\r\n',
    "bare reply": b'{"choices":[{"message":{"content":"r"},"finish_reason":"stop"}]}\n',
    "bare error": b'{"error":{"message":"no"}}\n\n',
    "pretty error": b'{\n "error": {\n\n  "message": "}no"\n }\n} \n',
    "list": b'[{"code":500,"msg":"no"}]',
    "open brace": b'{"choices":[\n',
    "close brackets": b"]} x\n",
    "named failure": b"event: Error\n\n",
    "odd thought": delta(thoughts="hm"),
    "odd text": chunk({"index": 0, "delta": {}, "text": "o"}),
    "message": chunk({"index": 0, "delta": {}, "message": {"content": "whole"}, "finish_reason": "stop"}),
    "odd usage": event({"choices": [], "x_groq": {"usage": {"prompt_tokens": "3", "completion_tokens": "4"}}}),
    "words": b"data: overloaded\n\n",
    "stray": b"overloaded\n",
    "response delta": b'event: response.output_text.delta\ndata: {"delta":"r"}\n\n',
    "response text": event({"type": "response.output_text.done", "text": "r"}),
    "response end": event({"type": "response.completed"}),
}
BARE = [name for name, data in EVENTS.items() if not data.startswith((b"data:", b"id:", b":"))]
HAS_OUTPUT = {"text", "wide", "thought", "call", "other", "counted", "crlf", "cr", "named"}


def played(pieces: list[bytes], close: bool = True) -> Record:
    """The record of ``pieces`` arriving at 1 s, 2 s, ..., and the end of the connection after them."""
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(save_text=True))
    for at, piece in enumerate(pieces, 1):
        exchange.feed(piece, float(at))
    if close:
        exchange.closed(None, "", len(pieces) + 1.0)
    return exchange.finish()


def without_times(record: Record) -> dict[str, Any]:
    timed = {"first_byte_s", "event_s", "answer_s", "stream_end_s", "warnings"}
    return {name: getattr(record, name) for name in Record.__dataclass_fields__ if name not in timed}


@given(
    names=st.lists(st.sampled_from(sorted(EVENTS)), max_size=12) | st.lists(st.sampled_from(BARE), max_size=6),
    frame=st.sampled_from(["chunk each", "one chunk", "close", "length"]),
    cuts=st.lists(st.floats(0, 1), max_size=12),
    whole_lines=st.booleans(),
)
@settings(max_examples=150)
def test_no_cut_changes_the_record(names: list[str], frame: str, cuts: list[float], whole_lines: bool) -> None:
    raw, _ = _reply(names, frame)
    offsets = sorted({round(cut * len(raw)) for cut in cuts})
    if whole_lines:  # the cuts that let bytes pile up unparsed
        offsets = sorted({raw.rfind(b"\n", 0, offset) + 1 for offset in offsets})
    bounds = [0, *offsets, len(raw)]
    pieces = [raw[a:b] for a, b in pairwise(bounds) if a < b]
    assert without_times(played(pieces)) == without_times(played([raw]))


@given(
    names=st.lists(st.sampled_from(sorted(HAS_OUTPUT | {"role", "ping", "empty"})), min_size=1, max_size=40),
    size=st.integers(1, 400),
)
@settings(max_examples=150)
def test_each_event_has_the_instant_of_the_read_that_completes_it(names: list[str], size: int) -> None:
    raw, ends = _reply([*names, "done"], "chunk each")
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    expected = [1.0 + (end - 1) // size for name, end in zip(names, ends, strict=False) if name in HAS_OUTPUT]
    assert played(pieces).event_s == expected


def _reply(names: list[str], frame: str) -> tuple[bytes, list[int]]:
    """The bytes of a reply, and for each of its events the offset behind the byte that completes it."""
    events = [EVENTS[name] for name in names]
    if frame == "chunk each":
        parts = [framed(data) for data in events]
        ends = [len(HEAD) + end - len(b"\r\n") for end in accumulate(len(part) for part in parts)]
        for i, data in enumerate(events):  # CRLF: complete at its last CR
            ends[i] -= data.endswith(b"\r\n")
        return HEAD + b"".join(parts) + LAST, ends
    body = b"".join(events)
    if frame == "one chunk":
        return HEAD + (framed(body) if body else b"") + LAST, []
    if frame == "length":
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body, []
    return UNTIL_CLOSE + body, []


@pytest.mark.parametrize(("seq", "first"), [(0, 1), (5, 6), (31, 32), (32, 1)])
def test_first_lots_differ_so_that_streams_of_one_step_are_not_all_parsed_in_the_same_one(seq: int, first: int) -> None:
    exchange = ResponseReader(Record(seq, 0, 0.0), RequestedOutput())
    exchange.feed(HEAD + framed(ROLE), 1.0)
    exchange.feed(framed(C("a")), 2.0)
    parsed = [exchange.feed(framed(C("b")), 3.0 + i) for i in range(first + 2 * BATCH_READS)]
    assert [i + 1 for i, lot in enumerate(parsed) if lot] == [first, first + BATCH_READS, first + 2 * BATCH_READS]


def test_parsing_waits_for_a_lot_only_after_the_first_output() -> None:
    exchange = ResponseReader(Record(31, 0, 0.0), RequestedOutput())
    assert exchange.feed(HEAD + framed(ROLE), 1.0)
    assert exchange.feed(framed(C("a")), 2.0)
    parsed = [exchange.feed(framed(C("b")), 3.0 + i) for i in range(BATCH_READS)]
    assert parsed == [False] * (BATCH_READS - 1) + [True]
    assert len(exchange.answer.event_s) == 1 + BATCH_READS


@pytest.mark.parametrize(
    "last",
    [
        [framed(FIN("stop") + DONE) + LAST],
        [framed(FIN("stop")), framed(DONE), LAST],
        [framed(FIN("stop")), framed(DONE)[:9], framed(DONE)[9:], LAST[:3], LAST[3:]],
        [framed(FIN("stop")) + framed(DONE)[:-2], b"\r\n0\r\n", b"\r\n"],
        [framed(FIN("stop"))[:-1], b"\n" + LAST],
        [framed(FIN("stop")), b"0\r\nX-Trailer: 1\r\n\r\n"],
        [framed(FIN("stop") + DONE) + b"0\r\nX-Trailer: 1", b"\r\n\r\n"],
    ],
)
def test_the_end_of_a_response_is_seen_with_its_last_byte(last: list[bytes]) -> None:
    exchange = ResponseReader(Record(0, 0, 0.0), RequestedOutput())
    for piece in [HEAD + framed(C("a")), framed(C("b")), *last[:-1]]:
        exchange.feed(piece, 1.0)
        assert not exchange.over
    assert exchange.feed(last[-1], 2.0)
    assert (exchange.over, exchange.reusable) == (True, True)


def test_a_response_over_a_content_length_is_seen_to_end() -> None:
    body = C("a") + FIN("stop")
    exchange = ResponseReader(Record(0, 0, 0.0), RequestedOutput())
    exchange.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + C("a"), 1.0)
    assert exchange.feed(FIN("stop"), 2.0)
    assert exchange.over


def test_a_snapshot_parses_what_waits_and_changes_nothing() -> None:
    exchange = ResponseReader(Record(3, 0, 0.0, sent_s=0.0), RequestedOutput(save_text=True))
    exchange.feed(HEAD + framed(C("a")), 1.0)
    exchange.feed(framed(C("b")), 2.0)
    seen = exchange.snapshot()
    assert (seen.status, seen.event_s, seen.text, seen.http_status) == ("in_flight", [1.0, 2.0], "ab", 200)
    exchange.feed(framed(C("c") + FIN("stop") + DONE) + LAST, 3.0)
    record = exchange.finish()
    assert (record.status, record.event_s, record.text) == ("ok", [1.0, 2.0, 3.0], "abc")
    assert seen.event_s == [1.0, 2.0]
    assert record == replace(record)


def test_bytes_behind_the_end_make_the_connection_unfit() -> None:
    exchange = ResponseReader(Record(0, 0, 0.0), RequestedOutput())
    exchange.feed(HEAD + framed(C("a") + DONE) + LAST + b"HTTP/1.1 200 OK\r\n", 1.0)
    assert (exchange.over, exchange.reusable) == (True, False)
    later = ResponseReader(Record(0, 0, 0.0), RequestedOutput())
    later.feed(HEAD + framed(C("a") + DONE) + LAST, 1.0)
    assert later.reusable
    later.feed(b"more", 2.0)
    assert not later.reusable
    assert later.finish().status == "ok"


def test_giving_up_after_the_response_is_over_changes_nothing() -> None:
    exchange = ResponseReader(Record(0, 0, 0.0), RequestedOutput())
    exchange.feed(HEAD + framed(C("a") + DONE) + LAST, 1.0)
    exchange.fail("client", "cut off", 2.0)
    exchange.closed("reset", "reset", 3.0)
    record = exchange.finish()
    assert (record.status, record.stream_end_s) == ("ok", 1.0)


def test_many_headers_and_odd_spellings_of_them_are_read() -> None:
    head = b"HTTP/1.1 200 OK\r\nX-A: %s\r\nCONTENT-TYPE:text/event-stream\r\ntransfer-encoding:  chunked\r\n\r\n" % (
        b"y" * 20000
    )
    assert played([head + framed(C("a") + DONE) + LAST]).status == "ok"
