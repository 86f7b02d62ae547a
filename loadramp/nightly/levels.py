"""Which nights share a level, and how far nights scatter about their level. Pure; method: docs/method.md, "Nights".

A level begins anew with an alarm, with an accepted night and with other conditions. How far nights scatter is known all
the same: the nights of earlier levels tell it, each about the middle of its own level.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadramp.nightly.alarms import Rules
from loadramp.nightly.change_points import SeriesSpread, hampel
from loadramp.nightly.history import Alarm
from loadramp.nightly.series import Night
from loadramp.record.table import Floats

LEAST_OF_LEVEL = 2
"""Nights that tell a level where the scatter is known from earlier levels."""
MOST_CORRELATION = 0.8
LEAST_OF_GROUP = 4
"""Fewer nights tell too little about their scatter: their median is one of them."""


@dataclass(slots=True, frozen=True)
class BaselineLevel:
    """The nights that a night is compared with: median and robust standard deviation of the logarithms."""

    middle: float
    sd: float
    """Of one night about its level."""
    nights: int
    """Of this level."""
    freedom: int
    """Degrees of freedom of ``sd``."""
    widened: float = 1.0
    """How much further than ``sd`` a night is from ``middle``, because few nights tell the level."""

    @staticmethod
    def of(
        nights: Sequence[Night], rules: Rules, earlier: Sequence[Night] = (), begins: Sequence[str] = ()
    ) -> BaselineLevel | None:
        """None where too little is known.

        Args:
            nights: of one level, under the same conditions, without those under test.
            rules: the limits.
            earlier: all nights of the series but those under test; they tell the scatter where ``nights`` are few.
            begins: the nights at which a level of ``earlier`` began, ascending.
        """
        logs = np.array([night.log for night in nights[-rules.most_nights :]])
        n = len(logs)
        if n >= rules.least_nights:
            middle = float(np.median(logs))
            return BaselineLevel(middle, _deviation(logs - middle, rules), n, n - 1)
        if n < LEAST_OF_LEVEL:
            return None
        about, groups = _residuals(earlier, begins, rules)
        if len(about) < rules.least_nights:
            return None
        widened = math.sqrt(1.0 + math.pi / 2.0 / n)
        return BaselineLevel(float(np.median(logs)), _deviation(about, rules), n, len(about) - groups, widened)

    def z(self, log: float) -> float:
        """How many standard deviations ``log`` is above the level."""
        return (log - self.middle) / (self.sd * self.widened)

    def beyond(self, log: float, rules: Rules) -> int:
        """1 where ``log`` is clearly higher, -1 where it is clearly lower, 0 otherwise."""
        change = log - self.middle
        clear = abs(self.z(log)) > rules.z_limit and abs(math.expm1(change)) > rules.change_ratio
        return int(math.copysign(1, change)) if clear else 0


@dataclass(slots=True, frozen=True)
class Level:
    """The latest level of a metric, and what it would close if it were accepted."""

    metric: str
    value: float
    night: str
    open: Sequence[Alarm]


@dataclass(slots=True, frozen=True)
class Acceptable:
    """What there is to accept: the levels of one night of a scenario."""

    night: str
    scenario: str
    levels: Sequence[Level]


def level_begins(nights: Sequence[Night], known: Sequence[Alarm], accepted: Sequence[str], rules: Rules) -> list[str]:
    """The nights at which a level of the metric began, ascending: those of its alarms, and those accepted.

    Accepting what an alarm has told does not begin another level: the nights since the alarm are of the one accepted,
    unless the accepted night is clearly off them.
    """
    begins = {alarm.since for alarm in known}
    settled: set[str] = set()
    for at in sorted(set(accepted)):
        latest = max((alarm for alarm in known if alarm.raised <= at), key=lambda alarm: alarm.since, default=None)
        if latest is None or latest.since in settled or not _of_level(nights, latest, at, begins, rules):
            begins.add(at)
        if latest is not None:
            settled.add(latest.since)
    return sorted(begins)


def spread_before(nights: Sequence[Night], begins: Sequence[str], most: int) -> SeriesSpread:
    """How far the ``most`` latest nights before the present level scatter about their levels, outliers clipped, and how
    much all nights before it resemble their neighbours."""
    squares, freedom = 0.0, 0
    whole, products, n = 0.0, 0.0, 0
    before = [night for night in nights if begins and night.night < begins[-1]]
    for level in _groups(before, begins):
        if len(level) < LEAST_OF_GROUP:
            continue
        logs = hampel(level)
        about = logs - logs.mean()
        whole += float(np.square(about).sum())
        products += float((about[1:] * about[:-1]).sum())
        n += len(about)
        recent = logs[max(len(logs) - max(most - freedom, 0), 0) :]
        if len(recent) >= LEAST_OF_GROUP:
            squares += float(np.square(recent - recent.mean()).sum())
            freedom += len(recent) - 1
    return SeriesSpread(squares, freedom, _correlation(products, whole, n))


def _correlation(products: float, squares: float, n: int) -> float:
    """Of neighbours, corrected for its bias (1 + 3 r) / n, and shrunk by r (1 - 1 / (n r^2)) as Stein does: what is no
    larger than its own standard error counts as 0."""
    if n <= 4 or squares <= 0.0:
        return 0.0
    raw = (n * products / squares + 1.0) / (n - 3.0)
    return min(MOST_CORRELATION, raw - 1.0 / (n * raw)) if raw > n**-0.5 else 0.0


def _of_level(nights: Sequence[Night], alarm: Alarm, at: str, begins: set[str], rules: Rules) -> bool:
    """The night accepted is one of the level that the alarm has told."""
    if at <= alarm.raised:
        return True
    accepted = next((night for night in nights if night.night == at), None)
    if accepted is None:
        return True
    before = [night for night in nights if night.night < at]
    level = [night for night in before if night.night >= alarm.since and night.baseline == accepted.baseline]
    base = BaselineLevel.of(level, rules, before, sorted(begins))
    return base is not None and base.beyond(accepted.log, rules) == 0


def _deviation(about: Floats, rules: Rules) -> float:
    return max(1.4826 * float(np.median(np.abs(about))), rules.least_sd)


def _residuals(nights: Sequence[Night], begins: Sequence[str], rules: Rules) -> tuple[Floats, int]:
    """The latest nights about the medians of their levels, and how many levels they are of.

    Each is enlarged by sqrt(n / (n - 1)): n nights lie closer to their own median than to the level.
    """
    residuals: list[Floats] = []
    for logs in _groups(nights, begins):
        n = len(logs)
        if n < LEAST_OF_GROUP:
            continue
        residuals.append((logs - np.median(logs)) * math.sqrt(n / (n - 1.0)))
        if sum(map(len, residuals)) >= rules.most_nights:
            break
    return np.concatenate([np.empty(0), *residuals])[: rules.most_nights], len(residuals)


def _groups(nights: Sequence[Night], begins: Sequence[str]) -> list[Floats]:
    """The logarithms of the nights of each level and of the same conditions, the latest level first."""
    groups: dict[tuple[object, ...], list[float]] = {}
    for night in reversed(nights):
        key = (bisect_right(begins, night.night), night.baseline)
        groups.setdefault(key, []).append(night.log)
    return [np.array(logs[::-1]) for logs in groups.values()]
