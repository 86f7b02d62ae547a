"""How far paired blocks scatter about their mean, also where neighbours are alike, and how many of them it takes. Pure.

Formulas: docs/method.md, "Canary".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log, sqrt

import numpy as np
from scipy.special import nctdtr

from loadramp.analysis.group_sequential import t_of
from loadramp.record.table import Floats

LEAST_BLOCKS = 5
MOST_CORRELATED = 0.95
LEAST_DF = 3.0
LEAST_UNBIASED = 0.1
"""Alike blocks understate their own variance too, by 1 - (f - 1) / (n - 1); at most tenfold is made up for."""
LEAST_RATIO = 1.02
"""A smaller difference is never called a regression, however sure it is."""
INTERVAL_Z = 1.96
POWER = 0.8
POWER_Z = 0.84
"""Of a chance of 80 % to decide with the blocks that are named as missing."""
SHOWN_Z = 2.0
WORSE_Z = 2.58
"""Standard errors that show one of about five measures to be worse (Holm)."""
MOST_BLOCKS = 200
MOST_FORESEEN = 0.8
INDEPENDENT = 0.4
"""Correlation of two arms over blocks, below which they count as independent for what more blocks would bring."""
SURE_BLOCKS = 80
"""Blocks after which the noise is known well enough for one figure (docs/benchmarks.md, "Canary")."""
AGREED_WEIGHT = 0.5
"""Of blocks of an earlier comparison, for how well the noise is known: they were picked because they agree."""
MOST_APART = 2.0
"""Noise of an earlier comparison that differs by more than this factor is of other machines, or of another day."""


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
        within, extra = self.se**2, 2.0 * run_sd**2
        if extra == 0.0:
            return self
        df = inf if within == 0.0 else (within + extra) ** 2 / (within**2 / self.df)
        return replace(self, se=sqrt(within + extra), df=df)


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
    variance = sum(float(np.square(part).sum()) for part in away) / df
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
    squares = sum(float(np.square(part).sum()) for part in parts)
    n = sum(map(len, parts))
    if squares <= 0.0 or n < LEAST_BLOCKS:
        return 1.0
    r = sum(float((part[1:] * part[:-1]).sum()) for part in parts) / squares
    if r <= 1.0 / sqrt(n):
        return 1.0
    r = min(r + (1.0 + 3.0 * r) / n, MOST_CORRELATED)
    longest = max(map(len, parts))
    k = np.arange(1, longest)
    return float(1.0 + 2.0 * np.sum((1.0 - k / longest) * r**k))


@dataclass(slots=True, frozen=True)
class Noise:
    """What an earlier comparison of equal versions showed of one measure at one rate. ``sd``: of ln(ratio) of a block,
    as the mean of many blocks has it over their root; ``blocks``: how many it was told from."""

    metric: str
    rate_rps: float
    sd: float
    blocks: int

    def agrees(self, sd: float) -> bool:
        """Whether blocks that scatter by ``sd`` may come from the same machines in the same state."""
        return sd / MOST_APART <= self.sd <= sd * MOST_APART


@dataclass(slots=True, frozen=True)
class Missing:
    """How many more blocks would probably settle it, and the range that this number is known to."""

    blocks: int
    low: int
    high: int

    @staticmethod
    def most(each: Iterable[Missing]) -> Missing:
        """What the measure in most need of them takes."""
        known = list(each)
        return Missing(*(max(getattr(missing, name) for missing in known) for name in ("blocks", "low", "high")))


def more_blocks(spread: PairSpread, margin: float, earlier: Noise | None = None) -> Missing | None:
    """Blocks beyond those there are that settle it with a chance of 80 %, if what was seen so far is the truth.

    A difference that the blocks do not show (within two standard errors) is taken as none: its estimate is chance, and
    the blocks that it would take follow the square of it. One that they show is taken as it is, and settles it when it
    is shown to be within the margin, or to be worse at all: whichever takes fewer. None where it is sure to take more
    than MOST_BLOCKS.

    Args:
        spread: of the blocks so far.
        margin: logarithm of the ratio that is allowed.
        earlier: noise of the same measure in blocks of the same length, from a comparison of equal versions.
    """
    each = spread.each
    if each is None:
        return None
    known = float(spread.n)
    if earlier is not None and earlier.agrees(each):
        blocks = spread.n + earlier.blocks
        each = sqrt((spread.n * each**2 + earlier.blocks * earlier.sd**2) / blocks)
        known += AGREED_WEIGHT * earlier.blocks
    mean = spread.mean if abs(spread.mean) > SHOWN_Z * spread.se else 0.0
    wanted = blocks_for(each, margin - mean)
    if log(LEAST_RATIO) < mean < 2.0 * margin:  # too near the margin to lie beyond it soon, and worse than nothing
        wanted = min(wanted, blocks_for(each, mean, WORSE_Z))
    root = sqrt(uncertainty(known))
    if wanted / root - spread.n > MOST_BLOCKS:
        return None
    low, middle, high = (max(1, ceil(total) - spread.n) for total in (wanted / root, wanted, wanted * root))
    return Missing(middle, low, high)


def uncertainty(blocks: float) -> float:
    """Factor between the ends of the range of blocks it takes, when the noise is known from ``blocks`` blocks.

    The blocks follow the variance, which slow stretches make hard to know: a factor of 8 after 10 blocks, of 4 after
    20, one figure after SURE_BLOCKS. So wide, the range is right within 1.5 in nine of ten simulated verdicts.
    """
    return max(1.0, SURE_BLOCKS / max(blocks, 1.0))


def noise_of(base: Floats, candidate: Floats) -> float | None:
    """Standard deviation of ln(candidate / base) that the mean of many blocks will have over their root; None unknown.

    Where the two arms have little in common (correlation below INDEPENDENT, as engines that are slow each at its own
    time), it is told from the spread of either: twice the values, and a better guess than their differences are. Their
    following one another counts with (1 + r) / (1 - r), r corrected for half its bias: nearest the truth in the median.

    Args:
        base: values of the same blocks, all above 0, shape (n,).
        candidate: the same of the other arm.
    """
    n = len(base)
    if n < LEAST_BLOCKS or min(base.min(), candidate.min()) <= 0.0:
        return None
    parts = (
        _residuals(base, candidate) if arms_independent(base, candidate) else [_away(np.log(candidate) - np.log(base))]
    )
    whole = sum(float(np.square(part).sum()) for part in parts)
    if whole <= 0.0:
        return 0.0
    r = sum(float((part[1:] * part[:-1]).sum()) for part in parts) / whole
    r = min(max(r + 0.5 * (1.0 + 3.0 * r) / n, 0.0), MOST_FORESEEN)
    return sqrt(whole / (n - 1) * (1.0 + r) / (1.0 - r))


def arms_independent(base: Floats, candidate: Floats) -> bool:
    """The two arms have little in common over the blocks: what makes one slow does not touch the other."""
    away = _residuals(base, candidate)
    squares = [float(np.square(part).sum()) for part in away]
    return min(squares) > 0.0 and float((away[0] * away[1]).sum()) < INDEPENDENT * sqrt(squares[0] * squares[1])


def _residuals(base: Floats, candidate: Floats) -> list[Floats]:
    return [_away(np.log(base)), _away(np.log(candidate))]


def _away(values: Floats) -> Floats:
    return np.asarray(values - values.mean(), dtype=np.float64)


def blocks_for(sd: float, distance: float, z: float = INTERVAL_Z) -> float:
    """Blocks after which an interval of ``z`` standard errors excludes what lies ``distance`` away, 80 % of the times.

    K = ((z + 0.84) sd / distance)^2 + 2, the 2 for Student's t; ``sd`` of one block's logarithm.
    """
    return ((z + POWER_Z) * sd / distance) ** 2 + 2.0 if distance else inf


def pass_probability(blocks: int, sd: float, margin: float, z: float) -> float:
    """The chance that equal versions are shown to be within ``margin``, by Student's noncentral t distribution.

    Args:
        blocks: of each, at least 2.
        sd: of one block's logarithm.
        margin: logarithm of the ratio that is allowed.
        z: standard errors that the interval reaches at this look.
    """
    if sd <= 0.0:
        return 1.0
    df = blocks - 1.0
    return float(1.0 - nctdtr(df, margin * sqrt(blocks) / sd, t_of(z, df)))
