"""What one node of a cluster does: its share of the load in worker processes of its own, and what became of it since
the last word. It measures exactly as a run on one machine does; the cluster only carries words.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from loadramp import __version__
from loadramp.client.fleet import Fleet, FleetError, Orders
from loadramp.client.workers import LocalFleet
from loadramp.record.run_info import WorkerDeath
from loadramp.record.types import ClientSample, Record, Step

MakeFleet = Callable[[Orders, Callable[[int], Path], int, int, int], Fleet]
"""``f(orders, paths, workers, shard, shards)``."""
MOST_BYTES = 16 << 20
"""Of records in one word; what is left comes with the next."""


@dataclass(slots=True)
class NewsOfNode:
    """What a node has to tell since the last word."""

    lines: dict[int, bytes] = field(default_factory=dict)
    """Worker to whole lines of its record file."""
    samples: list[ClientSample] = field(default_factory=list)
    dead: list[WorkerDeath] = field(default_factory=list)
    in_flight: list[Record] = field(default_factory=list)
    """Only where it was asked for."""
    more: bool = False
    """There are more lines."""


@dataclass(slots=True)
class NodeShare:
    """Share ``shard`` of ``shards``. Each method raises FleetError when the share can no longer be sent or recorded."""

    clock: Callable[[], float] = time.monotonic
    make: MakeFleet = LocalFleet
    _fleet: Fleet | None = None
    _folder: Path | None = None
    _given: dict[int, int] = field(default_factory=dict)
    """Worker to how many bytes of its file were given to the parent."""
    _deaths: int = 0

    async def hello(self) -> tuple[str, float]:
        """The version, and what the clock says."""
        return __version__, self.clock()

    async def start(self, orders: Orders, workers: int, shard: int, shards: int) -> None:
        """Make all workers ready. ``orders.t0_s`` is in this node's time."""
        with contextlib.suppress(
            PermissionError
        ):  # Ray lowers the priority of what it starts, and they would inherit it
            os.setpriority(os.PRIO_PROCESS, 0, min(0, os.getpriority(os.PRIO_PROCESS, 0)))
        self._folder = Path(tempfile.mkdtemp(prefix="loadramp-"))
        self._fleet = self.make(orders, self._path, workers, shard, shards)
        self._given = dict.fromkeys(range(shard, shards * workers, shards), 0)
        await self._fleet.start()

    async def begin(self, step: Step, first_seq: int) -> None:
        await self._running.begin(step, first_seq)

    async def news(self) -> NewsOfNode:
        """What happened since the last word."""
        samples, dead = self._running.samples(), list(self._running.dead[self._deaths :])
        self._deaths += len(dead)
        news = NewsOfNode({}, samples, dead)
        for worker, offset in self._given.items():
            lines, news.more = self._lines(worker, offset, news.more)
            if lines:
                news.lines[worker] = lines
                self._given[worker] = offset + len(lines)
        return news

    async def snapshot(self) -> NewsOfNode:
        """The requests in flight, and the news: what has ended meanwhile may be in both."""
        in_flight = await self._running.snapshot()
        news = await self.news()
        news.in_flight = in_flight
        return news

    async def finish(self, deadline_s: float) -> None:
        await self._running.finish(deadline_s)

    async def close(self) -> None:
        if self._fleet is not None:
            await self._fleet.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, worker: int) -> Path:
        assert self._folder is not None
        return self._folder / f"records-{worker}.jsonl"

    def _lines(self, worker: int, offset: int, more: bool) -> tuple[bytes, bool]:
        """Whole lines from ``offset`` on, and whether there are more, here or before."""
        path = self._path(worker)
        if not path.is_file():
            return b"", more
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(MOST_BYTES)
        whole = data.rfind(b"\n") + 1
        if not whole and len(data) == MOST_BYTES:
            raise FleetError(f"{path}: a record of more than {MOST_BYTES >> 20} MiB")
        return data[:whole], more or len(data) == MOST_BYTES

    @property
    def _running(self) -> Fleet:
        assert self._fleet is not None, "start() comes first"
        return self._fleet
