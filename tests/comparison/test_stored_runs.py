"""Stored runs side by side: matching, the spread between runs, refusals."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import records_and_rows
from curve_rows import changed
from report_runs import row, served
from run_in_memory import ramp_in_memory, scenario_of
from test_cases_runs import TEN
from test_report_compare import LADDER

from loadramp.comparison.compare_runs import compare, paths_of, read_side
from loadramp.comparison.configuration_table import _as_high
from loadramp.comparison.configurations import ConfigurationFigure, Tiers
from loadramp.comparison.decide import DecisionRules
from loadramp.comparison.judge import asked_of
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.stored_runs import Side, failures, indicative, judged, matched_rates, row_rate
from loadramp.comparison.table import Canary
from loadramp.record.table import Run
from loadramp.record.types import Estimate
from loadramp.registry import ScenarioError
from loadramp.simulator.faults import Faults

ASKED = replace(asked_of(Canary(primary=["itl_p99", "ttft_p50"], error_ratio=0.01)), looks=())


BARE = served()


def run_of(itl_p99_s: float, ttft_p50_s: float = 0.08, ceiling: float | None = None, **more: Any) -> Run:
    """One step at 8 req/s whose latencies are known to 4 %, and a ceiling known to 3 %."""
    latencies = {}
    for name, value in (("itl_p99", itl_p99_s), ("ttft_p50", ttft_p50_s)):
        latencies |= {f"{name}_s": value, f"{name}_low_s": value / 1.04, f"{name}_high_s": value * 1.04}
    plain = {
        "requests": 5000,
        "ok": 5000,
        "pending": 0,
        "errors": {},
        "void": False,
        "saturated": False,
        "deficit": False,
    }
    one = changed(row(0, 8.0), **(latencies | plain | {"role": "step"} | more))
    found = Estimate("found", ceiling, ceiling / 1.03, ceiling * 1.03) if ceiling else Estimate("not_measurable")
    return replace(BARE, rows=[one], estimates={"ceiling": found})


def side(*runs: Run) -> Side:
    return Side("x", runs)


def test_stored_runs_of_which_one_counts_events_as_tokens_are_not_compared_by_them() -> None:
    base, events = side(run_of(0.022, token_source="usage")), side(run_of(0.110, token_source="events"))
    effects, decision = judged(base, events, [8.0], ASKED)
    itl = next(one for one in effects if one.metric == "itl_p99")
    assert itl.reason.startswith("one side sends no usage")
    assert decision.verdict == "inconclusive"
    both = side(run_of(0.022, token_source="events"))
    assert judged(both, events, [8.0], replace(ASKED, run_sd=0.05))[1].verdict == "fail"


def test_one_run_of_each_cannot_pass_and_can_fail() -> None:
    asked = replace(ASKED, run_sd=0.05)
    base = side(run_of(0.040))
    assert indicative(base, side(run_of(0.040)))
    assert judged(base, side(run_of(0.040)), [8.0], asked)[1].verdict == "inconclusive"
    effects, decision = judged(base, side(run_of(0.060)), [8.0], asked)
    assert decision.verdict == "fail"
    itl = next(one for one in effects if one.metric == "itl_p99")
    se = sqrt(2 * (log(1.04**2) / 3.92) ** 2 + 2 * 0.05**2)
    assert itl.low == pytest.approx(log(1.5) - 1.96 * se, abs=0.01)


def test_several_runs_measure_how_much_runs_differ() -> None:
    rng = np.random.default_rng(5)
    base = side(*(run_of(0.040 * exp(e)) for e in rng.normal(0, 0.02, 5)))
    same = side(*(run_of(0.040 * exp(e)) for e in rng.normal(0, 0.02, 5)))
    worse = side(*(run_of(0.050 * exp(e)) for e in rng.normal(0, 0.02, 5)))
    assert not indicative(base, same)
    assert judged(base, same, [8.0], ASKED)[1].verdict == "pass"
    assert judged(base, worse, [8.0], ASKED)[1].verdict == "fail"


def test_false_alarms_when_runs_differ_by_3_percent() -> None:
    """CR-04: at most 5 % of 200 equal pairs; effect and interval, with the spread between runs."""
    rng = np.random.default_rng(9)
    alarms = 0
    for _ in range(200):
        sides = [side(*(run_of(0.040 * exp(e), 0.08 * exp(e)) for e in rng.normal(0, 0.03, 4))) for _ in range(2)]
        alarms += judged(sides[0], sides[1], [8.0], ASKED)[1].verdict == "fail"
    assert alarms <= 10


def test_a_ceiling_decides_only_where_it_is_asked_for() -> None:
    base, lower = side(run_of(0.04, ceiling=20.0)), side(run_of(0.04, ceiling=14.0))
    asked = replace(ASKED, run_sd=0.0)
    assert judged(base, lower, [8.0], asked)[1].verdict == "pass"
    effects, decision = judged(base, lower, [8.0], replace(asked, ceiling=True))
    assert decision.verdict == "fail"
    assert effects[-1].ratio() == pytest.approx(0.7)
    unknown = judged(base, side(run_of(0.04)), [8.0], replace(asked, ceiling=True))[1]
    assert unknown.verdict == "inconclusive"


def test_a_candidate_that_does_not_keep_up_where_the_baseline_does_cannot_pass() -> None:
    decision = judged(side(run_of(0.04)), side(run_of(0.04, saturated=True, deficit=True)), [8.0], ASKED)[1]
    assert decision.verdict == "inconclusive"
    assert "does not keep up at 8 req/s" in decision.reasons[0]


@pytest.mark.parametrize(
    ("base", "other", "rates"),
    [
        ({}, {}, [8.0]),
        ({}, {"rate_rps": 9.0}, []),
        ({}, {"void": True}, []),
        ({"role": "down"}, {}, []),
        ({"rate_rps": 8.0000001}, {}, [8.0000001]),
    ],
)
def test_steps_are_matched_by_rate(base: dict[str, Any], other: dict[str, Any], rates: list[float]) -> None:
    found = matched_rates([side(run_of(0.04, **base)), side(run_of(0.04, **other))])
    assert found == pytest.approx(rates)
    assert matched_rates([]) == []


def test_no_common_rate_is_inconclusive() -> None:
    decision = judged(side(run_of(0.04)), side(run_of(0.04, rate_rps=9.0)), [], ASKED)[1]
    assert (decision.verdict, "no rate in common" in decision.reasons[0]) == ("inconclusive", True)


def test_a_side_without_a_step_to_use_is_named() -> None:
    spoilt = replace(run_of(0.04, void=True), path="reports/third")
    decision = judged(side(run_of(0.04)), side(spoilt), [], ASKED)[1]
    assert decision.reasons[0] == "no step of third can be used: each is void, was cut short, or asked for no rate"


def test_a_measure_without_an_interval_does_not_pass() -> None:
    blind = run_of(0.04, itl_p99_low_s=None, itl_p99_high_s=None)
    decision = judged(side(run_of(0.04)), side(blind), [8.0], ASKED)[1]
    assert "nothing says how sure it is" in decision.reasons[0]


def test_failures_are_those_of_the_matched_steps_and_not_the_client_s() -> None:
    one = run_of(0.04, errors={"http_5xx": 3, "client": 7}, requests=5000)
    assert failures(side(one), [8.0]).failed == 3
    assert failures(side(one), [8.0]).requests == 4993
    assert failures(side(one), []).requests == 0


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs of the same endpoint on disk; the same seed makes the same bytes, so the second is a copy."""
    one = Path(ramp_in_memory(scenario_of(LADDER), tmp_path_factory.mktemp("a")).path)
    return [str(one), str(shutil.copytree(one, tmp_path_factory.mktemp("b") / one.name))]


