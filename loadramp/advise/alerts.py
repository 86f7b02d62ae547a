"""What was promised and what was measured, as Prometheus rules in the engine's own names. Pure.

Every level is of one replica or a ratio, so a rule stays right when replicas are added. A rule whose metric neither the
engine nor the GPU exporter shows is left out and named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import yaml

from loadramp.advise.contract import Contract, gpu_memory, matched, of_replica, quantile_of
from loadramp.analysis.quantiles import quantile_name
from loadramp.record.row import LONG_NAMES
from loadramp.registry import ScenarioError
from loadramp.units import multiple, percent, plural

Levels = tuple[float, float]
"""Where a warning fires, and where a critical alert does."""
LATENCY = (1.5, 2.0)
"""Times the SLO."""
KV_CACHE: Levels = (0.85, 0.95)
QUEUE: Levels = (50, 200)
"""Waiting requests of one replica."""
PREEMPTIONS: Levels = (5, 20)
"""A minute, of one replica."""
ERRORS: Levels = (0.005, 0.02)
NEAR = 0.9
"""Of the capacity."""
AVAILABLE = 0.999
GPU_MEMORY = 0.95
GPU_CELSIUS: Levels = (80, 85)
GPU_IDLE, GPU_BUSY = 20, 99
"""Per cent of the time with a kernel running."""

PAIRED: dict[str, tuple[str, str, str, Levels, Sequence[str]]] = {
    "kv_used_ratio": ("KVCache", "KV cache use", "max({})", KV_CACHE,
                      ("KV cache is filling up", "KV cache is full: preemptions follow")),
    "waiting": ("Queue", "waiting requests", f"max({of_replica('{}')})", QUEUE,
                [f"More than {plural(int(most), 'request')} wait at one replica: more comes in than is served"
                 for most in QUEUE]),
    "preemptions": ("Preemptions", "preemptions", f"60 * max({of_replica('rate({}[5m])')})", PREEMPTIONS,
                    [f"More than {plural(int(most), 'preemption')} a minute at one replica" for most in PREEMPTIONS]),
}  # fmt: skip
"""Canonical name to how its alerts are called, what is missing without it, the expression, levels and summaries."""


@dataclass(slots=True, frozen=True)
class AlertRule:
    """One alert before it is written down."""

    alert: str
    expr: str
    severity: str
    minutes: int
    summary: str


Made = tuple[list[AlertRule], list[str]]
"""Rules, and the names of what is missing for further ones."""


def prometheus_rules(contract: Contract) -> str:
    """A rule file for Prometheus, as YAML.

    Raises:
        ScenarioError: the engine shows nothing that an alert could use.
    """
    rules, missing = made_rules(contract)
    if not rules:
        raise ScenarioError(f"no alert can be made: {contract.engine} shows none of {', '.join(missing)}")
    group = {"name": f"loadramp-{contract.scenario}", "rules": [_entry(rule, contract) for rule in rules]}
    return yaml_text({"groups": [group]}, _comment(contract, missing))


def made_rules(contract: Contract) -> Made:
    """Every rule that can be made, and the names of what is missing for the others."""
    made = [make(contract) for make in (_latencies, _paired, _running, _errors, _load, _up, _gpus)]
    return [rule for rules, _ in made for rule in rules], [name for _, names in made for name in names]


def yaml_text(value: Mapping[str, Any], comment: str) -> str:
    """A YAML document; ``comment`` stands above it, a ``#`` before each of its lines."""
    head = "".join(f"# {line}".rstrip() + "\n" for line in comment.splitlines())
    return head + str(yaml.safe_dump(value, sort_keys=False, width=inf))


def _pair(name: str, expr: str, levels: Levels, summaries: Sequence[str]) -> list[AlertRule]:
    """A warning above the first level for five minutes, and a critical alert above the second for two."""
    return [
        AlertRule(f"LLM{name}{severity.capitalize()}", f"{expr} > {level:.4g}", severity, minutes, summary)
        for severity, minutes, level, summary in zip(("warning", "critical"), (5, 2), levels, summaries, strict=True)
    ]


def _latencies(contract: Contract) -> Made:
    rules, missing = [], []
    for metric, limit_s in contract.slo.limits.items():
        total = contract.names.get(f"{metric}_s_sum")
        if total is None:
            missing.append(f"{LONG_NAMES[metric]} histogram")
            continue
        what = f"{quantile_name(contract.slo.quantile)} {LONG_NAMES[metric]}"
        words = [f"{what} is above {multiple(times)} its limit of {limit_s:g} s" for times in LATENCY]
        levels = (LATENCY[0] * limit_s, LATENCY[1] * limit_s)
        rules += _pair(metric.upper(), quantile_of(total, contract.slo.quantile), levels, words)
    return rules, missing


def _paired(contract: Contract) -> Made:
    """The KV cache, the queue and preemptions, each of the fullest replica: one number above two levels."""
    rules, missing = [], []
    for key, (called, lacking, expr, levels, words) in PAIRED.items():
        if (series := contract.names.get(key)) is None:
            missing.append(lacking)
        else:
            rules += _pair(called, expr.format(series), levels, words)
    return rules, missing


