"""Traces of real traffic: when requests came, how long they and their answers were, what they had in common. Pure.

Columns are found by name, in any order, among any others. A row that cannot be used is counted and named by line.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from loadramp.registry import ScenarioError
from loadramp.units import plural
from loadramp.workload.prompts.json_forms import objects_of
from loadramp.workload.prompts.lines import RowCounts, lines_of, peek, text_of
from loadramp.workload.prompts.trace_formats import Format, FormatName, Stamps, TimeUnit, format_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Window = Annotated[list[float], Meta(min_length=2, max_length=2)]
MOST_TOKENS = 2**31 - 1
MOST_LABELS = 64
SEPARATORS = (",", ";", "\t", "|")
LATER_TURNS = "later turns of sessions (delay) are not replayed"
_SEP = re.compile(rb'"?sep=([,;\t|])"?', re.IGNORECASE)


@dataclass(slots=True, frozen=True)
class Trace:
    """n rows, by time. ``begin[i]:begin[i + 1]`` are the blocks of row i; there are none where the file has none.

    ``t_s`` counts from the begin of the window, or from the first row; ``span_s`` is what one pass takes, the mean gap
    behind the last row included.
    """

    tally: RowCounts
    t_s: Floats
    span_s: float
    inputs: NDArray[np.int32]
    outputs: NDArray[np.int32]
    block_tokens: int
    blocks: NDArray[np.int64]
    begin: Ints
    images: NDArray[np.int16]
    label: NDArray[np.int16]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(slots=True)
class _Columns:
    """The rows as they are read: 20 bytes each and 8 a block, never an object a row."""

    t_s: array[float] = field(default_factory=lambda: array("d"))
    inputs: array[int] = field(default_factory=lambda: array("i"))
    outputs: array[int] = field(default_factory=lambda: array("i"))
    sizes: array[int] = field(default_factory=lambda: array("i"))
    blocks: array[int] = field(default_factory=lambda: array("q"))
    images: array[int] = field(default_factory=lambda: array("h"))
    label: array[int] = field(default_factory=lambda: array("h"))
    labels: dict[str, int] = field(default_factory=dict)


def read_trace(
    chunks: Iterable[bytes],
    file: str,
    *,
    format: FormatName = "auto",
    time_unit: TimeUnit | None = None,
    block_tokens: int | None = None,
    window_s: Window | None = None,
    columns: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
) -> Trace:
    """The trace in a CSV or JSON-lines file, streamed.

    Args:
        chunks: the file's bytes, in pieces of any size.
        file: how messages call it.
        format: which columns to look for; ``auto``: the first of FORMATS whose columns are all there.
        time_unit, block_tokens: where they differ from the format's.
        window_s: keep the rows in ``[begin, end)``, seconds since the file's first row, and count time from its begin.
        columns: the file's own name of ``time``, ``input``, ``output``, ``blocks``, ``label`` or ``images``.
        only: keep the rows whose columns have these values.

    Raises:
        ScenarioError: columns are missing (names those present), or no row can be used.
    """
    if window_s is not None and not window_s[0] < window_s[1]:
        raise ScenarioError(f"{file}: window_s {window_s}: its begin must lie before its end")
    tally = RowCounts(file)
    rows, names = _rows(chunks, tally)
    tally.format, form = format_of(names, format, columns or {}, file)
    unit, block = time_unit or form.unit, block_tokens or form.block_tokens
    rows_read = _Columns()
    stamps = Stamps(unit)
    for place, row in rows:
        if only and any(str(row.get(key)) != value for key, value in only.items()):
            tally.leave("not " + ", ".join(f"{key} = {value}" for key, value in only.items()))
            continue
        _take(rows_read, tally, form, block, stamps, window_s, place, row)
    tally.notes.append(f"time in {unit}" + (f", blocks of {plural(block, 'token')}" if rows_read.blocks else ""))
    return _trace(rows_read, tally, block, window_s, form)


def _rows(chunks: Iterable[bytes], tally: RowCounts) -> tuple[Iterator[tuple[str, Mapping[str, Any]]], list[str]]:
    """Rows as mappings, and the names of the columns: of a CSV's header, or of the first JSON object."""
    begin, whole = peek(chunks)
    if begin in (b"{", b"["):
        objects = _objects(whole, tally)
        opening = next(objects, None)
        if opening is None:
            raise tally.unusable("it has no row")
        return chain((opening,), objects), list(opening[1])
    lines = lines_of(whole)
    head = next(lines, None)
    if head is None:
        raise ScenarioError(f"{tally.file}: empty")
    named = _SEP.fullmatch(head[1])
    if named:  # how spreadsheets name the separator
        head = next(lines, (0, b""))
    try:
        first = text_of(head[1])
    except ValueError as error:
        raise ScenarioError(f"{tally.file}: line {head[0]}: the header is {error}: convert the file to UTF-8") from None
    separator = named[1].decode() if named else max(SEPARATORS, key=lambda separator: len(_cells(first, separator)))
    header = [name.strip() for name in _cells(first, separator)]
    return _records(lines, header, separator, tally), header


def _objects(chunks: Iterable[bytes], tally: RowCounts) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for place, value in objects_of(chunks, tally):
        if isinstance(value, dict):
            yield place, value
        else:
            tally.skip(place, "no object")


