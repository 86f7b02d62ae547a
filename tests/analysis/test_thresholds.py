"""Thresholds on runs: an interval that straddles is open, what is not known is open, and the worst step decides."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from curve_rows import changed
from junitparser import Failure, JUnitXml
from records_and_rows import answer, overload, row
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.analysis.curve import fold
from loadramp.analysis.itl_knee import completed, estimate
from loadramp.analysis.quantiles import pool
from loadramp.analysis.repeats import pooled_rows
from loadramp.analysis.threshold_rules import parse
from loadramp.analysis.thresholds import joined, judge_gates, overall
from loadramp.cli import main
from loadramp.record.row import Row
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Estimate, GateResult, Step
from loadramp.report.thresholds import gate_line, gates_document, gates_section, with_gates
from loadramp.report.verdict_text import verdict
from loadramp.runner.export import exported
from loadramp.runner.finish import judge as judge_stored
from loadramp.runner.finish import write_report
from loadramp.runner.scenarios import load


def step(index: int, rate_rps: float, **columns: Any) -> Row:
    """A quiet row whose p99 TTFT is 100 ms, 90 to 110."""
    plain: dict[str, Any] = {"step": index, "stationary": True, "ttft_p99_low_s": 0.09, "ttft_p99_high_s": 0.11}
    return row(rate_rps, **{**plain, **columns})


def run_of(*rows: Row, **estimates: Estimate) -> Run:
    return Run(RunInfo(), load(""), [], Table.of([]), rows=list(rows), estimates=estimates)


def judge(run: Run, rule: str, when_unsure: Any = "inconclusive") -> GateResult:
    (result,) = judge_gates(run, [rule], when_unsure)
    return result


@pytest.mark.parametrize(("rule", "status"), [
    ("p99(ttft_s) < 0.2 @ rate <= 8", "pass"),
    ("p99(ttft_s) < 0.111 @ rate <= 8", "pass"),
    ("p99(ttft_s) < 0.105 @ rate <= 8", "inconclusive"),
    ("p99(ttft_s) < 0.09 @ rate <= 8", "fail"),
    ("p99(ttft_s) <= 0.09 @ rate <= 8", "inconclusive"),
    ("p99(ttft_s) > 0.08 @ rate = 8", "pass"),
    ("p99(ttft_s) >= 0.12 @ step 1", "fail"),
])  # fmt: skip
def test_the_interval_decides(rule: str, status: str) -> None:
    result = judge(run_of(step(0, 4.0), step(1, 8.0)), rule)
    assert result.status == status
    assert result.value == 0.1
    assert (result.reason == "the interval 0.09 to 0.11 holds the limit") == (status == "inconclusive")


def by_events(gaps_s: list[float], **times: float) -> Run:
    """A step of 240 answers with these gaps, of which nobody says how many tokens each event brought."""
    records = [answer(i, i * 0.25, i * 0.25 + 0.1, gaps_s, token_source="events") for i in range(240)]
    run = run_of(step(0, 4.0, token_source="events", **times))
    run.table = Table.of(records)
    return run


def test_a_time_for_each_token_is_not_missed_where_events_count_as_tokens() -> None:
    times = {"itl_p99_s": 0.112, "itl_p99_low_s": 0.11, "itl_p99_high_s": 0.114}  # of events with five tokens each
    run = by_events([0.112] * 20, **times)
    result = judge(run, "p99(itl_s) < 0.1 @ rate <= 4")
    assert (result.status, result.value) == ("inconclusive", 0.112)
    assert result.reason == "the server sends no usage, and an event may carry several tokens"
    assert judge(run, "p99(itl_s) < 0.12 @ rate <= 4").status == "pass"
    counted = run_of(step(0, 4.0, token_source="usage", **times))
    assert judge(counted, "p99(itl_s) < 0.1 @ rate <= 4").status == "fail"


def test_a_buffer_that_releases_many_events_at_once_passes_no_limit_on_tokens() -> None:
    times = {"itl_p99_s": 0.001, "itl_p99_low_s": 0.001, "itl_p99_high_s": 0.001}
    run = by_events([1.0, *[0.001] * 199], **times)  # 1 event in 200, but perhaps 9 tokens in 208 beyond 100 ms
    result = judge(run, "p99(itl_s) < 0.1 @ rate <= 4")
    assert (result.status, result.value) == ("inconclusive", 0.001)
    assert judge(run, "p99(itl_s) < 1.1 @ rate <= 4").status == "pass"
    pooled = judge(run, "p99(itl_s) < 0.1")
    assert (pooled.status, pooled.reason) == (
        "inconclusive", "the server sends no usage, and an event may carry several tokens",
    )  # fmt: skip


def test_a_share_of_good_requests_that_is_not_known_is_open() -> None:
    why = "an event may carry several tokens: between 0 % and 100 % are good"
    run = run_of(step(0, 4.0, good_ratio=None, good_rps=None, good_n=240, reasons={"good_ratio": why}))
    for rule in ("good_ratio >= 0.9", "good_ratio < 0.9"):
        assert (judge(run, rule).status, judge(run, rule).reason) == ("inconclusive", why)
    assert judge(run, "good_rps > 1").status == "inconclusive"


def test_the_worst_step_decides_and_is_named() -> None:
    run = run_of(step(0, 4.0), step(1, 8.0, ttft_p99_s=0.5, ttft_p99_low_s=0.45, ttft_p99_high_s=0.55), step(2, 16.0))
    assert (judge(run, "p99(ttft_s) < 0.3 @ rate <= 16").status, judge(run, "p99(ttft_s) < 0.3 @ rate <= 16").step) == (
        "fail",
        1,
    )
    assert judge(run, "p99(ttft_s) < 0.3 @ rate <= 4").status == "pass"
    assert judge(run, "p99(ttft_s) < 0.6 @ rate > 4").step == 1


def test_an_unknown_value_is_open_with_its_reason() -> None:
    unknown = step(0, 4.0, ttft_p99_s=None, reasons={"ttft_p99_s": "60 requests cannot carry a p99"})
    result = judge(run_of(unknown), "p99(ttft_s) < 1 @ rate <= 8")
    assert (result.status, result.value, result.reason) == ("inconclusive", None, "60 requests cannot carry a p99")
    half = step(
        0, 4.0, ttft_p99_high_s=None, reasons={"ttft_p99_high_s": "no upper limit: needs about 80 more requests"}
    )
    result = judge(run_of(half), "p99(ttft_s) < 0.5 @ rate <= 8")
    assert (result.status, result.reason) == ("inconclusive", "no upper limit: needs about 80 more requests")
    assert judge(run_of(half), "p99(ttft_s) < 0.05 @ rate <= 8").status == "fail"  # the lower limit is enough


def test_a_rate_that_was_not_offered_and_a_void_step_never_pass() -> None:
    assert judge(run_of(step(0, 4.0)), "p99(ttft_s) < 1 @ rate = 8").reason == "no step at rate = 8"
    void = step(1, 8.0, void=True, reasons={"void": "late"})
    result = judge(run_of(step(0, 4.0), void), "p99(ttft_s) < 1 @ rate <= 8")
    assert (result.status, result.reason, result.step) == ("inconclusive", "void: late", 1)


def test_overload_can_only_get_slower() -> None:
    growing = overload(32.0, 16.0, step=3, stationary=False, ttft_p99_s=4.0, ttft_p99_low_s=None, ttft_p99_high_s=None,
                       ttft_p99_log_se=0.05, reasons={"stationary": "not stationary: no interval (queue)"})  # fmt: skip
    assert judge(run_of(growing), "p99(ttft_s) < 1 @ rate = 32").status == "fail"
    result = judge(run_of(growing), "p99(ttft_s) < 10 @ rate = 32")
    assert (result.status, result.reason) == ("inconclusive", "not stationary: no interval (queue)")
    assert result.low == pytest.approx(4.0 * np.exp(-0.098), rel=1e-3)


@pytest.mark.parametrize(("failed", "n", "rule", "status"), [
    (0, 3000, "error_ratio < 0.001", "pass"),
    (0, 2900, "error_ratio < 0.001", "inconclusive"),
    (4, 3000, "error_ratio < 0.001", "inconclusive"),
    (9, 3000, "error_ratio < 0.001", "fail"),
    (3, 300, "error_ratio < 0.05 @ rate = 4", "pass"),
])  # fmt: skip
def test_shares_have_binomial_limits(failed: int, n: int, rule: str, status: str) -> None:
    one = step(0, 4.0, requests=n, ok=n - failed, errors={"http_5xx": failed} if failed else {})
    assert judge(run_of(one), rule).status == status


def test_a_share_of_the_whole_run_adds_its_steps_up_and_says_what_it_takes() -> None:
    rows = [step(i, 4.0 + i, requests=700, ok=700) for i in range(4)]
    result = judge(
        run_of(*rows, step(4, 9.0, requests=700, void=True, reasons={"void": "late"})), "error_ratio < 0.001"
    )
    assert result.status == "inconclusive"
    assert result.reason.startswith("0 of 2800 failed: between 0 % and 0.107 %; 0.1 % takes 2,995 requests")
    good = judge(run_of(step(0, 4.0, good_ratio=0.5, good_n=400)), "good_ratio >= 0.9")
    assert (good.status, good.value) == ("fail", 0.5)


def found(rate: float, low: float | None = None, high: float | None = None, **more: Any) -> Estimate:
    return Estimate("found", rate, low, high, **more)


@pytest.mark.parametrize(("estimate", "status"), [
    (found(14.0, 13.0, 15.0), "pass"),
    (found(12.5, 11.5, 13.0), "inconclusive"),
    (found(10.0, 9.5, 10.5), "fail"),
    (found(14.0), "inconclusive"),
    (Estimate("not_found_up_to", 16.0, 16.0), "pass"),
    (Estimate("not_found_up_to", 8.0, 8.0), "inconclusive"),
    (Estimate("not_found_up_to", 16.0, 8.0), "inconclusive"),
    (Estimate("below_range", 3.0, 2.5, 3.5), "fail"),
    (Estimate("below_range", None, None, 4.0), "fail"),
    (Estimate("inconclusive", None, 13.0, None, reason="open"), "pass"),
    (Estimate("inconclusive", None, 8.0, None, reason="open"), "inconclusive"),
    (Estimate("not_measurable", reason="every request failed"), "inconclusive"),
])  # fmt: skip
def test_a_rate_is_judged_by_what_its_status_leaves(estimate: Estimate, status: str) -> None:
    assert judge(run_of(step(0, 4.0), ceiling=estimate), "ceiling_rps >= 12").status == status
    assert judge(run_of(step(0, 4.0), slo_capacity=estimate), "slo_capacity_rps >= 12").status == status
    assert judge(run_of(step(0, 4.0), p99_itl_knee=estimate), "knee_rps >= 12").status == status


def test_a_sustained_rate_is_what_a_soak_held() -> None:
    assert judge(run_of(step(0, 4.0), ceiling=found(16.0, sustained_rps=13.6)), "sustained_rps >= 13").status == "pass"
    assert judge(run_of(step(0, 4.0), ceiling=found(16.0)), "sustained_rps >= 13").reason == "no soak was quiet"


def test_numbers_without_an_interval_are_judged_as_they_are() -> None:
    run = run_of(step(0, 4.0, preemptions=1.0), step(1, 8.0, preemptions=2.0, waiting_max=7.0))
    assert judge(run, "preemptions <= 3").status == "pass"  # added up
    assert judge(run, "preemptions <= 2").status == "fail"
    assert judge(run_of(step(0, 4.0, preemptions=None)), "preemptions <= 0").reason == "the server did not show it"


def test_a_count_with_a_step_of_which_it_is_not_known_is_that_or_more() -> None:
    """What a restart of the server leaves: its counters say nothing of that step."""
    quiet = run_of(*(step(i, 4.0 * 2**i, preemptions=n) for i, n in enumerate((0.0, 0.0, None))))
    result = judge(quiet, "preemptions <= 0")
    assert (result.status, result.value, result.low, result.high) == ("inconclusive", 0.0, 0.0, None)
    assert result.reason == "at least 0: not known of 1 step"
    some = run_of(*(step(i, 4.0 * 2**i, preemptions=n) for i, n in enumerate((0.0, 3.0, None))))
    assert judge(some, "preemptions <= 2").status == "fail"
    assert judge(some, "preemptions <= 3").status == "inconclusive"
    cache = run_of(step(0, 4.0, kv_used_ratio_max=0.4), step(1, 8.0, kv_used_ratio_max=None))
    assert judge(cache, "kv_used_ratio_max < 0.9").status == "inconclusive"
    assert judge(cache, "kv_used_ratio_max > 0.3").status == "pass"


@pytest.mark.parametrize(("when_unsure", "status"), [
    ("inconclusive", "inconclusive"), ("pass", "pass"), ("fail", "fail"), ("point", "pass"),
])  # fmt: skip
def test_what_an_open_rule_comes_to_can_be_told(when_unsure: str, status: str) -> None:
    result = judge(run_of(step(0, 4.0)), "p99(ttft_s) < 0.105 @ rate = 4", when_unsure)
    assert result.status == status
    assert judge(run_of(step(0, 4.0)), "p99(ttft_s) < 0.2 @ rate = 4", when_unsure).status == "pass"


@pytest.mark.parametrize(("when_unsure", "status"), [
    ("inconclusive", "inconclusive"), ("pass", "inconclusive"), ("fail", "fail"), ("point", "inconclusive"),
])  # fmt: skip
def test_what_was_not_measured_is_never_a_pass(when_unsure: str, status: str) -> None:
    nothing = run_of(step(0, 4.0, ttft_p99_s=None), step(1, 16.0, void=True, reasons={"void": "late"}))
    for rule in ("p99(ttft_s) < 1 @ rate = 4", "p99(ttft_s) < 1 @ rate = 8", "p99(ttft_s) < 1 @ rate = 16",
                 "sustained_rps >= 3"):  # fmt: skip
        assert judge(nothing, rule, when_unsure).status == status, rule


def test_fail_outweighs_open_outweighs_pass() -> None:
    run = run_of(step(0, 4.0))
    rules = ["p99(ttft_s) < 1 @ rate = 4", "p99(ttft_s) < 0.105 @ rate = 4", "p99(ttft_s) < 0.01 @ rate = 4"]
    assert [overall(judge_gates(run, rules[:n])) for n in (1, 2, 3)] == ["pass", "inconclusive", "fail"]


LADDER = """
name = "ladder"
seed = 5
[prompts]
kind = "lognormal"
input_tokens = 100
output_tokens = 20
[ramp]
kind = "ladder"
rates = [10, 20]
warmup_s = 5
measure_s = 30
settle_s = 2
settle_requests = 0
tail_s = 2
"""


@pytest.fixture(scope="module")
def ramped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A quiet minute on simulated time."""
    return ramp_in_memory(scenario_of(LADDER), tmp_path_factory.mktemp("ladder"))


