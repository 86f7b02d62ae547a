"""A reply without bounds is a failed request that names the limit, after a bounded part of it was kept."""

import gzip
import zlib

import pytest
from scripted import DONE, FIN, HEAD, LAST, UNTIL_CLOSE, C, framed

from loadramp.drive.exchange import Exchange
from loadramp.drive.replies import Inflate
from loadramp.drive.verdict import Asked
from loadramp.record.types import Record

CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FRAMING = "beyond a limit: headers and framing of more than 1 MiB"
EVENTS = "beyond a limit: more than 100000 output events"
PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
EVENT = "beyond a limit: 16 MiB of body without the end of an event"


def played(begin: bytes, unit: bytes, read_bytes: int = 65_536, most_tokens: int | None = None) -> tuple[Record, int]:
    """The record of ``begin`` and ``unit`` for ever, and the bytes read until the reply was over (at most 100 MB)."""
    exchange = Exchange(Record(0, 0, 0.0, sent_s=0.0), Asked(), most_tokens)
    exchange.feed(begin, 1.0)
    block, fed = unit * (read_bytes // len(unit) + 1), 0
    while not exchange.over and fed < 100_000_000:
        exchange.feed(block, 2.0)
        exchange.digest()
        fed += len(block)
    return exchange.finish(), fed


@pytest.mark.parametrize(
    ("begin", "unit"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 1024),
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
        (CHUNKS + b"1;", b"x" * 1024),
        (HEAD + framed(C("a")) + b"0\r\n", b"X-A: b\r\n"),
    ],
    ids=["header", "headers", "interim", "extension", "trailers"],
)
def test_a_reply_of_headers_and_framing_without_end_fails_by_that_limit(begin: bytes, unit: bytes) -> None:
    record, fed = played(begin, unit)
    after = ", after 1 output events" if record.event_s else ""
    assert (record.status, record.error, record.error_detail) == ("error", "truncated", FRAMING + after)
    assert fed < 1_300_000


@pytest.mark.parametrize("unit", [b"x" * 1024, b"data: x\n", b": x\n"], ids=["line", "event", "comments"])
def test_a_body_without_the_end_of_an_event_fails_by_that_limit(unit: bytes) -> None:
    record, fed = played(UNTIL_CLOSE + b"data: {", unit)
    assert (record.error, record.error_detail) == ("truncated", EVENT)
    assert fed < 17_500_000


def test_events_far_beyond_what_was_asked_fail_by_that_limit_in_lots_and_alone() -> None:
    record, _ = played(HEAD, framed(C("a")), most_tokens=16)
    assert record.error_detail == f"{EVENTS}, after {len(record.event_s)} output events"
    assert len(record.event_s) < 101_000
    record, _ = played(HEAD, framed(C("a")), read_bytes=1, most_tokens=16)
    assert record.error_detail == f"{EVENTS}, after {len(record.event_s)} output events"
    assert len(record.event_s) < 100_200


def test_four_times_the_tokens_asked_for_are_taken_where_that_is_more() -> None:
    exchange = Exchange(Record(0, 0, 0.0, sent_s=0.0), Asked(), 30_000)
    exchange.feed(HEAD, 1.0)
    for _ in range(1_100):
        exchange.feed(framed(C("a") * 100), 2.0)
    exchange.feed(framed(FIN("stop") + DONE) + LAST, 3.0)
    record = exchange.finish()
    assert (record.error, len(record.event_s)) == (None, 110_000)


@pytest.mark.parametrize("kind", ["gzip", "deflate", "members"])
def test_a_compressed_bomb_fails_by_that_limit_before_it_is_unpacked(kind: str) -> None:
    zeros = b"\0" * 10_000_000
    coding = "deflate" if kind == "deflate" else "gzip"
    packed = gzip.compress(zeros) * 5 if kind == "members" else PACK[kind](zeros * 5)
    begin = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\n\r\n".encode()
    exchange = Exchange(Record(0, 0, 0.0, sent_s=0.0), Asked())
    exchange.feed(begin + packed, 1.0)
    record = exchange.finish()
    assert record.error == "truncated"
    assert record.error_detail == "beyond a limit: the compressed body grows to more than 200 times its size"
    assert len(Inflate().feed(packed)) < 15_000_000


def test_a_long_stream_that_repeats_itself_is_no_bomb() -> None:
    body = b"".join(C(f"word {i % 7} ") for i in range(60_000))
    inflate = Inflate()
    assert inflate.feed(gzip.compress(body, 9)) == body
    assert (inflate.beyond, inflate.broken) == ("", "")


def test_one_byte_chunks_are_no_framing_without_end() -> None:
    exchange = Exchange(Record(0, 0, 0.0, sent_s=0.0), Asked())
    exchange.feed(HEAD, 1.0)
    body = b"".join(C(f"word {i}") for i in range(5_000)) + FIN("stop") + DONE
    exchange.feed(b"".join(framed(body[i : i + 1]) for i in range(len(body))) + LAST, 2.0)
    record = exchange.finish()
    assert (record.error, len(record.event_s)) == (None, 5_000)
