"""A campaign against a real endpoint: launches its phases, checks its health, runs the chaos command, reports."""

import asyncio
import os
import shlex
import ssl
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from loadramp import __version__
from loadramp.campaign.assess import (
    SCORECARD,
    exit_code,
    keep_answers,
    model_max_of,
    scorecard_text,
    write_campaign,
)
from loadramp.campaign.health_check import LIMIT_S, Pulse
from loadramp.campaign.phases import HEALTH, CampaignRun
from loadramp.campaign.state import CampaignState, begin, read_state, resume, save_state
from loadramp.campaign.table import Phase, campaign_of, rehearsal_of
from loadramp.campaign.text import CampaignView
from loadramp.client.endpoint import Endpoint, endpoint_of
from loadramp.client.http.connect import tls_context
from loadramp.client.permission import check_hosts
from loadramp.metrics.fetch import FetchFailed, fetch_once
from loadramp.record.run_directory import RunDir, check_place
from loadramp.registry import evidence_of
from loadramp.report.progress import Watch
from loadramp.runner import launch, scenarios
from loadramp.runner.conductor import Conductor
from loadramp.runner.finish import EXIT, Finished
from loadramp.runner.launch import Beside, Say
from loadramp.runner.scenarios import Options
from loadramp.runner.user_command import run_to_its_end, words_of
from loadramp.scenario.scenario import Scenario

SAID_CHARS = 300
TAIL_BYTES = 4096
NO_HEALTH = ("http 404", "http 405", "http 501")
"""Not a health check at all: the list of models is asked instead."""


async def rehearse(
    scenario_path: Path,
    options: Options,
    say: Say,
    watch: Watch,
    *,
    chaos: str | None = None,
    resumed: Path | None = None,
    answers: Path | None = None,
    argv: Sequence[str] = (),
    rehearsal: bool = False,
    canary: Path | None = None,
) -> tuple[CampaignView, int]:
    """Begin or resume a campaign, run what is left of it, judge and report: what it shows, and the exit code.

    Args:
        scenario_path, options, argv: as of a run.
        say, watch: for people.
        chaos: the command that kills or restarts a worker; None: that phase is left out.
        resumed: the directory of a campaign to go on with.
        answers: a file of answers to the scorecard.
        rehearsal: every phase is shortened, and nothing is shown by it.
        canary: the directory of a canary whose switches back were timed.

    Raises:
        ScenarioError: before anything was sent.
        OSError: the directory cannot be written.
    """
    if rehearsal:
        options = rehearsed(scenario_path, options)
        say("a rehearsal: every phase is shortened, and nothing is proven by it")
    base = scenarios.with_target(scenarios.read_scenario(scenario_path, options.overrides), options)
    endpoint = endpoint_of(base.target)
    if chaos is not None:
        words_of("--chaos", chaos)  # the phase comes after hours
    if resumed is None:
        check_place(options.out)
    check_hosts(endpoint, base.target, options.yes_i_may_load_test, base.metrics)
    path = opened(base, endpoint, options.out, resumed, answers, argv, rehearsal, canary)
    say(f"campaign: {path}")

    async def send(scenario: Scenario, phase: Phase, beside: Beside) -> Finished:
        chosen = replace(options, out=path, repeats=options.repeats if phase == "ramp" else 1)
        return await launch.ramp(scenario, chosen, say, watch, argv, beside=beside)

    async def strike() -> tuple[int | None, str]:
        code, output = await run_command(chaos or "", campaign_of(base).chaos.timeout_s)
        return code, endpoint.redact(output)

    campaign = CampaignRun(
        path,
        read=lambda more: scenarios.read_scenario(scenario_path, [*options.overrides, *more]),
        send=send,
        pulse=lambda ramping, at: pulse_of(base, ramping, at),
        strike=strike if chaos else None,
        say=say,
        state=read_state(path),
    )
    code = await campaign.run()
    view = write_campaign(path, answers)
    judged = exit_code(view)  # an interruption or an endpoint that is gone decides unless something failed before
    return view, code if code > 1 or (code == 1 and judged != EXIT["fail"]) else judged


