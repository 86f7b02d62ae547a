"""Several ramps: pooled on literal numbers, and a whole run of three in memory."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
from curve_rows import row_of
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.analysis.repeats import by_repeat, not_enough, pooled_estimates, pooled_rows, spread_of
from loadramp.record.row import Row
from loadramp.record.types import Estimate
from loadramp.report import build_html, verdict_document
from loadramp.simulator.profiles import PROFILES


def found(rate_rps: float, half: float = 0.03, sustained: float | None = None) -> dict[str, Estimate]:
    ceiling = Estimate("found", rate_rps, rate_rps * exp(-half), rate_rps * exp(half), "ceiling", "queue", sustained)
    none = Estimate("not_found_up_to", 32.0, reason="flat")
    return {"ceiling": ceiling, "p99_itl_knee": none, "slo_capacity": none}


def test_the_interval_over_repeats_is_student_s_on_the_log_scale() -> None:
    """ln 9, 10, 11: sd 0.1003 over 3; t(.975, 2) = 4.303; half-width 0.2493."""
    spread = spread_of([9.0, 10.0, 11.0])
    assert spread is not None
    assert spread.mean == pytest.approx((9 * 10 * 11) ** (1 / 3))
    assert spread.log_sd == pytest.approx(0.10034, abs=1e-4)
    assert spread.half_width == pytest.approx(0.2493, abs=1e-3)
    assert spread_of([None, -1.0]) is None


def test_estimates_are_pooled_and_the_lowest_soak_counts() -> None:
    each = [found(10.0, sustained=8.5), found(10.2, sustained=8.67), found(9.9, sustained=8.4)]
    pooled = pooled_estimates(each)
    assert pooled["ceiling"].rate_rps == pytest.approx(10.03, abs=0.01)
    assert pooled["ceiling"].low_rps == pytest.approx(9.65, abs=0.02)
    assert pooled["ceiling"].high_rps == pytest.approx(10.42, abs=0.02)
    assert pooled["ceiling"].sustained_rps == 8.4
    assert pooled["p99_itl_knee"].status == "not_found_up_to"
    assert pooled["p99_itl_knee"].reason == "found in 0 of 3 repeats; else: flat"


def test_a_number_found_in_a_minority_of_repeats_is_not_found() -> None:
    none = {name: Estimate("not_found_up_to", 64.0, reason="quiet") for name in found(1.0)}
    pooled = pooled_estimates([found(10.0), none, none])
    assert pooled["ceiling"].status == "not_found_up_to"
    assert pooled["ceiling"].reason.startswith("found in 1 of 3 repeats")


def test_repeats_too_far_apart_have_no_interval() -> None:
    pooled = pooled_estimates([found(6.0), found(10.0), found(16.0)])["ceiling"]
    assert pooled.rate_rps == pytest.approx(9.87, abs=0.01)
    assert (pooled.low_rps, pooled.high_rps) == (None, None)
    assert "too far apart" in pooled.reason


def test_repeats_that_agree_by_chance_are_no_surer_than_what_they_state_together() -> None:
    """Two of +-0.3 on the log scale: the mean has +-0.3 / sqrt(2) = 0.2121, though they lie 0.007 % apart."""
    pooled = pooled_estimates([found(10.0, 0.3), found(10.001, 0.3)])["ceiling"]
    assert log((pooled.high_rps or 0.0) / (pooled.rate_rps or 1.0)) == pytest.approx(0.2121, abs=1e-4)
    ends = {"itl_p99_s": 0.05, "itl_p99_low_s": 0.05 * exp(-0.2), "itl_p99_high_s": 0.05 * exp(0.2)}
    (one,) = pooled_rows([[row(0, **ends)], [row(1, **ends)], [row(2, itl_p99_s=0.05)]])
    assert log(one.of("itl").p99.high / one.of("itl").p99.value) == pytest.approx(0.2 / 3**0.5)


def test_ramps_that_speak_of_the_long_run_need_no_t_of_their_scatter() -> None:
    """9.5 and 10.5 of +-0.3: sd 0.0708, of 0.153 stated: +-0.2121. Those far apart: Student's t."""
    of_long_run = {"ceiling": replace(found(9.5, 0.3)["ceiling"], interval_of="long_run")}
    like = {"ceiling": replace(found(10.5, 0.3)["ceiling"], interval_of="long_run")}
    minutes = found(10.5, 0.3)
    (near, mixed) = (pooled_estimates([of_long_run, other])["ceiling"] for other in (like, minutes))
    assert log((near.high_rps or 0.0) / (near.low_rps or 1.0)) / 2 == pytest.approx(0.2121, abs=1e-4)
    assert log((mixed.high_rps or 0.0) / (mixed.low_rps or 1.0)) / 2 == pytest.approx(
        12.706 * 0.07077 / 2**0.5, rel=1e-3
    )
    far = {"ceiling": replace(found(18.0, 0.3)["ceiling"], interval_of="long_run")}
    assert pooled_estimates([of_long_run, far])["ceiling"].low_rps is None