def test_two_directories_give_a_verdict_and_a_report(stored: list[str], tmp_path: Path) -> None:
    found = compare(stored, tmp_path)
    assert isinstance(found, Comparison)
    assert found.decision.verdict == "inconclusive"
    assert found.indicative
    path = Path(found.path)
    assert json.loads((path / "verdict.json").read_text())["kind"] == "compare"
    assert "Indicative" in (path / "report.html").read_text()


def test_a_different_environment_is_refused_with_the_keys_listed_or_marked(stored: list[str], tmp_path: Path) -> None:
    """CR-08."""
    info = json.loads((Path(stored[1]) / "run.json").read_text())
    other = tmp_path / "other"
    other.mkdir()
    for file in Path(stored[1]).iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    (other / "run.json").write_text(
        json.dumps(info | {"labels": {"gpu": "B"}, "overrides": ["prompts.input_tokens=60"]})
    )
    base = tmp_path / "base"
    base.mkdir()
    for file in Path(stored[0]).iterdir():
        (base / file.name).write_bytes(file.read_bytes())
    (base / "run.json").write_text(json.dumps(info | {"labels": {"gpu": "A"}}))
    refused = compare([str(base), str(other)], tmp_path / "out")
    assert isinstance(refused, Comparison)
    assert refused.decision.verdict == "inconclusive"
    assert refused.effects == []
    assert refused.decision.reasons == ("different environment: gpu (A and B); --anyway compares all the same",)
    marked = compare([str(base), str(other)], tmp_path / "out", anyway=True)
    assert isinstance(marked, Comparison)
    assert marked.effects != []
    assert "Different environment: gpu (A and B)." in marked.notes


