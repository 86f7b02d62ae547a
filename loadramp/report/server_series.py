"""The server's samples as series for a chart: replicas summed, absent never zero. Pure."""

from collections.abc import Sequence

import numpy as np

from loadramp.record.table import Floats
from loadramp.record.types import Sample


def gauge(samples: Sequence[Sample], name: str, *, highest: bool = False) -> tuple[Floats, Floats]:
    """A gauge over time: instants and values, summed over replicas (``highest``: the fullest replica instead).

    With several replicas the value at each scrape takes the latest value of the others. NaN while none is known.
    """
    readings = [s for s in sorted(samples, key=lambda s: s.t_s) if name in s.values]
    if not readings:
        return np.array([]), np.array([])
    latest: dict[str, float] = {}
    values = []
    for sample in readings:
        latest[sample.url] = float(sample.values[name])
        values.append(max(latest.values()) if highest else sum(latest.values()))
    return np.array([s.t_s for s in readings], dtype=np.float64), np.array(values, dtype=np.float64)


def increments(samples: Sequence[Sample], name: str) -> tuple[Floats, Floats]:
    """What a counter grew by between scrapes of one replica, all replicas together; a reset counts as no growth."""
    before: dict[str, float] = {}
    at, grown = [], []
    for sample in sorted(samples, key=lambda s: s.t_s):
        if name not in sample.values:
            continue
        total = float(sample.values[name])
        if sample.url in before:
            at.append(sample.t_s)
            grown.append(max(0.0, total - before[sample.url]))
        before[sample.url] = total
    return np.array(at, dtype=np.float64), np.array(grown, dtype=np.float64)


def why_none(samples: Sequence[Sample]) -> str:
    """Why there is nothing of the server's own to show."""
    errors = [s.error for s in samples if s.error]
    if errors:
        return (
            f"The server's metrics could not be read ({errors[-1]}), so queue, KV cache and preemptions are not shown."
        )
    return "No metrics of the server were read, so its own queue, KV cache and preemptions are not shown."
