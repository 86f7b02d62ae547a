"""Cases that need a whole run (RT, CF, DS, ST): the product against the simulator, on a clock that jumps."""

from pathlib import Path

import numpy as np
import pytest
from harness import ramp_in_memory, scenario_of

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
    found = {}
    for name, rates in (("up", [3, 6, 12]), ("shuffled", [12, 3, 6])):
        text = SHAPE.replace("measure_s = 20", "measure_s = 60") + f"settle_s = 5\nkind = 'ladder'\nrates = {rates}\n"
        run = ramp_in_memory(scenario_of(text), tmp_path / name)
        found[name] = {row["rate_rps"]: row["itl_p99_s"] for row in run.rows}
    for rate_rps, p99_s in found["up"].items():
        assert p99_s > 0
        assert found["shuffled"][rate_rps] == pytest.approx(p99_s, rel=0.05)
