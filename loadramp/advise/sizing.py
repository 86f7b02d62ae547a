"""How many replicas, GPUs and coins: from the rate that one replica was shown to take. Pure arithmetic.

The low end of the measured interval decides; the high end says what might be saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from loadramp.advise.demand import Demand, Rate
from loadramp.advise.options import LoadFacts
from loadramp.registry import ScenarioError

HOUR_S = 3600.0
MONTH_H = 730.0
MOST_REPLICAS = 1e6


@dataclass(slots=True, frozen=True)
class Load:
    """What is to be served, and how much room is left. ``spare`` replicas may be gone without anybody noticing."""

    peak_rps: float
    mean_rps: float | None = None
    headroom_ratio: float = 0.30
    """At the peak this share of the capacity is free."""
    spare: int = 1


def load_of(asked: LoadFacts) -> Load | None:
    """The load from a peak, or from a mean and how many times it the peak is; None when neither was given.

    Raises:
        ScenarioError: the two contradict each other, or a multiplier stands alone.
    """
    peak_rps, mean_rps, multiplier = asked.peak_rps, asked.mean_rps, asked.peak_multiplier
    if peak_rps is None:
        if mean_rps is None and multiplier is None:
            return None
        if mean_rps is None:
            raise ScenarioError("peak multiplier: of what? give --mean-rps, or --peak-rps")
        return Load(mean_rps * (multiplier or 2.0), mean_rps, asked.headroom, asked.spare)
    if mean_rps is None and multiplier is not None:
        mean_rps = peak_rps / multiplier
    elif mean_rps is not None and multiplier is not None and abs(mean_rps * multiplier - peak_rps) > 0.01 * peak_rps:
        raise ScenarioError(f"{mean_rps:g} x {multiplier:g} is not a peak of {peak_rps:g} req/s: leave one out")
    if mean_rps is not None and mean_rps > peak_rps:
        raise ScenarioError(f"load: a mean of {mean_rps:g} above a peak of {peak_rps:g} req/s")
    return Load(peak_rps, mean_rps, asked.headroom, asked.spare)


@dataclass(slots=True, frozen=True)
class ReplicaSize:
    """Replicas for a load: by the low end of the rate's interval, and by its high end."""

    load: Load
    rate: Rate
    gpus_each: int
    price_per_hour: float | None = None
    """Of one replica, all its GPUs."""
    input_tokens: float | None = None
    output_tokens: float | None = None

    @property
    def needed(self) -> int:
        """Replicas that carry the peak with the headroom: ceil(peak / (rate x (1 - headroom)))."""
        return self.by(self.rate.low_rps)

    def by(self, rate_rps: float) -> int:
        return max(1, ceil(self.load.peak_rps / (rate_rps * (1.0 - self.load.headroom_ratio)) - 1e-9))

    @property
    def replicas(self) -> int:
        """``needed`` and the spare ones."""
        return self.needed + self.load.spare

    @property
    def replicas_at_best(self) -> int:
        """The same if the high end of the interval is true."""
        return self.by(self.rate.high_rps) + self.load.spare

    @property
    def gpus(self) -> int:
        return self.replicas * self.gpus_each

    @property
    def busy_ratio(self) -> float:
        """How much of the replicas' capacity the peak takes when all of them are there."""
        return self.load.peak_rps / (self.replicas * self.rate.low_rps)

    @property
    def survives(self) -> int:
        """How many replicas may fail at the peak before the rest is at its limit."""
        return self.replicas - ceil(self.load.peak_rps / self.rate.low_rps - 1e-9)

    @property
    def cost_per_hour(self) -> float | None:
        return None if self.price_per_hour is None else self.price_per_hour * self.replicas

    def cost_per_million(self, tokens: float | None, rate_rps: float, price_per_hour: float | None) -> float | None:
        """Cost of 10^6 tokens at so many requests a second of so many tokens."""
        if tokens is None or price_per_hour is None or tokens <= 0:
            return None
        return price_per_hour / (rate_rps * tokens * HOUR_S) * 1e6

    def busy_cost(self, tokens: float | None) -> tuple[float, float] | None:
        """Cost of 10^6 tokens of one replica at the rate it takes within the service level: (at best, at worst)."""
        worst = self.cost_per_million(tokens, self.rate.low_rps, self.price_per_hour)
        best = self.cost_per_million(tokens, self.rate.high_rps, self.price_per_hour)
        return None if worst is None or best is None else (best, worst)

    def fleet_cost(self, tokens: float | None) -> float | None:
        """Cost of 10^6 tokens of the whole fleet at the mean load: what is paid in the end."""
        mean_rps = self.load.mean_rps
        return None if mean_rps is None else self.cost_per_million(tokens, mean_rps, self.cost_per_hour)


def size_of(demand: Demand, load: Load, gpus_each: int, price_per_gpu_hour: float | None) -> ReplicaSize:
    """Replicas for ``load``.

    Raises:
        ScenarioError: there is no rate to size by.
    """
    if demand.rate is None:
        raise ScenarioError(demand.rate_reason)
    if load.peak_rps > MOST_REPLICAS * demand.rate.low_rps:
        raise ScenarioError(
            f"load: a peak of {load.peak_rps:g} req/s, where one replica takes {demand.rate.low_rps:g}: expected both "
            "in requests a second"
        )
    price = None if price_per_gpu_hour is None else price_per_gpu_hour * gpus_each
    return ReplicaSize(load, demand.rate, gpus_each, price, demand.input_tokens, demand.output_tokens)


@dataclass(slots=True, frozen=True)
class SizeOption:
    """One measured configuration with its size."""

    name: str
    size: ReplicaSize


def cheapest(choices: Sequence[SizeOption]) -> tuple[list[SizeOption], list[SizeOption]]:
    """Those of least cost an hour (without prices: of fewest GPUs), and those that might be as cheap if the high end of
    their interval is true."""
    costs = [_cost(choice.size, choice.size.replicas) for choice in choices]
    best = [choice for choice, cost in zip(choices, costs, strict=True) if cost == min(costs)]
    rivals = [
        choice
        for choice in choices
        if choice not in best and _cost(choice.size, choice.size.replicas_at_best) <= min(costs)
    ]
    return best, rivals


def _cost(size: ReplicaSize, replicas: int) -> float:
    return float(replicas * (size.gpus_each if size.price_per_hour is None else size.price_per_hour))
