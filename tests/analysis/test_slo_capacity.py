import numpy as np
import pytest
from curve_rows import changed
from records_and_rows import overload, row

from loadramp.analysis.slo_capacity import isotonic, missed_below, slo_capacity
from loadramp.record.row import Row
from loadramp.scenario.scenario import Slo


def curve(ttft_s: list[float], **columns: object) -> list[Row]:
    rates = [2.0**k for k in range(len(ttft_s))]
    return [
        row(r, slo_ttft_s=v, slo_ttft_low_s=v * 0.9, slo_ttft_high_s=v * 1.1, **columns)
        for r, v in zip(rates, ttft_s, strict=True)
    ]


def test_isotonic_regression_pools_what_falls() -> None:
    assert isotonic(np.array([1.0, 3.0, 2.0, 4.0]), np.ones(4)).tolist() == [1.0, 2.5, 2.5, 4.0]
    assert isotonic(np.array([3.0, 2.0, 1.0]), np.array([1.0, 1.0, 2.0])).tolist() == [1.75, 1.75, 1.75]
    assert isotonic(np.array([1.0, 2.0]), np.ones(2)).tolist() == [1.0, 2.0]


def test_the_limit_is_crossed_by_interpolation_in_logarithms() -> None:
    found = slo_capacity(curve([0.1, 0.1, 0.1, 0.4]), Slo(ttft_s=0.2))
    assert found.status == "found"
    assert found.rate_rps == pytest.approx(4.0 * 2**0.5)
    assert found.limit == "ttft"
    assert found.low_rps is not None
    assert found.high_rps is not None
    assert 4.0 < found.low_rps < 5.65 < found.high_rps < 8.0
    assert found.reason == "p99 TTFT of 0.2 s is reached first"


def test_noise_that_breaks_the_order_is_pooled_before_the_limit_is_crossed() -> None:
    found = slo_capacity(curve([0.1, 0.22, 0.1, 0.4]), Slo(ttft_s=0.2))
    assert found.rate_rps is not None
    assert found.rate_rps > 4.0  # one bad step at 2 req/s (ST-09) does not make 2 the capacity


def test_a_lower_rate_that_missed_a_limit_beyond_doubt_is_named_beside_the_capacity() -> None:
    rows = curve([0.1, 0.3, 0.1, 0.1])  # for a while the server was slow, whatever the rate
    held = slo_capacity(rows, Slo(ttft_s=0.2))
    assert (held.status, held.rate_rps) == ("not_found_up_to", 8.0)
    assert held.reason == "every limit is met up to 8 req/s; missed all the same at 2 req/s"
    assert missed_below(rows, Slo(ttft_s=0.2), held) == [2.0]
    doubtful = curve([0.1, 0.21, 0.1, 0.1])  # its interval begins below the limit
    assert missed_below(doubtful, Slo(ttft_s=0.2), slo_capacity(doubtful, Slo(ttft_s=0.2))) == []


def test_a_lower_rate_at_which_too_large_a_share_was_late_is_named_though_it_carries_no_p99() -> None:
    rows = unknown(curve([0.1, 0.1, 0.1]), 0)
    rows[0] = changed(rows[0], requests=116, slo_ttft_over_ratio=0.24)
    held = slo_capacity(rows, Slo(ttft_s=0.2))
    assert held.reason == "every limit is met up to 4 req/s; missed all the same at 1 req/s"
    few = [changed(rows[0], slo_ttft_over_ratio=0.02), *rows[1:]]  # 2 of 116
    assert missed_below(few, Slo(ttft_s=0.2), slo_capacity(few, Slo(ttft_s=0.2))) == []


def test_where_nothing_succeeded_no_rate_is_to_blame() -> None:
    rows = [row(4.0, ok=0, errors={"connect": 240}, error_ratio=1.0, overloaded=True)]
    found = slo_capacity(rows, Slo(ttft_s=0.2))
    assert (found.status, found.reason) == ("not_measurable", "every request failed")


