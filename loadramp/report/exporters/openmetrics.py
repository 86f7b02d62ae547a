"""OpenMetrics text of a run: for node-exporter's textfile directory, a push gateway, GitLab's metrics report. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest

from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.report.exporters.points import ESTIMATES, Files, began_at, identity
from loadramp.report.verdict_text import verdict

LATENCIES = {
    "ttft": ("loadramp_time_to_first_token_seconds", "Time to first token, from when the request was due."),
    "itl": ("loadramp_inter_token_latency_seconds", "Time between two tokens, all tokens pooled."),
    "tpot": ("loadramp_time_per_output_token_seconds", "Mean time per output token of a request."),
    "e2e": ("loadramp_request_duration_seconds", "Whole answer, from when the request was due."),
}
QUANTILES = {"p50": "0.5", "p90": "0.9", "p95": "0.95", "p99": "0.99"}
VERDICTS = {"pass": 1.0, "fail": -1.0, "inconclusive": 0.0, "void": 0.0}


@dataclass(slots=True, frozen=True, eq=False)
class _Families:
    """Metric families for prometheus_client to write, without those that have no samples."""

    families: list[Metric]

    def collect(self) -> Iterable[Metric]:
        return (family for family in self.families if family.samples)


def openmetrics(run: Run) -> Files:
    """Gauges of the last run, labelled by scenario, model, and rate; what was refused has no sample."""
    facts = identity(run)
    common: dict[str, str] = {key: facts[key] for key in ("scenario", "model") if key in facts}
    rows = [row for row in run.rows if not row.void and row.load is not None]
    families = [
        _family(
            "loadramp_verdict", "gauge", "1 pass, 0 inconclusive or void, -1 fail.", (common, VERDICTS[verdict(run)])
        ),
        *_rates(run, common),
        *_steps(rows, common),
        *_latencies(rows, common),
    ]
    if began := began_at(run):
        words = "When the run began."
        families.append(_family("loadramp_last_run_timestamp_seconds", "gauge", words, (common, began.timestamp())))
    registry = CollectorRegistry()
    registry.register(_Families(families))
    return {"metrics.txt": generate_latest(registry).decode()}  # type: ignore[no-untyped-call]


def _family(name: str, kind: str, words: str, *samples: tuple[Mapping[str, str], float]) -> Metric:
    family = Metric(name, words, kind, "seconds" if name.endswith("_seconds") else "")
    for labels, value in samples:
        family.add_sample(f"{name}_total" if kind == "counter" else name, dict(labels), value)
    return family


def _rates(run: Run, common: Mapping[str, str]) -> list[Metric]:
    out = []
    for key, name in ESTIMATES.items():
        estimate = run.estimates.get(key)
        if estimate is None or estimate.status != "found" or estimate.rate_rps is None:
            continue
        limits = {"estimate": estimate.rate_rps, "low": estimate.low_rps, "high": estimate.high_rps}
        points = [({**common, "limit": limit}, value) for limit, value in limits.items() if value is not None]
        words = f"{key}, requests a second, with its 95 % interval."
        out.append(_family(f"loadramp_{name}", "gauge", words, *points))
    ceiling = run.estimates.get("ceiling")
    held = ceiling.sustained_rps if ceiling else None
    if held is not None:
        words = "Rate that a soak held, requests a second."
        out.append(_family("loadramp_sustained_rps", "gauge", words, (common, held)))
    return out


def _steps(rows: Sequence[Row], common: Mapping[str, str]) -> list[Metric]:
    requests = _family("loadramp_requests", "counter", "Requests of a step by outcome.")
    offered = _family("loadramp_target_rate_rps", "gauge", "Rate that was asked.")
    done = _family("loadramp_done_rate_rps", "gauge", "Requests finished a second.")
    for row in rows:
        labels = {**common, **_place(row)}
        for outcome, count in (("ok", row.ok or 0), ("failed", row.failed)):
            requests.add_sample("loadramp_requests_total", {**labels, "outcome": outcome}, float(count))
        for family, column in ((offered, "rate_rps"), (done, "done_rps")):
            if (value := row.number(column)) is not None:
                family.add_sample(family.name, labels, value)
    return [requests, offered, done]


def _latencies(rows: Sequence[Row], common: Mapping[str, str]) -> list[Metric]:
    out = []
    for metric, (name, words) in LATENCIES.items():
        values = (
            ({**common, **_place(row), "quantile": label}, row.number(f"{metric}_{quantile}_s"))
            for row in rows
            for quantile, label in QUANTILES.items()
        )
        out.append(_family(name, "gauge", words, *((labels, value) for labels, value in values if value is not None)))
    return out


def _place(row: Row) -> dict[str, str]:
    unit = "users" if row.closed_loop else "rate"
    partial = {"partial": "true"} if row.partial else {}
    return {"step": str(row.step), "role": row.role, unit: f"{row.load:g}", **partial}
