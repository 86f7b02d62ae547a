"""Which layers of a decoder keep keys and values, as its config.json says. Pure.

A layer keeps them only where the config says that it is attention, or where the config tells of no other kind of layer.
A key that speaks of other layers and is not understood raises UnclearError: the number of layers is then asked for.
Rules and defaults are those of the model's own configuration class (transformers, or the checkpoint's code).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadramp.advise.architectures import (
    ALL_WINDOWED,
    FULL,
    LISTS,
    NONE,
    PARALLEL,
    WHERE,
    WINDOW,
    Config,
    UnclearError,
    unclear,
)
from loadramp.advise.layer_kinds import ask_for_others, count_of, kinds_of, step_of
from loadramp.units import plural


@dataclass(slots=True, frozen=True)
class Layers:
    """``kinds`` of all layers, each FULL, WINDOW or NONE; ``window`` in tokens; KV heads of each layer."""

    kinds: Sequence[str]
    window: int
    kv_heads: Sequence[int]
    notes: Sequence[str]

    def count(self, kind: str) -> int:
        return sum(each == kind for each in self.kinds)


def layers_of(config: Config, kv_heads: int, heads: int) -> Layers:
    """What each layer keeps.

    Args:
        config: with its defaults, see with_defaults.
        kv_heads: of a layer that says nothing of its own.
        heads: attention heads.

    Raises:
        UnclearError: a key that tells of layers is not understood.
        ScenarioError: no number of layers, or lists that contradict it.
    """
    notes: list[str] = []
    count = count_of(config)
    used, kinds = kinds_of(config, count)
    ask_for_others(config, used, count, bool(used) or config.get("model_type") in PARALLEL)
    windowed, window = _window(config, kinds, notes)
    kept = _shared(config, windowed, notes)
    each = _kv_heads(config, kept, kv_heads, heads)
    rest = count - sum(kind != NONE for kind in kinds)
    if rest:
        notes.append(f"{rest} of {plural(count, 'layer')} keep no keys and values (fixed state, convolution or MLP)")
    if all(kind == NONE for kind in kept):
        raise UnclearError("config.json: no layer keeps keys and values: there is no KV cache to size")
    if WINDOW in kept:
        some = f"{kept.count(WINDOW)} of {plural(count, 'layer')} keep"
        which = some if kept.count(WINDOW) < count else "every layer keeps"
        notes.append(f"{which} the last {plural(window, 'token')} only, where the engine makes use of it")
    return Layers(kept, window if WINDOW in kept else 0, each, notes)


def _window(config: Config, kinds: list[str], notes: list[str]) -> tuple[list[str], int]:
    """Kinds with the layers that have a window, and its size in tokens (0: none)."""
    window = next((config[n] for n in ("sliding_window", "sliding_window_size", "attention_window_size")
                   if config.get(n) is not None), None)  # fmt: skip
    if isinstance(window, list):
        return _windows(window, kinds)
    chunk = config.get("attention_chunk_size") if window is None else None
    given = window if window is not None else chunk
    size = given if isinstance(given, int) and not isinstance(given, bool) else 0
    known = size > 0
    if WINDOW in kinds:
        if known:
            return kinds, size
        lengths = {_length(block) for block in config.get("block_configs") or []} - {None}
        if len(lengths) == 1:
            return kinds, int(next(iter(lengths)) or 0)
        notes.append("layers with a window whose size is not told count as whole")
        return [FULL if kind == WINDOW else kind for kind in kinds], 0
    if not known or NONE in kinds or any(config.get(name) for name in LISTS):
        if config.get("model_type") == "recurrent_gemma" and known:
            return [WINDOW if kind == FULL else kind for kind in kinds], size
        return kinds, 0
    context = config.get("max_position_embeddings")
    if config.get("use_sliding_window") is False or (isinstance(context, int) and size >= context):
        return kinds, 0
    if chunk is None and not any(config.get(name) for name in WHERE) and config.get("model_type") not in ALL_WINDOWED:
        notes.append(f"which layers keep the last {plural(size, 'token')} only is not told: all are counted whole")
        return kinds, 0
    return [WINDOW if _narrow(config, i, chunk is not None) else kind for i, kind in enumerate(kinds)], size


def _windows(sizes: list[Any], kinds: list[str]) -> tuple[list[str], int]:
    """A window for each layer, null where there is none; the largest stands for all."""
    if len(sizes) != len(kinds) or not all(size is None or isinstance(size, int) for size in sizes):
        raise unclear("sliding_window", f"expected a number or null for each of the {plural(len(kinds), 'layer')}")
    out = [NONE if kind == NONE else WINDOW if size else FULL for kind, size in zip(kinds, sizes, strict=True)]
    return out, max((int(size) for size in sizes if size), default=0)


def _length(block: Any) -> int | None:
    attention = block.get("attention") if isinstance(block, Mapping) else None
    if not isinstance(attention, Mapping):
        return None
    return attention.get("window_length") or attention.get("window_size")


def _narrow(config: Config, i: int, chunked: bool) -> bool:
    """Whether layer ``i`` of a config that has a window and no list of kinds uses it."""
    if chunked:
        rope = config.get("no_rope_layers")  # 1: the layer has positions, and is cut into chunks
        if isinstance(rope, list) and len(rope) > i:
            return bool(rope[i])
        return (i + 1) % step_of(config, "no_rope_layer_interval") != 0
    if config.get("sliding_window_from_0"):
        return i % int(config["sliding_window_from_0"]) == 0
    for name in ("sliding_window_pattern", "layer_switch"):
        if isinstance(config.get(name), int) and config[name]:
            return (i + 1) % step_of(config, name) != 0
    if config.get("use_sliding_window") and isinstance(config.get("max_window_layers"), int):
        return i >= int(config["max_window_layers"])
    return True


def _shared(config: Config, kinds: list[str], notes: list[str]) -> list[str]:
    """Layers that read the keys and values of an earlier one keep none of their own."""
    count = len(kinds)
    last = config.get("num_kv_shared_layers")
    kept = list(kinds)
    if isinstance(last, int) and 0 < last < count:
        kept = [*kinds[: count - last], *[NONE] * last]
    elif config.get("use_cla") and config.get("cla_share_factor"):
        every = step_of(config, "cla_share_factor")
        kept = [kind if i % every == 0 else NONE for i, kind in enumerate(kinds)]
    if isinstance(config.get("cross_attention_layers"), list):
        kept = [NONE if i in config["cross_attention_layers"] else kind for i, kind in enumerate(kept)]
    gone = sum(a != b for a, b in zip(kept, kinds, strict=True))
    if gone:
        notes.append(f"{gone} of {plural(count, 'layer')} use keys and values of others (shared, or of another input)")
    return kept


def _kv_heads(config: Config, kinds: Sequence[str], kv_heads: int, heads: int) -> list[int]:
    """KV heads of each layer."""
    blocks, listed = config.get("block_configs"), kv_list(config)
    if isinstance(blocks, list) and blocks:
        return [_block_heads(block, kv_heads, heads) if kind != NONE else kv_heads
                for block, kind in zip(blocks, kinds, strict=False)]  # fmt: skip
    if listed is not None:
        name, values = listed
        if len(values) != len(kinds):
            raise unclear(name, f"tells of {plural(len(values), 'layer')}, num_hidden_layers of {len(kinds)}")
        return values
    return [kv_heads] * len(kinds)


def kv_list(config: Config) -> tuple[str, list[int]] | None:
    """KV heads told layer by layer, and the key that tells them (DeciLM, OpenELM)."""
    for name in ("num_key_value_heads_per_layer", "num_key_value_heads", "num_kv_heads"):
        values = config.get(name)
        if isinstance(values, list) and values and all(isinstance(value, int) and value > 0 for value in values):
            return name, values
    return None


def _block_heads(block: Config, kv_heads: int, heads: int) -> int:
    attention = block.get("attention")
    source = attention if isinstance(attention, Mapping) else block
    group, kv = source.get("n_heads_in_group"), source.get("num_key_value_heads")
    if isinstance(kv, int) and kv > 0:
        return kv
    if isinstance(group, int) and group > 0:
        return max(1, heads // group)
    return kv_heads
