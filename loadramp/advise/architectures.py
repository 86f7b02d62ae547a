"""Names and defaults of model configurations that tell of layers. Data, and how to fill a config up with it. Pure.

Source: the configuration classes of transformers, and those that checkpoints bring along.
"""

import re
from collections.abc import Mapping
from typing import Any

from loadramp.registry import ScenarioError

Config = Mapping[str, Any]

FULL, WINDOW, NONE = "full", "window", "none"
KEEPS = {
    "full_attention": FULL, "attention": FULL, "attn": FULL, "full": FULL, "global": FULL, "global_attention": FULL,
    "softmax": FULL, "softmax_attention": FULL, "self_attention": FULL, "hybrid": FULL, "indexed_attention": FULL,
    "deepseek_sparse_attention": FULL, "sliding_attention": WINDOW, "sliding_window_attention": WINDOW,
    "sliding_window": WINDOW, "sliding": WINDOW, "swa": WINDOW, "local": WINDOW, "local_attention": WINDOW,
    "chunked_attention": WINDOW, "hybrid_sliding": WINDOW,
}  # fmt: skip
"""Kinds of layers that keep keys and values. Hybrid: attention beside a state-space part."""
STATE = re.compile(r"linear|lightning|mamba|ssm|delta|kda|gla\b|recurrent|rwkv|retention|conv|shared|cross|no_op|none")
"""Kinds with "attention" in their name that keep a fixed state or nothing of their own."""
LETTERS = {"*": FULL, "M": NONE, "-": NONE, "E": NONE, "G": NONE, "D": NONE}
"""Of hybrid_override_pattern: attention, Mamba, MLP, experts, gated delta net."""
NUMBERS = {"attn_type_list": {1: FULL, 0: NONE}, "hybrid_layer_pattern": {0: FULL, 1: WINDOW}}
"""Lists of numbers, one a layer: MiniMax-01 (1 is softmax attention) and MiMo-V2 (1 is a sliding window)."""
LISTS = ("layer_types", "layers_block_type", "layer_block_types", "block_types", "_block_types")
INDEXES = ("attn_layer_indices", "full_attn_idxs", "full_attention_idxs", "attn_layer_idxs", "hybrid_layer_ids",
           "full_attention_layers", "attention_layer_indices", "attn_layers_idx")  # fmt: skip
"""Lists of the layers, counted from 0, that are attention."""
COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers", "num_decoder_layers")

LISTED_COUNTS = ("layers_block_type", "layer_types", "block_configs", "hybrid_override_pattern")

DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window_pattern": 2, "sliding_window": 4096, "head_dim": 256},
    "gemma3_text": {"sliding_window_pattern": 6, "sliding_window": 4096, "head_dim": 256, "num_attention_heads": 8,
                    "num_key_value_heads": 4, "hidden_size": 2304, "num_hidden_layers": 26},
    "gemma3n_text": {"sliding_window_pattern": 5, "sliding_window": 512, "num_kv_shared_layers": 15, "head_dim": 256,
                     "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 2048, "num_hidden_layers": 35},
    "gemma4_text": {"sliding_window_pattern": 6, "sliding_window": 512, "head_dim": 256, "global_head_dim": 512},
    "gemma": {"head_dim": 256},
    "cohere2": {"sliding_window_pattern": 4, "sliding_window": 4096},
    "gpt_oss": {"sliding_window_from_0": 2, "sliding_window": 128, "head_dim": 64, "num_key_value_heads": 8},
    "olmo3": {"sliding_window_pattern": 4, "sliding_window": 4096},
    "exaone4": {"sliding_window_pattern": 4},
    "llama4_text": {"attention_chunk_size": 8192, "no_rope_layer_interval": 4},
    "qwen2": {"use_sliding_window": False, "max_window_layers": 28},
    "qwen2_moe": {"use_sliding_window": False, "max_window_layers": 28},
    "qwen3": {"use_sliding_window": False, "max_window_layers": 28},
    "qwen3_moe": {"use_sliding_window": False},
    "smollm3": {"use_sliding_window": False},
    **{kind: {"full_attention_interval": 4}
       for kind in ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "olmo_hybrid")},
    "jamba": {"attn_layer_period": 8, "attn_layer_offset": 4},
    "recurrent_gemma": {"block_types": ["recurrent", "recurrent", "attention"], "attention_window_size": 2048},
}  # fmt: skip
"""What the configuration class of a model type says where config.json is silent."""
PARALLEL = frozenset({"falcon_h1"})
"""Every layer is attention beside Mamba: all keep keys and values."""
ALL_WINDOWED = frozenset({"mistral", "mixtral", "ministral", "phi3", "phimoe", "starcoder2", "phi4_multimodal"})
"""Where they have a window, every layer has it."""
WHERE = ("sliding_window_from_0", "sliding_window_pattern", "layer_switch", "use_sliding_window")
"""Keys that tell which layers use the window."""

