"""Thresholds on a judged run. Rule: an interval that straddles the limit is inconclusive, and so is what is not known.

Intervals are the ones that the report prints; shares (errors, good requests) get one-sided 95 % Clopper-Pearson limits.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import betaincinv

from loadramp.analysis import latency, offered_load
from loadramp.analysis.far_bounds import upper_bound
from loadramp.analysis.latency import WindowView
from loadramp.analysis.quantiles import QuantileEstimate, Values, estimate, mean
from loadramp.analysis.threshold_rules import ESTIMATES, SHARES, Place, ThresholdRule, parse
from loadramp.record.row import Row, void_words
from loadramp.record.table import Run
from loadramp.record.types import EVENTS, Estimate, GateResult
from loadramp.units import percent, plural

Status = Literal["pass", "fail", "inconclusive"]
State = Literal["steady", "growing", "near"]
Unsure = Literal["inconclusive", "pass", "fail", "point"]
"""What an inconclusive rule comes to; ``point``: the value itself is judged, as if it had no interval."""

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
SAME = 1e-6
"""Rates that are this close (as a share) are the same rate: levels are powers of a factor."""
FAULTS = {"error_ratio": "failed", "malformed_ratio": "had malformed events"}
"""Shares of the requests that ended, which should be small."""
MISS = 0.05
"""One-sided, of shares."""


@dataclass(slots=True, frozen=True)
class Known:
    """What is known of a rule's subject: value and limits, None where there is none, and why."""

    value: float | None
    low: float | None
    high: float | None
    reason: str = ""
    step: int | None = None


def judge_gates(run: Run, rules: Sequence[str], when_unsure: Unsure = "inconclusive") -> list[GateResult]:
    """Each rule judged on a run that has rows and estimates.

    Raises:
        ScenarioError: a rule is none, or names what does not exist.
    """
    return [settle(judge_rule(run, parse(text)), when_unsure) for text in rules]


def missed_for_good(run: Run, rules: Sequence[str]) -> list[GateResult]:
    """Rules on steps (``@``) that fail whatever further steps will show: the whole interval is beyond the limit."""
    on_steps = [rule for text in rules if (rule := parse(text)).place is not None]
    return [result for rule in on_steps if (result := judge_rule(run, rule)).status == "fail"]


def judge_rule(run: Run, rule: ThresholdRule) -> GateResult:
    """One rule: of several steps the worst decides, failing before open before the closest to the limit."""
    known = _subjects(run, rule)
    results = [weigh(rule, known) for known in known]
    rank = {"fail": 0, "inconclusive": 1, "pass": 2}
    return min(results, key=lambda result: (rank[result.status], _room(rule, result)))


def weigh(rule: ThresholdRule, known: Known) -> GateResult:
    """Pass when the whole interval is within the limit, fail when none of it is, inconclusive otherwise."""
    within = OPERATORS[rule.op]
    low = -math.inf if known.low is None else known.low
    high = math.inf if known.high is None else known.high
    if within(low, rule.limit) and within(high, rule.limit):
        status: Status = "pass"
    elif not within(low, rule.limit) and not within(high, rule.limit):
        status = "fail"
    else:
        status = "inconclusive"
    reason = known.reason
    if status == "inconclusive" and not reason:
        reason = f"the interval {_limit(known.low)} to {_limit(known.high)} holds the limit"
    if status == "pass" and known.value is not None:
        reason = ""
    return GateResult(rule.text, rule.name, status, known.value, known.low, known.high, rule.limit, reason, known.step)


def settle(result: GateResult, when_unsure: Unsure) -> GateResult:
    """The result once it is said what an inconclusive rule comes to. What was not measured is never a pass."""
    if result.status != "inconclusive" or when_unsure == "inconclusive":
        return result
    if when_unsure == "fail" or (when_unsure == "pass" and result.value is not None):
        return replace(result, status=when_unsure, reason=f"{result.reason} (counted as {when_unsure})")
    if result.value is None:
        return result
    rule = parse(result.rule)
    status: Status = "pass" if OPERATORS[rule.op](result.value, result.limit) else "fail"
    return replace(result, status=status, reason=f"{result.reason} (the value itself was judged)")


