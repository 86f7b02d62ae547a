"""A Hugging Face config.json to the fields of a Model. Pure. Parameters are counted only where the shapes are known."""

from collections.abc import Mapping, Sequence
from typing import Any

from loadramp.advise.architectures import FULL, NONE, UNDERSTOOD, WINDOW, with_defaults
from loadramp.advise.layer_kinds import count_of, has_count
from loadramp.advise.layers import kv_list, layers_of
from loadramp.advise.parameters import embedded, parts_of, whole
from loadramp.advise.quantization import Stored, stored_as
from loadramp.registry import ScenarioError
from loadramp.units import plural

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads")
HIDDEN = ("hidden_size", "n_embd", "d_model", "model_dim", "dim")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads", "n_head_kv", "num_key_value_attention_heads",
            "multi_query_group_num", "num_attention_groups")  # fmt: skip
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config.text_config", "text_model_config",
              "language_model_config", "llm", "language_model", "decoder_config", "decoder")  # fmt: skip
"""Where models of several kinds of input keep the config of their decoder."""
CONTEXTS = ("max_position_embeddings", "model_max_length", "n_positions", "max_seq_len", "seq_length",
            "max_sequence_length")  # fmt: skip

Config = Mapping[str, Any]


def read_config(config: Config, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Fields of Model that ``config`` tells; ``parameters`` is None where it cannot be counted.

    Args:
        config: a parsed config.json.
        facts: fields of Model that were said. With ``layers`` the config is not asked which layers keep keys and
            values, with ``weights`` not how they are stored.

    Raises:
        UnclearError: keys that tell of layers are not understood.
        ScenarioError: not the config of a decoder, or one that contradicts itself.
    """
    if not isinstance(config, Mapping):
        raise ScenarioError("config.json: expected an object, as Hugging Face models have it")
    given, notes = facts or {}, list[str]()
    text = text_of(config)
    if text is not None:
        notes.append("a model of several kinds of input: its text part is counted, give --parameters for all of it")
    inner: Config = with_defaults({**config, **text} if text is not None else config)
    if inner.get("is_encoder_decoder"):
        raise ScenarioError("config.json: is_encoder_decoder: expected the config of a decoder model")
    count, heads = count_of(inner), _first(inner, HEADS)
    hidden = _first(inner, HIDDEN)
    if heads < 1:
        raise ScenarioError("config.json: num_attention_heads: expected at least 1; got 0")
    head_dim = _head_dim(inner, hidden, heads)
    kv_heads = _kv_heads(inner, heads)
    latent = whole(inner, "kv_lora_rank", 0) + whole(inner, "qk_rope_head_dim", 0) if inner.get("kv_lora_rank") else 0
    shape = _kept(inner, text or config, (count, heads, kv_heads, head_dim), latent, given.get("layers"), notes)
    stored = _stored(config, inner, given.get("weights"))
    notes += stored.notes
    kv_heads = int(shape["kv_heads"])
    parts = None if text is not None else parts_of(inner, count, hidden, heads, kv_heads, head_dim)
    if parts is not None:
        notes.insert(0, f"computed from the shapes: {parts.total / 1e9:.3g} billion parameters")
    return {
        **shape, "parameters": parts.total if parts else None,
        "plain_parameters": stored.plain(parts, count) if parts else embedded(inner, hidden), "heads": heads,
        "head_dim": head_dim, "latent_dim": latent, "index_bytes": _index_bytes(inner), "weights": stored.weights,
        "quantized_by": stored.method, "weight_each": stored.each,
        "max_context": _context(inner), "notes": tuple(notes), "name": str(config.get("_name_or_path") or ""),
    }  # fmt: skip


def _stored(config: Config, inner: Config, weights: str | None) -> Stored:
    """How the weights are stored; ``weights`` is what was said of them.

    Raises:
        ScenarioError: the checkpoint is quantized in another way than was said.
    """
    if weights is None:
        return stored_as(config, inner)
    try:
        stored = stored_as(config, inner)
    except ScenarioError:  # a method that is not known: what was said holds
        return Stored(weights, method="unknown")
    if not stored.method:
        return Stored(weights)
    if stored.weights != weights:
        raise ScenarioError(
            f"--weights {weights}: config.json is that of a checkpoint quantized to {stored.weights} "
            f"({stored.method}), which engines serve as it is: leave --weights out, or give the config of another "
            "checkpoint"
        )
    return stored


def text_of(config: Config) -> Config | None:
    """The part of a config of several kinds of input that tells of its decoder; None where it is one already."""
    for path in TEXT_PARTS:
        part: Any = config
        for name in path.split("."):
            part = part.get(name) if isinstance(part, Mapping) else None
        if isinstance(part, Mapping) and (has_count(part) or not has_count(config)):
            return part
    return None


def _kept(
    inner: Config, text: Config, sizes: tuple[int, int, int, int], latent: int, given: int | None, notes: list[str]
) -> dict[str, Any]:
    """Fields of Model that tell what a token's keys and values take. ``given``: the number of layers that was said."""
    count, heads, kv_heads, head_dim = sizes
    if given is not None:
        return {"layers": given, "window_layers": 0, "window": 0, "kv_heads": kv_heads}
    beside = {
        key: value for key, value in inner.items() if key in UNDERSTOOD and value is not None
    }  # the outer config's
    text = {"model_type": inner.get("model_type"), **beside, "num_hidden_layers": count, **text}
    layers = layers_of(with_defaults(text), kv_heads, heads)
    notes += layers.notes
    full, windowed = layers.count(FULL), layers.count(WINDOW)
    numbers = {FULL: 0.0, WINDOW: 0.0}
    value_dim = whole(inner, "v_head_dim", head_dim) if not latent else head_dim
    if not latent:
        for kind, many in zip(layers.kinds, layers.kv_heads, strict=True):
            if kind != NONE:
                numbers[kind] += _numbers(inner, kind, many, (head_dim, value_dim))
    held = [many for kind, many in zip(layers.kinds, layers.kv_heads, strict=True) if kind != NONE]
    return {
        "layers": full, "window_layers": windowed, "window": layers.window, "kv_heads": min(held),
        "layer_numbers": numbers[FULL] / full if full else 0.0,
        "window_numbers": numbers[WINDOW] / windowed if windowed else 0.0,
    }  # fmt: skip


def _numbers(config: Config, kind: str, kv_heads: int, dims: tuple[int, int]) -> int:
    """Keys and values of one token in one layer. Layers with a window may have other heads (swa_: MiMo-V2), as may
    those without (global_: Gemma 4)."""
    keys, values = dims
    if kind == WINDOW and config.get("swa_num_key_value_heads"):
        kv_heads, keys = whole(config, "swa_num_key_value_heads"), whole(config, "swa_head_dim", keys)
        values = whole(config, "swa_v_head_dim", values)
    if kind == FULL and config.get("global_head_dim"):
        keys = values = whole(config, "global_head_dim")
        if config.get("attention_k_eq_v"):
            kv_heads = whole(config, "num_global_key_value_heads", kv_heads)
    return kv_heads * (keys + values)


def _index_bytes(config: Config) -> float:
    """Of the keys by which a token is looked up (sparse attention of DeepSeek V3.2 and GLM-5), of one token and layer:
    8 bits a number and a scale of 4 bytes for 128 of them, whatever the format of the KV cache."""
    return whole(config, "index_head_dim", 0) * (1.0 + 4.0 / 128.0)


def _head_dim(config: Config, hidden: int, heads: int) -> int:
    """Size of a head: told, or the hidden size shared among the heads (Zamba: twice that)."""
    for name in ("head_dim", "attention_head_dim", "kv_channels"):
        if config.get(name) is not None:
            return whole(config, name)
    if config.get("kv_lora_rank") and config.get("v_head_dim"):
        return whole(config, "v_head_dim")
    if hidden % heads:
        raise ScenarioError(
            f"config.json: hidden_size {hidden} is no multiple of {plural(heads, 'head')}, and head_dim is missing"
        )
    return hidden // heads * (2 if config.get("model_type") in {"zamba", "zamba2"} else 1)


def _kv_heads(config: Config, heads: int) -> int:
    """KV heads of a layer; as many as attention heads where none are told. multi_query: one."""
    listed = kv_list(config)
    if listed is not None:
        return min(listed[1])
    inside = config.get("attn_config")
    nested = inside.get("kv_n_heads") if isinstance(inside, Mapping) else None
    if isinstance(nested, int):
        return nested
    if config.get("multi_query") is True and not config.get("new_decoder_architecture"):
        return 1
    return next((whole(config, name) for name in KV_HEADS if config.get(name) is not None), heads)


def _first(config: Config, names: Sequence[str]) -> int:
    """The first of ``names`` that is told, the least of a list; the error names the first of all."""
    listed = next((config[name] for name in names if isinstance(config.get(name), list) and config[name]), None)
    if listed is not None and all(isinstance(value, int) for value in listed):
        return int(min(listed))
    return whole(config, next((name for name in names if config.get(name) is not None), names[0]))


def _context(config: Config) -> int | None:
    values = (config.get(name) for name in CONTEXTS)
    return next((value for value in values if isinstance(value, int) and value > 0), None)
