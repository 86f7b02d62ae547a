"""Did the level move? One night judged against the nights before it. Pure; the method: docs/method.md, "Nights".

Two rules: *page* (a robust z above the limit on two nights running, or confirmed at once by a re-run) and *ticket*
(a change point of the whole series). Rule: one alarm for one change, over all metrics; after it the level begins anew.
How far nights scatter is known from the nights before it (nightly/levels.py): a second change is found as soon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from loadramp.analysis.threshold_rules import parse
from loadramp.analysis.thresholds import OPERATORS, Known, weigh
from loadramp.nightly.alarms import (
    Change,
    Rules,
    accepted_nights,
    alarms_of,
    already_raised,
    changes_of,
    direction,
    ends_a_better_spell,
    joined,
    open_alarms,
)
from loadramp.nightly.change_points import SHORTEST, SeriesSpread, Shift, compare, hampel, shifts
from loadramp.nightly.history import Alarm, Entry
from loadramp.nightly.levels import BaselineLevel, level_begins, spread_before
from loadramp.nightly.series import (
    JUDGED,
    METRICS,
    Night,
    all_series,
    differences,
    latest_night,
    minimum_reading,
    of_series,
)
from loadramp.record.table import Floats
from loadramp.record.types import GateResult
from loadramp.units import plural

State = Literal["no_baseline", "steady", "suspect", "worse", "better", "missing"]


@dataclass(slots=True, frozen=True)
class Standing:
    """One metric on one night: where it stands against its baseline."""

    metric: str
    state: State
    value: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    sd_ratio: float | None = None
    nights: int = 0
    """Of the baseline."""
    z: float | None = None
    change_ratio: float | None = None
    reason: str = ""


@dataclass(slots=True, frozen=True)
class NightOutcome:
    """One night, judged."""

    night: str
    standings: list[Standing]
    alarms: list[Alarm]
    """Raised by this night, one a metric."""
    open: list[Alarm]
    """Changes for the worse, this night's included, that were neither accepted nor recovered from."""
    floors: list[GateResult]

    @property
    def changes(self) -> list[Change]:
        """This night's alarms, those of one change together."""
        return changes_of(self.alarms)

    @property
    def suspects(self) -> list[str]:
        """Metrics that look worse this night and have not been measured again."""
        return [standing.metric for standing in self.standings if standing.state == "suspect"]


def judge_night(
    entries: Sequence[Entry],
    *,
    scenario: str | None = None,
    metrics: Sequence[str] = JUDGED,
    floors: Sequence[str] = (),
    rules: Rules | None = None,
) -> NightOutcome:
    """The latest night of a history.

    Args:
        entries: the history, up to the night that is judged.
        scenario: whose nights; None: of the latest entry.
        metrics: those that may raise an alarm.
        floors: absolute limits (``ceiling_rps >= 12``), judged by the lower (or upper) end of the interval.
        rules: the limits.
    """
    entries_of_scenario = of_series(entries, scenario)
    night = latest_night(entries_of_scenario)
    rules = rules or Rules()
    standings, alarms, known_of = [], [], {}
    every = all_series(entries_of_scenario)
    for metric in metrics:
        nights = every.get(metric, [])
        known_of[metric] = alarms_of(entries_of_scenario, metric)
        alarm, standing = judge_series(
            nights, night, metric, known_of[metric], accepted_nights(entries_of_scenario, metric), rules
        )
        if standing.state == "missing":
            lacks = _lacking(entries_of_scenario, metric, night)
            waits = lacks is not None and lacks.sets_reference
            standing = Standing(metric, "no_baseline" if waits else "missing", reason=_why_missing(lacks))
        standings.append(standing)
        alarms += [alarm] if alarm else []
    earlier = [alarm for metric in METRICS for alarm in alarms_of(entries_of_scenario, metric)]
    alarms = joined(alarms, earlier, sorted({entry.night for entry in entries_of_scenario}), rules)
    still_open = []
    for metric in metrics:
        known = [*known_of[metric], *(alarm for alarm in alarms if alarm.metric == metric)]
        still_open += open_alarms(known, every.get(metric, []), accepted_nights(entries_of_scenario, metric), rules)
    return NightOutcome(
        night, standings, alarms, still_open, [judge_minimum(entries_of_scenario, night, text) for text in floors]
    )


