"""Bytes of a file to its lines, and the count of what became of them. Pure; nothing is read twice or kept.

Lines end at LF alone (a raw U+2028 within a string ends nothing); a byte order mark, CR and blank lines are taken off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from loadramp.units import plural
from loadramp.workload.prompts.encodings import utf8

MOST_PROBLEMS = 10
MOST_ASKS = 64


@dataclass(slots=True)
class RowCounts:
    """What became of the rows of one file. Nothing is dropped that is not counted here."""

    file: str
    format: str = ""
    rows: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    """Reason to number of rows that could not be used."""
    problems: list[str] = field(default_factory=list)
    """The first of them, by line."""
    left_out: dict[str, int] = field(default_factory=dict)
    """The same for rows left out because the scenario says so."""
    notes: list[str] = field(default_factory=list)
    blocks: int = 0
    """Block ids in the rows of a trace; 0: what its prompts have in common is not known."""
    asks: dict[str, dict[str, int]] = field(default_factory=dict)
    """What rows say that a run may not do: kind of request to its values, each with the number of rows."""
    sha256: str = ""
    """Of the file's bytes, unpacked."""

    def skip(self, place: str, reason: str, detail: str = "") -> None:
        """One row that cannot be used."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{place}: {reason}" + (f": {detail}" if detail else ""))

    def ask(self, kind: str, value: str = "", n: int = 1) -> None:
        """A row that is used asks for something that the run may not do (``asks.unfollowed``)."""
        counted = self.asks.setdefault(kind, {})
        if value not in counted and len(counted) >= MOST_ASKS:
            value = "others"
        counted[value] = counted.get(value, 0) + n

    def leave(self, reason: str) -> None:
        """One row that is not wanted."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def words(self) -> str:
        """One line for people."""
        parts = [f"{self.file}: {plural(self.rows, 'row')}" + (f" ({self.format})" if self.format else "")]
        bad = sum(self.skipped.values())
        if bad:
            why = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.items())
            parts.append(f"{bad:,} skipped ({why}; {self.problems[0]})")
        parts += [f"{n:,} left out ({reason})" for reason, n in self.left_out.items()]
        return "; ".join([*parts, *self.notes])


def lines_of(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line as UTF-8) of every line that is not blank."""
    number = 0
    rest = b""
    for chunk in chain(utf8(chunks), (b"\n",)):
        whole = rest + chunk if rest else chunk
        lines = whole.split(b"\n")
        rest = lines.pop()
        for line in lines:
            number += 1
            if line and not line.isspace():
                yield number, line.removesuffix(b"\r")


def peek(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first byte that says something, and all of the text as UTF-8."""
    source = utf8(chunks)
    held: list[bytes] = []
    for chunk in source:
        held.append(chunk)
        start = b"".join(held).lstrip()
        if start:
            return start[:1], chain(held, source)
    return b"", iter(held)
