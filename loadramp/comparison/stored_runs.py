"""Stored runs side by side: steps of equal rate, the three numbers, and how far runs of one kind lie apart. Pure.

Runs of different hours are no pairs: what differs from run to run is part of the uncertainty. It is estimated where a
side has several runs (or a run several ramps), else assumed, and then the comparison is only indicative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from pathlib import PurePath

import numpy as np

from loadramp.analysis.proportions import Proportion
from loadramp.analysis.quantiles import t_limit
from loadramp.comparison.block_spread import PairSpread
from loadramp.comparison.blocks import COUNTED_OTHERWISE, MEASURES, OF_TOKENS, counted_alike
from loadramp.comparison.decide import STEADY, Decision, DecisionRules, decide
from loadramp.comparison.noninferior import Effect, Looks, PairedSeries, correct, effect, settle
from loadramp.record.row import Row
from loadramp.record.table import Run

SAME_RATE = 1e-6
ROLES = ("step", "soak")
OWN_DF = 11.0
"""Degrees of freedom of one run's own interval: from about twelve blocks of time."""


@dataclass(slots=True, frozen=True)
class Side:
    """The runs of one kind: one, or several that repeat it."""

    name: str
    runs: Sequence[Run]

    @property
    def repeats(self) -> int:
        return max(len(self.runs), *(_ramps(run) for run in self.runs))


@dataclass(slots=True, frozen=True)
class StoredReading:
    """ln of one number of one side: the mean of its runs, the standard error of each alone, and their spread."""

    log_mean: float
    own_se: float | None
    own_df: float
    logs: Sequence[float]


def matched_rates(sides: Sequence[Side]) -> list[float]:
    """Rates at which every run has a step that its client delivered, ascending."""
    each = [{rate for row in run.rows if (rate := row_rate(row)) is not None} for side in sides for run in side.runs]
    if not each:
        return []
    return sorted(rate for rate in each[0] if all(any(_equal(rate, other) for other in rates) for rates in each[1:]))


def effects(base: Side, candidate: Side, rates: Sequence[float], asked: DecisionRules) -> list[Effect]:
    """Every measure at every matched rate, and the three numbers, as effects of the candidate against the base."""
    margin = log(1.0 + asked.latency_margin)
    out = []
    for metric in MEASURES:
        if metric == STEADY:
            continue  # rows do not keep it
        for rate in rates:
            series = PairedSeries(metric, rate, (), _values(base, metric, rate), _values(candidate, metric, rate))
            sides = step_of(base, metric, rate), step_of(candidate, metric, rate)
            rows = [_step(run, rate) for side in (base, candidate) for run in side.runs]
            alike = counted_alike(row.token_source for row in rows if row)
            out.append(_effect(series, sides, margin, asked, metric in asked.primary, alike))
    for wanted in (True, False):
        correct(out, wanted)
    return [settle(series) for series in out]


def ceiling_effect(base: Side, candidate: Side, asked: DecisionRules) -> Effect:
    """How much lower the candidate's ceiling is. It decides only where it is asked for."""
    series = PairedSeries("ceiling", None, (), _numbers(base, "ceiling"), _numbers(candidate, "ceiling"))
    sides = estimate_of(base, "ceiling"), estimate_of(candidate, "ceiling")
    return settle(_effect(series, sides, -log(1.0 - asked.ceiling_margin), asked, asked.ceiling))


def judged(base: Side, candidate: Side, rates: Sequence[float], asked: DecisionRules) -> tuple[list[Effect], Decision]:
    """Effects and the verdict of two sides."""
    calm = [rate for rate in rates if side_kept_up(base, rate)]
    compared = effects(base, candidate, calm, asked)
    compared.append(ceiling_effect(base, candidate, asked))
    stopped = "" if rates else _no_rates((base, candidate))
    if rates and not calm:
        stopped = "the baseline keeps up at none of the rates that both have"
    lost = [rate for rate in calm if not side_kept_up(candidate, rate)]
    if lost:
        stopped = f"the candidate does not keep up at {lost[0]:.4g} req/s, where the baseline does"
    return compared, decide(
        asked, compared, (failures(base, rates), failures(candidate, rates)), Looks(), stopped=stopped
    )


