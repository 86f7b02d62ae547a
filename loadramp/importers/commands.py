"""``loadramp import``: parse, call, print."""

from collections.abc import Sequence
from pathlib import Path

import click

from loadramp.commands.options import command, option, out_option, output_options
from loadramp.registry import ScenarioError, bind_options

NAMES = ("auto", "vllm-bench", "guidellm", "inference-perf", "aiperf", "csv")


def import_(
    files: Sequence[Path], *, form: str, name: str, slo: Sequence[str], out: Path, as_json: bool, quiet: bool
) -> int:
    """Judge detailed results of other load generators.

    FILES become one run directory: each file, or each level of load in it, is a step. Known are results of `vllm bench
    serve --save-result --save-detailed`, GuideLLM, AIPerf (profile_export.jsonl), inference-perf
    (per_request_lifecycle_metrics.json), and CSV. What a tool did not record is null, with the reason.

    \b
    Examples:
      loadramp import rate1.json rate2.json rate4.json rate8.json --slo ttft_s=1.0
      loadramp import profile_export.jsonl --name "chat, 20 users"
    """
    from loadramp.commands.terminal import show
    from loadramp.importers.build import import_runs

    return show(import_runs(files, out, wanted=form, name=name, slo=_limits(slo)), as_json)


def commands() -> list[click.Command]:
    """What this feature adds to the command line."""
    files = click.Argument(
        ["files"], nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False)
    )
    options = [
        option("--format form", "What FILES are.", type=click.Choice(NAMES), default="auto"),
        option("--name", "Name of the run; default: that of the first file.", default=""),
        option("--slo", "A key of [slo]; may be repeated.", multiple=True, metavar="KEY=VALUE"),
        out_option(),
    ]  # fmt: skip
    made = command(import_, files, *options, *output_options())
    made.name = "import"
    return [made]


def _limits(settings: Sequence[str]) -> dict[str, float]:
    """The keys of ``[slo]`` that were given.

    Raises:
        ScenarioError: one is misspelt or no number.
    """
    from loadramp.runner.scenarios import named
    from loadramp.scenario.scenario import Slo

    try:
        given = {key: float(value) for key, value in named("--slo", settings).items()}
    except ValueError as error:
        raise ScenarioError(f"--slo: expected a number: {error}") from None
    bind_options(given, Slo, "--slo")
    return given
