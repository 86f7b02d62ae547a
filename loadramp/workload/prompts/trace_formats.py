"""What each kind of trace calls its columns, how long its blocks are, and how its time stamps become seconds. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from loadramp.registry import ScenarioError

FormatName = Literal["auto", "azure", "burstgpt", "vidur", "qwen", "mooncake", "plain"]
TimeUnit = Literal["s", "ms", "us", "ns"]
UNITS: dict[TimeUnit, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
"""How many of them make a second."""
_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?\s*(?:(Z|UTC)|([+-])(\d\d):?(\d\d))?", re.ASCII
)
COLUMNS = ("time", "input", "output", "blocks", "label", "images")


@dataclass(slots=True, frozen=True)
class Format:
    """How one kind of trace calls its columns, in which unit it counts time and how long its blocks are."""

    time: str
    input: str
    output: str
    unit: TimeUnit = "s"
    block_tokens: int = 0
    blocks: str = ""
    """Column of the block ids: one a block, the same id for the same content."""
    label: str = ""
    images: str = ""
    mark: str = ""
    """A column that only this format has."""


FORMATS: dict[str, Format] = {
    "azure": Format("TIMESTAMP", "ContextTokens", "GeneratedTokens", images="NumImages"),
    "burstgpt": Format("Timestamp", "Request tokens", "Response tokens", label="Model"),
    "vidur": Format("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    "qwen": Format(
        "timestamp", "input_length", "output_length", "s", 16, blocks="hash_ids", label="type", mark="chat_id"
    ),
    "mooncake": Format("timestamp", "input_length", "output_length", "ms", 512, blocks="hash_ids"),
    "plain": Format("time", "input_tokens", "output_tokens"),
}
"""In the order in which they are looked for."""


def format_of(names: Sequence[str], asked: str, columns: Mapping[str, str], file: str) -> tuple[str, Format]:
    """The format's name, and the format in the file's own spelling (names are compared without regard to case).

    Args:
        names: the file's columns.
        asked: a key of FORMATS, or ``auto``: the first whose columns are all there.
        columns: what the file calls them instead.
        file: how errors call it.

    Raises:
        ScenarioError: none fits; names the columns that are there.
    """
    wrong = set(columns) - set(COLUMNS)
    if wrong:
        raise ScenarioError(f"{file}: columns {', '.join(sorted(wrong))}: there are {', '.join(COLUMNS)}")
    known = {name.lower(): name for name in names}
    candidates = FORMATS if asked == "auto" else {asked: FORMATS[asked]}
    missed = []
    for name, form in candidates.items():
        wanted = {key: columns.get(key) or getattr(form, key) for key in COLUMNS}
        needed = [wanted[key] for key in ("time", "input", "output")] + [mark for mark in (form.mark,) if mark]
        if all(column.lower() in known for column in needed):
            mine = {key: known.get(column.lower(), "") for key, column in wanted.items()}
            return name, Format(**mine, unit=form.unit, block_tokens=form.block_tokens, mark=form.mark)
        missed.append(f"{name}: {', '.join(needed)}")
    raise ScenarioError(f"{file}: its columns are {', '.join(names)}; wanted are those of {'; '.join(missed)}")


@dataclass(slots=True)
class Stamps:
    """Reads the time stamps of one file: numbers of a stated unit, or ISO 8601 text with up to nine decimals.

    All are seconds since the first one, exact to the microsecond: ISO stamps are whole nanoseconds until then.
    """

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
        match = _ISO.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"no time stamp: {text[:40]!r}")
        day, hour, minute, second, decimals, _, sign, zone_hour, zone_minute = match.groups()
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
