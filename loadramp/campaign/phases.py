"""The five phases before a launch, one after the other, each a run of its own under one directory. Top level.

What happens is written to campaign.json after every phase, so that an interruption costs the phase it falls into and no
more; what it means is judged anew from the files whenever a report is made (``assess``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from loadramp.campaign.criteria import Strike, reached
from loadramp.campaign.state import CampaignState, PhaseState, save_state
from loadramp.campaign.table import Phase, campaign_of, in_order, overrides_of, strike_after_s
from loadramp.client.endpoint import Endpoint
from loadramp.record.table import Run
from loadramp.registry import CannotMeasure
from loadramp.runner.conductor import Conductor
from loadramp.runner.finish import COULD_NOT_MEASURE, Finished
from loadramp.runner.launch import Beside
from loadramp.scenario.scenario import Scenario
from loadramp.units import percent

STRIKE = "strike.json"
HEALTH = "health.jsonl"
LOOK_S = 0.2
"""How often the chaos phase looks whether its moment has come."""
INTERRUPTED = (130, 143)
NO_TARGET = "no target: the ramp found no rate to take a share of ([campaign] target_rps sets one)"

Send = Callable[[Scenario, Phase, Beside], Awaitable[Finished]]
"""Runs one phase's scenario to its end; the run's directory is below the campaign's."""
Strikes = Callable[[], Awaitable[tuple[int | None, str]]]
"""Kills or restarts a worker: (exit code or None, what it said)."""


class Stoppable(Protocol):
    """Health checks that go on."""

    def stop(self) -> None: ...


Pulses = Callable[[Conductor, Endpoint], Stoppable]
"""Starts the health checks of a run."""


@dataclass(slots=True)
class CampaignRun:
    """A campaign as it goes on."""

    path: Path
    read: Callable[[Sequence[str]], Scenario]
    """The scenario with further overrides."""
    send: Send
    pulse: Pulses
    strike: Strikes | None
    """None: nothing is killed, and the chaos phase is left out."""
    say: Callable[[str], None] = lambda _: None
    state: CampaignState = field(default_factory=CampaignState)

    async def run(self) -> int:
        """All phases that are not done yet.

        Returns 0, or 130/143 when it was interrupted, or 1 when the endpoint could not be reached; verdicts come later.

        Raises:
            ScenarioError: a phase cannot be made of the scenario.
        """
        base = self.read([])
        for phase in in_order(campaign_of(base)):
            if self.state.phase(phase).state == "done":
                self.say(f"{phase}: done before")
                continue
            target_rps = self.target_rps(base)
            if target_rps is None and phase not in {"baseline", "ramp"}:
                self._end(phase, "skipped", NO_TARGET)
                self.say(f"{phase}: left out, {NO_TARGET}")
                continue
            if phase == "chaos" and self.strike is None:
                self._end(phase, "skipped", "no command was given (--chaos CMD)")
                self.say("chaos: left out, no command was given")
                continue
            code = await self._run_phase(phase, base, target_rps)
            if code:
                return code
        self.save("complete")
        return 0

    async def _run_phase(self, phase: Phase, base: Scenario, target_rps: float | None) -> int:
        """One phase; 0 when it is over, whatever it showed."""
        scenario = self.read(overrides_of(phase, campaign_of(base), base.pace, base.name, target_rps))
        at = f" at {target_rps:.4g} req/s" if target_rps and phase not in {"baseline", "ramp"} else ""
        self.say(f"== {phase}{at}")
        self._begin(phase, target_rps)
        beside = _Beside(self, phase, base)
        try:
            finished = await self.send(scenario, phase, beside)
        except CannotMeasure as error:
            self._end(phase, "stopped", str(error))
            self.say(f"{phase}: {error}")
            return COULD_NOT_MEASURE
        info = finished.run.info
        if finished.exit_code in INTERRUPTED:
            self._end(phase, "stopped", "interrupted")
            return finished.exit_code
        over = info.state == "complete" or finished.exit_code != COULD_NOT_MEASURE or info.stop_cause == "gone"
        if phase == "ramp":
            self._aim(base, finished.run)  # saved together with its being done: a kill between would lose the target
        self._end(phase, "done" if over else "stopped", info.ending or "")
        return 0 if over else COULD_NOT_MEASURE

    def target_rps(self, base: Scenario) -> float | None:
        """What was asked for, or what the ramp has shown."""
        return campaign_of(base).target_rps or self.state.target_rps

    def _aim(self, base: Scenario, run: Run) -> None:
        if campaign_of(base).target_rps is not None:
            return
        low_rps, which = lowest_rps(run)
        offered = [row.rate_rps for row in run.rows if row.rate_rps]
        if low_rps is None and self.state.rehearsal and offered:
            self.state.target_rps = min(offered)
            self.state.target_reason = "the lowest rate of the ramp, which found none: a rehearsal tries every phase"
        elif low_rps is not None:
            self.state.target_rps = campaign_of(base).target_ratio * low_rps
            more = "; the client could not deliver more" if reached(run.rows) else ""
            self.state.target_reason = (
                f"{percent(campaign_of(base).target_ratio)} of {low_rps:.4g} req/s, {which}{more}"
            )
        if self.state.target_rps is not None:
            self.say(f"target: {self.state.target_rps:.4g} req/s, {self.state.target_reason}")

    def _begin(self, phase: Phase, target_rps: float | None) -> None:
        before = self.state.phase(phase)
        self.state.phases[phase] = PhaseState(
            state="running", target_rps=target_rps, began_at=_now(), run=before.run, attempts=before.attempts
        )
        self.save("running")

    def _end(self, phase: Phase, state: Literal["done", "stopped", "skipped"], reason: str) -> None:
        entry = self.state.phases.setdefault(phase, PhaseState())
        entry.state, entry.reason = state, reason
        entry.ended_at = None if state == "skipped" else _now()
        self.save("stopped" if state == "stopped" else "running")

    def began(self, phase: Phase, rundir: str) -> None:
        """The phase's run has a directory now; that of an attempt before is kept beside it."""
        entry = self.state.phases[phase]
        if entry.run and entry.run != rundir:
            entry.attempts.append(entry.run)
        entry.run = rundir
        self.save("running")

    def save(self, state: Literal["running", "stopped", "complete"]) -> None:
        """Replace campaign.json."""
        self.state.state = state
        save_state(self.path, self.state)