def _no_rates(sides: Sequence[Side]) -> str:
    """Why no steps can be set side by side."""
    runs = [run for side in sides for run in side.runs]
    for run in runs:
        usable = [rate for row in run.rows if (rate := row_rate(row)) is not None]
        if run.rows and not usable:
            name = PurePath(run.path).name or "a run"
            return f"no step of {name} can be used: each is void, was cut short, or asked for no rate"
    return "the runs have no rate in common at which each has a step that can be used: their steps cannot be matched"


def side_kept_up(side: Side, rate: float) -> bool:
    """Every run of it answered what was due at ``rate``."""
    rows = [_step(run, rate) for run in side.runs]
    return all(row is not None and not row.saturated and not row.deficit for row in rows)


def indicative(base: Side, candidate: Side) -> bool:
    """No side has a second run or ramp that would tell how much runs differ."""
    return base.repeats < 2 and candidate.repeats < 2


def failures(side: Side, rates: Sequence[float]) -> Proportion:
    """Failed of ended requests in the matched steps; those the client did not send are not the server's."""
    total = Proportion()
    for run in side.runs:
        for rate in rates:
            row = _step(run, rate)
            errors = dict(row.errors) if row else {}
            client = int(errors.pop("client", 0))
            ended = int(row.ended) - client if row else 0
            total = total + Proportion(int(sum(errors.values())), ended)
    return total


def _effect(
    series: PairedSeries,
    sides: tuple[StoredReading | None, StoredReading | None],
    margin: float,
    asked: DecisionRules,
    primary: bool,
    alike: bool = True,
) -> Effect:
    """``alike``: both sides count tokens in the same way."""
    base, candidate = sides
    if series.metric in OF_TOKENS and not alike:
        return effect(series, None, Looks(), margin, primary, COUNTED_OTHERWISE)
    if base is None or candidate is None:
        side = "baseline" if base is None else "candidate"
        return effect(series, None, Looks(), margin, primary, f"the {side} has no such number here")
    spread = spread_between(
        base, candidate, -1 if series.metric == "ceiling" else MEASURES[series.metric].worse, asked.run_sd
    )
    why = "" if spread else "neither an interval nor a second run: nothing says how sure it is"
    return effect(series, spread, Looks(), margin, primary, why)


def spread_between(base: StoredReading, candidate: StoredReading, worse: int, run_sd: float) -> PairSpread | None:
    """The difference of two means. With repeats the spread between runs (pooled, Student's t) is all there is to know;
    without, each run's own error and an assumed spread between runs."""
    mean = worse * (candidate.log_mean - base.log_mean)
    df = len(base.logs) + len(candidate.logs) - 2
    if df > 0:
        squares = sum(float(np.square(np.asarray(each.logs) - each.log_mean).sum()) for each in (base, candidate))
        sd = sqrt(squares / df)
        return PairSpread(mean, sd * sqrt(1.0 / len(base.logs) + 1.0 / len(candidate.logs)), float(df), df + 2, sd)
    if base.own_se is None or candidate.own_se is None:
        return None
    return welch(mean, base, candidate).widened(run_sd)


def welch(mean: float, base: StoredReading, candidate: StoredReading) -> PairSpread:
    """A difference whose two sides know their own errors; degrees of freedom by Welch and Satterthwaite."""
    parts = [((each.own_se or 0.0) ** 2, each.own_df) for each in (base, candidate)]
    variance = sum(part for part, _ in parts)
    weight = sum(part**2 / df for part, df in parts)
    return PairSpread(mean, sqrt(variance), variance**2 / weight if weight else OWN_DF, 2)


def step_of(side: Side, metric: str, rate: float) -> StoredReading | None:
    """A measure at one rate; None where a run has none."""
    logs, errors = [], []
    for run in side.runs:
        row = _step(run, rate)
        value = None if row is None else row.number(_column(metric))
        if row is None or value is None or not value > 0.0:
            return None
        logs.append(log(value))
        errors.append(_own_se(row, metric))
    return _reading(logs, errors, side.runs[0])


