"""What a run says of each objective, with literal rows and estimates; limits; where the next climb starts."""

from __future__ import annotations

import pytest
from visits import visit

from loadramp.record.row import Row
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Estimate
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario
from loadramp.tune.race import NextVisit
from loadramp.tune.score import Score, facts_of, score_of
from loadramp.tune.steps import foreseen_s, overrides_of, start_rps, step_s
from loadramp.tune.table import objective_of, rule_of, slo_with_limit, tune_of
from loadramp.tune.visit import Visit

SLO = "[slo]\nttft_s = 1\nquantile = 0.95\n"


def scenario(tune: str = "", more: str = "") -> Scenario:
    return load(f'name = "chat"\n{more}[prompts]\nkind = "fixed"\n[tune]\n{tune}\n')


def run_of(asked: Scenario, ceiling: Estimate, slo: Estimate, *rows: Row, state: str = "complete") -> Run:
    run = Run(RunInfo(state=state), asked, [], Table.of([]), rows=list(rows))  # type: ignore[arg-type]
    run.estimates = {"ceiling": ceiling, "slo_capacity": slo}
    return run


def step(rate_rps: float, **more: object) -> Row:
    return Row(rate_rps=rate_rps, window_end_s=20.0, **more)  # type: ignore[arg-type]


CEILING = Estimate("found", 20.0, 18.0, 22.0)
WITHIN = Estimate("found", 12.0, 11.0, 13.0)


def test_the_slo_capacity_is_compared_where_there_is_a_service_level() -> None:
    with_slo = scenario(more=SLO)
    assert objective_of(with_slo) == "slo_capacity"
    assert score_of(run_of(with_slo, CEILING, WITHIN), "slo_capacity", tune_of(with_slo)) == Score(12.0, 11.0, 13.0)
    assert objective_of(scenario()) == "ceiling"
    assert score_of(run_of(scenario(), CEILING, WITHIN), "ceiling", tune_of(scenario())) == Score(20.0, 18.0, 22.0)


def test_a_service_level_that_is_missed_at_the_lowest_rate_bounds_the_objective() -> None:
    below = Estimate("below_range", None, None, 4.0, reason="start lower")
    asked = scenario(more=SLO)
    assert score_of(run_of(asked, CEILING, below), "slo_capacity", tune_of(asked)) == Score(
        None, None, 4.0, "start lower"
    )


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"waiting_max": 30.0}, ""),
        ({"waiting_max": 3.0}, "requests pile up in the overloaded step while the server's own queue is empty"),
        ({"waiting_max": 30.0, "throughput_rps": 4.0}, "a request runs for about 25 s in the overloaded step, which"),
        ({"running_max": None}, ""),
    ],
)
def test_a_ceiling_of_a_batch_that_was_still_filling_up_waits_for_longer_steps(row: dict[str, float], why: str) -> None:
    known = {"saturated": True, "running_max": 100.0, "throughput_rps": 10.0} | row
    run = run_of(scenario(), CEILING, WITHIN, step(10.0), step(40.0, **known))
    found = score_of(run, "ceiling", tune_of(scenario()), final=False)
    assert found.reason.startswith(why)
    assert (found.value is None) == bool(why)
    assert score_of(run, "ceiling", tune_of(scenario())).value == 20.0  # no longer steps are to come


def test_a_ceiling_below_the_lowest_rate_waits_for_longer_steps() -> None:
    below = Estimate("below_range", 3.0, 2.0, 4.0, reason="overloaded at the lowest rate: start lower")
    run = run_of(scenario(), below, WITHIN, step(4.0, saturated=True))
    assert score_of(run, "ceiling", tune_of(scenario()), final=False) == Score(reason=below.reason)


def test_a_climb_without_an_end_is_a_bound_and_one_that_was_stopped_is_nothing() -> None:
    beyond = Estimate("not_found_up_to", 64.0, 64.0, reason="quiet up to 64")
    asked = scenario()
    assert score_of(run_of(asked, beyond, WITHIN), "ceiling", tune_of(asked)) == Score(
        64.0, 64.0, None, "quiet up to 64"
    )
    assert score_of(run_of(asked, beyond, WITHIN, state="stopped"), "ceiling", tune_of(asked)).value is None


def test_goodput_is_the_best_step_s_with_the_interval_of_a_count() -> None:
    rows = [step(4, good_rps=4.0), step(8, good_rps=7.0), step(16, good_rps=2.0), step(32, good_rps=30.0, partial=True)]
    found = score_of(run_of(scenario(more=SLO), CEILING, WITHIN, *rows), "goodput", tune_of(scenario(more=SLO)))
    assert found.value == 7.0
    assert found.low == pytest.approx(5.93, abs=0.01)  # 7 / exp(1.96 / sqrt(140))
    assert found.high == pytest.approx(8.26, abs=0.01)


def test_a_cost_is_the_price_of_a_million_tokens_at_the_capacity() -> None:
    asked = scenario('objective = "cost"\nprice_per_hour = 3.6')
    found = score_of(
        run_of(asked, CEILING, WITHIN, step(16, output_tokens_mean=100.0)), "cost", tune_of(asked)
    )  # 2,000 tokens a second at 0.001 a second
    assert found.value == pytest.approx(0.5)
    assert (found.low, found.high) == (pytest.approx(0.4545, abs=1e-4), pytest.approx(0.5556, abs=1e-4))


