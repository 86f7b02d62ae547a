from itertools import pairwise

import pytest
from curve_rows import changed
from records_and_rows import overload, row

from benchmarks.detectors import DETECTORS
from loadramp.analysis.itl_knee import KNEES, completed, elasticity, envelope, estimate, p99_itl_knee
from loadramp.record.row import Row

DOUBLING = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


def curve(p99_ms: list[float], rates: tuple[float, ...] = DOUBLING, **columns: object) -> list[Row]:
    return [row(rate, itl_p99_s=ms / 1e3, **columns) for rate, ms in zip(rates, p99_ms, strict=False)]


def test_a_flat_curve_has_no_knee() -> None:
    found = p99_itl_knee(curve([20, 20, 21, 20, 20]))
    assert (found.status, found.rate_rps) == ("not_found_up_to", 16.0)


def test_a_linear_curve_has_no_knee() -> None:
    assert p99_itl_knee(curve([10, 20, 40, 80, 160])).status == "not_found_up_to"


def test_super_linear_growth_is_a_knee_at_its_last_step_before() -> None:
    found = p99_itl_knee(curve([20, 22, 24, 80, 300]))
    assert (found.status, found.rate_rps, found.low_rps, found.high_rps) == ("found", 4.0, 4.0, 8.0)
    assert found.cause == "capacity"
    assert "from 4 to 8 req/s p99 ITL grows from 24 to 80 ms, elasticity 1.7" in found.reason


def test_beside_the_knee_stands_how_the_median_ttft_grows() -> None:
    medians_ms = (50, 50, 50, 200, 800)
    rows = [changed(r, ttft_p50_s=ms / 1e3) for r, ms in zip(curve([20, 22, 24, 80, 300]), medians_ms, strict=True)]
    assert "that of the median TTFT 2)" in p99_itl_knee(rows).reason


def test_st09_one_bad_step_is_not_a_knee_and_is_listed() -> None:
    found = p99_itl_knee(curve([100, 102, 900, 104, 106, 109, 300, 900, 2500]))
    assert found.status == "found"
    assert found.rate_rps == DOUBLING[5]  # the sixth step, from which the seventh rises
    assert "one high step at 4 req/s (hiccup)" in found.reason


def test_growth_that_its_interval_does_not_show_is_no_knee() -> None:
    assert p99_itl_knee(curve([20, 22, 24, 60, 140], itl_p99_log_se=0.4)).status == "not_found_up_to"


def test_a_knee_is_never_printed_at_the_first_step() -> None:
    found = p99_itl_knee(curve([8, 38, 40, 41, 42]))
    assert (found.status, found.rate_rps, found.high_rps) == ("below_range", None, 1.0)
    assert "start lower" in found.reason
    later = p99_itl_knee(curve([8, 38, 40, 130, 400]))
    assert (later.status, later.rate_rps) == ("found", 4.0)


def test_a_rise_that_only_the_last_quiet_step_shows_is_inconclusive() -> None:
    rows = curve([20, 21, 22, 90])
    found = p99_itl_knee(rows)
    assert (found.status, found.low_rps) == ("inconclusive", 4.0)
    rows[-1] = changed(rows[-1], saturated=True, deficit=True)
    assert p99_itl_knee(rows).status == "found"


def test_prefills_that_lift_p99_but_not_the_median_are_named() -> None:
    rows = curve([10, 11, 12, 40, 60], itl_p50_s=0.008, prefill_share=0.9)
    found = p99_itl_knee(rows)
    assert (found.status, found.cause) == ("found", "prefill_mixing")
    assert "prefill mixing, not capacity" in found.reason
    follows = [changed(r, itl_p50_s=(r.of("itl").p99.value or 0.0) / 2) for r in rows]
    assert p99_itl_knee(follows).cause == "capacity"


