"""Shards in memory: each sends its share of one plan on the jumping clock, and ``merge`` makes one run of them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import in_process
from middleboxes import straight
from run_in_memory import BEGAN_AT, ramp_in_memory, scenario_of
from simulated_time import run as run_jumping

from loadramp.analysis.checks.clocks import furthest_apart
from loadramp.client import input_files
from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import InlineFleet, Orders
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.client.server_clock import DatedReply, offset_of, seconds_of
from loadramp.record import run_directory
from loadramp.record.codec import decode_lines
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import ClockOffset, RunInfo, ShardInfo, TargetInfo
from loadramp.record.types import Calibration, Record, Step
from loadramp.registry import ScenarioError
from loadramp.runner.merge import merge_shards
from loadramp.runner.run_session import conclude
from loadramp.runner.scenarios import Shard, shard_of
from loadramp.runner.shard_run import ShardRun, salt_of
from loadramp.scenario.scenario import Scenario
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.service import Service
from loadramp.workload.agreed import agreed_steps, check_agreeable
from loadramp.workload.schedule import plan_step

START_S = BEGAN_AT.timestamp()
TEXT = """
name = "chat"
seed = 5
[prompts]
kind = "fixed"
input_tokens = 50
output_tokens = 4
[ramp]
kind = "ladder"
rates = [5, 10]
warmup_s = 1
measure_s = 6
settle_s = 1
settle_requests = 0
tail_s = 1
[metrics]
enabled = false
"""


def shards_in_memory(
    scenario: Scenario,
    folder: Path,
    of: int,
    late_s: float = 0.0,
    meddle: Callable[[int, ShardRun], Any] = lambda *_: None,
) -> list[Path]:
    """Run all shards of ``scenario`` against one server; the run directories.

    Args:
        scenario: how to ramp.
        folder: where the directories go.
        of: how many shards.
        late_s: how long after the begin the shards are ready.
        meddle: called with each shard before it begins; a coroutine that it returns runs beside it.
    """
    scenario = input_files.ready(scenario)
    paths = []

    async def one(index: int, service: Service) -> None:
        loop = asyncio.get_running_loop()
        ready = replace(scenario, target=replace(scenario.target, base_url="http://127.0.0.1:8000"))
        orders = Orders(ready, endpoint_of(ready.target, {}), "sim", OPTIONAL_FIELDS, Calibration(), 7, 5.0 - late_s)
        rundir = RunDir.create(folder, f"chat-shard-{index}-of-{of}", scenario.source, BEGAN_AT)
        paths.append(rundir.path)
        fleet = InlineFleet(
            orders, rundir.records_path, loop.time, straight(service), precise=False, shard=index, shards=of
        )
        info = RunInfo(
            name="chat", began_at=BEGAN_AT.isoformat(), seed=5, prompt_salt=7, workers=1,
            target=TargetInfo("http://127.0.0.1:8000", "sim"),
            shard=ShardInfo(index, of, "2026-01-02T03:04:05.000Z"),
        )  # fmt: skip
        session = ShardRun(
            ready, rundir, fleet, loop.time, orders.t0_s, info,
            agreed=agreed_steps(scenario), start_s=START_S, wall=lambda: START_S - orders.t0_s + loop.time(),
        )  # fmt: skip
        await fleet.start()
        beside = meddle(index, session)
        task = asyncio.ensure_future(beside) if beside is not None else None
        try:
            await conclude([session], session.run)
        finally:
            await fleet.close()
            rundir.let_go()
            if task is not None:
                task.cancel()

    async def main() -> None:
        service = Service(PROFILES["small"], seed=5)
        try:
            await asyncio.gather(*(one(index, service) for index in range(of)))
        finally:
            service.close()

    run_jumping(main())
    return paths


def requests_of(path: Path) -> dict[int, Record]:
    files = path.glob("records-*.jsonl")
    return {one.seq: one for file in files for one in decode_lines(file.read_bytes().splitlines()).records}


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The directories of three shards; not to be changed."""
    return shards_in_memory(scenario_of(TEXT), tmp_path_factory.mktemp("shards"), 3)


