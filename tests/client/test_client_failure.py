"""Whatever is raised while a request is looked after ends that request, as a record that names it, and nothing else."""

import asyncio
import json
import time
import zlib
from typing import Any

import httpx
import msgspec
import pytest
from scripted_server import DONE, FIN, HEAD, UNTIL_CLOSE, Act, C, Scripted, arrival, client_on, framed, jump, stream
from test_sessions import Talker, offer, step

from loadramp.client import client_failure, readiness, sender
from loadramp.client.comparison_clients import HttpxClient
from loadramp.client.endpoint import endpoint_of
from loadramp.client.http import c_reader, pool, reply_parts, response, sockets
from loadramp.client.http.connect import dialer_of
from loadramp.client.measuring_client import MeasuringClient
from loadramp.client.preflight import facts_of
from loadramp.client.stream import answer
from loadramp.metrics import scrape_process, scraper
from loadramp.record.codec import decode
from loadramp.record.types import Record, Sample
from loadramp.scenario.scenario import Target

ANSWER: list[Act] = stream((10.0, C("one ")), *[(20.0 + i, C("more ")) for i in range(80)], (200.0, FIN("stop") + DONE))
LEFT_OPEN: list[Act] = stream((10.0, C("one ")), (20.0, FIN("stop") + DONE), end=False)
BROKEN_OFF: list[Act] = [*stream((10.0, C("one ")), end=False), (20.0, "reset")]
REFUSED: list[Act] = [
    (5.0, b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"),
]


class Odd(Exception):
    """What nobody has foreseen."""


def raises(*args: Any, **kwargs: Any) -> Any:
    raise Odd("of a kind unknown")


def through(script: list[Act], monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[Record]:
    """Three requests: one while ``where.name`` works, one while it raises, one when it works again."""

    async def main() -> list[Record]:
        server = Scripted([ANSWER, script, ANSWER])
        client = client_on(server)
        records = []
        for seq in range(3):
            asked = arrival(seq)
            with monkeypatch.context() as patched:
                if seq == 1:
                    patched.setattr(where, name, raises)
                records.append(await client.send(asked, client.prepare(asked, "hi")))
        assert client.counts.in_flight == client.counts.waiting == 0
        assert client.counts.finished == 3
        await client.close()
        return records

    return jump(main())


STAGES = [
    (ANSWER, response.ResponseReader, "feed"),
    (ANSWER, response.ResponseReader, "digest"),
    (ANSWER, response.ResponseReader, "on_header"),
    (ANSWER, response.ResponseReader, "on_headers_complete"),
    (ANSWER, response.ResponseReader, "on_body"),
    (ANSWER, response.ResponseReader, "on_message_complete"),
    (ANSWER, response, "plain_events"),
    (ANSWER, answer.StreamAnswer, "body"),
    (ANSWER, answer.StreamAnswer, "plain"),
    (ANSWER, answer.StreamAnswer, "end"),
    (ANSWER, answer.StreamAnswer, "fill"),
    (ANSWER, answer, "tokens_of"),
    (ANSWER, response, "conclude"),
    (ANSWER, response.ResponseReader, "finish"),
    (ANSWER, pool.ActiveRequest, "parsed"),
    (ANSWER, pool.ActiveRequest, "pull"),
    (ANSWER, pool.ActiveRequest, "release"),
    (ANSWER, pool, "deadline_of"),
    (ANSWER, pool.Pool, "take"),
    (ANSWER, pool.Pool, "keep"),
    (LEFT_OPEN, pool.Connection, "drop"),
    (BROKEN_OFF, pool.ActiveRequest, "disconnected"),
    (BROKEN_OFF, response.ResponseReader, "closed"),
    ([(5.0, UNTIL_CLOSE), (6.0, C("a") + FIN("stop")), (7.0, "close")], response.ResponseReader, "_complete"),
    (REFUSED, response, "retry_after_s"),
    (REFUSED, response, "describe_error_body"),
    (REFUSED, reply_parts, "parsedate_to_datetime"),
    ([(5.0, HEAD), (6.0, framed(C("a"))), (400_000.0, "close")], response.ResponseReader, "fail"),
]


@pytest.mark.parametrize(("script", "where", "name"), STAGES, ids=[name for _, _, name in STAGES])
def test_an_exception_in_any_stage_is_a_record_that_names_it(
    script: list[Act], where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "parsedate_to_datetime":
        script = [(5.0, b"HTTP/1.1 429 No\r\nRetry-After: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n")]
    before, broken, after = through(script, monkeypatch, where, name)
    assert (before.status, after.status) == ("ok", "ok")
    assert (broken.status, broken.error) == ("error", "client")
    assert broken.error_detail == "the client failed on this answer: Odd: of a kind unknown"
    assert (broken.seq, broken.event_s, broken.output_tokens) == (1, [], None)
    assert (broken.stream_end_s is not None and broken.sent_s is not None) or name == "take"
    assert decode(client_failure.line_of(broken)).error == "client"


def test_an_exception_while_a_snapshot_is_taken_ends_one_request_and_shows_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> tuple[list[Record], list[Record]]:
        client = client_on(Scripted([ANSWER, ANSWER]))
        asked = [arrival(0), arrival(1)]
        tasks = [asyncio.ensure_future(client.send(one, client.prepare(one, "hi"))) for one in asked]
        await asyncio.sleep(0.05)
        whole = response.ResponseReader.snapshot
        with monkeypatch.context() as patched:
            patched.setattr(
                response.ResponseReader, "snapshot", lambda self: raises() if self.record.seq == 0 else whole(self)
            )
            seen = list(client.snapshot())
        return seen, await asyncio.gather(*tasks)

    seen, records = jump(main())
    assert [(one.seq, one.status) for one in seen] == [(1, "in_flight")]
    assert [(one.error, one.status) for one in records] == [("client", "error"), (None, "ok")]


def test_an_exception_while_closing_does_not_keep_other_requests_from_their_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> list[Record]:
        client = client_on(Scripted([ANSWER]))
        asked = [arrival(0), arrival(1)]
        tasks = [asyncio.ensure_future(client.send(one, client.prepare(one, "hi"))) for one in asked]
        await asyncio.sleep(0.05)
        with monkeypatch.context() as patched:
            patched.setattr(response.ResponseReader, "fail", raises)
            await client.close()
        return await asyncio.gather(*tasks)

    assert [(one.seq, one.error, "Odd" in (one.error_detail or "")) for one in jump(main())] == [
        (0, "client", True),
        (1, "client", True),
    ]


@pytest.mark.parametrize(
    ("where", "name"),
    [
        (c_reader.KeptReads, "take"),
        (response.ResponseReader, "feed_batch"),
        (response, "events_of"),
        (answer.StreamAnswer, "noted"),
        (sockets.SocketPipe, "_hand_over"),
        (sockets.SocketPipe, "_ended"),
    ],
    ids=["take", "feed_batch", "events_of", "noted", "_hand_over", "_ended"],
)
def test_an_exception_where_a_socket_is_read_is_a_record_that_names_it(
    where: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if c_reader.LOADED is None and name != "_ended":
        pytest.skip("the reader in C was not built")

    async def main() -> tuple[Record, Record]:
        ended = [(0.0, UNTIL_CLOSE), (1.0, C("a")), (30.0, "close")]
        turns = 2 if name == "events_of" else 1  # choices in turn: no event has the shape of the one before
        events = [(1.0 + i, C("b ", i % turns)) for i in range(60)]
        script = ended if name == "_ended" else stream((0.0, C("a ")), *events)
        short = stream((0.0, C("a") + FIN("stop") + DONE))
        server, url = await Scripted([script, short]).serve()
        target = Target(base_url=url)
        endpoint = endpoint_of(target, {})
        client = MeasuringClient(
            target, endpoint, "m", connect=dialer_of(target, endpoint), clock=time.monotonic, t0_s=0.0
        )
        first, second = arrival(0), arrival(1)
        async with server:
            with monkeypatch.context() as patched:
                patched.setattr(where, name, raises)
                broken = await asyncio.wait_for(client.send(first, client.prepare(first, "hi")), 20.0)
            fine = await asyncio.wait_for(client.send(second, client.prepare(second, "hi")), 20.0)
            await client.close()
        return broken, fine

    broken, fine = asyncio.run(main())
    assert (broken.status, broken.error) == ("error", "client")
    assert "Odd: of a kind unknown" in (broken.error_detail or "")
    assert fine.ok


@pytest.mark.parametrize("name", ["_stream", "_conclude"])
def test_an_exception_in_another_library_s_client_is_a_record(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> Record:
        server, url = await Scripted([stream((0.0, C("a") + FIN("stop") + DONE))]).serve()
        target = Target(base_url=url, via="httpx")
        client = HttpxClient(target, endpoint_of(target, {}), "m", clock=time.monotonic, t0_s=0.0)
        monkeypatch.setattr(HttpxClient, name, raises)
        asked = arrival()
        async with server:
            record = await client.send(asked, client.prepare(asked, "hi"))
            await client.close()
        assert client.counts.in_flight == client.counts.waiting == 0
        return record

    record = asyncio.run(main())
    assert (record.status, record.error) == ("error", "client")
    assert "Odd" in (record.error_detail or "")


def test_a_record_that_cannot_be_written_is_written_as_a_failure() -> None:
    record = Record(7, 1, 2.0, sent_s=2.0, stream_end_s=3.0, status="ok", finish_reason="\ud800", prompt_tokens=4)
    read = decode(client_failure.line_of(record))
    assert (read.seq, read.step, read.due_s, read.stream_end_s, read.prompt_tokens) == (7, 1, 2.0, 3.0, None)
    assert (read.status, read.error) == ("error", "client")
    assert "UnicodeEncodeError" in (read.error_detail or "")


def test_an_answer_that_no_next_turn_can_be_made_of_ends_its_session_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sender, "next_content", raises)
    records = offer([step(rate_rps=1.0)], Talker())
    assert {(one.turn, one.error, "Odd" in (one.error_detail or "")) for one in records} == {(0, "client", True)}
    assert len({one.session for one in records}) >= 4  # the other sessions went on


@pytest.mark.parametrize("error", [httpx.InvalidURL("x"), ValueError("x"), Odd("x"), zlib.error("x")])
def test_a_reply_beside_the_measurement_that_a_library_fails_on_is_no_reply(error: Exception) -> None:
    class Broken(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise error

    async def main() -> readiness.Reply:
        async with httpx.AsyncClient(transport=Broken()) as http:
            return await readiness.call(http, "http://h/health")

    got = asyncio.run(main())
    assert (got.status, got.kind) == (0, "client")
    assert got.words == f"the client failed on this answer: {type(error).__name__}: x"


def test_a_metrics_page_that_cannot_be_read_is_a_failed_scrape_and_the_next_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[Sample] = []

    async def main() -> None:
        stopping = asyncio.Event()

        def keep(sample: Sample) -> None:
            written.append(sample)
            if len(written) == 2:
                stopping.set()

        async def fine(*_: Any) -> Sample:
            return Sample(0.0, values={"running": 1.0})

        results: list[Any] = [raises, fine, fine]
        monkeypatch.setattr(scrape_process, "scrape", lambda *args: results.pop(0)(*args))
        page = scrape_process.WatchedPage("http://h/metrics", "h", raises)
        await scrape_process.follow(page, scrape_process.PageSet(), 0.01, time.monotonic, stopping, keep)

    asyncio.run(main())
    assert [one.error for one in written] == ["unreadable page (Odd)", None, None]


def test_a_page_that_cannot_be_read_is_not_taken_for_the_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    async def up(*_: Any) -> str:
        return "up 1"

    monkeypatch.setattr(scraper, "fetch_once", up)
    monkeypatch.setattr(scraper, "read_for", raises)
    assert asyncio.run(scraper.find_metrics("http://127.0.0.1:9")) is None


CARD = {"id": "m"}


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (10**30, None),
        (-1, None),
        (1e400, None),
        (True, None),
        ({"a": ["b"]}, None),
        (10_485_760, 10_485_760),
        ("\ud800x", "\ufffdx"),
        ("v" * 1000, "v" * 200),
    ],
)
def test_what_a_model_card_says_can_always_be_written_down(said: Any, kept: Any) -> None:
    facts = facts_of("m", [{**CARD, "max_model_len": said, "owned_by": said}])
    assert facts == {"max_model_len": kept, "engine": kept}
    assert json.loads(msgspec.json.encode(facts)) == facts


def test_half_a_character_in_the_name_of_a_listed_model_can_be_asked_for() -> None:
    cards = readiness.cards_in(b'{"data": [{"id": "m\\ud800"}]}')
    assert cards is not None
    assert [card["id"] for card in cards] == ["m?"]
