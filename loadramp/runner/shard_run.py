"""One share of a run that is sent from several machines: the steps of a plan agreed beforehand, each at its instant.

The shards hear nothing of one another. What makes them one load is the plan, which each makes of the scenario for
itself, and the wall clock, which is looked at once: from then on only CLOCK_MONOTONIC counts.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from loadramp.client.fleet import FleetError
from loadramp.client.server_clock import server_clock
from loadramp.record.run_directory import RunDir, check_place
from loadramp.record.run_info import ShardInfo
from loadramp.record.types import Step, Stop
from loadramp.registry import ScenarioError, error_message
from loadramp.report.progress import Watch
from loadramp.runner.finish import COULD_NOT_MEASURE
from loadramp.runner.launch import Say, info_of, reach, sent, session_of
from loadramp.runner.run_session import EPSILON_S, RunSession
from loadramp.runner.scenarios import LATEST_S, Options, Shard
from loadramp.scenario.scenario import Scenario
from loadramp.workload.agreed import agreed_steps, check_agreeable

TIME_FOR_A_CLOCK_S = 5.0
"""The endpoint's clock is asked for where there is so much time left."""
TIME_TO_START_S = 15.0
"""For the workers and the scraper; before that a shard only waits."""
FOLLOWED = "the plan was followed to its end"


@dataclass(slots=True)
class ShardRun(RunSession):
    """The share of a run that one shard sends. ``info.shard`` says which.

    ``start_s``: when the plan begins, by ``wall``: seconds since 1970. By ``clock`` that is ``t0_s``.
    """

    agreed: Sequence[Step] = ()
    start_s: float = 0.0
    wall: Callable[[], float] = time.time

    async def run(self) -> Stop:
        """Wait for the plan's begin, and follow it to the end; why it ended.

        Raises:
            FleetError: the load could not be sent any more, or the begin was missed.
        """
        if self.now_s > LATEST_S:
            raise FleetError(f"--start-at: this shard was ready {self.now_s:.1f} s after it; start it earlier")
        if self.now_s < -EPSILON_S:
            await self._pause(-self.now_s)
        self.fleet.samples()  # of the time before
        ending = Stop(FOLLOWED)
        for step in self.agreed:
            if self.stop.is_set():
                break
            self._note_begin(step)
            after_s = self.agreed[-1].end_s - step.end_s
            self.ahead_s = (after_s, after_s)
            await self.send(step)
            self.save("running")
            if given_up := self.no_success():
                ending = given_up
                break
        return Stop("interrupted", complete=False) if self.stop.is_set() else ending

    def _note_begin(self, step: Step) -> None:
        """How late ``step`` begins by the wall clock, which may have been set since the plan began."""
        assert self.info.shard is not None
        moved_s = self.wall() - self.start_s - self.now_s
        self.info.shard.late_s[step.index] = round(max(0.0, self.now_s - step.begin_s) + moved_s, 6)


@dataclass(slots=True, frozen=True)
class ShardSent:
    """What came of a shard, and the exit code."""

    path: str
    shard: Shard
    state: str
    ending: str
    exit_code: int

    def document(self) -> dict[str, Any]:
        """For programs."""
        shard = {"index": self.shard.index, "of": self.shard.of, "start_at": self.shard.start_at}
        return {"run_dir": self.path, "state": self.state, "ending": self.ending, "shard": shard}

    def words(self) -> str:
        """For people."""
        done = f"shard {self.shard.index}/{self.shard.of}: {self.ending}"
        return f"{done}\nrecords: {self.path}\nnext: loadramp merge with the directories of all {self.shard.of} shards"


def check_options(scenario: Scenario, options: Options) -> None:
    """Find out before anything is sent whether ``scenario`` can be sent in shards.

    Raises:
        ScenarioError: results would choose some of its steps.
    """
    check_agreeable(scenario, "--shard")
    if scenario.fleet.kind == "ray":
        raise ScenarioError("--shard: not with [fleet] kind = 'ray', which has all machines in one run")
    if options.repeats > 1:
        raise ScenarioError("--repeats: not with --shard, since each ramp waits for what is left of the one before")


async def run_shard(
    scenario: Scenario, options: Options, shard: Shard, say: Say, watch: Watch, argv: Sequence[str] = ()
) -> ShardSent:
    """Send one share of the plan; nothing is judged. What was sent is on disk whatever happens.

    Raises:
        ScenarioError: before anything was sent.
        CannotMeasure: the endpoint is not there, or fewer files may be open than the load needs.
        OSError: the run directory cannot be written.
    """
    check_options(scenario, options)
    check_place(options.out)
    reached = await reach(scenario, options, say)
    scenario, endpoint = reached.scenario, reached.endpoint
    steps = agreed_steps(scenario)
    ahead_s = shard.start_s - time.time()
    clock = await server_clock(scenario.target, endpoint) if ahead_s > TIME_FOR_A_CLOCK_S else None
    say(f"shard {shard.index}/{shard.of} begins at {shard.start_at}: give --start-at {shard.start_at} to all others")
    await asyncio.sleep(shard.start_s - TIME_TO_START_S - time.time())
    salt = salt_of(scenario, shard)
    name = f"{scenario.name}-shard-{shard.index}-of-{shard.of}"
    rundir = RunDir.create(options.out, name, scenario.source, datetime.fromtimestamp(shard.start_s, UTC))
    info = info_of(reached, salt=salt, argv=argv, began_at=datetime.fromtimestamp(shard.start_s, UTC))
    info.shard = ShardInfo(shard.index, shard.of, shard.start_at, clock, host=info.host)
    t0_s = time.monotonic() + (shard.start_s - time.time())
    session = await session_of(
        ShardRun, reached, rundir, info, say, watch, save_text=options.save_text, t0_s=t0_s, shard=shard
    )
    session.agreed, session.start_s = steps, shard.start_s
    say(f"writing {rundir.path}")
    caught, failure = await sent([session], session.run, say)
    rundir.let_go()
    if failure is not None:
        say(f"stopped: {error_message(failure)}")
    could_not = failure is not None or info.stop_cause in {"gone", "refused"}
    code = COULD_NOT_MEASURE if could_not else 128 + caught[0] if caught else 0
    return ShardSent(str(rundir.path), shard, info.state or "stopped", info.ending or str(failure), code)


def salt_of(scenario: Scenario, shard: Shard) -> int:
    """The salt of the prompts: the same in all shards of a run, another in each run."""
    shared = json.dumps([scenario.source, list(scenario.overrides), scenario.seed, shard.of, shard.start_at])
    return int.from_bytes(hashlib.sha256(shared.encode()).digest()[:7])
