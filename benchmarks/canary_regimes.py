"""Does the canary's verdict hold between engines that are slow at times, each at its own? Simulated pairs.

    python benchmarks/canary_regimes.py [--engines 10] [--seed 900] [--processes 2] [--only captured,neighbour]

Engines like a real one (``h200-8b-regimes``) with each kind of regimes get the same requests at the same instants,
8 req/s in 20 blocks of 60 s; each pair of engines is one comparison by the product's rules. The candidate is
equal, or 10 % slower in every step. ``plain``: the same without what takes care of slow
stretches (blocks that follow one another alike; the step time outside of slow stretches). ``unpaired``: as many blocks
of each, taken as independent.
"""

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from multiprocessing import Pool

import numpy as np
from numpy.typing import NDArray
from offline_engine import simulate

from loadramp.analysis.proportions import Proportion
from loadramp.comparison import block_spread
from loadramp.comparison.block_spread import Missing
from loadramp.comparison.blocks import Block, measure
from loadramp.comparison.decide import Decision
from loadramp.comparison.info import Round
from loadramp.comparison.judge import asked_of, weigh
from loadramp.comparison.noninferior import Effect
from loadramp.comparison.pairs import Pair
from loadramp.comparison.table import PRIMARY, Canary
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.regimes import REGIMES

ENGINE = PROFILES["h200-8b-regimes"]
RATE_RPS, BLOCK_S, WARMUP_S, TAIL_S, BLOCKS = 8.0, 60.0, 10.0, 15.0, 20
SLOWER = 1.1
ARRIVALS = 2
METRICS = (*PRIMARY, "step_time")
COSTS = ("host_s", "t0_s", "decode_s", "context_s", "prefill_s")
CANARY = Canary(rates=[RATE_RPS])
ASKED = asked_of(CANARY)
UNKNOWN = Missing(10**9, 10**9, 10**9)
Floats = NDArray[np.float64]
Job = tuple[str, bool, int, int, int]
"""Regimes, whether slower, arrivals, engine, seed."""


def blocks(job: Job) -> Floats:
    """METRICS of every block of one engine, shape (BLOCKS, len(METRICS))."""
    name, slow, arrivals, engine, seed = job
    profile = replace(ENGINE, regimes=REGIMES[name])
    if slow:
        profile = replace(profile, **{cost: SLOWER * getattr(ENGINE, cost) for cost in COSTS})
    end_s = WARMUP_S + BLOCKS * BLOCK_S + TAIL_S
    rng = np.random.default_rng([seed, arrivals])
    due_s = np.sort(rng.uniform(0.0, end_s, rng.poisson(RATE_RPS * end_s)))
    prompt, output = rng.integers(256, 769, len(due_s)), rng.integers(64, 193, len(due_s))
    own = np.random.default_rng([seed + 1, arrivals, engine, slow])
    table, _ = simulate(profile, due_s, prompt, output, own, until_s=end_s, sample_period_s=0.0)
    out = []
    for k in range(BLOCKS):
        begin_s = WARMUP_S + k * BLOCK_S
        near = table.select((table.done_s >= begin_s) & (table.due_s < begin_s + BLOCK_S))
        values = measure(near, (begin_s, begin_s + BLOCK_S), shift=False).values
        out.append([values[metric] for metric in METRICS])
    return np.array(out, dtype=np.float64)


def paired(base: Floats, candidate: Floats, steady: bool) -> list[Pair]:
    names = METRICS if steady else PRIMARY
    share = Proportion(0, round(RATE_RPS * BLOCK_S))
    both = [[Block(dict(zip(names, row, strict=False)), failures=share) for row in own] for own in (base, candidate)]
    return [Pair(Round(k, RATE_RPS, k, k), b, c) for k, (b, c) in enumerate(zip(*both, strict=True))]


def verdict(pairs: Sequence[Pair]) -> tuple[Decision, int, list[Effect]]:
    """The decision look by look, after how many blocks it came, and the effects at the last block."""
    for look in CANARY.look_at:
        effects, _, decision = weigh(ASKED, pairs[:look], final=look == CANARY.blocks)
        if decision.verdict != "inconclusive":
            break
    return decision, look, effects


def plainly(pairs: Sequence[Pair]) -> str:
    """The verdict of blocks that are taken as independent."""
    kept = block_spread.variance_inflation
    block_spread.variance_inflation = lambda parts: 1.0
    try:
        return verdict(pairs)[0].verdict
    finally:
        block_spread.variance_inflation = kept


