"""The quick way for plain lots says what the patient parsers say, or nothing."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import CU, DONE, FIN, HEAD, LAST, ROLE, USE, C, chunk, delta, event, framed

from loadramp.client.http.response import ResponseReader
from loadramp.client.stream.event_batch import PlainEvent, plain_events
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.types import Record

PLAIN = [
    C("a"),
    C("é世🙂"),
    C('"}\\n'),
    C("data: b"),
    CU("x", 3),
    C("b", 1),
    event({"choices": [{"text": "t"}]}),
    chunk(
        {"index": 0, "delta": {"content": "a", "thought": "t", "text": "b"}, "content": "c"},
        x_groq={"usage": {"completion_tokens": 9}},
        timings={"predicted_n": 9},
        error_msg="no",
        code=500,
        msg="no",
    ),
    event({"choices": [{"text": "t", "reasoning_content": "hm"}]}),
]
NOT_PLAIN = {
    "finish": FIN("stop"),
    "empty": C(""),
    "role only": ROLE,
    "thought": delta(reasoning="hm"),
    "call": delta(tool_calls=[{"index": 0, "function": {"name": "f", "arguments": "{}"}}]),
    "refusal beside content": delta(content="a", refusal="no"),
    "usage only": USE(3, 4),
    "no choices": event({"choices": []}),
    "two choices": chunk({"index": 0, "delta": {"content": "a"}}, {"index": 1, "delta": {"content": "b"}}),
    "no text": event({"choices": [{"index": 0}]}),
    "both texts, one empty": event({"choices": [{"index": 0, "delta": {}, "text": "a"}]}),
    "index too large": C("a", 1024),
    "index negative": C("a", -1),
    "index of no kind": event({"choices": [{"index": "0", "delta": {"content": "a"}}]}),
    "error": event({"error": {"message": "no"}, "choices": [{"index": 0, "delta": {"content": "a"}}]}),
    "text of parts": delta(content=[{"type": "text", "text": "a"}]),
    "named": b"event: message\n" + C("a"),
    "comment": b": ping\n\n",
    "CRLF": C("a").replace(b"\n", b"\r\n"),
    "CR inside": C("a").replace(b", ", b",\r", 1),
    "broken": b'data: {"choices": [}\n\n',
    "usage in the choice": chunk({"index": 0, "delta": {"content": "a"}, "usage": {"completion_tokens": 3}}),
    "usage in the delta": chunk({"index": 0, "delta": {"content": "a", "usage": {"completion_tokens": 3}}}),
    "bare": C("a").removeprefix(b"data: "),
    "too deep": C("a").replace(b'"id"', b'"x": %s, "id"' % (b"[" * 12_000 + b"]" * 12_000)),
    "odd thought": delta(thoughts="hm"),
    "text in the delta": delta(text="a"),
    "named failure": b"event: Error\n\n",
    "two events": C("a") + C("b"),
    "done": DONE,
    "no JSON object": b"data: []\n\n",
    "tokens of no kind": CU("a", 3).replace(b'"completion_tokens": 3', b'"completion_tokens": "3"'),
    "tokens as a fraction": CU("a", 3).replace(b'"completion_tokens": 3', b'"completion_tokens": 3.5'),
    "no tokens yet": CU("a", 0),
    "tokens beyond belief": CU("a", 10_000_001),
    "usage of the other API": event({"choices": [{"delta": {"content": "a"}}], "usage": {"output_tokens": 3}}),
}


FRAMINGS = {
    "one whole chunk": (framed(C("a")), True),
    "a text generation": (framed(event({"choices": [{"text": "t"}]})), True),
    "the end": (framed(DONE), False),
    "two chunks": (framed(C("a")) + framed(C("b")), False),
    "its last byte is missing": (framed(C("a"))[:-1], False),
    "its first byte is missing": (framed(C("a"))[1:], False),
    "line feeds alone": (framed(C("a")).replace(b"\r\n", b"\n"), False),
    "a carriage return inside": (framed(C("a").replace(b", ", b",\r", 1)), False),
    "a line feed inside": (framed(C("a").replace(b", ", b",\n", 1)), False),
    "a named event": (framed(b"event: x\n" + C("a")), False),
    "no space after the colon": (framed(b"data:{}\n\n"), False),
    "too many digits": (b"fffffff\r\ndata: {}\n\n\r\n", False),
    "no size": (b"\r\ndata: {}\n\n\r\n", False),
    "an empty line": (b"\r\n", False),
    "a letter": (b"a", False),
}
"""How a plain event is framed, and what is no such framing: the reader in C is held against it too."""


def played(pieces: list[bytes]) -> dict[str, Any]:
    exchange = ResponseReader(Record(31, 0, 0.0, sent_s=0.0), RequestedOutput(save_text=True))
    for at, piece in enumerate(pieces, 1):
        exchange.feed(piece, float(at))
    exchange.closed(None, "", len(pieces) + 1.0)
    record = exchange.finish()
    return {name: getattr(record, name) for name in Record.__dataclass_fields__}


def texts(events: list[PlainEvent]) -> list[str | None]:
    choices = [one.choices[0] for one in events]
    return [choice.delta.content if choice.delta else choice.text for choice in choices]


def test_texts_indices_and_counts_of_a_plain_lot() -> None:
    events = plain_events([framed(data) for data in PLAIN])
    assert events is not None
    assert texts(events) == ["a", "é世🙂", '"}\\n', "data: b", "x", "b", "t", "a", "t"]
    assert [one.choices[0].index for one in events] == [0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert [one.usage and one.usage.completion_tokens for one in events] == [
        None,
        None,
        None,
        None,
        3,
        None,
        None,
        None,
        None,
    ]


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_anything_else_is_left_to_the_parsers(what: str) -> None:
    other = NOT_PLAIN[what]
    events = plain_events([framed(C("a")), framed(other), framed(C("b"))])
    assert events is None or None in texts(events)


@pytest.mark.parametrize("what", FRAMINGS)
def test_a_plain_event_is_one_whole_chunk(what: str) -> None:
    data, plain = FRAMINGS[what]
    assert (plain_events([data]) is not None) is plain


@pytest.mark.parametrize(
    "reads",
    [
        [framed(C("a"))[:-3], framed(C("a"))[-3:]],
        [framed(C("a")) + framed(C("b")), b""],
        [framed(C("a")), b"1" + framed(C("b"))],
        [framed(C("a")), b"\r\n" + framed(C("b"))],
        [framed(C("a"))[:9], framed(C("a"))[9:] + framed(C("b"))],
        [framed(C("a")), C("b")],
    ],
)
def test_a_lot_that_is_cut_or_framed_otherwise_is_left_to_the_parsers(reads: list[bytes]) -> None:
    assert plain_events(reads) is None


@given(
    events=st.lists(
        st.one_of(st.sampled_from(PLAIN), st.sampled_from(PLAIN), st.sampled_from(sorted(NOT_PLAIN.values()))),
        max_size=90,
    )
)
@settings(max_examples=200)
def test_both_ways_make_the_same_record(events: list[bytes]) -> None:
    pieces = [HEAD + framed(ROLE), *map(framed, events), framed(FIN("stop")), framed(DONE) + LAST]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResponseReader, "_plain", lambda *_: False)
        patient = played(pieces)
    assert played(pieces) == patient


def test_a_lot_is_taken_the_quick_way_where_it_can_be() -> None:
    taken: list[int] = []
    plain = ResponseReader._plain
    with pytest.MonkeyPatch.context() as patch:

        def spied(self: ResponseReader, read: Any, lot: list[bytes], stamps: list[float]) -> bool:
            took = plain(self, read, lot, stamps)
            taken.append(len(lot) if took else 0)
            return took

        patch.setattr(ResponseReader, "_plain", spied)
        pieces = [HEAD + framed(ROLE), *[framed(CU("x", i)) for i in range(1, 66)], framed(DONE) + LAST]
        record = played(pieces)
    assert taken == [32, 32]
    assert record["output_tokens"] == 65
    assert record["token_source"] == "continuous"
    assert record["event_s"] == [float(i) for i in range(2, 67)]


def test_no_lot_is_plain_inside_a_chunk_or_an_event() -> None:
    whole = C("b" * 200)
    opened = b"%x\r\n" % (len(whole) + len(C("a"))) + C("a")  # the chunk goes on
    lots = [framed(C("c"))] * 40
    pieces = [HEAD + framed(C("a")), opened, *lots]
    exchange = ResponseReader(replace(Record(0, 0, 0.0), sent_s=0.0), RequestedOutput())
    for piece in pieces:
        exchange.feed(piece, 1.0)
    exchange.digest()
    assert len(exchange.answer.event_s) < 40  # what follows is the inside of the chunk, not chunks of its own
