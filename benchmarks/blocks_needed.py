"""Is the number of blocks right that an undecided canary asks for? Engines that are slow at times, by their paths.

    python benchmarks/blocks_needed.py [--engines 24] [--blocks 240] [--tries 500] [--seed 9]

A block of 60 s is the median of the factor on the step time, which is what p50 ITL follows; so thousands of blocks take
seconds, and what it truly takes is known from hours of each engine. Every try is a pair of engines of one version over
some blocks, with or without 20 blocks of A/A before them; those that pass are left out. ``figure``, ``range``: the
share that is right within a factor of 1.5.
"""

import argparse
from dataclasses import replace
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from loadramp.comparison.block_spread import (
    AGREED_WEIGHT,
    Missing,
    Noise,
    PairSpread,
    blocks_for,
    more_blocks,
    noise_of,
    spread,
    uncertainty,
)
from loadramp.simulator.regimes import REGIMES, RegimePath

MARGIN = log(1.1)
BLOCK_S, GRID_S = 60.0, 0.5
LONG = 40
"""Blocks of a mean from which the long-run scatter is taken."""
AA_BLOCKS = 20
RIGHT = 1.5
KINDS = ("captured", "doubling", "neighbour", "slow_drift")
Floats = NDArray[np.float64]


def levels(kind: str, seed: int, blocks: int) -> Floats:
    """ln(median factor) of each block of one engine."""
    path = RegimePath(REGIMES[kind], np.random.default_rng(seed))
    at_s = np.arange(0.0, BLOCK_S * blocks, GRID_S)
    factors = np.array([path.factor(t_s) for t_s in at_s.tolist()]).reshape(blocks, -1)
    return np.asarray(np.log(np.median(factors, axis=1)), dtype=np.float64)


def seen(base: Floats, candidate: Floats) -> PairSpread:
    found = spread((candidate - base).tolist())
    assert found is not None
    return replace(found, noise=noise_of(np.exp(base), np.exp(candidate)))


def asked(engines: Floats, blocks: int, aa: int, rng: np.random.Generator) -> Missing | None:
    """What one comparison asks for in all; None where it is decided, or sure to take more than anybody wants."""
    i, j = rng.choice(len(engines), 2, replace=False)
    at = int(rng.integers(0, engines.shape[1] - blocks - aa))
    earlier = None
    if aa:
        noise = seen(engines[i, at : at + aa], engines[j, at : at + aa]).each
        earlier = Noise("itl_p50", 8.0, noise or 0.0, aa)
    found = seen(engines[i, at + aa : at + aa + blocks], engines[j, at + aa : at + aa + blocks])
    more = more_blocks(found, MARGIN, earlier)
    if more is None or more.blocks <= 1:
        return None
    return Missing(*(blocks + n for n in (more.blocks, more.low, more.high)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("engines", 24), ("blocks", 240), ("tries", 500), ("seed", 9)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    print("| regimes | needs | blocks | A/A before | verdicts | asks for | figure | range | its ends apart |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        engines = np.array([levels(kind, given.seed + 1000 * k, given.blocks) for k in range(given.engines)])
        means = engines[:, : given.blocks // LONG * LONG].reshape(given.engines, -1, LONG).mean(axis=2)
        needs = blocks_for(sqrt(2.0 * LONG) * float(means.std(ddof=1)), MARGIN)
        rng = np.random.default_rng(given.seed)
        for aa in (0, AA_BLOCKS):
            for blocks in (5, 10, 15, 20):
                told = [one for _ in range(given.tries) if (one := asked(engines, blocks, aa, rng))]
                figure = np.mean([needs / RIGHT <= one.blocks <= RIGHT * needs for one in told])
                between = np.mean([one.low / RIGHT <= needs <= RIGHT * one.high for one in told])
                print(f"| {kind} | {needs:.0f} | {blocks} | {aa or 'none'} | {len(told)} "
                      f"| {np.median([one.blocks for one in told]):.0f} | {figure:.2f} | {between:.2f} "
                      f"| {uncertainty(blocks + AGREED_WEIGHT * aa):.3g} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