@pytest.mark.long
def test_a_percentile_of_the_whole_run_pools_every_value_and_averages_nothing(ramped: Run) -> None:
    result = judge(ramped, "p95(ttft_s) < 1")
    windows = [(r.window_begin_s, r.window_end_s) for r in ramped.rows]
    due = ramped.table.due_s
    inside = np.logical_or.reduce([(due >= begin) & (due < end) for begin, end in windows]) & ramped.table.ok
    assert result.value == pytest.approx(float(np.quantile(ramped.table.ttft_s[inside], 0.95)))
    assert result.low is not None and result.high is not None and result.low <= result.value <= result.high
    assert (result.status, result.step) == ("pass", None)
    tokens = judge(ramped, "mean(itl_s) < 1")
    means = [row.of("itl").mean.value for row in ramped.rows]
    assert tokens.value is not None and min(means) < tokens.value < max(means)


def test_the_verdict_obeys(ramped: Run) -> None:
    word = verdict(ramped)
    assert word == "pass"
    for rule, expected in (
        ("p50(ttft_s) < 1", "pass"),
        ("p50(ttft_s) < 1ms", "fail"),
        ("ceiling_rps > 20", "inconclusive"),
    ):
        ramped.gates = judge_gates(ramped, [rule])
        assert with_gates(word, ramped) == expected
        assert with_gates("void", ramped) == "void"
        assert with_gates("fail", ramped) == "fail"
    ramped.gates = []
    assert with_gates("inconclusive", ramped) == "inconclusive"


