"""The event parser: lines end at LF, CRLF and CR only, and no cut of the bytes changes what comes out."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadramp.client.stream.sse import Brackets, SseParser


def parse(*pieces: bytes) -> list[bytes]:
    parser = SseParser()
    return [data for piece in pieces for _, data in parser.feed(piece)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_each_line_end_ends_a_line(end: bytes) -> None:
    stream = b"data: one" + end + end + b": hush" + end + end + b"data:two" + end + b"data: three" + end + end
    parser = SseParser()
    assert parser.feed(stream) == [(b"", b"one"), (b"", b"two\nthree")]
    assert parser.comments == 1


def test_line_ends_may_be_mixed_within_one_stream() -> None:
    assert parse(b"data: a\r\n\ndata: b\n\rdata: c\r\r\n") == [b"a", b"b", b"c"]


def test_an_event_ended_by_cr_comes_out_at_the_cr_and_its_lf_makes_no_second_end() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\r\n\r") == [(b"", b"a")]
    assert parser.feed(b"\ndata: b\n") == []
    assert parser.feed(b"\n") == [(b"", b"b")]


def test_a_line_feed_after_a_cut_carriage_return_does_not_end_the_event_early() -> None:
    assert parse(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]


def test_only_the_first_space_of_a_value_is_dropped() -> None:
    assert parse(b"data:x\n\ndata:  x\n\ndata:\tx\n\n") == [b"x", b" x", b"\tx"]


def test_a_field_without_colon_is_a_name_with_an_empty_value() -> None:
    assert parse(b"data\ndata\n\n", b"data\n\n", b"nonsense\ndata: x\n\n") == [b"\n", b"x"]


def test_events_without_data_are_not_events() -> None:
    assert parse(b"id: 7\n\n", b": ping\n\n", b"event: ping\n\n", b"retry: 3\n\n", b"data:\n\n", b"data: x\n\n") == [
        b"x"
    ]


def test_the_event_name_belongs_to_its_own_event_only() -> None:
    parser = SseParser()
    assert parser.feed(b"event: error\ndata: x\n\ndata: y\n\n") == [(b"error", b"x"), (b"", b"y")]


def test_a_byte_order_mark_is_dropped_at_the_start_and_only_there() -> None:
    assert parse(b"\xef", b"\xbb", b"\xbfdata: a\n\n", b"data: \xef\xbb\xbfb\n\n") == [b"a", b"\xef\xbb\xbfb"]
    assert parse(b"data: a\n\n\xef\xbb\xbfdata: b\n\n") == [b"a"]


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\x85", "\v", "\f", "\x1c", "\x1d", "\x1e", "\0"])
def test_no_other_character_ends_a_line(char: str) -> None:
    assert parse(f"data: a{char}b\n\n".encode()) == [f"a{char}b".encode()]


def test_a_huge_line_in_small_pieces_comes_out_whole() -> None:
    payload = b"x" * 3_000_000
    stream = b"data: " + payload + b"\n\n"
    assert parse(*(stream[i : i + 997] for i in range(0, len(stream), 997))) == [payload]


def test_an_event_that_lacks_only_its_blank_line_comes_out_at_a_clean_end() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\ndata: [DONE]") == [(b"", b"a")]
    assert parser.flush() == [(b"", b"[DONE]")]
    assert parser.flush() == []


@pytest.mark.parametrize("cuts", [[], [9], [10], [4, 9, 10], list(range(1, 60))])
def test_json_outside_any_field_is_an_event_where_its_brackets_close(cuts: list[int]) -> None:
    stream = b'{"a":"}\\""}{\n "b": [1]\n} x\n{"c":1\n\ndata: d\n\n'
    bounds = [0, *cuts, len(stream)]
    assert parse(*(stream[a:b] for a, b in pairwise(bounds))) == [
        b'{"a":"}\\""}',
        b'{\n "b": [1]\n}',
        b'{"c":1',
        b"d",
    ]


def test_json_that_is_whole_comes_out_before_its_line_ends() -> None:
    parser = SseParser()
    assert parser.feed(b'\xef\xbb\xbf {"a":') == []
    assert parser.feed(b"1}") == [(b"", b' {"a":1}')]
    assert parser.feed(b"\n\ndata: b\n\n") == [(b"", b"b")]


def test_an_event_that_is_called_a_failure_needs_no_data() -> None:
    parser = SseParser()
    assert parser.feed(b"event: Error\n\nevent: ping\n\nevent: error\ndata:\n\n") == [(b"Error", b""), (b"error", b"")]


def test_lines_that_are_nothing_known_are_kept_in_part() -> None:
    parser = SseParser()
    assert parser.feed(b"hello\nid: 3\nworld\n" + b"x" * 9000 + b"\n" + b"y\n") == []
    assert parser.stray == b"hello world " + b"x" * 2000 + b" "


LINES = st.sampled_from(
    [b"data: a", b"data:b", b"data: ", b"data", b": c", b"", b"", b"", b"id: 7", b"event: error",
     b"\xef\xbb\xbfdata: d", "data: é\u2028🙂".encode(), b"x",
     b"{", b"}", b'{"a":1}', b'{"a":1} x', b'{"a":"}', b"[DONE]", b"data: [done]", b'[{"a":1}]', b" {", b"[", b"]",
     b'"b": {}', b'{"a":1}{"b":2}data: c', b"event: ping"]
)  # fmt: skip
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"]))).map(
    lambda pairs: b"".join(line + end for line, end in pairs)
)


@given(STREAMS, st.data())
def test_events_never_depend_on_how_the_bytes_were_cut(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    whole, cut, single = SseParser(), SseParser(), SseParser()
    expected = whole.feed(stream)
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [event for piece in pieces for event in cut.feed(piece)] == expected
    assert [event for byte in stream for event in single.feed(bytes([byte]))] == expected
    assert whole.comments == cut.comments == single.comments
    assert whole.stray == cut.stray == single.stray
    assert whole.bare == cut.bare == single.bare
    assert whole.flush() == cut.flush() == single.flush()


def naive_end(data: bytes) -> int:
    """Where the last open bracket of one line closes, byte by byte."""
    depth, string, escaped = 0, False, False
    for at, byte in enumerate(data):
        if string:
            string, escaped = escaped or byte != 0x22, byte == 0x5C and not escaped
        elif byte == 0x22:
            string = True
        elif byte in b"{[":
            depth += 1
        elif byte in b"}]":
            depth -= 1
            if depth <= 0:
                return at + 1
    return -1


@given(
    st.lists(st.sampled_from([b"{", b"}", b"[", b"]", b'"', b"\\", b"a", b":", b'"x"', b'{"a": "]"}', b"[1]", b'\\"'])),
    st.lists(st.floats(0, 1), max_size=4),
)
@settings(max_examples=250)
def test_brackets_close_where_they_close_byte_by_byte(parts: list[bytes], cuts: list[float]) -> None:
    data = b"".join(parts)
    bounds = sorted({0, len(data), *(int(share * len(data)) for share in cuts)})
    brackets = Brackets()
    for a, b in pairwise(bounds):
        end = brackets.closes(data[a:b])
        if end >= 0:
            assert a + end == naive_end(data)
            return
    assert naive_end(data) == -1
