"""What a model weighs and what a token of its context costs. Pure: numbers or a Hugging Face config.json, as text, in.

Rule: what cannot be known from the shapes is asked for, never guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadramp.registry import ScenarioError
from loadramp.units import plural

WEIGHTS: dict[str, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "fp4": 0.5}
"""Bytes a parameter."""
KV_BYTES: dict[str, float] = {"auto": 2.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}


@dataclass(slots=True, frozen=True)
class Model:
    """Shape and weight of a model.

    ``parameters`` are all of them, experts that rest included: they must be in memory. ``layers`` are those that keep
    keys and values of the whole context; ``window_layers`` keep those of the last ``window`` tokens only.

    Raises:
        ScenarioError: numbers that no model has.
    """

    parameters: float
    layers: int
    kv_heads: int
    head_dim: int
    heads: int = 0
    """Attention heads; 0: not known, then any division is allowed that divides the KV heads."""
    name: str = ""
    weights: str = "bf16"
    plain_parameters: float = 0.0
    """What a quantized checkpoint leaves in 16 bit: embeddings, head, and the modules that it names."""
    weight_each: float = 0.0
    """Bytes of a quantized parameter with its share of the scales; 0: as WEIGHTS has it."""
    quantized_by: str = ""
    """Method that config.json's quantization_config names; empty where it has none."""
    window_layers: int = 0
    window: int = 0
    latent_dim: int = 0
    """Multi-head latent attention: numbers a token and layer instead of keys and values. Every GPU holds all of it."""
    index_bytes: float = 0.0
    """What a layer that keeps everything keeps beside it to look tokens up, in bytes a token; on every GPU."""
    layer_numbers: float = 0.0
    """Keys and values of one token in one layer that keeps all of them, in numbers (the mean where layers differ);
    0: 2 x KV heads x head_dim, or the latent vector."""
    window_numbers: float = 0.0
    """The same of a layer with a window."""
    max_context: int | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        counts = {"layers": self.layers + self.window_layers, "KV heads": self.kv_heads, "head_dim": self.head_dim}
        for what, value in counts.items():
            if value < 1:
                raise ScenarioError(f"model: {what} must be at least 1; got {value}")
        if self.parameters < 1e5:
            raise ScenarioError(f"model: {self.parameters:g} parameters is no model; 7e9 is 7 billion")
        if self.heads and self.heads % self.kv_heads:
            raise ScenarioError(
                f"model: {plural(self.heads, 'attention head')} cannot share {self.kv_heads} KV heads evenly"
            )

    @property
    def weight_bytes(self) -> float:
        """All weights: 2, 1 or 0.5 bytes a parameter and its scales; what stays in 16 bit counts 2."""
        each = self.weight_each or WEIGHTS[self.weights]
        plain = self.plain_parameters if each < 2.0 else 0.0
        return (self.parameters - plain) * each + plain * 2.0

    @property
    def layer_size(self) -> float:
        """Numbers that one token takes in one layer: 2 x KV heads x head_dim, or the latent vector."""
        return float(self.latent_dim or self.layer_numbers or 2 * self.kv_heads * self.head_dim)

    @property
    def window_size(self) -> float:
        """The same in a layer with a window."""
        return float(self.latent_dim or self.window_numbers or self.layer_size)

    def token_bytes(self, kv_bytes: float = 2.0) -> float:
        """Keys and values of one token: 2 x layers x KV heads x head_dim x bytes."""
        return self.context_bytes(1, kv_bytes)

    def far_bytes(self, kv_bytes: float = 2.0) -> float:
        """What one more token takes where the context is longer than the window: layers with one keep no more."""
        return self.layers * (self.layer_size * kv_bytes + self.index_bytes)

    def context_bytes(self, tokens: int, kv_bytes: float = 2.0) -> float:
        """Keys and values of a context: layers with a window keep no more than it."""
        kept = min(tokens, self.window) if self.window else tokens
        return tokens * self.far_bytes(kv_bytes) + self.window_layers * kept * self.window_size * kv_bytes

    def share(self, gpus: int) -> float:
        """The part of the KV cache that one of ``gpus`` holds: KV heads are divided as far as there are any."""
        return 1.0 if self.latent_dim else max(1.0 / self.kv_heads, 1.0 / gpus)

    def divides(self, gpus: int) -> bool:
        """Whether so many GPUs can share the heads: attention heads evenly, KV heads evenly or copied evenly."""
        if gpus < 1 or (self.heads and self.heads % gpus):
            return False
        return bool(self.latent_dim) or self.kv_heads % gpus == 0 or gpus % self.kv_heads == 0


def model_of(facts: Mapping[str, Any], config: Mapping[str, Any] | None = None) -> Model:
    """A model from what was said of it, over what its config.json says.

    Args:
        facts: fields of Model that were given; they win.
        config: a parsed config.json.

    Raises:
        ScenarioError: something is missing, contradicts itself or cannot be.
    """
    from loadramp.advise.hf_config import read_config

    known = {**(read_config(config, facts) if config is not None else {}), **facts}
    if "kv_heads" in facts or "head_dim" in facts:  # what was said holds for every layer
        known |= {"layer_numbers": 0.0, "window_numbers": 0.0}
    for name, what in (("layers", "number of layers"), ("kv_heads", "number of KV heads"), ("head_dim", "head size")):
        if name not in known:
            flag = name.replace("_", "-")
            raise ScenarioError(f"model: its {what} is not known: give --{flag}, or --model-config FILE (config.json)")
    if known.get("parameters") is None:
        raise ScenarioError(
            "model: the number of parameters cannot be computed from this config.json: give --parameters (all experts)"
        )
    if "parameters" in facts or "weights" in facts:
        known["notes"] = tuple(note for note in known.get("notes", ()) if not note.startswith("computed"))
    return Model(**known)
