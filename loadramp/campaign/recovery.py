"""When was it well again, what did it cost, was it there at all? From client records and health checks. Pure.

Rule: recovered is what callers meet, so it is read off requests; a health check that says 200 proves nothing alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from loadramp.analysis import latency
from loadramp.analysis.quantiles import quantile
from loadramp.campaign.table import hold_s
from loadramp.record.table import Bools, Table, within

SERVED_RATIO = 0.9
USUAL_FACTOR = 2.0
"""A request is served as usual when its first token comes within so many times the p95 of before."""
REFUSED_STATUS = (429.0, 503.0)
GAVE_UP = frozenset({"timeout_first", "timeout_idle", "timeout_total"})
SILENT = GAVE_UP | {"empty"}
"""Nobody told the caller anything."""
TURN = 1 << 40
"""Later turns of sessions have numbers above it."""


@dataclass(slots=True, frozen=True)
class HealthSample:
    """One health check beside the load."""

    t_s: float
    """When it was sent."""
    ok: bool
    took_s: float = 0.0
    error: str | None = None
    """``timeout``, ``http 503``, ``connection refused``, ..."""


@dataclass(slots=True, frozen=True)
class Outage:
    """Consecutive health checks that failed: from the first of them to the next good one (or the last check)."""

    begin_s: float
    end_s: float
    error: str
    checks: int

    @property
    def down(self) -> bool:
        """It was not there: refused, broken off, or an HTTP error. Time-outs alone are a busy server."""
        return self.error != "timeout"


@dataclass(slots=True, frozen=True)
class Availability:
    """Health checks of a window."""

    checks: int = 0
    good: int = 0
    outages: tuple[Outage, ...] = ()

    @property
    def ratio(self) -> float | None:
        return self.good / self.checks if self.checks else None

    @property
    def down_s(self) -> float:
        """Seconds within outages."""
        return sum(outage.end_s - outage.begin_s for outage in self.outages)


@dataclass(slots=True, frozen=True)
class Failures:
    """Failed requests by what a caller can do about them."""

    requests: int = 0
    """That ended."""
    refused: int = 0
    """429 or 503, in the status or within the stream: try again elsewhere."""
    gave_up: int = 0
    """The client's own time-outs."""
    broken: int = 0
    """500s, resets, truncated or empty answers, refused connections."""
    kinds: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Harm:
    """What an event did to requests that were alive in it or came until it was over."""

    failed: int
    slowed: int
    """Succeeded, but with a first token later than usual or a gap that a reader notices."""
    silent: int
    """Never got an answer nor an error: the client gave up, or the answer was empty."""
    requests: int
    kinds: Mapping[str, int] = field(default_factory=dict)


def availability(health: Sequence[HealthSample], begin_s: float, end_s: float) -> Availability:
    """The checks sent in ``[begin_s, end_s)``."""
    inside = sorted((check for check in health if begin_s <= check.t_s < end_s), key=lambda check: check.t_s)
    outages: list[Outage] = []
    for before, check in pairwise([HealthSample(begin_s, True), *inside]):
        if check.ok:
            if not before.ok:
                last = outages[-1]
                outages[-1] = Outage(last.begin_s, check.t_s, last.error, last.checks)
        elif before.ok:
            outages.append(Outage(check.t_s, check.t_s + check.took_s, check.error or "", 1))
        else:
            last = outages[-1]
            error = check.error or "" if last.error == "timeout" else last.error
            outages[-1] = Outage(last.begin_s, check.t_s + check.took_s, error, last.checks + 1)
    return Availability(len(inside), sum(check.ok for check in inside), tuple(outages))


