"""Workers as real processes on loopback: same plan, one clock, found out when they die or cannot write."""

from __future__ import annotations

import asyncio
import multiprocessing.connection
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import uvloop
from command_line import in_process
from run_in_memory import scenario_of

from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import FleetError, Orders, Worker, raise_file_limit, worker_count
from loadramp.client.measuring_client import MeasuringClient
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.client.workers import LocalFleet, _Hand, _snapshot
from loadramp.record.codec import decode_lines
from loadramp.record.types import Calibration, Record, Step
from loadramp.registry import ScenarioError
from loadramp.runner.launch import with_room
from loadramp.workload.preview import most_users
from loadramp.workload.schedule import plan_step

SCENARIO = scenario_of('seed = 9\n[prompts]\nkind = "fixed"\ninput_tokens = 20\noutput_tokens = 5\n')


async def offered(
    url: str,
    paths: Callable[[int], Path],
    workers: int,
    during: Callable[[LocalFleet, Step], Any] | None = None,
    shard: tuple[int, int] = (0, 1),
) -> tuple[LocalFleet, Step]:
    """A fleet that has offered one step, or its share of it, and has let go of everything, and that step."""
    target = replace(SCENARIO.target, base_url=url)
    ready = replace(SCENARIO, target=target)
    t0_s = time.monotonic()
    orders = Orders(ready, endpoint_of(target, {}), "sim", OPTIONAL_FIELDS, Calibration(), 7, t0_s)
    fleet = LocalFleet(orders, paths, workers, *shard)
    await fleet.start()  # takes as long as it takes: the step begins after it
    step = Step(0, rate_rps=60.0, begin_s=time.monotonic() - t0_s + 0.3, warmup_s=0.0, measure_s=1.0)
    try:
        await fleet.begin(step, 100)
        if during is not None:
            await during(fleet, step)
        await until(fleet, step.end_s)
        await fleet.finish(step.end_s + 20.0)
    finally:
        await fleet.close()
    return fleet, step


async def until(fleet: LocalFleet, instant_s: float) -> None:
    await asyncio.sleep(max(0.0, fleet.orders.t0_s + instant_s - time.monotonic()))


def records_of(folder: Path) -> list[list[Record]]:
    return [decode_lines(path.read_bytes().splitlines()).records for path in sorted(folder.glob("r-*"))]


@pytest.mark.parametrize("workers", [1, 3])
def test_the_shares_of_the_workers_are_the_plan_byte_for_byte(sim: str, tmp_path: Path, workers: int) -> None:
    _, step = asyncio.run(offered(sim, lambda i: tmp_path / f"r-{i}", workers))
    shares = records_of(tmp_path)
    planned = {a.seq: a for a in plan_step(SCENARIO, step, 100, 7) if a.due_s < step.end_s}
    sent = {r.seq: r for share in shares for r in share if r.due_s < step.end_s}
    assert len(shares) == workers
    assert sent.keys() == planned.keys()
    assert all(abs(sent[seq].due_s - planned[seq].due_s) < 1e-6 for seq in planned)
    assert {r.status for r in sent.values()} == {"ok"}
    assert {r.prompt_tokens for r in sent.values()} == {20}
    for index, share in enumerate(shares):
        assert {(r.seq - 100) % workers for r in share} == {index}
        assert {r.worker for r in share} == {index}


