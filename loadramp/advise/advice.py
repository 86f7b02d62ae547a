"""All advice together: memory envelope, flags, size. Pure. What cannot be said is left out; ``notes`` say why."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from loadramp.advise.demand import UNMEASURED, Demand, overruled
from loadramp.advise.flags import ENGINES, EnginePlan, Flag, checkpoint_of, context_of, plan_of
from loadramp.advise.gpus import Gpu, gpu_of
from loadramp.advise.memory import Envelope, near_miss, smallest_group
from loadramp.advise.model import Model, model_of
from loadramp.advise.options import AdviceOptions
from loadramp.advise.sizing import Load, SizeOption, load_of, size_of
from loadramp.analysis.diagnosis.remedies import Version, version_of
from loadramp.registry import ScenarioError
from loadramp.units import plural

MOST_UTILIZATION = 0.90
"""Of a card that may not be the engine's alone."""


@dataclass(slots=True, frozen=True)
class Measured:
    """One run that was read, and its name."""

    name: str
    demand: Demand


@dataclass(slots=True, frozen=True)
class Advice:
    """``envelope`` and what follows from it are None where model or GPU are not known."""

    measured: Sequence[Measured]
    demand: Demand
    envelope: Envelope | None = None
    refused: Sequence[tuple[int, str]] = ()
    """Smaller groups of GPUs, and why they will not do."""
    plan: EnginePlan | None = None
    flags: Mapping[str, list[Flag]] | None = None
    load: Load | None = None
    choices: Sequence[SizeOption] = ()
    notes: Sequence[str] = ()
    unsized: Sequence[str] = ()
    """Runs for which there is a load and no rate to size by, and what is missing."""


def advise(asked: AdviceOptions, measured: Sequence[Measured], config: Mapping[str, Any] | None = None) -> Advice:
    """Advice from runs, numbers given, or both.

    Args:
        asked: what was said.
        measured: runs; the first one's lengths and reuse make the flags, all of them are sized.
        config: the model's config.json.

    Raises:
        ScenarioError: it cannot be, or there is nothing to advise on.
    """
    demand = overruled(measured[0].demand if measured else UNMEASURED, asked.traffic)
    notes: list[str] = []
    envelope = refused = plan = flags = None
    if _has_model(asked) or asked.gpu.gpu or asked.gpu.gpu_memory_gb:
        model = _model(asked, config)
        gpu = gpu_of(asked.gpu.gpu, asked.gpu.gpu_memory_gb) if asked.gpu.gpu or asked.gpu.gpu_memory_gb else None
        if gpu is None:
            raise ScenarioError("a model needs a GPU to be fitted to: --gpu NAME, or --gpu-memory-gb N")
        model = _without_bf16(asked, model, gpu)
        notes += model.notes
        if asked.engine.utilization > MOST_UTILIZATION:
            notes.append(
                f"a utilization of {asked.engine.utilization:g} is above {MOST_UTILIZATION:.2f}: only where nothing "
                "else uses the GPU; beside another process the engine runs out of memory under load"
            )
        notes += [note] if (note := checkpoint_of(model)[1]) else []
        envelope, refused, plan = _fit(asked, model, gpu, demand, notes)
        wanted = ENGINES if asked.engine.engine == "both" else {asked.engine.engine: ENGINES[asked.engine.engine]}
        flags = {name: make(plan, demand) for name, (_, make) in wanted.items()} if plan else None
    load = load_of(asked.load)
    choices, unsized = _choices(asked, measured, demand, load, envelope) if load else ([], [])
    if load is None and envelope is None:
        raise ScenarioError(
            "nothing to advise on: give --gpu and a model (--model-config FILE, or --parameters, --layers, --kv-heads, "
            "--head-dim), or a load to size for (--peak-rps)"
        )
    return Advice(measured, demand, envelope, refused or (), plan, flags, load, choices, notes, unsized)