def estimate_of(side: Side, name: str) -> StoredReading | None:
    """One of the three numbers; None where a run did not find it."""
    logs, errors = [], []
    for run in side.runs:
        estimate = run.estimates.get(name)
        if estimate is None or estimate.status != "found" or not estimate.rate_rps:
            return None
        logs.append(log(estimate.rate_rps))
        errors.append(_width_se(estimate.low_rps, estimate.high_rps, _ramps(run)))
    return _reading(logs, errors, side.runs[0])


def in_flight_of(side: Side) -> StoredReading | None:
    """Requests in flight, the mean of the highest step that each run carried.

    It is the rate times the mean end-to-end time (Little), and the rate is given: its relative error is that of the
    time.
    """
    logs, errors = [], []
    for run in side.runs:
        quiet = [row for row in run.rows if row_rate(row) is not None and not row.saturated and not row.deficit]
        row = max(quiet, key=lambda row: row.rate_rps or 0.0, default=None)
        if row is None or not row.in_flight_mean:
            return None
        logs.append(log(row.in_flight_mean))
        errors.append(_own_se(row, "e2e_mean"))
    return _reading(logs, errors, side.runs[0])


def _reading(logs: Sequence[float], errors: Sequence[float | None], run: Run) -> StoredReading:
    alone = errors[0] if len(errors) == 1 else None
    return StoredReading(float(np.mean(logs)), alone, _ramps(run) - 1.0 if _ramps(run) > 1 else OWN_DF, logs)


def _ramps(run: Run) -> int:
    """Whole ramps that a run repeats."""
    return run.info.repeats or 1


def _width_se(low: float | None, high: float | None, ramps: int) -> float | None:
    """Standard error of the logarithm from a 95 % interval: over repeated ramps it was Student's t, else normal."""
    if not low or not high or not np.isfinite(high):
        return None
    return log(high / low) / (2.0 * (t_limit(ramps) if ramps > 1 else 1.96))


def _own_se(row: Row, metric: str) -> float | None:
    """Standard error of the logarithm within one run."""
    if metric == "output_tokens_per_s":
        blocks = np.asarray(row.throughput_blocks or (), dtype=np.float64)
        mean = float(blocks.mean()) if len(blocks) else 0.0
        return float(blocks.std(ddof=1)) / sqrt(len(blocks)) / mean if mean > 0.0 and len(blocks) > 1 else None
    if metric == "good_rps":
        p, n = row.good_ratio or 0.0, row.good_n
        return sqrt((1.0 - p) / (p * n)) if p and n else None
    stem = _column(metric).removesuffix("_s")
    return _width_se(row.statistic(stem).low, row.statistic(stem).high, row.repeats or 1)


def _values(side: Side, metric: str, rate: float) -> list[float | None]:
    return [None if (row := _step(run, rate)) is None else row.number(_column(metric)) for run in side.runs]


def _numbers(side: Side, name: str) -> list[float | None]:
    estimates = [run.estimates.get(name) for run in side.runs]
    return [
        estimate.rate_rps if estimate is not None and estimate.status == "found" else None for estimate in estimates
    ]


def _column(metric: str) -> str:
    return metric if metric in ("output_tokens_per_s", "good_rps") else f"{metric}_s"


def _step(run: Run, rate: float) -> Row | None:
    steps = [row for row in run.rows if (row_rps := row_rate(row)) is not None and _equal(row_rps, rate)]
    return steps[-1] if steps else None


def row_rate(row: Row) -> float | None:
    """The rate of an open-loop step that the client delivered and that went on to its end; None of any other row."""
    usable = row.role in ROLES and not (row.void or row.partial)
    return (row.rate_rps or None) if usable else None


def _equal(rate: float, other: float) -> bool:
    return abs(rate - other) <= SAME_RATE * max(rate, other)
