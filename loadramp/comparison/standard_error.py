"""The standard error of the mean of paired blocks, also where neighbouring blocks are alike. Pure.

Formulas: docs/method.md, "Canary".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from loadramp.record.table import Floats

LEAST_BLOCKS = 5
MOST_CORRELATED = 0.95
LEAST_DF = 3.0
LEAST_UNBIASED = 0.1
"""Alike blocks understate their own variance too, by 1 - (f - 1) / (n - 1); at most tenfold is made up for."""


@dataclass(slots=True, frozen=True)
class PairSpread:
    """A mean of n logarithms with its standard error, the degrees of freedom of that, and the blocks' own spread."""

    mean: float
    se: float
    df: float
    n: int
    sd: float | None = None
    inflation: float = 1.0
    """By how much the blocks' following one another raises the variance of their mean (``variance_inflation``)."""
    noise: float | None = None
    """The mean of many more blocks will have this over their root (``noise_of``); None: as these have it."""

    @property
    def each(self) -> float | None:
        """What one more block brings: ``noise``, else the blocks' own spread."""
        return self.noise if self.noise is not None or self.sd is None else self.sd * sqrt(self.inflation)

    def widened(self, run_sd: float) -> PairSpread:
        """With a spread from run to run that one run of each cannot show: variance 2 run_sd^2 more, known, not
        estimated; the degrees of freedom by Satterthwaite."""
        own, extra = self.se**2, 2.0 * run_sd**2
        if extra == 0.0:
            return self
        df = inf if own == 0.0 else (own + extra) ** 2 / (own**2 / self.df)
        return replace(self, se=sqrt(own + extra), df=df)


def spread(worse_log: Sequence[float], group: Sequence[int] = ()) -> PairSpread | None:
    """Mean of paired blocks: d +- t sqrt(s^2 f / n). None under two blocks, or two in each group.

    f is 1 unless neighbouring blocks are alike (``variance_inflation``); then n / f blocks' worth is known, and the
    degrees of freedom are as many less.

    With two groups (hosts swapped) the mean of their means, in which a difference between the hosts cancels.
    """
    d = np.asarray(worse_log, dtype=np.float64)
    if len(d) < 2:
        return None
    parts = [d[np.asarray(group) == g] for g in (0, 1)] if group and len(set(group)) == 2 else [d]
    if min(map(len, parts)) < 2:
        return None
    df = float(len(d) - len(parts))
    away = [part - part.mean() for part in parts]
    variance = sum(float(np.square(one).sum()) for one in away) / df
    inflation = variance_inflation(away)
    if inflation > 1.0:
        variance /= max(1.0 - (inflation - 1.0) * len(parts) / df, LEAST_UNBIASED)
    se = sqrt(sum(inflation * variance / len(part) for part in parts)) / len(parts)
    df = max(len(d) / inflation - len(parts), min(df, LEAST_DF)) if inflation > 1.0 else df
    return PairSpread(float(np.mean([part.mean() for part in parts])), se, df, len(d), sqrt(variance), inflation)


def variance_inflation(parts: Sequence[Floats]) -> float:
    """By how much the variance of the mean grows because neighbouring blocks are alike, at least 1.

    An engine whose pace drifts or stays slow for minutes makes blocks that follow one another alike, and the spread
    between them says too little. The correlation r of neighbours, corrected for its bias (Kendall: (1 + 3 r) / n), is
    that of a first-order autoregression; f = 1 + 2 sum_k (1 - k / n) r^k. One that chance alone may make (below
    1 / sqrt(n)) counts as none.

    Args:
        parts: residuals in their order, one array for each stretch of time.
    """
    squares = sum(float(np.square(one).sum()) for one in parts)
    n = sum(map(len, parts))
    if squares <= 0.0 or n < LEAST_BLOCKS:
        return 1.0
    r = sum(float((one[1:] * one[:-1]).sum()) for one in parts) / squares
    if r <= 1.0 / sqrt(n):
        return 1.0
    r = min(r + (1.0 + 3.0 * r) / n, MOST_CORRELATED)
    longest = max(map(len, parts))
    k = np.arange(1, longest)
    return float(1.0 + 2.0 * np.sum((1.0 - k / longest) * r**k))