def overall(results: Sequence[GateResult]) -> Status:
    """fail if any fails, else inconclusive if any is, else pass."""
    statuses = {result.status for result in results}
    return "fail" if "fail" in statuses else "inconclusive" if "inconclusive" in statuses else "pass"


def _limit(value: float | None) -> str:
    return "(unknown)" if value is None else f"{value:.4g}"


def _room(rule: ThresholdRule, result: GateResult) -> float:
    """How far within the limit, the unknown first."""
    if result.value is None:
        return -math.inf
    return rule.limit - result.value if rule.upper else result.value - rule.limit


def _subjects(run: Run, rule: ThresholdRule) -> list[Known]:
    if rule.name in ESTIMATES:
        return [_of_estimate(run, rule.name)]
    rows = [row for row in run.rows if rule.place is None or matches(row, rule.place)]
    if not rows:
        where = rule.text.partition("@")[2].strip()
        return [Known(None, None, None, f"no step at {where}" if where else "no step was measured")]
    if rule.place is not None:
        return [_of_row(run, row, rule) for row in rows]
    usable = [row for row in rows if not row.void]
    if not usable:
        return [Known(None, None, None, "every step is void")]
    if rule.aggregate:
        whole = [row for row in usable if not row.partial]
        return [
            _by_events(run, whole, rule, _pooled(run, whole, rule))
            if whole
            else Known(None, None, None, "every step was cut short")
        ]
    return [_share(usable, rule) if rule.name in SHARES else _count(usable, rule.name)]


def matches(row: Row, place: Place) -> bool:
    """The row is one of the steps that ``place`` speaks of."""
    if place.field == "soak":
        return row.role == "soak"
    value = {"rate": row.rate_rps, "users": row.users, "step": row.step}[place.field]
    if value is None:
        return False
    same = abs(value - place.at) <= SAME * max(abs(place.at), 1.0)
    return (
        same if place.op == "=" else (same and "=" in place.op) or (not same and OPERATORS[place.op](value, place.at))
    )


def _of_row(run: Run, row: Row, rule: ThresholdRule) -> Known:
    if row.void:
        return Known(None, None, None, f"void: {void_words(row.void)}", row.step)
    known = _by_events(run, [row], rule, _bounded(row, rule, _measured(row, rule), run.estimates.get("ceiling")))
    held_against = _not_shown(row, rule, weigh(rule, known).status)
    if held_against:
        measured = f"; there it was {known.value:.4g}" if known.value is not None else ""
        return Known(None, None, None, held_against + measured, row.step)
    return known


def _by_events(run: Run, rows: Sequence[Row], rule: ThresholdRule, known: Known) -> Known:
    """Where events count as tokens, a time for each token may be much shorter than was measured; and a quantile of ITL
    longer, where most tokens come after the long gaps."""
    if known.value is None or rule.name.removesuffix("_s") not in latency.BY_TOKEN:
        return known
    if all(row.token_source != EVENTS for row in rows):
        return known
    high = known.high
    if rule.name == "itl_s" and rule.aggregate != "mean" and high is not None and rule.limit > 0.0:
        worst = estimate(
            joined([latency.itl_at_worst(window, rule.limit) for window in _windows(run, rows)]),
            float(rule.aggregate[1:]) / 100.0,
        )
        high = max(high, (worst.value or math.inf) * high / known.value, worst.high or 0.0)
    return replace(known, low=0.0, high=high, reason=latency.BY_EVENTS)


def _bounded(row: Row, rule: ThresholdRule, known: Known, ceiling: Estimate | None) -> Known:
    """A latency far below its limit is decided where its interval is missing: by an upper bound of one side."""
    family = rule.name.removesuffix("_s")
    if known.value is None or known.high is not None or _state([row]) == "growing":
        return known
    return replace(known, high=upper_bound(row, family, rule.aggregate, ceiling))


