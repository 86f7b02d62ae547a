"""Cases that need a whole run (RT, CF, DS, ST): the product against the simulator, on a clock that jumps."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_in_memory import BEGAN_AT, ramp_in_memory, scenario_of
from simulated_time import JumpingLoop

from loadramp.analysis.checks.validity import loop_lag_p99_s, void_reasons
from loadramp.analysis.curve import fold
from loadramp.record.codec import encode
from loadramp.record.run_directory import RunDir
from loadramp.record.run_info import RunInfo
from loadramp.record.types import Record, Step
from loadramp.report.preview import ramp_notes
from loadramp.runner.scenarios import read_run
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import EngineProfile

SHAPE = """
seed = 5
[prompts]
kind = "fixed"
input_tokens = 64
output_tokens = 12
[arrivals]
kind = "constant"
[ramp]
warmup_s = 5
measure_s = 20
tail_s = 2
"""


@pytest.mark.long
def test_rt08_requests_before_the_first_step_are_capped_and_in_no_row(tmp_path: Path) -> None:
    """The case caps a warm-up of its own; here it is load like any other, so the same limit holds for it."""
    ramp = "settle_s = 1\nsettle_requests = 100\nmax_in_flight = 32\nkind = 'ladder'\nrates = [20]\n"
    run = ramp_in_memory(scenario_of(SHAPE + ramp), tmp_path)
    settle, step = run.steps[0], next(step for step in run.steps if step.measured)
    warm = run.table.step == settle.index
    assert (settle.role, np.count_nonzero(warm)) == ("settle", pytest.approx(100, abs=2))
    assert run.table.ok[warm].all()
    starts, ends = np.sort(run.table.due_s), np.sort(run.table.stream_end_s)
    assert max(np.arange(1, len(starts) + 1) - np.searchsorted(ends, starts, side="right")) <= 32
    begin_s, end_s = step.window_s
    assert run.rows[0].requests == np.count_nonzero((run.table.due_s >= begin_s) & (run.table.due_s < end_s)) == 400
    assert run.table.stream_end_s[warm].max() < begin_s


def test_cf08_slow_first_requests_are_in_no_row(tmp_path: Path) -> None:
    slow = Faults(slow_requests=20, slow_s=8.0)
    ramp = "settle_s = 10\nsettle_requests = 40\nkind = 'ladder'\nrates = [20]\n"
    run = ramp_in_memory(scenario_of(SHAPE + ramp), tmp_path, faults=slow)
    assert run.table.ttft_s.max() > 8.0
    assert run.rows[0].of("ttft").p99.value < 0.2


@pytest.mark.long
def test_cf08_without_a_warm_up_the_first_step_has_them_in_it_and_that_is_said(tmp_path: Path) -> None:
    slow = Faults(slow_requests=20, slow_s=8.0)
    shape = SHAPE.replace("warmup_s = 5", "warmup_s = 0")
    ramp = "settle_s = 0\nsettle_requests = 0\nkind = 'ladder'\nrates = [20, 20]\n"
    run = ramp_in_memory(scenario_of(shape + ramp), tmp_path, faults=slow)
    assert run.rows[0].of("ttft").p99.value > 8.0
    (note,) = [check for check in run.checks if check.code == "no_warmup"]
    assert (note.level, note.step) == ("note", run.rows[0].step)
    assert note.message.startswith("no warm-up: the first step has in it what first requests pay")
    assert any(words.startswith("No warm-up: ") for words in ramp_notes(scenario_of(shape + ramp)))


@pytest.mark.parametrize(
    "warm", ["settle_requests = 20\nwarmup_s = 0\nsettle_s = 0", "settle_requests = 0\nsettle_s = 0"]
)
def test_cf08_a_warm_up_of_either_kind_needs_no_note(tmp_path: Path, warm: str) -> None:
    shape = SHAPE.replace("warmup_s = 5\n", "" if "warmup_s" in warm else "warmup_s = 5\n").replace("= 20\n", "= 5\n")
    run = ramp_in_memory(scenario_of(f"{shape}{warm}\nkind = 'ladder'\nrates = [20]\n"), tmp_path)
    assert run.rows[0].requests == 100
    assert "no_warmup" not in {check.code for check in run.checks}
    assert not any(words.startswith("No warm-up") for words in ramp_notes(scenario_of(f"{shape}{warm}\n")))


FLAT = EngineProfile(t0_s=0.02, decode_s=0.0, context_s=0.0, prefill_s=0.0, noise_ratio=0.0)
"""A token of every stream each 20 ms, however many there are."""
CROWD = """
[prompts]
kind = "fixed"
input_tokens = 8
output_tokens = 60
[ramp]
kind = "users"
users = [500]
settle_s = 0
warmup_s = 0.6
measure_s = 1
tail_s = 0
"""


@pytest.mark.long
@pytest.mark.parametrize("busy_s", [0.0, 0.012])
def test_rt06_the_gaps_of_500_streams_are_the_servers_or_the_step_is_void(tmp_path: Path, busy_s: float) -> None:
    """The case: 50 tokens a second each, exactly timed. A loop that stands still for 12 ms of every 39 is named."""

    async def stand_still() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        while True:
            await asyncio.sleep(0.027)
            loop._now_s += busy_s

    run = ramp_in_memory(scenario_of(CROWD), tmp_path, FLAT, meddle=(lambda *_: stand_still()) if busy_s else None)
    (row,) = run.rows
    inside = [one for one in run.client if row.window_begin_s <= one.t_s <= row.window_end_s]
    assert row.in_flight_mean == pytest.approx(500, rel=0.02)
    reasons = void_reasons(run.steps[-1], run.table, [replace(one, cpu_ratio=0.0) for one in inside], itl_p50_s=0.02)
    if busy_s:
        assert loop_lag_p99_s(inside) == pytest.approx(busy_s, abs=0.002)
        assert any("loop" in one.what and "(allowed 5 ms)" in one.what for one in reasons)
        assert row.void
        assert "client_limited" in {check.code for check in run.checks}
    else:
        assert row.of("itl").p50.value == pytest.approx(0.020, rel=0.10)
        assert loop_lag_p99_s(inside) == pytest.approx(0.0, abs=1e-9)
        assert reasons == []


TEN = """
seed = 5
[slo]
ttft_s = 1
[prompts]
kind = "fixed"
input_tokens = 64
output_tokens = 12
[arrivals]
kind = "constant"
[ramp]
kind = "ladder"
rates = [1, 1.1]
settle_s = 0
settle_requests = 0
warmup_s = 0
measure_s = 10
tail_s = 2
"""


def test_st03_one_slow_request_of_ten_moves_no_p99_and_no_knee(tmp_path: Path) -> None:
    """The case shows p99 with a mark; here it is no number, with the reason (docs/method.md)."""
    slow = Faults(slow_requests=1, slow_s=33.0)
    run = ramp_in_memory(scenario_of(TEN), tmp_path, faults=slow)
    first = run.rows[0]
    assert (first.requests, run.table.ttft_s.max() > 33.0) == (10, True)
    assert first.of("ttft").p99.value is None
    assert first.reasons["ttft_p99_s"] == "10 requests cannot carry a p99: needs about 358 more"
    (few,) = [check for check in run.checks if check.code == "few_samples" and "p99 TTFT" in check.message]
    assert "cannot carry a p99" in few.message
    for name in ("ceiling", "p99_itl_knee", "slo_capacity"):
        assert run.estimates[name].status != "found", name


def test_ds03_prompts_of_one_token_are_answered_and_one_token_long(tmp_path: Path) -> None:
    text = SHAPE.replace("input_tokens = 64", "input_tokens = 1")
    run = ramp_in_memory(scenario_of(text + "settle_s = 1\nkind = 'ladder'\nrates = [5]\n"), tmp_path)
    assert run.rows[0].ok == run.rows[0].requests == 100
    assert set(run.table.prompt_tokens) == {1}


def test_ds06_no_step_of_a_ramp_is_served_from_the_cache(tmp_path: Path) -> None:
    text = SHAPE.replace("input_tokens = 64", "input_tokens = 256")
    run = ramp_in_memory(scenario_of(text + "settle_s = 1\nkind = 'ladder'\nrates = [2, 4, 2, 4]\n"), tmp_path)
    assert [row.prefix_hit_ratio for row in run.rows] == [0.0] * 4
    first, third = (run.rows[i].of("ttft").p50.value for i in (0, 2))
    assert third == pytest.approx(first, rel=0.05)


@pytest.mark.long
def test_st07_steps_measure_the_same_in_any_order(tmp_path: Path) -> None:
    """Prompts of 512 tokens: one that was seen before would be answered in half the time."""
    shape = SHAPE.replace("input_tokens = 64", "input_tokens = 512")
    found = {}
    for name, rates in (("up", [3, 6, 12]), ("shuffled", [12, 3, 6])):
        run = ramp_in_memory(scenario_of(f"{shape}settle_s = 5\nkind = 'ladder'\nrates = {rates}\n"), tmp_path / name)
        found[name] = {row.rate_rps: (row.of("itl").p99.value, row.of("ttft").p50.value) for row in run.rows}
    for rate_rps, seconds in found["up"].items():
        assert min(seconds) > 0
        assert found["shuffled"][rate_rps] == pytest.approx(seconds, rel=0.05)


def test_dx01_percentiles_of_two_workers_come_from_their_records(tmp_path: Path) -> None:
    """1000 of 10 ms from one worker, 10 of 1000 ms from the other: p99 is 10 ms, not the mean of two p99s (505 ms)."""
    rundir = RunDir.create(tmp_path, "demo", "", BEGAN_AT)
    step = Step(0, rate_rps=10.1, warmup_s=0.0, measure_s=100.0)
    rundir.save_info(RunInfo(steps=[step]))
    shares = ([0.010] * 1000, [1.0] * 10)
    for worker, share in enumerate(shares):
        lines = []
        for i, ttft_s in enumerate(share):
            due_s = 100.0 * i / len(share)
            record = Record(1000 * worker + i, 0, due_s, worker, sent_s=due_s, status="ok", output_tokens=1)
            record.event_s, record.stream_end_s = [due_s + ttft_s], due_s + ttft_s
            lines.append(encode(record).rstrip(b"\n"))
        rundir.records_path(worker).write_bytes(b"\n".join(lines) + b"\n")
    run, skipped = read_run(rundir.path)
    row = fold(step, run.table)
    assert (skipped, row.requests) == (0, 1010)
    assert row.of("ttft").p99.value == pytest.approx(0.010)
    assert row.of("ttft").p50.value == pytest.approx(0.010)
