import numpy as np
import pytest
from curve_rows import changed
from records_and_rows import one_server, overload, row, window

from loadramp.analysis.ceiling import ceiling, plateau
from loadramp.analysis.curve import fold
from loadramp.analysis.throughput import fit, read
from loadramp.record.row import Row
from loadramp.record.table import Table


def test_nothing_measured_is_not_measurable() -> None:
    assert ceiling([]).status == "not_measurable"
    assert ceiling([row(1.0, void=True)]).reason == "the client could deliver no step"
    assert ceiling([row(1.0, requests=0)]).reason == "no request was due in any step"


def test_a_flat_quiet_curve_has_no_ceiling_up_to_its_end() -> None:
    found = ceiling([row(1.0), row(2.0), row(4.0), row(8.0)])
    assert (found.status, found.rate_rps, found.low_rps, found.high_rps) == ("not_found_up_to", 8.0, 8.0, None)
    assert found.reason == "quiet up to 8 req/s, the highest rate tried"


def test_one_quiet_step_is_a_lower_bound() -> None:
    assert (ceiling([row(5.0)]).status, ceiling([row(5.0)]).rate_rps) == ("not_found_up_to", 5.0)


def test_throughput_under_overload_is_the_ceiling() -> None:
    found = ceiling([row(4.0), row(8.0), overload(16.0, 11.0)])
    assert found.status == "found"
    assert found.rate_rps == pytest.approx(11.0, rel=0.01)
    assert found.low_rps is not None
    assert found.high_rps is not None
    assert 10.0 < found.low_rps < 11.0 < found.high_rps < 12.2
    assert found.reason.startswith(
        "from 16 req/s on the queue grows and requests in flight pile up; 11 of 16 req/s are"
    )
    assert "quiet up to 8 req/s" in found.reason


def test_an_interval_of_more_than_three_times_gives_way_to_the_rates_that_were_tried() -> None:
    """t(.975, 1) = 12.7 times 0.1 is a factor of 3.6, times 0.08 one of 2.8."""
    rows = [row(4.0), row(8.0), changed(overload(16.0, 11.0), pace_log_sd=0.1, pace_degrees=1.0)]
    found = ceiling(rows)
    assert (found.status, found.low_rps, found.high_rps) == ("found", 8.0, 16.0)
    assert found.rate_rps == pytest.approx(11.0, rel=0.01)
    assert found.interval_of == "these_minutes"
    assert "varies too much to say what is served in the long run" in found.reason
    below = ceiling(rows[-1:])
    assert (below.status, below.low_rps, below.high_rps) == ("below_range", None, 16.0)
    surer = ceiling([*rows[:2], changed(rows[-1], pace_log_sd=0.08)])
    assert surer.interval_of is None
    assert surer.low_rps == pytest.approx(11.0 / 2.76, rel=0.02)
    assert surer.high_rps == pytest.approx(11.0 * 2.76, rel=0.02)


def test_saturated_from_the_start_is_below_the_range_with_what_was_served() -> None:
    found = ceiling([overload(16.0, 11.0)])
    assert found.status == "below_range"
    assert found.rate_rps == pytest.approx(11.0, rel=0.01)
    assert "start lower" in found.reason


def test_st09_one_bad_step_below_a_quiet_one_is_a_hiccup() -> None:
    found = ceiling([row(2.0), overload(4.0, 2.0), row(8.0), row(16.0)])
    assert found.status == "not_found_up_to"
    assert found.rate_rps == 16.0
    assert "an alarm at 4 req/s was not confirmed above it (hiccup)" in found.reason


def test_a_hiccup_does_not_move_the_ceiling_found_later() -> None:
    found = ceiling([row(1.0), row(2.0), overload(4.0, 3.0), row(8.0), row(16.0), overload(32.0, 20.0)])
    assert found.rate_rps == pytest.approx(20.0, rel=0.01)
    assert "hiccup" in found.reason


def test_an_alarm_without_deficit_at_the_last_step_is_not_confirmed() -> None:
    found = ceiling([row(1.0), row(2.0), row(4.0, saturated=True, signals=["ttft_trend"])])
    assert (found.status, found.rate_rps) == ("not_found_up_to", 2.0)
    assert "the wait for the first token grows at 4, not confirmed" in found.reason


