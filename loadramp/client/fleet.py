"""The fleet: the shares of a run's load, in this process or in processes of their own.

Finished records are found in the record files, not here.
"""

import asyncio
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from loadramp.client.client import CLIENTS, Client
from loadramp.client.client_failure import line_of
from loadramp.client.client_health import HealthMonitor
from loadramp.client.endpoint import Endpoint
from loadramp.client.http.sockets import Connect
from loadramp.client.input_files import with_files
from loadramp.client.sender import Sender
from loadramp.record.run_info import ClockOffset, WorkerDeath
from loadramp.record.types import Calibration, ClientSample, Record, Step
from loadramp.registry import CannotMeasure, ScenarioError
from loadramp.scenario.scenario import Scenario
from loadramp.units import plural
from loadramp.workload.schedule import turns_of

MOST_STREAMS = 20_000
LEAD_S = 0.05
"""How long before its begin a step is announced to workers on this host."""
FLUSH_S = 0.05
"""A record is written at most so much later, and before anybody is told that its request is over."""
MOST_UNWRITTEN = 16
"""More are written at once, as long as that takes nothing noticeable."""
MOST_PER_CORE = 16
"""Worker processes: more only take each other's time, and a slip of the keyboard stops the machine."""
SPARE_FILES = 64
"""Open files that are no sockets to the endpoint."""


class FleetError(CannotMeasure):
    """The load cannot be sent from here: too few file descriptors, a full disk, a worker that died. Exit code 1."""


class Fleet(Protocol):
    """What the conductor needs. Each method raises FleetError when the load can no longer be sent or recorded."""

    @property
    def workers(self) -> int:
        """How many processes send."""

    @property
    def dead(self) -> Sequence[WorkerDeath]:
        """The workers that are gone, in the order in which that was noticed."""

    @property
    def clocks(self) -> Sequence[ClockOffset]:
        """The clocks of other hosts that send; empty where all workers have the clock of this one."""

    @property
    def lead_s(self) -> float:
        """A step is announced this long before it begins, so that every worker has heard of it."""

    async def start(self) -> None:
        """Make all workers ready."""

    async def begin(self, step: Step, first_seq: int) -> None:
        """Send ``step`` from its ``begin_s`` on, numbered from ``first_seq``; the step before ends at that instant."""

    async def snapshot(self) -> list[Record]:
        """The requests in flight, as they are now."""

    async def in_flight(self) -> int:
        """How many those are: no copy of a thousand answers to learn whether one is left."""

    def samples(self) -> list[ClientSample]:
        """What the workers measured of themselves since the last call."""

    async def finish(self, deadline_s: float) -> None:
        """Start nothing more; wait until ``deadline_s`` of the run's time, then cut what is still in flight."""

    async def close(self) -> None:
        """Let go of everything."""


@dataclass(slots=True, frozen=True)
class Orders:
    """Everything a worker needs to rebuild its share of any step: plain data, sent to it once."""

    scenario: Scenario
    endpoint: Endpoint
    model: str
    fields: frozenset[str]
    calibration: Calibration
    salt: int
    t0_s: float
    save_text: bool = False


@dataclass(slots=True)
class Worker:
    """One share with its client, its vitals and its record file, on the running loop."""

    orders: Orders
    path: Path
    index: int
    of: int
    clock: Callable[[], float]
    connect: Connect | None = None
    precise: bool = True
    share: Sender = field(init=False)
    vitals: HealthMonitor = field(init=False)
    _disk: str = ""
    _file: BinaryIO = field(init=False)
    _unwritten: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        orders = self.orders = replace(self.orders, scenario=with_files(self.orders.scenario))
        self._file = self.path.open("ab", buffering=0)
        self.share = Sender(
            orders.scenario,
            self._client(),
            self.clock,
            orders.t0_s,
            self._write,
            index=self.index,
            of=self.of,
            salt=orders.salt,
            calibration=orders.calibration,
            precise=self.precise,
            keep_text=orders.save_text,
        )
        self.vitals = HealthMonitor(self.clock, orders.t0_s, self.index)

    @property
    def failure(self) -> str:
        """Why the load can no longer be sent or recorded; empty while it can."""
        return self._disk or self.share.failure

    def snapshot(self) -> Iterator[Record]:
        """The requests in flight, as they are now; their text only where it is asked for. All others are written when
        it is over."""
        for record in self.share.client.snapshot():
            if not self.orders.save_text:
                record.text = None
            yield record
            self.share.launch_between()
        self.flush()

    def in_flight(self) -> int:
        """How many requests are in flight. All others are written."""
        self.flush()
        return self.share.client.counts.in_flight

    def sample(self) -> ClientSample:
        """What happened since the last one; all that has ended by now is written."""
        self.flush()
        return self.vitals.sample(self.share.client.counts, self.share.held)

    async def close(self) -> None:
        self.vitals.stop()
        await self.share.close()
        self.flush()
        self._file.close()

    def _client(self) -> Client:
        orders = self.orders
        return CLIENTS[orders.scenario.target.via](
            orders.scenario.target,
            orders.endpoint,
            orders.model,
            fields=orders.fields,
            connect=self.connect,
            clock=self.clock,
            t0_s=orders.t0_s,
            worker=self.index,
            # a session sends the answers back: they are kept in memory for it, and never written
            save_text=orders.save_text or turns_of(orders.scenario) > 1,
        )

    async def finish(self, deadline_s: float) -> None:
        """As ``Sender.finish``; everything is written then."""
        await self.share.finish(deadline_s)
        self.flush()

    def flush(self) -> None:
        """Write the records of what has ended."""
        records, self._unwritten = self._unwritten, []
        if self._disk or not records:  # behind half a line a whole one would be lost too
            return
        lines = []
        for record in records:
            lines.append(line_of(record))
            self.share.launch_between()
        if self._disk:  # meanwhile
            return
        data = b"".join(lines)
        try:
            while data:  # a disk that is nearly full takes a part, and refuses the rest
                data = data[self._file.write(data) :]
        except OSError as error:
            self._disk = f"{self.path}: {error.strerror or error}"

    def _write(self, record: Record) -> None:
        """Soon: several at once cost half as much each."""
        if not self._unwritten:
            asyncio.get_running_loop().call_later(FLUSH_S, self.flush)
        self._unwritten.append(record)
        if len(self._unwritten) >= MOST_UNWRITTEN:
            self.flush()


