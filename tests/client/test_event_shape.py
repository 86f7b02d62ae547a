"""What the reader in C notes without parsing is what the parsers say, or it notes nothing."""

import json
import shutil
import sys
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutated_replies import Mutated
from reply_invariants import Fed, apart, cuts, exchange_of, fields, in_c, in_python, ways_in_c
from scripted_server import CU, DONE, FIN, HEAD, LAST, ROLE, USE, C, delta, framed
from test_event_batch import NOT_PLAIN, PLAIN

from hatch_build import COMPILERS
from loadramp.client.http.c_reader import TRIES
from loadramp.client.stream.event_batch import RunningUsage
from loadramp.client.stream.event_shape import NotedEvents, opening_of, shape_of

buildable = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not any(map(shutil.which, COMPILERS)), reason="no compiler for the reader"
)
CHAT = (
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1764000000,"model":"m","choices":[{"index":0,'
    b'"delta":{"content":" word"},"logprobs":null,"finish_reason":null}],"usage":{"prompt_tokens":8,"total_tokens":9,'
    b'"completion_tokens":1}}'
)


@pytest.fixture(scope="module")
def fed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    one = Fed(tmp_path_factory.mktemp("fed"))
    yield one
    one.close()


# -- what a shape is


def test_text_and_counts_of_a_chat_event_are_its_holes() -> None:
    shape = shape_of(CHAT, {})
    assert shape is not None
    assert [hole for _, hole in shape.parts] == ["string", "number", "any_text", "same", "number", "count", "end"]
    assert shape.parts[0] == (b'\r\ndata: {"id":', "string")
    assert shape.parts[1] == (b',"object":"chat.completion.chunk","created":', "number")
    assert shape.parts[-1] == (b"}}\n\n\r\n", "end")
    assert (shape.choice, shape.usage) == (0, RunningUsage(prompt_tokens=8, completion_tokens=1))


def test_a_completion_and_a_choice_of_another_number_have_shapes() -> None:
    shape = shape_of(b'{"choices": [{"index": 3, "text": "a", "finish_reason": null}]}', {})
    assert shape is not None
    assert shape.parts == (
        (b'\r\ndata: {"choices": [{"index": 3, "text": ', "any_text"),
        (b', "finish_reason": null}]}\n\n\r\n', "end"),
    )
    assert (shape.choice, shape.usage) == (3, None)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"choices":[{"delta":{"content":"a","text":"b"}}]}',  # which of the two is the text?
        b'{"choices":[{"delta":{"content":"a","content":"b"}}]}',
        b'{"choices":[{"delta":{"content":"a","con\\u0074ent":"b"}}]}',
        b'{"choices":[{"delta":{"con\\u0074ent":"a"}}]}',
        b'{"content":"x","choices":[{"delta":{"con\\u0074ent":"a"}}]}',
        b'{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":8,"completion_tokens":1,"completion_tokens":2}}',
        b'{"choices":[{"delta":{"content":"a"}}],"x_groq":{"usage":{"completion_tokens":9}}}',
        b'{"choices":[{"delta":{"content":"a"}}],"x":"' + b"y" * 5_000 + b'"}',
        b'{"choices":[{"delta":{"content":"a"}}],"x":[' + b",".join([b'{"id":"a"}'] * 20) + b"]}",
        b'{"choices":[{"delta":{"content":"a"}}],\n"x":1}',
        b'{"choices":[{"delta":{"content":""}}]}',
        b"{",
    ],
)
def test_an_event_that_says_too_little_of_the_others_has_no_shape(payload: bytes) -> None:
    assert shape_of(payload, {}) is None


def test_a_shape_is_proved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[Any, Any] = {}
    assert shape_of(chat(b'""'), known) is None  # says nothing of those that have a text
    first = shape_of(CHAT, known)
    monkeypatch.setattr("loadramp.client.stream.event_shape.plain_event", None)
    assert shape_of(chat(b'"b"', b"77"), known) is first is not None
    monkeypatch.undo()
    monkeypatch.setattr("loadramp.client.stream.event_shape.KNOWN", 1)
    assert shape_of(CHAT[:-1] + b',"x":1}', known) is not None
    assert len(known) == 1


@pytest.mark.parametrize("what", NOT_PLAIN)
def test_what_is_no_plain_event_has_no_shape(what: str) -> None:
    assert shape_of(NOT_PLAIN[what][6:-2], {}) is None


# -- what is noted


