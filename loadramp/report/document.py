"""What programs read: the verdict as strict JSON data and the curve as CSV. Pure; no NaN, no infinity, ever."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from loadramp.record.codec import plain_data
from loadramp.record.row import Row, columns_of
from loadramp.record.table import Run
from loadramp.report.diagnosis import diagnosis_document
from loadramp.report.repeats import repeats_document
from loadramp.report.thresholds import gates_document
from loadramp.report.verdict_text import verdict, verdict_sentence

ESTIMATE_KEYS = ("status", "rate_rps", "low_rps", "high_rps", "sustained_rps", "detector", "reason")
EXTRA_KEYS = {"ceiling": (), "p99_itl_knee": ("cause",), "slo_capacity": ("limit",)}
FIRST_COLUMNS = (
    "step", "role", "rate_rps", "users", "begin_s", "window_begin_s", "window_end_s", "requests", "ok", "pending",
    "errors", "error_ratio", "sent_rps", "done_rps", "throughput_rps", "lag_p50_s", "lag_p99_s",
)  # fmt: skip


def verdict_document(run: Run) -> dict[str, Any]:
    """The document of ``run --json`` and ``verdict.json``: plain data that ``json.dumps(allow_nan=False)`` takes."""
    document: dict[str, Any] = {
        "run_dir": run.path,
        "state": "complete" if run.info.state in (None, "complete") else "stopped",
        "verdict": verdict(run),
        "sentence": verdict_sentence(run),
    }
    for name, extra in EXTRA_KEYS.items():
        estimate = asdict(run.estimate(name))
        keys = (*ESTIMATE_KEYS, *extra, *(["interval_of"] if estimate["interval_of"] else []))
        document[name] = {key: estimate[key] for key in keys}
    if len(run.repeats) > 1:
        document["repeats"] = repeats_document(run)
    document["steps"] = [plain_row(row) for row in run.rows]
    document["checks"] = [asdict(check) for check in run.checks]
    document["diagnosis"] = diagnosis_document(run)
    document["gates"] = gates_document(run)
    checked: dict[str, Any] = plain_data(document)
    return checked


def plain_row(row: Row) -> dict[str, Any]:
    """A row as JSON data; a number that is none gets a reason when it has no better one."""
    columns = columns_of(row)
    plain: dict[str, Any] = plain_data(columns)
    for name, value in columns.items():
        if value is not None and plain[name] is None:
            plain["reasons"].setdefault(name, "not a finite number")
    return plain


def curve_csv(run: Run) -> str:
    """One line a row of the curve, in the order of docs/format.md."""
    rows = [plain_row(row) for row in run.rows]
    columns = dict.fromkeys(name for row in rows for name in row)
    names = [name for name in FIRST_COLUMNS if name in columns or not columns]
    names += [name for name in columns if name not in names and name != "reasons"]
    names += ["reasons"]
    return csv_text(names, ([row.get(name) for name in names] for row in rows))


def csv_text(heads: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """CSV: null is empty, what is nested is JSON, text that a spreadsheet would run as a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows([_csv_cell(value) for value in line] for line in lines)
    return out.getvalue()


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, allow_nan=False, ensure_ascii=False)
    if isinstance(value, str):
        return f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
    return repr(value)
