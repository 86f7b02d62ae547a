"""Time stamps of traces to seconds: numbers of a stated unit, or ISO 8601 text with up to nine decimals. Pure.

Exact to the microsecond and better: ISO stamps are whole nanoseconds until the first one is taken off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

TimeUnit = Literal["s", "ms", "us", "ns"]
UNITS: dict[TimeUnit, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of them make a second."""
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?\s*(?:(Z|UTC)|([+-])(\d\d):?(\d\d))?", re.ASCII
)


@dataclass(slots=True)
class Stamps:
    """Reads the stamps of one file; all are seconds since its first one."""

    unit: TimeUnit = "s"
    _zero_ns: int | None = None
    _zero: float | None = None
    _days: dict[str, int] = field(default_factory=dict)

    def read(self, value: Any) -> float:
        """Seconds since the first stamp that was read (negative for an earlier one).

        Raises:
            ValueError: it is neither a finite number nor a date and time.
        """
        number = None if self._zero_ns is not None else _number(value)  # text once, text always
        if number is not None:
            if self._zero is None:
                self._zero = number
            return (number - self._zero) / UNITS[self.unit]
        if self._zero is not None:
            raise ValueError(f"no number as before: {str(value)[:40]!r}")
        at_ns = self._iso_ns(str(value))
        if self._zero_ns is None:
            self._zero_ns = at_ns
        return (at_ns - self._zero_ns) / 1e9

    def _iso_ns(self, text: str) -> int:
        found = _ISO.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"no time stamp: {text[:40]!r}")
        day, hour, minute, second, decimals, _, sign, zone_hour, zone_minute = found.groups()
        seconds = self._day_s(day) + int(hour) * 3600 + int(minute) * 60 + int(second)
        if sign:
            offset_s = int(zone_hour) * 3600 + int(zone_minute) * 60
            seconds += -offset_s if sign == "+" else offset_s
        return seconds * 10**9 + (int(decimals.ljust(9, "0")) if decimals else 0)

    def _day_s(self, day: str) -> int:
        if day not in self._days:
            self._days[day] = date.fromisoformat(day).toordinal() * 86_400
        return self._days[day]


def _number(value: Any) -> float | None:
    """A finite number, given as one or as text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if abs(number) < 1e300 else None
