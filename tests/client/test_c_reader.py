"""The reader in C gives back what was sent, when it came, and nothing that the Python reader would not."""

import asyncio
import os
import select
import shutil
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_server import CU, DONE, FIN, ROLE, C, Scripted, arrival, chunk, framed, started_on, stream
from test_event_batch import FRAMINGS, NOT_PLAIN, PLAIN

from hatch_build import COMPILERS, compiled
from loadramp.client.endpoint import endpoint_of
from loadramp.client.http import c_reader as gather
from loadramp.client.http import poller
from loadramp.client.http.c_reader import TRIES, Beat, CReader, KeptReads, Read, Taken, load
from loadramp.client.http.connect import Dialer, dialer_of
from loadramp.client.http.poller import clocks
from loadramp.client.http.response import ResponseReader
from loadramp.client.measuring_client import MeasuringClient
from loadramp.client.stream.event_batch import EventBatch, plain_events
from loadramp.client.stream.event_shape import NotedEvents
from loadramp.record.types import Record
from loadramp.scenario.scenario import Target

SOURCE = gather.LIBRARY.with_name("c_reader.c")
built = pytest.mark.skipif(gather.LOADED is None, reason="the reader in C was not built")


def test_it_is_built_wherever_there_is_a_compiler() -> None:
    can_build = os.uname().sysname == "Linux" and any(map(shutil.which, COMPILERS))
    assert gather.LOADED is not None or not can_build


# -- one socket


@dataclass
class Bench:
    """A connected socket that is read in C, and the other end."""

    gather: CReader
    kept: KeptReads
    mine: socket.socket
    other: socket.socket
    epoll_fd: int
    late_s: float = 10.0

    def send(self, *reads: bytes, trusted: bool = True) -> list[int]:
        """Each read by itself; what is due after the last."""
        due: list[int] = []
        for data in reads:
            self.other.send(data)
            due = self.read(trusted)
        return due

    def read(self, trusted: bool = True) -> list[int]:
        wall_s, now_s = clocks()
        deadline_s = now_s + 10.0
        while time.monotonic() < deadline_s:
            count, due, _ = self.gather.read(self.epoll_fd, wall_s - now_s if trusted else None, self.late_s)
            if count:
                return due
        raise TimeoutError

    def forget(self) -> None:
        """Events came that were each of another shape: none is learned any more."""
        for number in range(TRIES):
            self.send(unlike(number))
            self.kept.take()


def other_of(taken: Taken) -> bytes:
    """The one read that is neither noted nor plain; empty: there is none."""
    assert len(taken.others) < 2
    assert taken.opening == []
    return b"".join(data for data, _ in taken.others)


def unlike(number: int) -> bytes:
    return framed(chunk({"index": 0, "delta": {"content": "a"}}, number=number))


@contextmanager
def bench(learns: bool = False) -> Iterator[Bench]:
    with socket.create_server(("127.0.0.1", 0)) as listener, select.epoll() as poll:
        mine = socket.create_connection(listener.getsockname())
        other, _ = listener.accept()
        with mine, other:
            mine.setblocking(False)
            mine.setsockopt(socket.SOL_SOCKET, 35, 1)
            other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(mine.fileno(), select.EPOLLIN)
            one = gather.new_c_reader()
            assert one is not None
            made = Bench(one, one.keep(mine.fileno()), mine, other, poll.fileno())
            for _ in range(100):  # the kernel starts to stamp with the first socket that asks for it
                made.send(b"warm")
                if made.kept.take().kernel:
                    break
                time.sleep(0.002)
            else:
                pytest.skip("this kernel does not stamp TCP segments")
            if not learns:
                made.forget()
            yield made
            one.close()


EVENT = framed(C("a"))


@built
def test_whole_events_wait_and_are_given_back_with_the_instants_they_came_at() -> None:
    with bench() as one:
        instants = []
        for data in (EVENT, framed(C("bb"))):
            before_s = time.monotonic()
            assert one.send(data) == []
            instants.append((before_s - 0.002, time.monotonic()))
            time.sleep(0.005)
        taken = one.kept.take()
        assert taken.batch is not None
        assert taken.batch.reads() == [EVENT, framed(C("bb"))]
        assert taken.batch.payloads() == [C("a")[6:-2], C("bb")[6:-2]]
        assert all(a <= at <= b for (a, b), at in zip(instants, taken.batch.stamps_s, strict=True))
        assert (taken.others, taken.kernel, taken.late, taken.over, taken.error) == ([], True, 0, False, 0)
        assert one.kept.take() == ([], None, None, [], False, 0, False, 0)


