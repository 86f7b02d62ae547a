"""Intervals that a step cannot carry because it ran too near the ceiling. Rule: better no interval than one that lies.

How far a queue swings is a matter of minutes there; a step of one minute has seen too little of it, and nothing within
the step tells. Known only once the ceiling is (docs/method.md, "Where no interval is given").
"""

from __future__ import annotations

from collections.abc import Sequence

from loadramp.record.types import Estimate, Row

NEAR_RATIO = 0.75
NEAR_TTFT_RATIOS = {"mean": 0.5, "p99": 0.5, "p90": 0.6, "p95": 0.6}
"""For waiting for the first token: rare queues make its tails, the rarest and longest its mean and p99."""


def hold_back(rows: Sequence[Row], ceiling: Estimate) -> None:
    """Take the intervals out of rows above 0.75 of the ceiling; TTFT: of p90, p95 above 0.6, of mean, p99 above 0.5."""
    if ceiling.rate_rps is None or ceiling.status not in {"found", "below_range"}:
        return
    for row in rows:
        rate_rps = row["rate_rps"]
        if rate_rps is None or not row.get("stationary"):
            continue
        if rate_rps > NEAR_RATIO * ceiling.rate_rps:
            _strip(row, [name for name in row if name.endswith(("_low_s", "_high_s"))])
            row["stationary"] = False
            row["reasons"]["stationary"] = (
                f"no interval: this near the ceiling ({ceiling.rate_rps:.3g} req/s) queues swing more slowly than the "
                "step is long; repeats would give one"
            )
        else:
            tails = [tail for tail, ratio in NEAR_TTFT_RATIOS.items() if rate_rps > ratio * ceiling.rate_rps]
            limits = tuple(f"ttft_{tail}_{side}_s" for tail in tails for side in ("low", "high"))
            for name in _strip(row, [name for name in row if name.endswith(limits)]):
                if name.endswith("_high_s"):
                    row["reasons"][name] = "no interval: rare queues make it, this near the ceiling"


def _strip(row: Row, names: Sequence[str]) -> list[str]:
    """Set the columns to null; the names of those that held a number."""
    taken = [name for name in names if row[name] is not None]
    for name in taken:
        row[name] = None
    return taken
