"""OpenMetrics text of a run: for node-exporter's textfile directory, a push gateway, GitLab's metrics report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from loadramp.record.table import Run
from loadramp.record.types import Row
from loadramp.report import row_access as r
from loadramp.report.exporters.points import ESTIMATES, Files, identity
from loadramp.report.verdict_text import verdict
from loadramp.units import finite

LATENCIES = {
    "ttft": ("loadramp_time_to_first_token_seconds", "Time to first token, from when the request was due."),
    "itl": ("loadramp_inter_token_latency_seconds", "Time between two tokens, all tokens pooled."),
    "tpot": ("loadramp_time_per_output_token_seconds", "Mean time per output token of a request."),
    "e2e": ("loadramp_request_duration_seconds", "Whole answer, from when the request was due."),
}
QUANTILES = {"p50": "0.5", "p90": "0.9", "p95": "0.95", "p99": "0.99"}
VERDICTS = {"pass": 1.0, "fail": -1.0, "inconclusive": 0.0, "void": 0.0}


@dataclass(slots=True)
class MetricFamily:
    """A metric with its points: labels and value."""

    name: str
    kind: str
    words: str
    points: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def lines(self) -> Iterable[str]:
        yield f"# TYPE {self.name} {self.kind}"
        if self.name.endswith("_seconds"):
            yield f"# UNIT {self.name} seconds"
        yield f"# HELP {self.name} {_escaped(self.words)}"
        suffix = "_total" if self.kind == "counter" else ""
        for labels, value in self.points:
            told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
            yield f"{self.name}{suffix}{{{told}}} {value!r}"


def openmetrics(run: Run) -> Files:
    """Gauges of the last run, labelled by scenario, model, and rate; what was refused has no sample."""
    told = identity(run)
    common: dict[str, str] = {key: told[key] for key in ("scenario", "model") if key in told}
    rows = [row for row in run.rows if not row.get("void") and r.load(row) is not None]
    families = [
        MetricFamily(
            "loadramp_verdict", "gauge", "1 pass, 0 inconclusive or void, -1 fail.", [(common, VERDICTS[verdict(run)])]
        ),
        *_rates(run, common),
        *_steps(rows, common),
        *_latencies(rows, common),
    ]
    began = _seconds(told.get("began_at"))
    if began is not None:
        families.append(
            MetricFamily("loadramp_last_run_timestamp_seconds", "gauge", "When the run began.", [(common, began)])
        )
    lines = [line for family in families if family.points for line in family.lines()]
    return {"metrics.txt": "\n".join([*lines, "# EOF"]) + "\n"}


def _rates(run: Run, common: Mapping[str, str]) -> list[MetricFamily]:
    out = []
    for key, name in ESTIMATES.items():
        found = run.estimates.get(key)
        if found is None or found.status != "found" or found.rate_rps is None:
            continue
        limits = {"estimate": found.rate_rps, "low": found.low_rps, "high": found.high_rps}
        points = [({**common, "limit": limit}, value) for limit, value in limits.items() if value is not None]
        out.append(
            MetricFamily(
                f"loadramp_{name}", "gauge", f"{key}, requests a second, with its 95 % interval.", list(points)
            )
        )
    ceiling = run.estimates.get("ceiling")
    held = ceiling.sustained_rps if ceiling else None
    if held is not None:
        out.append(
            MetricFamily(
                "loadramp_sustained_rps", "gauge", "Rate that a soak held, requests a second.", [(common, held)]
            )
        )
    return out


def _steps(rows: Iterable[Row], common: Mapping[str, str]) -> list[MetricFamily]:
    requests = MetricFamily("loadramp_requests", "counter", "Requests of a step by outcome.")
    offered = MetricFamily("loadramp_target_rate_rps", "gauge", "Rate that was asked.")
    done = MetricFamily("loadramp_done_rate_rps", "gauge", "Requests finished a second.")
    for row in rows:
        labels = {**common, **_place(row)}
        failed = sum(r.errors(row).values())
        requests.points += [
            ({**labels, "outcome": "ok"}, float(row.get("ok") or 0)),
            ({**labels, "outcome": "failed"}, float(failed)),
        ]
        for family, column in ((offered, "rate_rps"), (done, "done_rps")):
            value = finite(row.get(column))
            if value is not None:
                family.points.append((labels, value))
    return [requests, offered, done]


def _latencies(rows: Iterable[Row], common: Mapping[str, str]) -> list[MetricFamily]:
    shown = list(rows)
    out = []
    for metric, (name, words) in LATENCIES.items():
        family = MetricFamily(name, "gauge", words)
        for row in shown:
            for quantile, label in QUANTILES.items():
                value = finite(row.get(f"{metric}_{quantile}_s"))
                if value is not None:
                    family.points.append(({**common, **_place(row), "quantile": label}, value))
        out.append(family)
    return out


def _place(row: Row) -> dict[str, str]:
    unit = "users" if r.closed_loop([row]) else "rate"
    partial = {"partial": "true"} if row.get("partial") else {}
    return {"step": str(row.get("step")), "role": str(row.get("role") or "step"), unit: f"{r.load(row):g}", **partial}


def _seconds(at: str | None) -> float | None:
    try:
        return datetime.fromisoformat(at).timestamp() if at else None
    except ValueError:
        return None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
