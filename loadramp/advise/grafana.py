"""A Grafana board in the engine's own names, with the SLO and the measured capacity as lines. Pure."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from loadramp.advise.alerts import GPU_CELSIUS, GPU_MEMORY, KV_CACHE, LATENCY, NEAR, PREEMPTIONS
from loadramp.advise.contract import Contract, gpu_memory, matched, of_replica, quantile_of
from loadramp.analysis.quantiles import quantile_name
from loadramp.record.row import LONG_NAMES
from loadramp.registry import ScenarioError

Json = dict[str, Any]


def grafana_board(contract: Contract) -> str:
    """The board as JSON; import it, or put it where Grafana is provisioned from.

    Raises:
        ScenarioError: the engine shows nothing that a panel could draw.
    """
    panels = [panel for make in (_latencies, _load, _server, _targets, _gpus) for panel in make(contract)]
    if not panels:
        raise ScenarioError(f"no panel can be made: {contract.engine} shows nothing that is known")
    for i, panel in enumerate(panels):
        panel |= {"id": i + 1, "gridPos": {"h": 8, "w": 12, "x": 12 * (i % 2), "y": 8 * (i // 2)}}
    board = {
        "uid": f"loadramp-{contract.scenario}"[:40],
        "title": f"{contract.scenario}: promised and measured",
        "tags": ["loadramp"],
        "timezone": "utc",
        "schemaVersion": 39,
        "version": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "panels": panels,
    }
    return json.dumps(board, indent=1) + "\n"


def _latencies(contract: Contract) -> list[Json]:
    panels = []
    for metric, words in LONG_NAMES.items():
        total = contract.names.get(f"{metric}_s_sum")
        if total is None:
            continue
        quantiles = sorted({0.5, contract.slo.quantile})
        targets = [(quantile_of(total, q), quantile_name(q)) for q in quantiles]
        limit_s = contract.slo.limits.get(metric)
        lines = [(limit_s, "green"), *_levels(times * limit_s for times in LATENCY)] if limit_s else []
        panels.append(_panel(words.capitalize(), "s", targets, lines))
    return panels


def _load(contract: Contract) -> list[Json]:
    done = contract.names.get("requests_done")
    if done is None:
        return []
    most = contract.safe_rps
    lines = _levels((NEAR * most, most)) if most else []
    targets = [(f"avg({of_replica(f'rate({done}[5m])')})", "req/s")]
    return [_panel("Requests finished, a replica", "reqps", targets, lines)]


def _server(contract: Contract) -> list[Json]:
    names = contract.names
    panels = []
    flight = [(f"sum({names[key]})", key) for key in ("running", "waiting") if key in names]
    if flight:
        panels.append(_panel("Requests running and waiting, all replicas", "short", flight, []))
    if "kv_used_ratio" in names:
        fullest = [(f"max({names['kv_used_ratio']})", "used")]
        panels.append(_panel("KV cache used, fullest replica", "percentunit", fullest, _levels(KV_CACHE)))
    if "preemptions" in names:
        preempted = names["preemptions"]
        a_minute = [(f"60 * max({of_replica(f'rate({preempted}[5m])')})", "a minute")]
        panels.append(_panel("Preemptions, worst replica", "short", a_minute, _levels(PREEMPTIONS)))
    bad = [
        (f"sum(rate({names[key]}[5m]))", key.removeprefix("requests_"))
        for key in ("requests_failed", "requests_rejected")
        if key in names
    ]
    if bad:
        panels.append(_panel("Requests failed, all replicas", "reqps", bad, []))
    return panels


def _gpus(contract: Contract) -> list[Json]:
    panels = []
    memory, gpu = gpu_memory(contract), contract.gpu
    if memory:
        panels.append(_panel("GPU memory used", "percentunit", [(f"max({memory})", "fullest")], [(GPU_MEMORY, "red")]))
    if "gpu_temperature_c" in gpu:
        hottest = [(f"max({gpu['gpu_temperature_c']})", "hottest")]
        panels.append(_panel("GPU temperature", "celsius", hottest, _levels(GPU_CELSIUS)))
    if "gpu_util_ratio" in gpu:
        panels.append(_panel("GPU utilization", "percent", [(f"avg({gpu['gpu_util_ratio']})", "mean")], []))
    return panels


def _targets(contract: Contract) -> list[Json]:
    if not contract.target:
        return []
    up = matched("up", contract.target)
    panels = [_panel("Replicas that answer", "short", [(f"sum({up})", "up"), (f"count({up})", "known")], [])]
    hour = [(f"avg(avg_over_time({up}[1h]))", "last hour")]
    return [*panels, _panel("Availability of health checks", "percentunit", hour, [])]


def _levels(levels: Iterable[float]) -> list[tuple[float, str]]:
    """The line of a warning and that of a critical alert."""
    return list(zip(levels, ("orange", "red"), strict=True))


def _panel(title: str, unit: str, targets: Sequence[tuple[str, str]], lines: Sequence[tuple[float, str]]) -> Json:
    source = {"type": "prometheus", "uid": "prometheus"}
    steps: list[Json] = [{"color": "transparent", "value": None}]
    steps += [{"color": colour, "value": value} for value, colour in lines]
    defaults: Json = {"unit": unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if lines:
        defaults["custom"] = {"thresholdsStyle": {"mode": "line"}}
    return {
        "title": title,
        "type": "timeseries",
        "datasource": source,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {"expr": expr, "legendFormat": legend, "refId": chr(ord("A") + i), "datasource": source}
            for i, (expr, legend) in enumerate(targets)
        ],
    }
