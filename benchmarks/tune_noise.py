"""What a few measurements of each configuration say of the difference between two: how often the interval of their
ratio holds the true one, and how wide it is.

Engines are those of tune.py, with and without regimes; each configuration is ramped many times, and tunings are played
with measurements drawn from these ramps, without putting back. *stated*: each measurement counts with what its run
states, where that is more than the scatter; *scatter*: the product's rule. The truth is the long-run completion rate.

    python benchmarks/tune_noise.py [ENGINES] [FIRST SEED]
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations, product
from math import exp, isinf, log, sqrt

import numpy as np
from engine_population import capacity_rps, random_profile
from tune import Machine, engine_of

from loadramp.analysis.group_sequential import boundary, t_of
from loadramp.simulator.regimes import REGIMES
from loadramp.tune.candidates import Search
from loadramp.tune.noise import ALPHA, LogRatio, VisitNoise, Z, by_flags, levels_of, noise_of
from loadramp.tune.race import NextVisit, RaceRules, next_of, spared, standing
from loadramp.tune.verdict import verdict_of
from loadramp.tune.visit import Visit

CONDITIONS = (("captured", 15.0), ("doubling", 15.0), ("none", 15.0), ("captured", 30.0))
TRIES = ("--max-num-seqs 128", "--max-num-seqs 512")
VISITS, TUNINGS = 8, 20
"""Ramps of each configuration; tunings drawn from them."""
SLOWEST_RPS, FASTEST_RPS = 1.5, 11.0
LOWEST_START_RPS = 0.25
TRUTH_RATIO = 1.02
"""What the truth is good for: smaller differences count as none."""
LARGE_RATIO = 1.5
ASSUMED_SD = RaceRules(Search()).visit_sd
STATED, SCATTER = "stated", "scatter"
Pool = Mapping[str, Sequence[Visit]]


@dataclass(slots=True)
class Counts:
    """Of one condition and rule. Lists hold one entry a tuning or a pair."""

    wrong: list[bool] = field(default_factory=list)
    """After one measurement of each, the better of two configurations is called worse."""
    told: list[bool] = field(default_factory=list)
    """Of two that differ by LARGE_RATIO, the worse one is."""
    pair: list[bool] = field(default_factory=list)
    pair_half: list[float] = field(default_factory=list)
    base: list[bool] = field(default_factory=list)
    base_half: list[float] = field(default_factory=list)

    def cells(self) -> list[str]:
        halves = [f"{100 * (exp(float(np.median(own))) - 1):.0f} %" if own else "-" for own in self._halves]
        return [_share(self.wrong), _share(self.told), _share(self.pair), halves[0], _share(self.base), halves[1]]

    @property
    def _halves(self) -> tuple[list[float], list[float]]:
        return self.pair_half, self.base_half


def _share(own: Sequence[bool]) -> str:
    return f"{np.mean(own):.3f}" if own else "-"


def machine_of(seed: int, regime: str) -> Machine | None:
    """The machine of one seed; None where its capacity is out of range, or a configuration cannot start."""
    rng = np.random.default_rng([seed, 77])
    profile, lengths = random_profile(rng)
    tight, blocks = int(rng.choice([16, 32, 64])), int(rng.integers(1500, 12_000))
    profile = replace(profile, max_num_seqs=tight, token_budget=2048, kv_blocks=blocks, regimes=REGIMES[regime])
    try:
        quick = capacity_rps(engine_of(profile, TRIES[0]), lengths, np.random.default_rng([seed, 6]), 600)
        if not SLOWEST_RPS < quick < FASTEST_RPS:
            return None
        known = {
            flags: capacity_rps(engine_of(profile, flags), lengths, np.random.default_rng([seed, 5]), 3000)
            for flags in ("", *TRIES)
        }
    except (ValueError, AssertionError):
        return None
    return Machine(profile, lengths, seed, known)


def pool_of(machine: Machine, step_s: float) -> Pool:
    """Ramps of each configuration, from about 0.6 of its capacity on, as those after the first begin."""
    return {
        flags: [machine.visit(flags, _start_rps(machine, flags, [k, i]), step_s, 1000 * k + i) for i in range(VISITS)]
        for k, flags in enumerate(machine.known)
    }


def _start_rps(machine: Machine, flags: str, which: list[int]) -> float:
    rng = np.random.default_rng([machine.seed, *which])
    return max(LOWEST_START_RPS, 0.6 * machine.truth(flags) * exp(0.1 * rng.standard_normal()))


def first_looks(pool: Pool, truth: Mapping[str, float], found: Mapping[str, Counts]) -> None:
    """Who is called worse after one measurement of each of two configurations; all pairs of measurements."""
    for better, worse in permutations(truth, 2):
        if truth[better] <= TRUTH_RATIO * truth[worse]:
            continue
        far = truth[better] >= LARGE_RATIO * truth[worse]
        for pair in product(pool[better], pool[worse]):
            if any(one.log(1) is None for one in pair):
                continue
            levels = levels_of(pair, 1, noise_of(pair, 1, ASSUMED_SD))
            noise = stated_noise(pair)
            for name, ends in (
                (STATED, [stated_level(pair, flags, noise) for flags in (better, worse)]),
                (SCATTER, [(levels[flags].mean, levels[flags].half) for flags in (better, worse)]),
            ):
                (high, high_half), (low, low_half) = ends
                found[name].wrong.append(high + high_half < low - low_half)
                if far:
                    found[name].told.append(low + low_half < high - high_half)


def tuning(pool: Pool, rng: np.random.Generator) -> tuple[RaceRules, list[Visit]]:
    """The product's race with measurements of the pool; it ends where they do."""
    rules = RaceRules(Search(tries=TRIES), rounds=1)
    left = {flags: [own[i] for i in rng.permutation(len(own))] for flags, own in pool.items()}
    visits: list[Visit] = []
    while isinstance(action := next_of(rules, visits), NextVisit) and left.get(action.flags):
        visits.append(replace(left[action.flags].pop(), purpose=action.purpose, round=action.round, rival=action.rival))
    return rules, visits


