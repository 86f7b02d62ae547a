"""How noisy two equal versions were here: kept from the last comparison of the same version, for what ``plan`` expects.

As with ``selfcheck`` only the last result is kept, for the user; it holds no address and nothing of what was asked.
"""

from bisect import bisect_left
from dataclasses import replace
from datetime import UTC, datetime
from math import ceil, exp, log1p, sqrt

from loadramp.analysis.proportions import needed
from loadramp.comparison.block_spread import MOST_BLOCKS, POWER, Noise, pass_probability, uncertainty
from loadramp.comparison.blocks import words_of
from loadramp.comparison.info import KeptNoise
from loadramp.comparison.noninferior import Looks
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.table import Canary
from loadramp.record.kept import Kept
from loadramp.units import percent, plural, span

LEAST_BLOCKS = 4
"""Fewer say too little of how far blocks scatter."""


LAST = Kept("same-version.json", KeptNoise)
"""The noise of the last comparison of the same version."""


def noise_of(comparison: Comparison, measured_at: datetime, block_s: float) -> KeptNoise | None:
    """The scatter of the primary measures of an A/A comparison from block to block; None when it says too little."""
    rows = [
        Noise(effect.metric, effect.rate_rps, effect.noise, effect.n)
        for effect in comparison.effects
        if effect.primary and effect.noise is not None and effect.rate_rps is not None and effect.n >= LEAST_BLOCKS
    ]
    if not comparison.asked.same_version or not rows:
        return None
    return KeptNoise(measured_at.astimezone(UTC).isoformat(timespec="seconds"), block_s, tuple(rows))


def earlier(canary: Canary, kept: KeptNoise | None) -> list[Noise]:
    """What ``kept`` says of blocks like those of ``canary``: at the same rates, scaled to their length."""
    if kept is None:
        return []
    longer = sqrt(kept.block_s / canary.block_s)
    return [replace(entry, sd=entry.sd * longer) for entry in kept.noise if entry.rate_rps in canary.rates]


def expected(canary: Canary, kept: KeptNoise) -> str:
    """How long equal versions are expected to take, in a sentence.

    The first look at which the noisiest primary measure is inside the margin in 80 % of the comparisons, at noise like
    ``kept``; a block that is k times as long scatters by 1 / sqrt(k). Noise of another rate stands for one that was
    not measured. The range is that of ``uncertainty``: few blocks tell their variance only so well.
    """
    noisiest = max(
        (entry for entry in kept.noise if entry.metric in canary.primary),
        key=lambda entry: entry.sd,
        default=None,
    )
    if noisiest is None:
        return ""
    sd = noisiest.sd * sqrt(kept.block_s / canary.block_s)
    sentence = (
        f"At noise like that of the last comparison of the same version ({kept.date}: "
        f"{words_of(noisiest.metric)} at {noisiest.rate_rps:.4g} req/s scatters by {percent(exp(sd) - 1.0, 2)} from "
        "block to block)"
    )
    reach = uncertainty(noisiest.blocks) ** 0.25  # of the standard deviation; the blocks follow its square
    low, blocks, high = (passes_after(canary, sd * factor) for factor in (1.0 / reach, 1.0, reach))
    if blocks is None:
        return f"{sentence} equal versions cannot be expected to pass: it would take more than {MOST_BLOCKS} blocks."
    most = f"more than {MOST_BLOCKS}" if high is None else str(high)
    between = f" ({low} to {most}, as {plural(noisiest.blocks, 'block')} tell their noise)" if low != high else ""
    lasts = f"{plural(blocks, 'block')}, {span(blocks * canary.round_s)}{between}"
    if blocks <= canary.blocks:
        return f"{sentence} equal versions are expected to pass after {lasts}."
    return (
        f"{sentence} equal versions take about {lasts}, to pass; this scenario has {canary.blocks}: "
        f"--set canary.blocks={blocks}."
    )


def passes_after(canary: Canary, sd: float) -> int | None:
    """Blocks after which equal versions pass with a chance of 80 %: the first look that has it, or as many blocks as
    would at their last look; None above MOST_BLOCKS.

    Args:
        canary: margins, looks and blocks.
        sd: of ln(ratio) from block to block, of the noisiest measure.
    """
    margin = log1p(canary.latency_margin)
    requests = ceil(needed(0, canary.error_ratio) / (canary.block_s * sum(canary.rates)))

    def likely(blocks: int, total: int) -> bool:
        return (
            blocks >= requests
            and pass_probability(blocks, sd, margin, Looks.at(blocks, canary.look_at, total).z) >= POWER
        )

    look = next((k for k in canary.look_at if likely(k, canary.blocks)), None)
    if look is not None:
        return look
    more = range(canary.blocks + 1, MOST_BLOCKS + 1)
    at = bisect_left(more, True, key=lambda blocks: likely(blocks, blocks))
    return more[at] if at < len(more) else None
