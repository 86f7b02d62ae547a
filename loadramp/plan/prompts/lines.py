"""Bytes of a file to its rows: lines of text, or the elements of a JSON array. Pure; nothing is read twice or kept.

Lines end at LF alone (a raw U+2028 within a string ends nothing); a byte order mark, CR and blank lines are taken off.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import msgspec

BOM = b"\xef\xbb\xbf"
MOST_PROBLEMS = 10
_decoder = msgspec.json.Decoder()


@dataclass(slots=True)
class Tally:
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
    sha256: str = ""
    """Of the file's bytes, unpacked."""

    def skip(self, place: str, reason: str, detail: str = "") -> None:
        """One row that cannot be used."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{place}: {reason}" + (f": {detail}" if detail else ""))

    def leave(self, reason: str) -> None:
        """One row that is not wanted."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1

    def words(self) -> str:
        """One line for people."""
        parts = [f"{self.file}: {self.rows:,} rows" + (f" ({self.format})" if self.format else "")]
        bad = sum(self.skipped.values())
        if bad:
            why = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.items())
            parts.append(f"{bad:,} skipped ({why}; {self.problems[0]})")
        parts += [f"{n:,} left out ({reason})" for reason, n in self.left_out.items()]
        return "; ".join([*parts, *self.notes])


def lines_of(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line) of every line that is not blank."""
    number = 0
    rest = b""
    for chunk in chain(chunks, (b"\n",)):
        whole = rest + chunk if rest else chunk
        lines = whole.split(b"\n")
        rest = lines.pop()
        for line in lines:
            number += 1
            if number == 1:
                line = line.removeprefix(BOM)  # noqa: PLW2901 (the same line)
            if line and not line.isspace():
                yield number, line.removesuffix(b"\r")


def objects_of(chunks: Iterable[bytes], tally: Tally) -> Iterator[tuple[str, Any]]:
    """(place, value) of every row of JSON lines, or of one JSON array; a row that is no JSON is counted.

    A document ``{"dataset": [..]}`` or ``{"data": [..]}`` on one line is that list.
    """
    first, whole = peek(chunks)
    if first == b"[":
        yield from _elements(whole, tally)
        return
    for number, line in lines_of(whole):
        place = f"line {number}"
        try:
            value = _decoder.decode(line.rstrip().removesuffix(b","))
        except msgspec.DecodeError as error:
            tally.skip(place, "no JSON", str(error))
            continue
        except UnicodeDecodeError as error:
            tally.skip(place, "not UTF-8", str(error))
            continue
        listed = [
            value[key] for key in ("dataset", "data") if isinstance(value, dict) and isinstance(value.get(key), list)
        ]
        if listed:
            yield from ((f"row {i}", one) for i, one in enumerate(listed[0], start=1))
        else:
            yield place, value


def peek(chunks: Iterable[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first byte that says something, and all of the chunks."""
    source = iter(chunks)
    held: list[bytes] = []
    for chunk in source:
        held.append(chunk)
        start = b"".join(held).removeprefix(BOM).lstrip()
        if start:
            return start[:1], chain(held, source)
    return b"", iter(held)


def _elements(chunks: Iterable[bytes], tally: Tally) -> Iterator[tuple[str, Any]]:
    """The elements of one JSON array, of which no more than a chunk and an element are held at a time."""
    text = codecs.getincrementaldecoder("utf-8-sig")(errors="replace")
    pieces: Iterator[str] = (piece for chunk in chunks if (piece := text.decode(chunk)))
    decode = json.JSONDecoder().raw_decode
    held, number, opened = "", 0, False
    for piece in chain(pieces, ("",)):  # an empty piece: the end
        held, at = held + piece, 0
        if not opened:
            held = held.lstrip()
            opened = held != ""
            at = 1
        while (at := _past(held, at)) < len(held):
            if held[at] == "]":
                return
            try:
                value, at = decode(held, at)
            except ValueError as error:
                if piece:
                    break  # the rest of it is in the next chunk
                tally.skip(f"row {number + 1}", "no JSON", f"{error}; nothing behind it can be read")
                return
            number += 1
            yield f"row {number}", value
        held = held[at:]


def _past(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,":
        at += 1
    return at