def test_two_saturated_steps_without_deficit_are_inconclusive() -> None:
    alarm = {"saturated": True, "signals": ["backlog"]}
    found = ceiling([row(1.0), row(2.0), row(4.0, **alarm), row(8.0, **alarm)])
    assert (found.status, found.low_rps) == ("inconclusive", 2.0)
    assert "go higher" in found.reason


def test_st10_all_requests_failed_is_not_measurable() -> None:
    failed = {"ok": 0, "errors": {"http_5xx": 60}, "error_ratio": 1.0, "throughput_rps": 0.0, "deficit": True}
    found = ceiling([row(1.0, **failed), row(2.0, **failed)])
    assert (found.status, found.reason) == ("not_measurable", "every request failed")


def test_requests_that_are_refused_at_a_rate_make_it_the_ceiling() -> None:
    refused = {"errors": {"http_429": 200}, "error_ratio": 0.21, "overloaded": True}
    found = ceiling([row(4.0), row(8.0), row(16.0, throughput_rps=12.6, deficit=True, **refused)])
    assert found.status == "found"
    assert found.rate_rps == pytest.approx(12.6, rel=0.02)
    assert "20.8" not in found.reason
    assert "21 % of the requests fail there" in found.reason


def test_errors_without_a_lack_of_throughput_still_bound_the_ceiling() -> None:
    found = ceiling([row(4.0), row(8.0), row(16.0, error_ratio=0.05, errors={"in_band": 48}, overloaded=True)])
    assert (found.status, found.low_rps, found.high_rps) == ("found", 8.0, 16.0)
    assert found.rate_rps == pytest.approx(15.2)


def test_errors_that_are_as_many_below_need_not_come_of_load() -> None:
    """2 % of the connections are reset at any rate: 5 of 240, 10 of 480, 19 of 960."""
    shares = {4.0: 5, 8.0: 10, 16.0: 19}
    rows = [
        row(rate, errors={"reset": n}, ok=round(60 * rate) - n, error_ratio=n / (60 * rate), overloaded=rate == 16.0)
        for rate, n in shares.items()
    ]
    found = ceiling(rows)
    assert (found.status, found.rate_rps, found.low_rps, found.high_rps) == ("inconclusive", None, 8.0, None)
    assert found.reason == (
        "1.98 % of the requests fail at 16 req/s, and hardly fewer below it (2.08 %): that need not come of load"
    )
    rows[0], rows[1] = row(4.0), row(8.0)
    assert ceiling(rows).status == "found"


@pytest.mark.parametrize(
    ("ok", "errors", "ratio"),
    [(0, {"http_5xx": 480}, 1.0), (0, {"reset": 480}, 1.0), (200, {"connect": 270, "reset": 10}, 0.58)],
)
def test_an_endpoint_that_goes_away_has_no_ceiling(ok: int, errors: dict[str, int], ratio: float) -> None:
    down = {
        "ok": ok,
        "errors": errors,
        "error_ratio": ratio,
        "overloaded": True,
        "deficit": True,
        "throughput_rps": 2.9,
    }
    found = ceiling([row(2.0), row(4.0), row(8.0, **down)])
    assert (found.status, found.rate_rps, found.low_rps, found.high_rps) == ("inconclusive", None, 4.0, 8.0)
    assert "it broke down or went away; quiet up to 4 req/s" in found.reason


def test_errors_at_the_lowest_rate_say_nothing_about_load() -> None:
    failing = [
        row(rate, error_ratio=0.05, errors={"http_5xx": round(3 * rate)}, overloaded=True) for rate in (1.0, 2.0)
    ]
    found = ceiling(failing[:1])
    assert found.status == "inconclusive"
    assert found.reason == (
        "5 % of the requests fail at the lowest rate already: whether it comes of load, one rate does not tell; start "
        "lower"
    )
    assert ceiling(failing).reason == (
        "5 % of the requests fail at the lowest rate already, and no larger share at 2 req/s: not a matter of load"
    )


REFUSED = {"errors": {"connect": 400}, "error_ratio": 0.05, "overloaded": True, "ok": 7000}


def test_refused_connections_far_above_the_ceiling_are_load_where_as_much_is_served_as_before() -> None:
    """64 of 54.6 req/s that are served are an alarm; at 128 connections are refused, and 54.6 req/s still served."""
    alarm = row(64.0, throughput_rps=61.0, saturated=True, signals=["queue"])
    found = ceiling([row(16.0), row(32.0), alarm, overload(128.0, 54.6, **REFUSED)])
    assert (found.status, found.sustained_rps) == ("found", None)
    assert found.rate_rps == pytest.approx(54.6, rel=0.02)
    assert found.reason.startswith("from 128 req/s on the queue grows")


