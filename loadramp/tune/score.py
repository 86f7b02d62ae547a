"""What one run says of the objective: a value with its interval, or why there is none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, sqrt

from loadramp.analysis.thresholds import judge_rule, matches
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.record.types import Estimate
from loadramp.tune.table import Objective, Tune, rule_of
from loadramp.units import span

EMPTY = 0.1
"""A queue shorter than this share of what runs is as good as none."""
TOKENS = 1e6
"""A cost is of so many output tokens."""
UNITS: Mapping[Objective, str] = {
    "slo_capacity": "req/s", "ceiling": "req/s", "goodput": "good req/s", "cost": "per million output tokens",
}  # fmt: skip


@dataclass(slots=True, frozen=True)
class Score:
    """The objective of one run with its 95 % interval; None: not known.

    A value without ``high`` is a bound: no end was found up to it. ``high`` without a value: it lies below that.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def score_of(run: Run, objective: Objective, table: Tune, final: bool = True) -> Score:
    """The objective of a run that was judged, within the limit where there is one; ``final``: no longer steps are to
    come, so that a ceiling of steps that were too short is better than none."""
    score = _goodput(run) if objective == "goodput" else _capacity(run, objective, bool(table.limit))
    if objective == "ceiling" and score.value is not None and not final:
        score = Score(reason=why) if (why := not_yet(run.estimates["ceiling"], run.rows)) else score
    if table.limit and (missed := _missed(run, table.limit, score)):
        return Score(reason=missed)
    return _cost(run, score, table.price_per_hour or 0.0) if objective == "cost" else score


def not_yet(ceiling: Estimate, rows: Sequence[Row]) -> str:
    """Why a ceiling of these rows is no number yet: no step was quiet, or the batch was still filling up in the
    overloaded one. Then the server's own queue is empty, or requests run longer (Little: those that run over those that
    are served a second) than the step has lasted. Empty: it is one, or the server does not say how many run."""
    if ceiling.status == "below_range":
        return ceiling.reason
    row = max((row for row in rows if row.saturated), key=lambda row: row.rate_rps or 0.0, default=None)
    if row is None or not row.running_max or row.throughput_rps <= 0.0:
        return ""
    if row.waiting_max is not None and row.waiting_max < EMPTY * row.running_max:
        return "requests pile up in the overloaded step while the server's own queue is empty: its batch fills up"
    runs_s, lasted_s = row.running_max / row.throughput_rps, row.window_end_s - row.begin_s
    if runs_s <= lasted_s:
        return ""
    return f"a request runs for about {span(runs_s)} in the overloaded step, which lasted {span(lasted_s)}"


def _capacity(run: Run, objective: Objective, limited: bool) -> Score:
    """Requests a second: the ceiling or the SLO capacity; with a limit on a latency, which is part of ``[slo]`` then,
    the lower of both."""
    ceiling, within = (_of(run, run.estimates[name]) for name in ("ceiling", "slo_capacity"))
    has_slo = bool(run.scenario.slo.limits) or run.scenario.slo.good_ratio is not None
    if objective == "slo_capacity" or (has_slo and (limited or objective == "cost")):
        return within
    return ceiling


def _of(run: Run, estimate: Estimate) -> Score:
    if estimate.status == "not_found_up_to" and run.info.state == "stopped":
        return Score(reason=run.info.ending or estimate.reason)  # the ramp ended before its question was answered
    if estimate.status == "not_found_up_to":
        return Score(estimate.rate_rps, estimate.rate_rps, None, estimate.reason)
    if estimate.rate_rps is None or estimate.status not in {"found", "below_range"}:
        return Score(None, None, estimate.high_rps if estimate.status == "below_range" else None, estimate.reason)
    high = estimate.rate_rps if estimate.high_rps is None else estimate.high_rps
    low = estimate.rate_rps**2 / high if estimate.low_rps is None else estimate.low_rps  # as far away as the other end
    return Score(estimate.rate_rps, min(low, estimate.rate_rps), max(high, estimate.rate_rps), estimate.reason)


def _goodput(run: Run) -> Score:
    """The most good requests a second of any step; its interval is that of a Poisson count."""
    rows = [row for row in run.rows if not row.void and not row.partial]
    if unknown := [row for row in rows if row.good_rps is None]:
        return Score(reason=unknown[0].reasons.get("good_rps", "good requests are not known"))
    best = max(rows, key=lambda row: row.number("good_rps") or 0.0, default=None)
    if best is None or not best.good_rps:
        return Score(reason="no step had a good request")
    half = exp(1.96 / sqrt(best.good_rps * max(best.length_s, 1.0)))
    return Score(best.good_rps, best.good_rps / half, best.good_rps * half)


def _cost(run: Run, score: Score, price_per_hour: float) -> Score:
    """Price of TOKENS output tokens at the rate that was found."""
    tokens = best_row(run, score.value).output_tokens_mean if run.rows else None
    if score.value is None or not tokens:
        return replace(score, value=None, low=None, high=None)
    each = price_per_hour / 3600.0 * TOKENS / tokens
    low = each / score.high if score.high else None
    return Score(each / score.value, low, each / (score.low or score.value), score.reason)


def _missed(run: Run, limit: str, score: Score) -> str:
    """Why a limit on something else than a latency does not hold at the rates up to the objective; "": it does."""
    rule = rule_of(limit)
    if rule.aggregate and rule.upper and rule.place is None:
        return ""  # part of the service level that was measured
    if rule.place is not None or score.value is None:
        rows = [row for row in run.rows if rule.place is None or matches(row, rule.place)]
    else:
        rows = [row for row in run.rows if (row.rate_rps or 0.0) <= score.value]
    result = judge_rule(replace(run, rows=rows), rule)
    return f"misses {limit}: {result.value:.4g}" if result.status == "fail" and result.value is not None else ""


def best_row(run: Run, rate_rps: float | None) -> Row:
    """The row that latencies are shown of: the highest one below ``rate_rps`` that kept up, else the first."""
    rows = [row for row in run.rows if not row.void] or run.rows
    quiet = [row for row in rows if not row.saturated and (row.rate_rps or 0.0) <= (rate_rps or float("inf"))]
    return max(quiet, key=lambda row: row.rate_rps or 0.0) if quiet else rows[0]


FACTS = ("rate_rps", "running_max", "kv_used_ratio_max", "preemptions", "output_tokens_per_s", "output_tokens_mean")


def facts_of(run: Run, rate_rps: float | None) -> dict[str, float]:
    """The numbers of a run that the table of configurations shows; those that are not known are left out."""
    if not run.rows:
        return {}
    row = best_row(run, rate_rps)
    facts: dict[str, float | None] = {name: row.number(name) for name in FACTS}
    facts["running_max"] = max((r.running_max for r in run.rows if r.running_max is not None), default=None)
    facts["kv_used_ratio_max"] = max((r.kv_used_ratio_max for r in run.rows if r.kv_used_ratio_max is not None),
                                     default=None)  # fmt: skip
    preemptions = [r.preemptions for r in run.rows if r.preemptions is not None]
    facts["preemptions"] = sum(preemptions) if preemptions else None
    for stem in ("ttft_p50", "ttft_p99", "itl_p50", "itl_p99"):
        facts[f"{stem}_s"] = row.statistic(stem).value
    for name in ("ceiling", "p99_itl_knee", "slo_capacity"):
        estimate = run.estimates.get(name)
        facts[f"{name}_rps"] = estimate.known_rps if estimate else None
    return {name: float(value) for name, value in facts.items() if value is not None}
