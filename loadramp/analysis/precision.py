"""Is a step long enough for what is asked of it? Pure; docs/method.md, "Longer steps or more ramps"."""

from collections.abc import Sequence
from math import exp

from loadramp.analysis import long_run, regimes
from loadramp.analysis.latency import WindowView
from loadramp.analysis.throughput import read
from loadramp.record.row import Row

FIRST_PAUSE_S = 10.0
PAUSE_RATIO = 0.15
"""A step is looked at again when it is so much longer, and ten seconds at least: few looks spoil no interval."""


def next_look_s(measured_s: float) -> float:
    """At how many measured seconds to look again after ``measured_s``."""
    return measured_s + max(FIRST_PAUSE_S, PAUSE_RATIO * measured_s)


def reach(row: Row, measure: str) -> float | None:
    """How far the 95 % interval of ``measure`` reaches from its value, as a ratio of it; None without both ends.

    Args:
        row: with the intervals of the long run.
        measure: a latency (``itl_p95``), or ``throughput``, on which the ceiling rests.
    """
    if measure == "throughput":
        half = read(row, None).log_half
        return exp(half) - 1.0 if half > 0.0 else None
    figure = row.statistic(measure)
    value, low, high = figure.value, figure.low, figure.high
    return max(high / value, value / low) - 1.0 if value and low and high else None


def is_sure(rows: Sequence[Row], window: WindowView, slo_quantile: float, measure: str, ratio: float) -> bool:
    """Whether the interval of the last of ``rows`` reaches no further than ``ratio``.

    An overloaded step has no latency that more time would settle: there is nothing to wait for.
    """
    if rows[-1].saturated and measure != "throughput":
        return True
    widened = regimes.widen(long_run.with_scatter(rows), lambda _: window, slo_quantile, only=len(rows) - 1)
    reached = reach(widened[-1], measure)
    return reached is not None and reached <= ratio
