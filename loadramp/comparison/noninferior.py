"""Is the candidate worse than it may be? Paired blocks, non-inferiority within a margin, several looks. Pure.

All logarithms are of "how many times worse": positive means that the candidate is worse, whatever the measure. What was
not measured never passes. Formulas: docs/method.md, "Canary".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt
from typing import Literal

import numpy as np

from loadramp.analysis.group_sequential import holm, look_p, look_z, t_of, times_of, z_of
from loadramp.comparison.block_spread import (
    LEAST_RATIO,
    Missing,
    Noise,
    PairSpread,
    arms_independent,
    more_blocks,
    noise_of,
    spread,
)
from loadramp.comparison.blocks import CEILING, MEASURES, words_of
from loadramp.units import plural

ALPHA = 0.025
"""Chance, over all looks, to pass a candidate that is worse by exactly the margin; over all looks and measures, to call
an equal one worse. Two-sided it is the printed 95 % interval, so verdict and interval cannot disagree."""

FURTHEST = 50.0
"""A logarithm beyond it is not told as a ratio."""

Status = Literal["within", "worse", "beyond", "open", "no_data"]


@dataclass(slots=True, frozen=True)
class Looks:
    """When the blocks are looked at, as shares of all of them, and which share there is now."""

    times: tuple[float, ...] = (1.0,)
    now: float = 1.0

    @staticmethod
    def at(done: int, looks: Sequence[int], total: int) -> Looks:
        """After ``done`` of ``total`` blocks; a look that was not planned is added to the plan."""
        done, total = max(done, 1), max(total, done, 1)
        return Looks(times_of([*looks, done], total), done / total)

    @property
    def z(self) -> float:
        """How many standard errors the interval reaches at this look."""
        return look_z(ALPHA, self.times, self.now)


@dataclass(slots=True, frozen=True)
class PairedSeries:
    """One measure at one rate, block by block: baseline's and candidate's value and how much worse (None: no pair)."""

    metric: str
    rate_rps: float | None
    worse_log: Sequence[float | None]
    base: Sequence[float | None] = ()
    candidate: Sequence[float | None] = ()
    reason: str = ""
    """Why values are missing."""
    group: Sequence[int] = ()
    """0 or 1 for each block when the hosts were swapped half-way; empty: they were not."""
    overall: bool = False
    """The mean over all rates: shown, never part of the verdict, which rests on each rate."""

    @property
    def one_sided(self) -> tuple[int, int]:
        """Blocks in which only the candidate, only the baseline has no number."""
        pairs = list(zip(self.base, self.candidate, strict=True))
        return sum(c is None and b is not None for b, c in pairs), sum(b is None and c is not None for b, c in pairs)


@dataclass(slots=True, frozen=True)
class Effect:
    """How much worse one measure is at one rate, with its interval, and what that means. Logarithms, None unknown."""

    metric: str
    rate_rps: float | None
    primary: bool
    margin: float
    status: Status
    n: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    """95 % interval at this look: wholly below the margin it passes, wholly above it fails."""
    sd: float | None = None
    noise: float | None = None
    """``sd`` with what blocks that follow one another alike add: the mean of n blocks has noise / sqrt(n)."""
    p: float | None = None
    """One-sided, of its being worse; true under several looks and, for primary measures, Holm's."""
    p_other: float | None = None
    """One-sided, of its being better, uncorrected: for A/A, where either way is a difference."""
    base: float | None = None
    candidate: float | None = None
    """Means over the blocks, in the measure's own unit."""
    more: Missing | None = None
    """Blocks that would probably settle it; None: settled, or more than are worth their time."""
    reason: str = ""

    @property
    def words(self) -> str:
        return words_of(self.metric)

    @property
    def worse(self) -> int:
        return CEILING.worse if self.metric == "ceiling" else MEASURES[self.metric].worse

    def ratio(self, of: Literal["mean", "low", "high"] = "mean") -> float | None:
        """Candidate / baseline. For a measure of which less is worse the limits change places. None: not known, or an
        early look at few blocks knows so little that no number holds it."""
        if self.worse < 0 and of in ("low", "high"):
            of = "high" if of == "low" else "low"
        value: float | None = getattr(self, of)
        return None if value is None or abs(value) > FURTHEST else exp(self.worse * value)

    @property
    def worst_ratio(self) -> float | None:
        """The end of the interval that is held against the margin."""
        return self.ratio("high" if self.worse > 0 else "low")

    @property
    def vague(self) -> bool:
        """The interval spans a factor of 100: too few blocks to say anything."""
        return self.low is None or self.high is None or self.high - self.low > log(100.0)

    @property
    def allowed_ratio(self) -> float:
        """The ratio candidate / baseline at the margin."""
        return exp(self.worse * self.margin)


