"""Is the endpoint falling behind? Client-side signs of saturation, and the server's queue where it can be read.

All of it is known the instant the window ends. Formulas: docs/method.md, "Signals". Thresholds were tuned on simulated
engines, not on one server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb, factorial

import numpy as np
from scipy.special import stdtr

from loadramp.record.table import Floats, Table, within
from loadramp.record.types import Sample

BLOCKS = 10
SIGNIFICANT = 0.01
DEFICIT_RATIO = 0.85


@dataclass(slots=True, frozen=True)
class Occupancy:
    """In flight (scheduled, not finished) and queued (scheduled, no first token yet) at the instants ``t_s``."""

    t_s: Floats
    in_flight: Floats
    queued: Floats

    def third(self, which: int) -> float:
        """Mean queue of the first (0) or last (2) third of the window."""
        part = np.array_split(self.queued, 3)[which]
        return float(part.mean()) if len(part) else 0.0


@dataclass(slots=True, frozen=True)
class Sign:
    """One signal: whether it fired, and the figures it was judged by (empty: there was nothing to judge)."""

    name: str
    fired: bool
    figures: Mapping[str, float]


def occupancy(table: Table, window_s: tuple[float, float]) -> Occupancy:
    """Sample N(t) and q(t) over a window: once a second, at least 30 times."""
    begin_s, end_s = window_s
    count = max(30, round(end_s - begin_s))
    t_s = begin_s + (np.arange(count, dtype=np.float64) + 0.5) * ((end_s - begin_s) / count)
    return Occupancy(t_s, in_flight_at(table, t_s), queued_at(table, t_s))


def in_flight_at(table: Table, t_s: Floats) -> Floats:
    """N(t): requests due at or before t and not finished at t."""
    return _present(table.due_s, table.done_s, t_s)


def queued_at(table: Table, t_s: Floats) -> Floats:
    """q(t): requests due at or before t that have neither a first token nor an end at t."""
    done_s = table.done_s
    first_s = np.where(np.isnan(table.first_s), done_s, np.minimum(table.first_s, done_s))
    return _present(table.due_s, first_s, t_s)


def queue(occupancy: Occupancy, rate_rps: float, base_ttft_p50_s: float) -> Sign:
    """S1: the queue of the last third is above max(5, 0.1 running, 4 r TTFT50 of the first step) and has grown."""
    running = float(np.mean(occupancy.in_flight - occupancy.queued))
    first, last = occupancy.third(0), occupancy.third(2)
    limit = max(5.0, 0.1 * running, 4.0 * rate_rps * base_ttft_p50_s)
    return Sign("queue", last > limit and last > first, {"first": first, "last": last, "limit": limit})


def backlog(occupancy: Occupancy, rate_rps: float, arrivals: int) -> Sign:
    """S2: requests in flight climb.

    Slope of 10 block means of N: one-sided t test (8 degrees) p < 0.01, above 0.05 r, and the last two blocks exceed
    the first two by max(0.05 A, 3 sqrt(mean N)).
    """
    parts = np.array_split(np.arange(len(occupancy.t_s)), BLOCKS)
    means = np.array([occupancy.in_flight[part].mean() for part in parts])
    at_s = np.array([occupancy.t_s[part].mean() for part in parts])
    slope, p = trend(at_s, means)
    rise = float(means[-2:].mean() - means[:2].mean())
    limit = max(0.05 * arrivals, 3.0 * float(np.sqrt(occupancy.in_flight.mean())))
    fired = p < SIGNIFICANT and slope > 0.05 * rate_rps and rise > limit
    return Sign("backlog", fired, {"p": p, "slope_rps": slope, "rise": rise, "limit": limit})


def ttft_trend(table: Table, window_s: tuple[float, float]) -> Sign:
    """S3: waits for the first token climb, by the instant of the first token (by arrival, overload would be unseen).

    10 block medians: Kendall's tau one-sided p < 0.01, and the last three have more than twice the median of the
    first three. Needs 30 first tokens.
    """
    first_s = table.first_s
    inside = within(first_s, window_s)
    if np.count_nonzero(inside) < 3 * BLOCKS:
        return Sign("ttft_trend", False, {})
    ttft_s = table.ttft_s[inside][np.argsort(first_s[inside], kind="stable")]
    medians = np.array([np.median(part) for part in np.array_split(ttft_s, BLOCKS)])
    p, ratio = rising(medians), float(np.median(medians[-3:]) / max(np.median(medians[:3]), 1e-9))
    return Sign("ttft_trend", p < SIGNIFICANT and ratio > 2.0, {"p": p, "ratio": ratio})


def server_queue(samples: Sequence[Sample], window_s: tuple[float, float], own: float) -> Sign:
    """S4: the server's own waiting queue in the last third is above max(5, 0.1 running).

    ``own`` is this client's queue of the last third. Below one request, what waits there is somebody else's: the page
    is of another server or model, or the requests of this client do not wait behind it.
    """
    rows = totals(samples, window_s)
    late = rows[:, 0] >= window_s[0] + (window_s[1] - window_s[0]) * 2.0 / 3.0
    if len(rows) < 3 or not late.any():
        return Sign("server_queue", False, {})
    last, limit = float(rows[late, 1].mean()), max(5.0, 0.1 * float(rows[:, 2].mean()))
    return Sign("server_queue", last > limit and own >= 1.0, {"last": last, "limit": limit})


def deficit(throughput_rps: float, rate_rps: float, length_s: float, gap_cv: float = 1.0) -> bool:
    """Throughput below 0.85 of the arrivals, and short by more than a late burst explains.

    That is 2 standard deviations of the number of arrivals A: 2 cv sqrt(A), cv that of the gaps between arrivals.
    """
    return throughput_rps < DEFICIT_RATIO * rate_rps and short_of(throughput_rps, rate_rps, length_s, gap_cv)


def short_of(throughput_rps: float, rate_rps: float, length_s: float, gap_cv: float = 1.0) -> bool:
    """Throughput is below the arrivals by more than a late burst explains."""
    short = (rate_rps - throughput_rps) * length_s
    return short > 2.0 * max(gap_cv, 1.0) * float(np.sqrt(rate_rps * length_s))


def variation(due_s: Floats) -> float:
    """Coefficient of variation of the gaps between arrivals (1: Poisson); 1 when there are too few to say."""
    gaps_s = np.diff(np.sort(due_s))
    return float(gaps_s.std() / gaps_s.mean()) if len(gaps_s) >= 20 and gaps_s.mean() > 0.0 else 1.0


def totals(samples: Sequence[Sample], window_s: tuple[float, float]) -> Floats:
    """(instant, waiting, running) of all servers together, one row for each sample of the first url seen, shape (k, 3).

    Every other url contributes its latest sample within the window; nothing is counted before each url was seen once.
    """
    inside = [s for s in samples if window_s[0] <= s.t_s < window_s[1] and "waiting" in s.values]
    urls = list(dict.fromkeys(s.url for s in inside))
    latest: dict[str, tuple[float, float]] = {}
    out: list[tuple[float, float, float]] = []
    for s in sorted(inside, key=lambda sample: sample.t_s):
        latest[s.url] = (s.values["waiting"], s.values.get("running", 0.0))
        if len(latest) == len(urls) and s.url == urls[0]:
            out.append((s.t_s, sum(w for w, _ in latest.values()), sum(r for _, r in latest.values())))
    return np.array(out, dtype=np.float64).reshape(-1, 3)


def trend(x: Floats, y: Floats) -> tuple[float, float]:
    """Least-squares slope and the one-sided p value of its being above zero (Student's t, n - 2 degrees).

    (0, 1) where all of ``x`` are alike: what was looked at for no time shows no trend.
    """
    centred = x - x.mean()
    spread = float(np.square(centred).sum())
    if spread == 0.0:
        return 0.0, 1.0
    slope = float((centred * y).sum()) / spread
    rest = y - y.mean() - slope * centred
    degrees = len(x) - 2
    error = float(np.sqrt(np.square(rest).sum() / degrees / spread))
    if error <= 1e-12 * max(1.0, abs(slope)):
        return slope, 0.0 if slope > 0.0 else 1.0
    return slope, 1.0 - float(stdtr(degrees, slope / error))


def rising(values: Floats) -> float:
    """One-sided p value of Kendall's tau against order: P(at least so many pairs in rising order by chance).

    Exact for distinct values; ties count as not rising, which errs on the side of no alarm.
    """
    n = len(values)
    pairs = int(sum(np.count_nonzero(values[i + 1 :] > values[i]) for i in range(n)))
    ways = [1]  # ways[k]: permutations of m elements with k pairs in order (Mahonian numbers)
    for m in range(2, n + 1):
        padded = np.concatenate((np.zeros(m - 1), ways, np.zeros(m - 1)))
        ways = [int(padded[k : k + m].sum()) for k in range(comb(m, 2) + 1)]
    return sum(ways[pairs:]) / factorial(n)


def _present(from_s: Floats, to_s: Floats, t_s: Floats) -> Floats:
    begun = np.searchsorted(np.sort(from_s), t_s, side="right")
    ended = np.searchsorted(np.sort(to_s), t_s, side="right")
    return np.asarray(begun - ended, dtype=np.float64)
