"""The commands about nights: parse, call, print. No logic lives here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loadramp.commands.options import (
    PATH,
    command,
    keep_options,
    label_option,
    option,
    out_option,
    output_options,
    scenario_argument,
    scenario_options,
    strict_json,
    target_options,
)
from loadramp.registry import ScenarioError

if TYPE_CHECKING:
    from loadramp.nightly.history import Entry
    from loadramp.nightly.trend import NightOutcome
    from loadramp.runner.scenarios import Options
    from loadramp.scenario.scenario import Scenario


def nightly(
    scenario: Path, *, history: Path, label: Sequence[str], yes: bool, as_json: bool, quiet: bool, **options: Any
) -> int:
    """Measure capacity and compare it with earlier nights.

    Makes a few short runs, appends their results to the history and looks for changes. The exit code is 99 if this
    night shows a change for the worse, misses a minimum or fails a threshold. It is 1 if nothing could be measured,
    which is never a regression.

    \b
    Examples:
      loadramp nightly nightly --history history --base-url http://host:8000
      loadramp nightly scenario.toml --history history --label gpu=H100 --quiet
    """
    import asyncio

    from loadramp.commands.terminal import asks, watching
    from loadramp.nightly.history import History
    from loadramp.nightly.night import Measuring
    from loadramp.runner import scenarios

    chosen = scenarios.Options(**options)
    read = scenarios.read_scenario(scenario, chosen.overrides)
    if asks(yes, as_json):
        _ask(read, chosen)
    with watching(quiet) as (say, watch):
        labels = scenarios.named("--label", label)
        night = Measuring(read, chosen, History(history), say, watch, argv=sys.argv[1:], labels=labels)
        finished = asyncio.run(night.measure())
    if as_json:
        click.echo(strict_json(finished.document))
    else:
        _tell(finished.outcome)
        click.echo(f"\ntrend: {history / 'trend.html'}")
    return finished.exit_code


def _ask(scenario: Scenario, options: Options) -> None:
    from loadramp.client import input_files
    from loadramp.client.endpoint import endpoint_of
    from loadramp.commands.terminal import confirm
    from loadramp.nightly.preview import nightly_parts
    from loadramp.runner.scenarios import with_target
    from loadramp.units import plural, span

    def question() -> str:
        (part,) = nightly_parts(input_files.ready(scenario))
        takes = f", {span(part.runs * part.steps[-1].cumulative_s)} in all" if part.steps else ""
        return f"Load {host} ({plural(part.runs, 'run')}{takes})?"

    host = endpoint_of(with_target(scenario, options).target).host
    confirm([host], question)


def trend(history: Path, *, scenario: str | None, output: Path | None, as_json: bool, quiet: bool) -> int:
    """Write the trend page of a nightly history again.

    The page shows every metric over all nights, with its changes.

    \b
    Examples:
      loadramp trend history
      loadramp trend history --scenario chat --output public/index.html
    """
    from loadramp.nightly.history import History
    from loadramp.nightly.page import build_trend_html, trend_view
    from loadramp.nightly.text import night_document
    from loadramp.record.run_directory import put

    entries = _read(history)
    names = sorted({entry.scenario for entry in entries})
    if scenario is not None and scenario not in names:
        raise ScenarioError(
            f"--scenario: {history} holds no {scenario!r}; it holds {', '.join(names) or 'nothing yet'}"
        )
    shown = trend_view(entries, scenario)
    path = output or history / "trend.html"
    if output is None:
        History(history).write("trend.html", build_trend_html(entries, scenario))
    else:
        put(output, build_trend_html(entries, scenario).encode())
    if as_json:
        click.echo(strict_json(night_document(shown.outcome, 0, [], shown.scenario)))
    else:
        _tell(shown.outcome)
        click.echo(f"\ntrend: {path}")
    return 0


def accept(history: Path, *, metric: Sequence[str], scenario: str | None, reason: str, yes: bool) -> int:
    """Accept the latest level of a nightly history.

    Takes the level of the latest night as the new normal and closes the open alarms. Lists the levels first and asks
    for confirmation on a terminal.

    \b
    Examples:
      loadramp accept history
      loadramp accept history --metric ceiling_rps --yes \\
          --reason "fewer sequences, on purpose"
    """
    from loadramp.commands.terminal import asks, say
    from loadramp.nightly.accept import accept as write_down
    from loadramp.nightly.accept import acceptable
    from loadramp.nightly.history import History
    from loadramp.nightly.text import level_words, night_words
    from loadramp.units import plural

    _read(history)
    latest = acceptable(History(history), metric, scenario)
    say(f"{latest.scenario}, night of {night_words(latest.night)}:")
    for level in latest.levels:
        say(f"  {level_words(level)}")
    if asks(yes, as_json=False):
        levels = "this level" if len(latest.levels) == 1 else f"these {plural(len(latest.levels), 'level')}"
        click.confirm(f"Accept {levels} from now on?", default=False, abort=True, err=True)
    entry = write_down(History(history), metric, reason, scenario)
    what = ", ".join(metric) or f"every metric ({', '.join(level.metric for level in latest.levels)})"
    click.echo(f"accepted {what} of {entry.scenario} as of {night_words(entry.night)}")
    return 0


def commands() -> list[click.Command]:
    """The commands of this module, for the group in cli.py."""
    history = click.Argument(["history"], type=PATH)
    of_several = option("--scenario", "Scenario to use, if the history has several.", metavar="NAME")
    output = option("--output -o", "File to write. Default: trend.html in the history.", type=PATH)
    return [
        command(
            nightly, scenario_argument(), *_nightly_options(), *target_options(), *scenario_options(), *output_options()
        ),
        command(trend, history, of_several, output, *output_options()),
        command(accept, history, *_accept_options(), of_several),
    ]


def _nightly_options() -> list[click.Parameter]:
    return [
        option("--history", "Directory of the history; created if missing.", type=PATH, required=True),
        label_option(),
        out_option(),
        *keep_options(),
    ]


def _accept_options() -> list[click.Parameter]:
    return [
        option("--metric", "Accept this metric only; may be repeated.", multiple=True, metavar="NAME"),
        option("--reason --why reason", "Reason to record in the history.", default=""),
        option("--yes", "Do not ask for confirmation.", is_flag=True),
    ]


def _read(history: Path) -> list[Entry]:
    from datetime import UTC, datetime

    from loadramp.nightly.history import History, is_history, skipped_words
    from loadramp.nightly.series import latest_night

    if not is_history(history):
        raise ScenarioError(f"{history}: no history (no history.jsonl) here")
    entries, skipped = History(history).read()
    if skipped:
        click.echo(skipped_words(History(history).file, skipped), err=True)
    if (last := latest_night(entries)) > datetime.now(UTC).isoformat():
        click.echo(f"note: {History(history).file}: the night of {last} is still to come: a clock was wrong", err=True)
    return entries


def _tell(outcome: NightOutcome) -> None:
    from loadramp.nightly.text import terminal_lines

    for line in terminal_lines(outcome):
        click.echo(line)
