"""The commands before a launch: the campaign, and what to run. Parse, call, print; no logic lives here."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from loadramp.commands.options import (
    command,
    label_option,
    output_options,
    scenario_argument,
    scenario_options,
    target_options,
)
from loadramp.registry import ScenarioError


def campaign(
    scenario: Path,
    *,
    resume: Path | None,
    answers: Path | None,
    chaos: str | None,
    canary: Path | None,
    rehearse: bool,
    yes: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> int:
    """The phases before a launch: baseline, ramp, sustained, overload, chaos; then the scorecard: go or no go.

    Takes hours (docs/campaign.md). An interruption costs the phase it falls into: go on with --resume DIR.
    """
    import asyncio

    from loadramp.commands.screen import asks, watching
    from loadramp.jobs import rehearse as job
    from loadramp.jobs import scenarios
    from loadramp.plan.campaign import REHEARSAL

    chosen = scenarios.Options(**options)
    if asks(yes, as_json):
        _ask(scenario, replace(chosen, overrides=[*REHEARSAL, *chosen.overrides]) if rehearse else chosen)
    with watching(quiet) as (say, watch):
        finished = asyncio.run(
            job.rehearse(
                scenario,
                chosen,
                say,
                watch,
                chaos=chaos,
                resumed=resume,
                answers=answers,
                argv=sys.argv[1:],
                rehearsal=rehearse,
                canary=canary,
            )
        )
    return _show(finished, as_json)


def again(path: Path, as_json: bool) -> int:
    """Judge a campaign again from its files."""
    from loadramp.commands.screen import try_to_write
    from loadramp.jobs.readout import judge_campaign, write_derived

    found = judge_campaign(path)
    try_to_write(lambda: write_derived(found.told))
    return _show(found, as_json)


def _show(finished: Any, as_json: bool) -> int:
    from loadramp.commands.screen import answer
    from loadramp.report.campaign import campaign_document, campaign_text

    told = finished.told
    if as_json:
        answer(json.dumps(campaign_document(told), indent=1, allow_nan=False))
    else:
        answer(campaign_text(told), f"\nreport: {Path(told.path) / 'report.html'}")
    return int(finished.exit_code)


def _ask(scenario: Path, chosen: Any) -> None:
    from loadramp.commands.screen import confirm
    from loadramp.drive.endpoint import endpoint_of
    from loadramp.jobs import scenarios
    from loadramp.plan.campaign import in_order, longest_s

    read = scenarios.with_target(scenarios.read_scenario(scenario, chosen.overrides), chosen)
    host, phases = endpoint_of(read.target).host, ", ".join(in_order(read.campaign))
    minutes = longest_s(read.campaign) / 60.0
    confirm([host], lambda: f"Load {host} for {minutes:.0f} minutes and a ramp ({phases})?")


def advise(
    runs: tuple[Path, ...], *, facts: Path | None, markdown: Path | None, as_json: bool, quiet: bool, **options: Any
) -> int:
    """What to run: memory, flags and replicas, from measured RUNS and a model and GPU.

    Lengths, reuse and the rate of one replica come from the first run; several runs are compared. Without a run they
    are given as options, or as tables of a TOML file (--facts).
    """
    from loadramp.advise.advice import Measured
    from loadramp.advise.advice import advise as consider
    from loadramp.advise.asked import asked_of, config_of
    from loadramp.advise.demand import comparable, demand_of
    from loadramp.jobs.finish import judged
    from loadramp.jobs.readout import text_of
    from loadramp.record.rundir import put
    from loadramp.report.advice import advice_document, advice_markdown, advice_text

    asked = asked_of(options, text_of(facts) if facts else "", str(facts or ""))
    config = asked.model.model_config
    read = [judged(path) for path in runs]
    if len(read) > 1 and (apart := comparable(read)):
        raise ScenarioError(f"these runs cannot be compared: {'; '.join(apart)}")
    measured = [Measured(path.resolve().name, demand_of(run)) for path, run in zip(runs, read, strict=True)]
    advice = consider(asked, measured, config_of(text_of(_beside(facts, config)), config) if config else None)
    if markdown is not None:
        put(markdown, advice_markdown(advice).encode())
    click.echo(json.dumps(advice_document(advice), indent=1, allow_nan=False) if as_json else advice_text(advice))
    return 0


def _beside(facts: Path | None, name: str) -> Path:
    """A file named in ``facts`` counts from there; one named as an option from here."""
    path = Path(name)
    return facts.parent / path if facts is not None and not path.is_absolute() and not path.exists() else path


def commands() -> list[click.Command]:
    """The commands of this module, for the group in cli.py."""
    runs = click.Argument(["runs"], nargs=-1, type=click.Path(path_type=Path))
    return [
        command(
            campaign,
            scenario_argument(),
            *_campaign_options(),
            *target_options(),
            *scenario_options(),
            *output_options(),
        ),
        command(advise, runs, *_advise_options(), *output_options()),
    ]


def _campaign_options() -> list[click.Parameter]:
    a_path = click.Path(path_type=Path)
    return [
        click.Option(["--out"], type=a_path, default=Path("reports"), help="Where campaigns are put."),
        click.Option(["--resume"], type=a_path, metavar="DIR", help="Go on with this campaign."),
        click.Option(
            ["--answers"], type=a_path, help="Answers to the scorecard; default: answers.toml of the campaign."
        ),
        click.Option(["--chaos"], metavar="CMD", help="Kills or restarts a worker; run without a shell."),
        click.Option(
            ["--canary"], type=a_path, metavar="DIR", help="A canary with --switch-command: how long a rollback took."
        ),
        click.Option(["--rehearse"], is_flag=True, help="Shorten every phase, to try it out: proves nothing."),
        label_option(),
        click.Option(["--yes"], is_flag=True, help="Do not ask before the load."),
    ]


def _advise_options() -> list[click.Parameter]:
    number, whole, share = click.FLOAT, click.IntRange(1), click.FloatRange(0, 1)
    return [
        click.Option(["--facts"], type=click.Path(path_type=Path), help="TOML file with any of these as keys."),
        click.Option(["--gpu"], metavar="NAME", help="Card, as L40S or H100 (docs/advise.md has the table)."),
        click.Option(["--gpu-memory-gb"], type=number, help="Memory of one card: MiB of nvidia-smi x 0.001048576."),
        click.Option(["--max-gpus"], type=whole, help="Cards that one replica may have.  [default: 8]"),
        click.Option(["--model"], metavar="NAME", help="What the engine is to serve."),
        click.Option(["--model-config"], metavar="FILE", help="The model's config.json (Hugging Face)."),
        click.Option(["--parameters"], type=number, help="All of them, resting experts included: 7.24e9."),
        click.Option(["--layers"], type=whole),
        click.Option(["--heads"], type=whole, help="Attention heads."),
        click.Option(["--kv-heads"], type=whole),
        click.Option(["--head-dim"], type=whole),
        click.Option(["--weights"], type=click.Choice(["bf16", "fp16", "fp8", "int8", "int4", "fp4", "fp32"])),
        click.Option(["--engine"], type=click.Choice(["vllm", "sglang", "both"]), help="[default: both]"),
        click.Option(["--engine-version"], metavar="X.Y", help="Of vLLM; default: that of the run."),
        click.Option(["--utilization"], type=number, help="Part of each card for the engine.  [default: 0.9]"),
        click.Option(["--reserve"], type=number, help="Part of the KV memory not counted on.  [default: 0.1]"),
        click.Option(["--kv-dtype"], type=click.Choice(["auto", "bf16", "fp16", "fp8"]), help="[default: auto]"),
        click.Option(["--tensor-parallel"], type=whole, help="Cards of a replica; default: the fewest that do."),
        click.Option(["--input-tokens"], type=number, help="Mean of a request; default: measured."),
        click.Option(["--output-tokens"], type=number, help="Mean of an answer; default: measured."),
        click.Option(["--context-tokens"], type=whole, help="Input and output of long requests; default: measured."),
        click.Option(["--prefix-reuse"], type=share, help="Share of prompt tokens that repeat; default: measured."),
        click.Option(["--concurrency"], type=number, help="Requests at once on a replica; default: measured."),
        click.Option(["--replica-rps"], type=number, help="What one replica takes; default: measured."),
        click.Option(["--peak-rps"], type=number, help="The load to size for."),
        click.Option(["--mean-rps"], type=number, help="The average load, for the cost of a token."),
        click.Option(["--peak-multiplier"], type=number, help="How many times the mean the peak is."),
        click.Option(["--headroom"], type=number, help="Capacity that stays free at the peak.  [default: 0.3]"),
        click.Option(["--spare"], type=click.IntRange(0), help="Replicas to spare.  [default: 1]"),
        click.Option(["--gpus"], type=whole, multiple=True, help="Cards of a measured replica, one for each RUN."),
        click.Option(["--price"], type=number, multiple=True, help="Of one card and hour, one for each RUN."),
        click.Option(["--markdown"], type=click.Path(path_type=Path), help="Write it there, too."),
    ]
