"""Which steps kept up and which show that the endpoint was overloaded or had broken down. Pure.

Rule: void rows are never used, and an alarm below a step that kept up was a hiccup.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from loadramp.analysis.load_errors import load_arrival_rps, load_requests, too_many
from loadramp.analysis.offered_load import load_of
from loadramp.record.row import Row
from loadramp.scenario.scenario import ERROR_RATIO

T = TypeVar("T")
GONE_REQUESTS = 20
"""So many failures end a run whose endpoint went away; a step that was cut short with fewer tells nothing of that."""
HALTED_RATIO = 0.25
"""A tenth of a step that serves less than this share of its median tenth: for a while the endpoint did not answer."""
LESS_RATIO = 0.9
"""Below this share of what was served at a quiet rate the endpoint has broken down, not reached its ceiling."""
SIGNS = {
    "queue": "the queue grows",
    "backlog": "requests in flight pile up",
    "ttft_trend": "the wait for the first token grows",
    "server_queue": "the server's own queue grows",
}
"""What each signal of a row says."""


@dataclass(slots=True, frozen=True)
class Climb:
    """Open-loop steps by rate, cut at the highest quiet one: what lies above it is overload, or an alarm."""

    rows: Sequence[Row]
    quiet: int
    """Index of the highest quiet row, -1 without."""

    @property
    def above(self) -> Sequence[Row]:
        return self.rows[self.quiet + 1 :]

    @property
    def last_quiet(self) -> Row | None:
        return self.rows[self.quiet] if self.quiet >= 0 else None

    @property
    def overloaded(self) -> Row | None:
        """First row above the quiet ones that settles it: saturated and in deficit, or too many errors."""
        return next((row for row in self.above if shows_overload(row)), None)

    @property
    def hiccups(self) -> list[Row]:
        """Rows with an alarm that a quiet row at a higher rate has refuted."""
        return [row for row in self.rows[: max(self.quiet, 0)] if row.saturated or row.deficit]


def usable(rows: Sequence[Row], roles: tuple[str, ...] = ("step",)) -> list[Row]:
    """Rows that the client delivered, in which requests were due that were a load, and that went on to their end."""
    return [row for row in rows if not row.void and row.role in roles and load_requests(row) > 0 and counts(row)]


def counts(row: Row) -> bool:
    """False of a step that was cut short, unless it was because the endpoint went away: that is what it shows."""
    if not row.partial:
        return True
    many = row.failed >= GONE_REQUESTS or not row.ok
    return failing(row) and unreachable(row) and many


def climb(rows: Sequence[Row]) -> Climb:
    """The open-loop steps in order of the rates that they speak for."""
    steps = sorted((row for row in usable(rows) if row.rate_rps), key=load_of)
    return Climb(steps, highest(steps, lambda row: not alarmed(row)))


def highest(steps: Sequence[T], kept_up: Callable[[T], bool]) -> int:
    """Where a climb is cut: the index of the highest step that kept up, -1 without."""
    return max((i for i, step in enumerate(steps) if kept_up(step)), default=-1)


def signs_of(row: Row) -> str:
    """The signals of a row in words; empty where none fired."""
    return " and ".join(SIGNS.get(name, name) for name in row.signals)


def shows_overload(row: Row) -> bool:
    """Saturated and in deficit, or too many errors."""
    return (row.saturated and row.deficit) or failing(row)


def failing(row: Row) -> bool:
    """More errors that may depend on load than the scenario allows (column ``overloaded``), or than it does by default
    where that is absent."""
    if row.overloaded is not None:
        return row.overloaded
    return too_many(row.failed - row.load_independent_errors, load_requests(row), ERROR_RATIO)


def alarmed(row: Row) -> bool:
    """Any sign of overload: the opposite of quiet."""
    return row.saturated or row.deficit or failing(row)


def unreachable(row: Row) -> bool:
    """Nothing succeeded, or most of what failed found nobody listening."""
    return not row.ok or 2 * row.errors.get("connect", 0) > row.failed


def went_away(row: Row, quiet: Row) -> bool:
    """The endpoint could not be reached, and for a while it served next to nothing, or less than at a ``quiet`` rate.

    Where it goes on to serve as much as before, connections are refused because too many are open: that is load.
    """
    if not unreachable(row):
        return False
    tenths = np.array(row.throughput_blocks, dtype=np.float64)
    stopped = tenths.min() < HALTED_RATIO * np.median(tenths)
    return not row.ok or bool(stopped) or row.throughput_rps < LESS_RATIO * load_arrival_rps(quiet)
