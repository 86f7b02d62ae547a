"""The commands for the first five minutes: what to fix before measuring, and a scenario to begin with."""

from pathlib import Path
from typing import Any

import click

from loadramp.commands.options import PATH, command, option, output_options, strict_json, target_options
from loadramp.registry import ScenarioError

SOMETHING_TO_FIX = 3


def doctor(*, as_json: bool, quiet: bool, **options: Any) -> int:
    """Find out what to fix before measuring.

    Looks at the endpoint with a few requests (model, fields it takes, stream, metrics page) and at this machine as a
    client. The exit code is 3 if something should be fixed first.

    \b
    Examples:
      loadramp doctor --base-url http://host:8000
      loadramp doctor --base-url http://host:8000 --model chat --json
    """
    import asyncio

    from loadramp.commands.terminal import watching
    from loadramp.record.sanitize import clean
    from loadramp.runner import doctor
    from loadramp.runner.scenarios import Options

    with watching(quiet) as (say, _):
        lines = asyncio.run(doctor.examine(Options(**options), say))
    document = doctor.document(lines)
    click.echo(strict_json(document) if as_json else clean(doctor.page_text(lines), lines=True))
    return SOMETHING_TO_FIX if document["fix"] else 0


def init(*, output: Path, name: str, force: bool, **options: Any) -> int:
    """Write a commented scenario for an endpoint.

    Asks the endpoint for its model, context length and metrics page, and picks lengths that the model has room for.

    \b
    Examples:
      loadramp init --base-url http://host:8000 --output chat.toml
      loadramp init --base-url https://llm.example.com \\
          --yes-i-may-load-test llm.example.com
    """
    import asyncio

    from loadramp.record.run_directory import put
    from loadramp.record.sanitize import clean
    from loadramp.runner import new_scenario
    from loadramp.runner.scenarios import Options

    if output.exists() and not force:
        raise ScenarioError(f"{output}: exists already; another --output, or --force to replace it")
    facts = asyncio.run(new_scenario.ask(Options(**options)))
    put(output, new_scenario.scenario_text(facts, name or output.stem).encode())
    click.echo(clean(f"wrote {output}: {facts.model} at {facts.url}"))
    click.echo(f"next: loadramp plan {output}, then loadramp run {output} (or run {output} --quick for three minutes)")
    return 0


def commands() -> list[click.Command]:
    """``doctor`` and ``init``."""
    return [
        command(doctor, *target_options(), *output_options()),
        command(
            init,
            *target_options(),
            option("--output", "File to write.", type=PATH, default=Path("scenario.toml")),
            option("--name", "Name of the scenario. Default: that of the file."),
            option("--force", "Replace the file.", is_flag=True),
        ),
    ]