def noted(fed: Fed, first: bytes, *payloads: bytes) -> list[tuple[str, int]] | None:
    """Texts and counts of ``payloads`` that came in one read behind an event of the shape of ``first``; None when they
    were not noted."""
    kept = fed.keep()
    try:
        assert fed.read(framed(b"data: " + first + b"\n\n"), 1.0)
        assert kept.take().batch is not None
        kept.note(True)
        fed.read(b"".join(framed(b"data: " + payload + b"\n\n") for payload in payloads), 2.0)
        taken = kept.take()
    finally:
        fed.drop()
    found: NotedEvents | None = taken.noted
    if found is None:
        assert taken.batch is not None or taken.others
        return None
    assert [len(text) for text in found.texts()] == found.characters
    assert set(found.stamps_s) == {2.0}
    return list(zip(found.texts(), found.tokens, strict=True))


def chat(text: bytes, completion: bytes = b"2", total: bytes = b"10") -> bytes:
    payload = CHAT.replace(b'" word"', text).replace(b'"completion_tokens":1', b'"completion_tokens":' + completion)
    return payload.replace(b'"total_tokens":9', b'"total_tokens":' + total)


@buildable
@pytest.mark.parametrize(
    "text",
    ["a", "é世🙂\U0010ffff\x7f\u0080\u07ff\u0800\uffff", '"}\\\n\r\t\b\f/', "data: b\\", "\u2028\u2029", "x" * 6_000],
)
@pytest.mark.parametrize("ascii_only", [False, True])
def test_every_text_is_noted_as_it_is(fed: Fed, text: str, ascii_only: bool) -> None:
    payload = chat(json.dumps(text, ensure_ascii=ascii_only).encode())
    assert noted(fed, CHAT, payload, chat(b'"b"', b"7")) == [(text, 2), ("b", 7)]


@buildable
def test_counts_may_jump_and_fall_and_ids_and_times_may_differ(fed: Fed) -> None:
    payloads = [chat(b'"a"', b"500", b"0"), chat(b'"b"', b"10000000"), chat(b'"c"', b"1", b"123456789012345678")]
    payloads[1] = payloads[1].replace(b"chatcmpl-1", b"\xc3\xa9").replace(b"1764000000", b"0")
    assert noted(fed, CHAT, *payloads) == [("a", 500), ("b", 10_000_000), ("c", 1)]


@buildable
@pytest.mark.parametrize(
    "payload",
    [
        chat(b"null"),
        chat(b'"a\nb"'),
        chat(b'"a\x1f"'),
        chat(b'"a\\x"'),
        chat(b'"a\\'),
        chat(b'"a'),
        chat(b'"a\\u12"'),
        chat(b'"a\\u12g4"'),
        chat(b'"\\ud800"'),
        chat(b'"\\ud800\\ud800"'),
        chat(b'"\\ud800x"'),
        chat(b'"\\udc00"'),
        chat(b'"\xff"'),
        chat(b'"\xc3"'),
        chat(b'"\xc0\x80"'),
        chat(b'"\xe0\x80\x80"'),
        chat(b'"\xed\xa0\x80"'),
        chat(b'"\xf0\x80\x80\x80"'),
        chat(b'"\xf4\x90\x80\x80"'),
        chat(b'"\xf5\x80\x80\x80"'),
        chat(b'"\x80"'),
        chat(b'"a"', b"0"),
        chat(b'"a"', b"-1"),
        chat(b'"a"', b"01"),
        chat(b'"a"', b"1.5"),
        chat(b'"a"', b"1e3"),
        chat(b'"a"', b"10000001"),
        chat(b'"a"', b"9" * 30),
        chat(b'"a"', b'"2"'),
        chat(b'"a"', b"null"),
        chat(b'"a"', b""),
        chat(b'"a"').replace(b'"finish_reason":null', b'"finish_reason":"stop"'),
        chat(b'"a"').replace(b'"index":0', b'"index":1'),
        chat(b'"a"').replace(b'"prompt_tokens":8', b'"prompt_tokens":10000001'),
        chat(b'"a"').replace(b'"prompt_tokens":8', b'"prompt_tokens":-8'),
        chat(b'"a"').replace(b'"id":"chatcmpl-1"', b'"id":null'),
        chat(b'"a"').replace(b'"delta":{', b'"delta":{"role":"assistant",'),
        chat(b'"a"').replace(b'"content"', b'"reasoning"'),
        chat(b'"a"')[:-1] + b',"error":{"message":"no"}}',
        chat(b'"a"')[:-1],
        b"[DONE]",
    ],
)
def test_what_differs_elsewhere_or_is_no_text_or_count_is_not_noted(fed: Fed, payload: bytes) -> None:
    assert noted(fed, CHAT, payload) is None
    assert noted(fed, CHAT, chat(b'"a"'), payload) is None  # nor is anything else of the read
    assert noted(fed, CHAT, payload, chat(b'"a"')) is None