@pytest.fixture
def copies(shards: Sequence[Path], tmp_path: Path) -> list[Path]:
    return [Path(shutil.copytree(path, tmp_path / "shards" / path.name)) for path in shards]


def changed(path: Path, **keys: Any) -> None:
    """Let run.json say something else."""
    document = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(document | keys))


def test_shard_k_of_n_sends_what_workers_k_of_n_of_one_process_would_request_by_request(
    shards: Sequence[Path],
) -> None:
    steps = agreed_steps(scenario_of(TEXT))
    assert [(step.role, step.rate_rps, step.begin_s, step.end_s) for step in steps] == [
        ("settle", 5.0, 1.0, 2.0), ("step", 5.0, 2.5, 9.5), ("step", 10.0, 10.0, 17.0), ("tail", 10.0, 17.5, 18.5),
    ]  # fmt: skip
    first_seq = 0
    expected: list[dict[int, tuple[float, int]]] = [{}, {}, {}]
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        plan = plan_step(scenario_of(TEXT), step, first_seq, 7, 30.0)
        until_s = following.begin_s if following else step.end_s
        for index, share in enumerate(expected):
            share |= {one.seq: (round(one.due_s, 6), one.step) for one in plan[index::3] if one.due_s < until_s}
        first_seq += len(plan)
    assert sum(map(len, expected)) == 125
    for index, path in enumerate(shards):
        records = requests_of(path)
        assert {seq: (one.due_s, one.step) for seq, one in records.items() if one.due_s < 18.5} == expected[index]
        assert {one.worker for one in records.values()} == {index}


def test_merged_shards_are_an_ordinary_run_that_is_judged_as_usual(shards: Sequence[Path], tmp_path: Path) -> None:
    run = merge_shards(shards[::-1], tmp_path / "reports").run
    one = ramp_in_memory(scenario_of(TEXT), tmp_path / "one", metrics=False)
    assert [row.void for row in run.rows] == [(), ()]
    assert [row.rate_rps for row in run.rows] == [5.0, 10.0]
    assert [row.requests for row in run.rows] == [row.requests for row in one.rows] == [32, 54]
    assert (run.info.state, run.info.workers, run.info.shard) == ("complete", 3, None)
    assert [(shard.index, shard.run) for shard in run.info.shards or ()] == [
        (index, f"20260102-030405-chat-shard-{index}-of-3") for index in range(3)
    ]
    (check,) = [check for check in run.checks if check.code == "clocks"]
    assert check.message == "the clocks of 3 shards were not compared to within a tenth of a step (0.6 s)"
    path = Path(run.path)
    assert path.name == "20260102-030405-chat"
    assert {file.name for file in path.iterdir()} >= {"records-0.jsonl", "records-2.jsonl", "report.html", "curve.csv"}
    assert requests_of(path) == requests_of(shards[0]) | requests_of(shards[1]) | requests_of(shards[2])
    assert in_process("gate", str(path), "--slo", "p50(ttft_s) < 5 @ rate = 10")[0] in {0, 3}
    assert in_process("export", str(path), "--format", "csv", "--output", str(tmp_path / "curve.csv"))[0] == 0


def test_all_shards_of_a_run_write_the_same_prompts_and_each_run_writes_others() -> None:
    scenario = scenario_of(TEXT)
    salts = [salt_of(scenario, Shard(index, of, START_S + s)) for index, of, s in ((0, 8, 0), (7, 8, 0), (0, 8, 1))]
    assert salts[0] == salts[1] != salts[2]


def test_a_shard_alone_is_not_judged(shards: Sequence[Path]) -> None:
    for command in (["report"], ["gate", "--slo", "p50(ttft_s) < 5"], ["export", "--format", "csv"]):
        code, _, err = in_process(*command, str(shards[0]))
        assert code == 2
        assert f"{shards[0]}: shard 0/3 of a run; merge all of them first: loadramp merge DIR..." in err


