"""``[gates] abort``: a ramp ends once a threshold on a step is missed beyond doubt."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.registry import ScenarioError
from loadramp.runner import finish
from loadramp.runner.gate_check import check_rules

LADDER = """
name = "abort"
seed = 3
[prompts]
kind = "fixed"
input_tokens = 100
output_tokens = 10
[ramp]
kind = "ladder"
rates = [4, 8, 16]
warmup_s = 1
measure_s = 20
settle_s = 0
settle_requests = 0
tail_s = 0
[gates]
abort = true
"""


def ramped(rule: str, tmp_path: Path, abort: bool = True) -> finish.Finished:
    text = f'{LADDER}rules = ["{rule}"]\n'
    run = ramp_in_memory(scenario_of(text if abort else text.replace("abort = true", "abort = false")), tmp_path)
    return finish.judge(Path(run.path))


def test_a_rule_missed_beyond_doubt_ends_the_ramp_with_exit_code_99(tmp_path: Path) -> None:
    finished = ramped("p50(ttft_s) < 1 ms @ rate = 8", tmp_path)
    assert [row.rate_rps for row in finished.run.rows] == [4.0, 8.0]
    assert finished.exit_code == 99
    assert finished.run.info.state == "stopped"
    assert finished.run.info.ending == "missed beyond doubt: p50(ttft_s) < 1 ms @ rate = 8"
    assert finished.run.gates[0].status == "fail"


@pytest.mark.long
@pytest.mark.parametrize(
    "rule", ["p50(ttft_s) < 10 s @ rate = 8", "p99(ttft_s) < 1 ms @ rate = 99", "ceiling_rps > 900"]
)
def test_what_holds_or_is_still_open_lets_it_go_on(rule: str, tmp_path: Path) -> None:
    text = LADDER + f'rules = ["{rule}", "p50(itl_s) < 9 s @ rate = 4"]\n'
    run = ramp_in_memory(scenario_of(text), tmp_path)
    assert [row.rate_rps for row in run.rows] == [4.0, 8.0, 16.0]


def test_without_abort_the_ramp_goes_to_its_end_and_fails_there(tmp_path: Path) -> None:
    finished = ramped("p50(ttft_s) < 1 ms @ rate = 4", tmp_path, abort=False)
    assert len(finished.run.rows) == 3
    assert finished.exit_code == 99


def test_abort_without_a_rule_on_a_step_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"\[gates\] abort: no rule is on a step"):
        check_rules(scenario_of(f'{LADDER}rules = ["ceiling_rps > 3"]\n'))
