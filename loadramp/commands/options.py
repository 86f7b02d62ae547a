"""What commands have in common: their options, and how a function becomes one."""

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from loadramp.one_thread import one_thread

EPILOG = (
    "Exit codes: 0 passed, or measured with no gate set; 1 could not measure; 2 usage or scenario error; "
    "3 inconclusive or void; 99 a threshold, SLO or comparison failed; 130/143 interrupted, partial results saved."
)


PATH = click.Path(path_type=Path)


def option(names: str, help: str, **more: Any) -> click.Parameter:
    """An option, its names with spaces between. Its default is shown where there is one."""
    return click.Option(names.split(), help=help, show_default=more.get("default") not in (None, ""), **more)


def scenario_argument() -> click.Parameter:
    return click.Argument(["scenario"], type=PATH)


def target_options() -> list[click.Parameter]:
    return [
        option("--base-url", "Endpoint, with or without /v1. Default: $OPENAI_BASE_URL."),
        option("--model", "Model name. Default: the only model that the server lists."),
        option("--api-key-env", "Environment variable with the API key. Default: OPENAI_API_KEY.", metavar="NAME"),
        option("--header", "Extra request header; may be repeated.", multiple=True, metavar="K=V"),
        option("--ca-file", "File of certificate authorities to trust."),
        option("--insecure", "Do not verify the server's certificate.", is_flag=True),
        leave_option(),
    ]


def leave_option() -> click.Parameter:
    return option(
        "--yes-i-may-load-test",
        "Confirm a public host by repeating its name. Give the option once for each host.",
        multiple=True,
        metavar="HOST",
    )


def scenario_options() -> list[click.Parameter]:
    return [
        option("--set overrides", "Override a scenario key; may be repeated.", multiple=True, metavar="TABLE.KEY=VALUE")
    ]


def label_option() -> click.Parameter:
    return option("--label", "Metadata to record with the run, such as gpu=H100.", multiple=True, metavar="K=V")


def output_options() -> list[click.Parameter]:
    return [
        option("--json as_json", "Print one JSON document on stdout; messages go to stderr.", is_flag=True),
        option("--quiet", "Do not show progress.", is_flag=True),
    ]


def out_option(words: str = "Directory for runs.") -> click.Parameter:
    return option("--out", words, type=PATH, default=Path("reports"))


def keep_options() -> list[click.Parameter]:
    return [
        option("--save-text", "Store the text of replies in the records.", is_flag=True),
        option("--yes", "Do not ask for confirmation.", is_flag=True),
    ]


def run_options() -> list[click.Parameter]:
    return [
        out_option(),
        option("--repeats", "Number of ramps, one after the other.", type=click.IntRange(1, 50), default=1),
        option(
            "--until-sure",
            "Lengthen each step until the interval of [ramp] sure_of is within this ratio of its value: 0.1.",
            type=click.FloatRange(min=0, min_open=True),
            metavar="RATIO",
        ),
        option("--quick", "Short steps, about three minutes; the answer says what that costs.", is_flag=True),
        click.Option(
            ["--abort-on-fail"], is_flag=True, help="End the ramp once a threshold on a step is missed beyond doubt."
        ),
        label_option(),
        option("--shard", "Send share K (from 0) of N; `loadramp merge` makes one run of them.", metavar="K/N"),
        option("--start-at", "When the plan of all shards begins: ISO 8601, epoch seconds or +30s.", metavar="TIME"),
        *keep_options(),
    ]


def command(function: Callable[..., int], *params: click.Parameter) -> click.Command:
    """The function as a command. Its process loads numpy and scipy before all else, and with them one thread each."""

    @wraps(function)
    def run(**options: Any) -> int:
        with one_thread():
            for library in ("numpy", "scipy.special"):
                import_module(library)
        return function(**options)

    name = function.__name__.replace("_", "-")
    return click.Command(name, callback=run, params=list(params), help=function.__doc__, epilog=EPILOG)


def strict_json(document: object) -> str:
    """A document as JSON text: no NaN, no infinity."""
    import json

    return json.dumps(document, indent=1, allow_nan=False)
