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
    """Recommend memory, engine flags and replicas.

    The lengths, the prefix reuse and the rate of one replica come from the first of the measured RUNS; several runs are
    compared. Without a run, give these figures as options or in a TOML file (--facts).

    \b
    Example:
      loadramp advise reports/20260102-030405-chat --gpu L40S \\
          --model-config config.json --peak-rps 30 --price 1.2
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
    """Make Prometheus alerts, a Grafana dashboard or a KEDA scaler.

    The levels come from the SLO and the measured capacity of the run in RUN_DIR.

    \b
    Example:
      loadramp alerts reports/20260102-030405-chat \\
          --selector 'namespace="prod",job="vllm"' -o rules.yml
    """
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
    output = click.Option(["--output", "-o"], type=click.Path(path_type=Path), help="File to write. Default: stdout.")
    return [
        command(advise, runs, *_advise_options(), *output_options()),
        command(alerts, run_dir, *_alert_options(), output),
    ]


def _alert_options() -> list[click.Parameter]:
    forms = click.Choice(["prometheus", "grafana", "keda"])
    return [
        click.Option(["--format", "form"], type=forms, default="prometheus", show_default=True, help="What to make."),
        click.Option(
            ["--engine"], metavar="NAME", help="Engine whose metric names to use. Default: the one that the run saw."
        ),
        click.Option(
            ["--replicas"],
            type=click.IntRange(1),
            default=1,
            show_default=True,
            help="Servers behind the measured endpoint.",
        ),
        click.Option(["--selector"], default="", metavar="MATCHERS", help="Label matchers for every query."),
        click.Option(["--gpu-selector"], metavar="MATCHERS", help="Label matchers for the GPU exporter."),
    ]


def _advise_options() -> list[click.Parameter]:
    number, whole, share = click.FLOAT, click.IntRange(1), click.FloatRange(0, 1)
    return [
        click.Option(
            ["--facts"],
            type=click.Path(path_type=Path),
            help="TOML file with any of these options as keys (see docs/advise.md).",
        ),
        click.Option(["--gpu"], metavar="NAME", help="GPU, such as L40S or H100."),
        click.Option(["--gpu-memory-gb"], type=number, help="Memory of one GPU: MiB of nvidia-smi x 0.001048576."),
        click.Option(["--max-gpus"], type=whole, help="Most GPUs for one replica.  [default: 8]"),
        click.Option(["--model"], metavar="NAME", help="Model to serve."),
        click.Option(["--model-config"], metavar="FILE", help="The model's config.json (Hugging Face)."),
        click.Option(
            ["--parameters"], type=number, help="Number of parameters, inactive experts included, such as 7.24e9."
        ),
        click.Option(["--layers"], type=whole, help="Layers that keep keys and values for the whole context."),
        click.Option(["--heads"], type=whole, help="Number of attention heads."),
        click.Option(["--kv-heads"], type=whole, help="Number of KV heads."),
        click.Option(["--head-dim"], type=whole, help="Dimension of a head."),
        click.Option(
            ["--weights"],
            type=click.Choice(["bf16", "fp16", "fp8", "int8", "int4", "fp4", "fp32"]),
            help="Number format of the weights. Default: as the model config says.",
        ),
        click.Option(["--engine"], type=click.Choice(["vllm", "sglang", "both"]), help="Engine.  [default: both]"),
        click.Option(["--engine-version"], metavar="X.Y", help="Version of vLLM. Default: that of the run."),
        click.Option(["--utilization"], type=number, help="Share of GPU memory for the engine.  [default: 0.9]"),
        click.Option(["--reserve"], type=number, help="Share of the KV memory to keep in reserve.  [default: 0.1]"),
        click.Option(
            ["--kv-dtype"],
            type=click.Choice(["auto", "bf16", "fp16", "fp8"]),
            help="Number format of the KV cache.  [default: auto]",
        ),
        click.Option(["--tensor-parallel"], type=whole, help="GPUs per replica. Default: the fewest that suffice."),
        click.Option(["--input-tokens"], type=number, help="Mean prompt length. Default: as measured."),
        click.Option(["--output-tokens"], type=number, help="Mean reply length. Default: as measured."),
        click.Option(
            ["--context-tokens"], type=whole, help="Prompt plus reply of a long request. Default: as measured."
        ),
        click.Option(["--prefix-reuse"], type=share, help="Share of prompt tokens that repeat. Default: as measured."),
        click.Option(["--concurrency"], type=number, help="Concurrent requests per replica. Default: as measured."),
        click.Option(["--replica-rps"], type=number, help="Rate that one replica sustains. Default: as measured."),
        click.Option(["--peak-rps"], type=number, help="Peak load to size for."),
        click.Option(["--mean-rps"], type=number, help="Average load, for the cost per token."),
        click.Option(["--peak-multiplier"], type=number, help="Peak load as a multiple of the average."),
        click.Option(["--headroom"], type=number, help="Share of capacity to keep free at the peak.  [default: 0.3]"),
        click.Option(["--spare"], type=click.IntRange(0), help="Spare replicas.  [default: 1]"),
        click.Option(
            ["--gpus"], type=whole, multiple=True, help="GPUs of a measured replica; once, or once for each run."
        ),
        click.Option(
            ["--price"], type=number, multiple=True, help="Price of one GPU per hour; once, or once for each run."
        ),
        click.Option(["--markdown"], type=click.Path(path_type=Path), help="Also write the advice to this file."),
    ]
