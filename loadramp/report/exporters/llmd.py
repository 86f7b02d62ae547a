"""llm-d's Benchmark Report, version 0.2.1: one document a load stage, which is a step here. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Any

from loadramp.analysis.latency import Window
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.report.exporters.points import Files, began_at, document, identity
from loadramp.report.redact import redact
from loadramp.report.verdict_text import verdict_sentence

VERSION = "0.2.1"
QUANTILES = ("p50", "p90", "p95", "p99")


def llmd(run: Run) -> Files:
    """``stage-<step>.json`` for every step that was measured; JSON is what its YAML reader takes too."""
    usable = [row for row in run.rows if not row.void and row.requests]
    return {f"stage-{row.step}.json": document(report(run, row)) for row in usable}


def report(run: Run, row: Row) -> dict[str, Any]:
    """The document of one step."""
    facts = identity(run)
    name = PurePath(run.path).name or "loadramp"
    return {
        "version": VERSION,
        "run": {
            "uid": f"{name}-{row.step}",
            "eid": name,
            "time": _times(began_at(run), row.measured_windows),
            "description": redact(verdict_sentence(run)),
            "keywords": ["loadramp", facts.get("scenario", "")],
        },
        "scenario": {"load": _load(run, row, facts)},
        "results": {"request_performance": {"aggregate": _aggregate(run, row)}},
    }


def _times(began: datetime | None, measured: Sequence[Window]) -> dict[str, str] | None:
    """From the begin of the first window to the end of the last; the duration is theirs without what lies between."""
    if began is None:
        return None
    ends = [(began + timedelta(seconds=at)).isoformat() for at in (measured[0][0], measured[-1][1])]
    return {"start": ends[0], "end": ends[1], "duration": f"PT{sum(b - a for a, b in measured):.3f}S"}


def _load(run: Run, row: Row, facts: Mapping[str, str]) -> dict[str, Any]:
    due = run.table.due_in(*row.measured_windows)
    prompts = [t for t in due.prompt_tokens.tolist() if t == t]  # noqa: PLR0124 (NaN)
    outputs = [t for t in due.output_tokens[due.ok].tolist() if t == t]  # noqa: PLR0124 (NaN)
    standardized: dict[str, Any] = {
        "tool": "loadramp",
        "tool_version": facts.get("loadramp", "unknown"),
        "parallelism": max(run.info.workers or 1, 1),
        "source": "random",
        "stage": row.step,
        "input_seq_len": _length(prompts) or {"distribution": "other", "value": 0},
        "output_seq_len": _length(outputs),
    }
    if row.users:
        standardized["concurrency"] = row.users
    else:
        standardized["rate_qps"] = row.rate_rps
    config = {"scenario": redact(run.scenario.source), "role": row.role, "step": row.step}
    native = {"config": config | ({"partial": True} if row.partial else {})}
    return {"metadata": {"description": facts.get("scenario")}, "standardized": standardized, "native": native}


def _length(tokens: list[float]) -> dict[str, Any] | None:
    if not tokens:
        return None
    low, high = min(tokens), max(tokens)
    if low == high:
        return {"distribution": "fixed", "value": low}
    mean = sum(tokens) / len(tokens)
    spread = (sum((t - mean) ** 2 for t in tokens) / len(tokens)) ** 0.5
    return {"distribution": "other", "value": mean, "std_dev": spread, "min": int(low), "max": int(high)}


def _aggregate(run: Run, row: Row) -> dict[str, Any]:
    failed, pending = row.failed, row.pending
    latency = {
        "time_to_first_token": _statistics(row, "ttft", "s"),
        "time_per_output_token": _statistics(row, "tpot", "s/token"),
        "inter_token_latency": _statistics(row, "itl", "s/token"),
        "request_latency": _statistics(row, "e2e", "s"),
    }
    throughput = {
        "input_token_rate": _mean(row, "input_tokens_per_s", "tokens/s"),
        "output_token_rate": _mean(row, "output_tokens_per_s", "tokens/s"),
        "request_rate": _mean(row, "done_rps", "queries/s"),
    }
    requests = {"total": row.requests, "failures": failed, "incomplete": pending}
    return {"requests": requests, "latency": latency, "throughput": throughput}


def _statistics(row: Row, metric: str, units: str) -> dict[str, Any] | None:
    """Only what the sample carries: an absent percentile is left out. Without a mean the schema takes nothing."""
    mean = row.number(f"{metric}_mean_s")
    if mean is None:
        return None
    known = {q: value for q in QUANTILES if (value := row.number(f"{metric}_{q}_s")) is not None}
    return {"units": units, "mean": mean, **known}


def _mean(row: Row, column: str, units: str) -> dict[str, Any] | None:
    value = row.number(column)
    return None if value is None else {"units": units, "mean": value}
