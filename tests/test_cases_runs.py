"""Cases that need a whole run (RT, CF, DS, ST): the product against the simulator, on a clock that jumps."""

from pathlib import Path

import numpy as np
import pytest
from harness import BEGAN_AT, ramp_in_memory, scenario_of

from loadramp.judge.curve import fold
from loadramp.record.codec import encode
from loadramp.record.rundir import RunDir, plain, read
from loadramp.record.types import Record, Step
from loadramp.sim.faults import Faults

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
    assert run.rows[0]["requests"] == np.count_nonzero((run.table.due_s >= begin_s) & (run.table.due_s < end_s)) == 400
    assert run.table.stream_end_s[warm].max() < begin_s


def test_cf08_slow_first_requests_are_in_no_row(tmp_path: Path) -> None:
    slow = Faults(slow_requests=20, slow_s=8.0)
    ramp = "settle_s = 10\nsettle_requests = 40\nkind = 'ladder'\nrates = [20]\n"
    run = ramp_in_memory(scenario_of(SHAPE + ramp), tmp_path, faults=slow)
    assert run.table.ttft_s.max() > 8.0
    assert run.rows[0]["ttft_p99_s"] < 0.2


def test_ds03_prompts_of_one_token_are_answered_and_one_token_long(tmp_path: Path) -> None:
    text = SHAPE.replace("input_tokens = 64", "input_tokens = 1")
    run = ramp_in_memory(scenario_of(text + "settle_s = 1\nkind = 'ladder'\nrates = [5]\n"), tmp_path)
    assert run.rows[0]["ok"] == run.rows[0]["requests"] == 100
    assert set(run.table.prompt_tokens) == {1}


def test_ds06_no_step_of_a_ramp_is_served_from_the_cache(tmp_path: Path) -> None:
    text = SHAPE.replace("input_tokens = 64", "input_tokens = 256")
    run = ramp_in_memory(scenario_of(text + "settle_s = 1\nkind = 'ladder'\nrates = [2, 4, 2, 4]\n"), tmp_path)
    assert [row["prefix_hit_ratio"] for row in run.rows] == [0.0] * 4
    first, third = (run.rows[i]["ttft_p50_s"] for i in (0, 2))
    assert third == pytest.approx(first, rel=0.05)


def test_st07_steps_measure_the_same_in_any_order(tmp_path: Path) -> None:
    """Prompts of 512 tokens: one that was seen before would be answered in half the time."""
    shape = SHAPE.replace("measure_s = 20", "measure_s = 60").replace("input_tokens = 64", "input_tokens = 512")
    found = {}
    for name, rates in (("up", [3, 6, 12]), ("shuffled", [12, 3, 6])):
        run = ramp_in_memory(scenario_of(f"{shape}settle_s = 5\nkind = 'ladder'\nrates = {rates}\n"), tmp_path / name)
        found[name] = {row["rate_rps"]: (row["itl_p99_s"], row["ttft_p50_s"]) for row in run.rows}
    for rate_rps, seconds in found["up"].items():
        assert min(seconds) > 0
        assert found["shuffled"][rate_rps] == pytest.approx(seconds, rel=0.05)


def test_dx01_percentiles_of_two_workers_come_from_their_records(tmp_path: Path) -> None:
    """1000 of 10 ms from one worker, 10 of 1000 ms from the other: p99 is 10 ms, not the mean of two p99s (505 ms)."""
    rundir = RunDir.create(tmp_path, "demo", "", BEGAN_AT)
    step = Step(0, rate_rps=10.1, warmup_s=0.0, measure_s=100.0)
    rundir.save_info({"steps": plain([step])})
    shares = ([0.010] * 1000, [1.0] * 10)
    for worker, share in enumerate(shares):
        lines = []
        for i, ttft_s in enumerate(share):
            due_s = 100.0 * i / len(share)
            record = Record(1000 * worker + i, 0, due_s, worker, sent_s=due_s, status="ok", output_tokens=1)
            record.event_s, record.stream_end_s = [due_s + ttft_s], due_s + ttft_s
            lines.append(encode(record).rstrip(b"\n"))
        rundir.records_path(worker).write_bytes(b"\n".join(lines) + b"\n")
    run, skipped = read(rundir.path)
    row = fold(step, run.table)
    assert (skipped, row["requests"]) == (0, 1010)
    assert row["ttft_p99_s"] == pytest.approx(0.010)
    assert row["ttft_p50_s"] == pytest.approx(0.010)
