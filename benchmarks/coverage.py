"""Do the printed 95 % intervals hold the truth? Windows of long simulated runs, from low load to the ceiling.

    python benchmarks/coverage.py [--windows 60] [--measure 60] [--seed 30000] [--regimes none]

The truth of each figure is that of all windows pooled. Above 0.75 of the capacity (p90 and p95 of TTFT: 0.6, its mean
and p99: 0.5) no interval is printed, as in a ramp that has found its ceiling; the capacity is given here.

With ``--regimes`` each window is a run of one step: what it prints is of the long run only where it met several slow
stretches, and only such windows are counted. The truth is that of 60 windows at least. regime_steps.py has whole ramps.
"""

import argparse
import platform
from collections import defaultdict
from dataclasses import replace
from multiprocessing import Pool

import numpy as np
from engine_population import Lengths, capacity_rps
from numpy.typing import NDArray
from offline_engine import simulate
from scipy.special import betaincinv

from loadramp.analysis import latency, long_run, regimes
from loadramp.analysis.curve import fold
from loadramp.analysis.interval_policy import hold_back
from loadramp.analysis.quantiles import pool, quantile
from loadramp.record.row import Row
from loadramp.record.table import Table
from loadramp.record.types import Estimate, Step
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.regimes import REGIMES, Stall
from loadramp.workload.arrivals import poisson

SCENARIOS = {
    "compute": (EngineProfile(max_num_seqs=256, token_budget=2048), Lengths(512, 0.6, 200, 0.6)),
    "sequences": (EngineProfile(max_num_seqs=32), Lengths(300, 0.6, 200, 0.6)),
    "kv": (EngineProfile(kv_blocks=2500, max_num_seqs=256), Lengths(600, 0.6, 250, 0.6, 4000, 2000)),
    "prefill": (EngineProfile(), Lengths(2000, 0.7, 100, 0.6)),
    "h100": (EngineProfile(), Lengths(512, 0.6, 200, 0.6)),
    "hiccups": (
        EngineProfile(max_num_seqs=256, token_budget=2048, stalls=(Stall(20.0, 0.15),)),
        Lengths(512, 0.6, 200, 0.6),
    ),
}
LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.9)
LEAD_S = 120.0
LEAST_WINDOWS = 60
"""So many tell the long run of an engine whose pace changes."""
STATS = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
Hits = dict[str, list[tuple[bool, float]]]
Job = tuple[str, float, int, int, float, str]


def one(job: Job) -> tuple[str, float, int, Hits]:
    """All windows of one scenario at one load: column -> (holds the truth, relative half-width) where printed."""
    name, load, windows, seed, measure_s, kind = job
    profile, lengths = SCENARIOS[name]
    profile = replace(profile, regimes=REGIMES[kind])
    capacity = capacity_rps(profile, lengths, np.random.default_rng(1))
    rng = np.random.default_rng([seed, list(SCENARIOS).index(name), round(1000 * load)])
    end_s = LEAD_S + (windows if kind == "none" else max(windows, LEAST_WINDOWS)) * measure_s
    due_s = poisson(load * capacity, end_s + 60.0, rng)
    prompt, output = lengths.draw(rng, len(due_s))
    table, samples = simulate(profile, due_s, prompt, output, rng)
    truth = truths(table, (LEAD_S, end_s))
    hits: Hits = defaultdict(list)
    for k in range(windows):
        begin_s = LEAD_S + k * measure_s
        near = slice(*np.searchsorted(table.due_s, (begin_s - LEAD_S, begin_s + measure_s)))
        part = table.select_rows(np.arange(near.start, near.stop))
        step = Step(0, rate_rps=load * capacity, begin_s=begin_s, warmup_s=0.0, measure_s=measure_s)
        scraped = samples[int(begin_s) : int(begin_s + measure_s)]
        row = fold(step, part, samples=scraped, base_ttft_p50_s=truth["ttft_p50"])
        row = judged(row, part, capacity)
        if kind != "none" and long_run.interval_of([row]) == "these_minutes":
            continue
        for column, true in truth.items():
            low, high = row.number(f"{column}_low_s"), row.number(f"{column}_high_s")
            if low is not None and high is not None:
                hits[column].append((low <= true <= high, (high - low) / 2.0 / true))
        for rule, (low, high) in naive(part, step.window_s, rng).items():
            hits[rule].append((low <= truth["itl_p99"] <= high, (high - low) / 2.0 / truth["itl_p99"]))
    return name, load, windows, hits


def judged(row: Row, table: Table, capacity: float) -> Row:
    """The row as a run of this step alone prints it, the ceiling given."""
    ceiling = Estimate("found", capacity)
    rows = hold_back(long_run.with_scatter([row]), ceiling)
    window_s = (row.window_begin_s, row.window_end_s)
    (row,) = hold_back(regimes.widen(rows, lambda _: latency.window_view(table, window_s), 0.99), ceiling)
    return row


