"""Steps near the ceiling go on where the engine's own step time has regimes, and nowhere else."""

from dataclasses import replace
from pathlib import Path

import pytest
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.analysis import lengthen
from loadramp.record.table import Run
from loadramp.report import summary_markdown
from loadramp.runner.preview import of_scenario
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.regimes import Regimes, Slow
from loadramp.workload.preview import longest_s, most_extra_s

STEADY = replace(PROFILES["small"], max_num_seqs=4)
UNSTABLE = replace(STEADY, regimes=Regimes(slow=(Slow(every_s=6.0, lasts_s=3.0, factor=2.0),)))
CLIMB = (
    '[prompts]\nkind = "fixed"\ninput_tokens = 64\noutput_tokens = 24\n[ramp]\nstart_rps = 1\nmax_rps = 8\n'
    "soak_s = 0\nwarmup_s = 2\nmeasure_s = 24\nsettle_s = 5\nsettle_requests = 0\ntail_s = 0\n"
)


def lengths(run: Run) -> list[float]:
    return [step.measure_s or 0.0 for step in run.steps if step.measured]


@pytest.mark.long
def test_on_an_unstable_engine_the_overloaded_step_goes_on_and_its_report_agrees(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(CLIMB), tmp_path, UNSTABLE)
    *quiet, last = lengths(run)
    assert quiet and quiet == [24.0] * len(quiet)
    assert 30.0 < last <= 72.2
    assert run.rows[-1].saturated and not run.rows[-1].void and not run.steps[-1].partial
    assert run.rows[-1].length_s == pytest.approx(last)
    assert run.rows[-1].requests == pytest.approx(run.rows[-1].rate_rps * last, rel=0.1)
    assert "engine_unstable" in [one.code for one in run.findings]
    assert lengthen.has_regimes(run)
    (check,) = [one for one in run.checks if one.code == "lengthened"]
    assert "instead of 24 s" in check.message
    assert run.estimates["ceiling"].interval_of == "long_run"
    assert " of the long run |" in summary_markdown(run)


def test_a_scenario_may_rule_it_out(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(CLIMB + "longest_s = 0\n"), tmp_path, UNSTABLE)
    assert lengths(run) == [24.0] * 4
    assert run.info.lengthened == {}


def test_on_a_steady_engine_every_step_has_its_usual_length(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(CLIMB), tmp_path, STEADY)
    assert lengths(run) == [24.0] * len(run.rows)
    assert run.rows[-1].saturated
    assert run.info.lengthened == {}


def test_max_minutes_is_kept(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(CLIMB + f"max_minutes = {112 / 60}\n"), tmp_path, UNSTABLE)
    assert lengths(run) == [24.0] * 4  # the first part would end after 121 s


def test_a_step_grows_by_half_up_to_its_longest() -> None:
    assert [lengthen.further_s(seconds, 180.0) for seconds in (60.0, 90.0, 135.0, 180.0)] == [30.0, 45.0, 45.0, 0.0]
    assert lengthen.endured(40.0, 60.0, 60.0, 120.0)
    assert not lengthen.endured(50.0, 60.0, 60.0, 120.0)
    assert lengthen.endured(1e9, 60.0, 60.0, None)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "further_s"),
    [
        ("measure_s = 60\n", 120.0 + 300.0),
        ("measure_s = 60\nsoak_s = 0\n", 120.0),
        ("measure_s = 60\nsoak_s = 0\nlongest_s = 90\n", 30.0),
        ("longest_s = 0\n", 0.0),
        ("until_sure = 0.1\n", 0.0),
        ('kind = "ladder"\nrates = [1, 2]\n', 0.0),
        ('kind = "users"\n', 0.0),
        ('kind = "geometric"\nmeasure_s = 20\n', 40.0),
    ],
)
def test_how_much_longer_a_ramp_may_take(text: str, further_s: float, tmp_path: Path) -> None:
    assert most_extra_s(scenario_of(f"[ramp]\n{text}")) == pytest.approx(further_s)
    path = tmp_path / "long.toml"
    path.write_text(f"[ramp]\n{text}")
    words = of_scenario(path)[1]
    assert ("if the engine's step time is unstable" in words) == bool(further_s)


def test_the_longest_is_three_times_the_usual_length_and_ten_minutes_at_most() -> None:
    pace = scenario_of("").pace
    assert [longest_s(pace, seconds) for seconds in (60.0, 300.0, 900.0)] == [180.0, 600.0, 900.0]
