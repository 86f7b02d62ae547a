"""The engine's own step time as seen from outside, block by block, and its slow stretches. Pure.

The pace is the median gap of plain decoding (no other request's first token falls into it) in a block of time: how long
the prompts are or how many come does not move it. Definitions: docs/method.md, "The engine's pace".
"""

from dataclasses import dataclass
from math import inf, log

import numpy as np

from loadramp.analysis.diagnosis import gap_causes
from loadramp.analysis.latency import WindowView
from loadramp.record.table import Bools, Floats

AROUND_S = 20.0
"""What is usual at an instant is learnt from so many seconds before and after it."""
USUAL = 0.25
"""... as this quantile of the pace: an engine that is slow three quarters of the time still shows its fast state."""
FASTEST = 0.1
"""The fast pace of one block of a comparison, as a quantile: the block is too short to look around."""
SLOW_RATIO = 1.28
"""A block is slow when its pace exceeds the usual one by this factor."""
LEAST_S = 1.0
"""Shorter slow stretches are left out: a burst of prompts can make one."""
RETURN_S = 2.0
"""A return to the usual pace that is shorter does not end a slow time."""
STEADY_BLOCK_S = 0.5
"""The blocks of ``steady_s``."""

Decoding = tuple[Floats, Floats]
"""Gaps and the instants at which they ended, shape (n,) each."""


