"""What a workload's shape does to the numbers of one engine: reuse of prefixes, and burstiness of arrivals.

    python benchmarks/workloads.py [--measure 240] [--seed 1]

The engine (h100-8b with 64 sequences) is offered prompts of 1500 tokens and answers of 60 (both lognormal, cv 0.5) up a
ladder of rates. held: completions a second at the highest rate, which is far too much for it: its capacity. The ceiling
and the SLO capacity (p95 TTFT within 1 s) are the product's own estimates from the same steps.
"""

import argparse
import platform
from dataclasses import replace

import numpy as np
from offline_engine import Offline

from loadramp.analysis.curve import fold
from loadramp.analysis.itl_knee import completed, estimate
from loadramp.record.row import Row
from loadramp.record.types import Step
from loadramp.scenario.scenario import Slo
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.workload.arrivals import gamma

PROFILE = replace(PROFILES["h100-8b"], max_num_seqs=64)
PROMPT, OUTPUT, CV = 1500, 60, 0.5
GROUPS = 8
LIMIT_S, QUANTILE = 1.0, 0.95
SHARES = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.5)
"""Rates of the ladder, as shares of the engine's capacity without reuse (the last one of its own)."""


def lengths(rng: np.random.Generator, median: int, n: int) -> np.ndarray:
    drawn = rng.lognormal(np.log(median), np.sqrt(np.log1p(CV**2)), n)
    return np.clip(np.rint(drawn), 16, 6000).astype(np.int64)


class Load:
    """Requests of one workload, offered to one engine step by step."""

    def __init__(self, profile: EngineProfile, reuse: float, cv: float, seed: int) -> None:
        self.engine = Offline(profile, np.random.default_rng([seed, 9]))
        self.rng = np.random.default_rng([seed, 1])
        self.reuse, self.cv, self.block = reuse, cv, profile.block_tokens
        self.now_s = 0.0
        self.unique = 0

    def offer(self, rate_rps: float, seconds: float, step: int) -> None:
        due_s = gamma(rate_rps, seconds, self.rng, cv=self.cv)
        prompt, output = lengths(self.rng, PROMPT, len(due_s)), lengths(self.rng, OUTPUT, len(due_s))
        self.engine.offer(self.now_s + due_s, prompt, output, step=step, blocks=[self.blocks(int(n)) for n in prompt])
        self.now_s += seconds
        self.engine.run(self.now_s)

    def blocks(self, tokens: int) -> list[tuple[int, int]]:
        """Block names: those of the group's text up to ``reuse`` of the prompt, then names that nobody else has."""
        full, shared = tokens // self.block, round(self.reuse * tokens) // self.block
        group = int(self.rng.integers(GROUPS))
        self.unique += 1
        return [(-1 - group, i) if i < shared else (self.unique, i) for i in range(full)]

    def measure(self, rate_rps: float, seconds: float, before: list[Row]) -> Row:
        step = Step(len(before), rate_rps=rate_rps, begin_s=self.now_s, warmup_s=20.0, measure_s=seconds)
        self.offer(rate_rps, step.end_s - step.begin_s, step.index)
        table = self.engine.table()
        row = fold(
            step,
            table.select(table.done_s >= step.begin_s),
            samples=[s for s in self.engine.samples if s.t_s >= step.begin_s],
            slo=Slo(ttft_s=LIMIT_S, quantile=QUANTILE),
            base_ttft_p50_s=before[0].of("ttft").p50.value if before else None,
            now_s=self.now_s,
        )
        return replace(row, overloaded=False)


def held_rps(reuse: float, seed: int) -> float:
    """Completions a second while a queue never empties."""
    load = Load(PROFILE, reuse, 1.0, seed)
    load.offer(200.0, 120.0, 0)
    table = load.engine.table()
    done_s = table.stream_end_s[table.ok]
    return float(np.count_nonzero((done_s >= 40.0) & (done_s < 120.0))) / 80.0


def line(name: str, reuse: float, cv: float, measure_s: float, seed: int) -> str:
    capacity = held_rps(reuse, seed)
    load = Load(PROFILE, reuse, cv, seed)
    load.offer(SHARES[0] * capacity, 60.0, -1)
    rows: list[Row] = []
    for share in SHARES:
        rows.append(load.measure(share * capacity, measure_s, rows))
    rows = completed(rows)
    found = estimate(rows, slo=Slo(ttft_s=LIMIT_S, quantile=QUANTILE))
    ceiling, slo = found["ceiling"], found["slo_capacity"]
    hits = [row.prefix_hit_ratio for row in rows if row.prefix_hit_ratio is not None]
    p95_s = {share: row.statistic("slo_ttft").value for share, row in zip(SHARES, rows, strict=True)}
    return (
        f"{name:22s} {np.mean(hits):6.2f} {capacity:8.1f} {ceiling.rate_rps or np.nan:8.1f} "
        f"{slo.rate_rps or np.nan:8.1f} {(slo.rate_rps or np.nan) / capacity:8.2f} "
        f"{p95_s[0.5] or np.nan:9.3f} {p95_s[0.8] or np.nan:9.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=float, default=240.0, help="measured seconds of each step")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, seed {asked.seed}, {asked.measure:g} s a step")
    print(
        f"{'workload':22s} {'hits':>6s} {'held':>8s} {'ceiling':>8s} {'slo':>8s} {'slo/held':>8s} "
        f"{'p95 @.5':>9s} {'p95 @.8':>9s}"
    )
    for reuse in (0.0, 0.25, 0.5, 0.75, 0.9):
        print(line(f"reuse {reuse:.0%}, Poisson", reuse, 1.0, asked.measure, asked.seed))
    for cv in (2.0, 3.0, 5.0):
        print(line(f"reuse 0%, cv {cv:g}", 0.0, cv, asked.measure, asked.seed))
    print("hits: prompt tokens found in the cache; rates in req/s; p95: of TTFT in seconds at that share of held.")


if __name__ == "__main__":
    main()
