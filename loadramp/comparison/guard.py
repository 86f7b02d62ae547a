"""A reason to stop two arms at once, looked for every few seconds while they are loaded.

What it finds goes into ``info``, and ends both: ``rollback`` where it is the candidate's fault, ``stopped`` where the
baseline is no yardstick.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loadramp.analysis.error_classes import load_independent
from loadramp.comparison import rollback
from loadramp.comparison.arm import Arm
from loadramp.comparison.table import canary_of
from loadramp.registry import CannotMeasure
from loadramp.scenario.scenario import Scenario

GUARD_S = 5.0
"""How often it looks."""


@dataclass(slots=True)
class Guard:
    """Watches what is told to it: it is off until ``fails_from_s`` is set."""

    scenario: Scenario
    baseline: Arm
    candidate: Arm
    info: dict[str, Any]
    """What becomes comparison.json; it knows whether both serve the same, and whether the hosts were swapped."""
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
                if self.info.get("same_version"):
                    self._compare(self.fails_from_s)
                else:
                    await self._look_out(self.fails_from_s, self.slow_from_s)

    async def _look_out(self, fails_from_s: float, slow_from_s: float | None) -> None:
        """Does the candidate fail or crawl so badly that nothing more is to be asked of it?"""
        arms = self.baseline, self.candidate
        base, candidate = arms[::-1] if "swapped_at_s" in self.info else arms
        reason = self._failing(candidate, fails_from_s)
        if reason and self._alike(base, candidate, fails_from_s):
            reason = ""
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
                tables = [one.seen(since_s=fails_from_s) for one in (self.baseline, self.candidate)]
                differ = rollback.one_fails_more(tables[0], tables[1], fails_from_s)
                self._end("rollback" if differ else "stopped", f"stopped at once ({name}): {reason}", reason)
                return

    def _end(self, what: str, told: str, reason: str) -> None:
        self.info[what] = told
        self.say(reason)
        self.baseline.stop.set()

    def _alike(self, base: Arm, candidate: Arm, since_s: float) -> bool:
        """Neither fails too often but for failures that do not depend on load, and of these neither has more: it is the
        requests that are wrong, and both say so. They still count when the two are compared."""
        tables = [arm.seen(since_s=since_s) for arm in (base, candidate)]
        limit = canary_of(self.scenario).rollback_error_ratio
        of_load = [table.select(~load_independent(table)) for table in tables]
        if any(rollback.too_many_failures(table, limit, since_s) for table in of_load):
            return False
        return any(bool(table.ok.any()) for table in tables) and not rollback.one_fails_more(
            tables[0], tables[1], since_s
        )

    def _failing(self, arm: Arm, since_s: float) -> str:
        limit = canary_of(self.scenario).rollback_error_ratio
        return rollback.too_many_failures(arm.seen(since_s=since_s), limit, since_s)

    async def _crawling(self, arm: Arm, since_s: float) -> str:
        slo = self.scenario.slo
        table = arm.seen(await arm.fleet.snapshot(), since_s)
        factor = canary_of(self.scenario).rollback_slo_factor
        return rollback.far_beyond_slo(table, arm.now_s, slo.limits, slo.quantile, factor, since_s)