@buildable
def test_tokens_without_text_are_noted_where_nothing_else_can_be_in_their_events(fed: Fed) -> None:
    """Half a character, for one: it ends no batch, and is no output."""
    assert noted(fed, CHAT, chat(b'""'), chat(b'"b"', b"3")) == [("", 2), ("b", 3)]
    unknown = CHAT[:-1] + b',"x":1}'  # where there may be text in it of which no document says anything
    shape = shape_of(unknown, {})
    assert shape is not None
    assert [hole for _, hole in shape.parts].count("text") == 1
    assert noted(fed, unknown, chat(b'""')[:-1] + b',"x":1}') is None
    body = [ROLE, *[CU("x", i) if i % 3 else CU("", i) for i in range(1, 40)], USE(3, 39)]
    raw = HEAD + b"".join(map(framed, [*body, FIN("stop"), DONE])) + LAST
    one = Mutated("x", "0", raw, "eof", True, True, None, 0)
    pieces = cuts(Random(1), raw, "events")
    expected = in_python(one, pieces, 0.5)
    assert (len(expected.event_s), expected.output_tokens, expected.event_tokens[:4]) == (26, 39, [1, 1, 2, 1])
    assert [apart(expected, record) for record in ways_in_c(fed, one, pieces, 0.5)] == [[], [], []]


@buildable
def test_all_events_that_are_noted_say_the_same_of_the_prompt(fed: Fed) -> None:
    other = chat(b'"b"').replace(b'"prompt_tokens":8', b'"prompt_tokens":80')
    assert noted(fed, CHAT, other, other) == [("b", 2)] * 2
    assert noted(fed, CHAT, chat(b'"a"'), other) is None
    kept = fed.keep()
    fed.read(framed(b"data: " + CHAT + b"\n\n"), 1.0)
    kept.take()
    kept.note(True)
    fed.read(framed(b"data: " + other + b"\n\n"), 2.0)
    found = kept.take().noted
    fed.drop()
    assert found is not None
    assert found.prompt_tokens == 80


@buildable
def test_a_chunk_of_another_size_than_it_says_is_not_noted(fed: Fed) -> None:
    good = framed(b"data: " + chat(b'"a"') + b"\n\n")
    for bad in (
        b"0" * 6 + good,
        good.replace(b"\r\n", b";x\r\n", 1),
        b"1" + good,
        good[:-1],
        good[:-2] + b"\n\n",
        good + b"0",
    ):
        kept = fed.keep()
        fed.read(good, 1.0)
        kept.take()
        kept.note(True)
        fed.read(bad, 2.0)
        assert kept.take().noted is None, bad
        fed.drop()


@buildable
def test_a_shape_is_learnt_of_a_read_of_several_events(fed: Fed) -> None:
    kept = fed.keep()
    event = framed(C("a"))
    assert fed.read(event * 3, 1.0)
    assert [data for data, _ in kept.take().others] == [event * 3]
    kept.note(True)
    fed.read(event * 3, 2.0)
    found = kept.take().noted
    fed.drop()
    assert found is not None
    assert found.texts() == ["a"] * 3


@buildable
def test_an_event_that_was_read_before_gives_the_shape_of_the_first_that_is_kept(fed: Fed) -> None:
    kept = fed.keep()
    kept.learn(CHAT)
    kept.note(True)
    fed.read(framed(b"data: " + chat(b'"a"') + b"\n\n"), 1.0)
    taken = kept.take()
    fed.drop()
    assert taken.batch is None
    assert taken.noted is not None
    assert taken.noted.texts() == ["a"]


@buildable
def test_a_lot_is_due_when_it_is_full_and_the_first_one_earlier(fed: Fed) -> None:
    kept = fed.keep()
    event = framed(C("a"))
    fed.read(event, 1.0)
    kept.take()
    kept.note(True)
    first = [fed.read(event, 2.0) for _ in range(78)]  # for this descriptor: streams of one step are not all due in one
    assert first == [False] * 77 + [True]
    kept.take()
    assert [fed.read(event * 100, 5.0) for _ in range(3)] == [False, False, True]
    found = kept.take().noted
    fed.drop()
    assert found is not None
    assert len(found.stamps_s) == 300


@buildable
def test_no_stamp_is_believed_on_the_beat_for_a_while_after_a_clock_was_moved(fed: Fed) -> None:
    fed.offset_s(9.0, 1000.0)
    told = [(11.0, 1000.0005), (12.0, 1003.0), (12.05, 1003.0), (12.2, 1003.0), (13.0, 990.0)]
    offsets = [fed.offset_s(*at) for at in told]
    assert [offset if offset == offset else None for offset in offsets] == [  # NaN
        pytest.approx(1000.0005),
        None,
        None,
        pytest.approx(1003.0),
        None,
    ]


