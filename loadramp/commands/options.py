"""What commands have in common: their options, and how a function becomes one. Knows click and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

EPILOG = (
    "Exit codes: 0 passed, or measured with no gate set; 1 could not measure; 2 usage or scenario error; "
    "3 inconclusive or void; 99 a threshold, SLO or comparison failed; 130/143 interrupted, partial results saved."
)


def scenario_argument() -> click.Parameter:
    return click.Argument(["scenario"], type=click.Path(path_type=Path))


def target_options() -> list[click.Parameter]:
    return [
        click.Option(["--base-url"], help="Endpoint, with or without /v1. Default: $OPENAI_BASE_URL."),
        click.Option(["--model"], help="Model name. Default: the only model that the server lists."),
        click.Option(
            ["--api-key-env"], metavar="NAME", help="Environment variable with the API key. Default: OPENAI_API_KEY."
        ),
        click.Option(["--header"], multiple=True, metavar="K=V", help="Extra request header; may be repeated."),
        click.Option(["--ca-file"], help="File of certificate authorities to trust."),
        click.Option(["--insecure"], is_flag=True, help="Do not verify the server's certificate."),
        leave_option(),
    ]


def leave_option() -> click.Parameter:
    return click.Option(
        ["--yes-i-may-load-test"],
        multiple=True,
        metavar="HOST",
        help="Confirm a public host by repeating its name. Give the option once for each host.",
    )


def scenario_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--set", "overrides"],
            multiple=True,
            metavar="TABLE.KEY=VALUE",
            help="Override a scenario key; may be repeated.",
        )
    ]


def label_option() -> click.Parameter:
    return click.Option(
        ["--label"], multiple=True, metavar="K=V", help="Metadata to record with the run, such as gpu=H100."
    )


def output_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--json", "as_json"], is_flag=True, help="Print one JSON document on stdout; messages go to stderr."
        ),
        click.Option(["--quiet"], is_flag=True, help="Do not show progress."),
    ]


def run_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--out"],
            type=click.Path(path_type=Path),
            default=Path("reports"),
            show_default=True,
            help="Directory for runs.",
        ),
        click.Option(
            ["--repeats"],
            type=click.IntRange(1, 50),
            default=1,
            show_default=True,
            help="Number of ramps, one after the other.",
        ),
        click.Option(
            ["--until-sure"],
            type=click.FloatRange(min=0, min_open=True),
            metavar="RATIO",
            help="Lengthen each step until the interval of [ramp] sure_of is within this ratio of its value: 0.1.",
        ),
        label_option(),
        click.Option(["--save-text"], is_flag=True, help="Store the text of replies in the records."),
        click.Option(["--yes"], is_flag=True, help="Do not ask for confirmation."),
    ]


def command(function: Any, *params: click.Parameter) -> click.Command:
    return click.Command(
        function.__name__.replace("_", "-"),
        callback=function,
        params=list(params),
        help=function.__doc__,
        epilog=EPILOG,
    )


def strict_json(document: Any) -> str:
    """A document as JSON text: no NaN, no infinity."""
    import json

    return json.dumps(document, indent=1, allow_nan=False)
