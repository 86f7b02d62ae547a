"""Ramps on literal rows."""

from typing import Any

import pytest
from curve_rows import row_of

from loadramp.record.row import Row
from loadramp.record.types import Step, Stop
from loadramp.workload.ramps import RAMPS, ceiling, geometric, ladder, users


def row(**columns: Any) -> Row:
    return row_of(**{"overloaded": False, "rate_rps": 1.0, **columns})


def rate(proposal: Step | Stop) -> float | None:
    assert isinstance(proposal, Step)
    return proposal.rate_rps


def test_a_ladder_offers_its_rates_in_order() -> None:
    rates = [3.0, 1.0, 2.0]
    assert [rate(ladder([row()] * k, rates=rates)) for k in range(3)] == rates
    assert isinstance(ladder([row()] * 3, rates=rates), Stop)


def test_a_geometric_ramp_doubles_up_to_its_limit() -> None:
    assert [rate(geometric([row()] * k, max_rps=16.0)) for k in range(5)] == [1, 2, 4, 8, 16]
    assert geometric([row()] * 5, max_rps=16.0) == Stop("reached max_rps = 16")


def test_a_geometric_ramp_ends_after_two_saturated_steps_in_a_row() -> None:
    full = row(saturated=True)
    assert rate(geometric([row(), full])) == 4
    assert rate(geometric([full, row(), full])) == 8
    assert isinstance(geometric([row(), full, full]), Stop)


def test_users_climb_their_own_ladder() -> None:
    proposals = [users([row()] * k) for k in range(6)]
    assert [p.users for p in proposals if isinstance(p, Step)] == [1, 8, 32, 64, 128]
    assert isinstance(proposals[5], Stop)


def test_the_climb_ends_at_a_saturated_step_in_deficit_and_a_soak_follows() -> None:
    rows = [row(), row(), row(saturated=True, deficit=True, ceiling_rps=10.0)]
    soak = ceiling(rows, soak_s=300.0)
    assert isinstance(soak, Step)
    assert (soak.role, soak.rate_rps, soak.measure_s, soak.index) == ("soak", 8.5, 300.0, 3)


def test_a_lone_alarm_is_passed_over() -> None:
    assert rate(ceiling([row(), row(saturated=True), row()])) == 8


def test_saturation_without_deficit_goes_on_for_at_most_two_steps_after_its_confirmation() -> None:
    full = row(saturated=True, ceiling_rps=7.0)
    assert rate(ceiling([row(), full])) == 4
    assert rate(ceiling([row(), full, full])) == 8
    assert rate(ceiling([row(), full, full, full])) == 16
    after = ceiling([row(), full, full, full, full])
    assert isinstance(after, Step)
    assert after.role == "soak"


def test_a_quiet_soak_ends_the_ramp_and_a_loud_one_is_tried_once_lower() -> None:
    top = row(saturated=True, deficit=True, ceiling_rps=10.0)
    quiet = row(role="soak", rate_rps=8.5, ceiling_rps=10.0)
    loud = row(role="soak", rate_rps=8.5, saturated=True, ceiling_rps=10.0)
    assert ceiling([top, quiet]) == Stop("8.5 req/s held for 300 s")
    assert rate(ceiling([top, loud])) == pytest.approx(7.0)
    end = ceiling([top, loud, loud])
    assert isinstance(end, Stop)
    assert not end.complete


def test_a_soak_that_shows_a_far_lower_ceiling_is_followed_by_one_below_that_and_a_third() -> None:
    top = row(saturated=True, deficit=True, ceiling_rps=10.0)
    first = row(role="soak", rate_rps=8.5, overloaded=True, ceiling_rps=6.0)
    assert rate(ceiling([top, first])) == pytest.approx(5.1)
    second = row(role="soak", rate_rps=5.1, overloaded=True, ceiling_rps=4.0)
    assert rate(ceiling([top, first, second])) == pytest.approx(3.4)
    end = ceiling([top, first, second, row(role="soak", rate_rps=3.4, overloaded=True, ceiling_rps=2.0)])
    assert end == Stop("the soak was not quiet", complete=False)


