"""PromQL that alerts and board share, and the rules on targets and GPUs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from loadramp.advise.promises import AVAILABLE, Contract

GPU_MEMORY = 0.95
GPU_WARM, GPU_HOT = 80, 85
"""Degrees Celsius."""
GPU_IDLE, GPU_BUSY = 20, 99
"""Per cent of the time with a kernel running."""


@dataclass(slots=True, frozen=True)
class AlertRule:
    """One alert before it is written down."""

    alert: str
    expr: str
    severity: str
    minutes: int
    summary: str


def of_replica(expr: str) -> str:
    """The series of each scraped replica added up: its engines, ranks and finish reasons."""
    return f"sum by (instance) ({expr})"


def quantile_of(total: str, quantile: float) -> str:
    """A quantile over all replicas, from the ``_sum`` series of a histogram with its matchers."""
    name, brace, matchers = total.partition("{")
    buckets = f"{name.removesuffix('_sum')}_bucket{brace}{matchers}"
    return f"histogram_quantile({quantile:g}, sum by (le) (rate({buckets}[5m])))"


def matched(name: str, matchers: str) -> str:
    """``name`` with further matchers: ``a{b="c"}`` and ``d="e"`` become ``a{b="c",d="e"}``."""
    if not matchers:
        return name
    plain, brace, own = name.partition("{")
    return f"{plain}{{{own.removesuffix('}')},{matchers}}}" if brace else f"{plain}{{{matchers}}}"


def gpu_memory(contract: Contract) -> str | None:
    """PromQL of the share of memory in use, a series a GPU."""
    used, free = contract.gpu.get("gpu_memory_used_bytes"), contract.gpu.get("gpu_memory_free_bytes")
    return f"{used} / ({used} + {free})" if used and free else None


def targets(contract: Contract) -> tuple[list[AlertRule], list[str]]:
    """Targets that Prometheus cannot scrape. Which those are is known only where matchers of targets are given: ``up``
    alone is every target of every job."""
    running = contract.names.get("running")
    if not contract.target:
        gone = [AlertRule("LLMNoMetricsCritical", f"absent({running})", "critical", 2, "No replica shows its metrics")]
        return (gone if running else []), ["targets down and availability (give --selector with job or namespace)"]
    up = matched("up", contract.target)
    return [
        AlertRule("LLMTargetDownCritical", f"{up} == 0", "critical", 2, "A replica does not answer its health check"),
        AlertRule("LLMNoTargetCritical", f"absent({up})", "critical", 2, "Prometheus knows no replica"),
        AlertRule(
            "LLMAvailabilityWarning", f"avg(avg_over_time({up}[1h])) < {AVAILABLE}", "warning", 5,
            "Less than 99.9 % of the health checks of the last hour were answered",
        ),
    ], []  # fmt: skip


def gpus(contract: Contract) -> tuple[list[AlertRule], list[str]]:
    """Memory, temperature and utilization, of the worst GPU."""
    rules, missing = [], []
    memory, celsius = gpu_memory(contract), contract.gpu.get("gpu_temperature_c")
    busy = contract.gpu.get("gpu_util_ratio")
    if memory:
        words = "More than 95 % of a GPU's memory is in use"
        rules.append(AlertRule("LLMGPUMemoryCritical", f"max({memory}) > {GPU_MEMORY}", "critical", 2, words))
    if celsius:
        rules += [
            AlertRule("LLMGPUTemperatureWarning", f"max({celsius}) > {GPU_WARM}", "warning", 5, "A GPU is above 80 C"),
            AlertRule("LLMGPUTemperatureCritical", f"max({celsius}) > {GPU_HOT}", "critical", 2, "A GPU is above 85 C"),
        ]
    if busy:
        rules += [
            AlertRule(
                "LLMGPUIdleWarning", f"avg(avg_over_time({busy}[1h])) < {GPU_IDLE}", "warning", 15,
                "The GPUs were used for less than 20 % of the last hour",
            ),
            AlertRule("LLMGPUSaturatedWarning", f"min({busy}) >= {GPU_BUSY}", "warning", 15, "No GPU is ever idle"),
        ]  # fmt: skip
    shown = (("GPU memory", memory), ("GPU temperature", celsius), ("GPU utilization", busy))
    missing += [name for name, expr in shown if not expr]
    return rules, missing
