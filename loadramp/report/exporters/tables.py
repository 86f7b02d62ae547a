"""Rows of the curve, or lines of a history, as tables: CSV, and Parquet with the extra ``parquet``. Pure."""

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from loadramp.record.table import Run
from loadramp.record.types import Entry
from loadramp.registry import ScenarioError
from loadramp.report.document import csv_text, curve_csv, plain_row
from loadramp.report.exporters.points import Files, identity

NIGHT_COLUMNS = ("night", "scenario", "kind", "metric", "value", "low", "high", "repeat", "rerun", "run", "exit_code",
                 "reason")  # fmt: skip


def csv_rows(run: Run) -> Files:
    """``curve.csv``: one line a step."""
    return {"curve.csv": curve_csv(run)}


def csv_nights(entries: Sequence[Entry]) -> Files:
    """``history.csv``: one line a line of the history; the fingerprint's keys are columns.

    One that a line has itself is called ``fingerprint_KEY``: two columns of a name are one to most readers.
    """
    keys = list(dict.fromkeys(key for entry in entries for key in entry.fingerprint))
    heads = [*NIGHT_COLUMNS, *(f"fingerprint_{key}" if key in NIGHT_COLUMNS else key for key in keys)]
    lines = (
        [*(getattr(entry, name) for name in NIGHT_COLUMNS), *(entry.fingerprint.get(key) for key in keys)]
        for entry in entries
    )
    return {"history.csv": csv_text(heads, lines)}


def parquet(run: Run) -> Files:
    """``curve.parquet``: one row a step, what is nested as JSON text.

    Raises:
        ScenarioError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ScenarioError("--format parquet needs pyarrow: pip install 'loadramp[parquet]'") from None
    rows = [plain_row(row) for row in run.rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [_flat(row.get(name)) for row in rows] for name in names}
    table = pa.table(columns).replace_schema_metadata({f"loadramp.{key}": text for key, text in identity(run).items()})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return {"curve.parquet": sink.getvalue()}


def _flat(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, Mapping | list) else value