def _fit(
    asked: AdviceOptions, model: Model, gpu: Gpu, demand: Demand, notes: list[str]
) -> tuple[Envelope, Sequence[tuple[int, str]], EnginePlan | None]:
    context = context_of(demand, model.max_context)
    tokens = context[0] if context else min(model.max_context or 4096, 4096)
    single = Envelope(model, gpu, 1, asked.engine.utilization, asked.engine.reserve, asked.engine.kv_dtype)
    refused: Sequence[tuple[int, str]] = ()
    if asked.engine.tensor_parallel is not None:
        envelope = replace(single, gpus=asked.engine.tensor_parallel)
    else:
        envelope, refused = smallest_group(single, tokens, round(demand.in_flight or 1), asked.gpu.max_gpus)
    if envelope.sequences(tokens) < 1:
        short = (
            "the weights do not fit"
            if envelope.kv_bytes <= 0
            else f"no room for one sequence of {plural(tokens, 'token')}"
        )
        raise ScenarioError(
            f"{envelope.gpus} x {gpu.name}: {short}; more GPUs, larger ones, or smaller weights"
            f"{near_miss(envelope, tokens)}"
        )
    if context is None:
        notes.append("no lengths are known, so no flags: give a RUN, or --input-tokens and --output-tokens")
        return envelope, refused, None
    return envelope, refused, plan_of(envelope, demand, context, _vllm(asked, demand))


def _vllm(asked: AdviceOptions, demand: Demand) -> Version | None:
    """The version of vLLM that was said, or that the run met; None where it is not known."""
    if asked.engine.engine_version:
        return version_of(asked.engine.engine_version)
    return demand.vllm_version


def _without_bf16(asked: AdviceOptions, model: Model, gpu: Gpu) -> Model:
    """The model as a card serves it: in float16 where it has no bfloat16.

    Raises:
        ScenarioError: bfloat16 was asked for.
    """
    if gpu.has_bf16:
        return model
    for option, value in (("--weights", asked.model.weights), ("--kv-dtype", asked.engine.kv_dtype)):
        if value == "bf16":
            raise ScenarioError(f"{option} bf16: {gpu.name} ({gpu.generation}) has no bfloat16; give fp16")
    if model.weights != "bf16":
        return model
    return replace(model, weights="fp16", notes=(*model.notes, f"{gpu.name} has no bfloat16: served in float16"))


def _has_model(asked: AdviceOptions) -> bool:
    facts = asked.model
    return bool(facts.model_config or facts.parameters or facts.layers or facts.kv_heads or facts.head_dim)


def _model(asked: AdviceOptions, config: Mapping[str, Any] | None) -> Model:
    facts = asdict(asked.model)
    named = {"name": facts.pop("model") or None, **facts}
    del named["model_config"]
    return model_of({key: value for key, value in named.items() if value is not None}, config)


def _choices(
    asked: AdviceOptions, measured: Sequence[Measured], demand: Demand, load: Load, envelope: Envelope | None
) -> tuple[list[SizeOption], list[str]]:
    """One size for each run, or one for numbers given; and why there is none for others.

    Raises:
        ScenarioError: there is nothing else to advise on, and no rate to size by.
    """
    demands = [(run.name, run.demand) for run in measured]
    if len(demands) < 2:
        demands = [(measured[0].name if measured else "given", demand)]
    gpus, prices = (_each(values, len(demands), what) for values, what in
                    ((asked.load.gpus, "--gpus"), (asked.load.price, "--price")))  # fmt: skip
    out, missing = list[SizeOption](), list[str]()
    for i, (name, wanted) in enumerate(demands):
        each = gpus[i] if gpus else (envelope.gpus if envelope and len(demands) == 1 else 1)
        if wanted.rate is None:
            missing.append(f"{name}: {wanted.rate_reason}" if measured else wanted.rate_reason)
            continue
        out.append(SizeOption(name, size_of(wanted, load, int(each), prices[i] if prices else None)))
    if missing and envelope is None:
        raise ScenarioError("; ".join(missing))
    return out, missing


def _each(values: Sequence[float], n: int, what: str) -> Sequence[float]:
    if len(values) not in {0, 1, n}:
        raise ScenarioError(f"{what}: give it once, or once for each of the {plural(n, 'run')}; got {len(values)}")
    return list(values) * n if len(values) == 1 else list(values)