def test_an_endpoint_that_served_nothing_for_a_while_went_away_however_much_it_served_before() -> None:
    halted = {"throughput_blocks": [54.6] * 8 + [0.0] * 2, **REFUSED}
    alarm = row(64.0, throughput_rps=61.0, saturated=True, signals=["queue"])
    found = ceiling([row(16.0), row(32.0), alarm, overload(128.0, 43.7, **halted)])
    assert (found.status, found.rate_rps, found.low_rps, found.high_rps) == ("inconclusive", None, 32.0, 128.0)
    assert found.reason.endswith(
        "it broke down or went away; quiet up to 32 req/s; at 64 req/s the queue grows, and 61 req/s were served"
    )


def test_a_step_spoilt_by_failures_above_an_overloaded_one_does_not_move_the_ceiling() -> None:
    spoilt = {"errors": {"http_5xx": 4000}, "error_ratio": 0.5, "overloaded": True}
    found = ceiling([row(16.0), row(32.0), overload(64.0, 54.6), overload(128.0, 30.0, **spoilt)])
    assert found.rate_rps == pytest.approx(54.6, rel=0.01)


def test_a_rate_that_overloads_the_endpoint_is_above_its_ceiling_whatever_higher_rates_serve() -> None:
    """Replicas of 27 and 13.5 req/s, dealt in turn: 27 are sustained, 45.5 of 64 are served."""
    steps = [row(16.0), overload(32.0, 29.5), overload(64.0, 45.5)]
    found = ceiling(steps)
    assert (found.status, found.low_rps, found.high_rps) == ("found", 16.0, 32.0)
    assert found.rate_rps == pytest.approx(29.5, rel=0.01)
    assert "higher rates served up to 45.6 req/s, so parts of the endpoint are full before others" in found.reason
    held = ceiling([row(16.0), overload(64.0, 45.5), overload(34.0, 30.5, role="soak"), row(26.0, role="soak")])
    assert (held.low_rps, held.high_rps, held.sustained_rps) == (26.0, 34.0, 26.0)
    assert held.reason.startswith("the soak at 34 req/s was overloaded: the queue grows")


def test_an_estimate_that_no_soak_confirms_may_lie_as_low_as_the_quiet_rates() -> None:
    loud = {"role": "soak", "saturated": True, "signals": ["queue"]}
    found = ceiling([row(16.0), overload(64.0, 45.5), row(38.0, **loud), row(32.0, **loud)])
    assert found.low_rps == 16.0
    assert "neither 38 req/s nor 32 req/s was held, so it may lie as low as the quiet rates" in found.reason


@pytest.mark.parametrize(
    ("kind", "deficit", "words"),
    [
        ("http_429", False, "(429, too many requests): a limit lies below it, start lower"),
        ("connect", False, "(no connection): part of the endpoint is down, or it takes fewer connections: start lower"),
        ("http_5xx", True, "and no queue grows: part of the endpoint is down, or it refuses so much: start lower"),
    ],
)
def test_failures_at_the_lowest_rate_are_no_ceiling_below_it(kind: str, deficit: bool, words: str) -> None:
    found = ceiling([row(2.0, error_ratio=0.5, errors={kind: 60}, overloaded=True, deficit=deficit)])
    assert (found.status, found.rate_rps) == ("inconclusive", None)
    assert words in found.reason


def test_requests_refused_as_too_many_at_the_lowest_rate_are_an_overload_where_little_is_served() -> None:
    many = {"errors": {"http_429": 700}, "error_ratio": 0.73, "overloaded": True, "deficit": True}
    found = ceiling([row(16.0, throughput_rps=4.3, **many)])
    assert found.status == "below_range"
    assert found.rate_rps == pytest.approx(4.3, rel=0.02)


def test_void_rows_are_never_used() -> None:
    found = ceiling([row(4.0), row(8.0), overload(16.0, 11.0, void=True)])
    assert (found.status, found.rate_rps) == ("not_found_up_to", 8.0)


