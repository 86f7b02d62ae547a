"""What was promised and what was measured, as Prometheus rules and a KEDA scaler in the engine's own names. Pure.

Every level is of one replica or a ratio, so a rule stays right when replicas are added. A rule whose metric neither the
engine nor the GPU exporter shows is left out and named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadramp.advise.promises import Contract
from loadramp.advise.promql import AlertRule, gpus, of_replica, quantile_of, targets
from loadramp.advise.yaml_text import to_yaml
from loadramp.registry import ScenarioError
from loadramp.units import multiple, percent, plural

WARNING, CRITICAL = 1.5, 2.0
"""Times the SLO."""
KV_WARNING, KV_CRITICAL = 0.85, 0.95
QUEUE_WARNING, QUEUE_CRITICAL = 50, 200
"""Waiting requests of one replica."""
PREEMPTED_WARNING, PREEMPTED_CRITICAL = 5, 20
"""A minute, of one replica."""
ERRORS_WARNING, ERRORS_CRITICAL = 0.005, 0.02
NEAR = 0.9
"""Of the capacity."""
NAMES = {
    "ttft": "time to first token",
    "itl": "inter-token latency",
    "tpot": "time per output token",
    "e2e": "end-to-end",
}


def prometheus_rules(contract: Contract) -> str:
    """A rule file for Prometheus, as YAML.

    Raises:
        ScenarioError: the engine shows nothing that an alert could use.
    """
    rules, missing = [], []
    for make in (_latencies, _kv, _queue, _running, _preemptions, _errors, _load, targets, gpus):
        made, lacking = make(contract)
        rules += made
        missing += lacking
    if not rules:
        raise ScenarioError(f"no alert can be made: {contract.engine} shows none of {', '.join(missing)}")
    group = {"name": f"loadramp-{contract.scenario}", "rules": [_plain(rule, contract) for rule in rules]}
    return to_yaml({"groups": [group]}, _comment(contract, missing))


def _latencies(contract: Contract) -> tuple[list[AlertRule], list[str]]:
    rules, missing = [], []
    for metric, limit_s in contract.limits.items():
        total = contract.names.get(f"{metric}_s_sum")
        if total is None:
            missing.append(f"{NAMES[metric]} histogram")
            continue
        value = quantile_of(total, contract.quantile)
        for severity, times, minutes in (("warning", WARNING, 5), ("critical", CRITICAL, 2)):
            words = (
                f"p{contract.quantile * 100:g} {NAMES[metric]} is above {multiple(times)} its limit of {limit_s:g} s"
            )
            rules.append(
                AlertRule(
                    f"LLM{metric.upper()}{severity.capitalize()}",
                    f"{value} > {times * limit_s:.4g}",
                    severity,
                    minutes,
                    words,
                )
            )
    return rules, missing


def _kv(contract: Contract) -> tuple[list[AlertRule], list[str]]:
    name = contract.names.get("kv_used_ratio")
    if name is None:
        return [], ["KV cache use"]
    return [
        AlertRule("LLMKVCacheWarning", f"max({name}) > {KV_WARNING}", "warning", 5, "KV cache is filling up"),
        AlertRule(
            "LLMKVCacheCritical", f"max({name}) > {KV_CRITICAL}", "critical", 2, "KV cache is full: preemptions follow"
        ),
    ], []


def _queue(contract: Contract) -> tuple[list[AlertRule], list[str]]:
    waiting = contract.names.get("waiting")
    if waiting is None:
        return [], ["waiting requests"]
    fullest = f"max({of_replica(waiting)})"
    words = "requests wait at one replica: more comes in than is served"
    return [
        AlertRule(
            "LLMQueueWarning", f"{fullest} > {QUEUE_WARNING}", "warning", 5, f"More than {QUEUE_WARNING} {words}"
        ),
        AlertRule(
            "LLMQueueCritical", f"{fullest} > {QUEUE_CRITICAL}", "critical", 2, f"More than {QUEUE_CRITICAL} {words}"
        ),
    ], []


def _running(contract: Contract) -> tuple[list[AlertRule], list[str]]:
    """The engine's own limit on the batch, where its page shows it."""
    running, most = contract.names.get("running"), contract.names.get("max_num_seqs")
    if running is None or most is None:
        return [], ["limit on running requests"]
    expr = f"max({of_replica(running)} / {of_replica(most)}) >= 1"
    words = "A replica runs as many requests as it may (max_num_seqs): further ones wait"
    return [AlertRule("LLMRunningAtLimitWarning", expr, "warning", 10, words)], []


def _preemptions(contract: Contract) -> tuple[list[AlertRule], list[str]]:
    name = contract.names.get("preemptions")
    if name is None:
        return [], ["preemptions"]
    a_minute = f"60 * max({of_replica(f'rate({name}[5m])')})"
    return [
        AlertRule(
            f"LLMPreemptions{severity.capitalize()}", f"{a_minute} > {most}", severity, minutes,
            f"More than {plural(most, 'preemption')} a minute at one replica",
        )
        for severity, most, minutes in (("warning", PREEMPTED_WARNING, 5), ("critical", PREEMPTED_CRITICAL, 2))
    ], []  # fmt: skip


def _errors(contract: Contract) -> tuple[list[AlertRule], list[str]]:
    done = contract.names.get("requests_done")
    bad = [name for key in ("requests_failed", "requests_rejected") if (name := contract.names.get(key))]
    if done is None or not bad:
        return [], ["failed requests"]
    failed = " + ".join(f"(sum(rate({name}[5m])) or vector(0))" for name in bad)  # older engines lack some
    ratio = f"({failed}) / ({failed} + sum(rate({done}[5m])))"
    return [
        AlertRule(
            f"LLMErrors{severity.capitalize()}", f"{ratio} > {most:.4g}", severity, minutes,
            f"More than {percent(most)} of the requests fail or are refused",
        )
        for severity, most, minutes in (("warning", ERRORS_WARNING, 5), ("critical", ERRORS_CRITICAL, 2))
    ], []  # fmt: skip


def _load(contract: Contract) -> tuple[list[AlertRule], list[str]]:
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


def _plain(rule: AlertRule, contract: Contract) -> dict[str, Any]:
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
    if contract.limits:
        lines.append("A histogram tells a quantile no finer than its buckets, and none beyond the last one.")
    return "\n".join(lines)


def origin(contract: Contract) -> str:
    capacity = f", a replica carries {contract.safe_rps:.3g} req/s" if contract.safe_rps else ""
    return f"Made by loadramp alerts from the scenario {contract.scenario} ({contract.engine}{capacity})."
