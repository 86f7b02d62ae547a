"""Recovery, harm and availability from literal records and health checks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from records_and_rows import answer, failure

from loadramp.campaign.recovery import (
    Failures,
    HealthSample,
    Outage,
    availability,
    failures,
    harm,
    recovery_s,
    unaccounted,
    usual_ttft_s,
)
from loadramp.record.table import Table
from loadramp.record.types import Record


def steady(begin_s: float, end_s: float, ttft_s: float = 0.1, rate: float = 2.0, seq: int = 0) -> list[Record]:
    """Requests that are answered after ``ttft_s``."""
    return [
        answer(seq + k, float(due), float(due) + ttft_s, [0.02] * 4)
        for k, due in enumerate(np.arange(begin_s, end_s, 1.0 / rate))
    ]


def outage(down_s: float = 20.0, slow_s: float = 10.0) -> Table:
    """Fine until 60 s, then refused for ``down_s``, slow for ``slow_s``, fine again until 150 s."""
    back_s = 60.0 + down_s
    failed = [failure(500 + k, 60.0 + k / 2.0, kind="connect") for k in range(int(2 * down_s))]
    records = [*steady(0.0, 60.0), *failed, *steady(back_s, back_s + slow_s, 3.0, seq=1000)]
    return Table.of([*records, *steady(back_s + slow_s, 150.0, seq=2000)])


def test_usual_is_twice_the_p95_of_before_or_the_slo() -> None:
    table = Table.of(steady(0.0, 60.0))
    assert usual_ttft_s(table, 0.0, 60.0) == pytest.approx(0.2)
    assert usual_ttft_s(table, 0.0, 60.0, 1.0) == 1.0
    assert usual_ttft_s(table, 0.0, 5.0) is None  # ten successes say nothing


def test_recovered_is_the_first_ten_seconds_in_which_nothing_fails_and_first_tokens_come_as_usual() -> None:
    assert (
        recovery_s(outage(), 60.0, 150.0, 0.2, 2.0) == 29.0
    )  # 20 s down, 10 s slow; one slow one of twenty is let pass
    assert recovery_s(outage(slow_s=0.0), 60.0, 150.0, 0.2, 2.0) == 20.0
    assert recovery_s(Table.of(steady(0.0, 150.0)), 60.0, 150.0, 0.2, 2.0) == 0.0


def test_what_was_not_watched_long_enough_is_no_recovery() -> None:
    assert recovery_s(outage(), 60.0, 95.0, 0.2, 2.0) is None
    assert recovery_s(outage(down_s=85.0), 60.0, 150.0, 0.2, 2.0) is None


def test_at_low_rates_it_must_be_well_for_ten_requests() -> None:
    slow = Table.of([*steady(0.0, 60.0, rate=0.2), failure(900, 62.0), *steady(65.0, 200.0, rate=0.2, seq=50)])
    assert recovery_s(slow, 60.0, 200.0, 0.2, 0.2) == 3.0
    assert recovery_s(slow, 60.0, 100.0, 0.2, 0.2) is None


def test_harm_counts_the_failed_the_slowed_and_those_that_heard_nothing() -> None:
    table = outage()
    found = harm(table, 60.0, 90.0, 0.2)
    assert (found.failed, found.slowed, found.silent) == (40, 20, 0)
    assert found.kinds == {"connect": 40}
    silent = [failure(1, 61.0, 5.0, "timeout_first"), failure(2, 61.0, 5.0, "empty"), failure(3, 61.0, kind="reset")]
    assert harm(Table.of([*steady(0.0, 60.0, seq=10), *silent]), 60.0, 90.0, 0.2).silent == 2
    stalled = answer(4, 59.0, 59.1, [0.02, 4.0, 0.02])
    assert harm(Table.of([*steady(0.0, 60.0, seq=10), stalled]), 60.0, 90.0, 0.2).slowed == 1


def test_failures_are_told_apart_by_what_a_caller_can_do() -> None:
    def refused(seq: int, kind: str, status: int, named: int | None = None) -> Record:
        return replace(failure(seq, 1.0, kind=kind), http_status=status, error_status=named)

    records = [
        refused(1, "http_429", 429),
        refused(2, "http_5xx", 503),
        refused(3, "in_band", 200, 503),
        refused(4, "in_band", 200, 500),
        refused(5, "http_5xx", 500),
        failure(6, 1.0, kind="timeout_first"),
        failure(7, 1.0, kind="client"),
        failure(8, 9.0, kind="reset"),
        answer(9, 1.0, 1.1),
    ]
    found = failures(Table.of(records), 0.0, 5.0)
    assert (found.requests, found.refused, found.gave_up, found.broken) == (7, 3, 1, 2)
    assert found.kinds == {"in_band": 2, "http_5xx": 2, "http_429": 1, "timeout_first": 1}
    assert failures(Table.of([]), 0.0, 5.0) == Failures()


def test_planned_requests_without_a_record_are_missed() -> None:
    records = [answer(seq, 1.0, 1.1, step=step) for step, seq in ((0, 0), (0, 1), (1, 40), (1, 41), (1, 44))]
    assert unaccounted(Table.of(records)) == 2
    assert unaccounted(Table.of(records[:4])) == 0
    later = [answer(0, 1.0, 1.1), answer((1 << 40), 2.0, 2.1)]  # a later turn of a session
    assert unaccounted(Table.of(later)) == 0


def test_outages_last_from_the_first_failed_check_to_the_next_good_one() -> None:
    def check(t_s: float, error: str | None = None) -> HealthSample:
        return HealthSample(t_s, error is None, 0.01, error)

    health = [
        check(0),
        check(1, "timeout"),
        check(2),
        check(3, "timeout"),
        check(4, "connection refused"),
        check(6),
        check(7),
    ]
    found = availability(health, 0.0, 10.0)
    assert (found.checks, found.good) == (7, 4)
    assert found.outages == (Outage(1, 2, "timeout", 1), Outage(3, 6, "connection refused", 2))
    assert [one.down for one in found.outages] == [False, True]
    assert found.down_s == 4.0
    assert found.ratio == pytest.approx(4 / 7)
    ended = availability(health[:5], 0.0, 10.0)
    assert ended.outages[-1].end_s == pytest.approx(4.01)
    assert availability([], 0.0, 10.0).ratio is None
