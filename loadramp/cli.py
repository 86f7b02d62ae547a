"""The commands: parse, call, print. No logic lives here, and heavy libraries are imported inside the commands."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadramp import __version__
from loadramp.commands import after_run, first_steps
from loadramp.commands.options import (
    EPILOG,
    PATH,
    command,
    option,
    out_option,
    output_options,
    run_options,
    scenario_argument,
    scenario_options,
    strict_json,
    target_options,
)
from loadramp.registry import FEATURES, CannotMeasure, ScenarioError, error_message, reach

if TYPE_CHECKING:
    from loadramp.runner.scenarios import Options, Shard
    from loadramp.scenario.scenario import Scenario

COULD_NOT_MEASURE, USAGE, INTERRUPTED = 1, 2, 130


def run(
    scenario: Path,
    *,
    as_json: bool,
    quiet: bool,
    yes: bool,
    until_sure: float | None,
    abort_on_fail: bool,
    shard: str | None,
    start_at: str | None,
    **options: Any,
) -> int:
    """Ramp an endpoint until it saturates and write a report.

    Raises the request rate step by step, stops when the endpoint is saturated, and reports its ceiling, its p99 ITL
    knee and its SLO capacity. SCENARIO is a TOML file, or the name of a scenario that comes with loadramp (chat, burst,
    multi-turn, ...).

    \b
    Examples:
      loadramp run chat --base-url http://host:8000
      loadramp run scenario.toml --quick --set ramp.max_rps=64
      loadramp run scenario.toml --abort-on-fail --json > verdict.json
    """
    import time

    from loadramp.commands.terminal import asks
    from loadramp.runner import scenarios

    if until_sure is not None:
        options["overrides"] = (*options["overrides"], f"ramp.until_sure={until_sure!r}")
    if options["quick"]:
        options["overrides"] = scenarios.quick_overrides(scenario, options["overrides"])
    if abort_on_fail:
        options["overrides"] = (*options["overrides"], "gates.abort=true")
    chosen = scenarios.Options(**options, shard=scenarios.shard_of(shard, start_at, time.time()))
    read = scenarios.read_scenario(scenario, chosen.overrides)
    if asks(yes, as_json):
        _ask(read, chosen)
    if chosen.shard is not None:
        return _share(read, chosen, chosen.shard, as_json, quiet)
    return _ramp(read, chosen, as_json, quiet)


def plan(
    scenario: Path,
    *,
    base_url: str | None,
    model: str | None,
    overrides: Sequence[str],
    as_json: bool,
    quiet: bool,
) -> int:
    """Show what a scenario would send, without sending it.

    Prints the steps, requests, tokens and minutes of `loadramp run`, and the shape of the load. If the scenario has a
    [canary], [nightly] or [campaign] table, it also prints what that command would send. SCENARIO may be the directory
    of a run instead, to show the shape of what it sent. With --base-url, the endpoint's list of models is read to find
    out how long a request may be.

    \b
    Examples:
      loadramp plan chat --set ramp.max_rps=64
      loadramp plan scenario.toml --base-url http://host:8000
      loadramp plan reports/20260102-030405-chat
    """
    from loadramp.runner import preview

    if scenario.is_dir():
        document, words = preview.of_run(scenario)
    elif base_url:
        document, words = preview.of_endpoint(scenario, overrides, base_url, model)
    else:
        document, words = preview.of_scenario(scenario, overrides)
    click.echo(strict_json(document) if as_json else words)
    return 0


def probe(
    *,
    prompt: str,
    max_tokens: int,
    api: Any,
    via: Any,
    stream: bool,
    idle_timeout: float | None,
    first_timeout: float | None,
    timeout: float | None,
    show_text: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Send one request and print everything measured about it.

    Exits with 1 if the request failed.

    \b
    Examples:
      loadramp probe --base-url http://host:8000 --max-tokens 32 --show-text
      loadramp probe --base-url http://host:8000 --via openai --no-stream --json
    """
    import asyncio
    import time

    from loadramp.client.endpoint import endpoint_of
    from loadramp.client.permission import check_hosts
    from loadramp.client.probe import probe as send
    from loadramp.commands.terminal import say as tell
    from loadramp.registry import bind_options
    from loadramp.report.probe_text import probe_document, probe_words
    from loadramp.runner import scenarios
    from loadramp.scenario.scenario import Target

    limits = {"idle_timeout_s": idle_timeout, "first_timeout_s": first_timeout, "timeout_s": timeout}
    given = bind_options({key: seconds for key, seconds in limits.items() if seconds is not None}, Target, "probe:")
    chosen = scenarios.Options(**options)
    target = scenarios.target_of(Target(api=api, via=via, stream=stream, **given), chosen)
    check_hosts(endpoint_of(target), target, chosen.yes_i_may_load_test)
    record = asyncio.run(
        send(
            target,
            prompt=prompt,
            output_tokens=max_tokens,
            clock=time.monotonic,
            save_text=show_text,
            say=lambda words: None if quiet else tell(f"note: {words}"),
        )
    )
    document = probe_document(record, stream)
    click.echo(strict_json(document) if as_json else probe_words(document))
    if record.status == "unfinished":
        return INTERRUPTED
    return 0 if record.ok else COULD_NOT_MEASURE


