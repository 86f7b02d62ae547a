"""Rows of the curve as tables: CSV, and Parquet with the extra ``parquet``. Pure."""

import io
import json
from collections.abc import Mapping
from typing import Any

from loadramp.record.table import Run
from loadramp.registry import ScenarioError
from loadramp.report.document import curve_csv, plain_row
from loadramp.report.exporters.points import Files, identity


def csv_rows(run: Run) -> Files:
    """``curve.csv``: one line a step."""
    return {"curve.csv": curve_csv(run)}


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