# -- whole streams

PARTS: list[Any] = [
    *PLAIN,
    *NOT_PLAIN.values(),
    ROLE,
    DONE,
    *[C(text) for text in ("b", "", "\ud7ff", "🙂", "\\", '"')],
    *[CU("x", count) for count in (1, 2, 3, 4, 2, 0, 50, 10_000_001)],
    C("a", 1),
    CU("y", 5, 1),
    delta(reasoning="hm"),
    C("a").replace(b'"a"', b'"\\ud800"'),
    C("a").replace(b'"a"', b'"\xff"'),
    C("a").replace(b'"created": 1', b'"created": 12'),
    C("a").replace(b'"id": "c1"', b'"id": "c2"'),
]


@buildable
@given(
    first=st.sampled_from([C("a"), CU("a", 1), PLAIN[6], C("a", 1)]),
    runs=st.lists(st.tuples(st.sampled_from(PARTS), st.integers(1, 12)), max_size=12),
    seed=st.integers(0, 10_000),
    how=st.sampled_from(["events", "groups", "groups", "many"]),
)
@settings(max_examples=150)
def test_a_stream_that_is_noted_makes_the_record_that_the_parsers_make(
    fed: Fed, first: bytes, runs: list[tuple[bytes, int]], seed: int, how: str
) -> None:
    body = [ROLE, *[first] * 5, *(event for event, times in runs for event in [event] * times), FIN("stop"), USE(3, 4)]
    raw = HEAD + b"".join(map(framed, [*body, DONE])) + LAST
    one = Mutated("x", "0", raw, "eof", True, True, None, 0)
    pieces = cuts(Random(seed), raw, how)
    expected = in_python(one, pieces, 0.5)
    assert [apart(expected, record) for record in ways_in_c(fed, one, pieces, 0.5)] == [[], [], []]


@buildable
@given(
    at=st.integers(0, len(CHAT) - 1),
    drop=st.integers(0, 3),
    new=st.one_of(
        st.binary(max_size=3), st.sampled_from([b'"', b"\\", b",", b"9", b"}", b"\\u00e9", b'"content":"b",'])
    ),
    learnt=st.booleans(),
)
@settings(max_examples=300)
def test_an_event_changed_anywhere_makes_the_record_that_the_parsers_make(
    fed: Fed, at: int, drop: int, new: bytes, learnt: bool
) -> None:
    changed = CHAT[:at] + new + CHAT[at + drop :]
    events = [changed, CHAT, CHAT, changed] if learnt else [CHAT, CHAT, changed, CHAT]
    body = [ROLE, C("first"), *(b"data: " + event + b"\n\n" for event in events), FIN("stop"), DONE]
    one = Mutated("x", "0", HEAD + b"".join(map(framed, body)) + LAST, "eof", True, True, None, 0)
    pieces = cuts(Random(at), one.raw, "events")
    expected = in_python(one, pieces, 0.5)
    assert [apart(expected, record) for record in ways_in_c(fed, one, pieces, 0.5)] == [[], [], []]