@built
def test_a_lot_is_due_when_it_is_full_and_nothing_is_read_before_it_is_taken() -> None:
    with bench() as one:
        assert one.send(*[EVENT] * 31) == []
        assert one.send(EVENT) == [one.mine.fileno()]
        assert one.send(framed(C("next"))) == [one.mine.fileno()]
        lot = one.kept.take().batch
        assert lot is not None
        assert lot.reads() == [EVENT] * 32
        assert one.read() == []
        lot = one.kept.take().batch
        assert lot is not None
        assert lot.reads() == [framed(C("next"))]
        large = framed(C("x" * 7_000))
        assert one.send(large, large) == []
        assert one.send(large) == [one.mine.fileno()]


@built
def test_events_of_a_known_shape_are_noted_and_given_back_as_numbers_and_text() -> None:
    with bench(learns=True) as one:
        assert one.send(framed(CU("a", 1))) == [one.mine.fileno()]
        assert one.kept.take().batch is not None
        one.kept.note(True)
        instants = []
        for data in (framed(CU("\u00e9\u4e16\U0001f642", 2)), framed(CU('"}\\\n', 3)) + framed(CU("b", 4))):
            before_s = time.monotonic()
            one.send(data)
            instants.append((before_s - 0.002, time.monotonic()))
        noted = one.kept.take().noted
        assert noted is not None
        assert noted.texts() == ["\u00e9\u4e16\U0001f642", '"}\\\n', "b"]
        assert (noted.tokens, noted.characters, noted.shape.choice) == ([2, 3, 4], [3, 4, 1], 0)
        assert all(a <= at <= b for (a, b), at in zip(instants, noted.stamps_s, strict=False))
        assert noted.stamps_s[1] == noted.stamps_s[2]


@built
def test_nothing_is_noted_after_another_read_until_it_was_parsed() -> None:
    with bench(learns=True) as one:
        one.send(EVENT)
        one.kept.take()
        one.kept.note(True)
        one.send(EVENT)
        assert one.send(EVENT[:-1]) == [one.mine.fileno()]
        taken = one.kept.take()
        assert (taken.noted is not None, taken.batch, other_of(taken)) == (True, None, EVENT[:-1])
        one.kept.note(False)
        assert one.send(EVENT) == [one.mine.fileno()]
        taken = one.kept.take()
        assert (taken.noted, taken.batch is not None) == (None, True)


@built
def test_the_shape_is_given_up_when_event_after_event_has_another() -> None:
    with bench(learns=True) as one:
        dues = []
        for number in range(TRIES + 2):
            dues.append(one.send(unlike(number)) != [])
            taken = one.kept.take()
            assert taken.noted is None
            one.kept.note(True)
        assert dues == [True] * TRIES + [False] * 2  # from then on they wait until there is a lot of them


@built
@pytest.mark.parametrize("what", FRAMINGS)
def test_a_plain_event_is_what_it_is_for_the_python_reader(what: str) -> None:
    data, plain = FRAMINGS[what]
    with bench() as one:
        assert one.send(EVENT, data) == ([] if plain else [one.mine.fileno()])
        taken = one.kept.take()
        assert taken.batch is not None
        assert (taken.batch.reads(), other_of(taken)) == (([EVENT, data], b"") if plain else ([EVENT], data))


@built
def test_a_long_event_is_given_back_at_once_and_last() -> None:
    data = framed(C("x" * 9_000))
    with bench() as one:
        assert one.send(EVENT, data) == [one.mine.fileno()]
        taken = one.kept.take()
        assert taken.batch is not None
        assert (taken.batch.reads(), other_of(taken)) == ([EVENT], data)


