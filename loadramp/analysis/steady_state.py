"""When is a step measured: how long to wait, how long to measure, and did it settle? Formulas: docs/method.md."""

from collections.abc import Sequence

import numpy as np

from loadramp.analysis.quantiles import quantile
from loadramp.analysis.saturation import Occupancy, in_flight_at, queued_at, trend
from loadramp.record.row import Row
from loadramp.record.table import Floats, Table

SHORTEST_WARMUP_S = 10.0
LONGEST_TAIL_S = 60.0
FULL = 0.95


def fill_up_s(e2e_s: Floats) -> float:
    """t95: when a step's requests in flight have reached FULL of their final number.

    Smallest t with mean(min(S, t)) / mean(S) >= FULL, S the end-to-end times of recent requests (an M/G/inf system
    fills up like that). 0 without requests.
    """
    ordered = np.sort(e2e_s[~np.isnan(e2e_s)])
    n = len(ordered)
    total = float(ordered.sum())
    if n == 0 or total <= 0.0:
        return 0.0
    before = np.concatenate(([0.0], np.cumsum(ordered)[:-1]))
    served = before + ordered * (n - np.arange(n))  # sum of min(S, t) at t = ordered[i]
    i = int(np.searchsorted(served, FULL * total))
    if i >= n:
        return float(ordered[-1])
    return float((FULL * total - before[i]) / (n - i))


def warmup_s(e2e_s: Floats, measure_s: float, factor: float = 2.0) -> float:
    """Warm-up of a step: clip(2 t95, 10 s, 0.4 of the whole step), the whole being warm-up plus ``measure_s``."""
    longest_s = measure_s * 2.0 / 3.0
    return min(max(factor * fill_up_s(e2e_s), SHORTEST_WARMUP_S), longest_s)


def tail_s(e2e_s: Floats) -> float:
    """Load to offer after the last step while its requests finish: p99 of the end-to-end times, at most 60 s.

    60 s when nothing has finished yet; a caller with nothing in flight offers none.
    """
    known = np.sort(e2e_s[~np.isnan(e2e_s)])
    return min(quantile(known, 0.99), LONGEST_TAIL_S) if len(known) else LONGEST_TAIL_S


def settled(load: Occupancy, e2e_s: Floats, waited_s: float) -> bool:
    """False when the window began before the requests in flight had filled up and they still rose within it.

    Before t95, and 10 block means of N climb: p < 0.01 (Student's t, 8 degrees) and by more than a tenth.
    """
    if waited_s >= fill_up_s(e2e_s):
        return True
    parts = np.array_split(np.arange(len(load.t_s)), 10)
    means = np.array([load.in_flight[part].mean() for part in parts])
    _, p = trend(np.array([load.t_s[part].mean() for part in parts]), means)
    return bool(p >= 0.01 or means[-2:].mean() - means[:2].mean() <= 0.1 * means.mean())


def began_with_backlog(table: Table, begin_s: float) -> bool:
    """True when requests of before still queued as the step began: q above max(5, 0.1 running)."""
    at = np.array([begin_s])
    queued = float(queued_at(table, at)[0])
    running = float(in_flight_at(table, at)[0]) - queued
    return queued > max(5.0, 0.1 * running)


def recovery_s(table: Table, from_s: float, until_s: float, level: float, ratio: float = 1.2) -> float | None:
    """How long after ``from_s`` the requests in flight came down to ``ratio * level``, ``level`` being N at the same
    rate on the way up; None when they did not by ``until_s``."""
    t_s = np.arange(from_s, until_s, 1.0)
    below = np.flatnonzero(in_flight_at(table, t_s) <= ratio * max(level, 1.0))
    return float(t_s[below[0]] - from_s) if len(below) else None


def hysteresis(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """(rate, p99 ITL on the way down / on the way up) of every rate that was measured both ways.

    Above 1.2 the endpoint does not come back by itself: metastable, or thrashing.
    """
    up = {row.rate_rps: row for row in rows if row.role == "step" and not row.void}
    out = []
    for row in rows:
        before = up.get(row.rate_rps) if row.role == "down" and not row.void else None
        was_s, is_s = before.of("itl").p99.value if before else None, row.of("itl").p99.value
        if was_s and is_s:
            out.append((row.rate_rps or 0.0, is_s / was_s))
    return out
