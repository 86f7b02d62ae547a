"""Workers: the same share of the load, in processes of their own, each with one loop, on the host's one clock.

A worker is told the step and rebuilds ``plan[i::n]`` itself; it writes its own record file and says each second how it
fares. No prompt and no record crosses the pipe, but for the requests in flight when a snapshot is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any, Concatenate, ParamSpec, TypeVar

from loadramp.client.client_failure import line_of
from loadramp.client.fleet import LEAD_S, FleetError, Orders, Worker, raise_file_limit
from loadramp.one_thread import one_thread
from loadramp.record.codec import decode_lines
from loadramp.record.run_info import ClockOffset, WorkerDeath
from loadramp.record.types import ClientSample, Record, Step
from loadramp.registry import CannotMeasure, ScenarioError

TERMINAL = (signal.SIGINT, signal.SIGHUP)
"""These reach every process of a terminal; the parent decides what they mean."""
SNAPSHOT_TURN = 8
"""So many records of a snapshot are made at once."""
ORPHAN_S = 5.0
"""After SIGTERM a worker waits so long for its parent's word, then ends by itself."""


P = ParamSpec("P")
T = TypeVar("T")
Verb = Callable[Concatenate[Worker, P], Awaitable[T]]
Command = tuple[Callable[..., Awaitable[object]], tuple[object, ...], dict[str, object]] | None
"""One of the functions below, which the pipe carries by its name, and its arguments; None: leave."""
Word = ClientSample | tuple[str, object] | str
"""Of a worker: how it fares, what the function of that name returned, or why it can do no more."""


async def _ready(worker: Worker) -> None:
    """Answered once the worker's loop is running."""


async def _begin(worker: Worker, step: Step, first_seq: int) -> None:
    worker.share.begin(step, first_seq)


async def _snapshot(worker: Worker) -> bytes:
    lines = []
    for record in worker.snapshot():  # a thousand answers take long: everything else has its turn between them
        lines.append(line_of(record))
        if len(lines) % SNAPSHOT_TURN == 0:
            await asyncio.sleep(0)
    return b"".join(lines)


async def _in_flight(worker: Worker) -> int:
    return worker.in_flight()


async def _finish(worker: Worker, deadline_s: float) -> None:
    await worker.finish(deadline_s)


