"""Several ramps of one run, side by side: what one ramp cannot know is how much the next one would differ.

Intervals are Student's t over the repeats on the log scale: within-window intervals do not hold near the ceiling and
when preemptions come in bursts. A few repeats agree by chance, so an interval is never narrower than what the repeats
state together of themselves (docs/method.md, "Repeats").
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import count
from math import exp, log, sqrt
from typing import Any

import numpy as np
from scipy.special import chdtri, stdtrit

from loadramp.record.row import Row, Statistic
from loadramp.record.types import Estimate
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
GEOMETRIC = frozenset({"lag_p50_s", "lag_p99_s", "server_queue_mean_s", "server_ttft_mean_s", "server_itl_mean_s"})
"""Of these the geometric mean is taken, as of all latencies."""


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
    numbers = sorted({row.repeat for row in rows})
    return [[row for row in rows if row.repeat == number] for number in numbers]


def pooled_estimates(each: Sequence[Mapping[str, Estimate]]) -> dict[str, Estimate]:
    """The three numbers over the repeats: geometric mean and t interval of those that were found.

    Where fewer than half of the repeats found a number, the answer is that of the first one that did not, with how many
    did. ``sustained_rps`` is the lowest rate that any repeat sustained.
    """
    return {name: _pooled(name, [estimates[name] for estimates in each]) for name in each[0]}


def _pooled(name: str, each: Sequence[Estimate]) -> Estimate:
    estimates = [estimate for estimate in each if estimate.status == "found" and estimate.rate_rps is not None]
    where = f"in {len(estimates)} of {plural(len(each), 'repeat')}"
    if 2 * len(estimates) < len(each) or not estimates:
        other = next(estimate for estimate in each if estimate.status != "found")
        return replace(other, reason=f"found {where}; else: {other.reason}")
    spread = spread_of(estimate.rate_rps for estimate in estimates)
    assert spread is not None
    low, high = estimates[0].low_rps, estimates[0].high_rps
    words = f"found {where}, {percent(spread.log_sd)} apart; first: {estimates[0].reason}"
    half = _half_width(estimates, spread) if spread.n > 1 else 0.0
    if spread.n > 1:
        low, high = spread.mean * exp(-half), spread.mean * exp(half)
    if half > TOO_WIDE:
        low = high = None
        words = f"found {where}, too far apart for an interval ({percent(spread.log_sd)}); first: {estimates[0].reason}"
    sustained = [estimate.sustained_rps for estimate in each]
    held = min((rate for rate in sustained if rate is not None), default=None) if None not in sustained else None
    return replace(
        estimates[0], rate_rps=spread.mean, low_rps=low, high_rps=high, reason=words,
        sustained_rps=held if name == "ceiling" else None,
    )  # fmt: skip


def _half_width(estimates: Sequence[Estimate], spread: RampSpread) -> float:
    """Of the mean over ramps, on the log scale: Student's t over the ramps, and no less than they state together. Where
    each states an interval of the long run, and they scatter no more than that (chi2), what they state is enough."""
    half = stated((estimate.low_rps, estimate.high_rps) for estimate in estimates)
    most_sd = half * sqrt(spread.n) / 1.96 * sqrt(float(chdtri(spread.n - 1, 0.05)) / (spread.n - 1))
    if all(estimate.interval_of == "long_run" for estimate in estimates) and spread.log_sd <= most_sd:
        return half
    return max(spread.half_width, half)


def pooled_rows(groups: Sequence[Sequence[Row]]) -> list[Row]:
    """One row for each load that the repeats offered. Soaks, whose rates differ a little, become one: the first of each
    ramp, and the further ones, after a soak that was overloaded, likewise.

    Latencies are geometric means of the repeats' own, with t intervals; counts are sums; other figures are means; flags
    are what most repeats say. Instants are those of the first repeat, ``windows`` holds the measured window of each.
    Void rows and steps that were cut short are left out unless there are no others.
    """
    keys: dict[tuple[str, float | None], list[Row]] = {}
    for group in groups:
        soaks = count()
        for row in group:
            load = row.rate_rps if row.rate_rps is not None else row.users
            keys.setdefault((row.role, next(soaks) if row.role == "soak" else load), []).append(row)
    order = {"step": 0, "down": 1, "soak": 2}
    pooled = [_pool(rows) for rows in keys.values()]
    return sorted(pooled, key=lambda row: (order.get(row.role, 3), row.step))


def _pool(rows: Sequence[Row]) -> Row:
    usable = [row for row in rows if not row.void] or list(rows)
    usable = [row for row in usable if not row.partial] or usable
    pooled = {
        column.name: _pool_column(column.name, [getattr(row, column.name) for row in usable]) for column in fields(Row)
    }
    pooled |= {"repeats": len(usable), "windows": [row.window_s for row in usable]}
    return _latencies(replace(usable[0], **pooled), usable)


def _pool_column(name: str, values: Sequence[Any]) -> Any:
    """One column over all repeats; what has no mean is that of the first."""
    first = values[0]
    known = [value for value in values if value is not None]
    if isinstance(first, bool):
        return sum(map(bool, values)) * 2 > len(values)
    if name in COUNTED and None in values:
        return None
    if name in SUMMED:
        return sum(value or 0 for value in values)
    if name == "errors":
        return dict(sum((Counter(errors) for errors in values), Counter()))
    if isinstance(first, list):
        return _most(values)
    if name in GEOMETRIC:
        spread = spread_of(known)
        return first if spread is None else spread.mean
    if isinstance(first, int | float) and name not in OF_THE_FIRST:
        return float(np.mean(known))
    return first


def _latencies(row: Row, usable: Sequence[Row]) -> Row:
    """Geometric mean and t interval of every latency that at least two repeats could measure."""
    figures, reasons = row.statistics, dict(row.reasons)
    for stem in figures:
        each = [row.statistic(stem) for row in usable]
        parts = ("value", "low", "high", "log_se")
        figures[stem] = Statistic(*(_mean([getattr(figure, part) for figure in each]) for part in parts))
        spread = spread_of(figure.value for figure in each)
        if spread is None:
            continue
        figures[stem] = replace(figures[stem], value=spread.mean)
        if spread.n > 1:
            half = max(spread.half_width, stated((figure.low, figure.high) for figure in each if figure.value))
            wide = half > TOO_WIDE
            low, high = (None, None) if wide else (spread.mean * exp(-half), spread.mean * exp(half))
            figures[stem] = replace(figures[stem], low=low, high=high)
            reasons = {name: why for name, why in reasons.items() if not name.startswith(stem)}
            if wide:
                reasons[f"{stem}_high_s"] = f"the repeats lie {percent(spread.log_sd)} apart"
    over = {name: _mean([other.slo[name].over_ratio for other in usable]) for name in row.slo}
    counts = {name: _mean([other.latency[name].n for other in usable]) for name in row.latency}
    row = row.with_statistics(figures, reasons)
    return replace(
        row,
        latency={name: replace(quantiles, n=counts[name]) for name, quantiles in row.latency.items()},
        slo={name: replace(figure, over_ratio=over[name]) for name, figure in row.slo.items()},
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Of those that are known, where the first is."""
    return None if values[0] is None else float(np.mean([value for value in values if value is not None]))


