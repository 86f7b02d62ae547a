"""How far a window of the engine's pace may lie from the long run, learnt from all steps of a run. Pure.

An engine's step time has regimes: a step of a minute may have met none of its slow stretches, and nothing within it
tells. What all steps have in common is the pace; how it varies within and between them says how far the mean of one
window may be off (docs/method.md, "Regimes").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import sqrt

import numpy as np
from scipy.special import chdtri, stdtrit

from loadramp.analysis.latency import WindowView
from loadramp.analysis.least_squares import nonnegative
from loadramp.analysis.step_time import LEAST_S, pace_of, slow_times, streams_at
from loadramp.record.row import Row
from loadramp.record.table import Bools, Floats
from loadramp.record.types import IntervalOf

TIMES_S = np.array([0.5, 1.5, 5.0, 15.0, 45.0])
"""Correlation times of which the pace is made up."""
LONGEST_WITHIN_S, LONGEST_WITHIN_RATIO = 15.0, 0.25
"""Windows that nothing else is like tell of no longer ones than the larger of this and a quarter of the longest."""
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Blocks of so many values of the pace whose means are compared."""
PIECE_S = 25.0
"""So much time is worth one value of the variance, one degree of freedom."""
FEWEST_DEGREES = 2.0
UNSTEADY = 0.15
"""Half seconds whose log pace scatters by less have no regimes worth the name: how busy an engine is moves it, too."""
ALIKE_RATIO = 1.1
"""Windows whose loads lie no further apart serve as one another's repeats: so little load hardly moves the pace."""
SURE = 0.9
"""Of the upper limit of the scatter that the windows leave open."""
LEAST_STRETCHES, LEAST_WHOLE, LEAST_SHARE = 3, 2, 0.03
"""So many slow stretches, so many of which began and ended in view, and their share of the time: then a run has seen
how often they come (as the finding ``engine_unstable`` has it)."""
FITS, LEAST_EXPECTED = 6, 1e-3
"""So often the processes are fitted, each time weighted by the fit before; a variance counts as expected to be at least
this share of what was seen of it."""
SHORTEST_BLOCK_S = 0.5
MOST_BLOCKS = 600
LEAST_GAPS = 4

_Pace = tuple[tuple[float, ...], float, float | None]
"""The pace of a window, its length in seconds, and its load; None where it was overloaded."""


@dataclass(slots=True, frozen=True)
class Wander:
    """The pace as a sum of processes with exponential autocorrelation; ``parts`` their variances on the log scale.

    ``degrees``: of freedom of these variances. ``scatter``: standard deviation of the means of windows of ``alike_s``
    that were offered loads alike, 0 without such windows.
    """

    parts: Floats
    degrees: float
    scatter: float = 0.0
    alike_s: float = 0.0

    def log_sd(self, length_s: float) -> float:
        """Standard deviation of the mean log pace of a window of ``length_s`` around its long-run mean.

        Up to ``alike_s`` no less than those windows scattered: changes slower than any of ``TIMES_S`` show there alone.
        """
        modelled = sqrt(max(0.0, float(self.parts @ mean_variance(length_s))))
        return max(modelled, self.scatter) if length_s <= 1.5 * self.alike_s else modelled

    def most_log_sd(self, length_s: float) -> float:
        """The most that ``log_sd`` may be by what the windows leave open: its one-sided upper limit (chi2)."""
        return self.log_sd(length_s) * sqrt(self.degrees / float(chdtri(self.degrees, SURE)))

    @property
    def times(self) -> float:
        """Half-width of a 95 % interval in standard deviations (Student's t)."""
        return float(stdtrit(self.degrees, 0.975))


@dataclass(slots=True, frozen=True)
class Track:
    """The logarithm of the pace of one window, block by block; shape (n,).

    ``load`` is equal for windows that were offered the same, None where the window was overloaded.
    """

    log_pace: Floats
    width_s: float
    load: float | None

    @property
    def length_s(self) -> float:
        return len(self.log_pace) * self.width_s


def pace_of_window(window: WindowView) -> tuple[list[float] | None, list[tuple[float, float]] | None]:
    """What the row keeps: the pace in equal blocks of the window (half a second; 600 at most), seconds, and when it was
    slow, shape (n, 2), instants of the run. None where the pace is not known."""
    pace = pace_of(window, max(SHORTEST_BLOCK_S, window.length_s / MOST_BLOCKS), LEAST_GAPS)
    if pace is None:
        return None, None
    slow = slow_times(pace, streams_at(window, pace.middle_s))
    return (
        [round(float(median_s), 6) for median_s in pace.median_s],
        [(round(begin_s, 3), round(end_s, 3)) for begin_s, end_s in slow],
    )