def judge(
    series: Sequence[PairedSeries],
    looks: Looks,
    *,
    margin: float,
    primary: Sequence[str],
    run_sd: float = 0.0,
    noise: Sequence[Noise] = (),
) -> list[Effect]:
    """Every measure at every rate, in the order given.

    Args:
        series: what was measured.
        looks: which look this is.
        margin: share by which a measure may be worse (0.1: ln 1.1).
        primary: the measures that the verdict rests on; Holm's correction is over them, and apart from that over the
            others.
        run_sd: see ``Spread.widened``; 0 for paired blocks of the same hours.
        noise: of an earlier comparison of equal versions; it counts only for how many blocks are missing.
    """
    effects = []
    earlier = {(entry.metric, entry.rate_rps): entry for entry in noise}
    for paired in series:
        spread, why = _usable(paired)
        if spread is not None and run_sd:
            spread = spread.widened(run_sd)
        deciding = paired.metric in primary and not paired.overall
        known = earlier.get((paired.metric, paired.rate_rps or 0.0))
        effects.append(effect(paired, spread, looks, log(1.0 + margin), deciding, why, known))
    for wanted in (True, False):
        correct(effects, wanted)
    return [settle(effect) for effect in effects]


def effect(
    series: PairedSeries,
    spread: PairSpread | None,
    looks: Looks,
    margin: float,
    primary: bool,
    why: str = "",
    earlier: Noise | None = None,
) -> Effect:
    """The effect of one spread, before any correction for how many are tested."""
    bare = Effect(series.metric, series.rate_rps, primary, margin, "no_data", base=_mean(series.base),
                  candidate=_mean(series.candidate), reason=why)  # fmt: skip
    if spread is None:
        return bare
    half = t_of(looks.z, spread.df) * spread.se if spread.se else 0.0
    t = spread.mean / spread.se if spread.se else inf if spread.mean > 0 else -inf
    return replace(
        bare,
        status="no_data" if why else "open",
        n=spread.n,
        mean=spread.mean,
        low=spread.mean - half,
        high=spread.mean + half,
        sd=spread.sd,
        noise=spread.each,
        p=look_p(z_of(t, spread.df), looks.times, looks.now),
        p_other=look_p(-z_of(t, spread.df), looks.times, looks.now),
        more=None if why else more_blocks(spread, margin, earlier),
    )


def _usable(series: PairedSeries) -> tuple[PairSpread | None, str]:
    """The spread of the pairs, and why they are not enough to pass."""
    keep = [i for i, d in enumerate(series.worse_log) if d is not None]
    group = [series.group[i] for i in keep] if series.group else ()
    known = spread([d for d in series.worse_log if d is not None], group)
    if known is not None and not group and len(series.base) == len(series.worse_log):
        sides = [np.array([float(side[i] or 0.0) for i in keep]) for side in (series.base, series.candidate)]
        noise = noise_of(sides[0], sides[1])
        least = noise / sqrt(known.n) if noise is not None and arms_independent(sides[0], sides[1]) else 0.0
        known = replace(known, noise=noise, se=max(known.se, least))
    total = len(series.worse_log)
    candidate, base = series.one_sided if series.base else (0, 0)
    words = words_of(series.metric)
    if total == 0:
        return known, "no block was measured"
    if candidate or base:
        side, blocks = ("candidate", candidate) if candidate else ("baseline", base)
        return known, f"the {side} has no {words} in {blocks} of {plural(total, 'block')}{_because(series.reason)}"
    if known is None:
        few = f"{len(keep)} of {plural(total, 'block')} have one" if len(keep) < total else f"{total} block is too few"
        return known, f"no {words} to compare: {few}{_because(series.reason)}"
    if 2 * len(keep) < total:
        return known, f"only {len(keep)} of {plural(total, 'block')} have a {words}{_because(series.reason)}"
    return known, ""


def correct(effects: list[Effect], primary: bool) -> None:
    """Put Holm's p values in place of those of the primary measures, or of the others."""
    where = [i for i, effect in enumerate(effects) if effect.primary is primary and effect.p is not None]
    for i, p in zip(where, holm([effects[i].p or 0.0 for i in where]), strict=True):
        effects[i] = replace(effects[i], p=p)


def settle(effect: Effect) -> Effect:
    """``within``: shown to be no worse than allowed. ``beyond``: shown to be worse than that. ``worse``: shown to be
    worse than the baseline by more than 2 %, how much is open."""
    if (
        effect.status == "no_data"
        or effect.mean is None
        or effect.high is None
        or effect.low is None
        or effect.p is None
    ):
        return effect
    if effect.high < effect.margin:
        return replace(effect, status="within", more=None)
    if effect.low > effect.margin:
        return replace(effect, status="beyond", more=None)
    if effect.p <= ALPHA and exp(effect.mean) > LEAST_RATIO:
        return replace(effect, status="worse")
    return effect


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""
