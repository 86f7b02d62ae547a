"""The loop that owns two arms: the same load to both at once, or in turn, block by block, until it is known.

What stops it early is decided here; all of it is decided again from the files (``judge.contrast``) when a report is
made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from loadramp.analysis import steady_state
from loadramp.analysis.overload import climb
from loadramp.comparison.decide import Decision, DecisionRules
from loadramp.comparison.guard import Guard
from loadramp.comparison.info import ComparisonInfo, Look, Round, Switched
from loadramp.comparison.judge import asked_about, paired, weigh
from loadramp.comparison.pairs import Pair, blocks_done
from loadramp.comparison.table import (
    Canary,
    asked_warmup_s,
    block_rates,
    canary_of,
    climb_rates,
    order_of,
    turn_warmup_s,
)
from loadramp.record.run_directory import RunDir
from loadramp.record.types import Step, Stop
from loadramp.registry import CannotMeasure
from loadramp.runner.run_session import RunSession, together
from loadramp.scenario.scenario import Scenario
from loadramp.units import plural

T = TypeVar("T")
Switch = Callable[[str], Awaitable[float | None]]
"""Makes the endpoint serve the arm of that name (``baseline``, ``candidate``), or swaps the hosts (``swap``). Returns
the seconds that the command took, where there is one; it is ready then."""


@dataclass(slots=True)
class CanaryRun:
    """Both arms as they go on. ``stop`` is that of both, and ends them early."""

    scenario: Scenario
    rundir: RunDir
    baseline: RunSession
    candidate: RunSession
    info: ComparisonInfo
    say: Callable[[str], None] = lambda _: None
    switch: Switch | None = None
    swap: Switch | None = None
    guard: Guard = field(init=False)
    _pairs: dict[int, Pair] = field(default_factory=dict)
    _serving: str = ""

    def __post_init__(self) -> None:
        self.candidate.stop = self.baseline.stop
        self.guard = Guard(self.scenario, self.baseline, self.candidate, self.info, self.say)

    @property
    def canary(self) -> Canary:
        return canary_of(self.scenario)

    @property
    def stop(self) -> asyncio.Event:
        return self.baseline.stop

    @property
    def arms(self) -> tuple[RunSession, RunSession]:
        return self.baseline, self.candidate

    @property
    def asked(self) -> DecisionRules:
        return asked_about(self.canary, self.info)

    async def run(self) -> Stop:
        """Compare to the end; why it ended.

        Raises:
            FleetError: the load could not be sent any more.
            CannotMeasure: a switch command failed.
        """
        self.save("running")
        guard = asyncio.ensure_future(self.guard.watch())
        ending = Stop("interrupted", complete=False)
        try:
            await (self._mirrored() if self.canary.design == "mirrored" else self._in_turn())
            if reason := self.info.rollback or self.info.stopped:
                ending = Stop(reason, complete=False)
            elif not self.stop.is_set():
                ending = Stop("compared")
            return ending
        except CannotMeasure as error:
            self.info.stopped = str(error)
            raise
        finally:
            guard.cancel()
            if not ending.complete:
                self.stop.set()
                if not (self.info.rollback or self.info.stopped):
                    self.info.stopped = ending.reason
            self.save("complete" if ending.complete or self.info.rollback else "stopped")

    # -- both at once ---------------------------------------------------------------------------------------------

    async def _mirrored(self) -> None:
        await self._settle_both()
        number = spoilt = 0
        while number < self.canary.blocks and not self.stop.is_set():
            if self.swap is not None and number == self.canary.blocks // 2 and not self._swapped:
                await self._swap_hosts()
            usable = await self._round(number + spoilt)
            if not usable and spoilt < self.canary.blocks // 2:
                spoilt += 1  # a client disturbed once need not be too slow: offer the round once more
                if not self.stop.is_set():
                    self.say(f"it cannot be used and is offered again ({spoilt} of {self.canary.blocks // 2} times)")
                continue
            number += 1
            if await self._known(number):
                break
        if self.canary.ceiling and not self.stop.is_set() and (await self._look())[0].verdict != "fail":
            await self._climb()

    async def _settle_both(self) -> None:
        begin_s = self.guard.fails_from_s = self._free_s()
        step = self.baseline.settle_step(Step(0, rate_rps=self.canary.rates[0], begin_s=begin_s))
        if step.measure_s:
            await self._both(arm.offer(step) for arm in self.arms)
        self.guard.slow_from_s = self.baseline.now_s

    async def _round(self, number: int) -> bool:
        """One pair of blocks at each rate; whether the clients delivered all of them."""
        usable = True
        before_rps = self.baseline.steps[-1].rate_rps if self.baseline.steps else None
        for rate_rps, warms in block_rates(self.canary, number, before_rps):
            warmup_s = self._warmup_s() if warms else 0.0
            step = Step(0, rate_rps=rate_rps, begin_s=self._free_s(), warmup_s=warmup_s, measure_s=self.canary.block_s)
            rows = await self._both(arm.offer(step) for arm in self.arms)
            if self.stop.is_set():
                return False
            self._note(number, rate_rps)
            usable = usable and not any(row is None or row.void for row in rows)
        return usable

    async def _swap_hosts(self) -> None:
        """Let requests end, exchange what the two hosts serve, begin anew."""
        assert self.swap is not None
        self.guard.off()
        await self._both(arm.drain() for arm in self.arms)
        self.say("swapping the hosts")
        await self.swap("swap")
        self.info.swapped_at_s = self.baseline.now_s
        await self._settle_both()

    @property
    def _swapped(self) -> bool:
        return self.info.swapped_at_s is not None

    async def _climb(self) -> None:
        """Both up at once, by factors of 2, until both are overloaded."""
        self.guard.off()  # overload is what is wanted now
        self.info.climb_from = first = len(self.baseline.steps)
        for rate_rps in climb_rates(self.canary):
            if self.stop.is_set():
                return
            measure_s = self.scenario.pace.length_s(rate_rps)
            step = Step(0, rate_rps=rate_rps, begin_s=self._free_s(), warmup_s=self._warmup_s(measure_s),
                        measure_s=measure_s)  # fmt: skip
            await self._both(arm.offer(step) for arm in self.arms)
            self.say(f"climb: {rate_rps:.4g} req/s")
            climbs = [climb([row for row in arm.rows if row.step >= first]) for arm in self.arms]
            if all(reached.overloaded is not None for reached in climbs) or any(arm.no_success() for arm in self.arms):
                return

    # -- one after the other --------------------------------------------------------------------------------------

    async def _in_turn(self) -> None:
        """One machine: segment by segment, each replayed to both versions, in the order of the design."""
        warmup_s = turn_warmup_s(self.scenario)
        for turn, (number, name) in enumerate(order_of(self.canary)):
            await self._serve(name)
            arm = self.baseline if name == "baseline" else self.candidate
            for rate_rps in self.canary.rates:
                step = Step(0, rate_rps=rate_rps, begin_s=arm.free_s, warmup_s=warmup_s, measure_s=self.canary.block_s)
                self.guard.fails_from_s, self.guard.slow_from_s = step.begin_s, step.window_s[0]
                await arm.offer(step)
                if self.stop.is_set():
                    return
                self.guard.off()
                await arm.drain()
            if self.baseline.rows and len(self.baseline.rows) == len(self.candidate.rows):
                self._note_turns(number)
                if self.canary.design == "abba" and turn % 2 and await self._known(number + 1):
                    return

    async def _serve(self, arm: str) -> None:
        if self._serving != arm:
            if self.switch is not None:
                self.say(f"switching to the {arm}")
                begin_s = self.baseline.now_s
                command_s = await self.switch(arm)
                self.info.switches.append(Switched(arm, begin_s, self.baseline.now_s, command_s))
            self._serving = arm

    def _note_turns(self, number: int) -> None:
        """Pair the blocks of both arms by their order: the n-th of one replays the n-th of the other."""
        rows = zip(self.baseline.rows, self.candidate.rows, strict=True)
        known = len(self.info.rounds)
        for i, (base, other) in enumerate(rows):
            if i >= known:
                place = i // len(self.canary.rates)
                self.info.rounds.append(Round(place, base.rate_rps or 0.0, base.step, other.step))
        self._report(number)

    # -- what is known so far -------------------------------------------------------------------------------------

    def _note(self, number: int, rate_rps: float) -> None:
        last = [arm.steps[-1].index for arm in self.arms]
        self.info.rounds.append(Round(number, rate_rps, last[0], last[1], self._swapped))
        self._report(number)

    def _report(self, number: int) -> None:
        self.say(f"block {number + 1} is done; {self.canary.blocks} that can be used are wanted at most")
        self.save("running")

    async def _known(self, done: int) -> bool:
        """Whether the verdict is there: a look, after the requests of the last block have ended."""
        if done not in self.asked.looks or done >= self.canary.blocks or self.stop.is_set():
            return False
        if self.canary.design == "mirrored":
            await self._wait_for_answers()
        decision, used = await self._look()
        self.info.looks.append(Look(used, decision.verdict))
        self.say(f"after {plural(used, 'block')}: {decision.verdict} ({decision.reasons[0]})")
        return decision.verdict != "inconclusive" and used == done

    async def _wait_for_answers(self) -> None:
        """Go on with the same load, unmeasured, for as long as requests take."""
        tail_s = max(arm.tail_s() for arm in self.arms)
        if tail_s > 0:
            last = self.baseline.steps[-1]
            step = replace(last, role="tail", begin_s=self._free_s(), warmup_s=0.0, measure_s=tail_s)
            await self._both(arm.offer(step) for arm in self.arms)

    async def _look(self) -> tuple[Decision, int]:
        """What the blocks so far come to, and how many of them can be used."""
        runs = [arm.so_far(await arm.snapshot(), arm.rows) for arm in self.arms]
        pairs = paired(self.info.rounds, runs[0], runs[1], self.scenario, self._pairs)
        self._pairs |= {i: pair for i, pair in enumerate(pairs) if pair.settled}
        return weigh(self.asked, pairs, final=False, answers=self.info.answers)[2], blocks_done(pairs)

    # -- both arms -------------------------------------------------------------------------------------------------

    async def _both(self, work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
        """Do both, wait for both; an error of one ends the other, and is raised when it has ended."""
        return await together(self._or_stop(each) for each in work)

    async def _or_stop(self, work: Coroutine[Any, Any, T]) -> T:
        done = False
        try:
            result = await work
            done = True
            return result
        finally:
            if not done:
                self.stop.set()

    def _free_s(self) -> float:
        """The earliest instant at which both may begin a step."""
        return max(arm.free_s for arm in self.arms)

    def _warmup_s(self, measure_s: float | None = None) -> float:
        """Warm-up of a block after a change: as asked, else from the requests seen so far."""
        asked, measure_s = asked_warmup_s(self.scenario), measure_s or self.canary.block_s
        return max(steady_state.warmup_s(arm.e2e_s(), measure_s) for arm in self.arms) if asked is None else asked

    def save(self, state: Literal["running", "complete", "stopped"]) -> None:
        """Replace comparison.json."""
        self.info.state = state
        self.info.write(self.rundir.path)
