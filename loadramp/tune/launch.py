"""A tuning on a real server: start it with other flags, ramp it, stop it, until the race is over or time is up.

Everything for people goes to ``say``. What was measured is on disk whatever ends it, and the server that was started
here is ended whatever happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loadramp.client.endpoint import Endpoint, endpoint_of
from loadramp.client.permission import check_hosts
from loadramp.record.run_directory import check_place
from loadramp.record.table import Run
from loadramp.registry import CannotMeasure, ScenarioError
from loadramp.report.progress import Watch
from loadramp.runner import launch, scenarios
from loadramp.runner.conductor import Conductor
from loadramp.runner.finish import judge
from loadramp.runner.launch import Say
from loadramp.runner.scenarios import Options
from loadramp.scenario.scenario import Scenario
from loadramp.tune import state as states
from loadramp.tune.causes import tail_of
from loadramp.tune.flags import HIDDEN, has_already, of_cure, slug, without_secrets
from loadramp.tune.outcome import write_tuning
from loadramp.tune.race import NextVisit, RaceOver, RaceRules, next_of
from loadramp.tune.score import UNITS, facts_of, score_of
from loadramp.tune.server_process import DidNotStartError, ServerProcess, check_commands
from loadramp.tune.state import TuneState
from loadramp.tune.steps import foreseen_s, overrides_of, start_rps, step_s
from loadramp.tune.table import objective_of, tune_of
from loadramp.tune.text import JudgedTuning, of_run_words
from loadramp.tune.visit import Proposal, Visit
from loadramp.units import sig, span

INTERRUPTED = (130, 143)
LOGS = "logs"
PURPOSES = {"race": "measuring", "return": "the baseline again", "confirm": "confirming"}


@dataclass(slots=True, frozen=True)
class TuneOptions:
    """What the command line adds to a scenario for a tuning. Commands are split as a shell would, and run without one.

    Args of note: ``of_run`` is the run whose cures are tried; ``resume`` the directory of a tuning to go on with.
    """

    options: Options
    server: str = ""
    switch_command: str = ""
    tries: Sequence[str] = ()
    grid: bool = False
    of_run: Path | None = None
    resume: Path | None = None
    argv: Sequence[str] = ()


@dataclass(slots=True)
class TuneRun:
    """A tuning as it goes on. ``state`` becomes tune.json."""

    path: Path
    scenario_path: Path
    options: Options
    base: Scenario
    rules: RaceRules
    state: TuneState
    server: ServerProcess
    say: Say
    watch: Watch
    began_s: float = field(default_factory=time.monotonic)
    before_s: float = 0.0
    """Spent by earlier calls."""
    died: bool = False
    run_name: str = ""

    @property
    def spent_s(self) -> float:
        return self.before_s + time.monotonic() - self.began_s

    @property
    def left_s(self) -> float | None:
        hours = tune_of(self.base).max_hours
        return None if hours is None else hours * 3600.0 - self.spent_s

    async def run(self) -> int:
        """Measure until the race is over, time is up or somebody interrupts; 0, or 130/143."""
        code, ended = 0, ""
        self.state.state, self.state.ended = "running", states.RUNNING
        states.save(self.path, self.state)
        try:
            while isinstance(action := next_of(self.rules, self.state.visits), NextVisit):
                need_s = self._needs_s(action)
                if self.left_s is not None and self.left_s < need_s:
                    left = span(max(0.0, self.left_s))
                    ended = f"{left} of [tune] max_hours are left, and the next measurement takes about {span(need_s)}"
                    break
                visit, code = await self._visit(action)
                if visit is None:
                    ended = "interrupted"
                    break
                self._keep(visit)
            if isinstance(action, RaceOver):
                self.say(action.why)
        finally:
            await self.server.end()
            self.state.spent_s, self.state.ended = self.spent_s, ended
            self.state.state = "stopped" if ended else "complete"
            states.save(self.path, self.state)
        if ended:
            self.say(f"ended early: {ended}")
        return code

    def _needs_s(self, action: NextVisit) -> float:
        runs = self.server.flags == action.flags and self.server.exit_code is None
        rate = self._start_rps(action)
        return foreseen_s(self.base, action, self.state.visits, start_rps=rate, runs_already=runs)

    def _start_rps(self, action: NextVisit) -> float:
        return start_rps(self.base, action.flags, self.rules.baseline, self.state.visits)

    def _keep(self, visit: Visit) -> None:
        self.state.visits.append(visit)
        self.state.spent_s = self.spent_s
        states.save(self.path, self.state)
        known = f"{sig(visit.value)} {UNITS[self.state.objective]}" if visit.value is not None else ""
        self.say(f"== {visit.flags or 'baseline'}: {known or visit.reason or visit.state}")
        if len(self.state.visits) == 1 and (words := of_run_words(self.state, visit.value)):
            self.say(words)

    async def _visit(self, action: NextVisit) -> tuple[Visit | None, int]:
        """One visit, and 0; None and the exit code where somebody interrupted it."""
        begin_s = self.spent_s
        bare = Visit(action.flags, action.purpose, action.round, action.rival, begin_s=begin_s)
        steps = span(step_s(self.base, action.round, self._start_rps(action)))
        self.say(f"== {action.flags or 'baseline'}: {PURPOSES[action.purpose]}, steps of {steps}")
        start_s = None
        if self.server.flags != action.flags or self.server.exit_code is not None:
            with launch.signals(self.server.stop, self.say) as caught:
                try:
                    start_s = await self.server.start(action.flags, self.base, self._log_name(action))
                except DidNotStartError as error:
                    await self.server.end()
                    if caught:
                        return None, 128 + caught[0]
                    return self._failed(bare, "did_not_start", error), 0
            if caught:
                return None, 128 + caught[0]
        return await self._ramp(action, replace(bare, start_s=start_s))

    async def _ramp(self, action: NextVisit, bare: Visit) -> tuple[Visit | None, int]:
        overrides = overrides_of(self.base, action, self.rules.baseline, self.state.visits, self.left_s)
        scenario = scenarios.read_scenario(self.scenario_path, [*self.options.overrides, *overrides])
        options = replace(
            self.options, base_url=self.server.base_url or self.options.base_url, out=self.path,
            label=[*self.options.label, f"flags={action.flags or 'baseline'}"],
        )  # fmt: skip
        self.died, self.run_name = False, ""
        try:
            finished = await launch.ramp(scenario, options, self.say, self.watch, self.state.argv, beside=self._beside)
        except CannotMeasure as error:
            if self.server.exit_code is not None:
                return self._failed(bare, "died", self.server.died()), 0
            return replace(bare, state="unmeasured", reason=str(error), took_s=self.spent_s - bare.begin_s), 0
        if self.died:
            await asyncio.sleep(0)
            return replace(self._failed(bare, "died", self.server.died()), run=self.run_name), 0
        if finished.exit_code in INTERRUPTED:
            return None, finished.exit_code
        return self._seen(replace(bare, run=self.run_name), finished.run), 0

    async def _beside(self, ramping: Conductor, _: Endpoint) -> None:
        """Beside the load: a server that ends by itself ends the ramp at once."""
        self.run_name = ramping.rundir.path.name
        await self.server.ended()
        self.died = True
        ramping.stop.set()

    def _seen(self, bare: Visit, run: Run) -> Visit:
        """The visit of a run that was judged."""
        if run.info.stop_cause == "gone":
            return replace(bare, state="died", reason=f"stopped answering: {run.info.ending}",
                           took_s=self.spent_s - bare.begin_s)  # fmt: skip
        last = bare.round >= self.rules.rounds - 1
        score = score_of(run, self.state.objective, tune_of(self.base), final=last)
        return replace(
            bare,
            state="measured" if score.value is not None else "unmeasured",
            value=score.value,
            low=score.low,
            high=score.high,
            reason=score.reason,
            took_s=self.spent_s - bare.begin_s,
            facts=facts_of(run, score.value),
            cures=proposals_of(run, self.state.server),
        )

    def _failed(self, bare: Visit, how: Any, error: DidNotStartError) -> Visit:
        """A flag that does not start is a result: exit code, the last lines of its log, the cause in words."""
        redact = endpoint_of(self.base.target).redact if self.base.target.base_url else str
        return replace(
            bare,
            state=how,
            reason=redact(str(error)),
            exit_code=error.exit_code,
            log_tail=[redact(line) for line in tail_of(error.log)],
            took_s=self.spent_s - bare.begin_s,
        )

    def _log_name(self, action: NextVisit) -> str:
        return f"{len(self.state.visits) + 1:02d}-{slug(action.flags)}"


def proposals_of(run: Run, server: str) -> list[Proposal]:
    """The cures of a run's findings in their order, each once, as flags where they are any and ``server``, the command,
    has them not yet."""
    listed: dict[str, Proposal] = {}
    for finding in run.findings:
        for cure in finding.cures:
            flags, why_not = of_cure(cure)
            if flags and has_already(server, flags):
                flags, why_not = "", "the command has it already"
            listed.setdefault(flags or cure.name, Proposal(flags, cure.name, f"{finding.code}: {cure.when}", why_not))
    return list(listed.values())


def prepared(scenario_path: Path, ask: TuneOptions) -> tuple[Scenario, TuneState]:
    """The scenario and the state of a tuning, fresh or that of before; nothing is written.

    Raises:
        ScenarioError: the scenario, a command or the directory to resume is wrong.
    """
    options = ask.options
    base = scenarios.with_target(scenarios.read_scenario(scenario_path, options.overrides), options)
    if ask.resume is not None:
        state = states.resumed(ask.resume, base.source, options.overrides)
        redact = endpoint_of(base.target).redact if options.base_url else str
        for option, now, then in (
            ("--server", redact(without_secrets(ask.server)) if ask.server else "", state.server),
            ("--switch-command", ask.switch_command, state.switch_command),
            ("--try", list(ask.tries), state.tries),
        ):
            if now and now != then:
                raise ScenarioError(f"{ask.resume}: was begun with {option} {then or 'not given'}; got {now}")
        server = ask.server or state.server
        if HIDDEN in server:
            raise ScenarioError(f"{ask.resume}: --server is needed again: what it hides was not kept")
        state.server, state.switch_command = server, ask.switch_command or state.switch_command
    else:
        run = judge(ask.of_run).run if ask.of_run is not None else None
        value = facts_of(run, None).get(f"{objective_of(base)}_rps") if run is not None else None
        state = states.fresh(
            base, server=ask.server, switch_command=ask.switch_command, tries=list(ask.tries), grid=ask.grid,
            cures=proposals_of(run, ask.server) if run is not None else [], of_run=str(ask.of_run or ""),
            of_run_value=value, argv=list(ask.argv), overrides=list(options.overrides),
        )  # fmt: skip
    rules = state.rules(base)
    if rules.search.grid and not rules.search.tries:
        raise ScenarioError("--grid: needs candidates (--try, or [tune] candidates)")
    check_commands(state.server, state.switch_command, rules.search.tries, options.base_url)
    return base, state


async def tune(scenario_path: Path, ask: TuneOptions, say: Say, watch: Watch) -> tuple[JudgedTuning, int]:
    """Begin or resume a tuning, measure, judge and report: the answer and the exit code. What was measured is on disk
    whatever happens.

    Raises:
        ScenarioError: before anything was started.
        OSError: the directory cannot be written.
    """
    options = ask.options
    base, state = prepared(scenario_path, ask)
    if options.base_url:
        check_hosts(endpoint_of(base.target), base.target, options.yes_i_may_load_test, base.metrics)
    table, rules, server = tune_of(base), state.rules(base), state.server
    if ask.resume is None:
        check_place(options.out)
        redact = endpoint_of(base.target).redact if options.base_url else str
        state.argv = [redact(without_secrets(word) if "{" in word else word) for word in state.argv]
        state.server = redact(without_secrets(server)) if server else ""
        path = states.begin(options.out, base, redact(base.source), state)
    else:
        path, state.server = ask.resume, without_secrets(server) if server else ""
    say(f"tuning: {path}")
    process = ServerProcess(
        server, state.switch_command, path / LOGS, table.start_timeout_s, table.stop_timeout_s, say, asyncio.Event(),
        base_url=options.base_url,
    )  # fmt: skip
    running = TuneRun(path, scenario_path, options, base, rules, state, process, say, watch, before_s=state.spent_s)
    code = await running.run()
    tuning = write_tuning(path, state, rules, server)
    return tuning, code or tuning.exit_code
