"""Bytes of a text file in any Unicode encoding to its lines, and the count of what became of them. Pure.

Lines end at LF alone (a raw U+2028 within a string ends nothing); a byte order mark, CR and blank lines are taken off.
What is no text is never replaced: it stays invalid UTF-8, so that its line is skipped and counted.
"""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from loadramp.registry import ScenarioError
from loadramp.units import plural

NOT_UTF8 = "not UTF-8"
NOT_TEXT = "not text (zero bytes)"
MOST_PROBLEMS = 10
MOST_SETTINGS = 64
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 256
_MOSTLY = 0.4
"""Latin text in UTF-16 has a zero in one of two bytes; other scripts have it in spaces, digits and line ends only."""


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
    settings: dict[str, dict[str, int]] = field(default_factory=dict)
    """What rows say that a run may not do: kind of setting to its values, each with the number of rows."""
    sha256: str = ""
    """Of the file's bytes, unpacked."""

    def skip(self, place: str, reason: str, detail: str = "") -> None:
        """One row that cannot be used."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{place}: {reason}" + (f": {detail}" if detail else ""))

    def setting(self, kind: str, value: str = "", n: int = 1) -> None:
        """A row that is used says something that the run may not do (``row_fields.ignored_settings``)."""
        counted = self.settings.setdefault(kind, {})
        if value not in counted and len(counted) >= MOST_SETTINGS:
            value = "others"
        counted[value] = counted.get(value, 0) + n

    def leave(self, reason: str) -> None:
        """One row that is not wanted."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def unusable(self, empty: str) -> ScenarioError:
        """The error for a file without a row to use; ``empty`` is the reason if nothing was skipped or left out."""
        why = self.problems[0] if self.problems else ", ".join(self.left_out) or empty
        return ScenarioError(f"{self.file}: no row can be used: {why}")

    def by_time(self, t_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """The order of rows that came at ``t_s``, equal ones as in the file; notes if it is not the file's."""
        if np.any(np.diff(t_s) < 0):
            self.notes.append("rows were not in order of time: sorted")
        return np.argsort(t_s, kind="stable")

    def words(self) -> str:
        """One line for people."""
        parts = [f"{self.file}: {plural(self.rows, 'row')}" + (f" ({self.format})" if self.format else "")]
        bad = sum(self.skipped.values())
        if bad:
            why = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.items())
            parts.append(f"{bad:,} skipped ({why}; {self.problems[0]})")
        parts += [f"{n:,} left out ({reason})" for reason, n in self.left_out.items()]
        return "; ".join([*parts, *self.notes])


def utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same text as UTF-8 without a byte order mark.

    UTF-8, UTF-16 and UTF-32 are known by their mark; the last two also by where their zeros stand. Half a character at
    the end, or a number that is no character, becomes a byte that UTF-8 does not have.
    """
    source = iter(chunks)
    head = b""
    for chunk in source:
        head += chunk
        if len(head) >= _SAMPLE:
            break
    name, mark = encoding_of(head)
    rest = chain((head[mark:],), source)
    if name == "utf-8":
        yield from rest
        return
    decoder = codecs.getincrementaldecoder(name)("surrogatepass")
    try:
        for chunk in rest:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        yield b"\xff"


def encoding_of(head: bytes) -> tuple[str, int]:
    """(name, bytes of the mark) of a file that begins with ``head``."""
    for mark, name in MARKS:
        if head.startswith(mark):
            return name, len(mark)
    sample = head[:_SAMPLE]
    if not sample or sample.count(0) < _MOSTLY * len(sample) / 2:
        return "utf-8", 0
    shape = "".join("0" if sample[k::4].count(0) * 4 > _MOSTLY * len(sample) else "x" for k in range(4))
    names = {"x000": "utf-32-le", "000x": "utf-32-be", "x0x0": "utf-16-le", "0x0x": "utf-16-be"}
    return names.get(shape, "utf-8"), 0


def text_of(line: bytes) -> str:
    """A line as text.

    Raises:
        ValueError: it is not UTF-8, or holds zeros as no text does; the first word of a reason.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(NOT_UTF8) from None
    if "\0" in text:
        raise ValueError(NOT_TEXT)
    return text


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
