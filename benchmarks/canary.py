"""Does the canary's verdict keep its promises? Verdicts and minutes over simulated pairs, beside what others do.

    python benchmarks/canary.py [--equal 200] [--other 60] [--seed 30000] [--processes 2]

Two engines get the same requests at the same instants, 16 req/s in blocks of 60 s, while the speed of both drifts with
their environment (AR(1), sd 4 %, 300 s); in some cases each drifts by itself, too. The verdict is the product's, looks
and all. Beside it, on runs of five minutes with requests of their own: candidate measured after the baseline, with
Student's t over minutes; the p99 ITL of both compared as two numbers; Mann-Whitney on all inter-token latencies.
"""

import argparse
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import Pool

import numpy as np
from engine_population import Lengths
from offline_engine import Offline
from scipy import stats

from loadramp.comparison.blocks import measure
from loadramp.comparison.info import Round
from loadramp.comparison.judge import asked_of, weigh
from loadramp.comparison.pairs import Pair
from loadramp.comparison.table import Canary
from loadramp.record.table import Table
from loadramp.simulator.profiles import EngineProfile

ENGINE = EngineProfile(name="compute", max_num_seqs=256, token_budget=2048, kv_blocks=27_000)
LENGTHS = Lengths(400, 0.6, 150, 0.6, prompt_max=2500, output_max=1200)
RATE_RPS, BLOCK_S, WARMUP_S, TAIL_S = 16.0, 60.0, 30.0, 20.0
DRIFT_SD, DRIFT_S, DRIFT_STEP_S = 0.04, 300.0, 5.0
OTHERS_S, GAP_S = 300.0, 120.0
"""What is beside it: length of a run, and the time between the two."""
WAYS = ("point", "after", "ranks")
MEANS = ("ratio", "ttft_ratio", "sd", "minutes")
CANARY = Canary(rates=[RATE_RPS])
ASKED = asked_of(CANARY)


@dataclass(frozen=True)
class Case:
    """How the candidate differs. ``slower``: every step takes that many times as long."""

    words: str
    slower: float = 1.0
    frontend_s: float = 0.0
    error_ratio: float = 0.0
    kv_blocks: int = ENGINE.kv_blocks
    own_drift: float = 0.0

    @property
    def equal(self) -> bool:
        return (
            self.slower == 1.0 and not self.frontend_s and not self.error_ratio and self.kv_blocks == ENGINE.kv_blocks
        )


CASES = (
    Case("identical"),
    Case("identical, each drifts by 1 % itself", own_drift=0.01),
    Case("engine 5 % slower", 1.05),
    Case("p99 ITL 10 % longer", 1.0628),
    Case("engine 10 % slower", 1.10),
    Case("engine 20 % slower", 1.20),
    Case("TTFT only: 5 ms in front", frontend_s=0.005),
    Case("0.3 % of the requests fail", error_ratio=0.003),
    Case("KV cache a 25th", kv_blocks=1080),
)


@dataclass
class Result:
    """One pair: the verdict, how long it took, and what the other ways say."""

    verdict: str
    blocks: int
    minutes: float
    ratio: float
    ttft_ratio: float
    sd: float
    others: dict[str, str] = field(default_factory=dict)


def drift(rng: np.random.Generator, seconds: float, sd: float) -> np.ndarray:
    """An AR(1) path of ln(speed), one value every DRIFT_STEP_S."""
    n = int(seconds / DRIFT_STEP_S) + 2
    keep = np.exp(-DRIFT_STEP_S / DRIFT_S)
    path = np.empty(n)
    path[0] = sd * rng.standard_normal()
    for i in range(1, n):
        path[i] = keep * path[i - 1] + np.sqrt(1.0 - keep**2) * sd * rng.standard_normal()
    return path


def engine(case: Case | None, path: np.ndarray, rng: np.random.Generator) -> Offline:
    """An engine in its environment; ``case`` None is the baseline."""
    slower = case.slower if case else 1.0
    speeds = tuple((i * DRIFT_STEP_S, float(np.exp(x)) / slower) for i, x in enumerate(path))
    profile = replace(ENGINE, speeds=speeds)
    if case:
        profile = replace(profile, frontend_s=case.frontend_s, kv_blocks=case.kv_blocks,
                          max_model_len=min(ENGINE.max_model_len, case.kv_blocks * 16))  # fmt: skip
    return Offline(profile, rng, sample_period_s=0.0)


def failing(table: Table, ratio: float, rng: np.random.Generator) -> Table:
    """The table with that share of its requests failed, always the same ones."""
    if not ratio:
        return table
    status, error = table.status.copy(), table.error.copy()
    wrong = np.random.default_rng(rng.integers(1 << 62)).random(len(table)) < ratio
    status[wrong], error[wrong] = "error", "http_5xx"
    return replace(table, status=status, error=error)