def not_enough(each: Sequence[Mapping[str, Estimate]]) -> str:
    """Why one run would not have been enough for the ceiling; ``""`` where it would have been.

    The repeats scatter more than single runs state: their sample variance on the log scale, over the square of the
    typical stated standard error, is beyond the 95 % point of chi2 / (n - 1).
    """
    estimates = [e["ceiling"] for e in each if e["ceiling"].status == "found"]
    spread = spread_of(estimate.rate_rps for estimate in estimates)
    stated = [log(e.high_rps / e.low_rps) / 3.92 for e in estimates if e.low_rps and e.high_rps]
    if spread is None or spread.n < 3 or not stated:
        return ""
    typical = float(np.median(stated))
    if spread.log_sd <= typical * sqrt(float(chdtri(spread.n - 1, 0.05)) / (spread.n - 1)):
        return ""
    return (
        f"the ceiling differs by {percent(spread.log_sd)} from ramp to ramp, more than the {percent(typical)} that "
        "one ramp states: one run was not enough"
    )


def _most(values: Sequence[Any]) -> list[Any]:
    """Signals that at least half of the repeats show; lists of numbers are joined."""
    items = [item for value in values if value for item in value]
    if items and not isinstance(items[0], str):
        return items
    return [item for item in dict.fromkeys(items) if 2 * items.count(item) >= len(values)]