def test_the_workers_of_a_shard_are_those_of_one_process_that_are_its(sim: str, tmp_path: Path) -> None:
    """Shard 1 of 2 with two workers: workers 1 and 3 of four."""
    _, step = asyncio.run(offered(sim, lambda i: tmp_path / f"r-{i}", 2, shard=(1, 2)))
    plan = plan_step(SCENARIO, step, 100, 7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r-1", "r-3"]
    for share, index in zip(records_of(tmp_path), (1, 3), strict=True):
        sent = {r.seq: round(r.due_s, 6) for r in share if r.due_s < step.end_s}
        assert sent == {a.seq: round(a.due_s, 6) for a in plan[index::4] if a.due_s < step.end_s}
        assert {r.worker for r in share} == {index}


def test_a_snapshot_larger_than_the_pipe_comes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a node of Ray this end has uvloop too, which takes what it watches out of blocking mode."""
    make = multiprocessing.connection.Pipe

    def small(duplex: bool = True) -> Any:
        ends = make(duplex)
        for end in ends:
            with socket.socket(fileno=os.dup(end.fileno())) as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        return ends

    async def look(fleet: LocalFleet, step: Step) -> None:
        await until(fleet, step.end_s)
        while await fleet.in_flight() < 40:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert len(await fleet.snapshot()) >= 40
        await fleet.finish(0.0)

    monkeypatch.setattr(multiprocessing.connection, "Pipe", small)
    with socket.create_server(("127.0.0.1", 0), backlog=200) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        fleet, _ = uvloop.run(offered(url, lambda i: tmp_path / f"r-{i}", 1, look))
    assert fleet.dead == []


@dataclass(slots=True)
class Prompt:
    """A pipe whose worker answers 3 before the one who asks does anything else."""

    words: list[tuple[str, int]] = field(default_factory=list)
    heard: Callable[[], None] = lambda: None

    def send(self, command: Any) -> None:
        self.words.append((command[0].__name__, 3))
        self.heard()

    def poll(self) -> bool:
        return bool(self.words)

    def recv(self) -> tuple[str, int]:
        return self.words.pop()


def test_an_answer_that_comes_at_once_is_not_missed() -> None:
    async def asked() -> int:
        fleet = LocalFleet(Any, Path)  # type: ignore[arg-type]
        pipe: Any = Prompt()
        fleet._hands = [_Hand(0, Any, pipe, fleet)]  # type: ignore[arg-type]
        pipe.heard = fleet._hands[0]._heard
        async with asyncio.timeout(10.0):
            return await fleet.in_flight()

    assert asyncio.run(asked()) == 3


def test_dx05_a_killed_worker_is_reported_and_the_others_go_on(sim: str, tmp_path: Path) -> None:
    async def kill(fleet: LocalFleet, step: Step) -> None:
        await until(fleet, step.begin_s + 0.3)
        os.kill(fleet._hands[1].process.pid, signal.SIGKILL)
        await asyncio.sleep(0.2)
        assert len(await fleet.snapshot()) < 60

    fleet, step = asyncio.run(offered(sim, lambda i: tmp_path / f"r-{i}", 2, kill))
    (death,) = fleet.dead
    assert death.reason == "worker 1 ended with code -9"
    assert step.begin_s + 0.3 <= death.t_s < step.end_s + 20.0
    assert len(records_of(tmp_path)[0]) > 20


def test_signals_that_reach_the_workers_too_are_left_to_their_parent(sim: str, tmp_path: Path) -> None:
    async def signal_all(fleet: LocalFleet, step: Step) -> None:
        await until(fleet, step.begin_s + 0.2)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(fleet._hands[0].process.pid, number)

    fleet, step = asyncio.run(offered(sim, lambda i: tmp_path / f"r-{i}", 1, signal_all))
    planned = sum(a.due_s < step.end_s for a in plan_step(SCENARIO, step, 100, 7))
    assert fleet.dead == []
    assert sum(r.ok and r.due_s < step.end_s for r in records_of(tmp_path)[0]) == planned


def test_signals_of_the_terminal_do_not_end_workers_that_still_start(sim: str, tmp_path: Path) -> None:
    async def main() -> tuple[int, list[int | None]]:
        target = replace(SCENARIO.target, base_url=sim)
        orders = Orders(
            replace(SCENARIO, target=target), endpoint_of(target, {}), "sim", OPTIONAL_FIELDS, Calibration(), 7,
            time.monotonic(),
        )  # fmt: skip
        fleet = LocalFleet(orders, lambda i: tmp_path / f"records-{i}.jsonl", 3)
        starting = asyncio.create_task(fleet.start())
        started = 0
        while not starting.done():
            await asyncio.sleep(0)  # it is heard between one start and the next
            for hand in fleet._hands[started:]:
                os.kill(hand.process.pid or 0, signal.SIGINT)
            started = max(started, len(fleet._hands))
        await starting
        await fleet.close()
        return started, [hand.process.exitcode for hand in fleet._hands]

    assert asyncio.run(main()) == (3, [0, 0, 0])


def test_a_full_disk_stops_the_run_with_its_reason(sim: str) -> None:
    with pytest.raises(FleetError, match=r"/dev/full: No space left on device"):
        asyncio.run(offered(sim, lambda _: Path("/dev/full"), 1))


def test_a_folder_that_cannot_be_written_is_named_at_the_start(sim: str) -> None:
    with pytest.raises(FleetError, match="no-such-folder"):
        asyncio.run(offered(sim, lambda _: Path("/no-such-folder/r"), 1))


def test_workers_say_how_they_fare_and_cost_nothing_idle(sim: str, tmp_path: Path) -> None:
    seen = []

    async def look(fleet: LocalFleet, step: Step) -> None:
        await until(fleet, step.begin_s)
        while not await fleet.in_flight():
            pass
        await until(fleet, step.end_s + 1.5)
        seen.extend(fleet.samples())

    asyncio.run(offered(sim, lambda i: tmp_path / f"r-{i}", 2, look))
    assert {sample.worker for sample in seen} == {0, 1}
    assert sum(sample.sent for sample in seen) > 50
    assert sum(sample.tokens for sample in seen) > 200
    assert all(0.0 <= sample.loop_lag_s < 5.0 and sample.cpu_ratio >= 0.0 for sample in seen)
    assert min(sample.cpu_ratio for sample in seen) < 0.3


def test_too_few_file_descriptors_are_refused_with_the_number_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1000))
    monkeypatch.setattr("resource.setrlimit", lambda _, limits: set_to.append(limits))
    assert raise_file_limit(500) == 500
    assert set_to == [(564, 1000)]
    assert raise_file_limit(None) == 936
    told = r"5,064 open files are needed for 5,000 requests in flight.*hard limit is 1000"
    with pytest.raises(FleetError, match=told):
        raise_file_limit(5000)


def test_the_number_of_workers_is_asked_or_half_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_count(5) == 5
    for cores, expected in ((1, 1), (2, 1), (8, 4), (64, 8)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, n=cores: set(range(n)))
        assert worker_count("auto") == expected
    assert worker_count(1024) == 1024
    with pytest.raises(ScenarioError, match=r"\[fleet\] workers: 1,025 processes on 64 cores; at most 1024 \(16 for"):
        worker_count(1025)
    with pytest.raises(ScenarioError, match="--workers: 1,025 processes on 64 cores"):
        worker_count(1025, "--workers")


@pytest.mark.parametrize(
    ("ramp", "needed"),
    [
        ('kind = "users"\nusers = [1, 4000]', "4,064 open files are needed for 4,000 requests in flight.*[ramp] users"),
        ("max_in_flight = 3000", "3,064 open files are needed for 3,000 requests in flight.*[ramp] max_in_flight"),
    ],
)
def test_a_run_that_needs_too_many_open_files_stops_before_it_starts(
    ramp: str, needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1000))
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    path = tmp_path / "s.toml"
    path.write_text(f'[fleet]\nkind = "inline"\n[ramp]\n{ramp}\n')
    code, _, err = in_process("run", str(path), "--base-url", "http://127.0.0.1:9", "--out", str(tmp_path / "r"))
    assert code == 1
    assert re.search(needed.replace("[", r"\["), " ".join(err.split()))
    assert "ulimit -Hn" in err
    assert "workers" not in err
    assert not (tmp_path / "r").exists()


def test_users_are_shared_among_the_workers_before_files_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1000))
    monkeypatch.setattr("resource.setrlimit", lambda *_: None)
    two_thousand = scenario_of('[ramp]\nkind = "users"\nusers = [1, 2000, 5]\n')
    assert most_users(two_thousand) == 2000
    assert with_room(two_thousand, 3).pace.max_in_flight == 3 * 936
    with pytest.raises(FleetError, match="1,064 open files are needed for 1,000 requests in flight"):
        with_room(two_thousand, 2)
    assert most_users(scenario_of("")) is None
    monkeypatch.setattr("resource.getrlimit", lambda _: (60, 60))
    with pytest.raises(FleetError, match="65 open files are needed for 1 request in flight"):
        with_room(scenario_of(""), 1)


def test_a_record_is_written_before_anybody_hears_that_its_request_is_over(tmp_path: Path) -> None:
    async def main() -> list[int]:
        scenario = scenario_of('[target]\nbase_url = "http://127.0.0.1:9"\n')
        endpoint = endpoint_of(scenario.target, {})
        orders = Orders(scenario, endpoint, "m", OPTIONAL_FIELDS, Calibration(), 0, time.monotonic())
        path = tmp_path / "records-0.jsonl"
        worker = Worker(orders, path, 0, 1, time.monotonic)
        worker.vitals.start()
        counts = []
        for seq, look in enumerate((worker.sample, worker.in_flight, lambda: list(worker.snapshot()))):
            worker.share.write(Record(seq, 0, 0.0))
            look()
            counts.append(path.read_bytes().count(b"\n"))
        for seq in range(40):
            worker.share.write(Record(seq, 0, 0.0))
        counts.append(path.read_bytes().count(b"\n"))
        await worker.close()
        return [*counts, path.read_bytes().count(b"\n")]

    assert asyncio.run(main()) == [1, 2, 3, 35, 43]


def test_other_work_has_its_turn_while_a_snapshot_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    async def main() -> bytes:
        scenario = scenario_of('[target]\nbase_url = "http://127.0.0.1:9"\n')
        endpoint = endpoint_of(scenario.target, {})
        orders = Orders(scenario, endpoint, "m", OPTIONAL_FIELDS, Calibration(), 0, time.monotonic())
        worker = Worker(orders, tmp_path / "records-0.jsonl", 0, 1, time.monotonic)
        worker.vitals.start()

        def records(client: object) -> Iterator[Record]:
            for seq in range(20):
                order.append("record")
                yield Record(seq, 0, 0.0)

        async def other() -> None:
            for _ in range(2):
                order.append("other")
                await asyncio.sleep(0)

        monkeypatch.setattr(MeasuringClient, "snapshot", records)
        task = asyncio.create_task(other())
        lines = await _snapshot(worker)
        await task
        monkeypatch.undo()
        await worker.close()
        return lines

    assert asyncio.run(main()).count(b"\n") == 20
    assert order == [*["record"] * 8, "other", *["record"] * 8, "other", *["record"] * 4]
