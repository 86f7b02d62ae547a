"""How noisy two equal versions were here: kept from the last comparison of the same version, for what ``plan`` expects.

As with ``selfcheck`` only the last result is kept, for the user; it holds no address and nothing of what was asked.
"""

import json
import os
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime
from math import ceil, exp, log1p, sqrt
from pathlib import Path
from typing import Any

from loadramp.analysis.blocks import words_of
from loadramp.analysis.proportions import needed
from loadramp.comparison.noninferior import Looks
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.sample_size import MOST_BLOCKS, POWER, Noise, pass_probability, uncertainty
from loadramp.comparison.table import Canary
from loadramp.units import percent, plural, span

LEAST_BLOCKS = 4
"""Fewer say too little of how far blocks scatter."""


def stored_path() -> Path:
    """Where the noise of the last comparison of the same version is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loadramp" / "same-version.json"


def noise_of(found: Comparison, measured_at: datetime, block_s: float) -> dict[str, Any] | None:
    """The scatter of the primary measures of an A/A comparison from block to block; None when it says too little."""
    rows = [
        {"metric": one.metric, "rate_rps": one.rate_rps, "sd": one.noise, "blocks": one.n}
        for one in found.effects
        if one.primary and one.noise is not None and one.rate_rps is not None and one.n >= LEAST_BLOCKS
    ]
    if not found.asked.same_version or not rows:
        return None
    return {"measured_at": measured_at.astimezone(UTC).isoformat(timespec="seconds"), "block_s": block_s, "noise": rows}


def keep(noise: dict[str, Any], path: Path) -> None:
    """Put ``noise`` in place of what was kept before. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(noise, indent=1) + "\n")


def stored(path: Path | None = None) -> dict[str, Any] | None:
    """What was kept; None where there is nothing, or nothing that can be read."""
    try:
        found = json.loads((path or stored_path()).read_text())
        earlier(Canary(), found)
        str(found["measured_at"])
    except (OSError, ValueError, LookupError, TypeError, RuntimeError):  # RuntimeError: nobody has a home here
        return None
    return dict(found)


def earlier(canary: Canary, noise: dict[str, Any] | None) -> list[Noise]:
    """What ``noise`` says of blocks like those of ``canary``: at the same rates, scaled to their length."""
    if noise is None:
        return []
    longer = sqrt(float(noise["block_s"]) / canary.block_s)
    return [
        Noise(metric, rate_rps, sd * longer, n)
        for (metric, rate_rps, sd), n in zip(_rows(noise), _blocks(noise), strict=True)
        if rate_rps in canary.rates
    ]


def expected(canary: Canary, noise: dict[str, Any]) -> str:
    """How long equal versions are expected to take, in a sentence.

    The first look at which the noisiest primary measure is inside the margin in 80 % of the comparisons, at noise like
    ``noise``; a block that is k times as long scatters by 1 / sqrt(k). Noise of another rate stands for one that was
    not measured. The range is that of ``uncertainty``: few blocks tell their variance only so well.
    """
    known = [(one, n) for one, n in zip(_rows(noise), _blocks(noise), strict=True) if one[0] in canary.primary]
    if not known:
        return ""
    longer = sqrt(float(noise["block_s"]) / canary.block_s)
    (metric, rate_rps, sd), n = max(known, key=lambda row: row[0][2])
    scatter = percent(exp(sd * longer) - 1.0, 2)
    sentence = (
        f"At noise like that of the last comparison of the same version ({str(noise['measured_at'])[:10]}: "
        f"{words_of(metric)} at {rate_rps:.4g} req/s scatters by {scatter} from block to block)"
    )
    reach = uncertainty(n) ** 0.25  # of the standard deviation; the blocks follow its square
    low, blocks, high = (passes_after(canary, sd * longer * factor) for factor in (1.0 / reach, 1.0, reach))
    if blocks is None:
        return f"{sentence} equal versions cannot be expected to pass: it would take more than {MOST_BLOCKS} blocks."
    most = f"more than {MOST_BLOCKS}" if high is None else str(high)
    between = f" ({low} to {most}, as {plural(n, 'block')} tell their noise)" if low != high else ""
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


def _blocks(noise: dict[str, Any]) -> list[int]:
    return [int(one["blocks"]) for one in noise["noise"]]


def _rows(noise: dict[str, Any]) -> Sequence[tuple[str, float, float]]:
    """(metric, rate, sd); raises LookupError, TypeError or ValueError where it is not of that shape."""
    if float(noise["block_s"]) <= 0.0:
        raise ValueError(noise["block_s"])
    return [(str(words_of(one["metric"]) and one["metric"]), float(one["rate_rps"]), float(one["sd"]))
            for one in noise["noise"]]  # fmt: skip
