"""When a candidate is so bad that nothing more is to be measured: too many failures, or far beyond the SLO. Pure.

Looked at every few seconds while load runs: failures must be shown to be too many, and a latency must have the values
of a minute behind it, or of as much longer as it takes to be that late.
"""

from collections.abc import Mapping

import numpy as np

from loadramp.analysis.blocks import failures_of, least
from loadramp.analysis.proportions import fisher
from loadramp.analysis.quantiles import quantile, words
from loadramp.record.row import SHORT_NAMES
from loadramp.record.table import Floats, Table
from loadramp.units import latency, multiple, percent, plural, span

RECENT_S = 60.0
ALPHA = 0.001
"""Chance of one look to see too many failures where there are none too many; there may be hundreds of looks."""
LEAST_FAILED = 3


def too_many_failures(table: Table, error_ratio: float, since_s: float = 0.0) -> str:
    """Words when the share of failures since ``since_s`` is above ``error_ratio`` with confidence 0.999, else empty."""
    seen = failures_of(table.select(table.due_s >= since_s))
    if seen.failed < LEAST_FAILED or seen.lower(ALPHA) <= error_ratio:
        return ""
    return (
        f"{seen.failed:,} of {plural(seen.requests, 'request')} failed: the error rate is above {percent(error_ratio)} "
        f"(at least {percent(seen.lower(ALPHA))})"
    )


def one_fails_more(base: Table, candidate: Table, since_s: float = 0.0) -> bool:
    """Whether the shares of failures since ``since_s`` differ (Fisher's test both ways, confidence 0.999)."""
    one, other = (failures_of(table.select(table.due_s >= since_s)) for table in (base, candidate))
    return 2.0 * min(fisher(one, other), fisher(other, one)) <= ALPHA


def far_beyond_slo(
    table: Table, now_s: float, limits: Mapping[str, float], q: float, factor: float, since_s: float = 0.0
) -> str:
    """Words when a latency of the last minute (longer where the limit is: ``recent_s``) is above ``factor`` times its
    limit, else empty.

    Args:
        table: requests with those in flight, which count with their age: a server that has stopped answering is late.
        now_s: the instant up to which the table reaches.
        limits: SLO metric to seconds.
        q: the quantile that is limited.
        factor: how far beyond.
        since_s: nothing before it counts (warm-up).
    """
    for metric, limit_s in limits.items():
        values, at_s = _values(table, metric, now_s)
        inside = (at_s >= since_s) & (at_s <= now_s)
        within_s = recent_s(limit_s, q, factor)
        recent = inside & (at_s >= now_s - within_s)
        enough = least(max(q, 0.5))
        if np.count_nonzero(recent) < enough:
            continue
        found_s = quantile(np.sort(values[recent]), q)
        if found_s > factor * limit_s:
            lately = "minute" if within_s == RECENT_S else span(within_s)
            return (
                f"{words(q)} {SHORT_NAMES[metric]} of the last {lately} is {latency(found_s)}, more than "
                f"{multiple(factor)} the limit of {latency(limit_s)}"
            )
    return ""


def recent_s(limit_s: float, q: float, factor: float) -> float:
    """How far back to look: a minute, or twice as long as a server that answers nothing takes to be late.

    Requests due in the last w seconds that all wait are up to w old, their q-quantile is q w; so it can only be above
    ``factor limit_s`` where w is above ``factor limit_s / q``.
    """
    return max(RECENT_S, 2.0 * factor * limit_s / q)


def _values(table: Table, metric: str, now_s: float) -> tuple[Floats, Floats]:
    """Values and the instants they count at; what is not over yet counts with its age."""
    if metric == "itl":
        gaps = table.gaps()
        fine = (table.ok | table.in_flight)[gaps.request]
        itl_s, end_s = gaps.itl()
        keep = np.repeat(fine, np.maximum(gaps.tokens, 0))
        return itl_s[keep], end_s[keep]
    values: Floats = getattr(table, f"{metric}_s").copy()
    late = table.in_flight & (np.isnan(table.first_s) if metric == "ttft" else np.True_)
    if metric != "tpot":
        values[late] = (now_s - table.due_s)[late]
    known = ~np.isnan(values) & ~table.failed
    return values[known], table.due_s[known]
