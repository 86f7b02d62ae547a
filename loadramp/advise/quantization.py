"""How a checkpoint stores its weights: the quantization_config of its config.json. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from loadramp.advise.parameters import Parts
from loadramp.registry import ScenarioError

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "bf16", "float8_e4m3fn": "fp8"}
KEPT = ("modules_to_not_convert", "ignore", "ignored_layers", "llm_int8_skip_modules", "exclude_modules")
"""Keys under which quantizers list the modules that they leave alone."""
ATTENTION = ("self_attn.q_proj", "self_attn.o_proj", "self_attn.q_b_proj", "self_attn.kv_b_proj")
DENSE = ("mlp.gate_proj", "mlp.down_proj", "mlp.gate_up_proj")
EXPERTS = ("mlp.experts.0.gate_proj", "mlp.experts.0.down_proj", "block_sparse_moe.experts.0.w1")
SHARED = ("mlp.shared_experts.gate_proj", "mlp.shared_expert.gate_proj")
ROUTER = ("mlp.gate", "mlp.router", "block_sparse_moe.gate")
"""How checkpoints call the modules of a layer."""

Config = Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class Stored:
    """``weights`` is a key of WEIGHTS, that of most weights; ``each`` their bytes with scales (0: as WEIGHTS has it).

    ``left`` are patterns of the modules that stay in 16 bit; ``only``, where there are any, of those that do not.
    """

    weights: str
    each: float = 0.0
    left: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)
    method: str = ""
    """How it was quantized, as the config names it; empty where it was not."""

    def plain(self, parts: Parts, layers: int) -> int:
        """Parameters that stay in 16 bit: embedding, head, and what the config names."""
        out = parts.embedded
        for i in range(layers):
            for names, size in self._modules(parts, sparse=parts.sparse[i]):
                if size and self._stays([f"model.layers.{i}.{name}" for name in names]):
                    out += size
        return out

    @staticmethod
    def _modules(parts: Parts, *, sparse: bool) -> Iterator[tuple[tuple[str, ...], int]]:
        yield ATTENTION, parts.attention
        if sparse:
            yield from ((EXPERTS, parts.experts), (SHARED, parts.shared), (ROUTER, parts.router))
        else:
            yield DENSE, parts.dense

    def _stays(self, names: list[str]) -> bool:
        if any(matches(pattern, name) for pattern in self.left for name in names):
            return True
        return bool(self.only) and not any(matches(pattern, name) for pattern in self.only for name in names)


def matches(pattern: str, name: str) -> bool:
    """Whether a quantizer's pattern means the module: a regular expression after "re:", a glob, or part of its path."""
    if pattern.startswith("re:"):
        try:
            return re.match(pattern.removeprefix("re:"), name) is not None
        except re.error:
            return False
    if "*" in pattern:
        return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") or fnmatchcase(name, f"*.{pattern}.*")
    return f".{pattern}." in f".{name}."


def stored_as(config: Config, inner: Config) -> Stored:
    """How the weights are stored.

    Args:
        config: all of config.json.
        inner: the part that tells of the decoder.

    Raises:
        ScenarioError: a way of quantization that is not known.
    """
    quantization = (
        config.get("quantization_config") or inner.get("quantization_config") or config.get("compression_config")
    )
    if isinstance(quantization, Mapping):
        return _quantized(quantization)
    if config.get("quantization"):
        raise ScenarioError("config.json: quantization: Mistral's own form is not read: give --weights fp8 or int4")
    dtype = str(inner.get("torch_dtype") or inner.get("dtype") or config.get("torch_dtype") or "bfloat16")
    notes = ("a float32 checkpoint: engines serve it in 16 bit",) if dtype == "float32" else ()
    return Stored(DTYPES.get(dtype.removeprefix("torch."), "bf16"), notes=notes)


def _quantized(quantization: Config) -> Stored:
    method = str(quantization.get("quant_method") or quantization.get("format") or "unnamed").lower()
    weights = _weights(quantization)
    bits = _bits(quantization, weights)
    kind = _type(quantization, method, bits)
    if kind is None:
        raise ScenarioError(f"config.json: quantization_config of method {method!r}: give --weights fp8 or int4")
    left = tuple(str(name) for key in KEPT for name in _list(quantization.get(key)))
    only = ("experts",) if method == "mxfp4" else _targets(quantization)
    notes = [f"quantized ({method}): embeddings and head count 16 bit"]
    if only == ("experts",):
        notes.append("only the experts are quantized; attention, too, counts 16 bit")
    elif left:
        notes.append("so does what the checkpoint leaves unquantized")
    return Stored(kind, _each(quantization, kind, weights, method), left, only, ("; ".join(notes),), method)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


def _weights(quantization: Config) -> Config:
    """The first group's description of its weights (compressed-tensors)."""
    groups = quantization.get("config_groups")
    described = [group.get("weights") for group in groups.values() if isinstance(group, Mapping)] \
        if isinstance(groups, Mapping) else []  # fmt: skip
    return next((entry for entry in described if isinstance(entry, Mapping)), {})


def _targets(quantization: Config) -> tuple[str, ...]:
    """Patterns of the modules that are quantized; empty where all linear ones are."""
    groups = quantization.get("config_groups")
    if not isinstance(groups, Mapping):
        return ()
    named = tuple(
        str(target) for group in groups.values() if isinstance(group, Mapping) for target in _list(group.get("targets"))
    )
    return () if any(target in {"Linear", "FusedMoE"} for target in named) else named


def _bits(quantization: Config, weights: Config) -> int | None:
    bits = next(
        (quantization[n] for n in ("bits", "w_bit", "weight_bits", "nbits") if quantization.get(n)),
        weights.get("num_bits"),
    )
    if bits is None and str(quantization.get("quant_method", "")).lower() == "bitsandbytes":
        four = quantization.get("load_in_4bit") or quantization.get("_load_in_4bit")
        return 4 if four else 8
    return int(bits) if isinstance(bits, (int, float)) and bits else None


def _type(quantization: Config, method: str, bits: int | None) -> str | None:
    algorithm = str(quantization.get("quant_algo", "")).upper()
    if bits is None:
        if method == "mxfp4" or "FP4" in algorithm:
            return "fp4"
        return "fp8" if method in {"fp8", "fbgemm_fp8"} or "FP8" in algorithm else None
    floating = "fp8" in method or "float" in str(quantization)
    return {4: "fp4" if "FP4" in algorithm or "'type': 'float'" in str(quantization) else "int4",
            8: "fp8" if floating else "int8", 16: "bf16"}.get(bits)  # fmt: skip


def _each(quantization: Config, kind: str, weights: Config, method: str) -> float:
    """Bytes a weight with its share of the scales: one of 8 bits for 32 (MXFP4) or 16 weights (NVFP4), and for
    integers 16 bits and a zero point a group."""
    if kind == "fp4":
        return 0.5 + (1 / 32 if method == "mxfp4" or "mxfp4" in str(quantization).lower() else 1 / 16)
    group = next(
        (quantization[n] for n in ("group_size", "q_group_size") if quantization.get(n)), weights.get("group_size")
    )
    plain = {"int4": 0.5, "int8": 1.0}.get(kind)
    if plain is None or not isinstance(group, int) or group < 8:
        return 0.0
    return plain + (2.0 + plain) / group
