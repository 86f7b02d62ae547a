"""A fleet over several nodes, on the jumping clock: the nodes are in memory, each with a clock of its own."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import free_port
from memory_pipe import MemoryPipe
from middleboxes import straight
from run_in_memory import BEGAN_AT, scenario_of
from simulated_time import run as run_jumping

from loadramp.client import cluster_fleet, node_share
from loadramp.client.cluster_fleet import ClusterFleet, Node, NodeLost, Verb
from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import Fleet, FleetError, InlineFleet, Orders
from loadramp.client.http.sockets import OnBytes, OnClose
from loadramp.client.node_share import NodeShare
from loadramp.client.ray_cluster import RayCluster, check_address
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import RunInfo, WorkerDeath
from loadramp.record.table import Run
from loadramp.record.types import Calibration
from loadramp.registry import ScenarioError
from loadramp.runner.assess import assess
from loadramp.runner.conductor import Conductor
from loadramp.runner.launch import check_fleet
from loadramp.runner.run_session import conclude
from loadramp.runner.scenarios import read_run
from loadramp.scenario.scenario import FleetOptions
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.service import Service
from loadramp.workload.schedule import plan_step

TEXT = """
seed = 5
[prompts]
kind = "fixed"
input_tokens = 50
output_tokens = 4
[ramp]
kind = "ladder"
rates = [5, 10, 5]
warmup_s = 1
measure_s = 6
settle_s = 1
settle_requests = 0
tail_s = 1
"""
THERE_S, BACK_S = 0.001, 0.003
"""How long words take, in each direction."""


@dataclass(slots=True)
class MemoryNode:
    """A node whose clock is ``ahead_s`` ahead. It answers until ``lost``; with ``silent`` it never does."""

    number: int
    service: Service
    ahead_s: float
    workers: int = 1
    lost: str = ""
    silent: bool = False
    version: str = ""
    share: NodeShare = field(init=False)

    def __post_init__(self) -> None:
        self.share = NodeShare(self.clock, self.fleet)

    @property
    def name(self) -> str:
        return f"node {self.number}"

    def clock(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead_s

    def fleet(self, orders: Orders, paths: Callable[[int], Path], workers: int, shard: int, shards: int) -> Fleet:
        assert workers == 1
        return InlineFleet(orders, paths, self.clock, self.connect, precise=False, shard=shard, shards=shards)

    async def connect(self, on_bytes: OnBytes, on_close: OnClose) -> MemoryPipe:
        """What arrives is stamped by this node's clock."""
        return await straight(self.service)(lambda data, at_s: on_bytes(data, at_s + self.ahead_s), on_close)

    async def call(self, verb: Verb[..., Any], *args: Any) -> Any:
        await asyncio.sleep(THERE_S)
        if self.silent:
            await asyncio.sleep(1e6)
        if self.lost:
            raise NodeLost(self.lost)
        answer = await verb(self.share, *args)
        await asyncio.sleep(BACK_S)
        if self.lost:
            raise NodeLost(self.lost)
        return (self.version, answer[1]) if verb is NodeShare.hello and self.version else answer

    async def die(self, why: str) -> None:
        self.lost = why
        await self.share.close()

    def drop(self) -> None:
        pass


@dataclass(slots=True)
class MemoryCluster:
    nodes: Sequence[MemoryNode]
    closed: bool = False

    def connect(self) -> Sequence[Node]:
        return self.nodes

    def close(self) -> None:
        self.closed = True