def duel(case: Case, seed: int, with_others: bool = True) -> Result:
    """One mirrored comparison by the product's rules, and the other ways on runs of their own."""
    chance = [np.random.default_rng([seed, k]) for k in range(8)]
    longest_s = WARMUP_S + CANARY.blocks * BLOCK_S + TAIL_S
    shared = drift(chance[0], longest_s, DRIFT_SD)
    paths = [shared + drift(chance[1 + k], longest_s, case.own_drift) for k in (0, 1)]
    due_s = np.sort(chance[3].uniform(0.0, longest_s, chance[3].poisson(RATE_RPS * longest_s)))
    lengths = LENGTHS.draw(chance[4], len(due_s))
    arms = [engine(None, paths[0], chance[5]), engine(case, paths[1], chance[6])]
    for arm in arms:
        arm.offer(due_s, *lengths)
    wrong = int(chance[7].integers(1 << 62))
    pairs: list[Pair] = []
    decision = None
    for look in CANARY.look_at:
        until_s = WARMUP_S + look * BLOCK_S + TAIL_S
        tables = []
        for arm, ratio in zip(arms, (0.0, case.error_ratio), strict=True):
            arm.run(until_s)
            tables.append(failing(arm.table(), ratio, np.random.default_rng(wrong)))
        for number in range(len(pairs), look):
            window_s = (WARMUP_S + number * BLOCK_S, WARMUP_S + (number + 1) * BLOCK_S)
            blocks = [measure(_near(table, window_s), window_s, shift=False) for table in tables]
            pairs.append(Pair(Round(number, RATE_RPS, number, number), *blocks))
        effects, _, decision = weigh(ASKED, pairs, final=look == CANARY.blocks)
        if decision.verdict != "inconclusive":
            break
    assert decision is not None
    by_name = {one.metric: one for one in effects}
    return Result(
        decision.verdict,
        len(pairs),
        (WARMUP_S + len(pairs) * BLOCK_S + TAIL_S) / 60.0,
        by_name["itl_p99"].ratio() or np.nan,
        by_name["ttft_p50"].ratio() or np.nan,
        by_name["itl_p99"].sd or np.nan,
        others(case, seed) if with_others else {},
    )


def _near(table: Table, window_s: tuple[float, float]) -> Table:
    return table.select((table.done_s >= window_s[0]) & (table.due_s < window_s[1]))


def others(case: Case, seed: int) -> dict[str, str]:
    """``worse`` or ``fine`` by each of the other ways, on five minutes of each version, one after the other."""
    chance = [np.random.default_rng([seed, 50 + k]) for k in range(6)]
    path = drift(chance[0], 2 * (OTHERS_S + WARMUP_S) + GAP_S, DRIFT_SD)
    skip = int((OTHERS_S + WARMUP_S + GAP_S) / DRIFT_STEP_S)
    itl, minutes = [], []
    for k, (which, part) in enumerate(((None, path), (case, path[skip:]))):
        own = chance[1 + k]
        due_s = np.sort(own.uniform(0.0, WARMUP_S + OTHERS_S, own.poisson(RATE_RPS * (WARMUP_S + OTHERS_S))))
        arm = engine(which, part, chance[3 + k])
        arm.offer(due_s, *LENGTHS.draw(own, len(due_s)))
        arm.run(WARMUP_S + OTHERS_S)
        gaps = arm.table().gaps((WARMUP_S, WARMUP_S + OTHERS_S))
        itl.append(gaps.gap_s)
        block = ((gaps.end_s - WARMUP_S) / BLOCK_S).astype(int)
        minutes.append([float(np.quantile(gaps.gap_s[block == b], 0.99)) for b in range(int(OTHERS_S / BLOCK_S))])
    p99 = [float(np.quantile(values, 0.99)) for values in itl]
    after = stats.ttest_ind(np.log(minutes[1]), np.log(minutes[0]), equal_var=False, alternative="greater").pvalue
    ranks = stats.mannwhitneyu(itl[1], itl[0], alternative="greater").pvalue
    return {
        "point": "worse" if p99[1] > 1.1 * p99[0] else "fine",
        "after": "worse" if after < 0.025 else "fine",
        "ranks": "worse" if ranks < 0.025 else "fine",
    }


def line(case: Case, own: Sequence[Result]) -> str:
    n = len(own)

    def share(verdict: str) -> float:
        return sum(one.verdict == verdict for one in own) / n

    def worse(way: str) -> float:
        told = [one.others[way] for one in own if one.others]
        return told.count("worse") / len(told)

    mean = {name: float(np.mean([getattr(one, name) for one in own])) for name in MEANS}
    verdicts = " ".join(f"{share(verdict):6.3f}" for verdict in ("pass", "fail", "inconclusive"))
    beside = " ".join(f"{worse(way):6.2f}" for way in WAYS)
    return (
        f"{case.words:38s} {n:4d} {mean['ratio']:6.3f} {mean['ttft_ratio']:6.3f}   {verdicts} {mean['minutes']:6.1f} "
        f"{mean['sd']:6.3f}   {beside}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--equal", type=int, default=200, help="pairs of equal arms")
    parser.add_argument("--other", type=int, default=40, help="pairs of every other case")
    parser.add_argument("--beside", type=int, default=40, help="pairs of each case on which the other ways are tried")
    parser.add_argument("--seed", type=int, default=30_000)
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    begun_s = time.monotonic()
    print(f"{platform.machine()}, Python {platform.python_version()}, seed {asked.seed}")
    heads = " ".join(f"{head:>6s}" for head in ("pass", "fail", "incon.", "min", "sd"))
    print(f"{'candidate':38s} {'n':>4s} p99ITL TTFT50   {heads}   {' '.join(f'{way:>6s}' for way in WAYS)}")
    with Pool(asked.processes) as pool:
        for case in CASES:
            n = asked.equal if case.equal else asked.other
            jobs = [(case, asked.seed + i, i < asked.beside) for i in range(n)]
            print(line(case, pool.starmap(duel, jobs, chunksize=1)), flush=True)
    print(
        "p99ITL, TTFT50: mean ratio candidate / baseline.  min: minutes until the verdict.  sd: of ln(p99 ITL ratio)\n"
        "from block to block.  point, after, ranks: share called worse by p99 ITL above 1.1 times, by Student's t\n"
        "over minutes measured one version after the other, by Mann-Whitney on tokens; five minutes of each."
    )
    print(f"{(time.monotonic() - begun_s) / 60:.0f} minutes")


if __name__ == "__main__":
    main()
