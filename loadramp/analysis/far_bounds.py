"""An upper bound for a latency whose interval is missing: wide, so that what is far below a limit is decided. Pure.

Simulations show how wide (benchmarks/far_bounds.py; docs/method.md, "Thresholds"). It bounds nothing from below.
"""

from loadramp.analysis.latency import FAMILIES
from loadramp.analysis.offered_load import load_of
from loadramp.record.row import Row
from loadramp.record.types import Estimate

FEW = 100
"""Fewer requests bound nothing."""
OF_STEPS = frozenset({"itl", "gap", "tpot"})
"""Latencies that the engine's steps make; the others hold the wait in its queue, too."""
STEPS_FACTOR = 4.0
MEDIAN_FACTOR, TAIL_OF_MEDIAN = 4.0, 2.0
"""Times the median and times its p95, the larger of which bounds a median that holds a wait."""
QUEUE_FACTOR, TAIL_FACTOR = 8.0, 4.0
"""Times the quantile and times the p99, the larger of which bounds another quantile that does."""
NEAREST_RATIO = 0.9
"""Above this share of the ceiling a step of a minute says nothing about how long others will wait."""


def may_bound(family: str, stat: str, ratio: float) -> bool:
    """Whether there is a bound of ``family`` at ``ratio`` of the ceiling."""
    return family in FAMILIES and stat != "mean" and (family in OF_STEPS or ratio <= NEAREST_RATIO)


def upper_bound(row: Row, family: str, stat: str, ceiling: Estimate | None) -> float | None:
    """What the long run's ``stat`` (p50, p90, p95, p99) of ``family`` is below, in seconds; None: not known.

    Args:
        row: of a step whose queue did not grow.
        ceiling: of the run; None where there is none.
    """
    value, p95, p99 = (row.statistic(f"{family}_{name}").value for name in (stat, "p95", "p99"))
    top_rps = ceiling.known_rps if ceiling is not None else None
    ratio = load_of(row) / top_rps if top_rps is not None and row.rate_rps is not None else 0.0
    if value is None or row.requests < FEW or not may_bound(family, stat, ratio):
        return None
    if family in OF_STEPS:
        return STEPS_FACTOR * value
    if stat == "p50":
        return None if p95 is None else max(MEDIAN_FACTOR * value, TAIL_OF_MEDIAN * p95)
    return None if p99 is None else max(QUEUE_FACTOR * value, TAIL_FACTOR * p99)
