"""When is a step long enough? One goes on until its interval is narrow, where that is asked; one near the ceiling where
the engine's step time has regimes. Pure.

Rule: the evidence is that of the finding ``engine_unstable``, so that what was done while the run went on is what its
report says. On an engine that keeps its pace no step is any longer. docs/method.md, "Longer steps or more ramps".
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf

from loadramp.analysis import long_run, regimes
from loadramp.analysis.diagnosis.symptoms import case_of
from loadramp.analysis.diagnosis.unstable_engine import comparable_steps, unstable
from loadramp.analysis.latency import WindowView
from loadramp.analysis.offered_load import at
from loadramp.analysis.overload import counts, failing
from loadramp.analysis.throughput import read
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.record.types import Check
from loadramp.units import span

RATIO = 0.1
"""A step is long enough when its throughput's interval reaches no further than this from it."""
GROWTH = 1.5
"""A step is looked at again when it is so many times as long: few looks, which cost an interval little."""
PATIENCE = 0.8
"""An overloaded step goes on only while its queue will stay within this share of what the client endures."""
FIRST_PAUSE_S = 10.0
PAUSE_RATIO = 0.15
"""A step is looked at again when it is so much longer, and ten seconds at least: few looks spoil no interval."""


def concerns(row: Row) -> bool:
    """Whether the ceiling, or that it is sustained, rests on the step: a soak, or a step at or above the ceiling."""
    if row.void or failing(row) or not counts(row):
        return False
    return row.role == "soak" or row.saturated or row.deficit


def has_regimes(run: Run) -> bool:
    """Whether the engine's step time came and went in the steps so far, as the finding ``engine_unstable`` defines it.

    ``run.rows`` are those of one ramp.
    """
    return unstable(comparable_steps(case_of(run))).comes_and_goes


def is_long_enough(rows: Sequence[Row]) -> bool:
    """Whether the throughput of the last of ``rows`` is known well enough, even if the pace scatters by the most that
    the steps leave open: a few steps that met few slow stretches make little of it."""
    known, last = long_run.wander(long_run.tracks_of(rows)), rows[-1]
    if known is not None:
        most = known.most_log_sd(last.length_s)
        last = replace(last, pace_log_sd=most, pace_degrees=inf)  # the limit allows for them
    reached = reach(last, "throughput")
    return reached is not None and reached <= RATIO


def further_s(measured_s: float, longest_s: float) -> float:
    """How many seconds a step of ``measured_s`` goes on before it is looked at again; 0: it is at its longest."""
    return max(0.0, min((GROWTH - 1.0) * measured_s, longest_s - measured_s))


def endured(now: float, measured_s: float, more_s: float, limit: float | None) -> bool:
    """Whether what grows with an overloaded step (a wait, requests in flight) stays within ``limit`` for ``more_s``."""
    return limit is None or now * (1.0 + more_s / measured_s) <= PATIENCE * limit


def check(run: Run) -> list[Check]:
    """Which steps went on, and from what length: what ``conduct`` has noted while the run was made."""
    usual_s = run.info.lengthened
    longer = [row for row in run.rows if row.step in usual_s]
    if not longer:
        return []
    which = ", ".join(
        f"the {row.role} at {at(row)} {span(row.length_s)} instead of {span(usual_s[row.step])}" for row in longer
    )
    message = f"the engine's step time is unstable, so that steps near the ceiling went on: {which}"
    return [Check("lengthened", "note", message, "[ramp] longest_s limits them; 0: none goes on")]


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
