"""Do the intervals of a soak hold the truth? Soaks of 300 s near the ceiling, cut from long simulated runs.

``python -m pytest -m slow -s tests/test_soaks.py`` prints the table of docs/benchmarks.md; five minutes of one core.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from loadramp.judge import latency
from loadramp.judge.caution import NEAR_TTFT_RATIOS, SOAK_KEEPS, SOAK_S
from loadramp.judge.curve import fold
from loadramp.judge.quantiles import quantile
from loadramp.plan.arrivals import poisson
from loadramp.record.table import Table
from loadramp.record.types import Step
from loadramp.sim.engine.offline import capacity_rps, simulate
from loadramp.sim.profiles import Lengths, Profile, Stall

COMPUTE = Profile(max_num_seqs=256, token_budget=2048)
STALLED = Profile(max_num_seqs=256, token_budget=2048, stalls=(Stall(20.0, 0.15),))
ENGINES = {
    "compute": (COMPUTE, Lengths(512, 0.6, 200, 0.6)),
    "sequences": (Profile(max_num_seqs=32), Lengths(300, 0.6, 200, 0.6)),
    "kv": (Profile(kv_blocks=2500, max_num_seqs=256), Lengths(600, 0.6, 250, 0.6, 4000, 2000)),
    "prefill": (Profile(), Lengths(2000, 0.7, 100, 0.6)),
    "h100": (Profile(), Lengths(512, 0.6, 200, 0.6)),
    "hiccups": (STALLED, Lengths(512, 0.6, 200, 0.6)),
}
STATS = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
LEAD_S = 120.0
Hits = dict[str, list[bool]]


def soaks(name: str, load: float, windows: int, seed: int) -> tuple[int, Hits]:
    """How many of the soaks were quiet, and of these column -> whether each interval holds the truth of all of them."""
    profile, lengths = ENGINES[name]
    rate_rps = load * capacity_rps(profile, lengths, np.random.default_rng(1))
    rng = np.random.default_rng([seed, list(ENGINES).index(name), round(1000 * load)])
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
        quiet += row["stationary"]
        for column, true in truth.items():
            low, high = row[f"{column}_low_s"], row[f"{column}_high_s"]
            if low is not None and high is not None:
                hits[column].append(bool(low <= true <= high))
    return quiet, hits


def first_step_ttft_s(profile: Profile, lengths: Lengths, rate_rps: float, rng: np.random.Generator) -> float:
    """Median TTFT at a low rate, which the queue signal of a ramp scales with."""
    due_s = poisson(rate_rps, 120.0, rng)
    return float(np.nanmedian(simulate(profile, due_s, *lengths.draw(rng, len(due_s)), rng)[0].ttft_s))


def truths(table: Table, window_s: tuple[float, float]) -> dict[str, float]:
    pooled = latency.families(latency.look(table, window_s))
    return {
        f"{family}_{stat}": float(pooled[family].values.mean()) if q is None else quantile(pooled[family].ordered, q)
        for family in ("itl", "ttft", "tpot", "e2e")
        for stat, q in STATS.items()
    }


def shown(found: list[bool]) -> str:
    return f"{np.mean(found):.3f} ({len(found)})" if found else "-"


@pytest.mark.slow
def test_what_a_soak_keeps_holds_the_truth_in_92_of_100_quiet_soaks() -> None:
    """24 soaks of each engine at 0.85 of the capacity."""
    quiet = {}
    hits: dict[str, dict[str, list[bool]]] = {}
    for name in ENGINES:
        quiet[name], hits[name] = soaks(name, 0.85, 24, 51_000)
    print(f"\nquiet: {quiet}\n{'column':10s}{'all':>14s}" + "".join(f"{name:>14s}" for name in ENGINES))
    for column in [f"{family}_{stat}" for family in ("itl", "ttft", "tpot", "e2e") for stat in STATS]:
        each = [hits[name].get(column, []) for name in ENGINES]
        every = [hit for own in each for hit in own]
        print(f"{column:10s}" + "".join(f"{shown(found):>14s}" for found in (every, *each)))
        if column in SOAK_KEEPS:
            assert len(every) >= 120, column
            assert np.mean(every) >= 0.92, column


def test_what_a_soak_keeps_is_none_of_the_tails_that_rare_queues_make() -> None:
    assert not {f"ttft_{tail}" for tail in NEAR_TTFT_RATIOS} & SOAK_KEEPS
    assert {column.removeprefix("sent_") for column in SOAK_KEEPS} <= {
        f"{family}_{stat}" for family in ("itl", "gap", "ttft", "tpot") for stat in STATS
    }
