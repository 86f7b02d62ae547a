"""What ``loadramp advise`` is told beside runs: tables of a TOML file, each key of which is an option, too. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

from msgspec import Meta

from loadramp.registry import ScenarioError, bind_options
from loadramp.scenario.scenario import Count, NotNegative, Positive, Ratio, read_tables


@dataclass(slots=True, frozen=True)
class GpuFacts:
    """``[gpu]``"""

    gpu: str = ""
    gpu_memory_gb: Positive | None = None
    max_gpus: Count = 8
    """At most so many for one replica."""


@dataclass(slots=True, frozen=True)
class ModelFacts:
    """``[model]``: what is given here wins over config.json."""

    model: str = ""
    model_config: str = ""
    """Path of its config.json."""
    parameters: Positive | None = None
    layers: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    weights: Literal["bf16", "fp16", "fp8", "int8", "int4", "fp4", "fp32"] | None = None


@dataclass(slots=True, frozen=True)
class EngineFacts:
    """``[engine]``"""

    engine: Literal["vllm", "sglang", "both"] = "both"
    engine_version: str = ""
    """Of vLLM: decides which flags exist. Empty: the one that the run met, or a new one."""
    utilization: Ratio = 0.90
    reserve: Ratio = 0.10
    kv_dtype: Literal["auto", "bf16", "fp16", "fp8"] = "auto"
    tensor_parallel: Count | None = None


@dataclass(slots=True, frozen=True)
class TrafficFacts:
    """``[traffic]``: where no run tells, or where it is to be overruled."""

    input_tokens: Positive | None = None
    output_tokens: Positive | None = None
    context_tokens: Count | None = None
    prefix_reuse: Ratio | None = None
    concurrency: Positive | None = None
    replica_rps: Positive | None = None


@dataclass(slots=True, frozen=True)
class LoadFacts:
    """``[load]``: what is to be served, and at what price."""

    peak_rps: Positive | None = None
    mean_rps: Positive | None = None
    peak_multiplier: Annotated[float, Meta(ge=1)] | None = None
    headroom: Annotated[float, Meta(ge=0, lt=1)] = 0.30
    spare: Annotated[int, Meta(ge=0)] = 1
    gpus: Sequence[Count] = ()
    """GPUs of one measured replica: one number for all runs, or one for each."""
    price: Sequence[NotNegative] = ()
    """Of one GPU and hour, in the same order."""


@dataclass(slots=True, frozen=True)
class AdviceOptions:
    """All of it."""

    gpu: GpuFacts = field(default_factory=GpuFacts)
    model: ModelFacts = field(default_factory=ModelFacts)
    engine: EngineFacts = field(default_factory=EngineFacts)
    traffic: TrafficFacts = field(default_factory=TrafficFacts)
    load: LoadFacts = field(default_factory=LoadFacts)


_TABLES: dict[str, Any] = {
    "gpu": GpuFacts, "model": ModelFacts, "engine": EngineFacts, "traffic": TrafficFacts, "load": LoadFacts,
}  # fmt: skip


def asked_of(options: Mapping[str, Any], text: str = "", name: str = "") -> AdviceOptions:
    """Tables of ``text`` (TOML) with the options that were given on top.

    Args:
        options: option names (as keys of the tables) to values; None and empty ones were not given.
        text, name: the file, and how errors call it.

    Raises:
        ScenarioError: not TOML, an unknown table or key, a value out of range.
    """
    raw = read_tables(text, name=name)
    for key in raw:
        if key not in _TABLES:
            raise ScenarioError(f"{name}: [{key}]: no such table; there are {', '.join(_TABLES)}")
    given = {key: value for key, value in options.items() if value not in (None, "", ())}
    bound = {}
    for key, kind in _TABLES.items():
        table = raw.get(key, {})
        if not isinstance(table, dict):
            raise ScenarioError(f"{name}: {key}: expected a table [{key}]")
        values = bind_options(table, kind, f"{name}: [{key}]")
        of_table = {field.name: given[field.name] for field in fields(kind) if field.name in given}
        bound[key] = kind(**values | bind_options(of_table, kind, f"--{'/--'.join(of_table).replace('_', '-')}"))
    return AdviceOptions(**bound)


def config_of(text: str, name: str) -> Mapping[str, Any]:
    """A config.json as data.

    Raises:
        ScenarioError: not JSON, or no object.
    """
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ScenarioError(f"{name}: not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ScenarioError(f"{name}: expected an object, as Hugging Face models have it; got {type(config).__name__}")
    return config
