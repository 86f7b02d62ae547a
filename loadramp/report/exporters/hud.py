"""The records that PyTorch's benchmark dashboard takes and that vLLM's own benchmarks write. Pure."""

from __future__ import annotations

from typing import Any

from loadramp.record.table import Run
from loadramp.report.exporters.points import Files, document, identity, points


def pytorch_hud(run: Run) -> Files:
    """One record a number; the step's rate stands in the arguments, the interval beside the value."""
    told = identity(run)
    records = []
    for point in points(run):
        args: dict[str, Any] = {"request_rate": None if point.row is None else point.row.get("rate_rps")}
        if point.row is not None and point.row.get("users"):
            args["users"] = point.row["users"]
        extra = {key: value for key, value in told.items() if key != "model"}
        records.append(
            {
                "benchmark": {
                    "name": f"loadramp {told.get('scenario', '')}".strip(),
                    "extra_info": {"args": args | extra},
                },
                "model": {"name": told.get("model", "unknown")},
                "metric": {
                    "name": point.name,
                    "benchmark_values": [point.value],
                    "extra_info": {"unit": point.unit, "low": point.low, "high": point.high},
                },
            }
        )
    return {"pytorch-hud.json": document(records)}