def _records(
    source: Iterable[tuple[int, bytes]], header: list[str], separator: str, tally: RowCounts
) -> Iterator[tuple[str, dict[str, str]]]:
    width = len(header)
    for number, line in source:
        try:
            cells = _cells(text_of(line), separator)
        except ValueError as error:
            tally.skip(f"line {number}", str(error))
            continue
        if len(cells) < width:
            tally.skip(f"line {number}", "too few cells", f"{len(cells)} of {width}")
            continue
        yield f"line {number}", dict(zip(header, cells, strict=False))


def _cells(text: str, separator: str) -> list[str]:
    if '"' not in text:
        return text.split(separator)
    try:
        return next(csv.reader([text], delimiter=separator))
    except csv.Error:  # a stray carriage return; the row will be counted for what it lacks
        return text.split(separator)


def _take(
    columns: _Columns,
    tally: RowCounts,
    form: Format,
    block_tokens: int,
    stamps: Stamps,
    window_s: Window | None,
    place: str,
    row: Mapping[str, Any],
) -> None:
    """Add one row, or count why not."""
    if row.get(form.time) is None and row.get("delay") is not None:
        tally.skip(place, LATER_TURNS)
        return
    try:
        t_s = stamps.read(row.get(form.time))
    except ValueError as error:
        tally.skip(place, "no time stamp", str(error))
        return
    try:
        tokens, answer = _tokens(row.get(form.input)), _tokens(row.get(form.output))
    except ValueError as error:
        tally.skip(place, "no length", str(error))
        return
    if tokens < 1 or answer < 1:
        tally.skip(
            place, "no prompt" if tokens < 1 else "no answer", f"{plural(tokens, 'token')}, answer of {answer:,}"
        )
        return
    ids = row.get(form.blocks) if form.blocks else None
    if ids is not None and not _fits(ids, tokens, block_tokens):
        n = len(ids) if isinstance(ids, list) else ids
        expected = -(-tokens // block_tokens)
        tally.skip(
            place,
            "blocks do not make the prompt",
            f"{plural(n, 'block')} of {block_tokens} for {plural(tokens, 'token')} ({expected})",
        )
        return
    if window_s is not None and not window_s[0] <= t_s < window_s[1]:
        tally.leave("outside window_s")
        return
    columns.t_s.append(t_s)
    columns.inputs.append(tokens)
    columns.outputs.append(answer)
    columns.sizes.append(len(ids) if ids else 0)
    columns.blocks.extend(ids or ())
    columns.images.append(_images(row.get(form.images)) if form.images else 0)
    label = str(row.get(form.label) or "") if form.label else ""
    if label not in columns.labels and len(columns.labels) >= MOST_LABELS:
        label = "other"
    columns.label.append(columns.labels.setdefault(label, len(columns.labels)))


def _tokens(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r} is no number of tokens")
    number = float(value)
    if not abs(number) <= MOST_TOKENS or number != int(number):
        raise ValueError(f"{value!r} is no number of tokens")
    return int(number)


def _images(value: Any) -> int:
    try:
        return min(max(0, int(value)), 64)
    except (TypeError, ValueError):
        return 0


def _fits(ids: Any, tokens: int, block_tokens: int) -> bool:
    """One id for each block, the last one partial; each a whole number that fits 63 bits."""
    if not isinstance(ids, list) or block_tokens < 1 or len(ids) != -(-tokens // block_tokens):
        return False
    return all(type(id_) is int and 0 <= id_ < 2**63 for id_ in ids)


def _trace(columns: _Columns, tally: RowCounts, block_tokens: int, window_s: Window | None, form: Format) -> Trace:
    n = len(columns.inputs)
    if n == 0:
        wrong_blocks = "blocks do not make the prompt" in tally.skipped
        hint = f" (block_tokens = {block_tokens}: another number?)" if wrong_blocks else ""
        raise ScenarioError(f"{tally.unusable('it has only a header')}{hint}")
    t_s = np.frombuffer(columns.t_s, dtype=np.float64)
    order = tally.by_time(t_s)
    t_s = t_s[order]
    t_s = t_s - (t_s[0] if window_s is None else window_s[0])
    sizes = np.frombuffer(columns.sizes, dtype=np.int32)
    begin = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    blocks = np.frombuffer(columns.blocks, dtype=np.int64) if columns.blocks else np.empty(0, dtype=np.int64)
    if sizes.any():
        blocks, begin = _reordered(blocks, begin, order)
    last_s = float(t_s[-1])
    mean_gap_s = (last_s - float(t_s[0])) / (n - 1) if n > 1 else 1.0
    span_s = last_s + mean_gap_s if window_s is None else min(window_s[1] - window_s[0], last_s + mean_gap_s)
    tally.rows, tally.blocks = n, len(blocks)
    return Trace(
        tally=tally,
        t_s=t_s,
        span_s=span_s,
        inputs=np.frombuffer(columns.inputs, dtype=np.int32)[order],
        outputs=np.frombuffer(columns.outputs, dtype=np.int32)[order],
        block_tokens=block_tokens if form.blocks else 0,
        blocks=blocks,
        begin=begin,
        images=np.frombuffer(columns.images, dtype=np.int16)[order],
        label=np.frombuffer(columns.label, dtype=np.int16)[order],
        labels=tuple(columns.labels),
    )


def _reordered(blocks: NDArray[np.int64], begin: Ints, order: Ints) -> tuple[NDArray[np.int64], Ints]:
    """Blocks of the rows at ``order``, and where each row's begin."""
    sizes = np.diff(begin)[order]
    starts = np.concatenate(([0], np.cumsum(sizes)))
    at = np.arange(starts[-1]) + np.repeat(begin[:-1][order] - starts[:-1], sizes)
    return blocks[at], starts
