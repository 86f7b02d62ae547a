"""A user's command that makes an endpoint serve the other version: run without a shell, with a time limit."""

import asyncio
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from loadramp.client.endpoint import endpoint_of
from loadramp.client.preflight import trial_of
from loadramp.client.readiness import wait_until_ready
from loadramp.comparison.canary_run import Switch
from loadramp.comparison.judge import ARMS
from loadramp.comparison.table import canary_of
from loadramp.registry import CannotMeasure, ScenarioError
from loadramp.runner.launch import Say
from loadramp.runner.scenarios import Options, with_target
from loadramp.scenario.scenario import Scenario
from loadramp.workload.prompts.source import models_of

ARM_VARIABLE = "LOADRAMP_ARM"


def switch_of(line: str, scenario: Scenario, baseline: Options, candidate: Options, say: Say) -> Switch | None:
    """``line`` as something that can be awaited with the name of an arm and returns the seconds that the command
    took; None for an empty line.

    ``{arm}`` in its words becomes that name, as does the variable LOADRAMP_ARM. It runs without a shell and has
    ``switch_timeout_s``; then the arm's endpoint has as long again to be ready.

    Raises:
        ScenarioError: the line cannot be split into words.
    """
    if not line:
        return None
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ScenarioError(f"--switch-command or --swap-command: {error}: {line}") from None
    most_s = canary_of(scenario).switch_timeout_s

    async def run(arm: str) -> float:
        begun_s = time.monotonic()
        code = await execute([word.replace("{arm}", arm) for word in words], {ARM_VARIABLE: arm}, most_s)
        took_s = time.monotonic() - begun_s
        if code is None:
            raise CannotMeasure(f"{words[0]}: not finished within {most_s:g} s ([canary] switch_timeout_s)")
        if code != 0:
            raise CannotMeasure(f"{words[0]} {arm}: exit code {code} after {took_s:.1f} s")
        for name in (arm,) if arm in ARMS else ARMS:
            await _ready(scenario, baseline if name == "baseline" else candidate, most_s, say)
        return took_s

    return run


async def execute(words: Sequence[str], variables: Mapping[str, str], most_s: float) -> int | None:
    """Run a program without a shell, its output on our stderr; its exit code, None when it took too long.

    It gets a process group of its own, all of which is ended when time is up.

    Raises:
        CannotMeasure: it cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *words, env={**os.environ, **variables}, stdin=asyncio.subprocess.DEVNULL, stdout=2, start_new_session=True
        )
    except OSError as error:
        raise CannotMeasure(f"{words[0]}: {error.strerror or error}") from None
    try:
        return await asyncio.wait_for(process.wait(), most_s)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _ready(scenario: Scenario, options: Options, most_s: float, say: Say) -> None:
    target = replace(with_target(scenario, options).target, ready_timeout_s=most_s)
    endpoint = endpoint_of(target)
    trial = trial_of(target, endpoint, models_of(scenario.prompts, scenario.prompt_options))
    await wait_until_ready(target, endpoint, clock=time.monotonic, say=say, trial=trial)