def test_shards_that_are_missing_or_there_twice_are_refused_by_name(shards: Sequence[Path], tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="merge: shard 1/3 is missing; --allow-lost merges the others"):
        merge_shards([shards[0], shards[2]], tmp_path)
    with pytest.raises(ScenarioError, match=r"shard 0/3 is there twice: .*shard-0-of-3 and .*shard-0-of-3"):
        merge_shards([*shards, shards[0]], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_shards_of_two_plans_are_refused_with_what_differs(copies: Sequence[Path], tmp_path: Path) -> None:
    (copies[1] / "scenario.toml").write_text(TEXT.replace("seed = 5", "seed = 6"))
    changed(copies[1], seed=6, overrides=["seed=6"], target={"base_url": "http://127.0.0.1:8000", "model": "other"})
    told = r"shard-1-of-3 and .*shard-0-of-3 are of two plans: scenario\.toml, seed, --set, model differ"
    with pytest.raises(ScenarioError, match=told):
        merge_shards(copies, tmp_path / "reports")
    changed(copies[2], shard={"index": 1, "of": 4, "start_at": "2026-01-02T03:04:05.000Z"})
    with pytest.raises(ScenarioError, match="two plans: number of shards differ"):
        merge_shards([copies[0], copies[2]], tmp_path / "reports")


@pytest.mark.parametrize("saved", [2, 3])
def test_a_lost_shard_is_named_and_its_steps_are_void(saved: int, copies: Sequence[Path], tmp_path: Path) -> None:
    """As a kill after 12 s leaves it: the step under way is not saved, or as it was planned; half a line ends it."""
    lines = (copies[1] / "records-1.jsonl").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if (decode_lines([line]).records[0].stream_end_s or 0.0) < 12.0]
    (copies[1] / "records-1.jsonl").write_bytes(b"".join(kept) + lines[-1][:40])
    (copies[1] / "client.jsonl").unlink()
    changed(copies[1], state="running", steps=json.loads((copies[0] / "run.json").read_text())["steps"][:saved])
    told = r"shard 1/3 ended early, after 1[12]\.\d s of 18\.5 s \(killed\); --allow-lost merges the others"
    with pytest.raises(ScenarioError, match=told):
        merge_shards(copies, tmp_path / "reports")
    run = merge_shards(copies, tmp_path / "reports", allow_lost=True).run
    first, second = run.rows
    assert first.void == ()
    assert second.void[0].what.startswith("shard 1/3 ended early, after 1")
    assert (run.info.state, run.info.skipped_lines) == ("complete", 1)
    assert [shard.lost_s is None for shard in run.info.shards or ()] == [True, False, True]


def test_a_step_that_a_stopped_shard_saw_to_its_end_is_not_lost(copies: Sequence[Path], tmp_path: Path) -> None:
    steps = json.loads((copies[0] / "run.json").read_text())["steps"][:2]
    changed(copies[1], state="stopped", ending="interrupted", steps=steps)
    run = merge_shards(copies, tmp_path / "reports", allow_lost=True).run
    reason = "shard 1/3 ended early, after 9.5 s of 18.5 s (interrupted)"
    assert [row.void[0].what if row.void else "" for row in run.rows] == ["", reason]


def test_a_shard_that_is_still_written_is_refused(copies: Sequence[Path], tmp_path: Path) -> None:
    changed(copies[2], state="running")
    held = run_directory._held(copies[2])
    assert held is not None
    with pytest.raises(ScenarioError, match="shard 2/3 is still being written"):
        merge_shards(copies, tmp_path / "reports")
    os.close(held)