def track_of(row: Row) -> Track | None:
    """The pace of a row; None where it is not known."""
    return _track_of(_pace_of(row)) if row.pace_s else None


def _pace_of(row: Row) -> _Pace:
    load = row.rate_rps if row.users is None else row.users
    return tuple(row.pace_s or ()), row.length_s, None if row.saturated or row.void else load


def _track_of(pace: _Pace) -> Track:
    pace_s, length_s, load = pace
    return Track(np.log(np.array(pace_s)), round(length_s / len(pace_s), 2), load)


def tracks_of(rows: Sequence[Row]) -> list[Track]:
    """The pace of the steps that kept up: an overloaded one fills up, which is no regime."""
    return [_track_of(pace) for pace in _kept_up(rows)]


def _kept_up(rows: Sequence[Row]) -> tuple[_Pace, ...]:
    return tuple(pace for row in rows if row.pace_s and (pace := _pace_of(row))[2] is not None)


def learn(rows: Sequence[Row]) -> Wander | None:
    """What the steps that kept up say of the pace; None where it is steady."""
    return _learnt(_kept_up(rows))


@lru_cache(maxsize=4)  # one look at a run asks several times for the same rows
def _learnt(paces: tuple[_Pace, ...]) -> Wander | None:
    known = wander([_track_of(pace) for pace in paces])
    return known if known is not None and sqrt(known.parts.sum()) >= UNSTEADY else None


def with_scatter(rows: Sequence[Row]) -> list[Row]:
    """The rows with their ``pace_log_sd``, how far the mean log pace of a window of that length scatters, by all rows,
    and ``pace_degrees``, of freedom of that. None where the pace is steady."""
    known = learn(rows)
    return [_scatter_of(known, row) for row in rows]


def _scatter_of(known: Wander | None, row: Row) -> Row:
    if known is None or row.length_s <= 0.0:
        return replace(row, pace_log_sd=None, pace_degrees=None)
    return replace(row, pace_log_sd=known.log_sd(row.length_s), pace_degrees=known.degrees)


def interval_of(rows: Sequence[Row]) -> IntervalOf:
    """What the intervals of these rows speak of: the long run where the pace has regimes and several slow stretches
    came and went in view, else the minutes that were measured. Whether a steady engine stays so, they cannot know."""
    return "long_run" if learn(rows) is not None and _come_and_go(rows) else "these_minutes"


def _come_and_go(rows: Sequence[Row]) -> bool:
    kept_up = [row for row in rows if not (row.saturated or row.void)]
    slow = [(row, begin_s, end_s) for row in kept_up for begin_s, end_s in row.slow_times_s or ()]
    whole = sum(
        begin_s > row.window_begin_s + LEAST_S and end_s < row.window_end_s - LEAST_S for row, begin_s, end_s in slow
    )
    lasts_s = [end_s - begin_s for _, begin_s, end_s in slow]
    measured_s = sum(row.length_s for row in kept_up)
    often = len(slow) >= LEAST_STRETCHES and whole >= LEAST_WHOLE and sum(lasts_s) >= LEAST_SHARE * measured_s
    return often and max(lasts_s) <= float(TIMES_S[-1])  # what lasts longer is unknown to the model, and too rare


def mean_variance(length_s: float) -> Floats:
    """Variance of the mean over ``length_s`` of processes of variance one with autocorrelation exp(-h / TIMES_S):
    ``2 / x - 2 (1 - exp(-x)) / x^2`` with x = length / time."""
    x = length_s / TIMES_S
    return np.asarray(2.0 / x - 2.0 * -np.expm1(-x) / x**2)


