"""The history of nights: one append-only file of JSON lines, one a run and metric. Lines are never changed.

A line that a crash tore is skipped, counted and closed off by the next append. What append() wrote is on the disk when
it returns.
"""

import fcntl
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadramp.record.run_directory import naming, replace_whole
from loadramp.registry import ScenarioError
from loadramp.units import agreed, plural

FILE = "history.jsonl"
SCHEMA = 1
ALWAYS = ("night", "scenario", "kind", "value", "schema")


Direction = Literal["worse", "better"]


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
    change: str = ""
    """The change that this alarm is part of, by the first night of its first alarm."""
    joins: bool = False
    """An earlier night has raised the change, by another metric."""


@dataclass(slots=True, frozen=True)
class Entry:
    """One line of a history of nights: one metric of one run, why a run has none, an accepted level, or an alarm.

    ``night`` is when the night's first run began (ISO 8601, UTC): runs of one night share it.
    """

    night: str
    scenario: str
    kind: Literal["measured", "failed", "accepted", "alarm"] = "measured"
    metric: str = ""
    """Empty on lines that concern every metric."""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    repeat: int = 0
    rerun: bool = False
    """Measured again at once because the first runs of the night looked bad."""
    run: str = ""
    exit_code: int = 0
    reason: str = ""
    """Why ``value`` is null, why the run failed, or why the level was accepted."""
    fingerprint: Mapping[str, str] = field(default_factory=dict)
    """What was measured, on what, with what."""
    alarm: Alarm | None = None
    sets_reference: bool = False
    """This run set the reference rate, so ``value`` is null: the metric is measured from the next run on."""
    schema: int = 1


_DEFAULTS: dict[str, Any] = {
    column.name: {} if column.name == "fingerprint" else column.default for column in fields(Entry)
}


@dataclass(slots=True, frozen=True)
class History:
    """A directory that holds a history and what is derived from it. It need not exist yet."""

    path: Path

    @property
    def file(self) -> Path:
        return self.path / FILE

    def read(self) -> tuple[list[Entry], int]:
        """All lines in order of their nights, each once, and how many could not be read.

        Files that were put together by hand, or by a cache that was restored twice, have lines twice and out of order.

        Raises:
            ScenarioError: the history was written by a newer version.
            OSError: it cannot be read; a history that does not exist is empty.
        """
        if not self.file.exists():
            return [], 0
        entries: list[Entry] = []
        skipped = 0
        decoder = msgspec.json.Decoder(Entry)
        for line in dict.fromkeys(self.file.read_bytes().split(b"\n")):
            if not line.strip():
                continue
            try:
                entry = decoder.decode(line)
                datetime.fromisoformat(entry.night)
            except (msgspec.DecodeError, ValueError):
                skipped += 1
                continue
            if entry.schema > SCHEMA:
                raise ScenarioError(f"{self.file}: schema {entry.schema}; this version reads up to {SCHEMA}")
            entries.append(entry)
        return sorted(entries, key=lambda entry: entry.night), skipped

    def append(self, entries: Sequence[Entry]) -> None:
        """Add lines, all of them or (after a crash) some and a torn one. Waits for another program that appends.

        Raises:
            OSError: the disk.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lines = b"".join(msgspec.json.encode(as_plain(entry)) + b"\n" for entry in entries)
        with naming(self.file), self.file.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if self._torn():
                lines = b"\n" + lines
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())

    def write(self, name: str, text: str) -> Path:
        """Replace a derived file whole."""
        self.path.mkdir(parents=True, exist_ok=True)
        return replace_whole(self.path, name, text)

    def _torn(self) -> bool:
        """The last line has no end: whoever wrote it was killed."""
        size = self.file.stat().st_size
        if size == 0:
            return False
        with self.file.open("rb") as file:
            file.seek(size - 1)
            return file.read(1) != b"\n"


def skipped_words(file: Path, skipped: int) -> str:
    """What to tell people of lines that could not be read."""
    return f"note: {file}: {plural(skipped, 'line')} that cannot be read {agreed(skipped, 'were')} skipped"


def is_history(path: Path) -> bool:
    """Whether ``path`` is a history rather than a run."""
    return (path / FILE).is_file()


def as_plain(entry: Entry) -> dict[str, Any]:
    """An entry as JSON data, without what holds its default."""
    built: dict[str, Any] = msgspec.to_builtins(entry)
    return {key: value for key, value in built.items() if key in ALWAYS or value != _DEFAULTS[key]}
