"""Steps that go on until an interval is narrow enough."""

from pathlib import Path

import pytest
from curve_rows import row_of
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.analysis.lengthen import next_look_s, reach
from loadramp.registry import ScenarioError
from loadramp.runner.preview import of_scenario

LADDER = (
    '[prompts]\nkind = "fixed"\ninput_tokens = 64\noutput_tokens = 16\n[ramp]\nkind = "ladder"\nrates = [16, 16]\n'
    "warmup_s = 2\nmeasure_s = 20\nsettle_s = 0\nsettle_requests = 0\ntail_s = 0\nlongest_s = 60\n"
)
CALM = LADDER.replace("[16, 16]", "[4, 4]")


def test_the_reach_is_the_worse_end_of_the_interval_over_its_value() -> None:
    row = row_of(itl_p50_s=0.020, itl_p50_low_s=0.016, itl_p50_high_s=0.022, ttft_p95_s=0.1, ttft_p95_low_s=None)
    assert reach(row, "itl_p50") == pytest.approx(0.25)
    assert reach(row, "ttft_p95") is None


def test_looks_lie_ten_seconds_or_a_seventh_apart() -> None:
    assert next_look_s(20.0) == 30.0
    assert next_look_s(200.0) == 230.0


def test_a_step_that_is_sure_at_once_is_no_longer_than_usual(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(LADDER + "until_sure = 0.5\n"), tmp_path)
    lengths = [step.measure_s for step in run.steps if step.measured]
    assert lengths == [pytest.approx(20.0, abs=1.5)] * 2
    assert not any(step.partial for step in run.steps)
    assert not any(row.void for row in run.rows)
    assert all(row.requests > 200 for row in run.rows)


@pytest.mark.long
def test_a_step_that_is_never_sure_ends_at_its_longest(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(CALM + 'until_sure = 0.0001\nsure_of = "ttft_p95"\n'), tmp_path)
    assert [step.measure_s for step in run.steps if step.measured] == [pytest.approx(60.0)] * 2


def test_without_it_a_step_has_its_usual_length(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(CALM), tmp_path)
    assert [step.measure_s for step in run.steps if step.measured] == [20.0, 20.0]


def test_a_measure_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(ScenarioError, match="sure_of"):
        scenario_of(LADDER + 'sure_of = "itl_p42"\n')


def test_plan_says_how_long_a_step_may_last(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(LADDER)
    _, words = of_scenario(path, ["ramp.until_sure=0.1"])
    assert "until the interval of itl_p50 reaches no further than 10 % from its value" in words
    assert "--until-sure 0.1" in of_scenario(path)[1]
