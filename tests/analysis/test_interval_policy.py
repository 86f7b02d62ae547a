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


def test_latencies_that_hold_a_wait_lose_theirs_where_the_engine_is_full_in_its_slow_times() -> None:
    """Half speed for 10 of 60 s: 2 x 0.917 = 1.83 times as much in the long run as then, so 4.2 of 10 req/s is 0.77 of
    what it serves meanwhile, 4 is 0.73, 3.2 is 0.59 and 2.7 is 0.495."""
    pace = [0.01] * 60 + [0.02] * 20 + [0.01] * 40
    more = {f"{name}_{end}_s": value for name in ("e2e_p50", "ttft_p90", "ttft_mean", "tpot_p90", "slo_e2e")
            for end, value in (("low", 0.01), ("high", 0.02))}  # fmt: skip
    steady = [changed(measured(rate), **more) for rate in (2.7, 3.2, 4.0, 4.2)]
    unstable = [changed(one, pace_s=pace, window_begin_s=40.0, window_end_s=100.0) for one in steady]
    kept = {}
    for name, rows in (("steady", steady), ("unstable", unstable)):
        kept[name] = [
            {stem for stem in ("itl_p99", "tpot_p90", "e2e_p50", "slo_e2e", "ttft_p50", "ttft_p90", "ttft_mean")
             if row.number(f"{stem}_high_s") is not None}
            for row in hold_back(rows, Estimate("found", 10.0))
        ]  # fmt: skip
    of_steps, waits = {"itl_p99", "tpot_p90"}, {"e2e_p50", "slo_e2e", "ttft_p50"}
    tails = {"ttft_p90", "ttft_mean"}
    assert kept["steady"] == [of_steps | waits | tails] * 4
    assert kept["unstable"] == [of_steps | waits | tails, of_steps | waits | {"ttft_p90"}, of_steps | waits, of_steps]
    full = hold_back(unstable, Estimate("found", 10.0))[-1]
    assert full.reasons["e2e_p50_high_s"].startswith("no interval: queues of the engine's slow times make it")
    assert full.stationary
    assert hold_back(unstable, Estimate("not_found_up_to", 10.0)) == unstable


def test_itl_loses_its_interval_where_slow_times_fill_the_engine_and_that_makes_it_longer() -> None:
    """As above: 4.2 req/s is 0.77 of what it serves in its slow times, 4 is 0.73. At 20 req/s p99 ITL was 50 ms."""
    pace = [0.01] * 60 + [0.02] * 20 + [0.01] * 40
    window = {"pace_s": pace, "window_begin_s": 40.0, "window_end_s": 100.0}
    more = {"itl_p50_low_s": 0.01, "itl_p50_high_s": 0.012, "tpot_p90_low_s": 0.01, "tpot_p90_high_s": 0.07}
    full = changed(overload(20.0, 10.0), itl_p50_s=0.04, itl_p99_s=0.05, tpot_p90_s=0.06)
    rows = [changed(measured(rate), **more, **window) for rate in (4.0, 4.2)]
    under, above, _ = hold_back([*rows, full], Estimate("found", 10.0))
    assert (under.of("itl").p99.low, under.of("itl").p99.high) == (0.019, 0.021)
    assert (above.of("itl").p99.low, above.of("itl").p99.high, above.of("itl").p99.value) == (None, None, 0.020)
    assert above.reasons["itl_p99_high_s"].startswith("no interval: this load fills the engine in its slow times")
    assert (above.of("itl").p50.high, above.of("tpot").p90.high) == (0.012, 0.07)
    steady = [changed(one, pace_s=[0.01] * 120) for one in rows]
    assert hold_back([*steady, full], Estimate("found", 10.0))[1].of("itl").p99.high == 0.021


def test_what_a_rate_gives_is_known_before_it_is_offered() -> None:
    assert [gives("itl_p99", ratio) for ratio in (0.75, 0.76)] == [True, False]
    assert [gives("ttft_p99", ratio) for ratio in (0.5, 0.51)] == [True, False]
    assert [gives("sent_ttft_p95", ratio) for ratio in (0.6, 0.61)] == [True, False]
    assert gives("ttft_p50", 0.75)
    assert [gives("itl_p99", 0.85, soak_s) for soak_s in (299.0, 300.0)] == [False, True]
    assert [gives("itl_p99", ratio, 300.0) for ratio in (0.9, 0.91)] == [True, False]
    assert not gives("ttft_p99", 0.85, 3600.0)
    assert [gives("e2e_mean", 0.5, slower=slower) for slower in (1.5, 1.51)] == [True, False]
    assert [gives("ttft_p50", 0.85, 300.0, slower) for slower in (1.05, 1.1)] == [True, False]
    assert gives("tpot_p95", 0.75, slower=2.0)


def test_what_a_soak_keeps_is_none_of_the_tails_that_rare_queues_make() -> None:
    assert not {f"ttft_{tail}" for tail in NEAR_TTFT_RATIOS} & SOAK_KEEPS
    assert {column.removeprefix("sent_") for column in SOAK_KEEPS} <= {
        f"{family}_{stat}" for family in ("itl", "gap", "ttft", "tpot") for stat in ("mean", "p50", "p90", "p95", "p99")
    }