def test_a_row_of_several_repeats_stands_for_the_window_of_each_that_counts() -> None:
    """The soaks are rows of their own, and what a void repeat sent is in no figure."""
    ramps = [
        [row(4.0, repeat=k, step=2 * k, window_begin_s=600.0 * k + 40, window_end_s=600.0 * k + 100, void=k == 1),
         row(9.0 + k, repeat=k, step=2 * k + 1, role="soak", window_begin_s=600.0 * k + 110,
             window_end_s=600.0 * k + 410)]
        for k in range(3)
    ]  # fmt: skip
    climbed, soaked = pooled_rows(ramps)
    assert list(climbed.measured_windows) == [(40.0, 100.0), (1240.0, 1300.0)]
    assert list(soaked.measured_windows) == [(110.0, 410.0), (710.0, 1010.0), (1310.0, 1610.0)]
    assert list(row(4.0).measured_windows) == [(0.0, 60.0)]


def test_the_repeats_tell_what_one_step_near_the_ceiling_cannot() -> None:
    """Held back in each ramp (not stationary, not saturated); the interval over the repeats is judged."""
    held = {"role": "soak", "stationary": False, "ttft_p99_low_s": None, "ttft_p99_high_s": None}
    (soaked,) = pooled_rows([[step(k, 8.5, repeat=k, ttft_p99_s=0.1 + 0.001 * k, **held)] for k in range(3)])
    result = judge(run_of(soaked), "p99(ttft_s) < 0.2 @ soak")
    assert (result.status, result.reason) == ("pass", "")
    assert result.low == pytest.approx(0.0985, abs=1e-4)
    assert result.high == pytest.approx(0.1035, abs=1e-4)
    growing = {**held, "saturated": True}
    (grew,) = pooled_rows([[step(k, 8.5, repeat=k, ttft_p99_s=0.1 + 0.001 * k, **growing)] for k in range(3)])
    assert judge(run_of(grew), "p99(ttft_s) < 0.2 @ soak").status == "inconclusive"


