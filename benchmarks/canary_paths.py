"""How often do equal engines fail each other that are slow each at its own time? Hundreds of canaries, by paths alone.

    python benchmarks/canary_paths.py [--pairs 400] [--seed 10] [--processes 2]

``canary_regimes.py`` simulates every token of some engines, whose pairs share engines. Here each pair has two of its
own, and a block of 60 s is told from the path of the step time: its median, mean, 99 % quantile and its fast state,
with a little noise. The verdict is the product's, looks and all; ``--differences``: by the spread of the differences
alone, whatever either arm shows.
"""

import argparse
from collections import Counter
from multiprocessing import Pool

import numpy as np

from loadramp.analysis.proportions import Proportion
from loadramp.comparison import noninferior
from loadramp.comparison.blocks import Block
from loadramp.comparison.info import Round
from loadramp.comparison.judge import asked_of, weigh
from loadramp.comparison.pairs import Pair
from loadramp.comparison.table import Canary
from loadramp.simulator.regimes import REGIMES, RegimePath

CANARY = Canary(rates=[8.0])
ASKED = asked_of(CANARY)
BLOCKS, BLOCK_S, GRID_S = 20, 60.0, 0.5
FAST_S, REQUESTS = 0.015, 480
SLOWER = 1.1
KINDS = ("captured", "doubling", "neighbour", "slow_drift")
Job = tuple[str, float, int, bool]
"""Regimes, how many times as slow the candidate is, seed, whether by differences alone."""


def blocks(kind: str, slower: float, seed: int) -> list[Block]:
    """What each block of one engine shows."""
    rng = np.random.default_rng([seed, 1])
    path = RegimePath(REGIMES[kind], np.random.default_rng([seed, 2]))
    at_s = np.arange(0.0, BLOCKS * BLOCK_S, GRID_S).tolist()
    steps = FAST_S * slower * np.array([path.factor(t_s) for t_s in at_s]).reshape(BLOCKS, -1)

    def near(value: float, sd: float) -> float:
        return float(value * np.exp(sd * rng.standard_normal()))

    return [
        Block(
            {
                "itl_p50": near(np.median(one), 0.003),
                "itl_p99": near(1.5 * np.quantile(one, 0.99), 0.02),
                "tpot_mean": near(one.mean(), 0.003),
                "ttft_p50": near(3.0 * np.median(one), 0.02),
                "output_tokens_per_s": near(960.0, 0.002),
                "step_time": near(np.median(one[one <= 1.28 * np.quantile(one, 0.1)]), 0.002),
            },
            failures=Proportion(0, REQUESTS),
        )
        for one in steps
    ]


def verdict(job: Job) -> str:
    """The verdict of one canary, look by look."""
    kind, slower, seed, differences = job
    if differences:
        noninferior.arms_independent = lambda base, candidate: False
    arms = blocks(kind, 1.0, 2 * seed), blocks(kind, slower, 2 * seed + 1)
    pairs = [Pair(Round(k, 8.0, k, k), *both) for k, both in enumerate(zip(*arms, strict=True))]
    for look in CANARY.look_at:
        decision = weigh(ASKED, pairs[:look], final=look == CANARY.blocks)[2]
        if decision.verdict != "inconclusive":
            break
    return decision.verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("pairs", 400), ("seed", 10), ("processes", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", default=",".join(KINDS), help="kinds of regimes, with commas between")
    parser.add_argument("--differences", action="store_true")
    asked = parser.parse_args()
    print("| regimes | candidate | pairs | pass | fail | inconclusive |\n|---|---|---|---|---|---|")
    with Pool(asked.processes) as pool:
        for kind in asked.only.split(","):
            for words, slower in (("equal", 1.0), ("10 % slower", SLOWER)):
                jobs = [(kind, slower, 1000 * asked.seed + k, asked.differences) for k in range(asked.pairs)]
                told = Counter(pool.map(verdict, jobs, chunksize=10))
                shares = " | ".join(f"{told[one] / asked.pairs:.3f}" for one in ("pass", "fail", "inconclusive"))
                print(f"| {kind} | {words} | {asked.pairs} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