@dataclass(slots=True)
class LocalFleet:
    """``workers`` processes on this host, which share ``plan[shard::shards]``: all of it, or one machine's part.

    Worker j is worker ``shard + shards * j`` of the ``shards * workers`` that there would be in all.
    """

    orders: Orders
    paths: Callable[[int], Path]
    workers: int = 1
    shard: int = 0
    shards: int = 1
    dead: list[WorkerDeath] = field(default_factory=list)
    clocks: Sequence[ClockOffset] = ()
    lead_s: float = LEAD_S
    closing: bool = False
    _hands: list[_Hand] = field(default_factory=list)
    _samples: list[ClientSample] = field(default_factory=list)

    async def start(self) -> None:
        """Start the processes and wait until each has its loop running.

        Raises:
            FleetError: one could not start; says why.
        """
        # spawn, not fork: the parent has a loop, threads and sockets that a child must not inherit
        context = multiprocessing.get_context("spawn")
        scenario = self.orders.scenario
        # a worker judges nothing: the detector's modules would take most of its start
        orders = replace(self.orders, scenario=replace(scenario, knee=scenario.ramp, features={}))
        of = self.shards * self.workers
        ready = []
        for index in range(self.shard, of, self.shards):
            ours, theirs = context.Pipe()
            args = (theirs, orders, self.paths(index), index, of)
            process = context.Process(target=_main, args=args, name=f"loadramp-worker-{index}", daemon=True)
            with _without_main(), one_thread(), _signals_held():
                process.start()
            await asyncio.sleep(0)  # many take long to start: an interruption is heard meanwhile
            theirs.close()
            hand = _Hand(index, process, ours, self)
            self._hands.append(hand)
            hand.listen()
            ready.append(hand.expect(_ready))
            hand.tell((_ready, (), {}))
        await asyncio.gather(*ready)
        self._check()
        if self.dead:
            raise FleetError(f"{self.dead[0].reason} before it could start")

    async def begin(self, step: Step, first_seq: int) -> None:
        self._tell(_begin, step, first_seq)

    async def snapshot(self) -> list[Record]:
        """The requests in flight in all workers, as they are now."""
        answers = await self._ask(_snapshot)
        return [record for lines in answers if lines for record in decode_lines(lines.splitlines()).records]

    async def in_flight(self) -> int:
        return sum(number or 0 for number in await self._ask(_in_flight))

    def samples(self) -> list[ClientSample]:
        """What the workers measured of themselves since the last call."""
        self._check()
        taken, self._samples = self._samples, []
        return taken

    async def finish(self, deadline_s: float) -> None:
        await self._ask(_finish, deadline_s)

    async def close(self) -> None:
        """Let the workers go; one that does not leave by itself is ended."""
        self.closing = True
        for hand in self._hands:
            hand.tell(None)
        await asyncio.gather(*(asyncio.to_thread(hand.process.join, 10.0) for hand in self._hands))
        for hand in self._hands:
            hand.close()

    def _tell(self, verb: Verb[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        for hand in self._hands:
            hand.tell((verb, args, kwargs))

    async def _ask(self, verb: Verb[P, T], *args: P.args, **kwargs: P.kwargs) -> list[T | None]:
        """The answers of all workers; None of one that is gone."""
        answers = [hand.expect(verb) for hand in self._hands]  # first: a worker may answer at once
        self._tell(verb, *args, **kwargs)
        await asyncio.gather(*answers)
        self._check()
        return [answer.result() for answer in answers]

    def _check(self) -> None:
        failures = [hand.failure for hand in self._hands if hand.failure]
        if failures:
            raise FleetError(failures[0])


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A spawned process imports its parent's main module first, which would run a script without a guard again in each
    of them. Workers need nothing of it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """A process that is started meanwhile gets no signal of the terminal before it has said what to do with it: Ctrl-C
    would end it while it still imports."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # its own start, within that of the first process, lets signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TERMINAL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class _Hand:
    """The parent's end of one worker."""

    index: int
    process: SpawnProcess
    pipe: Connection[Command, Word]
    fleet: LocalFleet
    failure: str = ""
    gone: bool = False
    _waiting: dict[str, asyncio.Future[Any]] = field(default_factory=dict)

    def listen(self) -> None:
        _watch(self.pipe, self._heard)

    def tell(self, command: Command) -> None:
        if self.gone:
            return
        try:
            self.pipe.send(command)
        except OSError:
            self._lost()

    def expect(self, verb: Callable[..., Awaitable[T]]) -> asyncio.Future[T | None]:
        """The worker's next answer to ``verb``; None when it is gone."""
        future = self._waiting.setdefault(verb.__name__, asyncio.get_running_loop().create_future())
        if self.gone:
            self._waiting.pop(verb.__name__).set_result(None)
        return future

    def close(self) -> None:
        if not self.gone:
            asyncio.get_running_loop().remove_reader(self.pipe.fileno())
            self.pipe.close()
            self.gone = True
        if self.process.is_alive():
            self.process.kill()

    def _heard(self) -> None:
        try:
            while self.pipe.poll():
                word = self.pipe.recv()
                if isinstance(word, ClientSample):
                    self.fleet._samples.append(word)
                elif isinstance(word, str):
                    self.failure = word
                elif word[0] in self._waiting:
                    self._waiting.pop(word[0]).set_result(word[1])
        except (EOFError, OSError):
            self._lost()

    def _lost(self) -> None:
        if self.gone:
            return
        self.gone = True
        asyncio.get_running_loop().remove_reader(self.pipe.fileno())
        self.pipe.close()
        if not self.fleet.closing:
            self.process.join(1.0)
            t_s = time.monotonic() - self.fleet.orders.t0_s
            reason = f"worker {self.index} ended with code {self.process.exitcode}"
            self.fleet.dead.append(WorkerDeath(t_s, reason))
        for future in self._waiting.values():
            if not future.done():
                future.set_result(None)
        self._waiting.clear()


def _watch(pipe: Connection[Any, Any], heard: Callable[[], None]) -> None:
    """Have ``heard`` called when ``pipe`` has something. uvloop takes what it watches out of blocking mode, where a
    message that does not fit at once, as a snapshot of some hundred requests, would break off in the middle."""
    asyncio.get_running_loop().add_reader(pipe.fileno(), heard)
    os.set_blocking(pipe.fileno(), True)


def _main(pipe: Connection[Word, Command], orders: Orders, path: Path, index: int, of: int) -> None:
    """What a worker process runs."""
    for number in TERMINAL:
        signal.signal(number, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TERMINAL)
    try:
        _run(pipe, orders, path, index, of)
    except (OSError, CannotMeasure, ScenarioError) as error:
        with contextlib.suppress(OSError):
            pipe.send(f"worker {index}: {error}")


def calm_collector() -> None:
    """Set the garbage collector for a process that measures: what outlives a request is little. Young collections at
    700 objects are all pause, and one of 50,000 keeps requests waiting for 4 ms."""
    gc.freeze()
    gc.set_threshold(5_000, 20, 100)


def _run(pipe: Connection[Word, Command], orders: Orders, path: Path, index: int, of: int) -> None:
    most = orders.scenario.pace.max_in_flight
    raise_file_limit(None if most is None else -(-most // of))
    calm_collector()
    if sys.platform == "win32":
        asyncio.run(_work(pipe, orders, path, index, of))
    else:
        import uvloop

        uvloop.run(_work(pipe, orders, path, index, of))


async def _work(pipe: Connection[Word, Command], orders: Orders, path: Path, index: int, of: int) -> None:
    loop = asyncio.get_running_loop()
    commands: asyncio.Queue[Command] = asyncio.Queue()

    def heard() -> None:
        try:
            while pipe.poll():
                commands.put_nowait(pipe.recv())
        except (EOFError, OSError):  # the parent is gone: nobody reads what we would measure
            loop.remove_reader(pipe.fileno())
            commands.put_nowait(None)

    worker = Worker(orders, path, index, of, time.monotonic)
    worker.vitals.start()
    _watch(pipe, heard)
    # a service manager sends SIGTERM to all processes of a run: the parent ends them in its own time, if it can
    loop.add_signal_handler(signal.SIGTERM, lambda: loop.call_later(ORPHAN_S, commands.put_nowait, None))
    ticking = loop.create_task(_tick(pipe, worker))
    try:
        while command := await commands.get():
            verb, args, kwargs = command
            pipe.send((verb.__name__, await verb(worker, *args, **kwargs)))
    finally:
        ticking.cancel()
        await worker.close()


async def _tick(pipe: Connection[Word, Command], worker: Worker) -> None:
    """Say each second how the worker fares, until it cannot work any more."""
    while not worker.failure:
        await asyncio.sleep(1.0)
        pipe.send(worker.sample())
    pipe.send(worker.failure)