def test_a_wide_interval_is_printed_and_not_left_to_those_that_agree_by_chance() -> None:
    """ln 8, 10, 12: sd 0.2030; t(.975, 2) = 4.303; half-width 0.504."""
    pooled = pooled_estimates([found(8.0), found(10.0), found(12.0)])["ceiling"]
    assert pooled.low_rps == pytest.approx(9.865 * exp(-0.5043), rel=1e-3)


def test_it_says_when_one_run_was_not_enough() -> None:
    assert not_enough([found(r) for r in (10.0, 10.1, 9.9, 10.05, 9.95)]) == ""
    scatter = not_enough([found(r) for r in (8.0, 10.0, 12.0, 9.0, 11.0)])
    assert scatter.endswith("one run was not enough")
    assert not_enough([found(8.0), found(12.0)]) == ""  # two tell nothing of a spread


def row(repeat: int, **columns: Any) -> Row:
    base: dict[str, Any] = {
        "step": repeat * 3, "repeat": repeat, "role": "step", "rate_rps": 4.0, "users": None, "requests": 100, "ok": 99,
        "errors": {"reset": 1}, "itl_p99_s": 0.05, "itl_p99_low_s": None, "itl_p99_high_s": None, "saturated": False,
        "void": False, "signals": ["queue"], "reasons": {"itl_p99_high_s": "too few"}, "output_tokens_per_s": 300.0,
        "throughput_blocks": [1.0, 2.0], "window_begin_s": 40.0 + 600 * repeat, "window_end_s": 100.0 + 600 * repeat,
    }  # fmt: skip
    return row_of(**{**base, **columns})


def test_rows_of_one_load_become_one() -> None:
    groups = [[row(0)], [row(1, itl_p99_s=0.052, saturated=True, signals=[])], [row(2, itl_p99_s=0.049, requests=120)]]
    (pooled,) = pooled_rows(groups)
    assert (pooled.requests, pooled.ok, pooled.errors, pooled.repeats) == (320, 297, {"reset": 3}, 3)
    assert pooled.of("itl").p99.value == pytest.approx(exp((log(0.05) + log(0.052) + log(0.049)) / 3))
    assert pooled.of("itl").p99.low < pooled.of("itl").p99.value < pooled.of("itl").p99.high
    assert pooled.reasons == {}
    assert pooled.saturated is False
    assert pooled.signals == ["queue"]
    assert pooled.throughput_blocks == [1.0, 2.0] * 3


def test_the_windows_of_the_repeats_are_kept_and_not_averaged() -> None:
    (pooled,) = pooled_rows([[row(0)], [row(1)]])
    assert pooled.windows == [(40.0, 100.0), (640.0, 700.0)]
    assert (pooled.window_begin_s, pooled.window_end_s) == (40.0, 100.0)
    (rest,) = pooled_rows([[row(0, void=True)], [row(1)]])
    assert rest.windows == [(640.0, 700.0)]


