"""The user's command that makes an endpoint serve the other version: run without a shell, with a time limit; and how
long its switches back took."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from loadramp.client.endpoint import endpoint_of
from loadramp.client.preflight import trial_of
from loadramp.client.readiness import wait_until_ready
from loadramp.comparison.canary_run import Switch
from loadramp.comparison.info import COMPARISON, read_info
from loadramp.comparison.judge import ARMS
from loadramp.comparison.table import canary_of
from loadramp.record.preparation import Rollback
from loadramp.record.run_directory import RunDirError
from loadramp.record.table import Table
from loadramp.registry import CannotMeasure, ScenarioError
from loadramp.runner.launch import Say
from loadramp.runner.scenarios import Options, read_run, with_target
from loadramp.runner.user_command import run_to_its_end, words_of
from loadramp.scenario.scenario import Scenario
from loadramp.workload.prompts.source import models_of

ARM_VARIABLE = "LOADRAMP_ARM"


def switch_of(
    option: str, line: str, scenario: Scenario, baseline: Options, candidate: Options, say: Say
) -> Switch | None:
    """``line`` as something that can be awaited with the name of an arm and returns the seconds that the command
    took; None for an empty line.

    ``{arm}`` in its words becomes that name, as does the variable LOADRAMP_ARM. It runs without a shell and has
    ``switch_timeout_s``; then the arm's endpoint has as long again to be ready.

    Raises:
        ScenarioError: the line is no command.
    """
    if not line:
        return None
    words = words_of(option, line)
    most_s = canary_of(scenario).switch_timeout_s

    async def run(arm: str) -> float:
        begun_s = time.monotonic()
        try:
            code = await run_to_its_end([word.replace("{arm}", arm) for word in words], most_s, {ARM_VARIABLE: arm})
        except OSError as error:
            raise CannotMeasure(f"{option}: {words[0]}: {error.strerror or error}") from None
        took_s = time.monotonic() - begun_s
        if code is None:
            raise CannotMeasure(f"{option}: {words[0]}: not finished within {most_s:g} s ([canary] switch_timeout_s)")
        if code != 0:
            raise CannotMeasure(f"{option}: {words[0]} ({arm}): exit code {code} after {took_s:.1f} s")
        for name in (arm,) if arm in ARMS else ARMS:
            await _ready(scenario, baseline if name == "baseline" else candidate, most_s, say)
        return took_s

    return run


async def _ready(scenario: Scenario, options: Options, most_s: float, say: Say) -> None:
    target = replace(with_target(scenario, options).target, ready_timeout_s=most_s)
    endpoint = endpoint_of(target)
    trial = trial_of(target, endpoint, models_of(scenario.prompts, scenario.prompt_options))
    await wait_until_ready(target, endpoint, clock=time.monotonic, say=say, trial=trial)


def rollback_of(path: Path) -> Rollback:
    """The switches back to the version before of the canary in ``path``, with what was served after them.

    Raises:
        ScenarioError: it is no canary.
    """
    if not (path / COMPARISON).is_file():
        raise ScenarioError(f"--canary {path}: no {COMPARISON} here: it is no canary")
    try:
        switches = read_info(path).switches
        run, _ = read_run(path / "baseline")
    except (OSError, RunDirError) as error:
        raise ScenarioError(f"--canary {path}: not a canary: {error}") from None
    name = path.resolve().name
    back = [
        switched for i, switched in enumerate(switches) if i and switched.arm == "baseline"
    ]  # the first comes before any load
    if not back:
        return Rollback(name)
    until = [*(switched.begin_s for switched in back[1:]), float("inf")]
    served = [run.table.due_in((switched.begin_s, end_s)) for switched, end_s in zip(back, until, strict=True)]
    first = [_first_end_s(table) - switched.begin_s for switched, table in zip(back, served, strict=True)]
    since = [step for step in run.steps if step.measured and step.begin_s >= back[0].begin_s]
    after = [run.table.due_in(step.window_s) for step in since]
    return Rollback(
        name,
        took_s=[took_s for took_s in first if np.isfinite(took_s)],
        command_s=[switched.command_s for switched in back if switched.command_s is not None],
        unanswered=int(np.count_nonzero(~np.isfinite(first))),
        measured_s=sum(step.measure_s or 0.0 for step in since),
        requests=sum(len(table) for table in after),
        failed=sum(int(np.count_nonzero(table.failed)) for table in after),
    )


def _first_end_s(table: Table) -> float:
    """When the first request that succeeded ended; infinite where none did."""
    ends = np.fmax(table.stream_end_s, table.last_s)[table.ok]
    return float(np.nanmin(ends)) if len(ends) else float("inf")