def test_a_limit_that_no_rate_shows_to_be_reached_has_no_capacity() -> None:
    """1 of 116, 5 of 251 and 9 of 466 against 1 %: reached somewhere, if anywhere."""
    rows = [
        row(rate, requests=n, ok=n - k, errors={"reset": k}, error_ratio=k / n, load_error_ratio=k / n, **late)
        for rate, n, k, late in [(4.0, 116, 1, {}), (8.0, 251, 5, {}), (16.0, 466, 9, {"saturated": True})]
    ]
    found = slo_capacity(rows, Slo(malformed_ratio=0.5))
    assert (found.status, found.rate_rps, found.low_rps, found.high_rps) == ("inconclusive", None, None, None)
    assert found.reason == (
        "the error ratio is reached first, at about 4.37 req/s, but neither a lower nor a higher rate shows it beyond "
        "doubt: longer steps"
    )


def failed(shares: list[tuple[int, int]]) -> list[Row]:
    """Rows at 4, 8, 16, ... req/s of which so many of so many requests failed, without overload."""
    return [
        row(4.0 * 2**i, requests=n, ok=n - k, errors={"connect": k} if k else {}, load_error_ratio=k / n,
            error_ratio=k / n, overloaded=False)
        for i, (k, n) in enumerate(shares)
    ]  # fmt: skip


def test_a_restart_at_a_lower_rate_is_no_capacity() -> None:
    """28 of 251 failed while the server restarted; none of 466 and of 969 at higher rates."""
    held = slo_capacity(failed([(0, 116), (28, 251), (0, 466), (0, 969)]), Slo(malformed_ratio=0.5))
    assert (held.status, held.rate_rps) == ("not_found_up_to", 32.0)
    assert held.reason == "every limit is met up to 32 req/s; missed all the same at 8 req/s"
    few = slo_capacity(failed([(0, 116), (28, 251), (0, 60)]), Slo(malformed_ratio=0.5))  # of 60, up to 6 % may fail
    assert (few.status, few.limit) == ("found", "error_ratio")


def test_a_limit_that_is_met_within_its_interval_is_met_beyond_doubt_only_below() -> None:
    rows = curve([0.1, 0.1, 0.1, 0.195])  # 0.175 to 0.214 at the highest rate
    found = slo_capacity(rows, Slo(ttft_s=0.2))
    assert (found.status, found.rate_rps) == ("not_found_up_to", 8.0)
    assert found.low_rps == pytest.approx(7.4, abs=0.01)
    assert found.reason == "every limit is met up to 8 req/s, beyond doubt up to 7.4 req/s"
    none = slo_capacity(curve([0.195, 0.195]), Slo(ttft_s=0.2))
    assert (none.low_rps, none.reason) == (0.0, "every limit is met up to 2 req/s, beyond doubt at none of them")


def test_the_limit_that_binds_is_the_first_one_reached() -> None:
    rows = [changed(r, slo_itl_s=v, slo_itl_low_s=v, slo_itl_high_s=v) for r, v in
            zip(curve([0.1, 0.1, 0.1, 0.4]), [0.01, 0.02, 0.04, 0.08], strict=True)]  # fmt: skip
    found = slo_capacity(rows, Slo(ttft_s=0.2, itl_s=0.03))
    assert (found.limit, found.rate_rps) == ("itl", pytest.approx(2.0 * 1.5 ** (1 / 1), rel=0.1))


def test_met_everywhere_missed_everywhere_and_nothing_asked() -> None:
    assert slo_capacity(curve([0.1, 0.1]), Slo(ttft_s=1.0)).status == "not_found_up_to"
    assert slo_capacity(curve([0.1, 0.1]), Slo(ttft_s=1.0)).rate_rps == 2.0
    missed = slo_capacity(curve([0.1, 0.2]), Slo(ttft_s=0.05))
    assert (missed.status, missed.high_rps) == ("below_range", 1.0)
    assert slo_capacity(curve([0.1, 0.2]), Slo()).reason == "no limit is set in [slo]"
    assert slo_capacity([], Slo(ttft_s=1.0)).status == "not_measurable"


