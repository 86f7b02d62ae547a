"""Trends that are there are found, chance is not, and what could not be seen is inconclusive."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from records_and_rows import answer

from loadramp.campaign.drift import block_p99s, memory_growth, p99_drift, trend
from loadramp.record.table import Table
from loadramp.record.types import Sample


def ar1(rng: np.random.Generator, n: int, rho: float) -> np.ndarray:  # type: ignore[type-arg]  # floats
    out = [float(rng.standard_normal())]
    for _ in range(n - 1):
        out.append(rho * out[-1] + (1 - rho**2) ** 0.5 * float(rng.standard_normal()))
    return np.array(out)


def test_the_slope_is_that_of_theil_and_sen_and_the_interval_holds_it() -> None:
    found = trend(np.array([1.0, 2.1, 2.9, 4.2, 5.0, 6.1, 6.9, 8.0, 30.0, 10.0]))  # one outlier
    assert found.slope == pytest.approx(1.0, abs=0.05)
    assert found.low <= found.slope <= found.high
    assert found.p < 0.001


def test_a_falling_or_flat_series_does_not_rise() -> None:
    assert trend(np.arange(20.0)[::-1]).p > 0.99
    assert trend(np.ones(20)).p > 0.5
    assert trend(np.ones(20)).slope == 0.0


@pytest.mark.parametrize(("rho", "most"), [(0.0, 0.015), (0.4, 0.035)])
def test_false_alarms_stay_near_one_percent_though_neighbours_correlate(rho: float, most: float) -> None:
    rng = np.random.default_rng(5)
    alarms = sum(trend(ar1(rng, 20, rho)).p < 0.01 for _ in range(800))
    assert alarms / 800 <= most


@cache
def soak(rise: float, seconds: float = 900.0, rate: float = 10.0, noise: float = 0.1, seed: int = 1) -> Table:
    """Requests whose ITL and TTFT rise linearly by ``rise`` over the soak."""
    rng = np.random.default_rng(seed)
    records = []
    for k, due in enumerate(np.sort(rng.uniform(0.0, seconds, int(seconds * rate)))):
        factor = 1.0 + rise * due / seconds
        gaps = 0.02 * factor * np.exp(noise * rng.standard_normal(8))
        ttft = 0.1 * factor * float(np.exp(noise * rng.standard_normal()))
        records.append(answer(k, float(due), float(due) + ttft, gaps.tolist()))
    return Table.of(records)


def test_a_rise_of_a_fifth_is_found_in_both_metrics_and_none_where_there_is_none() -> None:
    rising = p99_drift(soak(0.2), (0.0, 900.0), largest_ratio=0.05, unseen_ratio=0.5)
    assert [one.status for one in rising] == ["fail", "fail"]
    assert [one.metric for one in rising] == ["ttft", "itl"]
    assert rising[1].rise_ratio == pytest.approx(0.2, abs=0.05)
    assert "by chance so clear a rise" in rising[0].reason
    still = p99_drift(soak(0.0), (0.0, 900.0), largest_ratio=0.05, unseen_ratio=0.5)
    assert [one.status for one in still] == ["pass", "pass"]
    assert len(still[0].values) == 40


@pytest.mark.parametrize(("begin_s", "end_s"), [(0.0, 300.0), (300.0, 600.0), (450.0, 700.0), (540.0, 600.0)])
def test_a_return_from_a_slow_stretch_is_no_drift(begin_s: float, end_s: float) -> None:
    """Half again as slow for a while, then as before, wherever in the soak that was."""
    table = soak(0.0)
    late = (table.due_s >= begin_s) & (table.due_s < end_s)
    begun_s = np.repeat(table.due_s, table.events)
    event_s = np.where(np.repeat(late, table.events), begun_s + 1.5 * (table.event_s - begun_s), table.event_s)
    found = p99_drift(replace(table, event_s=event_s), (0.0, 900.0), largest_ratio=0.05, unseen_ratio=0.5)
    assert "fail" not in [one.status for one in found]


def test_a_rise_within_what_is_let_pass_passes() -> None:
    found = p99_drift(soak(0.2), (0.0, 900.0), largest_ratio=0.3, unseen_ratio=0.5)
    assert [one.status for one in found] == ["pass", "pass"]
    assert "a small rise" in found[0].reason


def test_too_short_a_soak_and_too_noisy_a_metric_are_inconclusive() -> None:
    short = p99_drift(soak(0.0, 100.0), (0.0, 100.0), largest_ratio=0.05, unseen_ratio=0.5)
    assert {one.status for one in short} == {"inconclusive"}
    assert "it takes 12" in short[0].reason
    noisy = p99_drift(soak(0.0, noise=1.5), (0.0, 900.0), largest_ratio=0.05, unseen_ratio=0.1)
    assert noisy[0].status == "inconclusive"
    assert "cannot be ruled out" in noisy[0].reason


def test_a_block_without_a_hundred_values_has_no_p99() -> None:
    records = [answer(k, k / 20.0, k / 20.0 + 1.0, [0.5]) for k in range(200)]
    found = block_p99s(Table.of([*records, answer(200, 15.0, 16.0, [0.5])]), (0.0, 20.0), 2)
    assert found == {"ttft": [pytest.approx(1.0), None], "itl": [pytest.approx(0.5), None]}


def memory(values: list[float], name: str = "process_memory_bytes") -> list[Sample]:
    return [Sample(float(k), "http://s/metrics", {name: value}) for k, value in enumerate(values)]


def test_memory_that_goes_on_growing_fails_and_a_level_one_passes() -> None:
    leak = memory_growth(memory([1e9 + 1e6 * k for k in range(600)]), (0.0, 600.0), largest_ratio=0.05)
    assert [one.status for one in leak] == ["fail"]
    assert leak[0].rise_ratio == pytest.approx(0.35, abs=0.05)
    level = memory_growth(memory([1e9 + 1e5 * (k % 7) for k in range(600)]), (0.0, 600.0), largest_ratio=0.05)
    assert [one.status for one in level] == ["pass"]


def test_memory_that_fills_at_first_or_steps_once_is_no_leak() -> None:
    filling = [1e9 + 4e8 * min(k / 90.0, 1.0) for k in range(600)]
    assert memory_growth(memory(filling), (0.0, 600.0), largest_ratio=0.05)[0].status == "pass"
    step = [1e9 if k < 350 else 1.2e9 for k in range(600)]
    found = memory_growth(memory(step), (0.0, 600.0), largest_ratio=0.05)[0]
    assert found.status == "inconclusive"  # grown by a fifth, but not steadily
    assert found.rise_ratio == pytest.approx(0.2)


def test_each_page_and_quantity_is_judged_and_no_memory_is_nothing() -> None:
    both = [
        *memory([1e9] * 600),
        *(Sample(float(k), "http://d/m", {"gpu_memory_used_bytes": 7e10}) for k in range(600)),
    ]
    assert [one.metric for one in memory_growth(both, (0.0, 600.0), largest_ratio=0.05)] == [
        "process_memory_bytes", "gpu_memory_used_bytes"
    ]  # fmt: skip
    assert memory_growth([Sample(1.0, "u", {"running": 1.0})], (0.0, 600.0), largest_ratio=0.05) == []
    gone = memory_growth(memory([1e9] * 200), (0.0, 600.0), largest_ratio=0.05)
    assert gone[0].status == "inconclusive"
