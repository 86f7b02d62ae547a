"""A reply without bounds is a failed request that names the limit, after a bounded part of it was kept."""

import asyncio
import gzip
import json
import re
import time
import zlib
from typing import Any

import pytest
from scripted_server import DONE, FIN, HEAD, LAST, UNTIL_CLOSE, C, Scripted, arrival, framed, reply, stream

from loadramp.client.comparison_clients import HttpxClient, OpenaiClient
from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.reply_parts import Inflate
from loadramp.client.http.response import ResponseReader
from loadramp.client.readiness import Reply, call, cards_in, control_client
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.types import Record
from loadramp.scenario.scenario import Target

CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
FRAMING = "beyond a limit: headers and framing of more than 1 MiB"
EVENTS = "beyond a limit: more than 100,000 output events ([target] max_events)"
PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
EVENT = "beyond a limit: 4 MiB of body without the end of an event ([target] max_event_bytes)"


def played(begin: bytes, unit: bytes, read_bytes: int = 65_536, most_tokens: int | None = None) -> tuple[Record, int]:
    """The record of ``begin`` and ``unit`` for ever, and the bytes read until the reply was over (at most 100 MB)."""
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(), most_tokens)
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
    after = ", after 1 output event" if record.event_s else ""
    assert (record.status, record.error, record.error_detail) == ("error", "truncated", FRAMING + after)
    assert fed < 1_300_000


@pytest.mark.parametrize("unit", [b"x" * 1024, b"data: x\n", b": x\n"], ids=["line", "event", "comments"])
def test_a_body_without_the_end_of_an_event_fails_by_that_limit(unit: bytes) -> None:
    record, fed = played(UNTIL_CLOSE + b"data: {", unit)
    assert (record.error, record.error_detail) == ("truncated", EVENT)
    assert fed < 4_500_000


def test_events_far_beyond_what_was_asked_fail_by_that_limit_in_lots_and_alone() -> None:
    for read_bytes, most in ((65_536, 101_000), (1, 100_200)):
        record, _ = played(HEAD, framed(C("a")), read_bytes=read_bytes, most_tokens=16)
        found = re.fullmatch(re.escape(EVENTS) + r", after ([\d,]+) output events", record.error_detail or "")
        assert found is not None
        assert 100_000 < int(found[1].replace(",", "")) < most
        assert len(record.event_s) == 10_000  # the others would fill the memory of a long run


def test_four_times_the_tokens_asked_for_are_taken_where_that_is_more() -> None:
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(), 30_000)
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
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput())
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
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput())
    exchange.feed(HEAD, 1.0)
    body = b"".join(C(f"word {i}") for i in range(5_000)) + FIN("stop") + DONE
    exchange.feed(b"".join(framed(body[i : i + 1]) for i in range(len(body))) + LAST, 2.0)
    record = exchange.finish()
    assert (record.error, len(record.event_s)) == (None, 5_000)


def test_the_limits_of_the_scenario_replace_those_by_default() -> None:
    asked = RequestedOutput(max_event_bytes=65_536, max_events=3)
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), asked)
    exchange.feed(UNTIL_CLOSE + b"data: " + b"x" * 70_000, 1.0)
    assert exchange.finish().error_detail == (
        "beyond a limit: 65,536 bytes of body without the end of an event ([target] max_event_bytes)"
    )
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), asked, 30_000)
    exchange.feed(HEAD + framed(C("a") * 4), 1.0)
    assert exchange.finish().error_detail == (
        "beyond a limit: more than 3 output events ([target] max_events), after 4 output events"
    )


def test_text_that_is_kept_has_a_limit_and_text_that_is_not_has_none() -> None:
    def record(save_text: bool) -> Record:
        exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(save_text=save_text))
        exchange.feed(HEAD, 1.0)
        event = framed(C("a" * 1_000_000))
        for _ in range(18):
            exchange.feed(event, 2.0)
        exchange.feed(framed(FIN("stop") + DONE) + LAST, 3.0)
        return exchange.finish()

    assert record(save_text=False).ok
    kept = record(save_text=True)
    assert kept.error_detail == "beyond a limit: more than 16 Mi characters of text, after 17 output events"


def test_a_refusal_without_end_is_read_for_a_mebibyte_and_its_beginning_speaks() -> None:
    begin = b"HTTP/1.1 503 Busy\r\nContent-Type: text/plain\r\n\r\nall slots are taken "
    record, fed = played(begin, b"x" * 1024)
    assert (record.status, record.error, record.http_status) == ("error", "http_5xx", 503)
    assert (record.error_detail or "").startswith("HTTP 503 Service Unavailable: all slots are taken xxx")
    assert fed < 1_200_000


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_an_error_in_plain_text_is_read_although_it_is_said_to_be_compressed(coding: str) -> None:
    body = b'{"error": {"message": "no slot is free"}}'
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput())
    exchange.feed(
        f"HTTP/1.1 429 No\r\nContent-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body, 1.0
    )
    record = exchange.finish()
    assert (record.error, record.error_detail) == ("http_429", "HTTP 429 Too Many Requests: no slot is free")


