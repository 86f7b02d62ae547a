"""One wait for many sockets: who is read when, and when a beat begins and ends. Real sockets, on both event loops."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import uvloop
from scripted_server import DONE, FIN, LAST, USE, C, framed

from loadramp.client.http import c_reader, poller
from loadramp.client.http.poller import BEAT_S, LATE_READ_S, Poller, Read, clocks, running_events

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": uvloop.new_event_loop,
    "asyncio": asyncio.new_event_loop,
}
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest, read_in: str) -> Run:
    def runner(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as one:
            one.run(main)

    return runner


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


async def until(holds: Callable[[], bool], turn: Callable[[], object] = bool) -> None:
    """``turn`` again and again until it holds."""
    async with asyncio.timeout(20):
        while not holds():
            turn()
            await asyncio.sleep(0.001)  # less is no time at all on one of the loops


def reader(sock: socket.socket, heard: list[bytes], one: Poller, kernel: bool = True) -> Read:
    def read(_now_s: float, _offset_s: float | None) -> None:
        data = sock.recv(65_536)
        heard.append(data)
        if one.beating:
            one.note_blurred(data, kernel)

    return read


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any wakes begin the beat, however slow the machine; it is looked at often, and every beat is punctual."""
    monkeypatch.setattr(poller, "WAKES", 4)
    monkeypatch.setattr(poller, "QUICK_S", 1e9)
    monkeypatch.setattr(poller, "THREAD_QUICK_S", 1e9)
    monkeypatch.setattr(poller, "LOOK_BEATS", 8)
    monkeypatch.setattr(poller, "LATE_BEATS", 1e9)


@pytest.mark.parametrize(
    ("data", "n"),
    [
        (framed(C("a")), 1),
        (framed(C("a")) + framed(C("b")), 2),
        (framed(C("a")) + framed(FIN("stop")), 1),
        (framed(FIN("length")) + framed(USE(3, 4)) + framed(DONE) + LAST, 0),
        (framed(C("a").replace(b": null", b":null")) + framed(C("b")), 2),
        (b"\x17\x03\x03\x00\x10" + bytes(16), 0),
    ],
)
def test_events_that_may_have_come_at_two_instants_are_those_of_a_running_answer(data: bytes, n: int) -> None:
    assert running_events(data) == n


def test_both_clocks_are_read_again_when_something_came_between(monkeypatch: pytest.MonkeyPatch) -> None:
    loop_s = iter([10.0, 10.5, 10.50001, 10.50002])
    wall_s = iter([1000.25, 1000.500015])
    monkeypatch.setattr("loadramp.client.http.poller.time.monotonic", lambda: next(loop_s))
    monkeypatch.setattr("loadramp.client.http.poller.time.time", lambda: next(wall_s))
    assert clocks() == (1000.500015, 10.50002)


def test_no_offset_is_told_for_a_while_after_the_wall_clock_was_moved(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[float, float | None]] = []
    clock = {"now": 10.0, "ahead": 1000.0}
    monkeypatch.setattr(poller, "clocks", lambda: (clock["now"] + clock["ahead"], clock["now"]))

    async def main() -> None:
        one = Poller()
        with pair() as (a, to_a):

            def read(now_s: float, offset_s: float | None) -> None:
                a.recv(1)
                told.append((now_s, offset_s))

            one.add(a.fileno(), read)
            for now, ahead in [(11.0, 1000.0005), (12.0, 1003.0), (12.05, 1003.0), (12.2, 1003.0), (13.0, 990.0)]:
                clock.update(now=now, ahead=ahead)
                before = len(told)
                to_a.send(b"x")
                await until(partial(told.__getitem__, slice(before, None)))  # something new
            one.remove(a.fileno())

    run(main())
    assert told == [(11.0, 1000.0005), (12.0, None), (12.05, None), (12.2, 1003.0), (13.0, None)]


def test_each_socket_is_read_when_it_has_data_and_none_after_it_was_removed(run: Run) -> None:
    async def main() -> None:
        one = Poller()
        with pair() as (a, to_a), pair() as (b, to_b):
            of_a: list[bytes] = []
            of_b: list[bytes] = []
            one.add(a.fileno(), reader(a, of_a, one))
            one.add(b.fileno(), reader(b, of_b, one))
            to_a.send(b"1")
            to_b.send(b"2")
            await until(lambda: bool(of_a and of_b))
            one.remove(a.fileno())
            to_a.send(b"3")
            to_b.send(b"4")
            await until(lambda: len(of_b) == 2)
            one.remove(b.fileno())
            assert (of_a, of_b, one.beating) == ([b"1"], [b"2", b"4"], False)
            one.add(a.fileno(), reader(a, of_a, one))  # and again after the last one went
            await until(lambda: len(of_a) == 2)
            one.remove(a.fileno())

    run(main())


