"""The measuring client: connections, time-outs, counts, cancellation; on a scripted server and a clock that jumps."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from scripted_server import (
    BASE_URL,
    DONE,
    FIN,
    HEAD,
    ROLE,
    USE,
    Act,
    C,
    Scripted,
    arrival,
    client_on,
    framed,
    jump,
    record_of,
    reply,
    started_on,
    stream,
)

from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.sockets import ConnectFailed
from loadramp.client.measuring_client import MeasuringClient
from loadramp.record.types import Record
from loadramp.scenario.scenario import Target

ANSWER = stream((20, C("a")), (40, C("b")), (40, FIN("stop") + USE(3, 2) + DONE))


ways: list[str] = []


@pytest.fixture(params=["sent", "started"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """How ``ask`` asks where a connection waits."""
    ways.append(request.param)
    yield request.param
    ways.pop()


async def ask(client: MeasuringClient, seq: int = 0, **options: Any) -> Record:
    asked = arrival(seq, due_s=client.now_s(), **options)
    if ways[-1] == "started":
        started, done = started_on(client, asked)
        if started is not None:
            try:
                return await asyncio.shield(done)
            except asyncio.CancelledError:
                client.cut(started)
                return await done
    return await client.send(asked, client.prepare(asked, "hi"))


def test_a_request_is_one_http_message_that_asks_for_an_uncompressed_stream() -> None:
    server = Scripted([ANSWER])

    async def main() -> bytes:
        client = client_on(server, headers={"X-Team": "blue"})
        await ask(client, 7, output_tokens=5)
        return client.prepare(arrival(8, output_tokens=5), "é")

    raw = jump(main())
    head, _, body = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n")
    assert b"X-Request-Id: loadramp-0-8\r\n" in head
    assert head.endswith(b"Content-Length: %d" % len(body))
    asked = server.requests[0]
    assert asked.headers["accept-encoding"] == "identity"
    assert asked.headers["x-team"] == "blue"
    assert "authorization" not in asked.headers
    assert asked.body["max_tokens"] == asked.body["min_tokens"] == 5
    assert asked.body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_a_header_of_the_scenario_is_sent_once_in_place_of_the_client_s_own() -> None:
    server = Scripted([ANSWER])

    async def main() -> None:
        await ask(client_on(server, headers={"x-request-id": "mine", "ACCEPT": "*/*"}))

    jump(main())
    head = server.requests[0].head.lower()
    assert (head.count("x-request-id"), head.count("\r\naccept:"), head.count("x-loadramp-id")) == (1, 1, 1)


def test_instants_are_measured_from_the_start_of_the_run_and_latency_from_the_due_time() -> None:
    async def main() -> Record:
        client = client_on(Scripted([ANSWER]))
        await asyncio.sleep(3.0)
        asked = arrival(due_s=2.5)
        return await client.send(asked, client.prepare(asked, "hi"))

    record = jump(main())
    assert (record.sent_s, record.event_s) == (3.0, pytest.approx([3.02, 3.04]))
    assert record.ttft_s == pytest.approx(0.52)
    assert record.sent_ttft_s == pytest.approx(0.02)
    assert record.lag_s == pytest.approx(0.5)


def test_a_connection_is_used_again_within_four_seconds_and_not_later() -> None:
    server = Scripted([ANSWER])

    async def main() -> None:
        client = client_on(server)
        await ask(client, 0)
        await asyncio.sleep(3.9)
        await ask(client, 1)
        await asyncio.sleep(4.1)
        assert server.pipes[0].closed  # dropped before the server does
        await ask(client, 2)

    jump(main())
    assert [request.connection for request in server.requests] == [0, 0, 1]


def test_the_connection_used_last_is_taken_first_and_there_is_no_limit() -> None:
    server = Scripted([ANSWER])

    async def main() -> None:
        client = client_on(server)
        await asyncio.gather(*(ask(client, i) for i in range(400)))
        await asyncio.sleep(1.0)
        await ask(client, 400)
        await ask(client, 401)

    jump(main())
    assert len(server.pipes) == 400
    assert server.requests[400].connection == server.requests[401].connection


def test_a_request_is_started_on_a_connection_of_its_own_where_none_waits() -> None:
    server = Scripted([ANSWER])

    async def main() -> list[Record]:
        client = client_on(server)
        return [await started_on(client, arrival(seq, due_s=client.now_s()))[1] for seq in range(2)]

    records = jump(main())
    assert [record.sent_ttft_s for record in records] == pytest.approx([0.02, 0.02])
    assert [(r.status, r.text, r.output_tokens, r.connect_s) for r in records] == [
        ("ok", "ab", 2, 0.0),
        ("ok", "ab", 2, None),
    ]
    assert [request.connection for request in server.requests] == [0, 0]


@pytest.mark.parametrize("stale", [False, True])
def test_a_started_request_that_is_cut_while_it_waits_for_a_connection_has_not_been_sent(stale: bool) -> None:
    server = Scripted([ANSWER, [(0.2, "reset")], ANSWER])

    async def main() -> tuple[Record, float, int]:
        client = client_on(server)
        if stale:
            await started_on(client, arrival())[1]

        async def never(*_: object) -> Any:
            await asyncio.sleep(1000.0)

        client._connect = never
        started, done = started_on(client, arrival(1, due_s=client.now_s()))
        assert started is not None
        await asyncio.sleep(1.0)
        client.cut(started)
        return await done, client.now_s(), client.counts.in_flight

    record, now_s, in_flight = jump(main())
    assert (record.status, record.text, in_flight) == ("unfinished", "", 0)
    assert now_s == pytest.approx(1.04 if stale else 1.0)


def test_a_started_request_that_is_cut_is_a_record_of_what_arrived() -> None:
    server = Scripted([ANSWER, stream((20, C("a")), (9_000, DONE))])

    async def main() -> tuple[Record, int]:
        client = client_on(server)
        await ask(client, 0)
        asked = arrival(1, due_s=client.now_s())
        done: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        started = client.start(
            asked, client.prepare(asked, "hi"), lambda _, record: done.set_result(record), patient=True
        )
        assert started is not None
        await asyncio.sleep(1.0)
        client.cut(started)
        client.cut(started)
        return await done, client.counts.in_flight

    record, in_flight = jump(main())
    assert (record.status, record.text, in_flight) == ("unfinished", "a", 0)
    assert record.stream_end_s == pytest.approx(1.04)


def test_requests_of_different_ages_time_out_each_at_its_time() -> None:
    server = Scripted([*[ANSWER] * 3, *[[(50_000.0, "close")]] * 3])

    async def main() -> list[Record]:
        client = client_on(server, first_timeout_s=12.0, grace_s=5.0)
        await asyncio.gather(*(ask(client, seq) for seq in range(3)))

        async def later(seq: int) -> Record:
            await asyncio.sleep(0.3 * seq)
            return await ask(client, seq)

        return await asyncio.gather(*(later(seq) for seq in range(3)))

    records = jump(main())
    assert [(record.status, record.error) for record in records] == [("error", "timeout_first")] * 3
    assert [record.stream_end_s for record in records] == pytest.approx([12.04, 12.34, 12.64])


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_kept_connection_that_was_dead_is_replaced_once_and_said(how: Any) -> None:
    server = Scripted([ANSWER, [(0.2, how)], ANSWER])

    async def main() -> Record:
        client = client_on(server)
        await ask(client, 0)
        return await ask(client, 1)

    record = jump(main())
    assert record.status == "ok"
    assert record.warnings == ["stale_connection"]
    assert record.sent_ttft_s == pytest.approx(0.02)
    assert record.connect_s == 0.0
    assert [request.connection for request in server.requests] == [0, 0, 1]


def test_a_fresh_connection_that_dies_is_a_failure_and_nothing_is_sent_again() -> None:
    server = Scripted([[(0.2, "reset")]])
    record = jump(_ask_once(server))
    assert (record.status, record.error, len(server.requests)) == ("error", "reset", 1)


@pytest.mark.parametrize(
    "second",
    [[(5.0, HEAD), (6.0, "reset")], [(100.0, "reset")], reply(b'{"error":"busy"}', "503 Service Unavailable")],
    ids=["after the head", "after a while", "by a reply"],
)
def test_a_kept_connection_on_which_the_server_may_have_seen_the_request_is_not_replaced(second: list[Act]) -> None:
    server = Scripted([ANSWER, second])

    async def main() -> Record:
        client = client_on(server)
        await ask(client, 0)
        return await ask(client, 1)

    assert jump(main()).status == "error"
    assert len(server.requests) == 2


def test_a_second_dead_connection_is_a_failure() -> None:
    server = Scripted([ANSWER, [(0.2, "close")], [(0.2, "close")], ANSWER])

    async def main() -> Record:
        client = client_on(server)
        await ask(client, 0)
        return await ask(client, 1)

    assert jump(main()).error == "reset"
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        [*stream((20, C("a") + FIN("stop") + DONE), end=False), (21.0, "close")],
        stream((20, C("a") + FIN("stop") + DONE), end=False),
        [*ANSWER, (40.5, b"HTTP/1.1 408 Request Timeout\r\n\r\n")],
        [(1.0, HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")), *ANSWER[1:]],
    ],
    ids=["closed", "open", "talks", "says close"],
)
def test_a_connection_in_doubt_is_not_used_again(answer: list[Act]) -> None:
    server = Scripted([answer, ANSWER])

    async def main() -> list[str]:
        client = client_on(server)
        statuses = [(await ask(client, 0)).status]
        await asyncio.sleep(0.01)
        return [*statuses, (await ask(client, 1)).status]

    statuses = jump(main())
    assert statuses[1] == "ok"
    assert [request.connection for request in server.requests] == [0, 1]


def test_no_first_output_in_time_ends_the_request_then() -> None:
    record = record_of([(10, HEAD), (500, framed(ROLE))], first_timeout_s=2.0)
    assert (record.status, record.error, record.stream_end_s) == ("error", "timeout_first", pytest.approx(2.0))


def test_comments_and_empty_events_do_not_stop_the_timers() -> None:
    pings: list[Act] = [(450.0 * i, framed(b": ping\n\n" + ROLE)) for i in range(1, 40)]
    record = record_of([(0, HEAD), *pings], first_timeout_s=3.0, idle_timeout_s=1.0)
    assert (record.error, record.stream_end_s, record.keepalives) == ("timeout_first", pytest.approx(3.0), 6)
    begun = record_of([(0, HEAD), (100, framed(C("a"))), *pings], idle_timeout_s=3.0)
    assert (begun.error, begun.stream_end_s) == ("timeout_idle", pytest.approx(3.1))


def test_silence_is_measured_from_the_last_output_event_to_the_millisecond() -> None:
    acts = [(1000.0 * i, C("a")) for i in range(1, 9)]
    record = record_of(stream(*acts, end=False), idle_timeout_s=2.5)
    assert (record.error, record.stream_end_s) == ("timeout_idle", pytest.approx(10.5))
    assert len(record.event_s) == 8
    assert record.error_detail == "no output for 2.5 s, after 8 output events"


def test_the_total_time_ends_a_stream_that_goes_on() -> None:
    acts = [(100.0 * i, C("a")) for i in range(1, 90)]
    record = record_of(stream(*acts), timeout_s=5.05)
    assert (record.error, record.stream_end_s) == ("timeout_total", pytest.approx(5.05))
    assert len(record.event_s) == 50


def test_a_whole_reply_has_only_the_total_time() -> None:
    body = b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}'
    record = record_of(reply(body, at_ms=9000), stream=False, first_timeout_s=1.0, idle_timeout_s=1.0)
    assert (record.status, record.e2e_s) == ("ok", pytest.approx(9.0))
    late = record_of(reply(body, at_ms=9000), stream=False, timeout_s=2.0)
    assert (late.error, late.stream_end_s) == ("timeout_total", pytest.approx(2.0))


def test_cancelling_a_request_gives_a_record_of_what_arrived() -> None:
    async def main() -> tuple[Record, Any]:
        client = client_on(Scripted([ANSWER]))
        task = asyncio.create_task(ask(client))
        await asyncio.sleep(0.03)
        task.cancel()
        return await task, client.counts

    record, counts = jump(main())
    assert (record.status, record.error, record.error_detail) == (
        "unfinished",
        None,
        "cut off by the client, after 1 output event",
    )
    assert record.event_s == pytest.approx([0.02])
    assert (counts.in_flight, counts.waiting, counts.finished) == (0, 0, 1)


def test_closing_the_client_ends_what_is_in_flight() -> None:
    async def main() -> Record:
        client = client_on(Scripted([ANSWER]))
        task = asyncio.create_task(ask(client))
        await asyncio.sleep(0.03)
        await client.close()
        return await task

    record = jump(main())
    assert (record.status, record.error, record.done_s) == ("unfinished", None, None)


def test_a_client_closed_while_it_connects_sends_nothing(way: str) -> None:
    server = Scripted([ANSWER])

    async def slow(on_bytes: Any, on_close: Any) -> Any:
        await asyncio.sleep(1.0)
        return await server.connect(on_bytes, on_close)

    async def main() -> Record:
        client = _client(slow)
        task = asyncio.create_task(ask(client))
        await asyncio.sleep(0.5)
        await client.close()
        return await task

    record = jump(main())
    assert (record.status, record.sent_s) == ("unfinished", None)
    assert server.requests == []
    assert [pipe.closed for pipe in server.pipes] == ([] if way == "started" else [True])


def test_a_failed_connection_is_a_record_with_the_time_it_took() -> None:
    async def refuse(on_bytes: Any, on_close: Any) -> Any:
        await asyncio.sleep(0.2)
        raise ConnectFailed("tls", "certificate not trusted: self-signed certificate")

    async def main() -> Record:
        return await ask(_client(refuse))

    record = jump(main())
    assert (record.status, record.error, record.sent_s, record.connect_s) == ("error", "tls", None, pytest.approx(0.2))
    assert record.error_detail == "certificate not trusted: self-signed certificate"
    assert record.stream_end_s == pytest.approx(0.2)


def test_counts_and_snapshots_follow_requests_through() -> None:
    async def main() -> list[Any]:
        client = client_on(Scripted([ANSWER]))
        seen = []
        tasks = [asyncio.create_task(ask(client, i)) for i in range(3)]
        for instant_s in (0.01, 0.03, 0.05):
            await asyncio.sleep(instant_s - client.now_s())
            counts = client.counts
            seen.append((counts.sent, counts.finished, counts.tokens, counts.in_flight, counts.waiting))
            if instant_s == 0.03:
                seen.append([(r.status, r.event_s, r.text, r.stream_end_s) for r in client.snapshot()])
        assert [(await task).status for task in tasks] == ["ok"] * 3
        return seen

    begun, going, copies, over = jump(main())
    assert begun == (3, 0, 0, 3, 3)
    assert going == (3, 0, 3, 3, 0)
    assert copies == [("in_flight", [pytest.approx(0.02)], "a", None)] * 3
    assert over == (3, 3, 6, 0, 0)


def test_a_snapshot_leaves_the_record_itself_alone() -> None:
    async def main() -> tuple[Record, Record]:
        client = client_on(Scripted([ANSWER]))
        task = asyncio.create_task(ask(client))
        await asyncio.sleep(0.03)
        copy = next(iter(client.snapshot()))
        return copy, await task

    copy, record = jump(main())
    assert len(copy.event_s) == 1
    assert len(record.event_s) == 2


def test_secrets_in_a_server_s_words_are_taken_out() -> None:
    async def main() -> Record:
        target = Target(base_url=BASE_URL, api_key_env="KEY")
        server = Scripted([reply(b'{"error":"Incorrect API key provided: sk-canary-1234"}', "401 Unauthorized")])
        loop = asyncio.get_running_loop()
        endpoint = endpoint_of(target, {"KEY": "sk-canary-1234"})
        client = MeasuringClient(target, endpoint, "m", connect=server.connect, clock=loop.time, t0_s=0.0)
        return await ask(client)

    assert jump(main()).error_detail == "HTTP 401 Unauthorized: Incorrect API key provided: ***"


def test_text_is_kept_only_when_asked_for() -> None:
    async def main() -> Record:
        return await ask(client_on(Scripted([ANSWER]), save_text=False))

    assert jump(main()).text is None
    assert record_of(ANSWER).text == "ab"


def test_a_finish_in_bytes_not_parsed_yet_is_found_within_the_grace() -> None:
    acts = [(10.0 * i, C("a")) for i in range(1, 6)]
    record = record_of(stream(*acts, (60, FIN("stop")), end=False), grace_s=2.0, idle_timeout_s=60.0)
    assert (record.status, record.stream_end_s, record.warnings) == ("ok", pytest.approx(0.06), ["no_done", "no_usage"])


def test_the_counts_of_a_long_stream_lag_by_at_most_one_lot_of_reads() -> None:
    async def main() -> int:
        client = client_on(Scripted([stream(*[(10.0 * i, C("a")) for i in range(1, 200)], (2000, FIN("stop") + DONE))]))
        task = asyncio.create_task(ask(client))
        await asyncio.sleep(1.505)
        so_far = client.counts.tokens
        await task
        return so_far

    assert 150 - 32 <= jump(main()) <= 150


def _client(connect: Any) -> MeasuringClient:
    target = Target(base_url=BASE_URL)
    loop = asyncio.get_running_loop()
    return MeasuringClient(target, endpoint_of(target, {}), "m", connect=connect, clock=loop.time, t0_s=0.0)


async def _ask_once(server: Scripted) -> Record:
    return await ask(client_on(server))
