"""Many points to few, with the extremes kept. Pure numpy; a run of 200 million tokens is read in slices."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from loadramp.record.event_columns import narrow
from loadramp.record.table import SLICE_EVENTS, Floats, Ints, Table

LOW_S = 1e-5
BINS_PER_DECADE = 200
DECADES = 9
"""Latency bins from 10 µs to 10,000 s, each 1.16 % wide: finer than a pixel of any chart."""
BINS = BINS_PER_DECADE * DECADES


def extremes(x: Floats, y: Floats, buckets: int) -> Ints:
    """Positions of the points worth drawing: first, last, and the lowest and highest of each x bucket.

    Args:
        x: ascending, shape n.
        y: shape n; NaN is never chosen unless it is first or last.
        buckets: of equal width between the first and the last x.

    Returns:
        ascending positions, at most ``2 * buckets + 2`` of them.
    """
    n = len(x)
    if n <= 2 * buckets + 2:
        return np.arange(n)
    width = (x[-1] - x[0]) / buckets or 1.0
    bucket = np.minimum(((x - x[0]) / width).astype(np.int64), buckets - 1)
    keep = np.flatnonzero(~np.isnan(y))
    order = keep[np.lexsort((y[keep], bucket[keep]))]
    edge = np.flatnonzero(np.diff(bucket[order]))
    lowest = order[np.concatenate(([0], edge + 1))] if len(order) else order
    highest = order[np.concatenate((edge, [len(order) - 1]))] if len(order) else order
    chosen: Ints = np.unique(np.concatenate(([0, n - 1], lowest, highest))).astype(np.int64)
    return chosen


def level(begin_s: Floats, end_s: Floats) -> tuple[Floats, Ints]:
    """How many intervals ``[begin, end)`` are open after each change: instants (ascending) and counts.

    An end that is not finite never closes; an interval without a begin is not counted.
    """
    usable = np.isfinite(begin_s)
    begin_s, end_s = begin_s[usable], end_s[usable]
    end_s = np.maximum(end_s[np.isfinite(end_s)], 0.0)
    at = np.concatenate((begin_s, end_s))
    change = np.concatenate((np.ones(len(begin_s), np.int64), -np.ones(len(end_s), np.int64)))
    order = np.argsort(at, kind="stable")
    return at[order], np.cumsum(change[order])


def bin_of(latency_s: Floats) -> Ints:
    """The latency bin of each value; what is below or above all bins goes to the first or last."""
    place = np.maximum(latency_s, 0.0) / LOW_S
    with np.errstate(divide="ignore"):
        np.log10(place, out=place)
    place *= BINS_PER_DECADE
    return np.clip(place, 0, BINS - 1, out=place).astype(np.int64)  # -inf (zero) goes to the first


def bin_edge_s(index: Ints | int) -> Floats:
    """The lower edge of a latency bin in seconds."""
    return np.asarray(LOW_S * 10.0 ** (np.asarray(index) / BINS_PER_DECADE), dtype=np.float64)


@dataclass(slots=True, frozen=True)
class TokenPoints:
    """Token latencies of a slice of requests: one entry an event after the first, that stands for ``weight`` tokens."""

    end_s: Floats
    itl_s: Floats
    weight: Ints


def tokens(table: Table, *, ok_only: bool = False, slice_events: int = SLICE_EVENTS) -> Iterator[TokenPoints]:
    """The token latencies of all requests in slices of about ``slice_events`` events, so that memory stays flat."""
    for _, part in table.slices(slice_events):
        gaps = part.gaps(of=part.ok if ok_only else None)
        end_s, itl_s, weight = gaps.end_s, gaps.gap_s, gaps.tokens
        if (narrow(weight) != 1).any():
            keep = weight > 0
            end_s, itl_s, weight = end_s[keep], itl_s[keep] / weight[keep], weight[keep]
        yield TokenPoints(end_s, itl_s, weight)


def counted(at: Ints, weight: Ints, places: int) -> Ints:
    """How much of ``weight`` (shape n) falls to each of ``places``; ``at``: to which."""
    weights = None if (narrow(weight) == 1).all() else weight
    return np.bincount(at, weights=weights, minlength=places).astype(np.int64)


def tail(counts: Ints, points: int = 80) -> tuple[Floats, Floats]:
    """The share of values above each latency, from bin counts: (latency_s, share), share falling from 1 towards 0.

    Points are spread evenly over the logarithm of the share, so the far tail is drawn as finely as the middle; the last
    one is the highest bin that holds anything.
    """
    total = int(counts.sum())
    if total == 0:
        return np.array([]), np.array([])
    filled = np.flatnonzero(counts)
    above = 1.0 - np.cumsum(counts)[filled] / total
    above[-1] = 0.0
    share = np.concatenate(([1.0], above[:-1]))  # share at or above the bin's lower edge
    goal = np.geomspace(1.0, max(share[-1], 1e-12), points)
    at = np.unique(np.concatenate((np.searchsorted(-share, -goal, side="left"), [0, len(share) - 1])))
    at = at[at < len(share)]
    return bin_edge_s(filled[at]), share[at]


def quantile_of_bins(counts: Ints, q: float) -> Floats:
    """The ``q`` quantile of each row of bin counts, shape (rows, bins); NaN where a row holds fewer than 1/(1-q)."""
    total = counts.sum(axis=1)
    cumulated = np.cumsum(counts, axis=1)
    index = np.argmax(cumulated >= np.maximum(q * total, 1e-9)[:, None], axis=1)
    middle = bin_edge_s(index) * 10.0 ** (0.5 / BINS_PER_DECADE)
    return np.where(total >= 1.0 / (1.0 - q), middle, np.nan)