def last_looks(
    rules: RaceRules, visits: Sequence[Visit], truth: Mapping[str, float], found: Mapping[str, Counts]
) -> None:
    """The ratio of the last two, and of the best to the baseline, where it is not one of them."""
    last = standing(rules, visits).confirmation
    if last is None or last.ratio is None or not last.settled:
        return
    one, other = last.pair
    true = log(truth[one] / truth[other])
    rounds = max(1, rules.confirmations - spared(rules, last.pair, visits))
    z = boundary(ALPHA, tuple(k / rounds for k in range(1, rounds + 1))) / sqrt(last.ratio.pairs / 2 / rounds)
    each = last.visits
    noise = stated_noise(visits)
    se = sqrt(sum(_stated_se(visit, noise) ** 2 for visit in each)) / (len(each) / 2)
    _count(found[SCATTER].pair, found[SCATTER].pair_half, last.ratio, true)
    _count(found[STATED].pair, found[STATED].pair_half, LogRatio(last.ratio.mean, t_of(z, noise.df) * se), true)
    verdict = verdict_of(rules, visits)
    best = verdict.best or ""
    if "" in last.pair or verdict.over_baseline is None:
        return
    true = log(truth[best] / truth[""])
    (one_mean, one_half), (base_mean, base_half) = (stated_level(each, best, noise), stated_level(visits, "", noise))
    before = LogRatio(one_mean - base_mean, sqrt(one_half**2 + base_half**2))
    _count(found[SCATTER].base, found[SCATTER].base_half, verdict.over_baseline, true)
    _count(found[STATED].base, found[STATED].base_half, before, true)


def _count(held: list[bool], halves: list[float], ratio: LogRatio, true: float) -> None:
    held.append(ratio.low <= true <= ratio.high)
    halves.append(ratio.half)


