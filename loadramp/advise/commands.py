"""The commands that say what to run: memory, flags and replicas; alerts, boards and scalers. Parse, call, print."""

from pathlib import Path
from typing import Any

import click

from loadramp.commands.options import PATH, command, option, output_options, strict_json
from loadramp.registry import ScenarioError


def advise(
    runs: tuple[Path, ...], *, facts: Path | None, markdown: Path | None, as_json: bool, quiet: bool, **options: Any
) -> int:
    """Recommend memory, engine flags and replicas.

    The lengths, the prefix reuse and the rate of one replica come from the first of the measured RUNS; several runs are
    compared. Without a run, give these figures as options or in a TOML file (--facts).

    \b
    Examples:
      loadramp advise reports/20260102-030405-chat --gpu L40S \\
          --model-config config.json --peak-rps 30 --price 1.2
      loadramp advise --facts sizing.toml --markdown sizing.md
    """
    from loadramp.advise.advice import Measured
    from loadramp.advise.advice import advise as consider
    from loadramp.advise.demand import comparable, demand_of
    from loadramp.advise.options import asked_of, config_of
    from loadramp.advise.text import advice_document, advice_markdown, advice_text
    from loadramp.record.run_directory import put
    from loadramp.runner.finish import judge
    from loadramp.runner.scenarios import text_of

    asked = asked_of(options, text_of(facts) if facts else "", str(facts or ""))
    config = asked.model.model_config
    read = [judge(path).run for path in runs]
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
    Examples:
      loadramp alerts reports/20260102-030405-chat \\
          --selector 'namespace="prod",job="vllm"' -o rules.yml
      loadramp alerts reports/20260102-030405-chat --format grafana -o board.json
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
    runs = click.Argument(["runs"], nargs=-1, type=PATH)
    run_dir = click.Argument(["run_dir"], type=PATH)
    output = option("--output -o", "File to write. Default: stdout.", type=PATH)
    return [
        command(advise, runs, *_advise_options(), *output_options()),
        command(alerts, run_dir, *_alert_options(), output),
    ]


def _alert_options() -> list[click.Parameter]:
    forms = click.Choice(["prometheus", "grafana", "keda"])
    return [
        option("--format form", "What to make.", type=forms, default="prometheus"),
        option("--engine", "Engine whose metric names to use. Default: the one that the run saw.", metavar="NAME"),
        option("--replicas", "Servers behind the measured endpoint.", type=click.IntRange(1), default=1),
        option("--selector", "Label matchers for every query.", default="", metavar="MATCHERS"),
        option("--gpu-selector", "Label matchers for the GPU exporter.", metavar="MATCHERS"),
    ]


def _advise_options() -> list[click.Parameter]:
    number, whole, share = click.FLOAT, click.IntRange(1), click.FloatRange(0, 1)
    return [
        option("--facts", "TOML file with any of these options as keys (see docs/advise.md).", type=PATH),
        option("--gpu", "GPU, such as L40S or H100.", metavar="NAME"),
        option("--gpu-memory-gb", "Memory of one GPU: MiB of nvidia-smi x 0.001048576.", type=number),
        option("--max-gpus", "Most GPUs for one replica.  [default: 8]", type=whole),
        option("--model", "Model to serve.", metavar="NAME"),
        option("--model-config", "The model's config.json (Hugging Face).", metavar="FILE"),
        option("--parameters", "Number of parameters, inactive experts included, such as 7.24e9.", type=number),
        option("--layers", "Layers that keep keys and values for the whole context.", type=whole),
        option("--heads", "Number of attention heads.", type=whole),
        option("--kv-heads", "Number of KV heads.", type=whole),
        option("--head-dim", "Dimension of a head.", type=whole),
        option(
            "--weights",
            "Number format of the weights. Default: as the model config says.",
            type=click.Choice(["bf16", "fp16", "fp8", "int8", "int4", "fp4", "fp32"]),
        ),
        option("--engine", "Engine.  [default: both]", type=click.Choice(["vllm", "sglang", "both"])),
        option("--engine-version", "Version of vLLM. Default: that of the run.", metavar="X.Y"),
        option("--utilization", "Share of GPU memory for the engine.  [default: 0.9]", type=number),
        option("--reserve", "Share of the KV memory to keep in reserve.  [default: 0.1]", type=number),
        option(
            "--kv-dtype",
            "Number format of the KV cache.  [default: auto]",
            type=click.Choice(["auto", "bf16", "fp16", "fp8"]),
        ),
        option("--tensor-parallel", "GPUs per replica. Default: the fewest that suffice.", type=whole),
        option("--input-tokens", "Mean prompt length. Default: as measured.", type=number),
        option("--output-tokens", "Mean reply length. Default: as measured.", type=number),
        option("--context-tokens", "Prompt plus reply of a long request. Default: as measured.", type=whole),
        option("--prefix-reuse", "Share of prompt tokens that repeat. Default: as measured.", type=share),
        option("--concurrency", "Concurrent requests per replica. Default: as measured.", type=number),
        option("--replica-rps", "Rate that one replica sustains. Default: as measured.", type=number),
        option("--peak-rps", "Peak load to size for.", type=number),
        option("--mean-rps", "Average load, for the cost per token.", type=number),
        option("--peak-multiplier", "Peak load as a multiple of the average.", type=number),
        option("--headroom", "Share of capacity to keep free at the peak.  [default: 0.3]", type=number),
        option("--spare", "Spare replicas.  [default: 1]", type=click.IntRange(0)),
        option("--gpus", "GPUs of a measured replica; once, or once for each run.", type=whole, multiple=True),
        option("--price", "Price of one GPU per hour; once, or once for each run.", type=number, multiple=True),
        option("--markdown", "Also write the advice to this file.", type=PATH),
    ]