def judge_series(
    nights: Sequence[Night], night: str, metric: str, known: Sequence[Alarm], accepted: Sequence[str], rules: Rules
) -> tuple[Alarm | None, Standing]:
    """One metric: the alarm that ``night`` raises, if any, and where the metric stands."""
    if not nights or nights[-1].night != night:
        return None, Standing(metric, "missing")
    begins = level_begins(nights, known, accepted, rules)
    current = [night for night in nights if not begins or night.night >= begins[-1]]
    latest = nights[-1]
    same = _same_baseline(current[:-1], latest, rules.most_nights + 1)
    alarm = _page(nights, same, begins, metric, rules) or _ticket(nights, current, begins, metric, rules)
    if alarm and (already_raised(alarm, known, nights, rules) or ends_a_better_spell(alarm, known, nights, rules)):
        alarm = None
    return alarm, _standing(nights, same, begins, metric, alarm, rules)


def _same_baseline(nights: Sequence[Night], latest: Night, most: int) -> list[Night]:
    """The last ``most`` nights that were measured under the conditions of ``latest``, oldest first."""
    wanted = latest.baseline
    same: list[Night] = []
    for night in reversed(nights):
        if night.baseline == wanted:
            same.append(night)
            if len(same) == most:
                break
    return same[::-1]


def judge_minimum(entries: Sequence[Entry], night: str, text: str) -> GateResult:
    """An absolute limit on a night's metric. It holds only if the whole interval does: the lower limit of a ceiling.

    Where that end is not known it is open, unless the value itself is beyond the limit.
    """
    rule = parse(text, METRICS)
    known = minimum_reading(entries, rule.name, night)
    if known is None:
        return weigh(rule, Known(None, None, None, _why_missing(_lacking(entries, rule.name, night))))
    result = weigh(rule, Known(known.value, known.low, known.high, known.reason if known.value is None else ""))
    if result.status == "pass" or known.value is None:
        return result
    end, side = (known.high, "upper") if rule.upper else (known.low, "lower")
    if end is None and OPERATORS[rule.op](known.value, rule.limit):
        reason = f"the {side} end of its interval counts, and is not known"
        return replace(result, status="inconclusive", reason=reason)
    return replace(result, status="fail", reason=f"the {side} end of its interval counts")


def _page(
    nights: Sequence[Night], same: Sequence[Night], begins: Sequence[str], metric: str, rules: Rules
) -> Alarm | None:
    """The page rule: this night and the one before it in its baseline, or this night measured twice."""
    latest = nights[-1]
    if latest.rerun:
        base = BaselineLevel.of(same, rules, nights[:-1], begins)
        if base and base.beyond(latest.log, rules):
            return _paged(nights, base, [latest], metric)
    if not same:
        return None
    base = BaselineLevel.of(same[:-1], rules, [night for night in nights[:-1] if night.night != same[-1].night], begins)
    if base is None:
        return None
    sides = {base.beyond(night.log, rules) for night in (same[-1], latest)}
    return _paged(nights, base, [same[-1], latest], metric) if sides in ({1}, {-1}) else None


def _paged(nights: Sequence[Night], base: BaselineLevel, tested: Sequence[Night], metric: str) -> Alarm:
    """Size: mean of the tested nights minus the median; interval: t with the robust deviation, pi/2 for the median."""
    step = sum(night.log for night in tested) / len(tested) - base.middle
    half = float(stdtrit(base.freedom, 0.975)) * base.sd * math.sqrt(1 / len(tested) + math.pi / 2 / base.nights)
    return _alarm("page", nights, tested[0].night, metric, base.middle, (step, step - half, step + half))