@dataclass(slots=True)
class _Beside:
    """What goes on beside one phase's load: health checks, and in the chaos phase the command."""

    campaign: CampaignRun
    phase: Phase
    base: Scenario

    async def __call__(self, ramping: Conductor, endpoint: Endpoint) -> None:
        self.campaign.began(self.phase, ramping.rundir.path.name)
        pulse = self.campaign.pulse(ramping, endpoint)
        try:
            if self.phase == "chaos":
                await self._strike(ramping)
            await asyncio.Event().wait()
        finally:
            pulse.stop()

    async def _strike(self, ramping: Conductor) -> None:
        target_rps = self.campaign.target_rps(self.base)
        assert target_rps is not None, "the phase is left out without one"
        after_s = strike_after_s(campaign_of(self.base).chaos, target_rps)

        def now_s() -> float:
            return ramping.clock() - ramping.t0_s

        while not any(step.measured for step in ramping.steps):  # noqa: ASYNC110  # the conductor has no bell for it
            await asyncio.sleep(LOOK_S)
        window_s = next(step.window_s for step in ramping.steps if step.measured)
        await asyncio.sleep(max(0.0, window_s[0] + after_s - now_s()))
        if ramping.stop.is_set():
            return
        begin_s = now_s()
        self.campaign.say("chaos: running the command")
        struck = Strike(begin_s, begin_s, None, "it was still running when the phase ended")
        ramping.rundir.write(STRIKE, msgspec.json.encode(struck).decode() + "\n")
        assert self.campaign.strike is not None, "the phase is left out without it"
        code, output = await self.campaign.strike()
        struck = Strike(begin_s, now_s(), code, output)
        ramping.rundir.write(STRIKE, msgspec.json.encode(struck).decode() + "\n")
        self.campaign.say(f"chaos: {output}" if code != 0 else f"chaos: done after {struck.end_s - begin_s:.3g} s")


def lowest_rps(run: Run) -> tuple[float | None, str]:
    """The low end of the ceiling or, where there is a service level, of the rate within it, whichever is lower, and
    what it is in words."""
    ends = []
    for name in ("ceiling", "slo_capacity"):
        estimate = run.estimates.get(name)
        if estimate is None or estimate.rate_rps is None or estimate.status not in {"found", "not_found_up_to"}:
            if estimate is not None and estimate.status == "below_range":
                return None, ""
            continue
        low_rps = estimate.rate_rps if estimate.low_rps is None else estimate.low_rps
        held_rps = estimate.sustained_rps or 0.0  # what a soak has held is not above the ceiling
        unknown = estimate.low_rps is None and held_rps < low_rps
        which = "an estimate whose low end is not known" if unknown else "the low end"
        ends.append((max(low_rps, held_rps), which))
    return min(ends, default=(None, ""))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
