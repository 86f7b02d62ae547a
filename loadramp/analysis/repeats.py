"""Several ramps of one run, side by side: what one ramp cannot know is how much the next one would differ.

Intervals are Student's t over the repeats on the log scale: within-window intervals do not hold near the ceiling and
when preemptions come in bursts. A few repeats agree by chance, so an interval is never narrower than what the repeats
state together of themselves (docs/method.md, "Repeats").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import Any

import numpy as np
from scipy.special import chdtri, stdtrit

from loadramp.record.types import Estimate, Row
from loadramp.units import percent, plural

SUMMED = frozenset(
    {"requests", "ok", "pending", "good_n", "malformed_events", "malformed_answers", "load_independent_errors"}
)
TOO_WIDE = log(2.0)
"""Repeats whose half-width is beyond this say so instead of an interval. A lower limit would print the intervals of
those alone that agree by chance, which hold less often."""
COUNTED = frozenset({"preemptions", "requests_rejected"})
"""What the server counts: with a repeat of which it is not known, it is not known."""
OF_THE_FIRST = frozenset({"step", "repeat", "users", "begin_s", "window_begin_s", "window_end_s"})
"""Between the instants of several repeats lies other load: no average of them is a stretch of time."""
_LATENCY = re.compile(r".*_(mean|p50|p90|p95|p99)_s|slo_(ttft|itl|tpot|e2e)_s")


@dataclass(slots=True, frozen=True)
class RampSpread:
    """How far repeats lie apart. ``log_sd`` is the standard deviation of the logs: about the relative spread."""

    n: int
    mean: float
    log_sd: float

    @property
    def half_width(self) -> float:
        """Half-width of the 95 % interval of the mean on the log scale; infinite with one repeat."""
        if self.n < 2:
            return float("inf")
        return float(stdtrit(self.n - 1, 0.975)) * self.log_sd / sqrt(self.n)


def spread_of(values: Iterable[float | None]) -> RampSpread | None:
    """Spread of the values that are there and positive; None without any."""
    logs = [log(value) for value in values if value is not None and value > 0]
    if not logs:
        return None
    return RampSpread(len(logs), exp(sum(logs) / len(logs)), float(np.std(logs, ddof=1)) if len(logs) > 1 else 0.0)


def stated(intervals: Iterable[tuple[float | None, float | None]]) -> float:
    """Half-width on the log scale that the mean of independent estimates with these 95 % intervals has; those without
    both ends are as wide as the others. 0 without any."""
    ends = list(intervals)
    halves = [log(high / low) / 2.0 for low, high in ends if low and high]
    return sqrt(float(np.mean(np.square(halves))) / len(ends)) if halves else 0.0


def by_repeat(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each repeat, in order."""
    numbers = sorted({row.get("repeat", 0) for row in rows})
    return [[row for row in rows if row.get("repeat", 0) == number] for number in numbers]


def pooled_estimates(each: Sequence[Mapping[str, Estimate]]) -> dict[str, Estimate]:
    """The three numbers over the repeats: geometric mean and t interval of those that were found.

    Where fewer than half of the repeats found a number, the answer is that of the first one that did not, with how many
    did. ``sustained_rps`` is the lowest rate that any repeat sustained.
    """
    return {name: _pooled(name, [estimates[name] for estimates in each]) for name in each[0]}


def _pooled(name: str, each: Sequence[Estimate]) -> Estimate:
    found = [estimate for estimate in each if estimate.status == "found" and estimate.rate_rps is not None]
    told = f"in {len(found)} of {plural(len(each), 'repeat')}"
    if 2 * len(found) < len(each) or not found:
        other = next(estimate for estimate in each if estimate.status != "found")
        return replace(other, reason=f"found {told}; else: {other.reason}")
    spread = spread_of(estimate.rate_rps for estimate in found)
    assert spread is not None
    low, high = found[0].low_rps, found[0].high_rps
    words = f"found {told}, {percent(spread.log_sd)} apart; first: {found[0].reason}"
    half = _half_width(found, spread) if spread.n > 1 else 0.0
    if spread.n > 1:
        low, high = spread.mean * exp(-half), spread.mean * exp(half)
    if half > TOO_WIDE:
        low = high = None
        words = f"found {told}, too far apart for an interval ({percent(spread.log_sd)}); first: {found[0].reason}"
    sustained = [estimate.sustained_rps for estimate in each]
    held = min((rate for rate in sustained if rate is not None), default=None) if None not in sustained else None
    return replace(
        found[0], rate_rps=spread.mean, low_rps=low, high_rps=high, reason=words,
        sustained_rps=held if name == "ceiling" else None,
    )  # fmt: skip