def _ticket(
    nights: Sequence[Night], current: Sequence[Night], begins: Sequence[str], metric: str, rules: Rules
) -> Alarm | None:
    """The ticket rule, over all fingerprints: the latest change point with enough nights on both sides."""
    recent = current[-rules.window :]
    spread = spread_before(nights, begins, rules.window - len(recent))
    least_before = SHORTEST if spread.freedom >= rules.least_nights - 1 else rules.least_nights
    if len(recent) < least_before + rules.nights_after:
        return None
    logs = hampel(np.array([night.log for night in recent]), window=rules.least_nights)
    least = math.log1p(rules.change_ratio)
    moved = shifts(logs, p_limit=rules.p_limit, least=least, window=rules.window, spread=spread)
    if not moved:
        return None
    begin = moved[-2].at if len(moved) > 1 else 0
    last = _at_a_change(recent, logs, begin, moved[-1], spread, rules)
    if last.at < least_before or len(recent) - last.at < rules.nights_after:
        return None
    before = float(logs[begin : last.at].mean())
    return _alarm("ticket", nights, recent[last.at].night, metric, before, (last.step, last.low, last.high))


def _at_a_change(
    recent: Sequence[Night], logs: Floats, begin: int, shift: Shift, spread: SeriesSpread, rules: Rules
) -> Shift:
    """Noise moves a change point by some nights. Where the endpoint changed near it and the split holds there too, that
    is the night."""
    changed = [i for i in range(1, len(recent)) if recent[i].baseline != recent[i - 1].baseline]
    near = [i for i in changed if abs(i - shift.at) <= rules.apart and i > begin]
    for at in sorted(near, key=lambda i: abs(i - shift.at)):
        other = compare(logs[begin:at], logs[at:], at, spread)
        if other.p <= rules.p_limit and other.step * shift.step > 0.0:
            return other
    return shift


def _alarm(
    rule: Literal["page", "ticket"],
    nights: Sequence[Night],
    since: str,
    metric: str,
    before: float,
    step: tuple[float, float, float],
) -> Alarm:
    at = next(i for i, night in enumerate(nights) if night.night == since)
    changed = differences(nights[at - 1].fingerprint, nights[at].fingerprint) if at else {}
    return Alarm(
        metric=metric,
        rule=rule,
        direction=direction(metric, step[0]),
        raised=nights[-1].night,
        since=since,
        before=math.exp(before),
        after=math.exp(before + step[0]),
        change_ratio=math.expm1(step[0]),
        low_ratio=math.expm1(step[1]),
        high_ratio=math.expm1(step[2]),
        changed=changed,
    )


def _standing(
    nights: Sequence[Night],
    same: Sequence[Night],
    begins: Sequence[str],
    metric: str,
    alarm: Alarm | None,
    rules: Rules,
) -> Standing:
    latest = nights[-1]
    base = BaselineLevel.of(same, rules, nights[:-1], begins)
    plain = Standing(metric, "steady", latest.value, latest.low, latest.high, nights=base.nights if base else len(same))
    if alarm:
        return replace(plain, state=alarm.direction, baseline=alarm.before, change_ratio=alarm.change_ratio)
    if base is None:
        reason = f"{len(same)} of the {plural(rules.least_nights, 'night')} that a baseline takes"
        return replace(plain, state="no_baseline", reason=reason)
    change = latest.log - base.middle
    side = base.beyond(latest.log, rules)
    suspect = side != 0 and direction(metric, side) == "worse" and not latest.rerun
    return replace(
        plain,
        state="suspect" if suspect else "steady",
        baseline=math.exp(base.middle),
        sd_ratio=base.sd,
        z=base.z(latest.log),
        change_ratio=math.expm1(change),
    )


def _lacking(entries: Sequence[Entry], metric: str, night: str) -> Entry | None:
    """The latest line of a night that says why ``metric`` has no value."""
    tonight = (e for e in reversed(entries) if e.night == night and e.value is None)
    return next((e for e in tonight if e.metric == metric or e.kind == "failed"), None)


def _why_missing(lacks: Entry | None) -> str:
    return "not measured" if lacks is None else lacks.reason
