"""How often does the long run lie above the bound that decides a far threshold where a step gives no upper limit?

    python benchmarks/far_bounds.py [--windows 24] [--measure 60] [--seed 52000]

Windows of long simulated runs, from low load to just below the ceiling. The long run is that of all windows of a cell
pooled. Only windows count whose queue did not grow and that print a value without an upper limit.
"""

import argparse
import platform
from collections import defaultdict
from multiprocessing import Pool

import numpy as np
from coverage import LEAD_S, SCENARIOS, truths
from engine_population import capacity_rps
from offline_engine import simulate

from loadramp.analysis.curve import fold
from loadramp.analysis.far_bounds import upper_bound
from loadramp.analysis.interval_policy import hold_back
from loadramp.record.types import Estimate, Step
from loadramp.workload.arrivals import poisson

LOADS = (0.3, 0.55, 0.7, 0.8, 0.9, 0.97)
FAMILIES = ("ttft", "sent_ttft", "e2e", "itl", "gap", "tpot")
STATS = ("p50", "p90", "p95", "p99")
Seen = dict[str, list[tuple[float, float | None]]]
"""Column to (long run / value, long run / bound), one a window; the second is None where there is no bound."""


def one(job: tuple[str, float, int, int, float]) -> tuple[str, float, Seen]:
    """All windows of one scenario at one load."""
    name, load, windows, seed, measure_s = job
    profile, lengths = SCENARIOS[name]
    capacity = capacity_rps(profile, lengths, np.random.default_rng(1))
    rng = np.random.default_rng([seed, list(SCENARIOS).index(name), round(1000 * load)])
    end_s = LEAD_S + windows * measure_s
    due_s = poisson(load * capacity, end_s + 60.0, rng)
    prompt, output = lengths.draw(rng, len(due_s))
    table, samples = simulate(profile, due_s, prompt, output, rng)
    truth = truths(table, (LEAD_S, end_s))
    ceiling = Estimate("found", capacity)
    found: Seen = defaultdict(list)
    for k in range(windows):
        begin_s = LEAD_S + k * measure_s
        near = slice(*np.searchsorted(table.due_s, (begin_s - LEAD_S, begin_s + measure_s)))
        part = table.select_rows(np.arange(near.start, near.stop))
        step = Step(0, rate_rps=load * capacity, begin_s=begin_s, warmup_s=0.0, measure_s=measure_s)
        scraped = samples[int(begin_s) : int(begin_s + measure_s)]
        (row,) = hold_back([fold(step, part, samples=scraped, base_ttft_p50_s=truth["ttft_p50"])], ceiling)
        if row.saturated and not row.stationary:
            continue
        for column in (f"{family}_{stat}" for family in FAMILIES for stat in STATS):
            value = row.statistic(column).value
            if value is not None and row.statistic(column).high is None:
                family, _, stat = column.rpartition("_")
                bound = upper_bound(row, family, stat, ceiling)
                found[column].append((truth[column] / value, None if bound is None else truth[column] / bound))
    return name, load, found


def show(results: list[tuple[str, float, Seen]]) -> None:
    print("wrong: share of the bounded windows whose long run is above the bound, in all and in the worst cell")
    print("largest: long run / value of all windows, by load")
    heads = "".join(f"{load:8g}" for load in LOADS)
    print(f"{'column':14s}{'windows':>8s}{'bounded':>8s}{'wrong':>7s}  {'worst cell':22s}{heads}")
    for column in (f"{family}_{stat}" for family in FAMILIES for stat in STATS):
        cells = {(name, load): found[column] for name, load, found in results if found.get(column)}
        bounded = {cell: np.array([b for _, b in own if b is not None]) for cell, own in cells.items()}
        every = np.concatenate([np.empty(0), *bounded.values()])
        shares = {cell: float(np.mean(own > 1.0)) for cell, own in bounded.items() if len(own) >= 10}
        (name, load), worst = max(shares.items(), key=lambda item: item[1], default=(("-", 0.0), 0.0))
        ratios = [[r for (_, at), own in cells.items() if at == load for r, _ in own] for load in LOADS]
        largest = "".join(f"{max(own, default=0.0):8.2f}" for own in ratios)
        wrong = float(np.mean(every > 1.0)) if len(every) else 0.0
        told = f"{worst:.3f} {name} {load:g}"
        print(f"{column:14s}{sum(map(len, cells.values())):8d}{len(every):8d}{wrong:7.3f}  {told:22s}{largest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=24)
    parser.add_argument("--measure", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=52_000)
    parser.add_argument("--scenarios", nargs="*", default=list(SCENARIOS))
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    print(f"# python {platform.python_version()}, seed {args.seed}, {args.windows} windows of {args.measure:g} s each")
    jobs = [(name, load, args.windows, args.seed, args.measure) for load in LOADS[::-1] for name in args.scenarios]
    with Pool(args.processes) as pool:
        show(pool.map(one, jobs, chunksize=1))


if __name__ == "__main__":
    main()
