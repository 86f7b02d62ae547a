"""Bencher Metric Format (BMF): benchmark to measure to value with its limits. Pure."""

from __future__ import annotations

from typing import Any

from loadramp.record.table import Run
from loadramp.report.exporters.points import Files, document, identity, points


def bencher(run: Run) -> Files:
    """One benchmark for the run and one a step, named by its rate so that runs are compared step by step."""
    scenario = identity(run).get("scenario", "loadramp")
    made: dict[str, dict[str, Any]] = {}
    for point in points(run):
        name = f"{scenario} @ {point.place}" if point.place else scenario
        measure: dict[str, float] = {"value": point.value}
        if point.low is not None:
            measure["lower_value"] = point.low
        if point.high is not None:
            measure["upper_value"] = point.high
        made.setdefault(name, {})[point.name.replace("_", "-")] = measure
    return {"bencher.json": document(made)}