def test_a_soak_of_the_default_ramp_can_pass() -> None:
    """Ceiling 28, soak of 300 s at 23.8 req/s: p99 ITL 50 ms (49 to 51) was open for ever."""
    soak = step(2, 23.8, role="soak", window_begin_s=200.0, window_end_s=500.0, itl_p99_s=0.05, itl_p99_low_s=0.049,
                itl_p99_high_s=0.051, ttft_p50_low_s=0.045, ttft_p50_high_s=0.055)  # fmt: skip
    run = run_of(step(0, 14.0), overload(56.0, 28.0, step=1), soak)
    run.rows = completed(run.rows)
    run.estimates = estimate(run.rows)
    assert run.estimates["ceiling"].rate_rps == pytest.approx(28.0, rel=0.03)
    for rule, status in (("p99(itl_s) < 0.5 @ soak", "pass"), ("p50(ttft_s) < 5 @ soak", "pass"),
                         ("p99(itl_s) < 0.04 @ soak", "fail"), ("p99(ttft_s) < 0.5 @ soak", "inconclusive"),
                         ("p99(ttft_s) < 5 @ soak", "pass")):  # fmt: skip
        assert judge(run, rule).status == status, rule


def lasting(rates: tuple[float, ...] = (4.0,)) -> Run:
    """Quiet steps of 60 s whose requests last 20 s and longer, so that neighbouring blocks of time share them."""
    rng = np.random.default_rng(11)
    records, steps = [], []
    for k, rate in enumerate(rates):
        begin_s = 300.0 * k
        steps.append(Step(k, rate_rps=rate, begin_s=begin_s, warmup_s=60.0, measure_s=60.0))
        due_s = begin_s + np.sort(rng.uniform(0.0, 120.0, round(120 * rate)))
        for due, first_s, gap_s in zip(due_s, rng.gamma(4.0, 0.05, len(due_s)), rng.gamma(9.0, 0.2, len(due_s)),
                                       strict=True):  # fmt: skip
            records.append(answer(len(records), float(due), float(due + first_s), [float(gap_s)] * 12, step=k))
    table = Table.of(records)
    return Run(RunInfo(), load(""), steps, table, rows=[fold(one, table) for one in steps])