def report(run_dir: Path, *, as_json: bool, quiet: bool) -> int:
    """Judge a stored run again and rewrite its report.

    Everything is computed from the records in RUN_DIR; nothing is sent. RUN_DIR may also be the directory of a canary
    or a campaign.

    \b
    Examples:
      loadramp report reports/20260102-030405-chat
      loadramp report reports/20260102-030405-chat --json
    """
    from loadramp.commands.terminal import show, try_to_write
    from loadramp.runner import finish

    for feature in FEATURES.values():
        for marker, again in feature.directories.items():
            if (run_dir / marker).is_file():
                return int(reach(again)(run_dir, as_json))
    finished = finish.judge(run_dir)
    try_to_write(lambda: finish.write(finished.run))
    return show(finished, as_json)


def simulate(
    *,
    host: str,
    port: int,
    profile: str,
    model: str,
    adapter: Any,
    seed: int,
    fault: Any,
    api_key_env: str | None,
    **flags: Any,
) -> int:
    """Serve the built-in simulator of a vLLM server.

    It runs until it is interrupted. --profile list and --fault list show what can be chosen. Some of vLLM's own flags
    change the profile's limits, so that tuning can be practised.

    \b
    Examples:
      loadramp simulate --port 8000 --profile h200-8b-seqs64 --fault max_queue=20
      loadramp simulate --profile list --fault list
    """
    from loadramp.simulator import practise

    if "list" in {profile, *fault}:
        click.echo(practise.listing())
        return 0
    practise.simulate(host, port, profile, model, adapter, seed, fault, api_key_env, flags, click.echo)
    return 0


def demo(*, out: Path, as_json: bool, quiet: bool) -> int:
    """Run a whole ramp against the built-in simulator.

    It takes less than three minutes and needs neither a server nor a GPU.

    \b
    Examples:
      loadramp demo
      loadramp demo --out /tmp/reports --json
    """
    from loadramp.runner import scenarios
    from loadramp.simulator import practise

    with practise.simulator() as base_url:
        read = scenarios.read_scenario(Path("demo"))
        return _ramp(read, scenarios.Options(base_url=base_url, out=out), as_json, quiet)


def selfcheck(*, seconds: float, workers: int, as_json: bool, quiet: bool) -> int:
    """Measure how much load this machine can generate.

    Sends load to a null server on loopback and reports how punctually requests leave, how much CPU time a token costs,
    and how many tokens a second one worker can time. The result is stored and copied into run.json of later runs.
    --workers shows how many tokens a second several can time together; that is not stored.

    \b
    Examples:
      loadramp selfcheck --seconds 10
      loadramp selfcheck --workers 4
    """
    import asyncio
    from dataclasses import asdict

    from loadramp.commands.terminal import watching
    from loadramp.runner import selfcheck as client_capacity

    with watching(quiet) as (say, _):
        result = asyncio.run(client_capacity.selfcheck(seconds, say, workers))
    click.echo(strict_json(asdict(result)) if as_json else result.words())
    if workers > 1:
        return 0
    try:
        client_capacity.LAST.keep(result)
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody has a home here
        click.echo(f"not kept for later runs: {error}", err=True)
    return 0


def _ramp(scenario: Scenario, options: Options, as_json: bool, quiet: bool) -> int:
    import asyncio

    from loadramp.commands.terminal import show, watching
    from loadramp.runner import launch

    with watching(quiet) as (say, watch):
        finished = asyncio.run(launch.ramp(scenario, options, say, watch, argv=sys.argv[1:]))
    return show(finished, as_json)


def _share(scenario: Scenario, options: Options, shard: Shard, as_json: bool, quiet: bool) -> int:
    """Send one share of a run from several machines, and say where its records are."""
    import asyncio

    from loadramp.commands.terminal import answer, watching
    from loadramp.runner.shard_run import run_shard

    with watching(quiet) as (say, watch):
        done = asyncio.run(run_shard(scenario, options, shard, say, watch, argv=sys.argv[1:]))
    answer(strict_json(done.document()) if as_json else done.words())
    return done.exit_code


