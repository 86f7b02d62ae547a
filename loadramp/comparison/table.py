"""``[canary]``: how two endpoints are compared, how much worse one may be, in what order blocks go. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from loadramp.registry import bind_options
from loadramp.scenario.scenario import SHORTEST_WARMUP_S, Count, NotNegative, Positive, Ratio, Scenario

Margin = Annotated[float, Meta(gt=0, lt=1)]

Design = Literal["mirrored", "abba", "a_then_b"]
Metric = Literal[
    "ttft_p50", "ttft_p95", "ttft_p99", "ttft_mean",
    "itl_p50", "itl_p95", "itl_p99", "itl_mean",
    "tpot_p50", "tpot_p95", "tpot_p99", "tpot_mean",
    "e2e_p50", "e2e_p95", "e2e_p99", "e2e_mean",
    "step_time", "output_tokens_per_s", "good_rps",
]  # fmt: skip
PRIMARY: tuple[Metric, ...] = ("itl_p99", "itl_p50", "tpot_mean", "ttft_p50", "output_tokens_per_s")


@dataclass(slots=True, frozen=True)
class Canary:
    """``[canary]``. Margins are shares of the baseline, times seconds."""

    design: Design = "mirrored"
    """``mirrored``: the same request to both at the same instant. ``abba``: one machine, blocks in turn, each segment
    replayed. ``a_then_b``: all of one, then all of the other; only ever indicative."""
    rates: Annotated[Sequence[Positive], Meta(min_length=1)] = (8.0,)
    """Requests a second; each round of blocks offers all of them."""
    block_s: Annotated[float, Meta(ge=1)] = 60.0
    blocks: Annotated[int, Meta(ge=2, le=200)] = 20
    """At most so many pairs of blocks at each rate."""
    looks: Sequence[Count] = (5, 10, 15)
    """After how many blocks it may end early; after the last one it ends anyway."""
    warmup_s: NotNegative | None = None
    """Load before the first block and before each change of rate or version. None: the ``[ramp]`` keys decide."""
    primary: Annotated[Sequence[Metric], Meta(min_length=1)] = PRIMARY
    """What the candidate must not be worse in. All of them must hold."""
    latency_margin: Margin = 0.1
    """How much longer a primary latency may be; the same for output tokens and good requests a second, inverted."""
    error_ratio: Margin = 0.001
    """The share of failed requests must be shown to be below it."""
    ceiling: bool = False
    """Also climb, both at once, until both are overloaded, and compare the ceilings."""
    ceiling_margin: Margin = 0.1
    """How much lower the ceiling may be."""
    ceiling_max_rps: Positive = 1024.0
    rollback_error_ratio: Margin = 0.01
    """More failures than that, shown beyond doubt, end it at once: fail."""
    rollback_slo_factor: Positive = 2.0
    """A latency above so many times its ``[slo]`` limit ends it at once: fail."""
    run_sd: NotNegative = 0.05
    """Spread of ln(metric) from run to run, assumed where there is one run of each: ``a_then_b``, ``compare``."""
    answers: Annotated[int, Meta(ge=0, le=256)] = 0
    """Greedy prompts whose answers are compared before the load. 0: none."""
    answer_tokens: Count = 64
    min_match_ratio: Ratio = 0.5
    """Fewer equal answers than that (beyond what the baseline gives twice) cannot pass."""
    switch_timeout_s: Positive = 600.0
    """Longest time that a switch command may take, and that the endpoint may need to be ready after it."""

    @property
    def look_at(self) -> tuple[int, ...]:
        """Numbers of blocks after which there is a look, the last one included."""
        return tuple(sorted({*(k for k in self.looks if 2 <= k < self.blocks), self.blocks}))

    @property
    def round_s(self) -> float:
        """Time that a block at every rate takes, of both arms, without switches and warm-up."""
        return self.block_s * len(self.rates) * (1 if self.design == "mirrored" else 2)


def bind_canary(table: Mapping[str, Any], where: str) -> Canary:
    """A ``[canary]`` table."""
    return Canary(**bind_options(table, Canary, where))


def canary_of(scenario: Scenario) -> Canary:
    """The table of a scenario."""
    table: Canary = scenario.features["canary"]
    return table


def block_rates(canary: Canary, number: int, before_rps: float | None) -> list[tuple[float, bool]]:
    """(rate, whether it needs a warm-up) of each block of a mirrored round; ``before_rps`` is the rate before it."""
    rates = []
    for rate_rps in canary.rates:
        rates.append((rate_rps, before_rps != rate_rps or (number == 0 and canary.warmup_s is not None)))
        before_rps = rate_rps
    return rates


def climb_rates(canary: Canary) -> list[float]:
    """The rates of the climb after mirrored blocks: from the highest one up by factors of 2."""
    rates, rate_rps = [], max(canary.rates)
    while rate_rps <= canary.ceiling_max_rps:
        rates.append(rate_rps)
        rate_rps *= 2.0
    return rates


def order_of(canary: Canary) -> list[tuple[int, str]]:
    """(segment, arm) in the order of sending. ABBA: each segment to both in turn, the order turned round each time, so
    that a switch is needed only once a segment and a drift hits both alike."""
    if canary.design == "a_then_b":
        return [(n, arm) for arm in ("baseline", "candidate") for n in range(canary.blocks)]
    pairs = (("baseline", "candidate"), ("candidate", "baseline"))
    return [(n, arm) for n in range(canary.blocks) for arm in pairs[n % 2]]


def asked_warmup_s(scenario: Scenario) -> float | None:
    """The warm-up that the scenario sets for blocks; None: the measurements decide."""
    asked = canary_of(scenario).warmup_s
    return scenario.pace.warmup_s if asked is None else asked


def turn_warmup_s(scenario: Scenario) -> float:
    """Warm-up of every block where two versions take turns: the same whether it was switched before it or not, so that
    each segment is replayed whole."""
    asked = asked_warmup_s(scenario)
    return max(SHORTEST_WARMUP_S, scenario.pace.settle_s) if asked is None else asked
