"""A history for Apache Otava, which finds change points: a CSV of nights and a configuration that reads it. Pure."""

import csv
import io
from collections.abc import Sequence

from loadramp.nightly.series import METRICS, Night, all_series, of_series
from loadramp.record.types import Entry
from loadramp.report.exporters.points import Files

ATTRIBUTES = ("version", "client", "gpu", "driver")


def otava(entries: Sequence[Entry]) -> Files:
    """A file a metric, with a line a night, and ``otava.yaml``: ``otava analyze loadramp --config-file otava.yaml``.

    One series a metric: Otava takes no empty cell, and a night may lack one metric and have another. It pins its own
    numpy and scipy, so it needs an environment of its own.
    """
    every = all_series(of_series(entries))
    metrics = [metric for metric in METRICS if metric in every]
    files: Files = {f"otava-{metric}.csv": _table(metric, every[metric]) for metric in metrics}
    return files | {"otava.yaml": _config(metrics)}


def _table(metric: str, nights: Sequence[Night]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time", *ATTRIBUTES, metric])
    for one in nights:
        writer.writerow([one.night, *(one.fingerprint.get(name, "-") for name in ATTRIBUTES), repr(one.value)])
    return out.getvalue()


def _config(metrics: Sequence[str]) -> str:
    lines = ["# otava analyze loadramp --config-file otava.yaml   (from the directory of these files)", "tests:"]
    for metric in metrics:
        lines += [
            f"  {metric}:",
            "    type: csv",
            f"    file: otava-{metric}.csv",
            "    time_column: time",
            f"    attributes: [{', '.join(ATTRIBUTES)}]",
            "    metrics:",
            f"      {metric}:",
            f"        column: {metric}",
            f"        direction: {1 if METRICS[metric].better == 'higher' else -1}",
            "        scale: 1.0",
        ]
    lines += ["test_groups:", f"  loadramp: [{', '.join(metrics)}]"]
    return "\n".join(lines) + "\n"
