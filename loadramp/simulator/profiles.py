"""What an engine costs and where its limits lie, as data, and named ones to practise on. Pure.

One engine step takes ``t0_s + decode_s * decodes + context_s * context tokens + prefill_s * prefilled tokens``,
times a noise of a few per cent (docs/simulator.md says how far that is from a real engine).
"""

from dataclasses import dataclass, replace

from loadramp.registry import data_of
from loadramp.simulator.regimes import NO_REGIMES, REGIMES, Regimes, Stall


@dataclass(slots=True, frozen=True)
class EngineProfile:
    """Cost model and limits of one simulated engine. Times in seconds.

    Raises:
        ValueError: limits that no engine would start with.
    """

    name: str = "custom"
    t0_s: float = 0.0065
    """A step with nothing in it: kernel launches, scheduling, sampling."""
    decode_s: float = 15e-6
    """Per request that decodes in the step (per token verified, with a draft)."""
    context_s: float = 45e-9
    """Per token of context of the decoding requests."""
    prefill_s: float = 25e-6
    """Per prompt token computed in the step."""
    host_s: float = 0.0
    """A step takes at least this long: the host launches its kernels while the GPU computes. 0: not told apart."""
    noise_ratio: float = 0.03
    """Standard deviation of the factor on each step's time."""
    max_num_seqs: int = 1024
    token_budget: int = 8192
    """Most tokens of a step, decodes and prefill together."""
    kv_blocks: int = 27_000
    block_tokens: int = 16
    max_model_len: int = 8192
    chunked_prefill: bool = True
    """False: waiting prompts go first, whole and alone, while all decodes stand still."""
    prefix_cache: bool = True
    frontend_s: float = 0.0
    """From the request's arrival to the engine's queue: HTTP, template, tokenizer."""
    stalls: tuple[Stall, ...] = ()
    regimes: Regimes = NO_REGIMES
    """How its pace changes by itself: the host's share of a step where ``host_s`` tells it, else the whole step."""
    speeds: tuple[tuple[float, float], ...] = ()
    """(instant, factor): from then on every step is that many times as fast. A throttled or replaced machine."""
    draft_tokens: int = 0
    """Speculative decoding: tokens proposed for each request and step; 0 is off."""
    accept_ratio: float = 0.7
    """Chance that a proposed token is accepted, given that those before it were."""
    draft_s: float = 0.0005
    """Time to propose one token (for all requests of the step)."""
    max_queue: int | None = None
    """Requests that may wait; one more is refused. None: no limit."""
    max_in_flight: int | None = None
    """Requests that may wait and run; one more is refused. None: no limit."""
    max_adapters: int = 8
    """LoRA adapters held at once; the least recently used makes room."""
    adapter_load_s: float = 0.0
    """All streams freeze that long when an adapter is loaded."""

    def __post_init__(self) -> None:
        tokens_each = 1 + self.draft_tokens
        if self.max_num_seqs * tokens_each > self.token_budget:
            raise ValueError(f"{self.name}: token_budget {self.token_budget} is below max_num_seqs times tokens each")
        if self.max_model_len > self.kv_blocks * self.block_tokens:
            raise ValueError(f"{self.name}: one request of max_model_len {self.max_model_len} does not fit the KV pool")
        if min(self.max_num_seqs, self.block_tokens, self.kv_blocks) < 1 or self.t0_s <= 0:
            raise ValueError(f"{self.name}: limits and t0_s must be positive")


def _profiles() -> dict[str, EngineProfile]:
    profiles: dict[str, EngineProfile] = {}
    for name, table in data_of(__package__, "profiles.toml").items():
        base = profiles[table.pop("like")] if "like" in table else EngineProfile()
        if "regimes" in table:
            table["regimes"] = REGIMES[table["regimes"]]
        table["stalls"] = tuple(Stall(**stall) for stall in table.get("stalls", ()))
        profiles[name] = replace(base, name=name, **table)
    return profiles


PROFILES = _profiles()
"""By name (profiles.toml)."""
