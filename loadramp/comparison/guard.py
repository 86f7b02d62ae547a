"""Reasons to stop two arms at once, looked for every few seconds: too many failures, or latencies far beyond the SLO.

What it finds goes into ``info``, and ends both: ``rollback`` where it is the candidate's fault, ``stopped`` where the
baseline is no yardstick.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loadramp.analysis.error_classes import load_independent
from loadramp.analysis.proportions import fisher
from loadramp.analysis.quantiles import fewest_values, quantile, quantile_name
from loadramp.comparison.blocks import failures_of
from loadramp.comparison.info import ComparisonInfo
from loadramp.comparison.table import canary_of
from loadramp.record.row import SHORT_NAMES
from loadramp.record.table import Floats, Table
from loadramp.record.types import EVENTS
from loadramp.registry import CannotMeasure
from loadramp.runner.run_session import RunSession
from loadramp.scenario.scenario import Scenario
from loadramp.units import latency, multiple, percent, plural, span

GUARD_S = 5.0
"""How often it looks."""
RECENT_S = 60.0
ALPHA = 0.001
"""Chance of one look to see too many failures where there are none too many; there may be hundreds of looks."""
LEAST_FAILED = 3


@dataclass(slots=True)
class Guard:
    """Watches what is told to it: it is off until ``fails_from_s`` is set."""

    scenario: Scenario
    baseline: RunSession
    candidate: RunSession
    info: ComparisonInfo
    """It knows whether both serve the same, and whether the hosts were swapped."""
    say: Callable[[str], None]
    fails_from_s: float | None = None
    """Failures count from here on, those of the warm-up too; None: nothing is guarded."""
    slow_from_s: float | None = None
    """Latencies count from here on."""

    def off(self) -> None:
        self.fails_from_s = self.slow_from_s = None

    async def watch(self) -> None:
        """Look every GUARD_S until the arms stop."""
        with contextlib.suppress(CannotMeasure):  # a fleet that broke is told by the loop that sends
            while not self.baseline.stop.is_set():
                await asyncio.sleep(GUARD_S)
                if self.fails_from_s is None:
                    continue
                self.baseline.collect()
                self.candidate.collect()
                if self.info.same_version:
                    self._compare(self.fails_from_s)
                else:
                    await self._look_out(self.fails_from_s, self.slow_from_s)

    async def _look_out(self, fails_from_s: float, slow_from_s: float | None) -> None:
        """Does the candidate fail or crawl so badly that nothing more is to be asked of it?"""
        arms = self.baseline, self.candidate
        base, candidate = arms if self.info.swapped_at_s is None else arms[::-1]
        reason = self._failing(candidate, fails_from_s)
        if reason and self._alike(base, candidate, fails_from_s):
            reason = ""
        elif reason and not self._more(base, candidate, fails_from_s):
            if self._failing(base, fails_from_s):
                self._end("stopped", f"both fail, and the candidate is not shown to fail more: {reason}", reason)
            return  # or the baseline is not yet known to: more requests will tell
        if not reason and slow_from_s is not None:
            reason = await self._crawling(candidate, slow_from_s)
            if reason and await self._crawling(base, slow_from_s):
                return  # both crawl: that is no fault of the candidate
        if reason:
            self._end("rollback", f"stopped at once: {reason}", reason)
        elif (reason := self._failing(base, fails_from_s)) and not self._alike(base, candidate, fails_from_s):
            self._end("stopped", f"the baseline cannot be compared with: {reason}", reason)

    def _compare(self, fails_from_s: float) -> None:
        """A/A: a host that fails more than the other is a difference between them; both alike are no measurement. How
        slow they are is what is compared."""
        for name, arm in (("baseline", self.baseline), ("candidate", self.candidate)):
            reason = self._failing(arm, fails_from_s)
            if reason:
                tables = [arm.table(since_s=fails_from_s) for arm in (self.baseline, self.candidate)]
                differ = one_fails_more(tables[0], tables[1], fails_from_s)
                self._end("rollback" if differ else "stopped", f"stopped at once ({name}): {reason}", reason)
                return

    def _end(self, what: Literal["rollback", "stopped"], why: str, reason: str) -> None:
        setattr(self.info, what, why)
        self.say(reason)
        self.baseline.stop.set()

    def _alike(self, base: RunSession, candidate: RunSession, since_s: float) -> bool:
        """Neither fails too often but for failures that do not depend on load, and of these neither has more: it is the
        requests that are wrong, and both say so. They still count when the two are compared."""
        tables = [arm.table(since_s=since_s) for arm in (base, candidate)]
        limit = canary_of(self.scenario).rollback_error_ratio
        of_load = [table.select(~load_independent(table)) for table in tables]
        if any(too_many_failures(table, limit, since_s) for table in of_load):
            return False
        return any(bool(table.ok.any()) for table in tables) and not one_fails_more(tables[0], tables[1], since_s)

    def _more(self, base: RunSession, candidate: RunSession, since_s: float) -> bool:
        """Whether the candidate fails more than a baseline that fails too often as well, as far as can be seen."""
        tables = [arm.table(since_s=since_s) for arm in (base, candidate)]
        share = failures_of(tables[0].select(tables[0].due_s >= since_s))
        limit = canary_of(self.scenario).rollback_error_ratio
        fine = share.failed < LEAST_FAILED or share.failed <= limit * share.requests
        return fine or one_fails_more(tables[0], tables[1], since_s)

    def _failing(self, arm: RunSession, since_s: float) -> str:
        limit = canary_of(self.scenario).rollback_error_ratio
        return too_many_failures(arm.table(since_s=since_s), limit, since_s)

    async def _crawling(self, arm: RunSession, since_s: float) -> str:
        slo = self.scenario.slo
        table = arm.table(await arm.snapshot(), since_s)
        limits = slo.limits
        if bool((table.token_source == EVENTS).any()):  # how slow its tokens are is not known
            limits = {name: limit_s for name, limit_s in limits.items() if name not in {"itl", "tpot"}}
        factor = canary_of(self.scenario).rollback_slo_factor
        return far_beyond_slo(table, arm.now_s, limits, slo.quantile, factor, since_s)


def too_many_failures(table: Table, error_ratio: float, since_s: float = 0.0) -> str:
    """Words when the share of failures since ``since_s`` is above ``error_ratio`` with confidence 0.999, else empty."""
    share = failures_of(table.select(table.due_s >= since_s))
    if share.failed < LEAST_FAILED or share.lower(ALPHA) <= error_ratio:
        return ""
    return (
        f"{share.failed:,} of {plural(share.requests, 'request')} failed: the error rate is above "
        f"{percent(error_ratio)} (at least {percent(share.lower(ALPHA))})"
    )


def one_fails_more(base: Table, candidate: Table, since_s: float = 0.0) -> bool:
    """Whether the shares of failures since ``since_s`` differ (Fisher's test both ways, confidence 0.999)."""
    share, other = (failures_of(table.select(table.due_s >= since_s)) for table in (base, candidate))
    return 2.0 * min(fisher(share, other), fisher(other, share)) <= ALPHA


def far_beyond_slo(
    table: Table, now_s: float, limits: Mapping[str, float], q: float, factor: float, since_s: float = 0.0
) -> str:
    """Words when a latency of the last minute (longer where the limit is: ``recent_s``) is above ``factor`` times its
    limit, else empty.

    Args:
        table: requests with those in flight, which count with their age: a server that has stopped answering is late.
        now_s: the instant up to which the table reaches.
        limits: SLO metric to seconds.
        q: the quantile that is limited.
        factor: how far beyond.
        since_s: nothing before it counts (warm-up).
    """
    for metric, limit_s in limits.items():
        values, at_s = _values(table, metric, now_s)
        inside = (at_s >= since_s) & (at_s <= now_s)
        within_s = recent_s(limit_s, q, factor)
        recent = inside & (at_s >= now_s - within_s)
        enough = fewest_values(max(q, 0.5))
        if np.count_nonzero(recent) < enough:
            continue
        found_s = quantile(np.sort(values[recent]), q)
        if found_s > factor * limit_s:
            lately = "minute" if within_s == RECENT_S else span(within_s)
            return (
                f"{quantile_name(q)} {SHORT_NAMES[metric]} of the last {lately} is {latency(found_s)}, more than "
                f"{multiple(factor)} the limit of {latency(limit_s)}"
            )
    return ""


def recent_s(limit_s: float, q: float, factor: float) -> float:
    """How far back to look: a minute, or twice as long as a server that answers nothing takes to be late.

    Requests due in the last w seconds that all wait are up to w old, their q-quantile is q w; so it can only be above
    ``factor limit_s`` where w is above ``factor limit_s / q``.
    """
    return max(RECENT_S, 2.0 * factor * limit_s / q)


def _values(table: Table, metric: str, now_s: float) -> tuple[Floats, Floats]:
    """Values and the instants they count at; what is not over yet counts with its age."""
    if metric == "itl":
        gaps = table.gaps()
        fine = (table.ok | table.in_flight)[gaps.request]
        itl_s, end_s = gaps.itl()
        keep = np.repeat(fine, np.maximum(gaps.tokens, 0))
        return itl_s[keep], end_s[keep]
    values: Floats = getattr(table, f"{metric}_s").copy()
    late = table.in_flight & (np.isnan(table.first_s) if metric == "ttft" else np.True_)
    if metric != "tpot":
        values[late] = (now_s - table.due_s)[late]
    known = ~np.isnan(values) & ~table.failed
    return values[known], table.due_s[known]
