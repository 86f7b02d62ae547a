"""Two arms side by side: blocks in pairs, the series of what was measured, quantile shifts, ceilings. Pure.

A pair that a client spoilt is not used, and nothing that only one side has is compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, hypot, log

import numpy as np

from loadramp.analysis.proportions import Proportion
from loadramp.comparison.block_spread import PairSpread, spread
from loadramp.comparison.blocks import (
    MEASURES,
    SHIFT_QUANTILES,
    Block,
    counted_alike,
    measure,
    pair_log,
    without_tokens,
)
from loadramp.comparison.decide import Decision, DecisionRules
from loadramp.comparison.environment import Difference
from loadramp.comparison.info import ComparisonInfo, Round
from loadramp.comparison.noninferior import Effect, Looks, PairedSeries, effect, settle
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.record.types import Estimate
from loadramp.scenario.scenario import Slo

QuantileShift = tuple[float, float, float, float]
"""(q, ratio, low, high): candidate / baseline at a quantile."""


@dataclass(slots=True, frozen=True)
class Pair:
    """A round measured. ``whys``: it cannot be used, and why."""

    round: Round
    baseline: Block
    candidate: Block
    whys: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        return not self.whys

    @property
    def settled(self) -> bool:
        """Every request of it has ended."""
        return self.baseline.pending == 0 and self.candidate.pending == 0


@dataclass(slots=True)
class Comparison:
    """Everything that a report of two arms shows."""

    info: ComparisonInfo
    baseline: Run
    candidate: Run
    asked: DecisionRules
    decision: Decision
    effects: list[Effect] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    failures: tuple[Proportion, Proportion] = field(default_factory=lambda: (Proportion(), Proportion()))
    failures_at: Mapping[float, tuple[Proportion, Proportion]] = field(default_factory=dict)
    """By rate, req/s."""
    environment: list[Difference] = field(default_factory=list)
    looks: Looks = field(default_factory=Looks)
    shifts: Mapping[str, Sequence[QuantileShift]] = field(default_factory=dict)
    """By latency; empty where there are no pairs."""
    notes: list[str] = field(default_factory=list)
    path: str = ""

    @property
    def indicative(self) -> bool:
        return self.asked.run_sd > 0.0

    @property
    def primary(self) -> list[Effect]:
        """What the verdict rests on."""
        return [effect for effect in self.effects if effect.primary]


def pair(
    round_: Round,
    baseline: Run,
    candidate: Run,
    slo: Slo = Slo(),  # noqa: B008 (frozen)
) -> Pair:
    """Measure one round. A block that a client could not deliver, or that was cut short, spoils its pair."""
    sides, sources = [], []
    whys: tuple[str, ...] = ()
    for words, run, index in (
        ("baseline", baseline, round_.baseline_step),
        ("candidate", candidate, round_.candidate_step),
    ):
        step = next(each for each in run.steps if each.index == index)
        table = run.table
        near = table.select((table.done_s >= step.begin_s) & (table.due_s < step.end_s))
        sides.append(measure(near, step.window_s, slo))
        row = next((row for row in run.rows if row.step == index), None)
        whys = whys or _spoilt(words, row)
        sources.append(row.token_source if row else None)
    if not counted_alike(sources):
        sides = [without_tokens(side) for side in sides]
    base, other = sides[::-1] if round_.swapped else sides
    return Pair(round_, base, other, whys)


def _spoilt(words: str, row: Row | None) -> tuple[str, ...]:
    if row is None:
        return (f"the {words}'s block was not finished",)
    if row.partial:
        return (f"the {words}'s block was cut short",)
    if not row.void:
        return ()
    what, *others = dict.fromkeys(void.what for void in row.void)
    cure = [row.void_cure] if row.void_cure else []
    return (f"the client could not deliver the {words}'s block: {what}", *others, *cure)


def series(pairs: Sequence[Pair]) -> list[PairedSeries]:
    """Every measure at every rate, block by block; with several rates also the mean of the logarithms over them."""
    usable = [pair for pair in pairs if pair.usable]
    rates = list(dict.fromkeys(pair.round.rate_rps for pair in usable))
    out = []
    for metric in MEASURES:
        by_rate = [_series(metric, rate, [pair for pair in usable if pair.round.rate_rps == rate]) for rate in rates]
        if len(by_rate) > 1:
            out.append(_overall(metric, by_rate))
        out += by_rate
    return out


def _series(metric: str, rate_rps: float, pairs: Sequence[Pair]) -> PairedSeries:
    base = [pair.baseline.values.get(metric) for pair in pairs]
    candidate = [pair.candidate.values.get(metric) for pair in pairs]
    swapped = [int(pair.round.swapped) for pair in pairs]
    reasons = [why for pair in pairs for side in (pair.candidate, pair.baseline) if (why := side.reasons.get(metric))]
    return PairedSeries(
        metric,
        rate_rps,
        [pair_log(metric, b, c, pair.baseline.length_s) for b, c, pair in zip(base, candidate, pairs, strict=True)],
        base,
        candidate,
        reasons[0] if reasons else "",
        swapped if any(swapped) else (),
    )


def _overall(metric: str, by_rate: Sequence[PairedSeries]) -> PairedSeries:
    rounds = min(len(rate_series.worse_log) for rate_series in by_rate)
    means = []
    for i in range(rounds):
        logs = [d for rate_series in by_rate if (d := rate_series.worse_log[i]) is not None]
        means.append(float(np.mean(logs)) if len(logs) == len(by_rate) else None)
    return PairedSeries(metric, None, means, reason=by_rate[0].reason, group=by_rate[0].group[:rounds], overall=True)


def blocks_done(pairs: Sequence[Pair]) -> int:
    """Usable pairs at the rate that has the fewest."""
    rates = {pair.round.rate_rps for pair in pairs}
    return min((sum(pair.usable and pair.round.rate_rps == rate for pair in pairs) for rate in rates), default=0)


def failures(pairs: Sequence[Pair]) -> tuple[Proportion, Proportion]:
    """Failed requests of both arms over the usable pairs."""
    base, candidate = Proportion(), Proportion()
    for pair in pairs:
        if pair.usable:
            base, candidate = base + pair.baseline.failures, candidate + pair.candidate.failures
    return base, candidate


def failures_at(pairs: Sequence[Pair]) -> dict[float, tuple[Proportion, Proportion]]:
    """The same by rate, in the order of the rates."""
    rates = sorted({pair.round.rate_rps for pair in pairs if pair.usable})
    return {rate: failures([pair for pair in pairs if pair.round.rate_rps == rate]) for rate in rates}


def shift(pairs: Sequence[Pair], family: str) -> list[QuantileShift]:
    """What happens to each quantile, with 95 % intervals over the paired blocks of all rates."""
    out = []
    for i, q in enumerate(SHIFT_QUANTILES):
        logs = [
            log(c / b)
            for pair in pairs
            if pair.usable and (b := pair.baseline.shift[family][i]) and (c := pair.candidate.shift[family][i])
        ]
        paired = spread(logs)
        if paired is not None:
            both = effect(PairedSeries(f"{family}_p50", None, logs), paired, Looks(), 1.0, False)
            assert both.low is not None and both.high is not None
            out.append((q, exp(paired.mean), exp(both.low), exp(both.high)))
    return out


def ceiling_effect(
    rows: tuple[Sequence[Row], Sequence[Row]], estimates: tuple[Estimate, Estimate], margin: float
) -> Effect:
    """How much lower the candidate's ceiling is.

    Where both arms were overloaded at the same rate, the spread comes from the ten paired tenths of that step (equal
    arrivals), else from the intervals of the two estimates, as if they were independent. A candidate whose ceiling was
    not found above the baseline's is no lower.

    Args:
        rows: the curves of both arms.
        estimates: of both ceilings.
        margin: share by which it may be lower.
    """
    base, other = estimates
    allowed = -log(1.0 - margin)
    ceilings = PairedSeries("ceiling", None, (), (base.rate_rps,), (other.rate_rps,))
    higher = other.status == "not_found_up_to" and (other.rate_rps or 0.0) >= (base.rate_rps or float("inf"))
    if base.status == "found" and higher:
        bare = effect(ceilings, None, Looks(), allowed, True, other.reason)
        return replace(bare, status="within", reason=f"at least as high: {other.reason}")
    if base.status != "found" or other.status != "found":
        side, estimate = ("candidate", other) if base.status == "found" else ("baseline", base)
        return effect(ceilings, None, Looks(), allowed, True, f"the {side}'s ceiling was not found: {estimate.reason}")
    tenths = spread([log(b / c) for b, c in _overloaded_tenths(*rows)])
    return settle(effect(ceilings, tenths or _independent(base, other), Looks(), allowed, True))


def _independent(base: Estimate, other: Estimate) -> PairSpread | None:
    """The spread of two estimates with intervals of their own (nine degrees of freedom each)."""
    if not (base.rate_rps and other.rate_rps and base.low_rps and base.high_rps and other.low_rps and other.high_rps):
        return None
    se = [log(high / low) / 3.92 for low, high in ((base.low_rps, base.high_rps), (other.low_rps, other.high_rps))]
    return PairSpread(log(base.rate_rps / other.rate_rps), hypot(*se), 18.0, 2)


def _overloaded_tenths(base: Sequence[Row], candidate: Sequence[Row]) -> list[tuple[float, float]]:
    """Throughput of the tenths of the last step in which both arms were overloaded."""
    for b in reversed([row for row in base if row.saturated and row.deficit and not row.void]):
        for c in candidate:
            if c.rate_rps == b.rate_rps and c.saturated and c.deficit and not c.void:
                pairs = zip(b.throughput_blocks, c.throughput_blocks, strict=True)
                return [(x, y) for x, y in pairs if x > 0 and y > 0]
    return []
