"""Which failures of a step count as evidence about load. Pure.

Rule: a request that would fail on an idle server too (``said.class_of``) is a failure and no part of the load: load is
judged by the other requests, while the run goes on and at its end.
"""

from __future__ import annotations

import numpy as np

from loadramp.judge.said import load_independent
from loadramp.record.table import Bools, Table
from loadramp.record.types import Row


def independent_errors(row: Row) -> int:
    """Failed requests of the row whose failure does not depend on load."""
    return int(row.get("load_independent_errors") or 0)


def load_requests(row: Row) -> int:
    """Requests of the row that were a load."""
    return int(row["requests"]) - independent_errors(row)


def load_arrival_rps(row: Row) -> float:
    """Requests a second that were a load: those due, without those that fail whatever the load."""
    arrived = float(row["arrival_rps"])
    return arrived * load_requests(row) / int(row["requests"]) if independent_errors(row) else arrived


def load_error_ratio(row: Row) -> float | None:
    """Share of the requests that were a load and have ended that failed; None: none has ended."""
    apart = independent_errors(row)
    if not apart:
        known = row["error_ratio"]
        return None if known is None else float(known)
    ended = int(row["requests"]) - int(row["pending"]) - apart
    return (sum(row["errors"].values()) - apart) / ended if ended > 0 else None


def known_independent(due: Table, end_s: float) -> Bools:
    """Requests that had failed by ``end_s`` whatever the load, shape n: what is known when the step ends."""
    return np.asarray(load_independent(due) & (due.done_s <= end_s), dtype=np.bool_)


def fails_too_often(due: Table, end_s: float, max_error_ratio: float) -> bool:
    """More failures that may depend on load than ``max_error_ratio``: of what had ended when the step did, by which a
    ramp may have ended, or of all that has ended since.

    Args:
        due: the requests of the step.
        end_s: the end of its window.
        max_error_ratio: of the scenario.
    """
    load = due.select(~load_independent(due))
    return any(
        bool(ended.any()) and int(np.count_nonzero(load.failed & ended)) > max_error_ratio * np.count_nonzero(ended)
        for ended in (load.done_s <= end_s, ~load.in_flight)
    )