def test_the_slo_s_own_quantile_is_pooled_as_the_others_are() -> None:
    """sqrt(0.1 x 0.4) = 0.2, not 0.25; near each other they have an interval, far apart the reason."""
    far = [[row(k, slo_ttft_s=v, slo_ttft_low_s=None, slo_ttft_high_s=None)] for k, v in enumerate((0.1, 0.4))]
    (pooled,) = pooled_rows(far)
    assert pooled.statistic("slo_ttft").value == pytest.approx(0.2)
    assert pooled.statistic("slo_ttft").high is None
    assert "apart" in pooled.reasons["slo_ttft_high_s"]
    near = [[row(k, slo_itl_s=v, slo_itl_low_s=None, slo_itl_high_s=None)] for k, v in enumerate((0.1, 0.1002))]
    (pooled,) = pooled_rows(near)
    assert pooled.statistic("slo_itl").low < pooled.statistic("slo_itl").value < pooled.statistic("slo_itl").high


def test_what_the_server_counted_is_not_known_where_one_repeat_does_not_know_it() -> None:
    known, restarted = row(0, preemptions=4.0, waiting_max=2.0), row(1, preemptions=None, waiting_max=4.0)
    for groups in ([[known], [restarted]], [[restarted], [known]]):
        (pooled,) = pooled_rows(groups)
        assert (pooled.preemptions, pooled.waiting_max) == (None, 3.0)


def test_void_rows_are_left_out_unless_all_are() -> None:
    (pooled,) = pooled_rows([[row(0, void=True, itl_p99_s=9.0)], [row(1)]])
    assert pooled.of("itl").p99.value == pytest.approx(0.05)
    assert pooled.repeats == 1
    (void,) = pooled_rows([[row(0, void=True)], [row(1, void=True)]])
    assert void.void


def test_soaks_of_slightly_different_rates_become_one_row_at_the_end() -> None:
    groups = [[row(i), row(i, role="soak", rate_rps=8.0 + i)] for i in range(2)]
    assert [(r.role, r.rate_rps) for r in pooled_rows(groups)] == [("step", 4.0), ("soak", 8.5)]
    assert [len(g) for g in by_repeat([r for group in groups for r in group])] == [2, 2]


def test_a_soak_after_an_overloaded_one_is_no_repeat_of_it() -> None:
    groups = [[row(0), row(0, role="soak", rate_rps=8.5), row(0, role="soak", rate_rps=7.0)],
              [row(1), row(1, role="soak", rate_rps=8.9)]]  # fmt: skip
    soaks = [(one.rate_rps, one.repeats) for one in pooled_rows(groups) if one.role == "soak"]
    assert soaks == [(pytest.approx(8.7), 2), (7.0, 1)]


def test_two_ramps_in_one_run(tmp_path: Path) -> None:
    text = (
        'seed = 4\n[prompts]\nkind = "fixed"\ninput_tokens = 40\noutput_tokens = 12\n[ramp]\nstart_rps = 6\n'
        "soak_s = 10\nwarmup_s = 3\nmeasure_s = 12\nsettle_s = 2\nsettle_requests = 0\ntail_s = 0\n"
    )
    run = ramp_in_memory(scenario_of(text), tmp_path, replace(PROFILES["small"], max_num_seqs=4), repeats=2)
    rates = [each["ceiling"].rate_rps for each in run.repeats]
    assert len(rates) == 2
    assert None not in rates
    assert rates[0] != rates[1]  # each ramp has arrivals of its own
    ceiling = run.estimates["ceiling"]
    assert ceiling.status == "found"
    assert min(r or 0.0 for r in rates) <= (ceiling.rate_rps or 0.0) <= max(r or 0.0 for r in rates)
    assert [row.role for row in run.rows].count("soak") == 1
    assert {row.repeats for row in run.rows} <= {1, 2}
    assert len(verdict_document(run)["repeats"]) == 2
    assert verdict_document(run)["ceiling"]["interval_of"] == "these_minutes"  # a steady engine may not stay so
    html = build_html(run)
    assert "their ceilings lie" in html
    assert "of overload: " in html