def rehearsed(scenario_path: Path, options: Options) -> Options:
    """``options`` with what makes a rehearsal of the scenario; what was set by the user wins.

    Raises:
        ScenarioError: the scenario is wrong.
    """
    short = rehearsal_of(scenarios.read_scenario(scenario_path, options.overrides))
    return replace(options, overrides=[*short, *options.overrides])


def opened(
    base: Scenario,
    endpoint: Endpoint,
    out: Path,
    resumed: Path | None,
    answers: Path | None,
    argv: Sequence[str],
    rehearsal: bool = False,
    canary: Path | None = None,
) -> Path:
    """The campaign's directory, fresh or that of before. Scorecard and answers are read now, not after the first hour.

    Raises:
        ScenarioError: something in them is wrong, or ``resumed`` is not a campaign of this scenario.
    """
    text, longest = scorecard_text(base), model_max_of(base)
    rollback_of = evidence_of("rollback") if canary is not None else None
    rollback = None if rollback_of is None else rollback_of(canary)
    source, overrides = endpoint.redact(base.source), [endpoint.redact(override) for override in base.overrides]
    asked = " ".join([endpoint.url, *([f"(model {endpoint.redact(base.target.model)})"] if base.target.model else [])])
    if resumed is None:
        words = [endpoint.redact(word) for word in argv]
        state = CampaignState(
            name=base.name, loadramp=__version__, argv=words, overrides=overrides, model_max_context=longest,
            rehearsal=rehearsal, rollback=rollback, endpoint=asked,
        )  # fmt: skip
        path = begin(out, state, source)
    else:
        path, state = resumed, resume(resumed, source, overrides, asked)
        if rollback is not None:
            state.rollback = rollback
            save_state(path, state)
    RunDir(path).write(SCORECARD, text)
    keep_answers(path, answers)
    return path


async def run_command(command: str, timeout_s: float) -> tuple[int | None, str]:
    """Run a command without a shell: (exit code, last line it wrote). None: it could not be started, or took too long.

    What it starts in another session stays when its time is over, and may go on writing: its output goes to a file
    without a name, as a pipe would break under it.
    """
    with tempfile.TemporaryFile() as output:
        try:
            words = shlex.split(command)
            if not words:
                return None, "no command was given"
            code = await run_to_its_end(words, timeout_s, output=output)
        except (OSError, ValueError) as error:
            return None, f"the command cannot be started: {getattr(error, 'strerror', None) or error}"
        if code is None:
            return None, f"the command took longer than {timeout_s:g} s and was ended"
        output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL_BYTES))
        return code, _last_line(output.read())


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:SAID_CHARS] if lines else ""


def pulse_of(base: Scenario, ramping: Conductor, endpoint: Endpoint) -> Pulse:
    """The health checks of one run, going. A health address of its own gets no key."""
    target, url = base.target, campaign_of(base).health_url
    pulse = Pulse(
        url or _health_url(endpoint, target.ca_file, target.insecure),
        ramping.rundir.path / HEALTH,
        t0_s=ramping.t0_s,
        period_s=campaign_of(base).health_period_s,
        headers={} if url else endpoint.headers,
        ca_file=target.ca_file,
        insecure=target.insecure,
    )
    pulse.start()
    return pulse


def _health_url(endpoint: Endpoint, ca_file: str, insecure: bool) -> str:
    """``/health``, or the list of models where there is no such thing, or it fails although requests are answered."""
    url, models = endpoint.address("health"), endpoint.address("models")
    context = tls_context(ca_file, insecure) if endpoint.tls else None
    failure = _fails(url, endpoint, context)
    if failure is None:
        return url
    return models if failure in NO_HEALTH or _fails(models, endpoint, context) is None else url


def _fails(url: str, endpoint: Endpoint, context: ssl.SSLContext | None) -> str | None:
    fetching = fetch_once(url, endpoint.headers, context, LIMIT_S)
    try:
        with ThreadPoolExecutor(1) as thread:  # this one has a running loop
            thread.submit(asyncio.run, fetching).result()
    except FetchFailed as failure:
        return str(failure)
    return None