def test_repeats_are_written_with_commas_and_three_sides_make_a_table(stored: list[str], tmp_path: Path) -> None:
    both, _ = read_side(paths_of(",".join(stored)))
    assert len(both.runs) == 2
    found = compare([*stored, ",".join(stored)], tmp_path)
    assert isinstance(found, Tiers)
    assert found.rates
    assert (Path(found.path) / "tiers.json").exists()


def test_a_run_does_not_repeat_itself(stored: list[str], tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy, of one"
    shutil.copytree(stored[0], first)
    info = json.loads((first / "run.json").read_text()) | {"prompt_salt": 621515963939822636}
    (first / "run.json").write_text(json.dumps(info))
    shutil.copytree(first, copy)
    with pytest.raises(ScenarioError, match="is the same run as"):
        compare([f"{stored[0]},{stored[0]}", stored[1]], tmp_path)
    with pytest.raises(ScenarioError, match="copy, of one is the same run as"):
        read_side([first, copy])
    found, _ = read_side(paths_of(str(copy)))  # a name with a comma that is there is one
    assert len(found.runs) == 1


@pytest.mark.parametrize("names", [[], ["a"], [","], ["a", ","]])
def test_what_is_no_comparison_is_refused(names: list[str], tmp_path: Path) -> None:
    with pytest.raises(ScenarioError):
        compare(names, tmp_path)


def test_the_asked_of_a_table_without_looks_is_one_look() -> None:
    assert isinstance(ASKED, DecisionRules)
    assert ASKED.looks == ()


@pytest.mark.parametrize(
    ("figure", "as_high"),
    [
        (ConfigurationFigure(20.0, ratio=0.97, low=0.9, high=1.05), True),
        (ConfigurationFigure(20.0, ratio=0.8, low=0.7, high=0.9), False),
        (ConfigurationFigure(20.0, ratio=1.0), True),
        (ConfigurationFigure(20.0, ratio=0.8), False),
    ],
)
def test_a_ceiling_whose_interval_reaches_the_first_s_is_not_lower(figure: ConfigurationFigure, as_high: bool) -> None:
    assert _as_high(figure) is as_high


def test_st03_one_slow_request_of_ten_moves_no_comparison(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    run = ramp_in_memory(scenario_of(TEN), tmp_path / "a", faults=Faults(slow_requests=1, slow_s=33.0))
    other = ramp_in_memory(scenario_of(TEN), tmp_path / "b")
    found = compare([other.path, run.path], tmp_path / "out")
    assert isinstance(found, Comparison)
    assert found.decision.verdict == "inconclusive"


def test_the_rate_of_a_step_that_was_cut_short_is_none() -> None:
    whole = records_and_rows.row(8.0)
    part = records_and_rows.row(16.0, partial=True, window_end_s=12.0, step=2)
    assert (row_rate(whole), row_rate(part)) == (8.0, None)
