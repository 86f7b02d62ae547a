"""Rows out of any form of a JSON file: lines, one array, one document, or values one after the other. Pure.

The form is found by parsing. Lines are streamed, an array is read element by element; what spans lines otherwise is
held in memory. A row that is no JSON is counted; what follows it is read where it can be found again.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import msgspec

from loadramp.workload.prompts.lines import NOT_UTF8, RowCounts, lines_of, peek

LISTS = ("dataset", "data", "rows", "requests", "items", "samples", "examples", "instances", "records", "entries")
"""Keys of a document under which its rows stand, if it is no row itself."""
_ROW = frozenset({"messages", "prompt", "text", "body", "payload", "payloads", "conversations", "timestamp"})
_BROKEN = re.compile("[\udc80-\udcff]")
"""Bytes that are not UTF-8, as ``surrogateescape`` keeps them."""
_RS = b"\x1e"
"""Begins each value of a JSON text sequence (RFC 7464)."""
_decoder = msgspec.json.Decoder()
_raw = json.JSONDecoder().raw_decode


def objects_of(chunks: Iterable[bytes], tally: RowCounts) -> Iterator[tuple[str, Any]]:
    """(place, value) of every row; a row that is no JSON is counted.

    A document ``{"data": [..]}`` (any of LISTS) is that list; lists within a list are taken apart.
    """
    first, whole = peek(chunks)
    if first == b"[":
        for place, value in _elements(whole, tally):
            yield from _within(place, value)
        return
    lines = lines_of(whole)
    opening = next(lines, None)
    if opening is None:
        return
    if _values(opening[1]):
        yield from _by_line(chain((opening,), lines), tally)
        return
    held = [opening, *lines]
    text = "\n".join(line.decode("utf-8", "surrogateescape") for _, line in held)
    try:
        _raw(text, _past(text, 0))
    except ValueError as error:
        yield from _broken(held, tally, str(error))
    else:
        yield from _values_of(text, [number for number, _ in held], tally)


def _by_line(lines: Iterable[tuple[int, bytes]], tally: RowCounts) -> Iterator[tuple[str, Any]]:
    for number, line in lines:
        try:
            values = [_decoder.decode(_bare(line))]
        except msgspec.DecodeError as error:
            values = _values(line)
            if not values:
                tally.skip(f"line {number}", "no JSON", str(error))
        except UnicodeDecodeError as error:
            tally.skip(f"line {number}", NOT_UTF8, str(error))
            continue
        for value in values:
            yield from _within(f"line {number}", value)


def _broken(lines: list[tuple[int, bytes]], tally: RowCounts, why: str) -> Iterator[tuple[str, Any]]:
    """Lines of which the first is no JSON, nor the begin of any: those that are rows, indented ones left out."""
    if not any(not line[:1].isspace() and _values(line) for _, line in lines):
        tally.skip(f"line {lines[0][0]}", "no JSON", why)
        return
    for number, line in lines:
        if line[:1].isspace():
            tally.skip(f"line {number}", "no JSON", "a part of something that is broken")
        else:
            yield from _by_line([(number, line)], tally)


def _values_of(text: str, numbers: list[int], tally: RowCounts) -> Iterator[tuple[str, Any]]:
    """Values one after the other, each over any number of lines. Behind a broken one the next that begins a line."""
    at, line = 0, 0
    while True:
        begin = _past(text, at)
        if begin >= len(text):
            return
        line += text.count("\n", at, begin)
        place = f"line {numbers[line]}"
        try:
            value, at = _raw(text, begin)
        except ValueError as error:
            tally.skip(place, "no JSON", str(error))
            next_begin = text.find("\n{", begin)
            at = len(text) if next_begin < 0 else next_begin
        else:
            if _is_text(text[begin:at], place, tally):
                yield from _within(place, value)
        line += text.count("\n", begin, at)


def _elements(chunks: Iterable[bytes], tally: RowCounts) -> Iterator[tuple[str, Any]]:
    """The elements of JSON arrays, of which no more than a chunk and an element are held at a time."""
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    pieces: Iterator[str] = (piece for chunk in chunks if (piece := text.decode(chunk)))
    held, number, inside = "", 0, False
    for piece in chain(pieces, ("",)):  # an empty piece: the end
        held, at = held + piece, 0
        while (at := _past(held, at)) < len(held):
            if held[at] == ("]" if inside else "["):
                inside = not inside
                at += 1
                continue
            if not inside:
                tally.skip(f"row {number + 1}", "no JSON", "behind the end of the array")
                return
            begin = at
            try:
                value, at = _raw(held, at)
            except ValueError as error:
                if piece:
                    break  # the rest of it is in the next chunk
                tally.skip(f"row {number + 1}", "no JSON", f"{error}; nothing behind it can be read")
                return
            if piece and at == len(held) and held[-1] not in ']}"':
                at = begin  # a number may go on in the next chunk
                break
            number += 1
            if _is_text(held[begin:at], f"row {number}", tally):
                yield f"row {number}", value
        held = held[at:]
    if inside:
        tally.notes.append("the array has no end: the file may be cut off")


def _within(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The rows that a value stands for: itself, or those of the list that it is or holds."""
    listed = value
    if isinstance(value, dict) and not _ROW & value.keys():
        listed = next((value[key] for key in LISTS if isinstance(value.get(key), list)), value)
    if not isinstance(listed, list) or (listed is value and not any(isinstance(item, dict) for item in listed)):
        yield place, value
        return
    number = 0
    for item in listed:
        for inner in item if isinstance(item, list) else (item,):
            number += 1
            yield (f"row {number}" if place == "line 1" else f"{place}, row {number}"), inner


def _values(line: bytes) -> list[Any]:
    """The JSON values of a line, nothing else standing in it; none where that is not so."""
    try:
        return [_decoder.decode(_bare(line))]
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    values: list[Any] = []
    try:
        text, at = line.decode("utf-8"), 0
        while (at := _past(text, at)) < len(text):
            value, at = _raw(text, at)
            msgspec.json.encode(value)
            values.append(value)
    except ValueError:
        return []
    return values if all(isinstance(value, dict | list) for value in values) else []


def _bare(line: bytes) -> bytes:
    return line.removeprefix(_RS).rstrip().removesuffix(b",")


def _is_text(source: str, place: str, tally: RowCounts) -> bool:
    """Whether a value's source is text; else it is counted."""
    if _BROKEN.search(source):
        tally.skip(place, NOT_UTF8)
        return False
    if "\\u" in source:
        try:
            _decoder.decode(source)  # stricter: half a character is none
        except msgspec.DecodeError as error:
            tally.skip(place, "no JSON", str(error))
            return False
    return True


def _past(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n,\x1e":
        at += 1
    return at
