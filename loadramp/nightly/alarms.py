"""What an alarm is, and which of those that a history holds still stand. Pure.

Rule: one change is one alarm, however many metrics it moves. A change for the worse stands until its level is accepted
or made up for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from statistics import median

from loadramp.nightly.history import Alarm, Direction, Entry
from loadramp.nightly.series import CONTEXT_KEYS, METRICS, Night


@dataclass(slots=True, frozen=True)
class Rules:
    """The limits of both rules; the defaults are those that the evidence in docs/benchmarks.md is for."""

    z_limit: float = 3.0
    change_ratio: float = 0.05
    """A change below it is never an alarm."""
    least_nights: int = 14
    """Fewer nights are no baseline."""
    most_nights: int = 28
    least_sd: float = 0.01
    """No series is steadier than this, of the logarithm: a MAD of nothing would page at anything."""
    p_limit: float = 1e-4
    window: int = 50
    nights_after: int = 3
    apart: int = 5
    """Alarms for changes fewer nights apart are one alarm."""


@dataclass(slots=True, frozen=True)
class Change:
    """The alarms of one night that are of one change."""

    direction: Direction
    since: str
    alarms: list[Alarm]
    known_before: bool
    """An earlier night has raised it, by another metric."""

    @property
    def fails(self) -> bool:
        """A change for the worse that no earlier night has raised."""
        return self.direction == "worse" and not self.known_before


def direction(metric: str, step: float) -> Direction:
    """What a rise (``step`` above 0) or fall of the metric means."""
    return "better" if (step > 0.0) == (METRICS[metric].better == "higher") else "worse"


def alarms_of(entries: Sequence[Entry], metric: str) -> list[Alarm]:
    """The alarms that the history holds for a metric, oldest first."""
    return [e.alarm for e in entries if e.kind == "alarm" and e.metric == metric and e.alarm]


def accepted_nights(entries: Sequence[Entry], metric: str) -> list[str]:
    """The nights from which on a level of the metric was accepted."""
    return [e.night for e in entries if e.kind == "accepted" and e.metric in {"", metric}]


def open_alarms(known: Sequence[Alarm], nights: Sequence[Night], accepted: Sequence[str], rules: Rules) -> list[Alarm]:
    """Changes for the worse since which no level was accepted and no change for the better made up for them.

    Args:
        known: the metric's alarms.
        nights: its nights; they tell the level after a change better than the alarm could when it was raised.
        accepted: nights from which on a level was accepted.
        rules: the limits.
    """
    ordered = sorted(known, key=lambda alarm: (alarm.since, alarm.raised))
    left: list[Alarm] = []
    for alarm, later in zip_longest(ordered, ordered[1:]):
        if alarm.direction == "worse":
            left.append(alarm)
            continue
        since = [n.value for n in nights if n.night >= alarm.since and (later is None or n.night < later.since)]
        level = median(since) if since else alarm.after
        left = [alarm for alarm in left if not _made_up(alarm, level, rules)]
    return [alarm for alarm in left if not any(night >= alarm.since for night in accepted)]


def _made_up(worse: Alarm, level: float, rules: Rules) -> bool:
    """The level is what it was before, or better."""
    change = level / worse.before - 1.0
    return abs(change) <= rules.change_ratio or direction(worse.metric, change) == "better"


def already_raised(alarm: Alarm, known: Sequence[Alarm], nights: Sequence[Night], rules: Rules) -> bool:
    """The change is one that an earlier alarm of the metric has told: same direction, at most ``apart`` nights away,
    and no further than that alarm's interval reaches."""
    index = {night.night: i for i, night in enumerate(nights)}
    at = index[alarm.since]
    return any(
        other.direction == alarm.direction
        and other.since in index
        and abs(index[other.since] - at) <= rules.apart
        and not _further(alarm, other, rules)
        for other in known
    )


def _further(alarm: Alarm, other: Alarm, rules: Rules) -> bool:
    """The level has gone on past what the other alarm told."""
    up = other.change_ratio > 0.0
    end = other.before * (1.0 + (other.high_ratio if up else other.low_ratio))
    past = alarm.after > end if up else alarm.after < end
    return past and abs(alarm.after / other.after - 1.0) > rules.change_ratio


def ends_a_better_spell(alarm: Alarm, known: Sequence[Alarm], nights: Sequence[Night], rules: Rules) -> bool:
    """A change for the worse that only ends what a few nights, at most ``apart``, had better: the level is the one of
    before them. What passes so soon was no lasting change, so its end is none either."""
    last = max(known, key=lambda alarm: alarm.since, default=None)
    if last is None or alarm.direction == "better" or last.direction == "worse":
        return False
    better = math.log(last.after / last.before)
    spell = [n for n in nights if last.since <= n.night and abs(n.log - math.log(last.after)) < 0.5 * abs(better)]
    ends = sorted(alarm.before * (1.0 + ratio) for ratio in (alarm.low_ratio, alarm.high_ratio))
    same = ends[0] <= last.before <= ends[1] or abs(alarm.after / last.before - 1.0) <= rules.change_ratio
    return same and len(spell) <= rules.apart


def joined(alarms: Sequence[Alarm], earlier: Sequence[Alarm], nights: Sequence[str], rules: Rules) -> list[Alarm]:
    """``alarms`` of one night, each with the change that it is part of.

    Metrics show one change on different nights, because each scatters in its own way.

    Args:
        alarms: raised by one night, one a metric.
        earlier: those that earlier nights raised, of every metric.
        nights: all nights, ascending.
        rules: the limits.
    """
    index = {night: i for i, night in enumerate(nights)}
    placed: dict[str, Alarm] = {}
    for alarm in sorted(alarms, key=lambda alarm: alarm.since):
        same = _same_change(alarm, earlier, index, rules)
        also = None if same else _same_change(alarm, list(placed.values()), index, rules)
        leader = same or also
        change = (leader.change or leader.since) if leader else alarm.since
        placed[alarm.metric] = replace(alarm, change=change, joins=same is not None)
    return [placed[alarm.metric] for alarm in alarms]


def _same_change(alarm: Alarm, others: Sequence[Alarm], index: Mapping[str, int], rules: Rules) -> Alarm | None:
    """An alarm of another metric that tells the same change: same direction, at most ``apart`` nights away, and not of
    another change of conditions. A change that has moved this metric already is another one."""
    begun = {other.change or other.since for other in others if other.metric == alarm.metric}
    for other in reversed(others):
        change = other.change or other.since
        near = change in index and abs(index[change] - index[alarm.since]) <= rules.apart
        if other.direction == alarm.direction and near and change not in begun and _same_cause(alarm, other):
            return other
    return None


def _same_cause(alarm: Alarm, other: Alarm) -> bool:
    """Nothing changed on the alarm's first night that did not change on the other's."""
    theirs, mine = ({k: v for k, v in raised.changed.items() if k not in CONTEXT_KEYS} for raised in (other, alarm))
    return alarm.since == other.since or not mine or mine == theirs


def changes_of(alarms: Sequence[Alarm]) -> list[Change]:
    """The alarms of one night by the change that they are part of."""
    groups: dict[tuple[Direction, str], list[Alarm]] = {}
    for alarm in alarms:
        groups.setdefault((alarm.direction, alarm.change or alarm.since), []).append(alarm)
    return [
        Change(side, since, members, any(alarm.joins for alarm in members)) for (side, since), members in groups.items()
    ]