def stated_noise(visits: Sequence[Visit]) -> VisitNoise:
    """The scatter, with the assumed one as eight measurements."""
    squares, df = 8 * ASSUMED_SD**2, 8.0
    for own in by_flags(visits).values():
        logs = [value for one in own if (value := one.log(1)) is not None]
        squares += sum((value - np.mean(logs)) ** 2 for value in logs)
        df += max(0, len(logs) - 1)
    return VisitNoise(sqrt(squares / df), df)


def _stated_se(visit: Visit, noise: VisitNoise) -> float:
    return noise.sd if isinf(visit.stated_se) else max(noise.sd, visit.stated_se)


def stated_level(visits: Sequence[Visit], flags: str, noise: VisitNoise) -> tuple[float, float]:
    """Mean of the logarithm, weighted by what the runs state, and the half-width of its interval."""
    known = [
        (value, _stated_se(one, noise)) for one in visits if one.flags == flags and (value := one.log(1)) is not None
    ]
    weights = [se**-2 for _, se in known]
    mean = sum(w * value for w, (value, _) in zip(weights, known, strict=True)) / (sum(weights) or 1.0)
    return mean, t_of(Z, noise.df) * (sum(weights) or 1.0) ** -0.5


def scatter_and_stated(pool: Pool) -> tuple[float, float]:
    """Standard deviation of ln(ceiling) between ramps of a configuration, pooled; median of what the ramps state."""
    logs = [[value for one in own if (value := one.log(1)) is not None] for own in pool.values()]
    squares = sum(float(np.var(own, ddof=1)) for own in logs if len(own) > 1) / max(1, sum(len(o) > 1 for o in logs))
    stated = [one.stated_se for own in pool.values() for one in own if one.value]
    return sqrt(squares), float(np.median(stated)) if stated else float("nan")


@dataclass(slots=True)
class Condition:
    """What was seen under one regime and length of step."""

    counts: dict[str, Counts] = field(default_factory=lambda: {STATED: Counts(), SCATTER: Counts()})
    scatter: list[float] = field(default_factory=list)
    stated: list[float] = field(default_factory=list)

    def add(self, pool: Pool, truth: Mapping[str, float], seed: int) -> None:
        rng = np.random.default_rng([seed, 9])
        scatter, stated = scatter_and_stated(pool)
        self.scatter.append(scatter)
        self.stated.append(stated)
        first_looks(pool, truth, self.counts)
        for _ in range(TUNINGS):
            last_looks(*tuning(pool, rng), truth, self.counts)


HEAD = ("regimes", "steps", "engines", "scatter", "runs state", "rule", "wrong at first", "told at first",
        "last two hold", "half-width", "best / baseline holds", "half-width")  # fmt: skip


def table(seen: Mapping[tuple[str, float], Condition]) -> None:
    """The table of docs/benchmarks.md."""
    print("| " + " | ".join(HEAD) + " |\n|" + "---|" * len(HEAD))
    for (regime, step_s), one in seen.items():
        facts = f"{np.median(one.scatter):.3f} | {np.median(one.stated):.3f}"
        for rule, counts in one.counts.items():
            print(
                f"| {regime} | {step_s:.0f} s | {len(one.scatter)} | {facts} | {rule} | {' | '.join(counts.cells())} |"
            )


def main(engines: int, seed: int) -> None:
    seen = {condition: Condition() for condition in CONDITIONS}
    while len(seen[CONDITIONS[0]].scatter) < engines:
        for (regime, step_s), own in seen.items():
            machine = machine_of(seed, regime)
            if machine is None:
                break
            own.add(pool_of(machine, step_s), machine.known, seed)
        seed += 1
    table(seen)


if __name__ == "__main__":
    main(*(int(given) for given in (*sys.argv[1:], *("12", "0")[len(sys.argv) - 1 :])))
