"""One run from several machines: the command that makes one run directory of its shards, and what a shard answers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from loadramp.commands.options import PATH, command, option, out_option, output_options, strict_json


def send(scenario: Any, options: Any, as_json: bool, quiet: bool) -> int:
    """``loadramp run --shard``: send the share, and say where its records are."""
    import asyncio

    from loadramp.commands.terminal import answer, watching
    from loadramp.runner.shard_run import run_shard

    with watching(quiet) as (say, watch):
        done = asyncio.run(run_shard(scenario, options, options.shard, say, watch, argv=sys.argv[1:]))
    answer(strict_json(done.document()) if as_json else done.words())
    return done.exit_code


def merge(run_dirs: Sequence[Path], *, out: Path, allow_lost: bool, as_json: bool, quiet: bool) -> int:
    """Make one run of the shards that were sent from several machines.

    RUN_DIRS are the directories that `loadramp run --shard` has written, one of each shard. The run is judged and
    reported as if one machine had sent all of it.

    \b
    Examples:
      loadramp merge shards/*-of-8 --out reports
    """
    from loadramp.commands.terminal import answer
    from loadramp.report import terminal_table, verdict_document
    from loadramp.runner.merge import merge_shards

    finished = merge_shards(run_dirs, out, allow_lost=allow_lost)
    if as_json:
        answer(strict_json(verdict_document(finished.run)))
    else:
        answer(terminal_table(finished.run), f"\nreport: {Path(finished.run.path) / 'report.html'}")
    return finished.exit_code


def commands() -> list[click.Command]:
    """``merge``."""
    run_dirs = click.Argument(["run_dirs"], nargs=-1, required=True, type=PATH)
    lost = "Merge although shards are missing or ended early; the steps that they lack are void."
    return [command(merge, run_dirs, out_option(), option("--allow-lost", lost, is_flag=True), *output_options())]