def test_shards_that_were_all_stopped_end_with_the_first_of_them(copies: Sequence[Path], tmp_path: Path) -> None:
    steps = json.loads((copies[0] / "run.json").read_text())["steps"][:3]
    for path, measure_s in zip(copies, (3.2, 3.0, 3.1), strict=True):
        cut = [*steps[:2], steps[2] | {"measure_s": measure_s, "partial": True}]
        changed(path, state="stopped", stop_cause="gone", ending="the endpoint stopped answering", steps=cut)
    finished = merge_shards(copies, tmp_path / "reports")
    assert finished.exit_code == 1
    assert [(row.length_s, row.partial, row.void) for row in finished.run.rows] == [(6.0, False, ()), (3.0, True, ())]


def told_by(*shards: tuple[float, float | None]) -> list[ShardInfo]:
    """Shards by how late they began step 1, and their clock's offset, known to 0.2 s."""
    return [
        ShardInfo(
            index, len(shards), clock=None if offset_s is None else ClockOffset("x", offset_s, 0.2), late_s={1: late_s}
        )
        for index, (late_s, offset_s) in enumerate(shards)
    ]


def test_shards_more_than_a_tenth_of_a_step_apart_are_refused(copies: Sequence[Path], tmp_path: Path) -> None:
    steps = [Step(0, "settle", 5.0, measure_s=1.0), Step(1, "step", 5.0, measure_s=20.0)]
    assert furthest_apart(told_by((0.0, None), (1.9, None)), steps) == ""
    assert furthest_apart(told_by((0.0, None), (0.1, None), (2.1, None)), steps) == (
        "shard 0/3 began step 1 at least 2.1 s before shard 2/3 by their wall clocks; at most a tenth of a step is "
        "allowed (2 s)"
    )
    assert furthest_apart(told_by((0.0, 0.0), (0.0, None), (0.0, -2.3)), steps) == ""  # 1.9 to 2.7 s
    assert furthest_apart(told_by((0.0, 0.0), (0.0, -2.5)), steps) == (
        "shard 1/2 began step 1 at least 2.1 s before shard 0/2 by the endpoint's clock; at most a tenth of a step is "
        "allowed (2 s)"
    )
    late = json.loads((copies[1] / "run.json").read_text())["shard"]
    changed(copies[1], shard=late | {"late_s": {"1": 0.7}})
    with pytest.raises(
        ScenarioError, match=r"merge: shard 0/3 began step 1 at least 0\.7 s before shard 1/3 .*\(NTP\)"
    ):
        merge_shards(copies, tmp_path / "reports")


def test_a_wall_clock_that_is_set_during_the_run_shows(tmp_path: Path) -> None:
    async def set_back(session: ShardRun) -> None:
        await asyncio.sleep(10.0)
        session.wall = lambda before=session.wall: before() - 3.0

    (path,) = shards_in_memory(scenario_of(TEXT), tmp_path, 1, meddle=lambda _, session: set_back(session))
    told = json.loads((path / "run.json").read_text())["shard"]["late_s"]
    assert {index: round(late_s, 5) for index, late_s in told.items()} == {"0": 0.0, "1": 0.0, "2": -3.0, "3": -3.0}


def test_a_shard_that_is_ready_too_late_sends_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"--start-at: this shard was ready 2\.0 s after it; start it earlier"):
        shards_in_memory(scenario_of(TEXT), tmp_path, 1, late_s=7.0)
    (path,) = tmp_path.iterdir()
    assert requests_of(path) == {}
    assert json.loads((path / "run.json").read_text())["state"] == "stopped"


def test_a_plan_that_results_would_choose_is_refused_with_every_key_to_set() -> None:
    with pytest.raises(ScenarioError) as refused:
        check_agreeable(scenario_of('name = "x"\n[ramp]\nuntil_sure = 0.1\n'), "--shard")
    assert str(refused.value) == (
        "--shard needs all steps to be known beforehand: [ramp] kind = 'ceiling' picks its steps by results: set it to "
        "one of geometric, ladder, users; [ramp] warmup_s is not set: set it to twice the longest time of a request, "
        "such as 30; [ramp] tail_s is not set: set it to the longest time of a request, such as 15; [ramp] until_sure "
        "ends steps by results: leave it out"
    )
    with pytest.raises(ScenarioError, match=r"\[gates\] abort ends a ramp by results"):
        check_agreeable(scenario_of(TEXT + '[gates]\nabort = true\nrules = ["ttft_s < 1 @ rate = 5"]\n'), "--shard")


