"""Where a short noisy series changed its level: E-divisive splits, Student's t, outliers clipped first. Pure.

Matteson and James, "A nonparametric approach for multiple change point analysis", JASA 2014; the t-test in place of
their permutations as in Fleming et al., "Hunter", ICPE 2023. Formulas: docs/method.md, "Nights".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from scipy.special import stdtr, stdtrit

from loadramp.record.table import Floats, Ints

SHORTEST = 3
"""Values on each side of a change point."""
WEAK = 10.0
"""A split is tried with p up to this times the limit; what does not hold against its neighbours is dropped after."""
TINY = 1e-12


@dataclass(slots=True, frozen=True)
class Shift:
    """The series changes between ``at - 1`` and ``at``. ``step`` is the mean after minus the mean before."""

    at: int
    step: float
    low: float
    high: float
    """95 % interval of ``step``."""
    p: float


@dataclass(slots=True, frozen=True)
class SeriesSpread:
    """What is known beforehand of how far values scatter: squares about their means, and degrees of freedom."""

    squares: float = 0.0
    freedom: int = 0
    correlation: float = 0.0
    """Of neighbours, at least 0."""

    def of_mean(self, n: int) -> float:
        """Variance of the mean of n neighbours, in variances of one: of an AR(1) process."""
        apart = np.arange(1, n)
        return float(1.0 + 2.0 * np.sum((1.0 - apart / n) * self.correlation**apart)) / n


UNKNOWN = SeriesSpread()


def hampel(values: Floats, window: int = 14, limits: float = 3.0) -> Floats:
    """``values`` clipped to the median of the ``window`` around each, plus or minus ``limits`` standard deviations.

    The deviation is 1.4826 MAD. At the ends the window is cut, not moved: the latest nights have only their past.
    """
    half, n = window // 2, len(values)
    if n == 0:
        return values
    padded = np.concatenate((np.full(half, np.nan), values, np.full(half, np.nan)))
    near = np.sort(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)  # the padding goes last
    count = np.minimum(np.arange(n), half) + np.minimum(np.arange(n)[::-1], half) + 1
    middle = _middles(near, count)
    away = np.sort(np.abs(near - middle[:, None]), axis=1)
    reach = limits * 1.4826 * _middles(away, count)
    clipped = np.clip(values, middle - reach, middle + reach)
    return np.where(reach > 0.0, clipped, values)


def _middles(ordered: Floats, count: Ints) -> Floats:
    """Median of the first ``count[i]`` values of each ascending row."""
    rows = np.arange(len(ordered))
    return np.asarray((ordered[rows, (count - 1) // 2] + ordered[rows, count // 2]) / 2.0)


def shifts(
    values: Floats, *, p_limit: float = 1e-4, least: float = 0.0, window: int = 50, spread: SeriesSpread = UNKNOWN
) -> list[Shift]:
    """The change points of ``values`` (shape n), in order.

    Args:
        values: one a night; logarithms, so that steps are relative.
        p_limit: a change point is kept when Student's t of its two sides has at most this p.
        least: and when its step is at least this large.
        window: longer series are cut into half-overlapping windows of this many, as old levels say nothing about new.
        spread: of values before these, which count for the scatter and not for the level.
    """
    points: set[int] = set()
    for begin in range(0, max(len(values) - window // 2, 1), max(window // 2, 1)):
        points |= {begin + at for at in _splits(values[begin : begin + window], WEAK * p_limit, spread)}
    return _kept(values, sorted(points), p_limit, least, window, spread)


def divide(values: Floats) -> int | None:
    """The E-divisive split: tau of the (tau, kappa) with the largest scaled energy distance of [0, tau), [tau, kappa).

    ``Q = m k / (m + k) (2 mean|a - b| - mean|a - a'| - mean|b - b'|)`` with m and k values on the sides, alpha = 1.
    None when the series is too short to be split.
    """
    n = len(values)
    if n < 2 * SHORTEST:
        return None
    apart = np.abs(values[:, None] - values[None, :])
    sums = np.zeros((n + 1, n + 1))
    sums[1:, 1:] = apart.cumsum(0).cumsum(1)
    tau = np.arange(SHORTEST, n - SHORTEST + 1)[:, None]
    kappa = np.arange(2 * SHORTEST, n + 1)[None, :]
    m, k = tau.astype(np.float64), (kappa - tau).astype(np.float64)
    usable = k >= SHORTEST
    k = np.where(usable, k, 2.0)
    inner = sums[tau, tau]
    across = sums[tau, kappa] - inner
    right = sums[kappa, kappa] - 2.0 * across - inner
    energy = 2.0 * across / (m * k) - inner / (m * (m - 1.0)) - right / (k * (k - 1.0))
    score = np.where(usable, m * k / (m + k) * energy, -np.inf)
    return int(tau[int(np.unravel_index(int(np.argmax(score)), score.shape)[0]), 0])


def compare(before: Floats, after: Floats, at: int = 0, spread: SeriesSpread = UNKNOWN) -> Shift:
    """Student's t (pooled variance, as three nights alone cannot tell their own) of two stretches of at least one.

    ``spread`` is pooled with theirs.
    """
    m, k = len(before), len(after)
    step = float(after.mean() - before.mean())
    freedom = m + k - 2 + spread.freedom
    if freedom < 1:
        return Shift(at, step, -np.inf, np.inf, 1.0)
    within = float(np.square(before - before.mean()).sum() + np.square(after - after.mean()).sum())
    squares = within + spread.squares
    se = max(sqrt(squares / freedom * (spread.of_mean(m) + spread.of_mean(k))), TINY)
    half = float(stdtrit(freedom, 0.975)) * se
    return Shift(at, step, step - half, step + half, 2.0 * float(stdtr(freedom, -abs(step) / se)))


def _splits(values: Floats, p_limit: float, spread: SeriesSpread) -> list[int]:
    """Split again and again where it is worth it."""
    at = divide(values)
    if at is None or compare(values[:at], values[at:], spread=spread).p > p_limit:
        return []
    before, after = _splits(values[:at], p_limit, spread), _splits(values[at:], p_limit, spread)
    return [*before, at, *(at + later for later in after)]


def _kept(
    values: Floats, points: Sequence[int], p_limit: float, least: float, window: int, spread: SeriesSpread
) -> list[Shift]:
    """Each point against its neighbours' stretches; the weakest goes first, until all that are left hold."""
    left = list(points)
    while left:
        edges = [0, *left, len(values)]
        moved = [
            compare(values[max(edges[i], at - window) : at], values[at : min(edges[i + 2], at + window)], at, spread)
            for i, at in enumerate(left)
        ]
        weak = [shift for shift in moved if shift.p > p_limit or abs(shift.step) < least]
        if not weak:
            return moved
        left.remove(max(weak, key=lambda shift: shift.p).at)
    return []
