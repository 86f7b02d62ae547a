"""A run as named numbers: what the small formats are made of. Pure."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from loadramp.record.codec import plain_data
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.report import rows as r

Files = dict[str, str | bytes]
"""File name to content."""

ESTIMATES = {"ceiling": "ceiling_rps", "p99_itl_knee": "knee_rps", "slo_capacity": "slo_capacity_rps"}
Better = Literal["higher", "lower"]
LATENCIES = ("ttft_p50", "ttft_p99", "itl_p50", "itl_p99", "tpot_p50", "e2e_p50", "e2e_p99")
COLUMNS: tuple[tuple[str, str, Better], ...] = (
    *((f"{stem}_s", "s", "lower") for stem in LATENCIES),
    ("error_ratio", "ratio", "lower"),
    ("output_tokens_per_s", "tokens/s", "higher"),
)
"""Columns of a row, with their units and which way is better."""


@dataclass(slots=True, frozen=True)
class NamedNumber:
    """One number of a run with its interval; ``row`` where it belongs to a step."""

    name: str
    unit: str
    better: Better
    value: float
    low: float | None = None
    high: float | None = None
    row: Row | None = None

    @property
    def place(self) -> str:
        """``8 req/s``, or empty for the whole run."""
        return "" if self.row is None else r.label(self.row)

    @property
    def full_name(self) -> str:
        return f"{self.name} @ {self.place}" if self.row else self.name


def points(run: Run) -> list[NamedNumber]:
    """The numbers found, and the latencies, errors and throughput of each step that kept up: what an overloaded one
    shows depends on its length."""
    return [*_of_run(run), *(point for row in run.rows if r.quiet_row(row) for point in _of_row(row))]


def _of_run(run: Run) -> list[NamedNumber]:
    out = []
    for key, name in ESTIMATES.items():
        estimate = run.estimates.get(key)
        if estimate is not None and estimate.status == "found" and estimate.rate_rps:
            out.append(NamedNumber(name, "req/s", "higher", estimate.rate_rps, estimate.low_rps, estimate.high_rps))
    ceiling = run.estimates.get("ceiling")
    if ceiling is not None and ceiling.sustained_rps:
        out.append(NamedNumber("sustained_rps", "req/s", "higher", ceiling.sustained_rps))
    return out


def _of_row(row: Row) -> list[NamedNumber]:
    out = []
    for name, unit, better in COLUMNS:
        value = row.number(name)
        if value is not None:
            low, high = (row.number(f"{name.removesuffix('_s')}_{end}_s") for end in ("low", "high"))
            out.append(NamedNumber(name, unit, better, value, low, high, row))
    return out


def identity(run: Run) -> dict[str, str]:
    """What was measured with what, as short words: only what is known."""
    known = {
        "scenario": run.info.name,
        "model": run.info.target.model,
        "engine": run.info.target.engine,
        "engine_version": run.info.target.version,
        "loadramp": run.info.loadramp,
        "began_at": run.info.began_at,
    }
    return {key: str(value) for key, value in known.items() if value}


def began_at(run: Run) -> datetime | None:
    """When the run began; None where that is not known, or no date."""
    try:
        return datetime.fromisoformat(run.info.began_at or "")
    except ValueError:
        return None


def document(value: Any, *, indent: int | None = 1) -> str:
    """Strict JSON text with a newline at its end."""
    return json.dumps(plain_data(value), indent=indent, allow_nan=False, ensure_ascii=False) + "\n"
