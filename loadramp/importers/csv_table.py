"""A CSV file with a row for each request (docs/import.md). Pure."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from loadramp.importers.levels import RecordedLevel
from loadramp.record.types import Record
from loadramp.registry import ScenarioError, hint
from loadramp.runner.recorded import record_of

Json = Any
_NUMBERS = ("due_s", "sent_s", "first_token_s", "last_token_s", "end_s", "rate_rps")
_COUNTS = ("output_tokens", "prompt_tokens", "http_status", "users")
_WORDS = ("error", "label", "model", "step")
_COLUMNS = (*_NUMBERS, *_COUNTS, *_WORDS, "token_s")
_ABSENT = {"", "nan", "none", "null", "na", "n/a"}
"""What programs write where they have no value."""


def csv_rows(text: str) -> list[dict[str, Any]]:
    """The rows, by their columns as numbers and words; cells without a value are left out.

    Raises:
        ValueError: it is no such file.
        ScenarioError: it is one, with a column or a cell that cannot be.
    """
    first = text.partition("\n")[0]
    separator = max(",;\t|", key=first.count)
    reader = csv.reader(io.StringIO(text.replace("\0", "\ufffd")), delimiter=separator)
    names = [name.strip() for name in next(reader, [])]
    if not {"due_s", "sent_s"} & set(names):
        raise ValueError("no column due_s or sent_s")
    if unknown := [name for name in names if name not in _COLUMNS]:
        raise ScenarioError(
            f"{', '.join(unknown)}: no such column{hint(unknown[0], _COLUMNS)}; there are {', '.join(_COLUMNS)}"
        )
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ScenarioError(f"{twice}: two columns of this name")
    rows = []
    for cells in reader:
        if not any(cells):
            continue
        place = f"line {reader.line_num}"
        if len(cells) != len(names):
            raise ScenarioError(f"{place}: expected {len(names)} cells, as in the header; got {len(cells)}")
        rows.append({"place": place} | _plain(dict(zip(names, cells, strict=True)), place))
    return rows


def csv_levels(document: Json, _: Sequence[Json]) -> list[RecordedLevel]:
    """The columns of docs/import.md; ``token_s`` holds instants with spaces between them."""
    levels = []
    for _, rows_of_step in groupby(sorted(document, key=_step), key=_step):
        members = list(rows_of_step)
        step = _step(members[0])
        rate_rps, users = (_only(members, name, step) for name in ("rate_rps", "users"))
        records = [_csv_record(row) for row in members]
        levels.append(RecordedLevel(records, rate_rps, None if users is None else int(users)))
    return levels


def _step(row: Mapping[str, Any]) -> str:
    return str(row.get("step", ""))


def _only(rows: Iterable[Mapping[str, Any]], name: str, step: str) -> float | None:
    """What the rows of a step say, where they say it."""
    known = {row[name] for row in rows if name in row}
    if len(known) > 1:
        of_step = f"step {step}" if step else "no column step"
        raise ScenarioError(f"{name}: expected one in a step; got {', '.join(map(str, sorted(known)))} ({of_step})")
    return known.pop() if known else None


def _count(cell: str) -> int:
    """``10`` and, as pandas writes a column with gaps, ``10.0``."""
    number = float(cell)
    if not number.is_integer():
        raise ValueError(cell)
    return int(number)


def _instants(cell: str) -> list[float]:
    return [float(at_s) for at_s in cell.split()]


_KINDS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys(_NUMBERS, ("a number", float)),
    **dict.fromkeys(_COUNTS, ("a whole number", _count)),
    **dict.fromkeys(_WORDS, ("text", str)),
    "token_s": ("numbers with spaces between them", _instants),
}


def _plain(row: Mapping[str, str], place: str) -> dict[str, Any]:
    known = {}
    for name, cell in row.items():
        wanted, kind = _KINDS[name]
        try:
            if cell.strip().lower() not in _ABSENT:
                known[name] = kind(cell.strip())
        except (ValueError, OverflowError):
            raise ScenarioError(f"{place}: {name}: expected {wanted}; got {cell!r}") from None
    return known


def _csv_record(row: Mapping[str, Any]) -> Record:
    due_s = row.get("due_s", row.get("sent_s"))
    if due_s is None:
        raise ScenarioError(f"{row['place']}: no due_s and no sent_s: when was it sent?")
    try:
        return record_of(
            due_s,
            sent_s=row.get("sent_s"),
            token_s=row.get("token_s", ()),
            first_s=row.get("first_token_s"),
            last_s=row.get("last_token_s"),
            end_s=row.get("end_s"),
            output_tokens=row.get("output_tokens"),
            prompt_tokens=row.get("prompt_tokens"),
            error=row.get("error"),
            http_status=row.get("http_status"),
            label=row.get("label", ""),
            model=row.get("model"),
        )
    except ScenarioError as error:
        raise ScenarioError(f"{row['place']}: {error}") from None