@pytest.mark.parametrize("aggregate", ["mean", "p50", "p90", "p95"])
@pytest.mark.parametrize("metric", ["ttft", "itl", "e2e"])
def test_a_single_step_without_a_place_has_the_interval_that_its_row_prints(metric: str, aggregate: str) -> None:
    run = lasting()
    (one,) = run.rows
    result = judge(run, f"{aggregate}({metric}_s) < 1000")
    stem = f"{metric}_{aggregate}"
    found = one.statistic(stem)
    assert (result.value, result.low, result.high) == (found.value, found.low, found.high)
    assert result.low is not None


def test_all_steps_together_vary_at_least_as_one_block_carries_over_to_the_next() -> None:
    values = np.linspace(1.0, 2.0, 600)
    parts = [pool(values, np.linspace(0.0, 59.9, 600), (0.0, 60.0), "requests", carry=carry) for carry in (1.0, 3.0)]
    assert joined(parts).carry == 3.0
    assert joined(parts).blocks == 24


def test_all_steps_together_state_no_interval_that_one_of_them_withholds() -> None:
    """The ceiling is 10 req/s, by failures: no queue grew. TTFT's mean and p99 are withheld above 5, everything above
    7.5. Where a queue grew, what all steps show is a lower limit."""
    run = lasting((2.0, 5.5, 20.0))
    assert judge(run, "p95(ttft_s) < 1000").status == "pass"
    run.rows[2] = changed(run.rows[2], errors={"http_429": 600}, ok=600, error_ratio=0.5, overloaded=True)
    run.rows = completed(run.rows)
    assert [row.stationary for row in run.rows] == [True, True, False]
    for rule in ("p95(ttft_s) < 1000", "mean(ttft_s) < 1000", "p50(itl_s) < 1000", "p95(ttft_s) < 0.001"):
        result = judge(run, rule)
        assert (result.status, result.low, result.high) == ("inconclusive", None, None), rule
        assert result.reason.startswith("the run holds steps too near the ceiling for an interval: ")
    assert judge(run, "p95(ttft_s) < 0.001 @ rate = 20").low is None
    run.rows[2] = changed(run.rows[2], saturated=True, deficit=True)
    assert judge(run, "p95(ttft_s) < 1000").reason.startswith("the run holds steps whose queue still grew: ")
    assert judge(run, "p95(ttft_s) < 0.001").status == "fail"


