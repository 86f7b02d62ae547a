from curve_rows import changed
from records_and_rows import overload, row

from loadramp.analysis.interval_policy import NEAR_TTFT_RATIOS, SOAK_KEEPS, gives, hold_back
from loadramp.analysis.itl_knee import completed
from loadramp.record.row import Row
from loadramp.record.types import Estimate


def measured(rate_rps: float) -> Row:
    limits = {"itl_p99_low_s": 0.019, "itl_p99_high_s": 0.021, "ttft_p99_low_s": 0.09, "ttft_p99_high_s": 0.12}
    return row(rate_rps, stationary=True, reasons={}, ttft_p50_low_s=0.04, ttft_p50_high_s=0.06, **limits)


def test_intervals_go_above_three_quarters_of_the_ceiling() -> None:
    rows = [measured(4.0), measured(8.5)]
    rows = hold_back(rows, Estimate("found", 10.0))
    assert rows[0].of("itl").p99.low == 0.019
    assert rows[0].stationary
    assert (rows[1].of("itl").p99.low, rows[1].of("ttft").p50.high, rows[1].of("itl").p99.value) == (None, None, 0.020)
    assert not rows[1].stationary
    assert rows[1].reasons["stationary"].startswith("no interval: this near the ceiling (10 req/s)")


def test_tails_of_ttft_lose_theirs_from_three_fifths_on() -> None:
    one = changed(measured(7.0), ttft_p95_low_s=0.08, ttft_p95_high_s=0.1)
    (one,) = hold_back([one], Estimate("found", 10.0))
    assert (one.of("ttft").p95.low, one.of("ttft").p95.high) == (None, None)
    assert (one.of("ttft").p99.low, one.of("ttft").p99.high) == (None, None)
    assert (one.of("ttft").p50.low, one.of("itl").p99.high) == (0.04, 0.021)
    assert one.reasons["ttft_p95_high_s"].startswith("no interval: rare queues make it")


def test_mean_and_p99_of_ttft_lose_theirs_from_half_the_ceiling_on() -> None:
    more = {"ttft_p95_high_s": 0.1, "ttft_mean_low_s": 0.04, "ttft_mean_high_s": 0.05, "all_ttft_p99_high_s": 0.2}
    rows = [changed(measured(5.0), **more), changed(measured(5.5), **more)]
    rows = hold_back(rows, Estimate("found", 10.0))
    assert (rows[0].of("ttft").mean.high, rows[0].of("ttft").p99.high) == (0.05, 0.12)
    gone = ("ttft_mean_low_s", "ttft_mean_high_s", "ttft_p99_high_s", "all_ttft_p99_high_s")
    assert [rows[1].number(name) for name in gone] == [None] * 4
    assert rows[1].of("ttft").p95.high == 0.1
    assert set(rows[1].reasons) == {"ttft_mean_high_s", "ttft_p99_high_s", "all_ttft_p99_high_s"}


def test_without_a_ceiling_nothing_is_held_back() -> None:
    one = measured(9.0)
    (one,) = hold_back([one], Estimate("not_found_up_to", 9.0))
    assert one.of("itl").p99.low == 0.019


def test_completed_rows_have_no_interval_near_the_ceiling() -> None:
    rows = completed([measured(4.0), measured(9.0), overload(20.0, 10.0)])
    assert rows[1].of("itl").p99.low is None
    assert rows[0].of("itl").p99.low == 0.019


def soaked(rate_rps: float, measure_s: float = 300.0) -> Row:
    more = {f"{name}_{end}_s": value for name in ("itl_p50", "itl_p90", "tpot_p95", "ttft_p90", "e2e_p95", "slo_itl")
            for end, value in (("low", 0.01), ("high", 0.02))}  # fmt: skip
    window = {"role": "soak", "window_begin_s": 40.0, "window_end_s": 40.0 + measure_s}
    return changed(measured(rate_rps), **more, **window)


def test_a_long_soak_keeps_the_intervals_that_five_minutes_carry() -> None:
    one = soaked(8.5)
    (one,) = hold_back([one], Estimate("found", 10.0))
    kept = ("itl_p90", "itl_p99", "tpot_p95", "ttft_p50")
    assert all(one.number(f"{name}_{end}_s") is not None for name in kept for end in ("low", "high"))
    gone = ("itl_p50", "ttft_p90", "ttft_p99", "e2e_p95", "slo_itl")
    assert [one.number(f"{name}_{end}_s") for name in gone for end in ("low", "high")] == [None] * 10
    assert one.stationary
    one = changed(soaked(8.5), ttft_p99_high_s=None, reasons={"ttft_p99_high_s": "needs about 5615 more requests"})
    (one,) = hold_back([one], Estimate("found", 10.0))
    for name in ("itl_p50_high_s", "ttft_p99_high_s"):
        assert one.reasons[name].startswith("no interval: even a soak is too short for it")
    assert "all_e2e_p99_high_s" not in one.reasons  # that was not measured at all


def test_a_soak_that_is_short_or_nearer_to_the_ceiling_keeps_none() -> None:
    rows = [soaked(8.5, 299.0), soaked(9.1), changed(soaked(8.5), role="down")]
    rows = hold_back(rows, Estimate("found", 10.0))
    assert [row.of("itl").p99.low for row in rows] == [None] * 3
    assert [row.stationary for row in rows] == [False] * 3


def test_a_second_soak_at_seven_tenths_keeps_all_but_the_tails_of_ttft() -> None:
    one = soaked(7.0)
    (one,) = hold_back([one], Estimate("found", 10.0))
    assert (one.of("ttft").p90.high, one.of("ttft").p99.high) == (None, None)
    assert (one.of("itl").p50.high, one.of("e2e").p95.high, one.of("ttft").p50.high) == (0.02, 0.02, 0.06)
    assert one.reasons["ttft_p90_high_s"].startswith("no interval: rare queues make it")


def test_what_a_rate_gives_is_known_before_it_is_offered() -> None:
    assert [gives("itl_p99", ratio) for ratio in (0.75, 0.76)] == [True, False]
    assert [gives("ttft_p99", ratio) for ratio in (0.5, 0.51)] == [True, False]
    assert [gives("sent_ttft_p95", ratio) for ratio in (0.6, 0.61)] == [True, False]
    assert gives("ttft_p50", 0.75)
    assert [gives("itl_p99", 0.85, soak_s) for soak_s in (299.0, 300.0)] == [False, True]
    assert [gives("itl_p99", ratio, 300.0) for ratio in (0.9, 0.91)] == [True, False]
    assert not gives("ttft_p99", 0.85, 3600.0)


def test_what_a_soak_keeps_is_none_of_the_tails_that_rare_queues_make() -> None:
    assert not {f"ttft_{tail}" for tail in NEAR_TTFT_RATIOS} & SOAK_KEEPS
    assert {column.removeprefix("sent_") for column in SOAK_KEEPS} <= {
        f"{family}_{stat}" for family in ("itl", "gap", "ttft", "tpot") for stat in ("mean", "p50", "p90", "p95", "p99")
    }
