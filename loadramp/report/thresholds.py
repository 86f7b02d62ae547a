"""The thresholds that were asked, judged: a section, lines, data, and what they make of the verdict. Pure."""

from typing import Any

from loadramp.analysis.thresholds import overall
from loadramp.record.table import Run
from loadramp.record.types import GateResult, Verdict
from loadramp.report import charts as c
from loadramp.report import rows as r
from loadramp.report.charts import Cell
from loadramp.report.redact import redact
from loadramp.units import NOTHING, latency, percent, sig

MARKS = {"pass": "✓", "fail": "✗", "inconclusive": "?"}
TONES = {"pass": "", "fail": "hot", "inconclusive": "dim"}


def gates_section(run: Run) -> str | None:
    """One line a threshold; left out where none was asked."""
    if not run.gates:
        return None
    labels: dict[int | None, str] = {row.step: r.label(row) for row in run.rows}
    lines: list[c.Line] = [
        [
            Cell(gate.rule, "name"),
            Cell(f"{MARKS[gate.status]} {gate.status}", TONES[gate.status]),
            Cell(value_words(gate), small=interval_words(gate)),
            labels.get(gate.step, "whole run"),
            redact(gate.reason),
        ]
        for gate in run.gates
    ]
    words = (
        "A threshold holds when the whole 95 % interval is within it, fails when none of it is, and is open otherwise."
    )
    return c.section("gates", "Thresholds", c.grid(["Threshold", "", "Measured", "At", "Why"], lines), words=words)


def gates_document(run: Run) -> list[dict[str, Any]]:
    """The thresholds as data."""
    keys = ("rule", "status", "value", "low", "high", "limit", "step", "reason")
    return [{key: getattr(gate, key) for key in keys} for gate in run.gates]


def gate_line(gate: GateResult) -> str:
    """``✗ fail: p99(ttft_s) < 0.8: 1.2 s (1.1 s to 1.4 s)`` and the reason."""
    between = interval_words(gate)
    measured = value_words(gate) + (f" ({between})" if between else "")
    return f"{MARKS[gate.status]} {gate.status}: {gate.rule}: {measured}" + (f"; {gate.reason}" if gate.reason else "")


def with_gates(word: Verdict, run: Run) -> Verdict:
    """The verdict once thresholds are asked: they answer for the run, unless it is void or failed by itself."""
    if not run.gates or word in {"void", "fail"}:
        return word
    return overall(run.gates)


def value_words(gate: GateResult) -> str:
    """The measured value in the unit of its metric."""
    return _number_words(gate.metric, gate.value) or NOTHING


def interval_words(gate: GateResult) -> str:
    """Its interval; empty where there is none or it is the value itself."""
    if gate.low == gate.high:
        return ""
    low, high = _number_words(gate.metric, gate.low), _number_words(gate.metric, gate.high)
    return f"{low or 'unknown'} to {high or 'unknown'}"


def _number_words(metric: str, value: float | None) -> str:
    """A number of a metric for people; the suffix of its name says what it is."""
    if value is None:
        return ""
    if metric.endswith("_per_s"):
        return f"{sig(value)} tokens/s"
    if metric.endswith("_s"):
        return latency(value)
    if "ratio" in metric:
        return percent(value)
    return f"{sig(value)} req/s" if metric.endswith("_rps") else sig(value)
