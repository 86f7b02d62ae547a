"""Does a soak get slower, or its server larger? A tested trend, not an eyeballed one. Pure; docs/method.md, "Drift".

Kendall's test against time on block p99s, its variance raised for the correlation of neighbours (Hamed and Rao 1998),
the slope by Theil and Sen. Rule: what the test could not have seen is inconclusive, never "no drift".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import asin, expm1, log, pi, sqrt

import numpy as np
from scipy.special import ndtr, ndtri

from loadramp.analysis import latency
from loadramp.analysis.quantiles import FLOOR_S, fewest_values, quantile
from loadramp.analysis.saturation import rising
from loadramp.analysis.thresholds import Status
from loadramp.record.table import Floats, Table, within
from loadramp.record.types import Sample
from loadramp.units import percent, plural, signed

ALPHA = 0.01
"""Of all metrics of one soak together: each is tested at its share (Bonferroni)."""
METRICS = {"ttft": "p99 TTFT", "itl": "p99 ITL"}
LEAST_BLOCKS, MOST_BLOCKS = 12, 40
SHORTEST_BLOCK_S = 15.0
LIVES = 3.0
"""A block is at least so many times as long as a request lives, so that blocks share few requests."""
MEMORY = {"process_memory_bytes": "memory of the server's process", "gpu_memory_used_bytes": "GPU memory"}
MEMORY_BLOCKS = 12
MEMORY_SKIP = 1.0 / 6.0
"""The first part of a soak, in which caches fill."""


@dataclass(slots=True, frozen=True)
class Trend:
    """A series against its order. ``p``: one-sided, of so clear a rise by chance. Slopes are per step of the series."""

    n: int
    p: float
    slope: float
    low: float
    high: float
    correlation: float
    """Of neighbours, corrected for its bias, at least 0."""


@dataclass(slots=True, frozen=True)
class Drift:
    """What one quantity did over a soak; ratios are over the whole of it (0.1: a tenth more at the end)."""

    metric: str
    words: str
    status: Status
    reason: str
    rise_ratio: float | None = None
    low_ratio: float | None = None
    high_ratio: float | None = None
    p: float | None = None
    block_s: float | None = None
    values: tuple[float | None, ...] = ()
    """One a block."""


def trend(values: Floats, miss: float = 0.05) -> Trend:
    """Kendall's test for a rise and the Theil-Sen slope with its 1 - ``miss`` interval.

    Var S is multiplied by 1 + 2 / (n (n-1) (n-2)) sum_k (n-k) (n-k-1) (n-k-2) r_k, r_k = (6 / pi) asin(rho^k / 2), rho
    the lag-1 correlation of what the line leaves, corrected for its bias: (n r + 2) / (n - 4).

    Args:
        values: in order, at least 5, all finite.
    """
    n = len(values)
    first, second = np.triu_indices(n, 1)
    apart = values[second] - values[first]
    slopes = np.sort(apart / (second - first))
    slope = float(np.median(slopes))
    rho = _correlation(values - slope * np.arange(n))
    spread = sqrt(n * (n - 1) * (2 * n + 5) / 18.0 * _inflation(n, rho))
    score = float(np.sign(apart).sum())
    p = float(1.0 - ndtr((score - 1.0) / spread))
    reach = float(ndtri(1.0 - miss / 2.0)) * spread
    at = [(len(slopes) - reach) / 2.0 - 1.0, (len(slopes) + reach) / 2.0]
    low = float(slopes[max(0, int(np.floor(at[0])))])
    high = float(slopes[min(len(slopes) - 1, int(np.ceil(at[1])))])
    return Trend(n, p, slope, low, high, rho)


def p99_drift(table: Table, window_s: tuple[float, float], *, largest_ratio: float, unseen_ratio: float) -> list[Drift]:
    """p99 TTFT and p99 ITL of a soak.

    fail: a rise that is shown (p below the metric's share of ALPHA) and above ``largest_ratio``. inconclusive: no
    such rise, but one of ``unseen_ratio`` is within the interval, or there are too few blocks. pass otherwise.

    Args:
        table: every request that was alive in the window.
        window_s: begin and end of the measured part.
        largest_ratio: a rise over the whole window that is let pass.
        unseen_ratio: a rise that the test must have been able to see.
    """
    blocks = block_count(table, window_s)
    shown = block_p99s(table, window_s, blocks) if blocks >= LEAST_BLOCKS else {}
    return [
        _judged(metric, words, shown.get(metric, []), window_s, blocks, largest_ratio, unseen_ratio,
                ALPHA / len(METRICS))
        for metric, words in METRICS.items()
    ]  # fmt: skip


def block_count(table: Table, window_s: tuple[float, float]) -> int:
    """Blocks of a soak: at most 40, each at least 15 s and 3 times as long as a request lives, 100 requests each."""
    due = within(table.due_s, window_s) & table.ok
    lived_s = table.e2e_s[due]
    lived_s = lived_s[~np.isnan(lived_s)]
    shortest_s = max(SHORTEST_BLOCK_S, LIVES * float(lived_s.mean())) if len(lived_s) else SHORTEST_BLOCK_S
    return int(min(MOST_BLOCKS, (window_s[1] - window_s[0]) / shortest_s + 1e-9, len(lived_s) / fewest_values(0.99)))


def block_p99s(table: Table, window_s: tuple[float, float], blocks: int) -> dict[str, list[float | None]]:
    """p99 TTFT and p99 ITL of each of ``blocks`` equal stretches of the window, looked at one after the other."""
    edges = np.linspace(*window_s, blocks + 1)
    out: dict[str, list[float | None]] = {metric: [] for metric in METRICS}
    done_s = table.done_s
    for begin_s, end_s in pairwise(edges.tolist()):
        window = latency.window_view(table.select((table.due_s < end_s) & (done_s >= begin_s)), (begin_s, end_s))
        ttft_s = window.due.ttft_s[window.due.ok]
        for metric, values in (("ttft", ttft_s[~np.isnan(ttft_s)]), ("itl", window.gaps.itl()[0])):
            enough = len(values) >= fewest_values(0.99)
            out[metric].append(max(quantile(np.sort(values), 0.99), FLOOR_S) if enough else None)
    return out


def _judged(
    metric: str,
    words: str,
    shown: Sequence[float | None],
    window_s: tuple[float, float],
    blocks: int,
    largest_ratio: float,
    unseen_ratio: float,
    alpha: float,
) -> Drift:
    if blocks < LEAST_BLOCKS:
        reason = f"too short to test: {plural(max(blocks, 0), 'block')} of 100 requests, it takes {LEAST_BLOCKS}"
        return Drift(metric, words, "inconclusive", reason)
    block_s = (window_s[1] - window_s[0]) / blocks
    logs = np.array([log(value) for value in shown if value is not None])
    if len(logs) < max(LEAST_BLOCKS, 0.9 * blocks):
        reason = f"only {len(logs)} of {plural(blocks, 'block')} hold the 100 values that a p99 takes"
        return Drift(metric, words, "inconclusive", reason, block_s=block_s, values=tuple(shown))
    trended = trend(logs, 2.0 * alpha)
    rise, low, high = (expm1(slope * (trended.n - 1)) for slope in (trended.slope, trended.low, trended.high))
    sure = f"{percent(1.0 - 2.0 * alpha)} interval"
    between = f"{signed(rise)} over the soak ({sure} {signed(low)} to {signed(high)})"
    status: Status
    if trended.p < alpha and rise > largest_ratio:
        status = "fail"
        reason = f"{words} rises by {between}; by chance so clear a rise comes {trended.p:.2g} of the time"
    elif high > unseen_ratio:
        status, reason = "inconclusive", f"{words}: {between}; a rise of {percent(unseen_ratio)} cannot be ruled out"
    else:
        what = "a small rise" if trended.p < alpha else "no rise beyond chance"
        status, reason = "pass", f"{words}: {what}, {between}"
    return Drift(metric, words, status, reason, rise, low, high, trended.p, block_s, tuple(shown))


def memory_growth(samples: Sequence[Sample], window_s: tuple[float, float], *, largest_ratio: float) -> list[Drift]:
    """Memory that the server shows, each page and quantity on its own; empty where it shows none.

    The first sixth is left out. fail: the last quarter is more than ``largest_ratio`` above the first, and the block
    medians rise (Kendall's exact test, p < 0.01). inconclusive: so much above, but in one step.
    """
    begin_s = window_s[0] + MEMORY_SKIP * (window_s[1] - window_s[0])
    inside = [s for s in samples if begin_s <= s.t_s < window_s[1]]
    out = []
    for url in dict.fromkeys(s.url for s in inside):
        for name, words in MEMORY.items():
            points = [(s.t_s, s.values[name]) for s in inside if s.url == url and name in s.values]
            if points:
                at_s, values = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
                out.append(_grown(name, f"{words} ({url})", at_s, values, (begin_s, window_s[1]), largest_ratio))
    return out


def _grown(
    name: str, words: str, at_s: Floats, values: Floats, window_s: tuple[float, float], largest_ratio: float
) -> Drift:
    block = ((at_s - window_s[0]) * (MEMORY_BLOCKS / (window_s[1] - window_s[0]))).astype(np.int64)
    medians = [float(np.median(values[block == k])) for k in range(MEMORY_BLOCKS) if bool((block == k).any())]
    block_s = (window_s[1] - window_s[0]) / MEMORY_BLOCKS
    if len(medians) < MEMORY_BLOCKS or min(medians) <= 0.0:
        return Drift(name, words, "inconclusive", f"{words}: not shown all through the soak", block_s=block_s)
    first, last = float(np.median(medians[:3])), float(np.median(medians[-3:]))
    grown = last / first - 1.0
    p = rising(np.array(medians))
    status: Status
    observed = f"{words}: {signed(grown)} from {first / 1e9:.3g} to {last / 1e9:.3g} GB"
    if grown <= largest_ratio:
        status, reason = "pass", observed
    elif p < ALPHA:
        status, reason = "fail", f"{observed}, and it goes on growing"
    else:
        status, reason = "inconclusive", f"{observed}, but not steadily: soak longer to see whether it stays"
    return Drift(name, words, status, reason, grown, None, None, p, block_s, tuple(medians))


def _correlation(rest: Floats) -> float:
    n = len(rest)
    centred = rest - rest.mean()
    power = float(np.square(centred).sum())
    raw = float((centred[1:] * centred[:-1]).sum()) / power if power > 0.0 else 0.0
    return min(0.9, max(0.0, (n * raw + 2.0) / (n - 4.0)))


def _inflation(n: int, rho: float) -> float:
    terms = ((n - k) * (n - k - 1) * (n - k - 2) * (6.0 / pi) * asin(rho**k / 2.0) for k in range(1, n))
    return 1.0 + 2.0 / (n * (n - 1) * (n - 2)) * sum(terms)
