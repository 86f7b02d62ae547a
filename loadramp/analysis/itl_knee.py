"""Rows of the curve to the three numbers: ceiling, p99 ITL knee, SLO capacity. Formulas: docs/method.md.

A knee detector is a function ``f(rows, *, options) -> Estimate``. KNEES has the one that is used;
benchmarks/detectors.py has others to compare it with.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import log, sqrt

from loadramp.analysis import long_run
from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.interval_policy import hold_back
from loadramp.analysis.latency import NOT_STREAMED
from loadramp.analysis.offered_load import load_of
from loadramp.analysis.overload import climb
from loadramp.analysis.slo_capacity import slo_capacity
from loadramp.record.row import Row
from loadramp.record.types import Estimate
from loadramp.scenario.scenario import Slo
from loadramp.units import latency_span, percent

KNEES: dict[str, Callable[..., Estimate]] = {"ceiling": ceiling}
UNKNOWN_LOG_SE = 0.2
"""Of a p99 whose interval could not be had."""


@dataclass(slots=True, frozen=True)
class Elasticity:
    """Growth from one step to the next: ln(q2 / q1) / ln(r2 / r1), above 1 where the latency outgrows the rate."""

    value: float
    se: float

    @property
    def super_linear(self) -> bool:
        return self.value - 1.645 * self.se > 1.0


def estimate(
    rows: Sequence[Row],
    *,
    knee: Callable[[Sequence[Row]], Estimate] = ceiling,
    slo: Slo = Slo(),  # noqa: B008 (frozen)
) -> dict[str, Estimate]:
    """The three numbers, by name.

    Args:
        rows: the curve, ``completed``.
        knee: the detector that answers for ``ceiling``.
        slo: what the SLO capacity is the highest rate of.
    """
    return {
        "ceiling": knee(rows),
        "p99_itl_knee": p99_itl_knee(rows),
        "slo_capacity": slo_capacity(rows, slo),
    }


def completed(rows: Sequence[Row]) -> list[Row]:
    """The rows with what only the whole curve tells: elasticities to the next step, how far the pace scatters, and no
    interval near the ceiling."""
    rows = long_run.with_scatter(_with_elasticities(rows))
    return hold_back(rows, ceiling(rows))


def p99_itl_knee(rows: Sequence[Row]) -> Estimate:
    """Where p99 ITL begins to grow faster than the rate, and why. Never at the first step.

    First r_k with ``e_k - 1.645 se > 1``, on the lower envelope of the curve (each p99 is taken as no more than any at
    a higher rate), so that one bad step is not a knee; a rise that only the last step shows counts if that step is
    saturated.
    """
    steps = [row for row in climb(rows).rows if row.of("itl").p99.value is not None]
    if len(steps) < 2:
        few = "no two steps with a p99 ITL" if rows else "no step was measured"
        few = "in a closed loop no rate is asked, which p99 ITL could follow" if any(row.users for row in rows) else few
        if any(row.reasons.get("itl_p99_s") == NOT_STREAMED for row in rows):
            few = NOT_STREAMED
        return Estimate("not_measurable", detector="p99_itl_knee", reason=few)
    low = envelope(steps)
    hiccups = [
        f"one high step at {load_of(row):.3g} req/s (hiccup)"
        for row, calm in zip(steps, low, strict=True)
        if _p99_itl_s(row) > 2.0 * _p99_itl_s(calm)
    ]
    growth = [elasticity(a, b) for a, b in pairwise(low)]
    rising = [k for k, elasticity in enumerate(growth) if elasticity is not None and elasticity.super_linear]
    later = [k for k in rising if k > 0]
    if not later:
        return _no_knee(steps, rising, hiccups)
    k = later[0]
    if k == len(steps) - 2 and not steps[-1].saturated:
        words = f"only the last step, {load_of(steps[-1]):.3g} req/s, shows it: go one step higher"
        return Estimate("inconclusive", None, load_of(steps[k]), None, "p99_itl_knee", words)
    here, above, growth_here = steps[k], steps[k + 1], growth[k]
    assert growth_here is not None
    cause, why = _cause(low[k], low[k + 1], steps[k + 1])
    ttft = elasticity(here, above, "ttft_p50")
    beside = f"; that of the median TTFT {ttft.value:.2g}" if ttft is not None else ""
    words = (
        f"from {load_of(here):.3g} to {load_of(above):.3g} req/s p99 ITL grows from "
        f"{latency_span(_p99_itl_s(low[k]), _p99_itl_s(low[k + 1]))}, "
        f"elasticity {growth_here.value:.2g} (se {growth_here.se:.2g}{beside}); {why}"
    )
    return Estimate("found", load_of(here), load_of(here), load_of(above),
                    "p99_itl_knee", "; ".join([words, *hiccups]), cause=cause)  # fmt: skip


def envelope(steps: Sequence[Row]) -> list[Row]:
    """For each step the row with the lowest p99 ITL among it and all at higher rates."""
    out = list(steps)
    for k in range(len(out) - 2, -1, -1):
        if _p99_itl_s(out[k + 1]) < _p99_itl_s(out[k]):
            out[k] = replace(out[k + 1], rate_rps=out[k].rate_rps, load_rps=load_of(out[k]))
    return out


def _p99_itl_s(row: Row) -> float:
    """Of a row that has one."""
    return row.of("itl").p99.value or 0.0


def elasticity(row: Row, next_: Row, stem: str = "itl_p99") -> Elasticity | None:
    """Elasticity of a latency between two rows; None without values or at equal rates."""
    here, there = row.statistic(stem), next_.statistic(stem)
    step = log(load_of(next_) / load_of(row))
    if not here.value or not there.value or step < 0.01:
        return None
    s1, s2 = (UNKNOWN_LOG_SE if figure.log_se is None else figure.log_se for figure in (here, there))
    return Elasticity(log(there.value / here.value) / step, sqrt(s1**2 + s2**2) / step)


def _with_elasticities(rows: Sequence[Row]) -> list[Row]:
    growth = {id(here): elasticity(here, above) for here, above in pairwise(climb(rows).rows)}

    def to_the_next(row: Row) -> Row:
        elasticity_ = growth.get(id(row))
        value, se = (elasticity_.value, elasticity_.se) if elasticity_ is not None else (None, None)
        return replace(row, p99_itl_elasticity=value, p99_itl_elasticity_se=se)

    return [to_the_next(row) for row in rows]


def _cause(below: Row, above: Row, row: Row) -> tuple[str, str]:
    """Prefill mixing when the median does not follow and prefills explain most of the excess; capacity otherwise."""
    median = elasticity(below, above, "itl_p50")
    share = row.prefill_share
    if median is not None and median.value <= 0.3 and share is not None and share > 0.5:
        return "prefill_mixing", (
            f"prefill mixing, not capacity: the median does not follow (elasticity {median.value:.2g}) and prefills "
            f"explain {percent(share)} of the excess"
        )
    follows = f"the median follows with elasticity {median.value:.2g}" if median is not None else "median unknown"
    return "capacity", follows


def _no_knee(steps: Sequence[Row], rising: Sequence[int], hiccups: Sequence[str]) -> Estimate:
    if rising:
        words = (
            f"p99 ITL outgrows the rate from the lowest step on ({load_of(steps[0]):.3g} to "
            f"{load_of(steps[1]):.3g} req/s) and not later; {_cause(steps[0], steps[1], steps[1])[1]}; "
            "start lower to place it"
        )
        return Estimate("below_range", None, None, load_of(steps[0]), "p99_itl_knee", words)
    top = load_of(steps[-1])
    between = latency_span(min(map(_p99_itl_s, steps)), _p99_itl_s(steps[-1]))
    words = f"p99 ITL grows no faster than the rate up to {top:.3g} req/s ({between})"
    return Estimate("not_found_up_to", top, top, None, "p99_itl_knee", "; ".join([words, *hiccups]))