@dataclass(slots=True)
class InlineFleet:
    """All of the load from the conducting process's own loop: tests on a simulated clock, and quick looks.

    ``shard`` of ``shards``: other machines send the other shares.
    """

    orders: Orders
    paths: Callable[[int], Path]
    clock: Callable[[], float]
    connect: Connect | None = None
    precise: bool = True
    shard: int = 0
    shards: int = 1
    dead: list[WorkerDeath] = field(default_factory=list)
    workers: int = 1
    clocks: Sequence[ClockOffset] = ()
    lead_s: float = LEAD_S
    _worker: Worker | None = None
    _samples: list[ClientSample] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        index, of = self.shard, self.shards
        self._worker = Worker(self.orders, self.paths(index), index, of, self.clock, self.connect, self.precise)
        self._worker.vitals.start()
        self._task = asyncio.get_running_loop().create_task(self._sample())

    async def begin(self, step: Step, first_seq: int) -> None:
        self._running.share.begin(step, first_seq)

    async def snapshot(self) -> list[Record]:
        """The requests in flight, as they are now."""
        self._check()
        return list(self._running.snapshot())

    async def in_flight(self) -> int:
        self._check()
        return self._running.in_flight()

    def samples(self) -> list[ClientSample]:
        """What the workers measured of themselves since the last call."""
        self._check()
        taken, self._samples = self._samples, []
        return taken

    async def finish(self, deadline_s: float) -> None:
        await self._running.finish(deadline_s)
        self._check()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._worker is not None:
            await self._worker.close()

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(1.0)
            self._samples.append(self._running.sample())  # its failure is found by _check of the next look

    @property
    def _running(self) -> Worker:
        assert self._worker is not None, "start() comes first"
        return self._worker

    def _check(self) -> None:
        if self._running.failure:
            raise FleetError(self._running.failure)


def raise_file_limit(streams: int | None, lower: str = "max_in_flight") -> int:
    """Make room for ``streams`` sockets in this process, or for as many as there can be; returns how many.

    Args:
        streams: requests in flight at once, each with a socket of its own; None: as many as possible.
        lower: the key of ``[ramp]`` by which fewer would be needed.

    Raises:
        FleetError: the hard limit is too low; names the number needed and how to raise it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_STREAMS if hard == resource.RLIM_INFINITY else hard - SPARE_FILES
    wanted = max(1, min(most, MOST_STREAMS)) if streams is None else streams
    if wanted > most and hard != resource.RLIM_INFINITY:
        needed = wanted + SPARE_FILES
        raise FleetError(
            f"{plural(needed, 'open file', 'are')} needed for {plural(wanted, 'request')} in flight, the hard "
            f"limit is {hard}: raise it "
            f"(ulimit -Hn {needed} as root, LimitNOFILE={needed} in a systemd unit, docker run --ulimit "
            f"nofile={needed}) or lower [ramp] {lower}"
        )
    if soft != resource.RLIM_INFINITY and soft < wanted + SPARE_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted + SPARE_FILES, hard))
    return wanted


def worker_count(asked: int | str, key: str = "[fleet] workers") -> int:
    """``"auto"``: half of this machine's cores, between 1 and 8. The server under test must not live on the others.

    Raises:
        ScenarioError: more than MOST_PER_CORE for each core were asked for.
    """
    cores = len(os.sched_getaffinity(0))
    if not isinstance(asked, int):
        return max(1, min(8, cores // 2))
    if asked > MOST_PER_CORE * cores:
        most = f"at most {MOST_PER_CORE * cores} ({MOST_PER_CORE} for each core)"
        raise ScenarioError(f"{key}: {asked:,} processes on {plural(cores, 'core')}; {most}")
    return asked
