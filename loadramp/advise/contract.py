"""What a scenario promises, what a run has shown, and PromQL over the names that its server's numbers have. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loadramp.scenario.scenario import Slo

PLANNED = 0.8
"""Of the capacity: the load that a replica is meant to carry."""


@dataclass(slots=True, frozen=True)
class Contract:
    """What a scenario promises, what a run has shown, and how the engine calls its numbers."""

    scenario: str
    engine: str
    names: Mapping[str, str]
    """Canonical name to the engine's own, with its labels if only some series count."""
    slo: Slo = field(default_factory=Slo)
    capacity_rps: float | None = None
    """The lower of SLO capacity and sustained rate (or ceiling), of all replicas together."""
    capacity_low_rps: float | None = None
    """The low end of its interval; None: it has none."""
    missed: str = ""
    """Why there is no capacity although a ceiling was found."""
    in_flight: Sequence[tuple[float, float]] = ()
    """Rate and mean number of requests in flight, of the steps that kept up, ascending."""
    replicas: int = 1
    """Behind the endpoint that was measured."""
    target: str = ""
    """Matchers of the scraped targets (job, namespace), for ``up``; empty: not known."""
    gpu: Mapping[str, str] = field(default_factory=dict)
    """Canonical GPU quantity to the exporter's name, with its matchers; only what is shown."""

    @property
    def safe_rps(self) -> float | None:
        """What one replica was shown to carry: the low end, for each."""
        if self.capacity_rps is None:
            return None
        return (self.capacity_low_rps or self.capacity_rps) / self.replicas

    @property
    def planned_rps(self) -> float | None:
        """What one replica is meant to carry."""
        return None if self.safe_rps is None else PLANNED * self.safe_rps


def of_replica(expr: str) -> str:
    """The sum over the series of each scraped replica: its engines, ranks and finish reasons."""
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
    plain, brace, inner = name.partition("{")
    return f"{plain}{{{inner.removesuffix('}')},{matchers}}}" if brace else f"{plain}{{{matchers}}}"


def gpu_memory(contract: Contract) -> str | None:
    """PromQL of the share of memory in use, a series for each GPU."""
    used, free = contract.gpu.get("gpu_memory_used_bytes"), contract.gpu.get("gpu_memory_free_bytes")
    return f"{used} / ({used} + {free})" if used and free else None