def _ask(scenario: Scenario, options: Options) -> None:
    from loadramp.client.endpoint import endpoint_of
    from loadramp.commands.terminal import confirm
    from loadramp.runner import scenarios
    from loadramp.runner.preview import foreseen

    def question() -> str:
        click.echo(foreseen(scenario)[1], err=True)
        return f"Load {host}?"

    host = endpoint_of(scenarios.with_target(scenario, options).target).host
    confirm([host], question)


def _commands() -> list[click.Command]:
    run_dir = click.Argument(["run_dir"], type=PATH)
    seconds = option("--seconds", "Seconds to measure at each level.", type=click.FloatRange(2.0, 60.0), default=4.0)
    workers = option("--workers", "Processes that share the tokens.", type=click.IntRange(min=1), default=1)
    return [
        command(run, scenario_argument(), *target_options(), *scenario_options(), *run_options(), *output_options()),
        command(plan, scenario_argument(), *target_options()[:2], *scenario_options(), *output_options()),
        command(probe, *target_options(), *_probe_options(), *output_options()),
        command(report, run_dir, *output_options()),
        command(simulate, *_simulate_options()),
        command(demo, out_option(), *output_options()),
        command(selfcheck, seconds, workers, *output_options()),
        *first_steps.commands(),
        *after_run.commands(),
        *(command for feature in FEATURES.values() if feature.commands for command in reach(feature.commands)()),
    ]


def _probe_options() -> list[click.Parameter]:
    via = "Client: the measuring one (direct), or a library to compare it with."
    seconds = click.FloatRange(0, min_open=True)
    return [
        option("--prompt", "Text to send.", default="Say hello."),
        option("--max-tokens", "Output tokens to request.", type=click.IntRange(1), default=64),
        option("--api", "OpenAI API to call.", type=click.Choice(["chat", "completions", "responses"]), default="chat"),
        option("--via", via, type=click.Choice(["direct", "httpx", "openai"]), default="direct"),
        option("--stream/--no-stream", "Ask for a stream.", default=True),
        option("--idle-timeout", "Most seconds between two tokens.", type=seconds),
        option("--first-timeout", "Most seconds to the first token.", type=seconds),
        option("--timeout", "Most seconds for the whole reply.", type=seconds),
        option("--show-text", "Print the reply too.", is_flag=True),
    ]


def _simulate_options() -> list[click.Parameter]:
    return [
        option("--host", "Address to bind.", default="127.0.0.1"),
        option("--port", "Port; 0 picks one.", type=click.IntRange(0, 65535), default=8000),
        option("--profile", "Engine to simulate; 'list' shows them all.", default="small"),
        option("--model", "Name of the model.", default="sim"),
        option("--adapter", "Also serve a LoRA adapter; may be repeated.", multiple=True, metavar="NAME"),
        option("--seed", "Seed of everything random.", type=int, default=0),
        option(
            "--fault", "Fault to inject; may be repeated; 'list' shows them all.", multiple=True, metavar="KEY=VALUE"
        ),
        option("--api-key-env", "Environment variable with the API key that requests must send.", metavar="NAME"),
        option("--max-num-seqs", "Most requests that run at once.", type=click.IntRange(1)),
        option("--max-num-batched-tokens", "Most tokens of a step.", type=click.IntRange(1)),
        option("--num-gpu-blocks-override", "KV blocks of 16 tokens.", type=click.IntRange(1)),
        option("--max-model-len", "Longest request, in tokens.", type=click.IntRange(1)),
        option(
            "--kv-cache-dtype",
            "An fp8 type holds twice the tokens.",
            type=click.Choice(["auto", "fp8", "fp8_e4m3", "fp8_e5m2"]),
            default="auto",
        ),
        option("--enable-chunked-prefill/--no-enable-chunked-prefill", "Compute prompts in chunks.", default=None),
    ]


cli = click.Group(
    "loadramp",
    commands=_commands(),
    help="Load-test an LLM endpoint: how many requests a second it sustains, what breaks first, how certain that is.",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
click.version_option(__version__, prog_name="loadramp")(cli)


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: errors become one line on stderr and an exit code."""
    try:
        sys.exit(cli.main(arguments, prog_name="loadramp", standalone_mode=False))
    except click.exceptions.Abort:
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as leaving:
        sys.exit(leaving.exit_code)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:  # the disk, or a file
        _complain(error, COULD_NOT_MEASURE)
    except ScenarioError as error:
        _complain(error, USAGE)
    except CannotMeasure as error:
        _complain(error, COULD_NOT_MEASURE)


def _complain(error: Exception, code: int) -> None:
    from loadramp.record.sanitize import clean

    click.echo(clean(f"loadramp: {error_message(error)}", lines=True), err=True)
    sys.exit(code)