def ramped(
    tmp_path: Path, ahead_s: Sequence[float], meddle: Callable[[list[MemoryNode]], Any] | None = None
) -> tuple[Run, ClusterFleet]:
    """A run over nodes with these clocks, judged from its directory. ``meddle``: a coroutine beside it."""
    scenario = scenario_of(TEXT)
    rundir = RunDir.create(tmp_path, "cluster", scenario.source, BEGAN_AT)
    fleets = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        service = Service(PROFILES["small"], seed=5)
        ready = replace(scenario, target=replace(scenario.target, base_url="http://127.0.0.1:8000"))
        orders = Orders(ready, endpoint_of(ready.target, {}), "sim", OPTIONAL_FIELDS, Calibration(), 7, loop.time())
        nodes = [MemoryNode(number, service, one) for number, one in enumerate(ahead_s)]
        fleet = ClusterFleet(orders, rundir.records_path, MemoryCluster(nodes), loop.time)
        fleets.append(fleet)
        task = asyncio.ensure_future(meddle(nodes)) if meddle else None
        try:
            await fleet.start()
            ramping = Conductor(ready, rundir, fleet, loop.time, orders.t0_s, RunInfo())
            await conclude([ramping], ramping.run)
        finally:
            await fleet.close()
            service.close()
            rundir.let_go()
            if task is not None:
                task.cancel()

    run_jumping(main())
    run, skipped = read_run(rundir.path)
    assert skipped == 0
    return assess(run), fleets[0]


def test_the_plan_of_nodes_is_that_of_one_process_request_by_request_whatever_their_clocks_say(tmp_path: Path) -> None:
    run, fleet = ramped(tmp_path, [0.0, -86_400.25, 1234.5])
    first_seq, expected = 0, {}
    for step, following in zip(run.steps, [*run.steps[1:], None], strict=True):
        plan = plan_step(run.scenario, step, first_seq, 7, 30.0)
        until_s = following.begin_s if following else step.end_s
        expected |= {one.seq: (round(one.due_s, 6), one.step) for one in plan if one.due_s < until_s}
        first_seq += len(plan)
    table = run.table
    sent = zip(table.seq.tolist(), table.due_s.tolist(), table.step.tolist(), strict=True)
    assert {seq: (due_s, step) for seq, due_s, step in sent if due_s < run.steps[-1].end_s} == expected
    assert len(expected) == 158
    assert [row.void for row in run.rows] == [(), (), ()]
    assert sorted(path.name for path in Path(run.path).glob("records-*")) == [f"records-{i}.jsonl" for i in range(3)]
    assert {int(sample.worker) for sample in run.client} == {0, 1, 2}
    # known to within half a round trip, 2 ms; what is wrong, 1 ms, is half the difference of the two directions
    for clock, ahead_s in zip(fleet.clocks, [0.0, -86_400.25, 1234.5], strict=True):
        assert clock.error_s == pytest.approx(0.002)
        assert clock.offset_s == pytest.approx(ahead_s - 0.001)
        assert clock.moved_s == pytest.approx(0.0)
    assert run.info.clocks == fleet.clocks
    assert run.info.workers == 3
    lags_s = table.sent_s - table.due_s
    assert float(lags_s.max()) < 0.001  # each by the clock of its own node
    assert [round(b.begin_s - a.end_s, 3) for a, b in zip(run.steps, run.steps[1:], strict=False)] == [
        0.504
    ] * 4  # a snapshot, and the lead


def test_records_come_home_while_the_run_goes_on(tmp_path: Path) -> None:
    seen = []

    def lines() -> int:
        return sum(len(path.read_bytes().splitlines()) for path in tmp_path.glob("*/records-*"))

    async def look(_: list[MemoryNode]) -> None:
        for _ in range(3):
            await asyncio.sleep(4.0)
            seen.append(lines())

    ramped(tmp_path, [0.0, 5.0], look)
    assert 0 < seen[0] < seen[1] < seen[2]


def test_a_node_lost_in_mid_step_is_named_its_steps_are_void_and_the_run_goes_on(tmp_path: Path) -> None:
    async def lose(nodes: list[MemoryNode]) -> None:
        await asyncio.sleep(13.0)
        await nodes[1].die("its machine is gone")

    run, fleet = ramped(tmp_path, [0.0, 3.0, 9.0], lose)
    (death,) = fleet.dead
    assert death.reason == "node 1 (worker 1) was lost: its machine is gone"
    assert 11.9 < death.t_s <= 13.0  # its last word
    assert [row.void[0].what if row.void else "" for row in run.rows] == ["", death.reason, death.reason]
    assert run.info.state == "complete"
    assert json.loads((Path(run.path) / "run.json").read_text())["dead_workers"][0]["reason"] == death.reason
    later = run.table.due_s > 13.5
    assert set(run.table.worker[later].tolist()) == {0, 2}


