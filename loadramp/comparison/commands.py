"""The commands that set one thing against another: parse, call, print. No logic lives here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from loadramp.commands.options import (
    PATH,
    command,
    keep_options,
    label_option,
    leave_option,
    option,
    out_option,
    output_options,
    scenario_argument,
    scenario_options,
    strict_json,
)
from loadramp.registry import CannotMeasure, ScenarioError
from loadramp.units import plural

if TYPE_CHECKING:
    from rich.console import Group

    from loadramp.comparison.pairs import Comparison


def compare(
    runs: Sequence[str], *, out: Path, overrides: Sequence[str], anyway: bool, as_json: bool, quiet: bool
) -> int:
    """Compare stored runs.

    Each argument is a run directory, or several separated by commas that repeat one configuration. The first is the
    baseline. Two arguments give a verdict (exit code 0 pass, 3 inconclusive or refused, 99 fail); more give a table of
    configurations. The directory of a canary, given alone, is judged again.

    \b
    Examples:
      loadramp compare reports/20260102-030405-chat reports/20260103-030405-chat
      loadramp compare reports/20260102-030405-chat \\
          reports/20260103-030405-chat --anyway --json
    """
    from loadramp.comparison.compare_runs import compare as compare_runs
    from loadramp.comparison.configuration_table import tiers_document, tiers_table
    from loadramp.comparison.configurations import Tiers
    from loadramp.runner.finish import EXIT

    compared = compare_runs(runs, out, overrides, anyway)
    if not isinstance(compared, Tiers):
        return _show(compared, as_json)
    if as_json:
        click.echo(strict_json(tiers_document(compared)))
    else:
        _print(tiers_table(compared), compared.path)
    return 0 if compared.rates else EXIT["inconclusive"]


def canary(
    scenario: Path,
    *,
    baseline: str,
    candidate: str,
    candidate_model: str | None,
    candidate_header: Sequence[str],
    candidate_api_key_env: str | None,
    candidate_label: Sequence[str],
    switch_command: str,
    swap_command: str,
    aa: bool,
    yes_i_may_load_test: Sequence[str],
    yes: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Compare two endpoints under the same load.

    Sends the same requests to both and decides whether the candidate is worse than the baseline. The exit code is 0 if
    the candidate is shown to be no worse than allowed, 99 if it is worse, and 3 if this is undecided. SCENARIO is a
    TOML file with a [canary] table, or canary, which comes with loadramp.

    \b
    Examples:
      loadramp canary canary --baseline http://old:8000 --candidate http://new:8000
      loadramp canary canary --baseline http://a:8000 --candidate http://b:8000 --aa
      loadramp canary canary --baseline http://host:8000 \\
          --candidate http://host:8000 --set canary.design=abba \\
          --switch-command './serve.sh {arm}'
    """
    import asyncio
    from dataclasses import replace

    from loadramp.commands.terminal import asks, confirm, watching
    from loadramp.comparison.launch import CanaryOptions
    from loadramp.comparison.launch import canary as compare_two
    from loadramp.runner import scenarios

    hosts = [_host(url) for url in (baseline, candidate)]
    base = scenarios.Options(base_url=baseline, yes_i_may_load_test=yes_i_may_load_test, **options)
    other = replace(
        base,
        base_url=candidate,
        model=candidate_model or base.model,
        header=(*base.header, *candidate_header),
        api_key_env=candidate_api_key_env or base.api_key_env,
        label=(*base.label, *candidate_label),
    )
    read = scenarios.read_scenario(scenario, base.overrides)
    if asks(yes, as_json):
        from loadramp.comparison.table import canary_of

        table = canary_of(read)
        minutes = len(table.rates) * table.blocks * table.block_s / 60.0 * (1 if table.design == "mirrored" else 2)
        confirm(hosts, lambda: f"Load {' and '.join(hosts)} for up to {plural(round(minutes), 'minute')}?")
    ask = CanaryOptions(base, other, switch_command, swap_command, aa, sys.argv[1:])
    with watching(quiet) as (say, watch):
        comparison, exit_code = asyncio.run(compare_two(read, ask, say, watch))
    return _show(comparison, as_json, exit_code)


