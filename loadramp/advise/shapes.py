"""A Hugging Face config.json to the fields of a Model. Pure. Parameters are counted only where the shapes are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadramp.registry import ScenarioError

COUNTED = frozenset(
    {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
     "phi3", "smollm3", "deepseek_v2", "deepseek_v3"}
)  # fmt: skip
"""Model types built of gated MLPs and projections of which config.json tells every size."""
TIED = frozenset({"gemma", "gemma2", "gemma3_text"})
"""They tie embedding and head without saying so."""
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "bf16", "float8_e4m3fn": "fp8"}

Config = Mapping[str, Any]


def read_config(config: Config) -> dict[str, Any]:
    """Fields of Model that ``config`` tells; ``parameters`` is None where it cannot be counted.

    Raises:
        ScenarioError: not the config of a decoder, or one that contradicts itself.
    """
    if not isinstance(config, Mapping):
        raise ScenarioError("config.json: expected an object, as Hugging Face models have it")
    notes: list[str] = []
    text = config.get("text_config") if isinstance(config.get("text_config"), Mapping) else None
    if text is not None:
        notes.append("a model of several kinds of input: its text part is counted, give --parameters for all of it")
    inner: Config = {**config, **text} if text is not None else config
    layers, heads, hidden = (
        _whole(inner, name) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    kv_heads = _whole(inner, "num_key_value_heads", heads)
    if heads < 1:
        raise ScenarioError("config.json: num_attention_heads: expected at least 1; got 0")
    if inner.get("head_dim") is None and hidden % heads:
        raise ScenarioError(
            f"config.json: hidden_size {hidden} is no multiple of {heads} heads, and head_dim is missing"
        )
    head_dim = _whole(inner, "head_dim", hidden // heads)
    latent = _whole(inner, "kv_lora_rank", 0) + _whole(inner, "qk_rope_head_dim", 0) if inner.get("kv_lora_rank") else 0
    full, windowed, window = _layers(inner, layers, notes)
    weights = _weights(config, inner, notes)
    parameters, plain = (None, 0) if text is not None else _parameters(inner, layers, hidden, heads, kv_heads, head_dim)
    if parameters is not None:
        notes.insert(0, f"computed from the shapes: {parameters / 1e9:.3g} billion parameters")
    return {
        "parameters": parameters, "plain_parameters": plain, "layers": full, "window_layers": windowed,
        "window": window, "heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "latent_dim": latent,
        "weights": weights, "max_context": _context(inner), "notes": tuple(notes),
        "name": str(config.get("_name_or_path") or ""),
    }  # fmt: skip


def _whole(config: Config, name: str, default: int | None = None) -> int:
    value = config.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise ScenarioError(f"config.json: no {name}: is this the config of a decoder model?")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ScenarioError(f"config.json: {name}: expected a whole number; got {value!r}")
    return int(value)


def _context(config: Config) -> int | None:
    value = config.get("max_position_embeddings")
    return value if isinstance(value, int) and value > 0 else None


def _layers(config: Config, layers: int, notes: list[str]) -> tuple[int, int, int]:
    """(layers that keep the whole context, layers with a window, the window in tokens)."""
    window = config.get("sliding_window")
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        linear = sum("linear" in str(kind) or "mamba" in str(kind) for kind in kinds)
        if linear:
            notes.append(f"{linear} layers keep a fixed state instead of keys and values; it is not counted")
        windowed = sum("sliding" in str(kind) or "chunked" in str(kind) for kind in kinds)
        if windowed and not isinstance(window, int):
            notes.append("layers with a window whose size is not told count as whole")
            return layers - linear, 0, 0
        if windowed:
            notes.append(f"{windowed} of {layers} layers keep the last {window:,} tokens only")
        return layers - linear - windowed, windowed, int(window) if windowed and isinstance(window, int) else 0
    if not isinstance(window, int) or config.get("use_sliding_window") is False:
        return layers, 0, 0
    if config.get("sliding_window_pattern") or config.get("model_type") == "gemma2":
        period = config.get("sliding_window_pattern") or 2
        full = layers // int(period)
        notes.append(f"{layers - full} of {layers} layers keep the last {window:,} tokens only")
        return full, layers - full, window
    notes.append(f"every layer keeps the last {window:,} tokens only, where the engine makes use of it")
    return 0, layers, window


def _weights(config: Config, inner: Config, notes: list[str]) -> str:
    """The type that most weights have, a key of WEIGHTS."""
    told = config.get("quantization_config") or inner.get("quantization_config")
    if isinstance(told, Mapping):
        found = _quantized(told)
        if found is None:
            method = told.get("quant_method", "unnamed")
            raise ScenarioError(f"config.json: quantization_config of method {method!r}: give --weights fp8 or int4")
        notes.append(f"quantized ({told.get('quant_method', 'unnamed')}): embeddings and head count 16 bit")
        return found
    dtype = str(inner.get("torch_dtype") or inner.get("dtype") or config.get("torch_dtype") or "bfloat16")
    if dtype == "float32":
        notes.append("a float32 checkpoint: engines serve it in 16 bit")
    return DTYPES.get(dtype.removeprefix("torch."), "bf16")


def _quantized(told: Config) -> str | None:
    method = str(told.get("quant_method", "")).lower()
    bits = told.get("bits") or told.get("w_bit") or told.get("weight_bits")
    groups = told.get("config_groups")
    if bits is None and isinstance(groups, Mapping):
        found = [group.get("weights") for group in groups.values() if isinstance(group, Mapping)]
        bits = next((weights.get("num_bits") for weights in found if isinstance(weights, Mapping)), None)
    if bits is None and method == "bitsandbytes":
        bits = 4 if told.get("load_in_4bit") else 8
    algorithm = str(told.get("quant_algo", "")).upper()
    if bits is None:
        if method == "mxfp4" or "FP4" in algorithm:
            return "fp4"
        return "fp8" if method in {"fp8", "fbgemm_fp8"} or "FP8" in algorithm else None
    return {4: "int4", 8: "fp8" if "fp8" in method or "float" in str(told) else "int8", 16: "bf16"}.get(int(bits))


def _parameters(
    config: Config, layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int
) -> tuple[int | None, int]:
    """(all parameters, those of embedding and head) of the types in COUNTED; None for others."""
    kind = config.get("model_type")
    if kind not in COUNTED or "vocab_size" not in config or "intermediate_size" not in config:
        return None, 0
    vocab = _whole(config, "vocab_size")
    tied = bool(config.get("tie_word_embeddings", kind in TIED))
    plain = vocab * hidden * (1 if tied else 2)
    if config.get("kv_lora_rank"):
        attention = _latent(config, hidden, heads)
    else:
        attention = hidden * head_dim * (heads + 2 * kv_heads) + heads * head_dim * hidden
        if kind in {"qwen2", "qwen2_moe"} or config.get("attention_bias") is True:
            attention += head_dim * (heads + 2 * kv_heads)
        if kind in {"qwen3", "qwen3_moe", "gemma3_text"}:
            attention += 2 * head_dim  # norms of queries and keys
    norms = hidden * (4 if kind in {"gemma2", "gemma3_text"} else 2)
    return plain + layers * (attention + norms) + _mlps(config, layers, hidden) + hidden, plain


def _latent(config: Config, hidden: int, heads: int) -> int:
    """Projections of multi-head latent attention (DeepSeek-V2 and V3)."""
    rank, rope = _whole(config, "kv_lora_rank"), _whole(config, "qk_rope_head_dim")
    nope, value = _whole(config, "qk_nope_head_dim"), _whole(config, "v_head_dim")
    query_rank = config.get("q_lora_rank")
    out = heads * (nope + rope)
    queries = hidden * query_rank + query_rank + query_rank * out if query_rank else hidden * out
    return int(queries + hidden * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * hidden)


def _mlps(config: Config, layers: int, hidden: int) -> int:
    """All MLPs: gate, up and down of dense layers; of every expert, the shared ones and the router in the others."""
    dense = 3 * hidden * _whole(config, "intermediate_size")
    experts = next(
        (_whole(config, n) for n in ("num_local_experts", "num_experts", "n_routed_experts") if config.get(n)), 0
    )
    if not experts:
        return layers * dense
    width = _whole(config, "moe_intermediate_size", _whole(config, "intermediate_size"))
    shared = _whole(config, "shared_expert_intermediate_size", _whole(config, "n_shared_experts", 0) * width)
    sparse = layers - _whole(config, "first_k_dense_replace", 0)
    only = config.get("mlp_only_layers")
    step = _whole(config, "decoder_sparse_step", 1) or 1
    if isinstance(only, list) or step > 1:
        skipped = set(only) if isinstance(only, list) else set()
        sparse = sum(i not in skipped and (i + 1) % step == 0 for i in range(layers))
    bias = experts if config.get("model_type") == "deepseek_v3" else 0
    gate = hidden if config.get("model_type") == "qwen2_moe" and shared else 0  # of the shared expert
    each = experts * 3 * hidden * width + 3 * hidden * shared + experts * hidden + bias + gate
    return (layers - sparse) * dense + sparse * each
