"""What a comparison can show at best, told before anything is sent. Pure.

Rule: it follows from the numbers that ``decide`` and ``blocks`` ask for, never from a guess at latencies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, log1p, sqrt

from loadramp.analysis.proportions import needed
from loadramp.analysis.quantiles import fewest_values
from loadramp.comparison.block_spread import INTERVAL_Z
from loadramp.comparison.blocks import MEASURES, QUANTILES
from loadramp.comparison.decide import DecisionRules
from loadramp.units import count, percent, plural


@dataclass(slots=True, frozen=True)
class Offered:
    """What one arm gets in the measured part of one block at one rate, on average."""

    rate_rps: float
    requests: float
    gaps: float | None = None
    """Between tokens; None: not known how long answers are."""


def prospects(asked: DecisionRules, offered: Sequence[Offered], limits: bool = True) -> list[str]:
    """Why it will not pass, or not at its first look, even if nothing fails; a sentence each, none where it may.

    Args:
        asked: margins, looks and blocks.
        offered: a block at each rate.
        limits: the scenario sets latency limits, without which there are no good requests.
    """
    doubts = [_carries(metric, offered) for metric in asked.primary]
    if "good_rps" in asked.primary and not limits:
        doubts.append("It cannot pass: good_rps is primary, and the scenario sets no [slo] limit.")
    doubts.append(_one_run(asked))
    doubts.append(_failures(asked, sum(offer.requests for offer in offered)))
    return [words for words in doubts if words]


def _one_run(asked: DecisionRules) -> str:
    """Where the spread that is assumed from run to run is alone wider than the margin."""
    if INTERVAL_Z * sqrt(2.0) * asked.run_sd < log1p(asked.latency_margin):
        return ""
    return (
        f"It cannot be expected to pass: of one run of each, with {percent(asked.run_sd)} assumed from run to run "
        f"([canary] run_sd), equal versions are not shown to be within {percent(asked.latency_margin)}."
    )


def _failures(asked: DecisionRules, each: float) -> str:
    """``each``: requests of one arm in one block, over all rates."""
    wanted = needed(0, asked.error_ratio)
    looks = sorted({*(k for k in asked.looks if k <= asked.blocks), asked.blocks})
    enough = [k for k in looks if k * each >= wanted]
    why = f"an error rate below {percent(asked.error_ratio)} takes {plural(wanted, 'request')} without an error"
    if not enough:
        return (
            f"It cannot be expected to pass: {why}, and {plural(asked.blocks, 'block', 'have')} about "
            f"{count(asked.blocks * each)} of each version; it would take {plural(ceil(wanted / each), 'block')}, "
            f"or more "
            "requests in each ([canary] rates, block_s)."
        )
    if enough[0] == looks[0]:
        return ""
    return (
        f"It can pass after {plural(enough[0], 'block')} at the earliest: {why}, and "
        f"{plural(looks[0], 'block', 'have')} about "
        f"{count(looks[0] * each)} of each version."
    )


def _carries(metric: str, offered: Sequence[Offered]) -> str:
    """Whether a block holds the values that a primary quantile needs, at the rate that has the fewest."""
    measure = MEASURES[metric]
    if measure.statistic not in QUANTILES:
        return ""
    tokens = measure.family == "itl"
    values = {offer.rate_rps: offer.gaps if tokens else offer.requests for offer in offered}
    known = {rate_rps: n for rate_rps, n in values.items() if n is not None}
    rate_rps = min(known, key=lambda rate_rps: known[rate_rps], default=None)
    wanted = fewest_values(QUANTILES[measure.statistic])
    if rate_rps is None or known[rate_rps] >= wanted:
        return ""
    what = "gaps between tokens" if tokens else "requests"
    return (
        f"It cannot be expected to pass: {measure.words} is primary and needs {wanted} {what} in a block, which has "
        f"about {count(known[rate_rps])} at {rate_rps:.4g} req/s ([canary] primary, block_s, rates)."
    )