@pytest.mark.parametrize(("rule", "code", "word"), [
    ("p50(ttft_s) < 1 @ rate <= 20", 0, "pass"), ("p50(ttft_s) < 1ms @ rate <= 20", 99, "fail"),
    ("error_ratio < 1e-6", 3, "inconclusive"),
])  # fmt: skip
def test_a_run_s_exit_code_obeys_the_scenario_s_thresholds(ramped: Run, rule: str, code: int, word: str) -> None:
    path = Path(ramped.path)
    (path / "scenario.toml").write_text(LADDER + f'[gates]\nrules = ["{rule}"]\n')
    assert write_report(path).exit_code == code
    document = json.loads((path / "verdict.json").read_text())
    assert (document["verdict"], document["gates"][0]["status"]) == (word, word)
    assert "## Thresholds" in (path / "summary.md").read_text()
    assert judge_stored(path, rules=["ceiling_rps > 0"]).run.info.verdict == "pass"


def gate(path: Path, *rules: str) -> int:
    """``loadramp gate`` in this process: its exit code."""
    with pytest.raises(SystemExit) as left:
        main(["gate", str(path), *(word for rule in rules for word in ("--slo", rule))])
    return int(left.value.code or 0)


HOLDS = "p50(ttft_s) < 1 @ rate <= 20"