def test_an_error_cut_off_inside_its_compression_says_what_came() -> None:
    packed = gzip.compress(b"no slot is free, " + bytes(range(256)) * 8)
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput())
    exchange.feed(b"HTTP/1.1 503 No\r\nContent-Encoding: gzip\r\n\r\n" + packed[:-40], 1.0)
    exchange.closed(None, "", 2.0)
    record = exchange.finish()
    assert record.error == "http_5xx"
    assert (record.error_detail or "").startswith("HTTP 503 Service Unavailable: no slot is free,")


def test_an_error_in_a_coding_that_is_not_known_is_named_and_not_printed() -> None:
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput())
    exchange.feed(
        b"HTTP/1.1 502 No\r\nContent-Encoding: br\r\nContent-Length: 9\r\n\r\n\x1b\x0c\xf8\xff\xa5\x00\x02\x80\x9f", 1.0
    )
    record = exchange.finish()
    assert record.error_detail == "HTTP 502 Bad Gateway: (the body is in br, although identity was asked)"


@pytest.mark.parametrize("via", ["httpx", "openai"])
def test_the_other_clients_stop_reading_at_the_same_limits(via: str) -> None:
    async def main() -> Record:
        script = stream(*[(float(i), C("a")) for i in range(40)], end=False)
        server, url = await Scripted([[*script, (30_000.0, "close")]]).serve()
        target = Target(base_url=url, via=via, max_events=8)  # type: ignore[arg-type]
        client = {"httpx": HttpxClient, "openai": OpenaiClient}[via](
            target, endpoint_of(target, {}), "m", clock=time.monotonic, t0_s=0.0
        )
        asked = arrival()
        async with server:
            record = await asyncio.wait_for(client.send(asked, client.prepare(asked, "hi")), 20.0)
            await client.close()
        return record

    record = asyncio.run(main())
    assert (record.status, record.error) == ("error", "truncated")
    assert (record.error_detail or "").startswith("beyond a limit: more than 8 output events ([target] max_events)")


@pytest.mark.parametrize(
    ("coding", "size", "headers"),
    [
        ("gzip", 50_000_000, {"Content_Encoding": "gzip"}),
        ("deflate", 50_000_000, {"Content_Encoding": "deflate"}),
        ("plain", 5_000_000, {}),
    ],
)
def test_a_side_call_keeps_four_mebibytes_of_an_answer(coding: str, size: int, headers: dict[str, str]) -> None:
    body = PACK.get(coding, bytes)(b" " * size)

    async def main() -> Reply:
        server, url = await Scripted([reply(body, **headers)]).serve()
        target = Target(base_url=url)
        async with server, control_client(target, endpoint_of(target, {})) as http:
            return await call(http, f"{url}/v1/models")

    got = asyncio.run(main())
    assert (got.status, got.kind, got.fault) == (0, "truncated", "an answer above 4 MiB")


def test_a_side_call_reads_a_compressed_answer_and_one_in_a_coding_it_does_not_know_is_no_list() -> None:
    async def main(coding: str, body: bytes) -> list[dict[str, Any]] | None:
        server, url = await Scripted([reply(body, Content_Encoding=coding)]).serve()
        target = Target(base_url=url)
        async with server, control_client(target, endpoint_of(target, {})) as http:
            return cards_in((await call(http, f"{url}/v1/models")).content)

    listed = b'{"data": [{"id": "m"}]}'
    assert asyncio.run(main("gzip", gzip.compress(listed))) == [{"id": "m"}]
    assert asyncio.run(main("identity", listed)) == [{"id": "m"}]
    assert asyncio.run(main("br", b"\x1b\x0c\xf8\xff")) is None


def test_a_list_of_models_is_read_up_to_ten_thousand_of_them() -> None:
    cards = cards_in(json.dumps({"data": [{"id": f"m{i}"} for i in range(12_000)]}).encode())
    assert cards is not None
    assert (len(cards), cards[-1]) == (10_000, {"id": "m9999"})


@pytest.mark.parametrize("part", [b"[]", b"{}", b'{"a":[0]}'])
def test_an_event_of_more_lists_and_objects_than_any_answer_has_is_malformed(part: bytes) -> None:
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput())
    parts = b",".join([part] * (400_001 if part != b'{"a":[0]}' else 200_001))
    exchange.feed(UNTIL_CLOSE + C("a") + b'data: {"detail": [' + parts + b"]}\n\n" + C("b") + FIN("stop"), 1.0)
    exchange.closed(None, "", 2.0)
    record = exchange.finish()
    assert (record.status, record.malformed_events, record.text, len(record.event_s)) == ("ok", 1, None, 2)


def test_a_whole_reply_with_twenty_alternatives_a_token_is_read() -> None:
    token = {"token": "a", "logprob": -0.1, "top_logprobs": [{"token": "b", "logprob": -1.0} for _ in range(20)]}
    choice = {"index": 0, "message": {"content": "a" * 2000}, "logprobs": {"content": [token] * 2000}}
    body = json.dumps({"choices": [{**choice, "finish_reason": "stop"}]}).encode()
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(streamed=False))
    exchange.feed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body, 1.0)
    record = exchange.finish()
    assert (record.status, record.finish_reason, len(body) > 1_400_000) == ("ok", "stop", True)
