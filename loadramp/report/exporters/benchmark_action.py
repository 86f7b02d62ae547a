"""github-action-benchmark's two custom formats: one file of what should rise, one of what should fall. Pure."""

from __future__ import annotations

from typing import Any

from loadramp.record.table import Run
from loadramp.report.exporters.points import Files, NamedNumber, between, document, identity, points


def benchmark_action(run: Run) -> Files:
    """``tool: customBiggerIsBetter`` reads the first file, ``customSmallerIsBetter`` the second.

    Its own alert is a ratio to the last run and knows no noise: gate on ``loadramp nightly`` instead.
    """
    extra = "\n".join(f"{key}: {value}" for key, value in identity(run).items())
    found = points(run)
    return {
        "bigger-is-better.json": document([_entry(p, extra) for p in found if p.better == "higher"]),
        "smaller-is-better.json": document([_entry(p, extra) for p in found if p.better == "lower"]),
    }


def _entry(point: NamedNumber, extra: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": point.full_name, "unit": point.unit, "value": point.value, "extra": extra}
    interval = between(point)
    return entry | ({"range": interval} if interval else {})