def test_an_agreed_plan_ends_before_a_step_beyond_a_limit() -> None:
    def rates(more: str) -> list[float | None]:
        return [step.rate_rps for step in agreed_steps(scenario_of(TEXT.replace("[metrics]", f"{more}\n[metrics]")))]

    assert rates("max_minutes = 0.2") == [5.0, 5.0, 5.0]  # settle, step, tail
    assert rates("max_requests = 120") == [5.0, 5.0, 10.0, 10.0]
    with pytest.raises(ScenarioError, match="no step is left"):
        rates("max_requests = 10")


def test_a_large_step_begins_later_since_it_takes_long_to_plan() -> None:
    text = TEXT.replace("rates = [5, 10]", "rates = [5, 1_000_000]")
    _, first, second, _ = agreed_steps(scenario_of(text))
    assert (first.end_s, second.begin_s) == (9.5, 11.4)  # 0.5 s, and 0.2 us for each of 7 million arrivals


@pytest.mark.parametrize(
    ("start_at", "start_s"),
    [
        ("2026-01-02T03:04:35Z", 30.0), ("2026-01-02T04:04:35+01:00", 30.0), ("2026-01-02 03:04:35", 30.0),
        (f"{START_S + 30:.0f}", 30.0), ("+30s", 30.0), ("+1.5", 1.5), ("2026-01-02T03:04:04.700Z", -0.3),
    ],
)  # fmt: skip
def test_a_start_is_iso_8601_epoch_seconds_or_from_now(start_at: str, start_s: float) -> None:
    shard = shard_of("2/8", start_at, START_S)
    assert shard is not None
    assert (shard.index, shard.of, round(shard.start_s - START_S, 6)) == (2, 8, start_s)


@pytest.mark.parametrize(
    ("shard", "start_at", "told"),
    [
        ("8/8", "+30s", "--shard 8/8: expected K/N with K from 0 to N - 1"),
        ("2-8", "+30s", "--shard 2-8: expected K/N"),
        ("2/8", None, "--shard: --start-at is missing"),
        (None, "+30s", "--start-at: --shard is missing"),
        ("2/8", "soon", "--start-at soon: expected ISO 8601 such as 2026-01-02T03:04:00Z, seconds since 1970, or +30s"),
        ("2/8", "2026-01-02T03:04:00Z", r"--start-at 2026-01-02T03:04:00Z: that was 5.0 s ago"),
        ("2/8", "2027-01-02T03:04:00Z", "more than a day away"),
    ],
)
def test_a_shard_or_start_that_cannot_be_is_refused(shard: str | None, start_at: str | None, told: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        shard_of(shard, start_at, START_S)
    assert told in str(refused.value)


def test_the_command_refuses_an_adaptive_ramp_before_anything_is_sent() -> None:
    code, _, err = in_process("run", "chat", "--base-url", "http://127.0.0.1:9", "--shard", "0/2", "--start-at", "+30s")
    assert code == 2
    assert "--shard needs all steps to be known beforehand: [ramp] kind = 'ceiling'" in err


def test_the_offset_of_a_clock_is_what_all_dates_allow() -> None:
    """The server is 10.25 s ahead; the Date is of whole seconds, the calls 0.1 s long."""
    replies = [DatedReply(t, t + 0.1, float(int(t + 0.05 + 10.25))) for t in (100.0, 100.3, 100.6, 100.9, 101.2)]
    found = offset_of(replies, "x")
    assert found is not None
    assert abs(found.offset_s - 10.25) <= found.error_s < 1.1
    assert offset_of([*replies, DatedReply(102.0, 102.1, 200.0)], "x") is None
    assert seconds_of("Fri, 02 Jan 2026 03:04:05 GMT") == START_S
    assert seconds_of("yesterday") is None