def _not_shown(row: Row, rule: ThresholdRule, status: Status) -> str:
    """Why a step says nothing about a rule; "": it does. One that was cut short shows nothing but failed requests."""
    if row.partial and not (status == "fail" and rule.name in SHARES):
        return "the step was cut short"
    if rule.place is None or rule.place.field not in {"rate", "soak"}:
        return ""
    return offered_load.not_shown(row, status, harder=rule.upper != (rule.name == "good_ratio"))


def _measured(row: Row, rule: ThresholdRule) -> Known:
    """What a step measured, whatever it offered."""
    if rule.name in SHARES:
        return _share([row], rule)
    if not rule.aggregate:
        return _count([row], rule.name)
    stem = f"{rule.name.removesuffix('_s')}_{rule.aggregate}"
    statistic = row.statistic(stem)
    figure = QuantileEstimate(statistic.value, statistic.low, statistic.high, log_se=statistic.log_se)
    whys = (row.reasons.get(name) for name in (f"{stem}_s", f"{stem}_high_s", "stationary"))
    why = next((text for text in whys if text), "")
    over_repeats = (row.repeats or 1) > 1 and not row.saturated  # they tell what one step near the ceiling cannot
    return _latency(figure, _state([row]) if not over_repeats else "steady", why, row.step)


def _state(rows: Sequence[Row]) -> State:
    """Whether the queue grew in one of ``rows``; else whether one ran too near the ceiling for an interval."""
    if any(row.saturated and not row.stationary for row in rows):
        return "growing"
    return "steady" if all(row.stationary for row in rows) else "near"


def _latency(figure: QuantileEstimate, state: State, why: str, step: int | None) -> Known:
    """Where the queue still grew, a longer step would have seen longer waits: the value is a lower limit. Near the
    ceiling, where no interval is given, a longer step might have seen shorter ones too."""
    if figure.value is None:
        return Known(None, None, None, why or "not measured", step)
    if state == "steady":
        return Known(figure.value, figure.low, figure.high, why if figure.high is None else "", step)
    low = figure.value * math.exp(-1.96 * (figure.log_se or 0.0)) if state == "growing" else None
    return Known(figure.value, low, None, why or "not stationary", step)


def _pooled(run: Run, rows: Sequence[Row], rule: ThresholdRule) -> Known:
    """Every value of all steps together (never an average of percentiles), in the time blocks of each.

    What one of the steps withholds they withhold together: where anything is, a step was near the ceiling or beyond.
    """
    data = joined([latency.families(window)[rule.name.removesuffix("_s")] for window in _windows(run, rows)])
    figure = mean(data) if rule.aggregate == "mean" else estimate(data, float(rule.aggregate[1:]) / 100.0)
    state, why = _state(rows), figure.reason or figure.interval_reason
    if state != "steady":
        what = "whose queue still grew" if state == "growing" else "too near the ceiling for an interval"
        why = f"the run holds steps {what}: name the rates it is meant for, @ rate <= ..."
    return _latency(figure, state, why, None)


def _windows(run: Run, rows: Sequence[Row]) -> Iterator[WindowView]:
    for window_s in (window_s for row in rows for window_s in row.measured_windows):
        yield latency.window_view(run.table.select(run.table.done_s >= window_s[0]), window_s)


def joined(parts: Sequence[Values]) -> Values:
    """One sample of several windows; each window keeps its own time blocks. ``carry``: the largest, which is that of a
    single window and at least what all together have."""
    offsets = np.cumsum([0, *(part.blocks for part in parts)])
    values = np.concatenate([part.values for part in parts])
    none = [np.zeros(len(part), dtype=np.bool_) if part.censored is None else part.censored for part in parts]
    censored = np.concatenate(none)
    return Values(
        values=values,
        ordered=np.sort(values),
        by_block=[block for part in parts for block in part.by_block],
        block=np.concatenate([part.block.astype(np.int64) + at for part, at in zip(parts, offsets, strict=False)]),
        blocks=int(offsets[-1]),
        unit=parts[0].unit,
        requests=sum(part.requests for part in parts),
        censored=censored if censored.any() else None,
        carry=max(part.carry for part in parts),
    )


