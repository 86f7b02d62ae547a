"""What comes after a run: thresholds, other programs' formats, and one run of the shards of several machines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loadramp.commands.options import PATH, command, option, out_option, output_options, strict_json
from loadramp.registry import ScenarioError

if TYPE_CHECKING:
    from loadramp.analysis.thresholds import Unsure

UNSURE = ["inconclusive", "pass", "fail", "point"]


def gate(
    run_dir: Path, *, slo: Sequence[str], when_unsure: Unsure | None, junit: Path | None, as_json: bool, quiet: bool
) -> int:
    """Check a stored run against thresholds.

    The thresholds are those of --slo, or else those of the run's scenario. Nothing is written except --junit FILE. The
    exit code is 99 if a threshold failed, and 3 if one is inconclusive because its interval contains the limit or its
    metric is unknown. A run that is void, missed its own [slo] at the lowest rate or could not be measured keeps its
    exit code.

    \b
    Examples:
      loadramp gate reports/20260102-030405-chat \\
          --slo 'p99(ttft_s) < 0.8 @ rate = 8' --slo 'ceiling_rps >= 12'
      loadramp gate reports/20260102-030405-chat \\
          --slo 'error_ratio < 0.1 %' --junit junit.xml
    """
    from loadramp.analysis.thresholds import overall
    from loadramp.report.exporters import EXPORTERS
    from loadramp.report.thresholds import gate_line, gates_document
    from loadramp.report.verdict_text import verdict, verdict_sentence
    from loadramp.runner.export import write
    from loadramp.runner.finish import EXIT, judge

    finished = judge(run_dir, rules=slo, when_unsure=when_unsure)
    run, code = finished.run, finished.exit_code
    if not run.gates:
        raise ScenarioError("no threshold: give --slo EXPR, or the scenario a [gates] table")
    if junit is not None:
        write(EXPORTERS["junit"](run), junit)
    if as_json:
        click.echo(strict_json({"run_dir": run.path, "verdict": verdict(run), "gates": gates_document(run)}))
    else:
        for line in map(gate_line, run.gates):
            click.echo(line)
        if code != EXIT[overall(run.gates)]:
            click.echo(f"the run itself: {verdict_sentence(run)}")
    return code


def export(source: Path, *, form: str, slo: Sequence[str], output: Path | None) -> int:
    """Convert a run or a nightly history for other programs.

    SOURCE is the directory of a run or of a history. --format list names the formats. One file goes to stdout or to
    --output; several files go into the directory --output.

    \b
    Examples:
      loadramp export reports/20260102-030405-chat --format junit -o junit.xml
      loadramp export history --format otava --output otava
      loadramp export reports/20260102-030405-chat --format list
    """
    from loadramp.runner.export import exported, single, write

    files = exported(source, form, slo)
    if output is None:
        click.echo(single(files, form), nl=False)
        return 0
    for path in write(files, output):
        click.echo(str(path), err=True)
    return 0


def merge(run_dirs: Sequence[Path], *, out: Path, allow_lost: bool, as_json: bool, quiet: bool) -> int:
    """Make one run of the shards that were sent from several machines.

    RUN_DIRS are the directories that `loadramp run --shard` has written, one of each shard. The run is judged and
    reported as if one machine had sent all of it.

    \b
    Examples:
      loadramp merge shards/*-of-8 --out reports
    """
    from loadramp.commands.terminal import show
    from loadramp.runner.merge import merge_shards

    return show(merge_shards(run_dirs, out, allow_lost=allow_lost), as_json)


def commands() -> list[click.Command]:
    """The commands of this module, for the group in cli.py."""
    run_dir = click.Argument(["run_dir"], type=PATH)
    source = click.Argument(["source"], type=PATH)
    run_dirs = click.Argument(["run_dirs"], nargs=-1, required=True, type=PATH)
    lost = "Merge although shards are missing or ended early; the steps that they lack are void."
    output = option("--output -o", "File to write, or directory for several files.", type=PATH)
    return [
        command(gate, run_dir, *_gate_options(), *output_options()),
        command(export, source, _format_option(), _slo_option(), output),
        command(merge, run_dirs, out_option(), option("--allow-lost", lost, is_flag=True), *output_options()),
    ]


def _slo_option() -> click.Parameter:
    return option("--slo", "Threshold (see docs/gates.md); may be repeated.", multiple=True, metavar="EXPR")


def _gate_options() -> list[click.Parameter]:
    return [
        _slo_option(),
        option("--junit", "Also write JUnit XML to this file.", type=PATH, metavar="FILE"),
        option(
            "--when-unsure",
            "How an inconclusive threshold counts. Default: as the scenario says.",
            type=click.Choice(UNSURE),
        ),
    ]


def _format_option() -> click.Parameter:
    return option(
        "--format form", "Format (see docs/exports.md); 'list' names them all.", required=True, metavar="NAME"
    )
