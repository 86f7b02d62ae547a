"""Do the intervals of a soak hold the truth? Soaks of 300 s near the ceiling, cut from long simulated runs.

    python benchmarks/soaks.py [--soaks 24] [--load 0.85] [--seed 51000]      # three minutes of one core

`kept`: what `analysis.interval_policy` leaves to a soak.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np
from coverage import SCENARIOS
from engine_population import Lengths, capacity_rps
from offline_engine import simulate

from loadramp.analysis import latency
from loadramp.analysis.curve import fold
from loadramp.analysis.interval_policy import SOAK_KEEPS, SOAK_S
from loadramp.analysis.quantiles import quantile
from loadramp.record.table import Table
from loadramp.record.types import Step
from loadramp.simulator.profiles import EngineProfile
from loadramp.workload.arrivals import poisson

STATS = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
LEAD_S = 120.0
Hits = dict[str, list[bool]]


def soaks(name: str, load: float, windows: int, seed: int) -> tuple[int, Hits]:
    """How many of the soaks were quiet, and of these column -> whether each interval holds the truth of all of them."""
    profile, lengths = SCENARIOS[name]
    rate_rps = load * capacity_rps(profile, lengths, np.random.default_rng(1))
    rng = np.random.default_rng([seed, list(SCENARIOS).index(name), round(1000 * load)])
    end_s = LEAD_S + windows * SOAK_S
    due_s = poisson(rate_rps, end_s + 60.0, rng)
    table, samples = simulate(profile, due_s, *lengths.draw(rng, len(due_s)), rng)
    base_s = first_step_ttft_s(profile, lengths, rate_rps / load / 10.0, rng)
    truth = truths(table, (LEAD_S, end_s))
    hits: Hits = defaultdict(list)
    quiet = 0
    for k in range(windows):
        begin_s = LEAD_S + k * SOAK_S
        near = slice(*np.searchsorted(table.due_s, (begin_s - LEAD_S, begin_s + SOAK_S)))
        step = Step(0, "soak", rate_rps=rate_rps, begin_s=begin_s, warmup_s=0.0, measure_s=SOAK_S)
        part = table.select_rows(np.arange(near.start, near.stop))
        row = fold(step, part, samples=samples[int(begin_s) : int(begin_s + SOAK_S)], base_ttft_p50_s=base_s)
        quiet += row.stationary
        for column, true in truth.items():
            low, high = row.statistic(column).low, row.statistic(column).high
            if low is not None and high is not None:
                hits[column].append(bool(low <= true <= high))
    return quiet, hits


def first_step_ttft_s(profile: EngineProfile, lengths: Lengths, rate_rps: float, rng: np.random.Generator) -> float:
    """Median TTFT at a low rate, which the queue signal of a ramp scales with."""
    due_s = poisson(rate_rps, 120.0, rng)
    return float(np.nanmedian(simulate(profile, due_s, *lengths.draw(rng, len(due_s)), rng)[0].ttft_s))


def truths(table: Table, window_s: tuple[float, float]) -> dict[str, float]:
    pooled = latency.families(latency.window_view(table, window_s))
    return {
        f"{family}_{stat}": float(pooled[family].values.mean()) if q is None else quantile(pooled[family].ordered, q)
        for family in ("itl", "ttft", "tpot", "e2e")
        for stat, q in STATS.items()
    }


def shown(found: list[bool]) -> str:
    return f"{np.mean(found):.3f} ({len(found)})" if found else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--soaks", type=int, default=24, help="of each engine")
    parser.add_argument("--load", type=float, default=0.85, help="share of the capacity")
    parser.add_argument("--seed", type=int, default=51_000)
    options = parser.parse_args()
    quiet = {}
    hits: dict[str, Hits] = {}
    for name in SCENARIOS:
        quiet[name], hits[name] = soaks(name, options.load, options.soaks, options.seed)
    print(f"quiet: {quiet}\n\n| column | all | {' | '.join(SCENARIOS)} | |\n{'|---' * (len(SCENARIOS) + 3)}|")
    for column in [f"{family}_{stat}" for family in ("itl", "ttft", "tpot", "e2e") for stat in STATS]:
        each = [hits[name].get(column, []) for name in SCENARIOS]
        every = [hit for own in each for hit in own]
        words = " | ".join(shown(found) for found in (every, *each))
        print(f"| {column} | {words} | {'kept' if column in SOAK_KEEPS else ''} |")


if __name__ == "__main__":
    main()