def _running(contract: Contract) -> Made:
    """The engine's own limit on the batch, if its page shows it."""
    running, most = contract.names.get("running"), contract.names.get("max_num_seqs")
    if running is None or most is None:
        return [], ["limit on running requests"]
    expr = f"max({of_replica(running)} / {of_replica(most)}) >= 1"
    words = "A replica runs as many requests as it may (max_num_seqs): further ones wait"
    return [AlertRule("LLMRunningAtLimitWarning", expr, "warning", 10, words)], []


def _errors(contract: Contract) -> Made:
    done = contract.names.get("requests_done")
    bad = [name for key in ("requests_failed", "requests_rejected") if (name := contract.names.get(key))]
    if done is None or not bad:
        return [], ["failed requests"]
    failed = " + ".join(f"(sum(rate({name}[5m])) or vector(0))" for name in bad)  # older engines lack some
    ratio = f"({failed}) / ({failed} + sum(rate({done}[5m])))"
    words = [f"More than {percent(most)} of the requests fail or are refused" for most in ERRORS]
    return _pair("Errors", ratio, ERRORS, words), []


def _load(contract: Contract) -> Made:
    """Demand near what was measured: the one alert that comes before anybody waits. Of the mean replica, as a load
    balancer spreads it."""
    done = contract.names.get("requests_done")
    if contract.safe_rps is None:
        return [], [f"measured capacity ({contract.missed})" if contract.missed else "measured capacity"]
    if done is None:
        return [], ["finished requests"]
    expr = f"avg({of_replica(f'rate({done}[5m])')}) > {NEAR * contract.safe_rps:.4g}"
    words = f"Load is above {percent(NEAR)} of what a replica was shown to carry, {contract.safe_rps:.3g} req/s"
    return [AlertRule("LLMNearCapacityWarning", expr, "warning", 10, words)], []


def _up(contract: Contract) -> Made:
    """Targets that Prometheus cannot scrape; known only if matchers of targets are given, because ``up`` alone is every
    target of every job."""
    running = contract.names.get("running")
    if not contract.target:
        gone = [AlertRule("LLMNoMetricsCritical", f"absent({running})", "critical", 2, "No replica shows its metrics")]
        return (gone if running else []), ["targets down and availability (give --selector with job or namespace)"]
    up = matched("up", contract.target)
    missed = "Less than 99.9 % of the health checks of the last hour were answered"
    return [
        AlertRule("LLMTargetDownCritical", f"{up} == 0", "critical", 2, "A replica does not answer its health check"),
        AlertRule("LLMNoTargetCritical", f"absent({up})", "critical", 2, "Prometheus knows no replica"),
        AlertRule("LLMAvailabilityWarning", f"avg(avg_over_time({up}[1h])) < {AVAILABLE}", "warning", 5, missed),
    ], []


def _gpus(contract: Contract) -> Made:
    """Memory, temperature and utilization, of the worst GPU."""
    memory, celsius, busy = (
        gpu_memory(contract),
        contract.gpu.get("gpu_temperature_c"),
        contract.gpu.get("gpu_util_ratio"),
    )
    rules = []
    if memory:
        words = "More than 95 % of a GPU's memory is in use"
        rules.append(AlertRule("LLMGPUMemoryCritical", f"max({memory}) > {GPU_MEMORY}", "critical", 2, words))
    if celsius:
        rules += _pair(
            "GPUTemperature", f"max({celsius})", GPU_CELSIUS, [f"A GPU is above {c:g} C" for c in GPU_CELSIUS]
        )
    if busy:
        idle, words = (
            f"avg(avg_over_time({busy}[1h])) < {GPU_IDLE}",
            "The GPUs were used for less than 20 % of the last hour",
        )
        rules.append(AlertRule("LLMGPUIdleWarning", idle, "warning", 15, words))
        full = f"min({busy}) >= {GPU_BUSY}"
        rules.append(AlertRule("LLMGPUSaturatedWarning", full, "warning", 15, "No GPU is ever idle"))
    shown = (("GPU memory", memory), ("GPU temperature", celsius), ("GPU utilization", busy))
    return rules, [name for name, expr in shown if not expr]


def _entry(rule: AlertRule, contract: Contract) -> dict[str, Any]:
    return {
        "alert": rule.alert,
        "expr": rule.expr,
        "for": f"{rule.minutes}m",
        "labels": {"severity": rule.severity, "scenario": contract.scenario},
        "annotations": {"summary": rule.summary, "description": "Value: {{ $value | humanize }}"},
    }


def _comment(contract: Contract, missing: Sequence[str]) -> str:
    lines = [origin(contract)]
    if missing:
        lines.append(
            f"Left out, because it was not measured or {contract.engine} does not show it: {', '.join(missing)}."
        )
    if contract.slo.limits:
        lines.append("A quantile of a histogram is no finer than its buckets, and is unknown beyond the last one.")
    return "\n".join(lines)


def origin(contract: Contract) -> str:
    capacity = f", a replica carries {contract.safe_rps:.3g} req/s" if contract.safe_rps else ""
    return f"Made by loadramp alerts from the scenario {contract.scenario} ({contract.engine}{capacity})."
