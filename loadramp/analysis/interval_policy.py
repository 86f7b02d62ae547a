"""Intervals that a step cannot carry because it ran too near the ceiling. Rule: better no interval than one that lies.

How far a queue swings is a matter of minutes there; a step of one minute has seen too little of it, and nothing within
the step tells. Known only once the ceiling is (docs/method.md, "Where no interval is given").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loadramp.analysis.offered_load import load_of
from loadramp.analysis.slowness import slow_times_factor
from loadramp.record.row import Row, Statistic
from loadramp.record.types import Estimate

NEAR_RATIO = 0.75
NEAR_TTFT_RATIOS = {"mean": 0.5, "p99": 0.5, "p90": 0.6, "p95": 0.6}
"""For waiting for the first token: rare queues make its tails, the rarest and longest its mean and p99."""
WAITS = ("ttft", "e2e")
"""Latencies that hold the wait in the queue. Of an engine that is slow at times the ceiling is lower meanwhile: a queue
of these times makes them, and how often and how long it is slow takes more than a step to know."""
RARE = "no interval: rare queues make it, this near the ceiling"
SLOW = "no interval: queues of the engine's slow times make it, this near what it serves then; repeats would give one"
OF_STEPS = ("itl", "gap", "tpot")
"""Latencies that the engine's steps make. They hold a wait, too, where a queue makes the steps longer."""
FULL = (
    "no interval: this load fills the engine in its slow times, and when it is full this is longer than any limit given"
)
SHORT = "no interval: even a soak is too short for it, this near the ceiling; repeats would give one"
SOAK_S = 300.0
SOAK_RATIO = 0.9
SOAK_KEEPS = frozenset(
    {"itl_p90", "itl_p95", "itl_p99", "gap_p90", "gap_p95", "gap_p99"} | {"tpot_p90", "tpot_p95"}
    | {"ttft_p50", "sent_ttft_p50"}
)  # fmt: skip
"""What a soak of ``SOAK_S`` or longer, up to ``SOAK_RATIO`` of the ceiling, has seen enough of (docs/benchmarks.md)."""


def hold_back(rows: Sequence[Row], ceiling: Estimate) -> list[Row]:
    """The rows without intervals above 0.75 of the ceiling; TTFT: of p90, p95 above 0.6, of mean, p99 above 0.5.

    Of ``WAITS`` it is the ceiling of the engine's slow times that counts. So it is of mean and tails of ``OF_STEPS``
    where an overload made them longer than the interval says. A long soak keeps those of ``SOAK_KEEPS``.
    """
    top_rps = ceiling.known_rps
    if top_rps is None:
        return list(rows)
    slower, full = slow_times_factor(rows), _when_full(rows, top_rps)
    return [
        row if row.rate_rps is None or not row.stationary else _held_back(row, top_rps, slower, full)
        for row in rows
    ]  # fmt: skip


def _when_full(rows: Sequence[Row], top_rps: float) -> dict[str, float]:
    """Mean and tails of ``OF_STEPS`` above the ceiling, the largest of each, seconds."""
    full: dict[str, float] = {}
    for row in rows:
        if row.saturated and not row.void and row.rate_rps is not None and load_of(row) > top_rps:
            for stem, figure in row.statistics.items():
                if any(name in stem for name in OF_STEPS) and not stem.endswith("p50") and figure.value is not None:
                    full[stem] = max(full.get(stem, 0.0), figure.value)
    return full


def _held_back(row: Row, top_rps: float, slower: float, full: Mapping[str, float]) -> Row:
    figures, reasons = row.statistics, dict(row.reasons)
    if _near(row, top_rps):
        reasons["stationary"] = (
            f"no interval: this near the ceiling ({top_rps:.3g} req/s) queues swing more slowly than the "
            "step is long; repeats would give one"
        )
        return replace(row.with_statistics(_without_limits(figures), reasons), stationary=False)
    ratio, soak_s = load_of(row) / top_rps, _soak_s(row)
    gone = {stem: figure for stem, figure in figures.items() if not gives(stem, ratio, soak_s, slower)}
    short = ratio > NEAR_RATIO
    for stem, figure in gone.items():  # of a soak that near, more requests would not give one either
        if figure.high is not None or (short and figure.value is not None):
            steady = gives(stem, ratio, soak_s)
            reasons[f"{stem}_high_s"] = SLOW if steady else SHORT if short else RARE
    if slower > 1.0 and ratio <= NEAR_RATIO < ratio * slower:
        beyond = {
            stem: figure
            for stem, figure in figures.items()
            if figure.high is not None and figure.high < full.get(stem, 0.0)
        }
        gone |= beyond
        reasons |= {f"{stem}_high_s": FULL for stem in beyond}
    return row.with_statistics(_without_limits(gone), reasons)


def _without_limits(figures: Mapping[str, Statistic]) -> dict[str, Statistic]:
    return {stem: replace(figure, low=None, high=None) for stem, figure in figures.items()}


def gives(stem: str, ratio: float, soak_s: float = 0.0, slower: float = 1.0) -> bool:
    """A step at ``ratio`` of the ceiling has an interval of ``stem`` (``ttft_p99``, ``slo_e2e``, ...).

    Args:
        stem: which statistic.
        ratio: of the load over the ceiling.
        soak_s: how long the step is where it is a soak.
        slower: how many times as much the engine serves in the long run as in its slow times.
    """
    if any(name in stem for name in WAITS):
        ratio *= slower
    if soak_s >= SOAK_S and ratio <= SOAK_RATIO and stem in SOAK_KEEPS:
        return True
    tails = [tail for tail, most in NEAR_TTFT_RATIOS.items() if ratio > most]
    return ratio <= NEAR_RATIO and not stem.endswith(tuple(f"ttft_{tail}" for tail in tails))


def _near(row: Row, top_rps: float) -> bool:
    """Too near the ceiling for any interval."""
    ratio = load_of(row) / top_rps
    return ratio > NEAR_RATIO and not (_soak_s(row) >= SOAK_S and ratio <= SOAK_RATIO)


def _soak_s(row: Row) -> float:
    """Measured seconds of a soak, of another step 0."""
    return float(round(row.length_s, 6)) if row.role == "soak" else 0.0