@buildable
def test_most_of_a_stream_is_noted(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(NotedEvents, "texts", lambda self: counts.append(len(self.stamps_s)) or ["x"] * counts[-1])
    body = [ROLE, *[CU("x", i) for i in range(1, 101)], FIN("stop"), DONE]
    raw = HEAD + b"".join(map(framed, body)) + LAST
    one = Mutated("x", "0", raw, "eof", True, True, None, 0)
    record = in_c(fed, one, cuts(Random(0), raw, "events"), 0.001)
    assert fields(record)["token_source"] == "continuous"
    assert (record.text, record.output_tokens, sum(counts)) == ("x" * 100, 100, 99)


# -- replies that begin as earlier ones did

CHUNKED = (
    b"HTTP/1.1 200 OK\r\ndate: %s\r\nserver: x\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def reply_of(number: int, events: int, head: bytes = CHUNKED % b"Mon, 1 Jan", prelude: bytes = ROLE) -> list[bytes]:
    """Its reads: head, prelude, events, and what ends it; ``number`` is in what tells it from others."""
    body = [CU("x", n).replace(b'"c1"', b'"reply-%d"' % number) for n in range(1, events + 1)]
    return [head, framed(prelude), *map(framed, body), framed(FIN("stop")), framed(DONE) + LAST]


def dues_of(fed: Fed, reads: list[bytes], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether Python had to look after each read of a patient reply; its record is the parsers'."""
    one = Mutated("x", "0", b"".join(reads), "eof", True, True, None, 0)
    dues: list[bool] = []
    read = Fed.read
    with monkeypatch.context() as patched:
        patched.setattr(Fed, "read", lambda self, data, t_s: dues.append(read(self, data, t_s)) or dues[-1])
        record = in_c(fed, one, reads, 0.5, patient=True)
    assert apart(in_python(one, reads, 0.5), record) == []
    return dues


@buildable
def test_a_reply_that_begins_as_an_earlier_one_is_looked_at_when_it_ends(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.forget()
    assert dues_of(fed, reply_of(1, 20), monkeypatch) == [True] * 3 + [False] * 19 + [True] * 2
    other_date = CHUNKED % b"Tue, 2 Feb 2027 00:00:00 GMT"
    assert dues_of(fed, reply_of(22, 30, other_date), monkeypatch) == [False] * 32 + [True] * 2
    together = reply_of(3, 30)
    together[:3] = [b"".join(together[:3])]
    assert dues_of(fed, together, monkeypatch) == [False] * 30 + [True] * 2


@buildable
@pytest.mark.parametrize(
    ("head", "prelude"),
    [
        (CHUNKED.replace(b"200 OK", b"201 Created") % b"d", ROLE),
        (CHUNKED.replace(b"event-stream", b"plain") % b"d", ROLE),
        (CHUNKED.replace(b"server: x", b"server: x\r\nX-More: 1") % b"d", ROLE),
        (CHUNKED % b"a\tb", ROLE),
        (CHUNKED % b"\xff", ROLE),
        (CHUNKED % b"d", ROLE.replace(b"assistant", b"other")),
        (CHUNKED % b"d", b'data: {"error": {"message": "no"}}\n\n'),
        (CHUNKED % b"d", DONE),
    ],
)
def test_a_reply_that_begins_otherwise_is_looked_at_at_once(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, head: bytes, prelude: bytes
) -> None:
    fed.forget()
    dues_of(fed, reply_of(1, 20), monkeypatch)
    dues = dues_of(fed, reply_of(2, 20, head, prelude), monkeypatch)
    assert True in dues[:2]


@buildable
def test_what_has_begun_without_having_been_seen_is_counted(fed: Fed) -> None:
    fed.forget()
    for turn in range(2):
        kept = fed.keep()
        fed.beat(True)
        kept.expect(patient=True)
        exchange = exchange_of(Mutated("x", "0", b"", "eof", True, True, None, 0))
        for number, data in enumerate(reply_of(turn, 5)[:5]):
            fed.read(data, 1.0 + number)
            if turn == 0:
                taken = kept.take()
                for reads in filter(None, (taken.batch, taken.others)):
                    exchange.feed_batch(reads, 0.0)
                kept.note(exchange.patient, exchange.answer.like)
        if turn == 1:
            assert fed.waiting() == (3, 0, 1)
        fed.drop()


def test_the_opening_of_a_reply_leaves_open_what_does_not_say_how_to_read_it() -> None:
    opening = opening_of(b"".join(reply_of(1, 3)))
    assert opening is not None
    assert opening.head == (
        (b"HTTP/1.1 200 OK\r\ndate: ", "line"),
        (b"\r\nserver: ", "line"),
        (b"\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n", "end"),
    )
    assert [hole for _, hole in opening.prelude] == ["string", "number", "end"]
    assert opening_of(b"".join([CHUNKED % b"d", framed(C("a"))])) is not None
    assert opening_of(CHUNKED % b"d") is None
    assert opening_of(b"".join([CHUNKED % b"d", framed(ROLE), framed(USE(1, 2)), framed(C("a"))])) is None
    many = b"".join(b"X-%d: 1\r\n" % number for number in range(16))
    assert opening_of((CHUNKED % b"d").replace(b"server: x\r\n", many) + framed(C("a"))) is None


@buildable
@pytest.mark.parametrize("patient", [False, True])
def test_what_one_reply_has_given_up_the_next_one_on_the_connection_has_not(fed: Fed, patient: bool) -> None:
    fed.forget()
    kept = fed.keep()
    fed.beat(patient)
    kept.expect(patient)
    dues = []
    for number in range(TRIES + 2):  # events of which each has another shape
        dues.append(fed.read(framed(C("a").replace(b'"choices"', b'"x%d": 1, "choices"' % number)), 1.0 + number))
        kept.take()
        kept.note(True)
    assert dues[-1] is False
    kept.expect(patient)
    assert fed.read(framed(C("a")), 20.0)
    fed.drop()
