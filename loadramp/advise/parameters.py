"""The parameters of a decoder, part by part, from the sizes in its config.json. Pure. Only of types in COUNTED."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadramp.registry import ScenarioError

COUNTED = frozenset(
    {"llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
     "phi3", "smollm3", "deepseek_v2", "deepseek_v3", "gpt_oss"}
)  # fmt: skip
"""Model types built of gated MLPs and projections of which config.json tells every size."""
TIED = frozenset({"gemma", "gemma2", "gemma3_text", "smollm3"})
"""They tie embedding and head without saying so."""

Config = Mapping[str, Any]


@dataclass(slots=True, frozen=True)
class Parts:
    """Parameters. ``embedded`` and ``other`` are of the whole model, the rest of one layer that has them."""

    embedded: int
    """Embedding and head."""
    attention: int
    dense: int
    """The MLP of a layer without experts."""
    experts: int
    shared: int
    router: int
    sparse: tuple[bool, ...]
    """For each layer: whether it has experts."""
    other: int
    """Norms and the like."""

    @property
    def total(self) -> int:
        sparse = sum(self.sparse)
        each = sparse * (self.experts + self.shared + self.router) + (len(self.sparse) - sparse) * self.dense
        return self.embedded + len(self.sparse) * self.attention + each + self.other


def embedded(config: Config, hidden: int) -> int:
    """Parameters of embedding and head; 0 where the vocabulary is not told."""
    vocab = whole(config, "vocab_size", 0)
    tied = bool(config.get("tie_word_embeddings", config.get("model_type") in TIED))
    return vocab * hidden * (1 if tied else 2)


def parts_of(config: Config, layers: int, hidden: int, heads: int, kv_heads: int, head_dim: int) -> Parts | None:
    """The parts of a model of the types in COUNTED; None for others.

    Raises:
        ScenarioError: a size is no whole number.
    """
    kind = config.get("model_type")
    if kind not in COUNTED or "vocab_size" not in config or "intermediate_size" not in config:
        return None
    if config.get("kv_lora_rank"):
        attention = _latent(config, hidden, heads)
    else:
        attention = hidden * head_dim * (heads + 2 * kv_heads) + heads * head_dim * hidden
        if kind in {"qwen2", "qwen2_moe", "gpt_oss"} or config.get("attention_bias") is True:
            attention += head_dim * (heads + 2 * kv_heads)
        if kind == "gpt_oss":
            attention += hidden + heads  # bias of the output, sinks
        if kind in {"qwen3", "qwen3_moe", "gemma3_text"}:
            attention += 2 * head_dim  # norms of queries and keys
    norms = hidden * (4 if kind in {"gemma2", "gemma3_text"} else 2)
    dense, experts, shared, router = _mlp(config, hidden)
    return Parts(embedded(config, hidden), attention, dense, experts, shared, router,
                 _sparse(config, layers, experts), layers * norms + hidden)  # fmt: skip


def whole(config: Config, name: str, default: int | None = None) -> int:
    """A whole number of at least 0.

    Raises:
        ScenarioError: it is missing and there is no default, or it is something else.
    """
    value = config.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise ScenarioError(f"config.json: no {name}: is this the config of a decoder model?")
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ScenarioError(f"config.json: {name}: expected a whole number; got {value!r}")
    return int(value)


def _latent(config: Config, hidden: int, heads: int) -> int:
    """Projections of multi-head latent attention (DeepSeek-V2 and V3)."""
    rank, rope = whole(config, "kv_lora_rank"), whole(config, "qk_rope_head_dim")
    nope, value = whole(config, "qk_nope_head_dim"), whole(config, "v_head_dim")
    query_rank = config.get("q_lora_rank")
    out = heads * (nope + rope)
    queries = hidden * query_rank + query_rank + query_rank * out if query_rank else hidden * out
    return int(queries + hidden * (rank + rope) + rank + rank * heads * (nope + value) + heads * value * hidden)


def _mlp(config: Config, hidden: int) -> tuple[int, int, int, int]:
    """(dense MLP, all experts, those that every token uses, router) of a layer: gate, up and down projections."""
    dense = 3 * hidden * whole(config, "intermediate_size")
    names = ("num_local_experts", "num_experts", "n_routed_experts")
    experts = next((whole(config, name) for name in names if config.get(name)), 0)
    if not experts:
        return dense, 0, 0, 0
    kind = config.get("model_type")
    width = whole(config, "moe_intermediate_size", whole(config, "intermediate_size"))
    shared = whole(config, "shared_expert_intermediate_size", whole(config, "n_shared_experts", 0) * width)
    router = experts * hidden + (experts if kind in {"deepseek_v3", "gpt_oss"} else 0)
    gate = hidden if kind == "qwen2_moe" and shared else 0  # of the shared expert
    bias = experts * (2 * width + hidden) if kind == "gpt_oss" else 0
    return dense, experts * 3 * hidden * width + bias, 3 * hidden * shared, router + gate


def _sparse(config: Config, layers: int, experts: int) -> tuple[bool, ...]:
    """For each layer: whether it has experts."""
    only, step = config.get("mlp_only_layers"), whole(config, "decoder_sparse_step", 1) or 1
    skipped = set(only) if isinstance(only, list) else set()
    first = whole(config, "first_k_dense_replace", 0)
    return tuple(bool(experts) and i >= first and i not in skipped and (i + 1) % step == 0 for i in range(layers))