@built
@given(
    events=st.lists(st.sampled_from([*PLAIN, *NOT_PLAIN.values(), DONE, b"data: {}\n\n"]), min_size=1, max_size=12),
    cuts=st.lists(st.floats(0, 1), max_size=6),
)
@settings(max_examples=60)
def test_what_is_given_back_is_what_was_sent_and_a_lot_is_what_the_python_reader_calls_one(
    events: list[bytes], cuts: list[float]
) -> None:
    whole = b"".join(map(framed, events))
    bounds = sorted({0, len(whole), *(int(share * len(whole)) for share in cuts)})
    reads = [whole[a:b] for a, b in pairwise(bounds)]
    with bench() as one:
        got: list[bytes] = []
        for data in reads:
            if not one.send(data):
                continue
            taken = one.kept.take()
            if taken.batch is not None:
                got += taken.batch.reads()
                for read, payload in zip(taken.batch.reads(), taken.batch.payloads(), strict=True):
                    assert read == framed(b"data: " + payload + b"\n\n")
            if taken.others:
                got.append(other_of(taken))
                assert not plain_events([other_of(taken)])
        last = one.kept.take().batch
        got += [] if last is None else last.reads()
    assert got == reads


@built
def test_what_the_kernel_did_not_stamp_is_not_kept() -> None:
    with bench() as one:
        assert one.send(EVENT) == []
        before_s = time.monotonic()
        assert one.send(framed(C("b")), trusted=False) == [one.mine.fileno()]
        taken = one.kept.take()
        assert other_of(taken) == framed(C("b"))
        assert before_s <= taken.others[0][1] <= time.monotonic()


@built
def test_late_reads_are_counted() -> None:
    with bench() as one:
        one.send(EVENT)
        one.late_s = 0.001
        one.other.send(EVENT)
        time.sleep(0.02)
        assert one.read() == []
        assert one.kept.take().late == 1
        assert one.kept.take().late == 0


@built
@pytest.mark.parametrize("reset", [False, True])
def test_the_end_is_told_after_what_came_before_it_and_again_until_it_is_taken(reset: bool) -> None:
    with bench() as one:
        one.send(EVENT)
        if reset:
            one.other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        one.other.close()
        assert one.read() == [one.mine.fileno()]
        assert one.read() == [one.mine.fileno()]
        taken = one.kept.take()
        assert taken.batch is not None
        assert (taken.batch.reads(), taken.others, taken.over, taken.error) == ([EVENT], [], True, 104 if reset else 0)


@built
def test_sockets_that_are_not_kept_are_only_said_to_be_ready() -> None:
    with bench() as one:
        one.gather.drop(one.mine.fileno())
        one.gather.drop(10_000)
        assert one.send(EVENT) == [one.mine.fileno()]
        assert one.mine.recv(100_000) == EVENT
        one.gather.keep(10_000)  # the table grows
        one.kept = one.gather.keep(one.mine.fileno())
        one.forget()
        assert one.send(EVENT) == []


@built
def test_on_the_beat_a_thread_notes_what_comes_and_tells_only_what_is_due() -> None:
    told = os.eventfd(0, os.EFD_NONBLOCK)
    with bench(learns=True) as one:
        one.send(EVENT)
        one.kept.take()
        one.kept.note(True)
        wall_s, now_s = clocks()
        assert one.gather.start(one.epoll_fd, told, wall_s - now_s, Beat(0.001, 10.0, 100_000, 1e9))
        before_s = time.monotonic()
        one.other.send(EVENT)
        while one.gather.waiting() != (1, 0, 0):
            assert time.monotonic() < before_s + 10.0
            time.sleep(0.001)
        after_s = time.monotonic()
        with pytest.raises(BlockingIOError):
            os.eventfd_read(told)
        one.other.send(b"anything else")
        select.select([told], [], [], 10.0)
        os.eventfd_read(told)
        beats = one.gather.collect()
        assert (beats.due, beats.all, beats.blurred) == ([one.mine.fileno()], 2, 0)
        assert beats.beats >= 2
        one.other.send(EVENT)
        time.sleep(0.01)
        assert one.gather.collect().all == 0  # nothing is read before that was handled
        taken = one.kept.take()
        assert (taken.noted is not None, other_of(taken)) == (True, b"anything else")
        assert taken.noted is not None
        assert before_s - 0.002 <= taken.noted.stamps_s[0] <= after_s
        one.gather.handled()
        select.select([told], [], [], 10.0)
        os.eventfd_read(told)
        assert one.kept.take().batch is not None
        one.gather.stop()
        assert one.gather.start(one.epoll_fd, told, wall_s - now_s, Beat(0.001, 10.0, 4, 1e9))
        select.select([told], [], [], 10.0)
        assert one.gather.collect().beats >= 4  # nothing is due, but the beat is to be judged
        one.gather.stop()
    os.close(told)