def test_p99_itl_that_falls_again_under_overload_is_no_knee() -> None:
    # vLLM limited to 64 sequences on one H200: TTFT explodes while p99 ITL stays flat
    p99_ms = [40.6, 55.1, 47.8, 48.4, 52.6, 36.5]
    rows = curve(p99_ms, (2.0, 8.0, 12.0, 16.0, 20.0, 28.0))
    rows[-2:] = [overload(20.0, 15.2, itl_p99_s=0.0526), overload(28.0, 15.9, itl_p99_s=0.0365)]
    assert p99_itl_knee(rows).status == "not_found_up_to"


def test_steps_without_a_p99_are_passed_over() -> None:
    rows = curve([20, 22, 24, 80, 300])
    rows[0] = changed(rows[0], itl_p99_s=None)
    assert p99_itl_knee(rows).rate_rps == 4.0
    assert p99_itl_knee(rows[:2]).status == "not_measurable"
    assert p99_itl_knee([]).status == "not_measurable"


def test_void_steps_are_passed_over() -> None:
    rows = curve([20, 22, 24, 80, 300])
    rows[3:] = [changed(one, void=True) for one in rows[3:]]
    assert p99_itl_knee(rows).status == "not_found_up_to"


def test_the_envelope_never_falls() -> None:
    low = [r.of("itl").p99.value for r in envelope(curve([100, 102, 900, 104, 300, 200]))]
    assert low == pytest.approx([0.1, 0.102, 0.104, 0.104, 0.2, 0.2])
    assert all(a <= b for a, b in pairwise(low))


def test_elasticity_is_the_slope_in_logarithms_with_its_standard_error() -> None:
    one = elasticity(row(2.0, itl_p99_s=0.02, itl_p99_log_se=0.03), row(4.0, itl_p99_s=0.08, itl_p99_log_se=0.04))
    assert one is not None
    assert one.value == pytest.approx(2.0)
    assert one.se == pytest.approx(0.05 / 0.6931, rel=1e-3)
    assert elasticity(row(2.0), row(2.0)) is None


def test_estimate_gives_three_numbers_and_fills_the_elasticities() -> None:
    rows = [row(2.0, itl_p99_s=0.02), row(4.0, itl_p99_s=0.03), overload(8.0, 5.5, itl_p99_s=0.15)]
    rows = completed(rows)
    found = estimate(rows)
    assert set(found) == {"ceiling", "p99_itl_knee", "slo_capacity"}
    assert found["ceiling"].rate_rps == pytest.approx(5.5, rel=0.01)
    assert found["p99_itl_knee"].rate_rps == 4.0
    assert found["slo_capacity"].status == "not_measurable"
    assert rows[0].p99_itl_elasticity == pytest.approx(0.585, abs=0.001)
    assert rows[-1].p99_itl_elasticity is None


def test_another_detector_may_answer_for_the_ceiling() -> None:
    rows = [row(2.0), row(4.0), overload(8.0, 5.5)]
    found = estimate(rows, knee=DETECTORS["completions"])
    assert found["ceiling"].detector == "completions"
    assert (found["ceiling"].low_rps, found["ceiling"].high_rps) == (4.0, 8.0)


@pytest.mark.parametrize("kind", ["ceiling", *sorted(DETECTORS)])
def test_every_detector_answers_every_curve(kind: str) -> None:
    failed = row(1.0, ok=0, error_ratio=1.0, throughput_rps=0.0, itl_p99_s=None, itl_p50_s=None, ttft_p50_s=None)
    for rows in ([], [row(1.0)], [failed, failed], [overload(4.0, 2.0)], [row(1.0, void=True)],
                 [row(rate) for rate in DOUBLING], [row(2.0), row(2.0), row(2.0), row(2.0), row(2.0)],
                 curve([30, 20, 40, 10, 50]), [*curve([20, 22, 24, 80]), overload(16.0, 9.0)]):  # fmt: skip
        found = {**KNEES, **DETECTORS}[kind](rows)
        assert found.reason
        assert found.rate_rps is None or found.rate_rps > 0
