"""The command before a launch: the campaign. Parse, call, print; no logic lives here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadramp.commands.options import (
    PATH,
    command,
    label_option,
    option,
    output_options,
    scenario_argument,
    scenario_options,
    strict_json,
    target_options,
)
from loadramp.units import plural

if TYPE_CHECKING:
    from loadramp.campaign.text import CampaignView
    from loadramp.runner.scenarios import Options


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
    """Run the load phases before a launch: go or no go.

    Runs up to five phases (baseline, ramp, sustained, overload, chaos) and fills in a scorecard. This takes hours (see
    docs/campaign.md). After an interruption, --resume DIR continues with the phase that was interrupted.

    \b
    Examples:
      loadramp campaign campaign --base-url http://host:8000 --rehearse
      loadramp campaign campaign --base-url http://host:8000 \\
          --set campaign.target_rps=8 --chaos 'kubectl delete pod vllm-0'
    """
    import asyncio

    from loadramp.campaign import launch as job
    from loadramp.commands.terminal import asks, watching
    from loadramp.runner import scenarios

    chosen = scenarios.Options(**options)
    if asks(yes, as_json):
        _ask(scenario, job.rehearsed(scenario, chosen) if rehearse else chosen)
    with watching(quiet) as (say, watch):
        view, code = asyncio.run(
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
    return _show(view, code, as_json)


def again(path: Path, as_json: bool) -> int:
    """Judge a campaign again from its files."""
    from loadramp.campaign.assess import exit_code, judge_campaign, write_derived
    from loadramp.commands.terminal import try_to_write

    view = judge_campaign(path)
    try_to_write(lambda: write_derived(view))
    return _show(view, exit_code(view), as_json)


def _show(view: CampaignView, code: int, as_json: bool) -> int:
    from loadramp.campaign.text import campaign_document, campaign_text
    from loadramp.commands.terminal import answer

    if as_json:
        answer(strict_json(campaign_document(view)))
    else:
        answer(campaign_text(view), f"\nreport: {Path(view.path) / 'report.html'}")
    return code


def _ask(scenario: Path, chosen: Options) -> None:
    from loadramp.campaign.table import campaign_of, in_order, longest_s
    from loadramp.client.endpoint import endpoint_of
    from loadramp.commands.terminal import confirm
    from loadramp.runner import scenarios

    read = scenarios.with_target(scenarios.read_scenario(scenario, chosen.overrides), chosen)
    host, phases = endpoint_of(read.target).host, ", ".join(in_order(campaign_of(read)))
    minutes = longest_s(campaign_of(read)) / 60.0
    confirm([host], lambda: f"Load {host} for {plural(round(minutes), 'minute')} and a ramp ({phases})?")


def commands() -> list[click.Command]:
    """The commands of this module, for the group in cli.py."""
    return [
        command(
            campaign,
            scenario_argument(),
            *_campaign_options(),
            *target_options(),
            *scenario_options(),
            *output_options(),
        ),
    ]


def _campaign_options() -> list[click.Parameter]:

    return [
        option("--out", "Directory for campaigns.", type=PATH, default=Path("reports")),
        option("--resume", "Continue the campaign in this directory.", type=PATH, metavar="DIR"),
        option("--answers", "File of answers to the scorecard. Default: answers.toml of the campaign.", type=PATH),
        option("--chaos", "Command that kills or restarts a worker. Run without a shell.", metavar="CMD"),
        option("--canary", "Canary with --switch-command, to show how long a rollback took.", type=PATH, metavar="DIR"),
        option("--rehearse", "Shorten every phase, to try the setup. Proves nothing.", is_flag=True),
        label_option(),
        option("--yes", "Do not ask for confirmation.", is_flag=True),
    ]