def test_a_run_that_fails_by_itself_keeps_its_exit_code_whatever_is_asked_of_it(
    ramped: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(ramped.path)
    (path / "scenario.toml").write_text(LADDER + "[slo]\nttft_s = 0.000001\nquantile = 0.5\n")
    assert write_report(path).exit_code == 99
    assert gate(path, HOLDS) == 99
    assert capsys.readouterr().out.splitlines()[1].startswith("the run itself: ")
    (path / "scenario.toml").write_text(LADDER)
    assert gate(path, HOLDS) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert gate(path, HOLDS, "p50(ttft_s) < 1ms @ rate <= 20") == 99
    assert gate(path, HOLDS, "p50(ttft_s) < 1 @ rate = 30") == 3


def test_a_run_that_could_not_be_measured_stays_so(ramped: Run, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(ramped.path)
    (path / "scenario.toml").write_text(LADDER)
    before = (path / "run.json").read_text()
    gone = {"ending": "the endpoint stopped answering", "stop_cause": "gone"}
    (path / "run.json").write_text(json.dumps(json.loads(before) | gone))
    try:
        assert write_report(path).exit_code == 1
        assert gate(path, HOLDS) == 1
    finally:
        (path / "run.json").write_text(before)
    assert "the run itself: " in capsys.readouterr().out


def test_gates_in_words_and_data(ramped: Run) -> None:
    ramped.gates = judge_gates(ramped, ["p50(ttft_s) < 1ms @ rate = 10", "error_ratio < 0.0001", "ceiling_rps >= 5"])
    lines = [gate_line(gate) for gate in ramped.gates]
    assert lines[0].startswith("✗ fail: p50(ttft_s) < 1ms @ rate = 10: ")
    assert " ms (" in lines[0]
    assert lines[1].startswith("? inconclusive: error_ratio < 0.0001: 0 % (0 % to ")
    assert lines[2].startswith("✓ pass: ceiling_rps >= 5: 20 req/s (20 req/s to unknown)")
    document = gates_document(ramped)
    assert [one["status"] for one in document] == ["fail", "inconclusive", "pass"]
    assert set(document[0]) == {"rule", "status", "value", "low", "high", "limit", "step", "reason"}
    section = gates_section(ramped)
    assert section is not None and "p50(ttft_s) &lt; 1ms @ rate = 10" in section
    ramped.gates = []
    assert gates_section(ramped) is None


def near(**columns: Any) -> Row:
    """A step near the ceiling: values, and no interval."""
    plain: dict[str, Any] = {
        "stationary": False, "requests": 480, "ttft_p50_s": 0.0669, "ttft_p50_low_s": None, "ttft_p50_high_s": None,
        "ttft_p95_s": 0.18, "ttft_p99_low_s": None, "ttft_p99_high_s": None,
        "reasons": {"stationary": "no interval: this near the ceiling"},
    }  # fmt: skip
    return step(0, 8.0, **(plain | columns))


@pytest.mark.parametrize(("rule", "columns", "status", "high"), [
    ("p50(ttft_s) < 0.8 @ rate = 8", {}, "pass", 0.36),
    ("p50(ttft_s) < 0.8 @ rate = 8", {"ttft_p95_s": 0.07}, "pass", 4 * 0.0669),
    ("p50(ttft_s) < 0.3 @ rate = 8", {}, "inconclusive", 0.36),  # not far enough from what its p95 says
    ("p50(ttft_s) < 0.05 @ rate = 8", {}, "inconclusive", 0.36),  # nothing bounds it from below
    ("p50(ttft_s) < 0.8 @ rate = 8", {"ttft_p95_s": None}, "inconclusive", None),
    ("p50(ttft_s) < 0.8 @ rate = 8", {"requests": 60}, "inconclusive", None),
    ("p50(ttft_s) < 0.8 @ rate = 8", {"saturated": True}, "inconclusive", None),  # its queue still grew
    ("p99(ttft_s) < 9 @ rate = 8", {"ttft_p99_s": 0.25}, "pass", 8 * 0.25),
    ("p99(ttft_s) < 1.9 @ rate = 8", {"ttft_p99_s": 0.25}, "inconclusive", 8 * 0.25),
    ("p95(ttft_s) < 2 @ rate = 8", {"ttft_p99_s": 0.25}, "pass", 8 * 0.18),
    ("p95(ttft_s) < 2 @ rate = 8", {"ttft_p99_s": 0.4}, "pass", 4 * 0.4),
    ("p90(ttft_s) < 2 @ rate = 8", {"ttft_p90_s": 0.1, "ttft_p99_s": None}, "inconclusive", None),
    ("p99(itl_s) < 0.2 @ rate = 8", {"itl_p99_s": 0.04}, "pass", 4 * 0.04),
    ("p99(itl_s) < 0.15 @ rate = 8", {"itl_p99_s": 0.04}, "inconclusive", 4 * 0.04),
    ("mean(ttft_s) < 9 @ rate = 8", {"ttft_mean_s": 0.1}, "inconclusive", None),
    ("p99(all_ttft_s) < 9 @ rate = 8", {"all_ttft_p99_s": 0.1}, "inconclusive", None),  # failures have no end
    ("p50(ttft_s) < 0.8 @ rate = 8", {"partial": True}, "inconclusive", None),
    ("p50(ttft_s) > 0.01 @ rate = 8", {}, "inconclusive", 0.36),
])  # fmt: skip
def test_a_latency_far_below_its_limit_is_decided_without_an_interval(
    rule: str, columns: dict[str, Any], status: str, high: float | None
) -> None:
    result = judge(run_of(near(**columns)), rule)
    assert result.status == status
    assert result.high == (None if high is None else pytest.approx(high))


@pytest.mark.parametrize(("ceiling_rps", "itl", "ttft"), [(10.0, "pass", "pass"), (8.5, "pass", "inconclusive")])
def test_what_waits_in_the_queue_is_not_bounded_just_below_the_ceiling(ceiling_rps: float, itl: str, ttft: str) -> None:
    """At 0.94 of the ceiling a step of a minute says nothing about how long others will wait."""
    run = run_of(near(itl_p99_s=0.04, ttft_p99_s=0.2, e2e_p99_s=1.0))
    run.estimates = {"ceiling": Estimate("found", ceiling_rps)}
    assert judge(run, "p99(itl_s) < 0.8 @ rate = 8").status == itl
    for rule in ("p50(ttft_s) < 0.8 @ rate = 8", "p99(ttft_s) < 9 @ rate = 8", "p99(e2e_s) < 30 @ rate = 8"):
        assert judge(run, rule).status == ttft


def test_gate_writes_junit_and_export_takes_thresholds(ramped: Run, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "gate.xml"
    rules = ["--slo", "p50(ttft_s) < 0.000001", "--slo", "error_ratio < 0.9"]
    with pytest.raises(SystemExit) as left:
        main(["gate", ramped.path, *rules, "--junit", str(out)])
    assert left.value.code == 99
    for text in (out.read_text(), exported(Path(ramped.path), "junit", rules[1::2])["junit.xml"]):
        cases = {case.name: case for suite in JUnitXml.fromstring(str(text).encode()) for case in suite}
        assert isinstance(cases["p50(ttft_s) < 0.000001"].result[0], Failure)
        assert cases["error_ratio < 0.9"].is_passed
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main(["export", ramped.path, "--format", "junit", "--slo", "speed > 1"])
    assert left.value.code == 2
    assert "no metric 'speed'" in capsys.readouterr().err
    with pytest.raises(SystemExit) as left:
        main(["gate", ramped.path, *rules, "--junit", str(tmp_path / "gate.xml" / "below.xml")])
    assert left.value.code not in {0, 99}


@pytest.mark.parametrize(
    ("rule", "value", "shown"),
    [
        ("output_tokens_per_s >= 300", 312.4, "312 tokens/s"),
        ("p99(ttft_s) < 0.8", 0.7123, "712 ms"),
        ("ceiling_rps >= 12", 15.94, "15.9 req/s"),
        ("stalled_ratio < 0.1", 0.021, "2.1 %"),
        ("preemptions < 5", 3.0, "3"),
    ],
)
def test_each_value_is_told_in_the_unit_of_its_metric(rule: str, value: float, shown: str) -> None:
    assert gate_line(GateResult(rule, parse(rule).name, "pass", value, value, value, 1.0)) == f"✓ pass: {rule}: {shown}"
