"""Did the engine's pace jump to another level within a step and stay there? Pure.

The pace is the median gap of plain decoding in each block of time. Rule: what prompts or the number of streams explain
is no jump, and what does not last is none either.
"""

from dataclasses import dataclass
from math import log

import numpy as np

from loadramp.analysis.diagnosis import gap_causes
from loadramp.analysis.latency import WindowView
from loadramp.analysis.step_time import Decoding, follows, streams_at
from loadramp.record.table import Floats
from loadramp.units import latency

BLOCK_S = 1.0
SIDE_BLOCKS = 6
"""A level lasts at least so many blocks on both sides."""
GAPS_A_BLOCK = 8
JUMP_RATIO = 1.25


@dataclass(slots=True, frozen=True)
class Jump:
    """The pace changed at ``t_s`` from one median gap to another, and stayed."""

    t_s: float
    before_s: float
    after_s: float

    def words(self, at: str) -> str:
        """``at``: the step, as in "at 8 req/s"."""
        return (
            f"{self.t_s:.0f} s into the run, {at}, the median gap went from {latency(self.before_s)} to "
            f"{latency(self.after_s)} and stayed there to the end of the step"
        )


def jump_of(window: WindowView, plain: Decoding) -> Jump | None:
    """The largest lasting jump of the pace within a window, by its gaps of plain decoding, if there is one.

    Medians of blocks of a second (longer where there are fewer than 8 gaps in one), at least 6 on each side. Both sides
    differ by more than 25 % and by more than the number of streams does, do not overlap (p90 of the lower against p10
    of the higher), and the jump happens within four blocks.
    """
    gap_s, at_s = plain
    begin_s, end_s = window.window_s
    width_s = max(BLOCK_S, GAPS_A_BLOCK * (end_s - begin_s) / max(len(gap_s), 1))
    n = int((end_s - begin_s) / width_s)
    if n < 2 * SIDE_BLOCKS:
        return None
    pace_s = gap_causes.block_medians(gap_s, np.minimum(((at_s - begin_s) / width_s).astype(np.int64), n - 1), n, 3)
    streams = streams_at(window, begin_s + (np.arange(n, dtype=np.float64) + 0.5) * width_s)
    known = ~np.isnan(pace_s)
    if np.count_nonzero(known) < 0.8 * n:
        return None
    pace = np.log(np.where(known, pace_s, np.nanmedian(pace_s)))
    k = _split(pace)
    left, right = pace[:k], pace[k:]
    if not _lasting(left, right) or not _sudden(pace, np.log(np.maximum(streams, 1.0)), k):
        return None
    return Jump(begin_s + k * width_s, float(np.exp(np.median(left))), float(np.exp(np.median(right))))


def _split(pace: Floats) -> int:
    """Where two levels fit best: the k that minimises the squared distance to the means of both sides."""
    n = len(pace)
    k = np.arange(SIDE_BLOCKS, n - SIDE_BLOCKS + 1)
    total, squares = np.cumsum(pace), float(np.square(pace).sum())
    left = total[k - 1]
    costs = squares - np.square(left) / k - np.square(total[-1] - left) / (n - k)
    return int(k[np.argmin(costs)])


def _lasting(left: Floats, right: Floats) -> bool:
    low, high = (left, right) if np.median(left) < np.median(right) else (right, left)
    apart = float(np.median(high) - np.median(low))
    return apart > log(JUMP_RATIO) and bool(np.quantile(low, 0.9) < np.quantile(high, 0.1))


def _sudden(pace: Floats, streams: Floats, k: int) -> bool:
    """Most of the difference arises within two blocks to either side, beyond what the change of streams explains.

    How the pace follows the streams (both as logarithms) is taken from within the two sides, half as much again and a
    tenth for noise in the counts, at most in proportion.
    """
    jump = float(np.median(pace[k + 1 : k + 4]) - np.median(pace[k - 4 : k - 1]))
    whole = float(np.median(pace[k:]) - np.median(pace[:k]))
    more = float(np.median(streams[k + 1 : k + 4]) - np.median(streams[k - 4 : k - 1]))
    x = np.concatenate((streams[:k] - streams[:k].mean(), streams[k:] - streams[k:].mean()))
    y = np.concatenate((pace[:k] - pace[:k].mean(), pace[k:] - pace[k:].mean()))
    explained = follows(x, y) * (more if more * jump > 0.0 else 0.0)
    return jump * whole > 0.0 and abs(jump) > 0.7 * abs(whole) and abs(jump) - abs(explained) > 0.8 * log(JUMP_RATIO)
