"""What was promised and what was measured, as Prometheus rules and a KEDA scaler in the engine's own names. Pure.

Levels: latencies warn at 1.5 times the limit and are critical at 2; KV cache 0.85 and 0.95. A rule whose metric the
engine does not show is left out and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadramp.advise.yamltext import to_yaml
from loadramp.registry import ScenarioError
from loadramp.wording import percent

WARNING, CRITICAL = 1.5, 2.0
"""Times the SLO."""
KV_WARNING, KV_CRITICAL = 0.85, 0.95
QUEUE = 5
"""Waiting requests that are a queue, if they are also a tenth of those running (docs/method.md, the queue signal)."""
PREEMPTED_RATIO, PREEMPTED_PER_MIN = 0.02, 10
PLANNED = 0.8
"""Of the capacity: the load that a replica is meant to carry."""
NAMES = {
    "ttft": "time to first token",
    "itl": "inter-token latency",
    "tpot": "time per output token",
    "e2e": "end-to-end",
}


@dataclass(slots=True, frozen=True)
class Contract:
    """What a scenario promises, what a run has shown, and how the engine calls its numbers."""

    scenario: str
    engine: str
    names: Mapping[str, str]
    """Canonical name to the engine's own, with its labels where only some series count."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Metric (``ttft``, ``itl``, ``tpot``, ``e2e``) to seconds."""
    quantile: float = 0.99
    error_ratio: float = 0.01
    capacity_rps: float | None = None
    """The lower of SLO capacity and sustained rate (or ceiling), of all replicas together."""
    missed: str = ""
    """Why there is no capacity although a ceiling was found."""
    in_flight: Sequence[tuple[float, float]] = ()
    """Rate and mean number of requests in flight, of the steps that kept up, ascending."""
    replicas: int = 1

    @property
    def planned_rps(self) -> float | None:
        """What one replica is meant to carry."""
        return None if self.capacity_rps is None else PLANNED * self.capacity_rps / self.replicas


@dataclass(slots=True, frozen=True)
class Rule:
    """One alert before it is written down."""

    alert: str
    expr: str
    severity: str
    minutes: int
    summary: str


def prometheus_rules(contract: Contract) -> str:
    """A rule file for Prometheus, as YAML.

    Raises:
        ScenarioError: the engine shows nothing that an alert could use.
    """
    rules, missing = [], []
    for make in (_latencies, _kv, _queue, _preemptions, _errors, _load):
        made, lacking = make(contract)
        rules += made
        missing += lacking
    if not rules:
        raise ScenarioError(f"no alert can be made: {contract.engine} shows none of {', '.join(missing)}")
    group = {"name": f"loadramp-{contract.scenario}", "rules": [_plain(rule, contract) for rule in rules]}
    return to_yaml({"groups": [group]}, _comment(contract, missing))


def keda_scaler(contract: Contract) -> str:
    """A KEDA ScaledObject that adds a replica when each carries more than PLANNED of its capacity.

    Raises:
        ScenarioError: no capacity was measured, or the engine shows no load.
    """
    if contract.planned_rps is None:
        why = f" ({contract.missed})" if contract.missed else ""
        raise ScenarioError(f"no capacity was found in this run{why}: a scaler needs a ceiling or an SLO capacity")
    query, threshold, words = _scale_on(contract)
    trigger = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": "http://prometheus.monitoring.svc:9090",
            "query": query,
            "threshold": f"{threshold:.3g}",
        },
    }
    scaler = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": f"loadramp-{contract.scenario}"},
        "spec": {
            "scaleTargetRef": {"name": "llm"},
            "minReplicaCount": 1,
            "maxReplicaCount": 8,
            "pollingInterval": 15,
            "cooldownPeriod": 360,
            "triggers": [trigger],
        },
    }
    return to_yaml(scaler, f"{_origin(contract)}\n{words}\nSet scaleTargetRef, serverAddress and maxReplicaCount.")


def in_flight_at(contract: Contract, rate_rps: float) -> float | None:
    """Requests in flight of one replica at ``rate_rps`` each, between the steps measured; None below them."""
    known = [(rate / contract.replicas, n / contract.replicas) for rate, n in contract.in_flight]
    below = [pair for pair in known if pair[0] <= rate_rps]
    above = [pair for pair in known if pair[0] >= rate_rps]
    if not below or not above:
        return known[-1][1] * rate_rps / known[-1][0] if known and below else None
    (r1, n1), (r2, n2) = below[-1], above[0]
    return n1 if r2 == r1 else n1 + (n2 - n1) * (rate_rps - r1) / (r2 - r1)


def _scale_on(contract: Contract) -> tuple[str, float, str]:
    names, planned = contract.names, contract.planned_rps or 0.0
    busy = in_flight_at(contract, planned)
    capacity = f"the measured capacity of {contract.capacity_rps:.3g} req/s ({contract.replicas} replicas)"
    told = f"{percent(PLANNED)} of {capacity}"
    if busy is not None and "running" in names and "waiting" in names:
        query = f"sum({names['running']}) + sum({names['waiting']})"
        return query, max(busy, 1.0), f"Requests in flight a replica at {planned:.3g} req/s, {told}."
    if "requests_done" in names:
        query = f"sum(rate({names['requests_done']}[2m]))"
        return query, planned, f"Requests a second and replica: {told}. Past its ceiling a replica finishes no more."
    raise ScenarioError(f"{contract.engine} shows neither requests in flight nor requests done")