@pytest.mark.parametrize(
    ("limit", "rule"),
    [
        ("p99 ITL <= 60 ms", "p99(itl_s) <= 60 ms"),
        ("p95 ttft < 0.8", "p95(ttft_s) < 0.8"),
        ("preemptions <= 0", "preemptions <= 0"),
        ("p99(ttft_s) < 0.8 @ rate <= 8", "p99(ttft_s) < 0.8 @ rate <= 8"),
    ],
)
def test_a_limit_is_written_as_people_write_it_or_as_a_gate(limit: str, rule: str) -> None:
    assert rule_of(limit).text == rule


def test_a_limit_on_a_latency_becomes_a_service_level() -> None:
    assert slo_with_limit(scenario().slo, "p99 ITL <= 60 ms") == {"slo.itl_s": 0.06, "slo.quantile": 0.99}
    assert slo_with_limit(scenario(more=SLO).slo, "p95 TTFT <= 2 s") == {"slo.ttft_s": 1.0, "slo.quantile": 0.95}
    assert slo_with_limit(scenario().slo, "preemptions <= 0") == {}
    with pytest.raises(ScenarioError, match=r"\[slo\] quantile is 0\.95; state the limit of p95"):
        slo_with_limit(scenario(more=SLO).slo, "p99 ITL <= 60 ms")


def test_the_objective_within_a_limit_is_the_rate_up_to_which_it_holds() -> None:
    asked = load(
        '[prompts]\nkind = "fixed"\n[tune]\nobjective = "ceiling"\nlimit = "p99 ITL <= 60 ms"\n',
        overrides=["slo.itl_s=0.06"],
    )
    assert score_of(run_of(asked, CEILING, WITHIN), "ceiling", tune_of(asked)) == Score(12.0, 11.0, 13.0)


def test_a_limit_on_something_else_puts_a_configuration_out_that_misses_it() -> None:
    asked = scenario('limit = "preemptions <= 0"')
    rows = [step(8, preemptions=0.0), step(16, preemptions=3.0), step(32, preemptions=90.0)]
    found = score_of(run_of(asked, CEILING, WITHIN, *rows), "ceiling", tune_of(asked))
    assert (found.value, found.reason) == (None, "misses preemptions <= 0: 3")
    assert score_of(run_of(asked, CEILING, WITHIN, rows[0], rows[2]), "ceiling", tune_of(asked)).value == 20.0


def test_the_facts_of_a_configuration_are_those_of_its_highest_step_that_kept_up() -> None:
    rows = [step(8, running_max=6.0), step(16, running_max=15.0), step(32, running_max=16.0, saturated=True)]
    facts = facts_of(run_of(scenario(), CEILING, WITHIN, *rows), 20.0)
    assert (facts["rate_rps"], facts["running_max"], facts["ceiling_rps"]) == (16.0, 16.0, 20.0)


def measured(flags: str, **facts: float) -> Visit:
    return Visit(flags, value=1.0, low=1.0, high=1.0, facts=facts)


def test_a_climb_starts_below_what_the_configuration_or_else_the_baseline_sustains() -> None:
    asked = scenario("", "[ramp]\nstart_rps = 3\n")
    assert start_rps(asked, "--a 1", "", []) == 3.0
    known = [measured("", ceiling_rps=20.0)]
    assert start_rps(asked, "--a 1", "", known) == pytest.approx(14.0)
    assert start_rps(asked, "--a 1", "", [*known, measured("--a 1", ceiling_rps=40.0)]) == pytest.approx(28.0)


def test_a_step_is_longer_where_a_service_level_needs_more_requests() -> None:
    assert step_s(scenario(), 0, 2.0) == 20.0
    assert step_s(scenario(), 2, 2.0) == 60.0
    assert step_s(scenario(more=SLO), 0, 2.0) == pytest.approx(43.2)  # 1.2 * 72 requests


def test_the_ramp_of_a_visit_keeps_the_scenario_s_own_pace() -> None:
    asked = scenario("", "[ramp]\nwarmup_s = 2\ntail_s = 1\nsettle_s = 4\nmax_rps = 50\nmeasure_s = 99\n")
    name, ramp, gates = overrides_of(asked, NextVisit("--n 4", "race", 1), "", [], 120.0)
    assert (name, gates) == ('name="chat-n-4"', "gates={}")
    assert ramp == (
        'ramp={kind = "ceiling", start_rps = 1.0, factor = 2.0, soak_s = 0.0, measure_s = 40.0, longest_s = 0.0, '
        "warmup_s = 2.0, settle_s = 4.0, settle_requests = 20, tail_s = 1.0, max_error_ratio = 0.01, give_up_s = 5.0, "
        "max_minutes = 2.0, max_rps = 50.0}"
    )
    assert load(asked.source, overrides=[name, ramp, gates]).name == "chat-n-4"


def test_what_a_visit_takes_is_foreseen_from_the_starts_before_it() -> None:
    asked = scenario("", "[ramp]\nwarmup_s = 5\ntail_s = 5\nsettle_s = 10\nsettle_requests = 0\n")
    action = NextVisit("--a 1", "race", 0)
    assert foreseen_s(asked, action, [], start_rps=1.0, runs_already=False) == 60 + 5 + 10 + 5 * 25 + 5 + 15
    seen = [visit("", 10.0), Visit("", value=10.0, low=9.0, high=11.0, start_s=90.0)]
    assert foreseen_s(asked, action, seen, start_rps=1.0, runs_already=False) == 90 + 5 + 10 + 3 * 25 + 5 + 15
    assert foreseen_s(asked, action, seen, start_rps=1.0, runs_already=True) == 10 + 3 * 25 + 5 + 15