def test_between_an_alarm_and_a_rate_that_cannot_be_delivered_lies_one_more() -> None:
    alarm, void = row(rate_rps=16.0, saturated=True), row(rate_rps=64.0, void=True)
    between = ceiling([row(rate_rps=8.0), alarm, void, void])
    assert isinstance(between, Step)
    assert (between.role, between.rate_rps) == ("step", 32.0)
    quiet = ceiling([row(rate_rps=8.0), alarm, void, void, row(rate_rps=32.0)])
    assert isinstance(quiet, Stop)
    assert quiet.reason.startswith("the client could not deliver 64 req/s, twice")
    assert rate(ceiling([alarm, void, void, row(rate_rps=32.0, void=True)])) == 32.0
    twice = [row(rate_rps=32.0, void=True)] * 2
    last = ceiling([alarm, void, void, *twice])
    assert isinstance(last, Stop)
    assert last.reason.startswith("the client could not deliver the last step, twice")
    assert isinstance(ceiling([row(rate_rps=16.0), void, void]), Stop)


def test_no_soak_when_none_is_asked_for() -> None:
    assert isinstance(ceiling([row(saturated=True, deficit=True, ceiling_rps=10.0)], soak_s=0.0), Stop)


def test_the_ramp_says_when_it_found_no_ceiling() -> None:
    end = ceiling([row()] * 4, max_rps=8.0)
    assert end == Stop("reached max_rps = 8 without finding the ceiling")


def test_a_step_the_client_could_not_deliver_is_offered_once_more() -> None:
    void = row(void=True, rate_rps=2.0)
    assert rate(ceiling([row(), void])) == 2.0
    assert rate(ceiling([row(), void, row(rate_rps=2.0)])) == 4.0
    end = ceiling([row(), void, void])
    assert isinstance(end, Stop)
    assert not end.complete


def test_a_void_soak_is_offered_once_more_too() -> None:
    top = row(saturated=True, deficit=True, ceiling_rps=10.0)
    void = row(role="soak", rate_rps=8.5, void=True, ceiling_rps=10.0)
    again = ceiling([top, void], soak_s=120.0)
    assert isinstance(again, Step)
    assert (again.role, again.rate_rps, again.measure_s) == ("soak", 8.5, 120.0)
    assert isinstance(ceiling([top, void, void]), Stop)
    assert ceiling([top, void, row(role="soak", rate_rps=8.5, ceiling_rps=10.0)]) == Stop("8.5 req/s held for 300 s")


@pytest.mark.parametrize("kind", sorted(RAMPS))
def test_too_many_errors_end_every_ramp(kind: str) -> None:
    options = {"ladder": {"rates": [1.0, 2.0, 3.0]}}.get(kind, {})
    end = RAMPS[kind]([row(), row(overloaded=True)], **options)
    assert end == Stop("more errors at 1 req/s than max_error_ratio allows", complete=False)


def test_a_server_that_sheds_load_is_soaked_below_its_estimate() -> None:
    soak = ceiling([row(), row(overloaded=True, ceiling_rps=20.0)])
    assert isinstance(soak, Step)
    assert soak.rate_rps == pytest.approx(17.0)


def test_the_way_down_offers_the_quiet_rates_again_before_the_soak() -> None:
    up = [row(rate_rps=1.0), row(rate_rps=2.0), row(rate_rps=4.0, saturated=True, deficit=True, ceiling_rps=3.0)]
    first = ceiling(up, down=True)
    assert isinstance(first, Step)
    assert (first.role, first.rate_rps) == ("down", 2.0)
    second = ceiling([*up, row(role="down", rate_rps=2.0)], down=True)
    assert isinstance(second, Step)
    assert (second.role, second.rate_rps) == ("down", 1.0)
    soak = ceiling([*up, row(role="down", rate_rps=2.0), row(role="down", rate_rps=1.0)], down=True)
    assert isinstance(soak, Step)
    assert (soak.role, soak.rate_rps) == ("soak", pytest.approx(2.55))