@dataclass(slots=True, frozen=True)
class StepTimes:
    """Median gaps of plain decoding, shape (n,), seconds; block i begins at ``begin_s + i * width_s``.

    Blocks with too few gaps are filled in by interpolation; ``known`` says which were measured.
    """

    begin_s: float
    width_s: float
    median_s: Floats
    known: Bools

    @property
    def middle_s(self) -> Floats:
        return self.begin_s + (np.arange(len(self.median_s), dtype=np.float64) + 0.5) * self.width_s

    def usual_s(self, around_s: float = AROUND_S) -> Floats:
        """The pace of the fast state around each block, shape (n,)."""
        if around_s >= len(self.median_s) * self.width_s:
            return np.full(len(self.median_s), np.quantile(self.median_s, USUAL))
        half, block = max(1, round(around_s / self.width_s)), np.arange(len(self.median_s))
        padded = np.pad(self.median_s, half, constant_values=np.inf)
        ordered = np.sort(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
        at = USUAL * (np.minimum(block + half, block[-1]) - np.maximum(block - half, 0))  # as ``quantile`` has it
        below = at.astype(np.int64)
        low, high = ordered[block, below], ordered[block, below + 1]
        return np.asarray(low + (high - low) * (at - below))


@dataclass(slots=True, frozen=True)
class Stretch:
    """A time in which the engine was slow, or not. ``pace_s``: median of its blocks; ``usual_s``: of the fast state."""

    begin_s: float
    end_s: float
    slow: bool
    pace_s: float
    usual_s: float

    @property
    def lasts_s(self) -> float:
        return self.end_s - self.begin_s

    @property
    def factor(self) -> float:
        return self.pace_s / self.usual_s


def decoding(window: WindowView, median_s: float | None = None) -> Decoding:
    """The gaps of plain decoding in the window, and when they ended. ``median_s``: of all gaps, if it is known."""
    gaps = window.gaps
    if len(gaps.gap_s) == 0:
        return gaps.gap_s, gaps.end_s
    median_s = float(np.median(gaps.gap_s)) if median_s is None else median_s
    plain = np.flatnonzero(gap_causes.undisturbed(window, median_s) & (gaps.gap_s > 0.0))
    return gaps.gap_s[plain], gaps.end_s[plain]


def pace_of(window: WindowView, width_s: float, least_gaps: int = 8, plain: Decoding | None = None) -> StepTimes | None:
    """The pace in blocks of ``width_s``; None when less than a third of the blocks has ``least_gaps`` plain gaps.

    ``plain``: ``decoding(window)``, if it is known.
    """
    begin_s, end_s = window.window_s
    n = int((end_s - begin_s) / width_s)
    gap_s, at_s = decoding(window) if plain is None else plain
    if n < 1 or len(gap_s) == 0:
        return None
    block = np.minimum(((at_s - begin_s) / width_s).astype(np.int64), n - 1)
    median_s = gap_causes.block_medians(gap_s, block, n, least_gaps)
    known = ~np.isnan(median_s)
    if np.count_nonzero(known) < n / 3.0:
        return None
    at = np.arange(n, dtype=np.float64)
    return StepTimes(begin_s, width_s, np.interp(at, at[known], median_s[known]), known)


def stretches(pace: StepTimes, streams: Floats | None = None, around_s: float = AROUND_S) -> list[Stretch]:
    """The whole time in order, as stretches alternately slow and not.

    ``streams``: those under way in the middle of each block, shape (n,). What their number explains is no slowness: how
    the pace follows it (both as logarithms) is taken from the blocks that are not slow, half as much again and a tenth
    for noise in the counts, at most in proportion.
    """
    usual_s = pace.usual_s(around_s)
    above = np.log(pace.median_s / usual_s)
    slow = above > log(SLOW_RATIO)
    if streams is not None:
        more = np.log(np.maximum(streams, 1.0))
        more -= np.median(more[~slow]) if not slow.all() else np.median(more)
        above = above - follows(more[~slow], np.log(pace.median_s[~slow])) * np.maximum(more, 0.0)
        slow &= above > log(SLOW_RATIO)
    edges = np.concatenate(([0], np.flatnonzero(np.diff(slow.astype(np.int64))) + 1, [len(slow)]))
    return [
        Stretch(
            pace.begin_s + a * pace.width_s,
            pace.begin_s + b * pace.width_s,
            bool(slow[a]),
            float(np.median(pace.median_s[a:b])),
            float(np.median(usual_s[a:b])),
        )
        for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    ]


def slow_stretches(window: WindowView, pace: StepTimes) -> list[Stretch]:
    """The slow stretches of LEAST_S and more that the number of streams does not explain."""
    return [
        part for part in stretches(pace, streams_at(window, pace.middle_s)) if part.slow and part.lasts_s >= LEAST_S
    ]


def slow_times(pace: StepTimes, streams: Floats | None = None) -> list[tuple[float, float]]:
    """When the engine was slow for LEAST_S and more, begin and end: slower than what is usual in the whole window, and
    short returns between left out, so that a slow minute counts once."""
    joined: list[tuple[float, float]] = []
    for part in stretches(pace, streams, inf):
        if part.slow and joined and part.begin_s - joined[-1][1] < RETURN_S:
            joined[-1] = joined[-1][0], part.end_s
        elif part.slow:
            joined.append((part.begin_s, part.end_s))
    return [(begin_s, end_s) for begin_s, end_s in joined if end_s - begin_s >= LEAST_S]


def steady_s(window: WindowView) -> float | None:
    """The engine's step time as its slow stretches leave it: the median pace of the blocks that are not slow, seconds.

    It tells two engines apart by what they do at their fast pace, however much of the time either was slow (at most
    nine tenths of it). None where the pace is not known.
    """
    pace = pace_of(window, STEADY_BLOCK_S)
    if pace is None:
        return None
    fast = pace.median_s <= SLOW_RATIO * float(np.quantile(pace.median_s, FASTEST))
    return float(np.median(pace.median_s[fast])) if fast.any() else None


def follows(streams: Floats, pace: Floats) -> float:
    """By how much the logarithm of the pace may follow the streams': 1.5 times least squares, plus 0.1, in 0.1-1."""
    x, y = streams - streams.mean() if len(streams) else streams, pace - pace.mean() if len(pace) else pace
    slope = float((x * y).sum() / max(float(np.square(x).sum()), 1e-9))
    return min(max(1.5 * slope + 0.1, 0.1), 1.0)


def streams_at(window: WindowView, t_s: Floats) -> Floats:
    """Streams under way at the instants ``t_s``: those with a first token and no end."""
    near = window.near
    last_s = np.where(near.in_flight, np.inf, near.last_s)[near.events > 0]
    first_s = near.first_s[near.events > 0]
    begun = np.searchsorted(np.sort(first_s), t_s, "right")
    return np.asarray(begun - np.searchsorted(np.sort(last_s), t_s, "right"), dtype=np.float64)