def _latencies(contract: Contract) -> tuple[list[Rule], list[str]]:
    rules, missing = [], []
    for metric, limit_s in contract.limits.items():
        total = contract.names.get(f"{metric}_s_sum")
        if total is None:
            missing.append(f"{NAMES[metric]} histogram")
            continue
        buckets = f"sum by (le) (rate({total.removesuffix('_sum')}_bucket[5m]))"
        value = f"histogram_quantile({contract.quantile:g}, {buckets})"
        for severity, times, minutes in (("warning", WARNING, 5), ("critical", CRITICAL, 2)):
            words = f"p{contract.quantile * 100:g} {NAMES[metric]} is above {times:g} times its limit of {limit_s:g} s"
            rules.append(
                Rule(
                    f"LLM{metric.upper()}{severity.capitalize()}",
                    f"{value} > {times * limit_s:.4g}",
                    severity,
                    minutes,
                    words,
                )
            )
    return rules, missing


def _kv(contract: Contract) -> tuple[list[Rule], list[str]]:
    name = contract.names.get("kv_used_ratio")
    if name is None:
        return [], ["KV cache use"]
    return [
        Rule("LLMKVCacheWarning", f"max({name}) > {KV_WARNING}", "warning", 5, "KV cache is filling up"),
        Rule(
            "LLMKVCacheCritical", f"max({name}) > {KV_CRITICAL}", "critical", 2, "KV cache is full: preemptions follow"
        ),
    ], []


def _queue(contract: Contract) -> tuple[list[Rule], list[str]]:
    waiting, running = contract.names.get("waiting"), contract.names.get("running")
    if waiting is None:
        return [], ["waiting requests"]
    also = f" and sum({waiting}) > 0.1 * sum({running})" if running else ""
    expr = f"sum({waiting}) > {QUEUE}{also}"
    return [
        Rule("LLMQueueWarning", expr, "warning", 5, "Requests queue: more comes in than is served"),
        Rule("LLMQueueCritical", expr, "critical", 15, "Requests have queued for a quarter of an hour"),
    ], []


def _preemptions(contract: Contract) -> tuple[list[Rule], list[str]]:
    name, done = contract.names.get("preemptions"), contract.names.get("requests_done")
    if name is None:
        return [], ["preemptions"]
    rules = []
    if done is not None:
        expr = f"sum(rate({name}[5m])) > {PREEMPTED_RATIO} * sum(rate({done}[5m]))"
        rules.append(Rule("LLMPreemptionsWarning", expr, "warning", 5, "More than 2 in 100 requests are preempted"))
    expr = f"sum(increase({name}[1m])) > {PREEMPTED_PER_MIN}"
    return [*rules, Rule("LLMPreemptionsCritical", expr, "critical", 5, "More than 10 preemptions a minute")], []


def _errors(contract: Contract) -> tuple[list[Rule], list[str]]:
    done = contract.names.get("requests_done")
    bad = [name for key in ("requests_failed", "requests_rejected") if (name := contract.names.get(key))]
    if done is None or not bad:
        return [], ["failed requests"]
    failed = " + ".join(f"(sum(rate({name}[5m])) or vector(0))" for name in bad)  # older engines lack some
    ratio = f"({failed}) / ({failed} + sum(rate({done}[5m])))"
    return [
        Rule(
            f"LLMErrors{severity.capitalize()}", f"{ratio} > {times * contract.error_ratio:.4g}", severity, minutes,
            f"More than {percent(times * contract.error_ratio)} of the requests fail or are refused",
        )
        for severity, times, minutes in (("warning", WARNING, 5), ("critical", CRITICAL, 2))
    ], []  # fmt: skip


def _load(contract: Contract) -> tuple[list[Rule], list[str]]:
    """Demand near what was measured: the one alert that comes before anybody waits."""
    done = contract.names.get("requests_done")
    if contract.capacity_rps is None:
        return [], [f"measured capacity ({contract.missed})" if contract.missed else "measured capacity"]
    if done is None:
        return [], ["finished requests"]
    expr = f"sum(rate({done}[5m])) > {0.9 * contract.capacity_rps:.4g}"
    words = f"Load is above 90 % of the measured capacity of {contract.capacity_rps:.3g} req/s"
    return [Rule("LLMNearCapacityWarning", expr, "warning", 10, words)], []


def _plain(rule: Rule, contract: Contract) -> dict[str, Any]:
    return {
        "alert": rule.alert,
        "expr": rule.expr,
        "for": f"{rule.minutes}m",
        "labels": {"severity": rule.severity, "scenario": contract.scenario},
        "annotations": {"summary": rule.summary, "description": "Value: {{ $value | humanize }}"},
    }


def _comment(contract: Contract, missing: Sequence[str]) -> str:
    lines = [_origin(contract)]
    if missing:
        lines.append(
            f"Left out, because it was not measured or {contract.engine} does not show it: {', '.join(missing)}."
        )
    if contract.limits:
        lines.append("A histogram tells a quantile no finer than its buckets, and none beyond the last one.")
    return "\n".join(lines)


def _origin(contract: Contract) -> str:
    capacity = f", measured capacity {contract.capacity_rps:.3g} req/s" if contract.capacity_rps else ""
    return f"Made by loadramp alerts from the scenario {contract.scenario} ({contract.engine}{capacity})."
