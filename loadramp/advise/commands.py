"""The commands that say what to run: memory, flags and replicas; alerts, boards and scalers. Parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from loadramp.commands.options import command, output_options, strict_json
from loadramp.registry import ScenarioError


def advise(
    runs: tuple[Path, ...], *, facts: Path | None, markdown: Path | None, as_json: bool, quiet: bool, **options: Any
) -> int:
    """What to run: memory, flags and replicas, from measured RUNS and a model and GPU.

    Lengths, reuse and the rate of one replica come from the first run; several runs are compared. Without a run they
    are given as options, or as tables of a TOML file (--facts).
    """
    from loadramp.advise.advice import Measured
    from loadramp.advise.advice import advise as consider
    from loadramp.advise.demand import comparable, demand_of
    from loadramp.advise.options import asked_of, config_of
    from loadramp.advise.text import advice_document, advice_markdown, advice_text
    from loadramp.record.run_directory import put
    from loadramp.runner.finish import judged
    from loadramp.runner.scenarios import text_of

    asked = asked_of(options, text_of(facts) if facts else "", str(facts or ""))
    config = asked.model.model_config
    read = [judged(path) for path in runs]
    if len(read) > 1 and (apart := comparable(read)):
        raise ScenarioError(f"these runs cannot be compared: {'; '.join(apart)}")
    measured = [Measured(path.resolve().name, demand_of(run)) for path, run in zip(runs, read, strict=True)]
    advice = consider(asked, measured, config_of(text_of(_beside(facts, config)), config) if config else None)
    if markdown is not None:
        put(markdown, advice_markdown(advice).encode())
    click.echo(strict_json(advice_document(advice)) if as_json else advice_text(advice))
    return 0


def _beside(facts: Path | None, name: str) -> Path:
    """A file named in ``facts`` counts from there; one named as an option from here."""
    path = Path(name)
    return facts.parent / path if facts is not None and not path.is_absolute() and not path.exists() else path


def alerts(
    run_dir: Path,
    *,
    form: str,
    engine: str | None,
    replicas: int,
    selector: str,
    gpu_selector: str | None,
    output: Path | None,
) -> int:
    """Make Prometheus alert rules, a Grafana board or a KEDA scaler from the run's SLO and its measured capacity."""
    from loadramp.advise.alert_export import alert_text
    from loadramp.record.run_directory import put

    text = alert_text(run_dir, form, engine, replicas, selector, gpu_selector)
    if output is None:
        click.echo(text, nl=False)
    else:
        put(output, text.encode())
    return 0


def commands() -> list[click.Command]:
    """The commands of this module, for the group in cli.py."""
    runs = click.Argument(["runs"], nargs=-1, type=click.Path(path_type=Path))
    run_dir = click.Argument(["run_dir"], type=click.Path(path_type=Path))
    output = click.Option(["--output", "-o"], type=click.Path(path_type=Path), help="File, or directory for several.")
    return [
        command(advise, runs, *_advise_options(), *output_options()),
        command(alerts, run_dir, *_alert_options(), output),
    ]


def _alert_options() -> list[click.Parameter]:
    forms = click.Choice(["prometheus", "grafana", "keda"])
    return [
        click.Option(["--format", "form"], type=forms, default="prometheus", show_default=True),
        click.Option(["--engine"], metavar="NAME", help="Whose metric names; default: the engine that the run saw."),
        click.Option(["--replicas"], type=click.IntRange(1), default=1, help="Servers behind the measured endpoint."),
        click.Option(["--selector"], default="", metavar="MATCHERS", help='namespace="prod",job="vllm",model_name="m"'),
        click.Option(["--gpu-selector"], metavar="MATCHERS", help='Those of the GPU exporter: job="dcgm-exporter".'),
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
