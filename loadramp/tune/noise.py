"""How far measurements of one configuration lie apart, and what that leaves of a difference between two. Pure.

The evidence is how far visits of one configuration lie apart, pooled over the configurations. What a run states of its
own minutes rests on a few blocks: it only stands in for that scatter until there are replicates (docs/method.md,
"Tuning").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, isinf, log, sqrt

from loadramp.analysis.group_sequential import boundary, t_of
from loadramp.tune.visit import Visit

PRIOR_DF = 3
"""So many degrees of freedom has what is known before there are replicates; each of them takes the place of one."""
LEAST_DF = 1
"""Of the assumed spread, for good: a few visits that agree by chance do not make an interval of no width."""
MOST_STATED = 0.15
"""A run that states a larger standard error has too few blocks to know it."""
ALPHA = 0.025
"""On each side."""
Z = 1.959964
LEAST_DRIFT = 0.05
MOST_ROUNDS = 100


@dataclass(slots=True, frozen=True)
class VisitNoise:
    """Standard deviation of ln(objective) between visits of one configuration, and its degrees of freedom."""

    sd: float
    df: float


@dataclass(slots=True, frozen=True)
class ObjectiveLevel:
    """ln(objective) of one configuration over its visits, larger being better. ``open``: a bound was all there was."""

    mean: float
    se: float
    df: float
    visits: int
    open: bool = False

    @property
    def half(self) -> float:
        """Half-width of the 95 % interval."""
        return t_of(Z, self.df) * self.se

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return inf if self.open else self.mean + self.half

    def values(self, sign: int) -> tuple[float, float, float | None]:
        """The objective itself: value, low, high (None: no upper end). A cost turns the ends round."""
        low, high = exp(self.low), None if self.open else exp(self.high)
        if sign > 0:
            return exp(self.mean), low, high
        return exp(-self.mean), 0.0 if high is None else 1.0 / high, 1.0 / low


@dataclass(slots=True, frozen=True)
class LogRatio:
    """ln(one / other) with its 95 % interval, true however often one looks."""

    mean: float
    half: float
    pairs: int = 0

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def noise_of(visits: Sequence[Visit], sign: int, assumed_sd: float) -> VisitNoise:
    """Pooled over the configurations that were measured more than once, with what is known before there are any."""
    squares, replicates = 0.0, 0
    for each in by_flags(visits).values():
        logs = [value for visit in each if (value := visit.log(sign)) is not None]
        mean = sum(logs) / len(logs) if logs else 0.0
        squares += sum((value - mean) ** 2 for value in logs)
        replicates += max(0, len(logs) - 1)
    weight, prior_sd = LEAST_DF, assumed_sd
    if replicates < PRIOR_DF:
        stated = [min(visit.stated_se, MOST_STATED) for visit in visits if not isinf(visit.stated_se)]
        weight, prior_sd = PRIOR_DF - replicates, max([assumed_sd, *stated])
    df = float(weight + replicates)
    return VisitNoise(sqrt((weight * prior_sd**2 + squares) / df), df)


def levels_of(visits: Sequence[Visit], sign: int, noise: VisitNoise) -> dict[str, ObjectiveLevel]:
    """Of each configuration that was measured, in the order of the first visit: the mean of its visits, which are taken
    to scatter as all do, or as they do themselves where that is more."""
    levels = {}
    for flags, each in by_flags(visits).items():
        known = [(value, isinf(visit.stated_se)) for visit in each if (value := visit.log(sign)) is not None]
        if known:
            n = len(known)
            mean = sum(value for value, _ in known) / n
            own_sd = sqrt(sum((value - mean) ** 2 for value, _ in known) / (n - 1)) if n > 1 else 0.0
            se = max(noise.sd, own_sd) / sqrt(n)
            levels[flags] = ObjectiveLevel(mean, se, noise.df, n, any(bound for _, bound in known))
    return levels


def ratio_of(level: ObjectiveLevel, other: ObjectiveLevel) -> LogRatio:
    """Between two levels, looked at once."""
    se = sqrt(level.se**2 + other.se**2)
    half = inf if level.open or other.open else t_of(Z, min(level.df, other.df)) * se
    return LogRatio(level.mean - other.mean, half)


def better(level: ObjectiveLevel, other: ObjectiveLevel) -> bool:
    """Shown to be better; of a level without an upper end its lower one counts."""
    if level.open:
        return level.low > other.high
    return ratio_of(level, other).low > 0.0


def confirmed(
    pairs: Sequence[tuple[Visit, Visit]], sign: int, noise: VisitNoise, look: int, looks: int
) -> LogRatio | None:
    """ln(first / second) of visits in ABBA order, with the interval that ``look`` of ``looks`` allows
    (O'Brien-Fleming, Student's t); None without a pair.

    Args:
        pairs: a visit of each, measured one after the other.
        sign: 1, or -1 for a cost.
        noise: between visits.
        look, looks: which of how many, from 1.
    """
    known = [x - y for a, b in pairs if (x := a.log(sign)) is not None and (y := b.log(sign)) is not None]
    if not known:
        return None
    n = len(known)
    se = noise.sd * sqrt(2.0 / n)
    times = tuple(k / looks for k in range(1, looks + 1))
    z = boundary(ALPHA, times) / sqrt(look / looks)
    return LogRatio(sum(known) / n, t_of(z, noise.df) * se, n)


def rounds_needed(ratio: LogRatio, noise: VisitNoise, far: float) -> int:
    """About how many rounds of four, those that there are included, tell the two apart or bring the interval within
    ``far``, a logarithm, if their means stay; MOST_ROUNDS where so many do not either."""
    near = max(abs(ratio.mean), far - abs(ratio.mean))
    for rounds in range(1, MOST_ROUNDS):
        df = noise.df + max(0, 4 * rounds - 2 * ratio.pairs)
        if t_of(Z, df) * noise.sd / sqrt(rounds) < near:
            return rounds
    return MOST_ROUNDS


def drift_of(visits: Sequence[Visit], baseline: str) -> tuple[float, float] | None:
    """The baseline's first and last objective where they differ by more than both of their runs state (95 %) and by
    more than LEAST_DRIFT: the host does not stay as it is. None: nothing of that kind was seen."""
    of_baseline = [visit for visit in visits if visit.flags == baseline and visit.log(1) is not None]
    if len(of_baseline) < 2:
        return None
    first, last = of_baseline[0].log(1) or 0.0, of_baseline[-1].log(1) or 0.0
    far = Z * sqrt(of_baseline[0].stated_se ** 2 + of_baseline[-1].stated_se ** 2)
    return (exp(first), exp(last)) if abs(last - first) > max(far, LEAST_DRIFT) else None


def by_flags(visits: Sequence[Visit]) -> Mapping[str, list[Visit]]:
    """Visits of each configuration, in the order of the first."""
    groups: dict[str, list[Visit]] = {}
    for visit in visits:
        groups.setdefault(visit.flags, []).append(visit)
    return groups


def largest_change(ratio: LogRatio) -> float:
    """The largest difference, as a share, that the interval leaves possible."""
    return max(exp(abs(ratio.low)), exp(abs(ratio.high))) - 1.0 if not isinf(ratio.half) else inf


def as_log(share: float) -> float:
    """A difference given as a share, as a logarithm."""
    return log(1.0 + share)
