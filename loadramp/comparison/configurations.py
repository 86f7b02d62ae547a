"""Several configurations of one service in a table: what each change of settings bought. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

from loadramp.analysis.group_sequential import t_of
from loadramp.comparison.environment import Difference
from loadramp.comparison.info import ComparisonInfo
from loadramp.comparison.stored_runs import (
    Side,
    StoredReading,
    estimate_of,
    in_flight_of,
    matched_rates,
    side_kept_up,
    spread_between,
    step_of,
)

NUMBERS = ("ceiling", "p99_itl_knee", "slo_capacity")
METRICS = ("ttft_p50", "ttft_p99", "itl_p50", "itl_p99")
Z = 1.959964


@dataclass(slots=True, frozen=True)
class ConfigurationFigure:
    """One number of one configuration, and its ratio to the first one's with a 95 % interval (None: unknown)."""

    value: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    """The status of an estimate that has no number."""


@dataclass(slots=True)
class Tiers:
    """The table: one mapping from column to figure for each configuration, the first being what others are set against.

    ``rate_rps``: the highest rate that all of them have; latencies are of that step.
    """

    sides: Sequence[Side]
    rates: list[float]
    rate_rps: float | None
    figures: list[dict[str, ConfigurationFigure]]
    indicative: bool
    run_sd: float
    info: ComparisonInfo = field(default_factory=ComparisonInfo)
    environment: list[list[Difference]] = field(default_factory=list)
    """Of each configuration against the first."""
    path: str = ""

    @property
    def broken(self) -> list[tuple[str, list[Difference]]]:
        """Configurations measured under other conditions than the first: (name, what differs)."""
        sides = zip(self.sides, self.environment, strict=False)
        each = ((side.name, [difference for difference in changed if difference.breaks]) for side, changed in sides)
        return [(name, differing) for name, differing in each if differing]


def tiers(sides: Sequence[Side], run_sd: float) -> Tiers:
    """The table of ``sides``; ``run_sd`` is assumed between runs where no side repeats any."""
    rates = matched_rates(sides)
    common = [rate for rate in rates if all(side_kept_up(side, rate) for side in sides)]
    rate = common[-1] if common else rates[-1] if rates else None
    unsure = all(side.repeats < 2 for side in sides)
    assumed = run_sd if unsure else 0.0
    return Tiers(sides, rates, rate, [_tier(side, sides[0], rate, assumed) for side in sides], unsure, assumed)


def _tier(side: Side, first: Side, rate: float | None, run_sd: float) -> dict[str, ConfigurationFigure]:
    """The three numbers, the requests at once (mean in flight of the highest step that kept up), latencies."""
    out = {}
    for name in NUMBERS:
        estimate = side.runs[0].estimates.get(name)
        why = "" if estimate is None or estimate.status == "found" else estimate.status.replace("_", " ")
        why += f" {estimate.rate_rps:.3g}" if why and estimate is not None and estimate.rate_rps else ""
        out[name] = _figure(estimate_of(side, name), estimate_of(first, name), run_sd, why)
    for metric in METRICS if rate is not None else ():
        assert rate is not None
        out[metric] = _figure(step_of(side, metric, rate), step_of(first, metric, rate), run_sd)
    out["at_once"] = _figure(in_flight_of(side), in_flight_of(first), run_sd)
    return out


def _figure(
    reading: StoredReading | None, first: StoredReading | None, run_sd: float, reason: str = ""
) -> ConfigurationFigure:
    if reading is None:
        return ConfigurationFigure(None, reason=reason)
    value = exp(reading.log_mean)
    if first is None or reading.logs == first.logs:
        return ConfigurationFigure(value)
    ratio = exp(reading.log_mean - first.log_mean)
    spread = spread_between(first, reading, 1, run_sd)
    if spread is None:
        return ConfigurationFigure(value, ratio)
    half = t_of(Z, spread.df) * spread.se
    return ConfigurationFigure(value, ratio, exp(spread.mean - half), exp(spread.mean + half))
