"""A fleet over the nodes of a cluster: each sends one share of the plan with worker processes of its own.

The nodes' clocks are compared with this host's before the run and after it. A node times its requests by its own clock
alone; the comparison only sets when its plan begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from loadramp import __version__
from loadramp.client.fleet import FleetError, Orders
from loadramp.client.node_share import NewsOfNode, NodeShare
from loadramp.record.run_directory import naming
from loadramp.record.run_info import ClockOffset, WorkerDeath
from loadramp.record.types import ClientSample, Record, Step
from loadramp.registry import error_message

LEAD_S = 0.5
"""How long before its begin a step is announced."""
PINGS = 25
PERIOD_S = 0.5
"""How often nodes are asked for news."""
SILENT_S = 30.0
"""A node that does not answer for so long is lost."""
START_S = 120.0
"""For a node to begin: a process of its own, its imports, its workers."""
CLOSE_S = 15.0
P = ParamSpec("P")
T = TypeVar("T")
Verb = Callable[Concatenate[NodeShare, P], Awaitable[T]]


class NodeLost(Exception):  # noqa: N818 (says what is the case)
    """A node cannot be reached any more; says why."""


class Node(Protocol):
    """One node of a cluster, with a ``NodeShare`` on it."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def workers(self) -> int:
        """How many processes send from it."""

    def call(self, verb: Verb[P, T], *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """A method of its ``NodeShare``. Raises NodeLost, and what the method raises."""

    def drop(self) -> None:
        """End what runs there."""


class Cluster(Protocol):
    """Where nodes come from."""

    def connect(self) -> Sequence[Node]:
        """The nodes that are to send. Raises FleetError where there are none."""

    def close(self) -> None:
        """Let go of the cluster."""


@dataclass(slots=True)
class _NodeHand:
    """This end of one node."""

    node: Node
    shard: int
    clock: ClockOffset
    heard_s: float = 0.0
    """The run's time at its last word."""
    lost: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """News is written in the order in which it was sent."""


@dataclass(slots=True)
class ClusterFleet:
    """The nodes of ``cluster`` as one fleet. A node that is lost takes its share along; the others go on."""

    orders: Orders
    paths: Callable[[int], Path]
    cluster: Cluster
    clock: Callable[[], float] = time.monotonic
    workers: int = 0
    lead_s: float = LEAD_S
    dead: list[WorkerDeath] = field(default_factory=list)
    clocks: list[ClockOffset] = field(default_factory=list)
    _hands: list[_NodeHand] = field(default_factory=list)
    _samples: list[ClientSample] = field(default_factory=list)
    _failure: str = ""
    _listening: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Compare the clocks, and wait until every node has its workers ready."""
        nodes = self.cluster.connect()
        self._hands = [_NodeHand(node, shard, ClockOffset(node.name)) for shard, node in enumerate(nodes)]
        await self._each(START_S, NodeShare.hello)  # until then a node is busy with its own start
        for hand in self._hands:  # one after the other: they would be in one another's way
            hand.clock = await self._compared(hand)
        self.workers = sum(node.workers for node in nodes)

        async def begun(hand: _NodeHand) -> None:
            orders = replace(self.orders, t0_s=self.orders.t0_s + hand.clock.offset_s)
            await self._ask(hand, START_S, NodeShare.start, orders, hand.node.workers, hand.shard, len(nodes))

        await asyncio.gather(*map(begun, self._hands))
        if self.dead:
            raise FleetError(f"{self.dead[0].reason}, before it could start")
        self.clocks = [hand.clock for hand in self._hands]
        self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def begin(self, step: Step, first_seq: int) -> None:
        await self._each(SILENT_S, NodeShare.begin, step, first_seq)
        self._check()

    async def snapshot(self) -> list[Record]:
        """The requests in flight on all nodes, as they are now."""
        each = await asyncio.gather(*(self._news(hand, NodeShare.snapshot) for hand in self._hands))
        self._check()
        return [record for news in each if news for record in news.in_flight]

    async def in_flight(self) -> int:
        return len(await self.snapshot())

    def samples(self) -> list[ClientSample]:
        """What the workers measured of themselves since the last call."""
        self._check()
        taken, self._samples = self._samples, []
        return taken

    async def finish(self, deadline_s: float) -> None:
        """Start nothing more; wait until ``deadline_s`` of the run's time, then cut what is still in flight."""
        left_s = max(0.0, deadline_s - self._now_s())
        await self._each(left_s + SILENT_S, NodeShare.finish, deadline_s)
        await asyncio.gather(*(self._news(hand) for hand in self._hands))
        for hand in self._alive():
            again = await self._compared(hand)
            hand.clock = replace(hand.clock, moved_s=round(again.offset_s - hand.clock.offset_s, 6))
        self.clocks = [hand.clock for hand in self._hands]
        self._check()

    async def close(self) -> None:
        """Let the nodes go; one that does not leave by itself is ended."""
        with contextlib.suppress(FleetError, OSError):
            if self._listening is not None:
                self._listening.cancel()
                await asyncio.wait([self._listening])
                await asyncio.gather(*(self._news(hand) for hand in self._alive()))
            await self._each(CLOSE_S, NodeShare.close)
        for hand in self._hands:
            hand.node.drop()
        self.cluster.close()

    def _now_s(self) -> float:
        return self.clock() - self.orders.t0_s

    def _alive(self) -> list[_NodeHand]:
        return [hand for hand in self._hands if not hand.lost]

    async def _each(self, limit_s: float, verb: Verb[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
        await asyncio.gather(*(self._ask(hand, limit_s, verb, *args, **kwargs) for hand in self._hands))

    async def _ask(
        self, hand: _NodeHand, limit_s: float, verb: Verb[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The node's answer; None when it is lost."""
        if hand.lost:
            return None
        try:
            async with asyncio.timeout(limit_s):
                answer = await hand.node.call(verb, *args, **kwargs)
        except NodeLost as error:
            self._lose(hand, str(error))
        except TimeoutError:
            self._lose(hand, f"no answer for {limit_s:g} s")
        else:
            hand.heard_s = max(hand.heard_s, self._now_s())
            return answer
        return None

    def _lose(self, hand: _NodeHand, why: str) -> None:
        if hand.lost:
            return
        hand.lost = True
        workers = [str(hand.shard + len(self._hands) * j) for j in range(hand.node.workers)]
        which = f"worker{'s' * (len(workers) > 1)} {', '.join(workers)}"
        # nothing is known of it since its last word
        self.dead.append(WorkerDeath(hand.heard_s, f"{hand.node.name} ({which}) was lost: {why}"))
        hand.node.drop()
        if not self._alive():
            self._failure = self._failure or f"all nodes were lost: {self.dead[-1].reason}"

    async def _compared(self, hand: _NodeHand) -> ClockOffset:
        """How far the node's clock is ahead: of the quickest of PINGS round trips, which is known best (Cristian 1989).

        The node read its clock between our two readings, so half a round trip is the largest error there can be.
        """
        best = ClockOffset(hand.node.name, 0.0, float("inf"))
        for _ in range(PINGS):
            sent_s = self.clock()
            answer = await self._ask(hand, SILENT_S, NodeShare.hello)
            received_s = self.clock()
            if answer is None:
                break
            version, node_s = answer
            if version != __version__:
                raise FleetError(f"{hand.node.name} has loadramp {version}, this host has {__version__}")
            error_s = (received_s - sent_s) / 2
            if error_s < best.error_s:
                best = ClockOffset(hand.node.name, round(node_s - (sent_s + received_s) / 2, 9), round(error_s, 9))
        return best

    async def _listen(self) -> None:
        """Ask for news, until the load can no longer be recorded."""
        while not self._failure:
            await asyncio.sleep(PERIOD_S)
            try:
                await asyncio.gather(*(self._news(hand) for hand in self._alive()))
            except (FleetError, OSError) as error:
                self._failure = error_message(error)

    async def _news(self, hand: _NodeHand, verb: Verb[[], NewsOfNode] = NodeShare.news) -> NewsOfNode | None:
        """Take in what a node has to report."""
        async with hand.turn:
            first = await self._ask(hand, SILENT_S, verb)
            news = first
            while news is not None:
                for worker, lines in news.lines.items():
                    path = self.paths(worker)
                    with naming(path), path.open("ab") as file:
                        file.write(lines)
                self._samples += news.samples
                for death in news.dead:
                    self.dead.append(replace(death, reason=f"{hand.node.name}: {death.reason}"))
                news = await self._ask(hand, SILENT_S, NodeShare.news) if news.more else None
        return first

    def _check(self) -> None:
        if self._failure:
            raise FleetError(self._failure)
