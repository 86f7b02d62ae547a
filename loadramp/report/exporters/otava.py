"""A history for Apache Otava, which finds change points: a CSV of nights and a configuration that reads it. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from loadramp.judge.nights import METRICS, all_series, of_series
from loadramp.record.types import Entry
from loadramp.report.exporters.points import Files

ATTRIBUTES = ("version", "client", "gpu", "driver")


def otava(entries: Sequence[Entry]) -> Files:
    """``otava.csv`` with a line a night, and ``otava.yaml``: ``otava analyze loadramp --config-file otava.yaml``.

    Otava pins its own numpy and scipy, so it needs an environment of its own.
    """
    own = of_series(entries)
    every = all_series(own)
    metrics = [metric for metric in METRICS if metric in every]
    nights: dict[str, dict[str, str]] = {}
    for metric in metrics:
        for one in every[metric]:
            line = nights.setdefault(one.night, {name: one.fingerprint.get(name, "-") for name in ATTRIBUTES})
            line[metric] = repr(one.value)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time", *ATTRIBUTES, *metrics])
    for night, line in sorted(nights.items()):
        writer.writerow([night, *(line.get(name, "") for name in (*ATTRIBUTES, *metrics))])
    return {"otava.csv": out.getvalue(), "otava.yaml": _config(metrics)}


def _config(metrics: Sequence[str]) -> str:
    lines = [
        "# otava analyze loadramp --config-file otava.yaml   (from the directory of these two files)",
        "tests:",
        "  loadramp:",
        "    type: csv",
        "    file: otava.csv",
        "    time_column: time",
        f"    attributes: [{', '.join(ATTRIBUTES)}]",
        "    metrics:",
    ]
    for metric in metrics:
        direction = 1 if METRICS[metric].better == "higher" else -1
        lines += [
            f"      {metric}:",
            f"        column: {metric}",
            f"        direction: {direction}",
            "        scale: 1.0",
        ]
    return "\n".join(lines) + "\n"
