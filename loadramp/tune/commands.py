"""The command that finds the best flags: parse, call, print. No logic lives here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadramp.commands.options import (
    PATH,
    command,
    label_option,
    option,
    out_option,
    output_options,
    scenario_argument,
    scenario_options,
    strict_json,
    target_options,
)

if TYPE_CHECKING:
    from loadramp.tune.text import JudgedTuning


def tune(
    scenario: Path,
    *,
    server: str,
    switch_command: str,
    tries: Sequence[str],
    of_run: Path | None,
    grid: bool,
    resume: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """Find the flags with which a server does most.

    Starts the server with each candidate's flags, ramps it, stops it, and goes on; candidates that are shown to be
    worse are dropped, and the last two are measured in turn. Without --try, the cures of the findings are tried, first
    those of --from RUN or of the baseline's own run. The exit code is 0 if a best one is shown or none differs, 1 if
    the baseline could not be measured, and 3 if it is undecided. After an interruption, --resume DIR goes on.

    \b
    Examples:
      loadramp tune chat --server "vllm serve MODEL --port {port} {flags}" \\
          --try "--max-num-seqs 128" --max-hours 2 \\
          --try "--max-num-batched-tokens 4096"
    """
    import asyncio

    from loadramp.commands.terminal import asks, say, watching
    from loadramp.runner import scenarios
    from loadramp.tune import launch as job
    from loadramp.tune.preview import planned

    chosen = scenarios.Options(overrides=[*_overrides(options), *options.pop("overrides")], **options)
    ask = job.TuneOptions(chosen, server, switch_command, tries, grid, of_run, resume, sys.argv[1:])
    base, state = job.prepared(scenario, ask)
    plan = planned(base, state)
    if dry_run:
        click.echo(strict_json({"plan": plan}) if as_json else "\n".join(plan))
        return 0
    for line in () if quiet else plan:
        say(line)
    if asks(yes, as_json):
        click.confirm("Begin?", default=True, abort=True, err=True)
    with watching(quiet) as (speak, watch):
        tuning, code = asyncio.run(job.tune(scenario, ask, speak, watch))
    return _show(tuning, code, as_json)


TABLE_OPTIONS = ("baseline", "objective", "limit", "max_hours", "price_per_hour")


def _overrides(options: dict[str, Any]) -> list[str]:
    """Options that are keys of ``[tune]``, as ``--set`` takes them; they are taken out of ``options``."""
    from loadramp.scenario.scenario import toml_value

    given = {name: options.pop(name) for name in TABLE_OPTIONS}
    return [f"tune.{name}={toml_value(value)}" for name, value in given.items() if value is not None]


def again(path: Path, as_json: bool) -> int:
    """Judge a tuning again from its files."""
    from loadramp.commands.terminal import try_to_write
    from loadramp.tune.outcome import read_tuning, write_derived

    tuning = read_tuning(path)
    try_to_write(lambda: write_derived(tuning))
    return _show(tuning, tuning.exit_code, as_json)


def _show(tuning: JudgedTuning, code: int, as_json: bool) -> int:
    from loadramp.commands.terminal import answer
    from loadramp.tune.configurations import tuning_table
    from loadramp.tune.text import cautions, sentence, tuning_document

    if as_json:
        answer(strict_json(tuning_document(tuning)))
    else:
        last = [f"\n{tuning.command}"] if tuning.command else []
        answer(
            sentence(tuning),
            *cautions(tuning),
            "",
            tuning_table(tuning),
            *last,
            f"\nreport: {Path(tuning.path) / 'tune.html'}",
        )
    return code


def commands() -> list[click.Command]:
    """The commands of this module, for the group in cli.py."""
    return [
        command(
            tune,
            scenario_argument(),
            *_tune_options(),
            *target_options(),
            *scenario_options(),
            *output_options(),
        ),
    ]


def _tune_options() -> list[click.Parameter]:
    objectives = click.Choice(["slo_capacity", "ceiling", "goodput", "cost"])
    positive = click.FloatRange(0, min_open=True)
    return [
        option("--server", "Command that starts the server, with {port} and {flags} in it.", metavar="CMD", default=""),
        option(
            "--switch-command",
            "Command that makes the endpoint of --base-url run with {flags}. Run without a shell.",
            metavar="CMD",
            default="",
        ),
        option("--try tries", "Flags to try; may be repeated.", multiple=True, metavar="FLAGS"),
        option("--from of_run", "Try the cures of this run.", type=PATH, metavar="RUN"),
        option("--baseline", "Flags of the configuration to start from.", metavar="FLAGS"),
        option("--grid", "Try every combination of the candidates.", is_flag=True),
        option("--objective", "What to make as good as possible.", type=objectives),
        option("--limit", "Limit that must hold, too: 'p99 ITL <= 60 ms'.", metavar="EXPR"),
        option("--price-per-hour", "Price of the machine, for the cost.", type=positive),
        option("--max-hours", "Begin nothing that would end later.", type=positive),
        option("--resume", "Continue the tuning in this directory.", type=PATH, metavar="DIR"),
        option("--dry-run", "Show the plan and start nothing.", is_flag=True),
        out_option("Directory for tunings."),
        label_option(),
        option("--yes", "Do not ask for confirmation.", is_flag=True),
    ]