def test_a_socket_removed_by_the_read_of_another_is_not_read(run: Run) -> None:
    async def main() -> None:
        one, read = Poller(), []
        with pair() as (a, to_a), pair() as (b, to_b):

            def first(mine: socket.socket, other: socket.socket) -> Read:
                def go(_now_s: float, _offset_s: float | None) -> None:
                    read.append(mine)
                    one.remove(mine.fileno())
                    one.remove(other.fileno())

                return go

            to_a.send(b"1")
            to_b.send(b"2")
            one.add(a.fileno(), first(a, b))
            one.add(b.fileno(), first(b, a))
            await until(lambda: bool(read))
            await asyncio.sleep(0.005)
            assert len(read) == 1

    run(main())


def test_a_read_that_fails_keeps_no_other_waiting(run: Run) -> None:
    async def main() -> None:
        one, failed = Poller(), []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))
        with pair() as (a, to_a), pair() as (b, to_b):
            heard: list[bytes] = []

            def broken(_now_s: float, _offset_s: float | None) -> None:
                a.recv(1)
                b.recv(1)
                heard.append(b"")
                raise ValueError

            to_a.send(b"1")
            to_b.send(b"2")
            one.add(a.fileno(), broken)
            one.add(b.fileno(), broken)
            await until(lambda: len(heard) == 1)
            await until(lambda: len(failed) == 2)  # the second was handed over, and found nothing
            one.remove(a.fileno())
            one.remove(b.fileno())
            assert [type(error) for error in failed] == [ValueError, BlockingIOError]

    run(main())


@pytest.mark.usefixtures("eager")
def test_a_beat_begins_under_load_reads_everything_and_ends_when_it_finds_nothing(run: Run) -> None:
    async def main() -> None:
        one = Poller()
        with pair() as (a, to_a):
            heard: list[bytes] = []
            one.add(a.fileno(), reader(a, heard, one))
            await until(lambda: one.beating, lambda: to_a.send(b"x"))
            assert one.late_s == LATE_READ_S + BEAT_S  # the wait for the beat is meant
            before = len(b"".join(heard))
            for _ in range(5):
                to_a.send(b"yy")
            await until(lambda: b"".join(heard).endswith(b"yy" * 5))
            assert before >= 3
            if c_reader.LOADED is None:  # a thread waits for the next read by itself
                await until(lambda: not one.beating)
            to_a.send(b"z")
            await until(lambda: heard[-1] == b"z")
            if c_reader.LOADED is None:
                assert not one.beating  # not again so soon
                assert one.late_s == LATE_READ_S
            one.remove(a.fileno())

    run(main())


@pytest.mark.usefixtures("eager")
def test_streams_too_fast_for_a_beat_end_it(run: Run) -> None:
    two = framed(C("a")) + framed(C("b"))

    async def main() -> None:
        one = Poller()
        with pair() as (a, to_a):
            heard: list[bytes] = []
            one.add(a.fileno(), reader(a, heard, one))
            await until(lambda: one.beating, lambda: to_a.send(b"x"))
            began = len(heard)
            late_s = {one.late_s}
            await until(lambda: one.late_s == LATE_READ_S, lambda: (to_a.send(two), late_s.add(one.late_s)))
            assert len(heard) - began >= 4  # more than half of eight beats found something
            quicker = set() if c_reader.LOADED is None else {0.007, 0.006}
            assert {round(one, 6) for one in late_s} - {LATE_READ_S} == {0.009, *quicker}
            assert one.beating is (c_reader.LOADED is not None)  # a thread that reads at once
            one.remove(a.fileno())

    run(main())


@pytest.mark.usefixtures("eager")
def test_without_stamps_of_the_kernel_there_is_no_beat(run: Run) -> None:
    async def main() -> None:
        one = Poller()
        with pair() as (a, to_a):
            heard: list[bytes] = []
            one.add(a.fileno(), reader(a, heard, one, kernel=False))
            beats = 0

            def turn() -> None:
                nonlocal beats
                beats += one.beating
                to_a.send(b"x")

            await until(lambda: len(heard) > 20, turn)
            assert not one.beating  # the first read on the beat called it off
            one.remove(a.fileno())

    run(main())


def test_closing_while_it_beats_leaves_nothing_behind(run: Run, eager: None) -> None:
    async def main() -> None:
        one = Poller()
        with pair() as (a, to_a):
            heard: list[bytes] = []
            one.add(a.fileno(), reader(a, heard, one))
            await until(lambda: one.beating, lambda: to_a.send(b"x"))
            one.remove(a.fileno())
            assert not one.beating
            one.add(a.fileno(), reader(a, heard, one))
            to_a.send(b"last")
            await until(lambda: heard[-1].endswith(b"last"))
            one.remove(a.fileno())

    run(main())