def test_a_limit_missed_at_the_lowest_rate_within_what_chance_explains_fails_nothing() -> None:
    one_of_24 = [row(4.0, slo_ttft_s=0.1, requests=24, ok=23, error_ratio=1 / 24)]
    found = slo_capacity(one_of_24, Slo(ttft_s=1.0, error_ratio=0.01))  # 0.1 to 21 % of the requests fail
    assert (found.status, found.rate_rps, found.limit) == ("inconclusive", None, "error_ratio")
    assert found.reason == (
        "the error ratio is missed at the lowest rate, but not beyond doubt: longer steps ([ramp] measure_s or "
        "min_requests), or start lower"
    )
    ten = [row(4.0, slo_ttft_s=0.1, requests=24, ok=14, error_ratio=10 / 24)]
    assert slo_capacity(ten, Slo(ttft_s=1.0, error_ratio=0.01)).status == "below_range"  # 22 % at least
    near = curve([0.105, 0.2])  # 0.0945 to 0.1155
    assert slo_capacity(near, Slo(ttft_s=0.1)).status == "inconclusive"
    assert slo_capacity(near, Slo(ttft_s=0.09)).status == "below_range"


def test_a_limit_for_each_token_is_not_missed_where_events_count_as_tokens() -> None:
    times = {"slo_itl_s": 0.112, "slo_itl_low_s": 0.11, "slo_itl_high_s": 0.114}  # of events with five tokens each
    rows = [row(4.0, slo_ttft_s=0.1, token_source="events", **times)]
    found = slo_capacity(rows, Slo(itl_s=0.1))
    assert (found.status, found.limit) == ("inconclusive", "itl")
    assert found.reason == (
        "p99 ITL of 0.1 s is missed at the lowest rate, but not beyond doubt: the server sends no usage, and an event "
        "may carry several tokens"
    )
    assert slo_capacity(rows, Slo(itl_s=0.2)).status == "not_found_up_to"  # tokens come no slower than their events
    assert slo_capacity([changed(rows[0], token_source="usage")], Slo(itl_s=0.1)).status == "below_range"


def test_a_limit_for_each_token_that_is_crossed_by_events_is_met_below_and_open_above() -> None:
    rows = [
        changed(r, slo_itl_s=v, slo_itl_low_s=v, slo_itl_high_s=v, token_source="events")
        for r, v in zip(curve([0.1, 0.1, 0.1, 0.1]), [0.01, 0.02, 0.04, 0.08], strict=True)
    ]
    found = slo_capacity(rows, Slo(itl_s=0.04, ttft_s=1.0))
    assert (found.status, found.rate_rps, found.limit) == ("inconclusive", None, "itl")
    assert (found.low_rps, found.high_rps) == (4.0, None)
    assert found.reason == (
        "p99 ITL of 0.04 s is met up to 4 req/s; above that it is not known: the server sends no usage, and an event "
        "may carry several tokens"
    )
    fast = [changed(r, slo_itl_s=None, slo_itl_low_s=None, slo_itl_high_s=None, itl_p99_s=0.001) for r in rows]
    assert slo_capacity(fast, Slo(itl_s=0.04)).status == "inconclusive"  # a quantile of events bounds nothing


def test_a_share_of_good_requests_that_no_step_knows_is_open() -> None:
    rows = [changed(r, good_ratio=None, good_n=60, reasons={"good_ratio": "why"}) for r in curve([0.1, 0.1])]
    found = slo_capacity(rows, Slo(ttft_s=1.0, good_ratio=0.9))
    assert (found.status, found.reason) == ("inconclusive", "the share of good requests is not known: why")


def unknown(rows: list[Row], *at: int) -> list[Row]:
    nothing = {"slo_ttft_s": None, "slo_ttft_low_s": None, "slo_ttft_high_s": None, "ttft_p99_s": None}
    return [changed(r, **nothing) if i in at else r for i, r in enumerate(rows)]