def _half_width(found: Sequence[Estimate], spread: RampSpread) -> float:
    """Of the mean over ramps, on the log scale: Student's t over the ramps, and no less than they state together. Where
    each states an interval of the long run, and they scatter no more than that (chi2), what they state is enough."""
    half = stated((one.low_rps, one.high_rps) for one in found)
    most_sd = half * sqrt(spread.n) / 1.96 * sqrt(float(chdtri(spread.n - 1, 0.05)) / (spread.n - 1))
    if all(one.interval_of == "long_run" for one in found) and spread.log_sd <= most_sd:
        return half
    return max(spread.half_width, half)


def pooled_rows(groups: Sequence[Sequence[Row]]) -> list[Row]:
    """One row for each load that the repeats offered. Soaks, whose rates differ a little, become one.

    Latencies are geometric means of the repeats' own, with t intervals; counts are sums; other figures are means; flags
    are what most repeats say. Instants are those of the first repeat, ``windows`` holds the measured window of each.
    Void rows and steps that were cut short are left out unless there are no others.
    """
    keys: dict[Any, list[Row]] = {}
    for row in (row for group in groups for row in group):
        load = None if row["role"] == "soak" else row["rate_rps"] if row["rate_rps"] is not None else row["users"]
        keys.setdefault((row["role"], load), []).append(row)
    order = {"step": 0, "down": 1, "soak": 2}
    pooled = [_pool(rows) for rows in keys.values()]
    return sorted(pooled, key=lambda row: (order.get(row["role"], 3), row["step"]))


def _pool(rows: Sequence[Row]) -> Row:
    usable = [row for row in rows if not row["void"]] or list(rows)
    usable = [row for row in usable if not row.get("partial")] or usable
    row: Row = dict(usable[0])
    row["repeats"] = len(usable)
    row["windows"] = [[other["window_begin_s"], other["window_end_s"]] for other in usable]
    for column, first in usable[0].items():
        values = [other.get(column) for other in usable]
        if isinstance(first, bool):
            row[column] = sum(map(bool, values)) * 2 > len(values)
        elif column in COUNTED and None in values:
            row[column] = None
        elif column in SUMMED:
            row[column] = sum(value or 0 for value in values)
        elif column == "errors":
            row[column] = _sum_up(values)
        elif isinstance(first, list):
            row[column] = _most(values)
        elif isinstance(first, int | float) and column not in OF_THE_FIRST:
            known = [value for value in values if value is not None]
            row[column] = float(np.mean(known))
    _latencies(row, usable)
    return row


def _latencies(row: Row, usable: Sequence[Row]) -> None:
    """Geometric mean and t interval of every latency that at least two repeats could measure."""
    for column in [name for name in row if _LATENCY.fullmatch(name)]:
        spread = spread_of(other.get(column) for other in usable)
        if spread is None:
            continue
        stem = column.removesuffix("_s")
        row[column] = spread.mean
        if spread.n > 1:
            ends = [(other.get(f"{stem}_low_s"), other.get(f"{stem}_high_s")) for other in usable if other.get(column)]
            half = max(spread.half_width, stated(ends))
            wide = half > TOO_WIDE
            low, high = spread.mean * exp(-half), spread.mean * exp(half)
            row[f"{stem}_low_s"], row[f"{stem}_high_s"] = (None, None) if wide else (low, high)
            row["reasons"] = {name: why for name, why in row["reasons"].items() if not name.startswith(stem)}
            if wide:
                row["reasons"] |= {f"{stem}_high_s": f"the repeats lie {percent(spread.log_sd)} apart"}


def not_enough(each: Sequence[Mapping[str, Estimate]], name: str = "ceiling") -> str:
    """Why one run would not have been enough; ``""`` where it would have been.

    The repeats scatter more than single runs state: their sample variance on the log scale, over the square of the
    typical stated standard error, is beyond the 95 % point of chi2 / (n - 1).
    """
    found = [e[name] for e in each if e[name].status == "found"]
    spread = spread_of(estimate.rate_rps for estimate in found)
    stated = [log(e.high_rps / e.low_rps) / 3.92 for e in found if e.low_rps and e.high_rps]
    if spread is None or spread.n < 3 or not stated:
        return ""
    typical = float(np.median(stated))
    if spread.log_sd <= typical * sqrt(float(chdtri(spread.n - 1, 0.05)) / (spread.n - 1)):
        return ""
    return (
        f"the {name} differs by {percent(spread.log_sd)} from ramp to ramp, more than the {percent(typical)} that "
        "one ramp states: one run was not enough"
    )


def _sum_up(values: Sequence[Any]) -> dict[str, int]:
    total: dict[str, int] = {}
    for errors in values:
        for kind, n in (errors or {}).items():
            total[kind] = total.get(kind, 0) + n
    return total


def _most(values: Sequence[Any]) -> list[Any]:
    """Signals that at least half of the repeats show; lists of numbers are joined."""
    items = [item for value in values if value for item in value]
    if items and not isinstance(items[0], str):
        return items
    return [item for item in dict.fromkeys(items) if 2 * items.count(item) >= len(values)]
