"""What an alarm is, and which of those that a history holds still stand. Pure.

Rule: one alarm for one change. A change for the worse stands until its level is accepted or made up for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from statistics import median
from typing import Any, Literal

import msgspec

from loadramp.judge.nights import METRICS, Night
from loadramp.record.types import Entry

Direction = Literal["worse", "better"]


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
class Alarm:
    """A level that changed, and did not for one night only. Ratios are of the change: 0.1 is 10 % more."""

    metric: str
    rule: Literal["page", "ticket"]
    direction: Direction
    raised: str
    """The night on which it was noticed."""
    since: str
    """The first night of the new level."""
    before: float
    after: float
    change_ratio: float
    low_ratio: float
    high_ratio: float
    """95 % interval of ``change_ratio``."""
    changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What else changed on that night: key of the fingerprint to its value before and after."""


def direction(metric: str, step: float) -> Direction:
    """What a rise (``step`` above 0) or fall of the metric means."""
    return "better" if (step > 0.0) == (METRICS[metric].better == "higher") else "worse"


def alarms_of(entries: Sequence[Entry], metric: str) -> list[Alarm]:
    """The alarms that the history holds for a metric, oldest first."""
    found = [e.alarm for e in entries if e.kind == "alarm" and e.metric == metric and e.alarm]
    return [msgspec.convert(dict(one), Alarm) for one in found]


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
    ordered = sorted(known, key=lambda one: (one.since, one.raised))
    left: list[Alarm] = []
    for alarm, later in zip_longest(ordered, ordered[1:]):
        if alarm.direction == "worse":
            left.append(alarm)
            continue
        since = [n.value for n in nights if n.night >= alarm.since and (later is None or n.night < later.since)]
        level = median(since) if since else alarm.after
        left = [one for one in left if not _made_up(one, level, rules)]
    return [alarm for alarm in left if not any(night >= alarm.since for night in accepted)]


def plain_alarm(alarm: Alarm) -> dict[str, Any]:
    """The alarm as the history keeps it."""
    built: dict[str, Any] = msgspec.to_builtins(alarm)
    return built


def _made_up(worse: Alarm, level: float, rules: Rules) -> bool:
    """The level is what it was before, or better."""
    change = level / worse.before - 1.0
    return abs(change) <= rules.change_ratio or direction(worse.metric, change) == "better"


def told_before(alarm: Alarm, known: Sequence[Alarm], nights: Sequence[Night], rules: Rules) -> bool:
    """The change is one that an earlier alarm has told: same direction, fewer than ``apart`` nights away."""
    index = {one.night: i for i, one in enumerate(nights)}
    at = index[alarm.since]
    return any(
        other.direction == alarm.direction and other.since in index and abs(index[other.since] - at) <= rules.apart
        for other in known
    )