def _share(rows: Sequence[Row], rule: ThresholdRule) -> Known:
    """Failed of ended requests, or good of decided ones, with Clopper-Pearson limits."""
    step = rows[0].step if len(rows) == 1 else None
    if rule.name in FAULTS:
        n = sum(row.ended for row in rows)
        k = sum(_faults(row, rule.name) for row in rows)
    else:
        unknown = next((row for row in rows if row.good_n and row.good_ratio is None), None)
        if unknown is not None:
            return Known(None, None, None, unknown.reasons.get("good_ratio", "not known"), step)
        n = sum(row.good_n for row in rows)
        k = sum(round((row.good_ratio or 0.0) * row.good_n) for row in rows)
    if n == 0:
        return Known(None, None, None, "no request has ended", step)
    low = float(betaincinv(k, n - k + 1, MISS)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 1.0 - MISS)) if k < n else 1.0
    what = FAULTS.get(rule.name, "were good")
    why = f"{k} of {n} {what}: between {percent(low)} and {percent(high)}{_needs(rule, k)}"
    return Known(k / n, low, high, why, step)


def _faults(row: Row, name: str) -> int:
    return row.failed if name == "error_ratio" else row.malformed_answers


def _needs(rule: ThresholdRule, k: int) -> str:
    """How many requests a limit on errors takes when none fails."""
    if rule.name not in FAULTS or k or not rule.upper or not 0.0 < rule.limit < 1.0:
        return ""
    return f"; {percent(rule.limit)} takes {plural(requests_needed(rule), 'request')} without a failure"


def requests_needed(rule: ThresholdRule) -> int:
    """Requests without a failure that a limit on errors takes; 0 where there is nothing to show."""
    return math.ceil(math.log(MISS) / math.log1p(-rule.limit)) if rule.upper and 0.0 < rule.limit < 1.0 else 0


def _count(rows: Sequence[Row], name: str) -> Known:
    """A number without an interval: added up for preemptions, the largest of the steps for the others. With a step that
    the server did not show, as one in which it restarted, it is that or more."""
    step = rows[0].step if len(rows) == 1 else None
    known = [value for row in rows if (value := row.number(name)) is not None]
    if not known:
        return Known(None, None, None, "the server did not show it", step)
    value = float(sum(known) if name == "preemptions" else max(known))
    unknown = len(rows) - len(known)
    if unknown:
        return Known(value, value, None, f"at least {value:.4g}: not known of {plural(unknown, 'step')}", step)
    return Known(value, value, value, "", step)


def _of_estimate(run: Run, name: str) -> Known:
    """A rate: found with its interval, or the bound that a ramp without an end leaves."""
    estimate = run.estimates.get(ESTIMATES[name])
    if estimate is None:
        return Known(None, None, None, "no estimate was made")
    if name == "sustained_rps":
        held = estimate.sustained_rps
        return Known(held, held, held, "" if held else "no soak was quiet")
    if estimate.status == "not_found_up_to":
        low = estimate.rate_rps if estimate.low_rps is None else estimate.low_rps
        return Known(estimate.rate_rps, low, None, f"not found up to {estimate.rate_rps or 0.0:.3g} req/s")
    if estimate.status == "not_measurable":
        return Known(None, None, None, estimate.reason)
    low = 0.0 if estimate.status == "below_range" and estimate.low_rps is None else estimate.low_rps
    return Known(estimate.rate_rps, low, estimate.high_rps, "" if estimate.status == "found" else estimate.reason)