def truths(table: Table, window_s: tuple[float, float]) -> dict[str, float]:
    seen = latency.window_view(table, window_s)
    pooled = latency.families(seen)
    out = {}
    for family, data in pooled.items():
        for stat, q in STATS.items():
            out[f"{family}_{stat}"] = float(data.values.mean()) if q is None else quantile(data.ordered, q)
    longest_s, at_s = latency.longest(seen)
    out["longest_gap_p99"] = quantile(pool(longest_s, at_s, window_s, "requests").ordered, 0.99)
    return out


def naive(
    table: Table, window_s: tuple[float, float], rng: np.random.Generator, resamples: int = 100
) -> dict[str, tuple[float, float]]:
    """Intervals of p99 ITL that take tokens for independent, and that bootstrap requests."""
    gaps = latency.window_view(table, window_s).gaps
    order = np.argsort(gaps.gap_s)
    values, owner = gaps.gap_s[order], gaps.request[order]
    n = len(values)
    k = 0.99 * n
    iid = (float(betaincinv(k, n - k + 1, 0.025)), float(betaincinv(k + 1, n - k, 0.975)))
    requests = int(owner.max()) + 1
    sizes = np.bincount(owner, minlength=requests)
    top = slice(int(0.85 * n), None)
    found = [_resampled(values[top], owner[top], sizes, rng.multinomial(requests, np.full(requests, 1 / requests)))
             for _ in range(resamples)]  # fmt: skip
    low, high = np.percentile(found, [2.5, 97.5])
    return {
        "iid tokens": (quantile(values, iid[0]), quantile(values, iid[1])),
        "bootstrap requests": (float(low), float(high)),
    }


def _resampled(
    values: NDArray[np.float64], owner: NDArray[np.int64], sizes: NDArray[np.int64], weights: NDArray[np.int64]
) -> float:
    """p99 of the tokens of resampled requests; only the largest values are looked at."""
    above = np.cumsum(weights[owner][::-1])
    return float(values[::-1][np.searchsorted(above, 0.01 * float(weights @ sizes))])


def show(results: list[tuple[str, float, int, Hits]]) -> None:
    print("\n## p99 ITL: coverage of nominal 95 % intervals (relative half-width), by scenario and load")
    print(
        f"{'scenario':10s} {'load':>5s} {'iid tokens':>15s} {'bootstrap requests':>19s} {'printed':>15s} {'share':>6s}"
    )
    for name, load, windows, hits in results:
        cells = [_cell(hits.get(rule, [])) for rule in ("iid tokens", "bootstrap requests", "itl_p99")]
        share = len(hits.get("itl_p99", [])) / windows
        print(f"{name:10s} {load:5.2f} {cells[0]:>15s} {cells[1]:>19s} {cells[2]:>15s} {share:6.2f}")
    print("\n## every printed interval: coverage (share of windows that print one), all scenarios together")
    columns = sorted({c for _, _, _, hits in results for c in hits if c not in {"iid tokens", "bootstrap requests"}})
    print(f"{'column':16s}" + "".join(f"{load:>14.2f}" for load in LOADS) + f"{'all':>14s}")
    for column in columns:
        cells = []
        for load in [*LOADS, None]:
            own = [(h.get(column, []), w) for _, at, w, h in results if load in {at, None}]
            held = [hit for found, _ in own for hit, _ in found]
            total = sum(w for _, w in own)
            cells.append(f"{np.mean(held):8.3f} ({len(held) / total:.2f})" if len(held) >= 20 else f"{'-':>15s}")
        print(f"{column:16s}" + "".join(f"{cell[-14:]:>14s}" for cell in cells))
    every = [hit for _, _, _, hits in results for column in columns for hit, _ in hits.get(column, [])]
    low = [
        f"{name} {load:g} {column} {held:.2f} of {len(found)}"
        for name, load, _, hits in results
        for column, found in hits.items()
        if column in columns and len(found) >= 20 and (held := float(np.mean([hit for hit, _ in found]))) < 0.9
    ]
    print(f"below 0.90: {len(low)} cells of 20 windows or more: {'; '.join(low)}")
    print(f"all printed intervals: {np.mean(every):.3f} of {len(every)}")


def _cell(found: list[tuple[bool, float]]) -> str:
    if len(found) < 10:
        return "-"
    return f"{np.mean([hit for hit, _ in found]):.2f} ({np.median([half for _, half in found]):.1%})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--measure", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=30_000)
    parser.add_argument("--scenarios", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--regimes", default="none", choices=list(REGIMES), help="how the engine's pace changes")
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    print(f"# python {platform.python_version()}, seed {args.seed}, {args.windows} windows of {args.measure:g} s each")
    jobs = [
        (name, load, args.windows, args.seed, args.measure, args.regimes) for name in args.scenarios for load in LOADS
    ]
    with Pool(args.processes) as pool_of_processes:
        show(pool_of_processes.map(one, jobs, chunksize=1))


if __name__ == "__main__":
    main()
