"""A CSV file with a row for each request (docs/import.md). Pure."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from loadramp.importers.levels import RecordedLevel
from loadramp.record.types import Record
from loadramp.registry import ScenarioError
from loadramp.runner.recorded import record_of

Json = Any


_NUMBERS = {"due_s", "sent_s", "first_token_s", "last_token_s", "end_s", "rate_rps"}
_COUNTS = {"output_tokens", "prompt_tokens", "http_status", "users"}
_WORDS = {"error", "label", "model", "step"}


def csv_rows(text: str) -> Json:
    rows = list(csv.DictReader(io.StringIO(text)))
    if not rows or not {"due_s", "sent_s"} & set(rows[0]):
        raise ValueError("no column due_s or sent_s")
    if unknown := set(rows[0]) - _NUMBERS - _COUNTS - _WORDS - {"token_s"}:
        allowed = ", ".join(sorted(_NUMBERS | _COUNTS | _WORDS | {"token_s"}))
        raise ScenarioError(f"{', '.join(sorted(map(str, unknown)))}: no such column; there are {allowed}")
    return rows


def csv_levels(document: Json, _: Sequence[Json]) -> list[RecordedLevel]:
    """The columns of docs/import.md; ``token_s`` holds instants with spaces between them."""
    rows = [_plain(row) for row in document]
    levels = []
    for _, rows_of_step in groupby(
        sorted(rows, key=lambda row: str(row.get("step") or "")), key=lambda row: row.get("step")
    ):
        members = list(rows_of_step)
        asked = {(row.get("rate_rps"), row.get("users")) for row in members}
        if len(asked) > 1:
            raise ScenarioError(f"step {members[0].get('step')}: several rates in one step: {sorted(map(str, asked))}")
        rate_rps, users = asked.pop()
        levels.append(RecordedLevel([_csv_record(row) for row in members], rate_rps, users))
    return levels


def _plain(row: Mapping[str, str]) -> dict[str, Any]:
    kinds: Iterable[tuple[set[str], Callable[[str], Any]]] = ((_NUMBERS, float), (_COUNTS, int), (_WORDS, str))
    known = {name: kind(row[name]) for names, kind in kinds for name in names if row.get(name)}
    return known | {"token_s": [float(at_s) for at_s in (row.get("token_s") or "").split()]}


def _csv_record(row: Mapping[str, Any]) -> Record:
    return record_of(
        row.get("due_s", row.get("sent_s")),
        sent_s=row.get("sent_s"),
        token_s=row["token_s"],
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
