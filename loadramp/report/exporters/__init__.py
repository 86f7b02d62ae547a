"""A run in formats that other programs read. Pure: data in, files (name to content) out.

An exporter is a function ``f(run) -> Files`` in EXPORTERS. Rule: what was
refused stays refused: null, absent or empty as the format allows, never a made-up number.
"""

from collections.abc import Callable

from loadramp.record.table import Run
from loadramp.report.exporters.ci import job_annotations, junit, step_summary
from loadramp.report.exporters.dashboards import bencher, benchmark_action, pytorch_hud
from loadramp.report.exporters.llmd import llmd
from loadramp.report.exporters.openmetrics import openmetrics
from loadramp.report.exporters.points import Files
from loadramp.report.exporters.tables import csv_rows, parquet
from loadramp.report.exporters.vllm_bench import vllm_bench

EXPORTERS: dict[str, Callable[[Run], Files]] = {
    "bencher": bencher,
    "csv": csv_rows,
    "github-action-benchmark": benchmark_action,
    "github-annotations": job_annotations,
    "github-summary": step_summary,
    "junit": junit,
    "llm-d": llmd,
    "openmetrics": openmetrics,
    "parquet": parquet,
    "pytorch-hud": pytorch_hud,
    "vllm-bench": vllm_bench,
}
