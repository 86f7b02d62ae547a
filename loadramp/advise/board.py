"""A Grafana board in the engine's own names, with the SLO and the measured capacity as lines. Pure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from loadramp.advise.alerts import CRITICAL, KV_CRITICAL, KV_WARNING, NAMES, WARNING, Contract
from loadramp.registry import ScenarioError

Json = dict[str, Any]


def grafana_board(contract: Contract) -> str:
    """The board as JSON; import it, or put it where Grafana is provisioned from.

    Raises:
        ScenarioError: the engine shows nothing that a panel could draw.
    """
    panels = [panel for make in (_latencies, _load, _server) for panel in make(contract)]
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
    for metric, words in NAMES.items():
        total = contract.names.get(f"{metric}_s_sum")
        if total is None:
            continue
        buckets = f"sum by (le) (rate({total.removesuffix('_sum')}_bucket[5m]))"
        quantiles = sorted({0.5, contract.quantile})
        targets = [(f"histogram_quantile({q:g}, {buckets})", f"p{q * 100:g}") for q in quantiles]
        limit_s = contract.limits.get(metric)
        lines = [(limit_s, "green"), (WARNING * limit_s, "orange"), (CRITICAL * limit_s, "red")] if limit_s else []
        panels.append(_panel(words.capitalize(), "s", targets, lines))
    return panels


def _load(contract: Contract) -> list[Json]:
    done = contract.names.get("requests_done")
    if done is None:
        return []
    capacity = contract.capacity_rps
    lines = [(0.9 * capacity, "orange"), (capacity, "red")] if capacity else []
    return [_panel("Requests finished", "reqps", [(f"sum(rate({done}[5m]))", "req/s")], lines)]


def _server(contract: Contract) -> list[Json]:
    names = contract.names
    panels = []
    flight = [(f"sum({names[key]})", key) for key in ("running", "waiting") if key in names]
    if flight:
        panels.append(_panel("Requests running and waiting", "short", flight, []))
    if "kv_used_ratio" in names:
        lines = [(KV_WARNING, "orange"), (KV_CRITICAL, "red")]
        panels.append(_panel("KV cache used", "percentunit", [(f"max({names['kv_used_ratio']})", "used")], lines))
    if "preemptions" in names:
        panels.append(_panel("Preemptions", "short", [(f"sum(increase({names['preemptions']}[1m]))", "a minute")], []))
    bad = [
        (f"sum(rate({names[key]}[5m]))", key.removeprefix("requests_"))
        for key in ("requests_failed", "requests_rejected")
        if key in names
    ]
    if bad:
        panels.append(_panel("Requests failed", "reqps", bad, []))
    return panels


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