def wander(tracks: Sequence[Track]) -> Wander | None:
    """The processes that explain the variances of block means of several lengths, within windows and between windows of
    the same load (no negative variance). None without two windows' worth of blocks to compare."""
    equations = [*_within(tracks), *_between(tracks)]
    equations = [equation for equation in equations if equation.observed > 0.0]
    if not equations:
        return None
    worth = max(sum(track.length_s for track in tracks) / PIECE_S - 1.0, FEWEST_DEGREES)
    usable = np.ones(len(TIMES_S), dtype=np.bool_)
    if not any(equation.between for equation in equations):
        longest_s = max(track.length_s for track in tracks)
        usable = max(LONGEST_WITHIN_S, LONGEST_WITHIN_RATIO * longest_s) >= TIMES_S
    return Wander(_explained(equations, worth, usable), worth, *_scatter(tracks))


def _explained(equations: Sequence[_Equation], worth: float, usable: Bools) -> Floats:
    """Variances of the processes, shape (len(TIMES_S),), those that are not ``usable`` zero: least squares of relative
    errors, weighted by degrees of freedom.

    Relative to what the fit expects, not to what was seen: two windows that agree by chance would count for most. Where
    none are alike, block means of seconds alone hardly tell the processes apart: then an equal share for each counts as
    a variance that was seen with one degree of freedom.
    """
    observed = np.array([equation.observed for equation in equations])
    expected = np.array([equation.expected for equation in equations]) * usable
    degrees = np.array([min(equation.degrees, worth) for equation in equations])
    within = np.array([not equation.between for equation in equations])
    weights, share = np.sqrt(degrees) * (within if within.any() else 1.0) / observed, np.inf
    equal = np.eye(len(TIMES_S))[usable & within.all()]
    for _ in range(FITS):
        matrix = np.vstack((expected * weights[:, None], equal / share))
        parts = nonnegative(matrix, np.concatenate((observed * weights, np.ones(len(equal)))))
        weights = np.sqrt(degrees) / np.maximum(expected @ parts, LEAST_EXPECTED * observed)
        share = float(parts.sum()) / max(len(equal), 1) or np.inf
    return parts


@dataclass(slots=True, frozen=True)
class _Equation:
    """A variance that was seen, and what each process adds to it per unit of its own."""

    observed: float
    expected: Floats
    degrees: float
    between: bool = False


def _within(tracks: Sequence[Track]) -> list[_Equation]:
    out = []
    for width_s in sorted({track.width_s for track in tracks}):
        for length in LENGTHS:
            squares, degrees, expected = 0.0, 0, np.zeros(len(TIMES_S))
            for track in tracks:
                blocks = len(track.log_pace) // length
                if track.width_s != width_s or blocks < 2:
                    continue
                means = track.log_pace[: blocks * length].reshape(blocks, length).mean(axis=1)
                squares += float(np.square(means - means.mean()).sum())
                degrees += blocks - 1
                short, whole = mean_variance(length * width_s), mean_variance(blocks * length * width_s)
                expected += blocks * (short - whole)
            if degrees:
                out.append(_Equation(squares / degrees, expected / degrees, degrees))
    return out


def _scatter(tracks: Sequence[Track]) -> tuple[float, float]:
    """Pooled standard deviation of the means of windows of loads alike, and how long these are on average."""
    squares, degrees, lengths = 0.0, 0, []
    for alike in _alike(tracks):
        means = np.array([track.log_pace.mean() for track in alike])
        squares += float(np.square(means - means.mean()).sum())
        degrees += len(alike) - 1
        lengths += [track.length_s for track in alike]
    return (sqrt(squares / degrees), float(np.mean(lengths))) if degrees else (0.0, 0.0)


def _alike(tracks: Sequence[Track]) -> list[list[Track]]:
    """Windows whose loads lie within ALIKE_RATIO of the lowest of their group, two and more."""
    groups: list[list[Track]] = []
    lowest = 0.0
    for load, track in sorted(
        ((track.load, track) for track in tracks if track.load is not None), key=lambda pair: pair[0]
    ):
        if not groups or load > ALIKE_RATIO * lowest:
            groups.append([])
            lowest = load
        groups[-1].append(track)
    return [group for group in groups if len(group) > 1]


def _between(tracks: Sequence[Track]) -> list[_Equation]:
    """One equation of all windows whose load is like that of another."""
    degrees, expected = 0, np.zeros(len(TIMES_S))
    for alike in _alike(tracks):
        n, length_s = len(alike), float(np.mean([track.length_s for track in alike]))
        degrees += n - 1
        expected += n * (mean_variance(length_s) - mean_variance(n * length_s))
    return [_Equation(_scatter(tracks)[0] ** 2, expected / degrees, degrees, True)] if degrees else []