# -- a client that reads so


def client_of(target: Target, connect: Dialer | None) -> MeasuringClient:
    clock = time.monotonic
    return MeasuringClient(
        target, endpoint_of(target, {}), "m", connect=connect, clock=clock, t0_s=clock(), save_text=True
    )


def played(
    script: list[Any], use: Callable[[MeasuringClient, asyncio.Task[Record]], Coroutine[Any, Any, None]] | None = None
) -> Record:
    """The record of one request that ``script`` answers through a real socket; ``use`` is awaited meanwhile."""

    async def main() -> Record:
        server, url = await Scripted([script]).serve()
        target = Target(base_url=url)
        client = client_of(target, None)
        asked = arrival()
        try:
            task = asyncio.create_task(client.send(asked, client.prepare(asked, "x")))
            if use is not None:
                await use(client, task)
            return await task
        finally:
            await client.close()
            server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def played_patiently(script: list[Any]) -> Record:
    """The record of the last of three requests on one connection, for none of which anybody waits."""

    async def main() -> Record:
        server, url = await Scripted([script]).serve()
        client = client_of(Target(base_url=url), None)
        try:
            record = await client.send(arrival(), client.prepare(arrival(), "x"))
            for _ in range(2):
                started, done = started_on(client, arrival())
                record = await (done if started is not None else client.send(arrival(), client.prepare(arrival(), "x")))
            return record
        finally:
            await client.close()
            server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main())


def at_once(patch: pytest.MonkeyPatch) -> None:
    """The beat begins with the second read, and goes on."""
    patch.setattr(poller, "WAKES", 2)
    patch.setattr(poller, "QUICK_S", 1e9)
    patch.setattr(poller, "THREAD_QUICK_S", 1e9)
    patch.setattr(poller, "LOOK_BEATS", 100_000)


TIMED = {"first_byte_s", "event_s", "answer_s", "stream_end_s", "sent_s", "connect_s", "warnings", "stamps"}


def said(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in Record.__dataclass_fields__ if name not in TIMED}