def test_st07_rows_may_come_in_any_order() -> None:
    rows = [row(4.0), row(8.0), overload(16.0, 11.0), overload(32.0, 11.2)]
    assert ceiling(rows) == ceiling(rows[::-1])


def test_the_soak_that_held_is_what_is_sustained() -> None:
    rows = [row(4.0), row(8.0), overload(16.0, 11.0)]
    assert ceiling([*rows, row(9.4, role="soak")]).sustained_rps == 9.4
    failed = row(9.4, role="soak", saturated=True, signals=["queue"])
    assert ceiling([*rows, failed]).sustained_rps is None
    assert ceiling([*rows, failed, row(7.7, role="soak")]).sustained_rps == 7.7


def test_a_soak_alone_is_a_lower_bound() -> None:
    found = ceiling([row(9.4, role="soak")])
    assert (found.status, found.rate_rps, found.sustained_rps) == ("not_found_up_to", 9.4, 9.4)
    assert ceiling([overload(9.4, 5.0, role="soak")]).status == "inconclusive"
    assert ceiling([row(9.4, role="down")]).status == "inconclusive"


def test_few_arrivals_are_said_to_resolve_little() -> None:
    assert "telling rates 10 % apart takes about 490" in ceiling([row(1.0), overload(4.0, 1.5)]).reason


def test_overload_that_costs_throughput_is_said() -> None:
    found = ceiling([row(8.0), row(16.0), overload(32.0, 12.0)])
    assert "overload costs throughput: 16 req/s were served before it" in found.reason


def test_the_fit_is_the_weighted_median_of_what_was_served_above() -> None:
    rates = np.array([2.0, 4.0, 8.0, 16.0, 32.0])
    served = np.array([2.0, 4.1, 7.9, 10.0, 10.4])
    assert fit(rates, served, 60 * rates) == pytest.approx(10.4)
    assert fit(rates[:4], served[:4], 60 * rates[:4]) == pytest.approx(10.0)


def test_while_a_batch_fills_up_prompts_ahead_of_answers_correct_the_throughput() -> None:
    # the engine can do 10 requests a second; at first it spends more on prompts than on answers
    prompts = [18.0, 16.0, 14.0, 12.0, 11.0, 10.5, 10.2, 10.1, 10.0, 10.0]
    answers = [10.0 - 0.6 * (p - 10.0) / 0.4 * 0.4 for p in prompts]
    reading = read(row(20.0, throughput_blocks=answers, first_token_blocks=prompts), None)
    assert np.mean(answers) == pytest.approx(8.69, abs=0.01)
    assert reading.rate_rps == pytest.approx(10.0, rel=0.001)
    plain = read(row(20.0, throughput_blocks=answers, first_token_blocks=None), None)
    assert plain.rate_rps == pytest.approx(8.69, abs=0.01)


def users_row(users: int, throughput: float) -> Row:
    return changed(row(throughput), rate_rps=None, users=users)


def test_a_closed_loop_finds_the_plateau_of_its_throughput() -> None:
    found = plateau([users_row(n, x) for n, x in ((1, 2.0), (8, 12.0), (32, 19.5), (64, 20.0), (128, 20.2))])
    assert found.status == "found"
    assert found.rate_rps == pytest.approx(20.0)
    assert "more than 32 users bring no more" in found.reason
    rising = ceiling([users_row(n, x) for n, x in ((1, 2.0), (8, 12.0), (32, 40.0))])
    assert (rising.status, rising.rate_rps) == ("not_found_up_to", 40.0)
    assert ceiling([users_row(1, 0.0)]).status == "not_measurable"


def test_st05_a_ramp_over_a_server_of_20_finds_20() -> None:
    rng = np.random.default_rng(5)
    rows: list[Row] = []
    for k, rate in enumerate((5, 10, 15, 18, 20, 25)):
        due_s = np.cumsum(rng.exponential(1.0 / rate, 61 * rate))
        table = Table.of(one_server(due_s[due_s < 60.0].tolist(), 0.05))
        base_s = rows[0].of("ttft").p50.value if rows else None
        rows.append(fold(window(60.0, float(rate), index=k), table, base_ttft_p50_s=base_s, now_s=60.0))
    assert not any(r.saturated for r in rows[:3])
    assert rows[-1].saturated
    found = ceiling(rows)
    assert found.status == "found"
    assert found.rate_rps == pytest.approx(20.0, rel=0.03)
