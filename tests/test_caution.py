from judged import overload, row

from loadramp.judge.caution import hold_back
from loadramp.judge.knee import estimate
from loadramp.record.types import Estimate


def measured(rate_rps: float) -> dict:
    limits = {"itl_p99_low_s": 0.019, "itl_p99_high_s": 0.021, "ttft_p99_low_s": 0.09, "ttft_p99_high_s": 0.12}
    return row(rate_rps, stationary=True, reasons={}, ttft_p50_low_s=0.04, ttft_p50_high_s=0.06, **limits)


def test_intervals_go_above_three_quarters_of_the_ceiling() -> None:
    rows = [measured(4.0), measured(8.5)]
    hold_back(rows, Estimate("found", 10.0))
    assert rows[0]["itl_p99_low_s"] == 0.019
    assert rows[0]["stationary"]
    assert (rows[1]["itl_p99_low_s"], rows[1]["ttft_p50_high_s"], rows[1]["itl_p99_s"]) == (None, None, 0.020)
    assert not rows[1]["stationary"]
    assert rows[1]["reasons"]["stationary"].startswith("no interval: this near the ceiling (10 req/s)")


def test_tails_of_ttft_lose_theirs_from_three_fifths_on() -> None:
    one = measured(7.0) | {"ttft_p95_low_s": 0.08, "ttft_p95_high_s": 0.1}
    hold_back([one], Estimate("found", 10.0))
    assert (one["ttft_p95_low_s"], one["ttft_p95_high_s"]) == (None, None)
    assert (one["ttft_p99_low_s"], one["ttft_p99_high_s"]) == (None, None)
    assert (one["ttft_p50_low_s"], one["itl_p99_high_s"]) == (0.04, 0.021)
    assert one["reasons"]["ttft_p95_high_s"].startswith("no interval: rare queues make it")


def test_mean_and_p99_of_ttft_lose_theirs_from_half_the_ceiling_on() -> None:
    more = {"ttft_p95_high_s": 0.1, "ttft_mean_low_s": 0.04, "ttft_mean_high_s": 0.05, "all_ttft_p99_high_s": 0.2}
    rows = [measured(5.0) | more, measured(5.5) | more]
    hold_back(rows, Estimate("found", 10.0))
    assert (rows[0]["ttft_mean_high_s"], rows[0]["ttft_p99_high_s"]) == (0.05, 0.12)
    gone = ("ttft_mean_low_s", "ttft_mean_high_s", "ttft_p99_high_s", "all_ttft_p99_high_s")
    assert [rows[1][name] for name in gone] == [None] * 4
    assert rows[1]["ttft_p95_high_s"] == 0.1
    assert set(rows[1]["reasons"]) == {"ttft_mean_high_s", "ttft_p99_high_s", "all_ttft_p99_high_s"}


def test_without_a_ceiling_nothing_is_held_back() -> None:
    one = measured(9.0)
    hold_back([one], Estimate("not_found_up_to", 9.0))
    assert one["itl_p99_low_s"] == 0.019


def test_estimate_holds_back_by_the_ceiling_whatever_detector_was_asked() -> None:
    rows = [measured(4.0), measured(9.0), overload(20.0, 10.0)]
    estimate(rows, knee=lambda _: Estimate("found", 100.0))
    assert rows[1]["itl_p99_low_s"] is None
    assert rows[0]["itl_p99_low_s"] == 0.019
