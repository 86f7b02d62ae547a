"""The commands: parse, call, print. No logic lives here."""

from __future__ import annotations

import click

from loadramp import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="loadramp")
def main() -> None:
    """Ramp load testing for LLM serving: how much it takes, what breaks first, and how sure."""