def line(name: str, slow: bool, own: dict[tuple[bool, int, int], Floats], engines: int) -> str:
    """All pairs of different engines under the same arrivals."""
    verdicts: Counter[str] = Counter()
    plain: Counter[str] = Counter()
    looks, asked, means, widths = [], [], [], []
    for arrivals, i, j in product(range(ARRIVALS), range(engines), range(engines)):
        if i == j or (arrivals, i) not in {(a, e) for s, a, e in own if not s}:
            continue
        base, candidate = own[False, arrivals, i], own[slow, arrivals, j]
        pairs = paired(base, candidate, steady=True)
        decision, look, _ = verdict(pairs)
        verdicts[decision.verdict] += 1
        plain[plainly(paired(base, candidate, steady=False))] += 1
        looks.append(look)
        d = np.log(candidate[:, :-1] / base[:, :-1])
        means.append(d.mean(axis=0))
        logs = np.log(base[:, 1]), np.log(candidate[:, 1])
        widths.append(np.sqrt(sum(np.var(one, ddof=1) for one in logs)) / d[:, 1].std(ddof=1))
        if decision.verdict == "inconclusive":
            more = decision.more or UNKNOWN
            asked.append([BLOCKS + one for one in (more.blocks, more.low, more.high)])
    n = sum(verdicts.values())
    sd = np.std(means, axis=0) * np.sqrt(BLOCKS)
    true = takes(own, engines) if asked and not slow else np.nan
    near = np.mean([true / 1.5 <= one[0] <= true * 1.5 for one in asked]) if asked else np.nan
    held = np.mean([one[1] / 1.5 <= true <= one[2] * 1.5 for one in asked]) if asked else np.nan
    share = " | ".join(f"{verdicts[one] / n:.3f}" for one in ("pass", "fail", "inconclusive"))
    middle, low, high = np.median(asked, axis=0) if asked else [np.nan] * 3
    told = "| | |"
    if asked and not slow:
        told = f"{true:.0f} | {middle:.0f} ({low:.0f}-{high:.0f}) | {near:.2f} | {held:.2f}"
    words = "10 % slower" if slow else "equal"
    ratio = np.exp(np.mean(means, axis=0)[1])
    return (
        f"| {name} | {words} | {n} | {share} | {plain['fail'] / n:.3f} | {np.mean(looks):.1f} | {ratio:.3f} "
        f"| {sd[1]:.3f} | {np.median(widths):.2f} | {told} |"
    )


def takes(own: dict[tuple[bool, int, int], Floats], engines: int, tries: int = 60) -> float:
    """Blocks after which equal versions pass in every primary measure in 80 % of the tries, by long comparisons put
    together from runs of several engines."""
    rng = np.random.default_rng(1)
    blocks = 10.0
    while blocks < 400.0:
        n = round(blocks)
        passed = 0
        for _ in range(tries):
            arms = []
            for _ in range(2):
                picked = zip(rng.integers(ARRIVALS, size=n), rng.integers(engines, size=n // BLOCKS + 2), strict=False)
                runs = [own[False, int(a), int(e)] for a, e in picked]
                begin = int(rng.integers(BLOCKS))
                arms.append(np.concatenate(runs)[begin : begin + n])
            effects = weigh(replace(ASKED, looks=()), paired(arms[0], arms[1], steady=False), final=True)[0]
            passed += all(one.status == "within" for one in effects if one.primary)
        if passed >= 0.8 * tries:
            return n
        blocks *= 1.15
    return np.inf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("engines", 10), ("seed", 900), ("processes", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--only", default="", help="kinds of regimes, with commas between")
    asked = parser.parse_args()
    begun_s = time.monotonic()
    names = asked.only.split(",") if asked.only else ["none", "captured", "doubling", "slow_drift", "neighbour"]
    print("| regimes | candidate | pairs | pass | fail | inconclusive | plain fails | blocks | p50 ITL | sd | unpaired "
          "| needs | asks for | figure | range |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    with Pool(asked.processes) as pool:
        for name in names:
            jobs = [(name, slow, a, e, asked.seed)
                    for slow in (False, True) for a in range(ARRIVALS) for e in range(asked.engines)]  # fmt: skip
            found = pool.map(blocks, jobs, chunksize=1)
            own = {job[1:4]: values for job, values in zip(jobs, found, strict=True)}
            for slow in (False, True):
                print(line(name, slow, own, asked.engines), flush=True)
    print(
        "\nblocks: mean number until the verdict.  p50 ITL: mean ratio.  sd: of ln(ratio of p50 ITL) of one block, as"
        "\nthe scatter of the means of 20 has it.  unpaired: its sd without pairs over that with.  needs, asks for:"
        "\nblocks after which equal versions pass (80 %), by long comparisons put together from runs, and as"
        "\ninconclusive verdicts say (medians: middle, ends of the range).  figure, range: share of these of which the"
        "\nmiddle, the range is right within a factor of 1.5."
    )
    print(f"{time.monotonic() - begun_s:.0f} s")


if __name__ == "__main__":
    main()