def test_a_limit_missed_at_the_lowest_rate_that_could_be_judged_is_not_missed_at_the_lowest_rate() -> None:
    rows = unknown(curve([0.1, 0.1, 0.1, 3.0]), 0, 1, 2)
    found = slo_capacity(rows, Slo(ttft_s=1.0))
    assert (found.status, found.rate_rps, found.low_rps, found.high_rps) == ("inconclusive", None, None, 8.0)
    assert found.reason == (
        "p99 TTFT of 1 s is missed at 8 req/s, and no step below it has the 368 requests that show whether it is met "
        "there: make them longer ([ramp] measure_s or min_requests)"
    )
    missed = slo_capacity(unknown(curve([3.0, 3.0, 3.0, 3.0]), 1), Slo(ttft_s=1.0))
    assert (missed.status, missed.high_rps) == ("below_range", 1.0)  # here it is


def test_limits_are_met_only_up_to_the_rate_at_which_all_of_them_are_known() -> None:
    rows = unknown(curve([0.1, 0.1, 0.1]), 2)
    found = slo_capacity(rows, Slo(ttft_s=1.0))
    assert (found.status, found.rate_rps, found.low_rps) == ("not_found_up_to", 2.0, 2.0)
    assert found.reason == (
        "every limit is met up to 2 req/s; no step above it has the 368 requests for p99 TTFT of 1 s"
    )
    rows = [changed(r, slo_itl_s=v, slo_itl_low_s=v, slo_itl_high_s=v) for r, v in
            zip(unknown(curve([0.1, 0.1, 0.1, 0.1]), 2, 3), [0.01, 0.01, 0.01, 0.04], strict=True)]  # fmt: skip
    found = slo_capacity(rows, Slo(ttft_s=1.0, itl_s=0.02))
    assert (found.status, found.limit, found.low_rps) == ("found", "itl", 2.0)


def test_no_rate_above_the_ceiling_meets_an_slo() -> None:
    rows = [*curve([0.1, 0.1, 0.1]), overload(8.0, 5.0, slo_ttft_s=0.1, slo_ttft_low_s=0.1, slo_ttft_high_s=0.1)]
    found = slo_capacity(rows, Slo(ttft_s=1.0))
    assert (found.status, found.limit) == ("found", "ceiling")
    assert found.rate_rps == pytest.approx(5.0, rel=0.01)


def test_errors_bound_the_capacity() -> None:
    rows = curve([0.1, 0.1, 0.1, 0.1])
    rows[-1] = changed(rows[-1], error_ratio=0.05, errors={"http_5xx": 24})
    found = slo_capacity(rows, Slo(ttft_s=1.0, error_ratio=0.01))
    assert (found.status, found.limit) == ("found", "error_ratio")
    assert found.rate_rps is not None
    assert 4.0 < found.rate_rps < 8.0


def test_goodput_may_be_what_is_asked() -> None:
    rows = [row(r, good_ratio=g) for r, g in ((1.0, 1.0), (2.0, 0.99), (4.0, 0.95), (8.0, 0.5))]
    found = slo_capacity(rows, Slo(good_ratio=0.9))
    assert (found.status, found.limit) == ("found", "good_ratio")
    assert found.rate_rps == pytest.approx(4.0 * 2 ** (0.05 / 0.45))


def test_st03_refused_quantiles_are_said_and_a_clear_miss_still_shows() -> None:
    rows = [
        row(1.0, slo_ttft_s=None, ttft_p99_s=None, slo_ttft_over_ratio=0.0),
        row(2.0, slo_ttft_s=None, ttft_p99_s=None, slo_ttft_over_ratio=0.4),
    ]
    found = slo_capacity(rows, Slo(ttft_s=0.2))
    assert (found.status, found.rate_rps, found.high_rps) == ("inconclusive", None, 2.0)
    assert found.reason == "no step has the 368 requests that a p99 TTFT needs (at most 120); clearly missed at 2 req/s"
    rows[1] = changed(rows[1], slo_ttft_over_ratio=0.0)
    assert slo_capacity(rows, Slo(ttft_s=0.2)).high_rps is None


def test_another_quantile_is_read_from_its_column() -> None:
    rows = [row(r, ttft_p90_s=v) for r, v in ((1.0, 0.1), (2.0, 0.1), (4.0, 0.4))]
    assert slo_capacity(rows, Slo(ttft_s=0.2, quantile=0.9)).rate_rps == pytest.approx(2 * 2**0.5)