def test_a_node_that_does_not_answer_is_lost(tmp_path: Path) -> None:
    async def silence(nodes: list[MemoryNode]) -> None:
        await asyncio.sleep(11.0)
        nodes[0].silent = True

    _, fleet = ramped(tmp_path, [0.0, 0.0], silence)
    (death,) = fleet.dead
    assert death.reason == "node 0 (worker 0) was lost: no answer for 30 s"
    assert 9.9 < death.t_s <= 11.0


def test_a_run_without_any_node_left_ends_with_its_reason(tmp_path: Path) -> None:
    async def lose(nodes: list[MemoryNode]) -> None:
        await asyncio.sleep(5.0)
        for node in nodes:
            await node.die("power")

    with pytest.raises(FleetError, match=r"all nodes were lost: node 1 \(worker 1\) was lost: power"):
        ramped(tmp_path, [0.0, 0.0], lose)


def test_a_node_that_cannot_start_or_has_another_version_is_named(tmp_path: Path) -> None:
    def meddled(**change: Any) -> Callable[[list[MemoryNode]], Any]:
        async def meddle(nodes: list[MemoryNode]) -> None:
            for key, value in change.items():
                setattr(nodes[1], key, value)

        return meddle

    with pytest.raises(FleetError, match=r"node 1 has loadramp 0\.0\.9, this host has "):
        ramped(tmp_path, [0.0, 0.0], meddled(version="0.0.9"))
    with pytest.raises(FleetError, match=r"node 1 \(worker 1\) was lost: no room, before it could start"):
        ramped(tmp_path, [0.0, 0.0], meddled(lost="no room"))


def test_the_workers_of_a_lost_node_are_those_of_its_share() -> None:
    nothing: Any = None
    fleet = ClusterFleet(nothing, lambda _: Path(), MemoryCluster([]))
    nodes = [MemoryNode(number, nothing, 0.0, workers=4) for number in range(3)]
    fleet._hands = [
        cluster_fleet._NodeHand(node, shard, cluster_fleet.ClockOffset()) for shard, node in enumerate(nodes)
    ]
    fleet._lose(fleet._hands[1], "gone")
    assert [death.reason for death in fleet.dead] == ["node 1 (workers 1, 4, 7, 10) was lost: gone"]


def test_a_node_tells_whole_lines_in_words_of_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_share, "MOST_BYTES", 20)
    share = NodeShare()
    share._folder, share._given = tmp_path, {4: 0, 5: 0}

    class Idle:
        dead = (WorkerDeath(1.0, "worker 5 ended with code -9"),)

        def samples(self) -> list[Any]:
            return []

    share._fleet = Idle()  # type: ignore[assignment]
    (tmp_path / "records-4.jsonl").write_bytes(b"one\ntwo\nthree\nfour, five\nsi")
    first, second, third = (asyncio.run(share.news()) for _ in range(3))
    assert [one.lines for one in (first, second, third)] == [{4: b"one\ntwo\nthree\n"}, {4: b"four, five\n"}, {}]
    assert [one.more for one in (first, second, third)] == [True, False, False]
    assert [len(one.dead) for one in (first, second, third)] == [1, 0, 0]
    with (tmp_path / "records-4.jsonl").open("ab") as file:
        file.write(b"x" * 30)
    with pytest.raises(FleetError, match="a record of more than"):
        asyncio.run(share.news())


def test_an_address_at_which_nobody_listens_is_named_at_once() -> None:
    port = free_port()
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        with pytest.raises(FleetError, match=rf"\[fleet\] address: no Ray cluster at {address}: Connection refused"):
            check_address(address)
    check_address("auto")
    check_address("")


def test_ray_is_asked_for_by_name_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ScenarioError, match=r"\[fleet\] kind = 'ray' needs Ray: pip install 'loadramp\[ray\]'"):
        RayCluster(FleetOptions(kind="ray")).connect()


def test_keys_of_a_cluster_are_refused_elsewhere() -> None:
    with pytest.raises(ScenarioError, match=r"\[fleet\] nodes: only kind = 'ray' takes it; it is 'local'"):
        check_fleet(FleetOptions(nodes=3))
    check_fleet(FleetOptions(kind="ray", nodes=3, address="auto"))