@pytest.mark.parametrize("beating", [False, True])
@given(
    events=st.lists(
        st.one_of(st.sampled_from(PLAIN), st.sampled_from(PLAIN), st.sampled_from(sorted(NOT_PLAIN.values()))),
        max_size=80,
    )
)
@settings(max_examples=12)
def test_both_readers_make_the_same_record(beating: bool, events: list[bytes]) -> None:
    said_last = (FIN("stop"), DONE)
    script = stream(*[(0.4 * at, data) for at, data in enumerate([ROLE, C("first"), *events, *said_last])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadramp.client.http.response.PARSE_S", 60.0)  # what a busy machine delays is no slow parse
        if beating:
            at_once(patch)
        in_c, patient = played(script), played_patiently(script)
        patch.setattr(gather, "LOADED", None)
        in_python = played(script)
    assert said(in_c) == said(in_python) == said(patient)
    assert len(in_c.event_s) == len(in_python.event_s) == len(patient.event_s)


RUNNING = stream((0, ROLE), (0, C("first")), *[(at, C("x")) for at in range(5, 11)], (60_000, DONE))


@pytest.mark.usefixtures("read_in")
def test_what_waits_is_in_a_snapshot_and_in_the_record_of_a_request_that_was_cut_off() -> None:
    seen: list[int] = []

    async def cut_off(client: MeasuringClient, task: asyncio.Task[Record]) -> None:
        async with asyncio.timeout(10):
            while not seen or seen[-1] < 7:
                await asyncio.sleep(0.002)
                seen.append(sum(len(record.event_s) for record in client.snapshot()))
        task.cancel()

    record = played(RUNNING, cut_off)
    assert seen[-1] == 7
    assert (record.status, record.error, record.text) == ("unfinished", None, "firstxxxxxx")
    assert record.event_s == sorted(record.event_s)


def test_a_connection_whose_reads_waited_is_used_again(read_in: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lots: list[int] = []
    feed_batch = ResponseReader.feed_batch

    def spied(self: ResponseReader, lot: EventBatch | NotedEvents | list[Read], t0_s: float) -> None:
        if not isinstance(lot, list):
            lots.append(len(lot.stamps_s))
        feed_batch(self, lot, t0_s)

    monkeypatch.setattr(ResponseReader, "feed_batch", spied)
    script = stream((0, ROLE), (0, C("first")), *[(at, C("x")) for at in range(1, 40)], (41, FIN("stop")), (41, DONE))

    async def main() -> tuple[list[Record], int]:
        server, url = await Scripted([script]).serve()
        target = Target(base_url=url)
        dialer = dialer_of(target, endpoint_of(target, {}))
        client = client_of(target, dialer)
        asked = arrival()
        records = [await client.send(asked, client.prepare(asked, "x")) for _ in range(3)]
        await client.close()
        server.close()
        return records, dialer.tally.opened

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        records, opened = runner.run(main())
    assert [(record.status, record.text) for record in records] == [("ok", "first" + 39 * "x")] * 3
    assert [record.stamps for record in records] == [records[0].stamps] * 3
    assert opened == 1
    if read_in == "in Python" or records[0].stamps == "user":
        assert lots == []
    else:
        assert sum(lots) >= 3 * 30  # all but those that came before the first was parsed, and with another


@pytest.mark.parametrize("beating", [False, True])
@pytest.mark.usefixtures("read_in")
def test_no_stream_of_many_loses_anything(beating: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if beating:
        at_once(monkeypatch)
    script = stream(
        (0, ROLE), *[(0.7 * at, CU(f"{at} ", at + 1)) for at in range(300)], (211, FIN("stop")), (212, DONE)
    )

    async def main() -> list[Record]:
        server, url = await Scripted([script]).serve()
        client = client_of(Target(base_url=url), None)
        asked = arrival()

        async def one() -> list[Record]:
            return [await client.send(asked, client.prepare(asked, "x")) for _ in range(2)]

        records = [record for pair in await asyncio.gather(*(one() for _ in range(20))) for record in pair]
        await client.close()
        server.close()
        return records

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        records = runner.run(main())
    assert {(record.status, record.text) for record in records} == {("ok", "".join(f"{at} " for at in range(300)))}
    assert {(record.output_tokens, record.token_source) for record in records} == {(300, "continuous")}
    assert all(record.event_s == sorted(record.event_s) for record in records)


# -- where it is not


def test_without_it_sockets_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torn.so").write_bytes(b"\x7fELF")
    assert load(tmp_path / "none.so") is None
    assert load(tmp_path / "torn.so") is None
    monkeypatch.setattr(gather, "LOADED", None)
    assert gather.new_c_reader() is None
    record = played(stream((0, ROLE), *[(at, C("x")) for at in range(40)], (41, FIN("stop")), (41, DONE)))
    assert (record.status, record.text) == ("ok", 40 * "x")


@built
def test_another_version_of_it_is_not_used(tmp_path: Path) -> None:
    other = tmp_path / "c_reader.c"
    shutil.copy(SOURCE.with_name("event_bytes.h"), tmp_path)
    other.write_text(SOURCE.read_text().replace("#define GATHER_LAYOUT 7", "#define GATHER_LAYOUT 6"))
    assert compiled(other, tmp_path / "other.so") == ""
    assert load(tmp_path / "other.so") is None
    assert compiled(SOURCE, tmp_path / "same.so") == ""
    assert load(tmp_path / "same.so") is not None


def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old.so").write_bytes(b"old")
    monkeypatch.setenv("CC", "no-such-compiler --fast")
    assert "no-such-compiler" in compiled(SOURCE, tmp_path / "old.so")
    assert list(tmp_path.iterdir()) == []