_SUBJECT = (
    r"(layers?|blocks?|attn|attention|mamba|ssm|linear|recurrent|hybrid|mixers?|kda|gdn|delta|retention|swa|sliding)"
)
_ORDER = (
    r"(types?|kinds?|patterns?|period|interval|offset|freq|frequency|every|lists?|ids?|idxs?|index(es)?|indices|layout"
    r"|schedule|map|ratio|step|stride|configs?|specs?|plan|order|switch|group|cfg|layers)"
)
SPEAKS = re.compile(rf"^(?=.*(^|_){_SUBJECT}(_|$))(?=.*(^|_){_ORDER}(_|$))|^(mb_per_layer|global_attn_.*|.*yoco.*)$")
"""Names of keys that may tell of layers of different kinds."""
SHARES = re.compile(r"(^|_)(kv|cla)_.*(shar|reuse|source)|shar.*_(kv|key_value)|^use_cla$")
STATES = re.compile(
    r"^(mamba_.*|n_mamba_heads|ssm_.*|linear_(num|key|value|conv|attn).*|lru_width|conv_L_cache|conv1d_width|gdn_.*"
    r"|kda_.*|rwkv_.*|state_size|time_mix.*|(use_)?short_conv.*|(a|v|decay|gate)_low_rank_dim|expand_[kv])$"
)
"""Names of keys that only layers with a fixed state have."""
ASIDE = re.compile(
    r"mlp|moe|expert|rope|nope|rotary|ffn|dense|router|mtp|nextn|vision|image|audio|scal(e|ing)|sparsity|heads?$"
    r"|dropout|_bias|_eps|layer_?norm|norm_type|feature_layer|deepstack|multiplier|dtype|^quantization|block_sparse|lora"
    r"|pos(ition)?_|attention_type$|exit_layer|^order_of_interleaved|theta|intermediate|limit"
)
"""Names that match and tell of something else: MLPs, positions, sizes."""

UNDERSTOOD = frozenset(
    {*LISTS, *INDEXES, *COUNTS, *NUMBERS, "hybrid_override_pattern", "attn_layer_period", "attn_layer_offset",
     "full_attention_interval", "layer_group_size", "mamba_step", "sliding_window", "sliding_window_pattern",
     "sliding_window_from_0", "layer_switch", "sliding_window_size", "attention_window_size", "attention_chunk_size",
     "no_rope_layers", "no_rope_layer_interval", "use_sliding_window", "max_window_layers", "num_kv_shared_layers",
     "cla_share_factor", "use_cla", "cross_attention_layers", "linear_attn_config", "block_configs", "cla_share_mode",
     "num_key_value_heads_per_layer", "num_attention_heads_per_layer", "num_kv_heads", "num_query_heads",
     "num_key_value_heads", "attn_config", "attention_k_eq_v"}
)  # fmt: skip
"""Keys that layer_kinds.py and layers.py read; they rank below the one that tells of the layers."""


class UnclearError(ScenarioError):
    """A config that tells of layers in a way that is not understood."""


def unclear(name: str, why: str) -> UnclearError:
    """The error for a key that is not understood: it says what to give instead."""
    return UnclearError(
        f"config.json: {name}: {why}: give --layers (how many keep keys and values of the whole context) and --kv-heads"
    )


def with_defaults(config: Config) -> dict[str, Any]:
    """The config over what its model type has by default; null stands for what is not given, save for a window."""
    given = {key: value for key, value in config.items() if value is not None or key == "sliding_window"}
    kind = str(config.get("model_type"))
    if "_sliding_window_pattern" in given:  # as transformers writes it since 4.53
        given.setdefault("sliding_window_pattern", given.pop("_sliding_window_pattern"))
    return {**DEFAULTS.get(kind, DEFAULTS.get(f"{kind}_text", {})), **given}