def serve(jobs: Path, *, host: str, port: int, token_env: str | None, out: Path) -> int:
    """Run canaries and ramps over HTTP for rollout controllers.

    A controller starts a job by its name and polls for the verdict. JOBS is a TOML file with a table [jobs.NAME] for
    each job; a request can choose one of them and nothing else. The server runs until it is interrupted.

    \b
    Examples:
      loadramp serve jobs.toml --port 8090
      loadramp serve jobs.toml --host 0.0.0.0 --token-env LOADRAMP_TOKEN
    """
    import os

    from loadramp.commands.terminal import say
    from loadramp.comparison.job_config import read_jobs
    from loadramp.comparison.job_server import serve as listen
    from loadramp.record.run_directory import check_place
    from loadramp.runner.scenarios import read_scenario

    token = ""
    if token_env is not None:
        token = os.environ.get(token_env, "")
        if not token:
            raise ScenarioError(f"--token-env: the variable {token_env} is not set")
    try:
        text = jobs.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{jobs}: cannot be read: {error}") from None
    check_place(out)
    known = read_jobs(text, str(jobs))
    for name, job in known.items():
        try:
            read_scenario(Path(job.scenario), job.set)
        except ScenarioError as error:
            raise ScenarioError(f"{jobs}: [jobs.{name}] scenario: {error}") from None
    try:
        listen(host, port, known, out, token, say)
    except OSError as error:
        raise CannotMeasure(f"--host {host} --port {port}: {error.strerror or error}") from None
    return 0


def again(path: Path, as_json: bool) -> int:
    """Judge the canary in ``path`` again and write its report again."""
    from loadramp.commands.terminal import try_to_write
    from loadramp.comparison.judge import read
    from loadramp.comparison.launch import write_derived

    comparison = read(path)
    try_to_write(lambda: write_derived(comparison))
    return _show(comparison, as_json)


def _host(url: str) -> str:
    """The host of a URL, small letters, no brackets; empty where there is none."""
    try:
        return (urlsplit(url if "://" in url else f"http://{url}").hostname or "").lower()
    except ValueError:
        return ""


def _show(comparison: Comparison, as_json: bool, exit_code: int | None = None) -> int:
    """Print a comparison; the exit code is that of its verdict unless something else has come between."""
    from loadramp.comparison.document import comparison_document
    from loadramp.comparison.text import comparison_table
    from loadramp.runner.finish import EXIT

    if as_json:
        click.echo(strict_json(comparison_document(comparison)))
    else:
        _print(comparison_table(comparison), comparison.path)
    return EXIT[comparison.decision.verdict] if exit_code is None else exit_code


def _print(what: Group, path: str) -> None:
    from loadramp.commands.terminal import answer

    answer(what, f"\nreport: {Path(path) / 'report.html'}")


def commands() -> list[click.Command]:
    """``compare``, ``canary`` and ``serve``."""
    out = out_option("Directory for results.")
    runs = click.Argument(["runs"], nargs=-1, required=True, metavar="RUN_A RUN_B ...")
    anyway = option("--anyway", "Compare even if the environments differ.", is_flag=True)
    last = [*scenario_options(), out, *keep_options(), *output_options()]
    return [
        command(compare, runs, out, *scenario_options(), anyway, *output_options()),
        command(canary, scenario_argument(), *_canary_options(), *last),
        command(serve, click.Argument(["jobs"], type=PATH), *_serve_options(), out),
    ]


def _serve_options() -> list[click.Parameter]:
    return [
        option("--host", "Address to bind; any but loopback needs --token-env.", default="127.0.0.1"),
        option("--port", "Port to bind.", type=click.IntRange(0, 65535), default=8090),
        option("--token-env", "Environment variable with the token that calls must send.", metavar="NAME"),
    ]


def _canary_options() -> list[click.Parameter]:
    switch = (
        "Command that makes one machine serve {arm}: baseline or candidate ([canary] design = 'abba'). "
        "Run without a shell."
    )
    swap = (
        "Command that swaps the versions between the two hosts half-way, so that host differences cancel. "
        "Run without a shell."
    )
    return [
        option("--baseline", "Current version, with or without /v1.", metavar="URL", required=True),
        option("--candidate", "New version, with or without /v1.", metavar="URL", required=True),
        option("--model", "Model name. Default: the only model that each server lists."),
        option("--candidate-model", "Model name of the candidate, if it differs."),
        option("--api-key-env", "Environment variable with the API key. Default: OPENAI_API_KEY.", metavar="NAME"),
        option("--candidate-api-key-env", "The same for the candidate, if it differs.", metavar="NAME"),
        option("--header", "Extra request header; may be repeated.", multiple=True, metavar="K=V"),
        option("--candidate-header", "The same for the candidate only.", multiple=True, metavar="K=V"),
        label_option(),
        option("--candidate-label", "The same for the candidate only.", multiple=True, metavar="K=V"),
        option("--ca-file", "File of certificate authorities to trust."),
        option("--insecure", "Do not verify the servers' certificates.", is_flag=True),
        option("--switch-command", switch, default="", metavar="CMD"),
        option("--swap-command", swap, default="", metavar="CMD"),
        option("--aa", "Test whether two hosts that serve the same version differ.", is_flag=True),
        leave_option(),
    ]