def usual_ttft_s(table: Table, begin_s: float, end_s: float, slo_ttft_s: float | None = None) -> float | None:
    """The longest wait for a first token that is as usual: twice the p95 of requests due in the window, or the SLO's
    limit where that is more. None under 20 successes."""
    due = within(table.due_s, (begin_s, end_s)) & table.ok
    ttft_s = np.sort(table.ttft_s[due & ~np.isnan(table.ttft_s)])
    if len(ttft_s) < 20:
        return None
    return max(USUAL_FACTOR * quantile(ttft_s, 0.95), slo_ttft_s or 0.0)


def recovery_s(table: Table, from_s: float, until_s: float, usual_s: float, rate_rps: float = 1.0) -> float | None:
    """How long after ``from_s`` it was well for the first time for 10 s (longer at low rates: for 10 requests).

    Well: of the requests due in that time none fails, and nine of ten get their first token within ``usual_s``.
    None when that was not so by ``until_s``.
    """
    well_s = hold_s(rate_rps)
    order = np.argsort(table.due_s, kind="stable")
    due_s = table.due_s[order]
    served = _cumulated((table.ok & (np.nan_to_num(table.ttft_s, nan=np.inf) <= usual_s))[order])
    failed = _cumulated(table.failed[order])
    for at_s in np.arange(from_s, until_s - well_s + 1e-6, 1.0):
        first, last = np.searchsorted(due_s, (at_s, at_s + well_s))
        n = int(last - first)
        if n and failed[last] == failed[first] and served[last] - served[first] >= SERVED_RATIO * n:
            return float(at_s - from_s)
    return None


def failures(table: Table, begin_s: float, end_s: float) -> Failures:
    """Requests due in ``[begin_s, end_s)``, by how they failed. The client's own refusals to send are not counted."""
    due = table.select(within(table.due_s, (begin_s, end_s)) & ~table.in_flight & (table.error != "client"))
    failed = due.select(due.failed)
    refused = _refused(failed)
    gave_up = np.isin(failed.error, list(GAVE_UP)) & ~refused
    kinds = Counter(map(str, failed.error))
    n_refused, n_gave_up = int(refused.sum()), int(gave_up.sum())
    return Failures(len(due), n_refused, n_gave_up, len(failed) - n_refused - n_gave_up, dict(kinds.most_common()))


def harm(table: Table, from_s: float, until_s: float, usual_s: float) -> Harm:
    """What became of requests that were alive at ``from_s`` or due until ``until_s``."""
    touched = table.select((table.due_s < until_s) & (table.done_s >= from_s))
    failed = touched.failed & (touched.error != "client")
    gaps = touched.gaps()
    late = (gaps.gap_s > latency.stall_limit_s(table.gaps().gap_s)) & within(gaps.end_s, (from_s, until_s))
    stalled = np.zeros(len(touched), dtype=np.bool_)
    stalled[gaps.request[late]] = True
    waited = (touched.due_s >= from_s) & (np.nan_to_num(touched.ttft_s) > usual_s)
    silent = failed & np.isin(touched.error, list(SILENT))
    kinds = Counter(map(str, touched.error[failed]))
    return Harm(
        int(failed.sum()), int((touched.ok & (stalled | waited)).sum()), int(silent.sum()), len(touched),
        dict(kinds.most_common()),
    )  # fmt: skip


def unaccounted(table: Table) -> int:
    """Planned requests without a record: numbers missing between the first and the last of each step."""
    missing = 0
    for step in np.unique(table.step):
        numbers = np.unique(table.seq[(table.step == step) & (table.seq < TURN)])
        if len(numbers):
            missing += int(numbers[-1] - numbers[0]) + 1 - len(numbers)
    return missing


def _refused(failed: Table) -> Bools:
    """429 or 503 as the status of the reply, or of an error within a 200 stream."""
    return np.asarray(np.isin(failed.failure_status, REFUSED_STATUS) | (failed.error == "http_429"), dtype=np.bool_)


def _cumulated(flags: Bools) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    out = np.zeros(len(flags) + 1, dtype=np.int64)
    np.cumsum(flags, out=out[1:])
    return out
