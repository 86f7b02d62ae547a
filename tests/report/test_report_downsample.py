"""Many points to few: what must survive does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import served_table

from loadramp.record.table import Table
from loadramp.record.types import Record
from loadramp.report import downsample as d


def test_few_points_are_all_kept() -> None:
    assert d.extremes(np.arange(5.0), np.zeros(5), 10).tolist() == [0, 1, 2, 3, 4]


def test_a_single_spike_among_a_million_points_survives() -> None:
    y = np.zeros(1_000_000)
    y[654_321], y[123_456] = 9.0, -9.0
    kept = d.extremes(np.arange(1e6), y, 300)
    assert {654_321, 123_456, 0, 999_999} <= set(kept.tolist())
    assert len(kept) <= 602


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(1, 40))
def test_highest_and_lowest_of_every_bucket_are_kept(values: list[float], buckets: int) -> None:
    y, x = np.array(values), np.arange(float(len(values)))
    kept = d.extremes(x, y, buckets)
    assert len(kept) <= 2 * buckets + 2
    assert (np.diff(kept) > 0).all()
    assert y[kept].max() == y.max()
    assert y[kept].min() == y.min()


def test_nan_is_never_an_extreme() -> None:
    y = np.full(1000, np.nan)
    y[500] = 1.0
    assert 500 in d.extremes(np.arange(1000.0), y, 10)


def test_level_counts_open_intervals() -> None:
    at_s, open_ = d.level(np.array([0.0, 1.0, 2.0]), np.array([1.5, np.inf, 3.0]))
    assert at_s.tolist() == [0.0, 1.0, 1.5, 2.0, 3.0]
    assert open_.tolist() == [1, 2, 1, 2, 1]


@pytest.mark.parametrize(
    ("latency_s", "index"), [(0.0, 0), (1e-6, 0), (1e-5, 0), (1e-4, 200), (1.0, 1000), (1e9, d.BINS - 1)]
)
def test_latency_bins(latency_s: float, index: int) -> None:
    assert d.bin_of(np.array([latency_s * 1.0001])).tolist() == [index]


@given(st.floats(2e-5, 9e3))
def test_a_bin_holds_its_value(latency_s: float) -> None:
    index = d.bin_of(np.array([latency_s]))
    assert d.bin_edge_s(index)[0] <= latency_s * (1 + 1e-9)
    assert latency_s <= d.bin_edge_s(index + 1)[0] * (1 + 1e-9)


@pytest.mark.parametrize("slice_events", [1, 7, 100, 10**9])
def test_tokens_read_in_slices_are_those_of_the_table(slice_events: int) -> None:
    table = served_table(20.0)
    gaps = table.gaps()
    parts = list(d.tokens(table, slice_events=slice_events))
    assert np.concatenate([p.end_s for p in parts]) == pytest.approx(gaps.end_s)
    assert np.concatenate([p.itl_s for p in parts]) == pytest.approx(gaps.gap_s)


def test_an_event_of_several_tokens_weighs_several_and_an_empty_request_none() -> None:
    records = [
        Record(0, 0, 0.0, status="error"),
        Record(1, 0, 0.0, event_s=[1.0, 1.5, 1.9], event_tokens=[1, 5, 0], status="ok"),
        Record(2, 0, 0.0, status="ok"),
        Record(3, 0, 0.0, event_s=[2.0, 2.2], status="error"),
    ]
    (part,) = d.tokens(Table.of(records))
    assert part.itl_s == pytest.approx([0.1, 0.2])
    assert part.weight.tolist() == [5, 1]
    (fine,) = d.tokens(Table.of(records), ok_only=True)
    assert fine.itl_s == pytest.approx([0.1])


def test_gaps_of_interleaved_choices_are_within_a_choice() -> None:
    record = Record(0, 0, 0.0, event_s=[1.0, 1.1, 2.0, 2.2], event_choice=[0, 1, 0, 1], status="ok")
    (part,) = d.tokens(Table.of([record]))
    assert sorted(part.itl_s) == pytest.approx([1.0, 1.1])


def test_the_tail_falls_from_one_to_the_share_of_the_slowest() -> None:
    values = np.concatenate([np.full(990, 0.02), np.full(9, 0.2), [2.0]])
    x_s, share = d.tail(np.bincount(d.bin_of(values), minlength=d.BINS))
    assert share.tolist() == pytest.approx([1.0, 0.01, 0.001])
    assert x_s == pytest.approx([0.02, 0.2, 2.0], rel=0.02)


def test_the_tail_keeps_its_far_end_whatever_the_number_of_points() -> None:
    rng = np.random.default_rng(1)
    values = rng.lognormal(-4, 1.0, 100_000)
    x_s, share = d.tail(np.bincount(d.bin_of(values), minlength=d.BINS), points=20)
    assert len(x_s) <= 22
    assert x_s[-1] == pytest.approx(values.max(), rel=0.02)
    assert share[-1] == pytest.approx(1e-5, rel=1e-6)


def test_an_empty_tail_is_empty() -> None:
    assert [a.tolist() for a in d.tail(np.zeros(d.BINS, dtype=np.int64))] == [[], []]


def test_quantiles_of_bins_need_a_sample_that_can_carry_them() -> None:
    counts = np.zeros((2, d.BINS), dtype=np.int64)
    counts[0, 500], counts[0, 800], counts[1, 500] = 98, 2, 50
    p99 = d.quantile_of_bins(counts, 0.99)
    assert p99[0] == pytest.approx(d.bin_edge_s(800), rel=0.01)
    assert np.isnan(p99[1])
