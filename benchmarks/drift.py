"""How often is a soak said to drift that does not, and how often one that does? AR(1) series, then simulated soaks.

    python benchmarks/drift.py [--series 4000] [--soaks 40] [--measure 1200] [--seed 50000] [--regimes none]

Nominal: 1 % false alarms a soak, both metrics together. Beside it what is done instead: Kendall without care for
correlation, a straight line's t test, and "the last third is 10 % above the first".
"""

import argparse
import platform
from collections import Counter
from dataclasses import replace
from multiprocessing import Pool

import numpy as np
from engine_population import Lengths, capacity_rps
from numpy.typing import NDArray
from offline_engine import simulate

from loadramp.analysis import latency
from loadramp.analysis.quantiles import quantile
from loadramp.analysis.saturation import rising
from loadramp.analysis.saturation import trend as line
from loadramp.campaign.drift import ALPHA, p99_drift, trend
from loadramp.record.table import Table
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.regimes import REGIMES
from loadramp.workload.arrivals import poisson

SCENARIOS = {
    "compute": (EngineProfile(max_num_seqs=256, token_budget=2048), Lengths(512, 0.6, 200, 0.6)),
    "sequences": (EngineProfile(max_num_seqs=32), Lengths(300, 0.6, 200, 0.6)),
    "prefill": (EngineProfile(), Lengths(2000, 0.7, 100, 0.6)),
}
LOADS = (0.5, 0.7, 0.85)
SLOWER = (0.0, 0.1, 0.2, 0.5)
"""How much slower the engine is at the end of the soak than at its begin."""
LARGEST, UNSEEN = 0.05, 0.5
LEAD_S = 120.0
Floats = NDArray[np.float64]


def ar1(rng: np.random.Generator, n: int, rho: float) -> Floats:
    """A stationary series whose neighbours correlate."""
    noise = rng.standard_normal(n)
    out = np.empty(n)
    out[0] = noise[0]
    for t in range(1, n):
        out[t] = rho * out[t - 1] + np.sqrt(1.0 - rho**2) * noise[t]
    return out


def series(job: tuple[int, float, int, int]) -> tuple[int, float, list[float]]:
    """False alarms of: this test, plain Kendall, a line's t test."""
    n, rho, count, seed = job
    rng = np.random.default_rng([seed, n, round(100 * rho)])
    hits = np.zeros(3)
    for _ in range(count):
        values = ar1(rng, n, rho)
        hits += np.array([trend(values).p, rising(values), line(np.arange(n, dtype=np.float64), values)[1]]) < ALPHA
    return n, rho, (hits / count).tolist()


def soak(job: tuple[str, float, float, int, float, str]) -> tuple[str, float, float, Counter[str]]:
    """One soak of ``measure_s`` at ``load`` of the capacity, the engine ``slower`` at its end."""
    name, load, slower, seed, measure_s, regimes = job
    profile, lengths = SCENARIOS[name]
    capacity = capacity_rps(profile, lengths, np.random.default_rng(1))
    rng = np.random.default_rng([seed, list(SCENARIOS).index(name), round(100 * load), round(100 * slower)])
    end_s = LEAD_S + measure_s
    if slower:
        at = np.linspace(LEAD_S, end_s, 60)
        speeds = tuple((float(t), float(1.0 / (1.0 + slower * (t - LEAD_S) / measure_s))) for t in at)
        profile = replace(profile, speeds=speeds)
    profile = replace(profile, regimes=REGIMES[regimes])
    due_s = poisson(load * capacity, end_s + 30.0, rng)
    prompt, output = lengths.draw(rng, len(due_s))
    table, _ = simulate(profile, due_s, prompt, output, rng)
    window = (LEAD_S, end_s)
    found = p99_drift(table, window, largest_ratio=LARGEST, unseen_ratio=UNSEEN)
    statuses = {one.status for one in found}
    verdict = "fail" if "fail" in statuses else "inconclusive" if "inconclusive" in statuses else "pass"
    said: Counter[str] = Counter({verdict: 1, "soaks": 1})
    said.update(f"{one.metric} {one.status}" for one in found)
    said["thirds"] += thirds(table, window)
    return name, load, slower, said


def thirds(table: Table, window: tuple[float, float]) -> bool:
    """The eye's rule: p99 of the last third 10 % above that of the first, in TTFT or ITL."""
    third = (window[1] - window[0]) / 3.0
    p99: list[list[float]] = []
    for begin in (window[0], window[1] - third):
        data = latency.families(latency.window_view(table, (begin, begin + third)))
        p99.append([quantile(data[name].ordered, 0.99) for name in ("ttft", "itl")])
    return any(last > 1.1 * first for first, last in zip(*p99, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("series", 4000), ("soaks", 40), ("measure", 1200), ("seed", 50_000), ("processes", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--regimes", default="none", choices=list(REGIMES), help="how the engine's pace changes")
    asked = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print("\nfalse alarms on AR(1) series of n blocks, nominal 0.010\n")
    print("| n | correlation | this test | Kendall alone | line, t test |\n|---|---|---|---|---|")
    jobs = [(n, rho, asked.series, asked.seed) for n in (12, 20, 40) for rho in (0.0, 0.2, 0.4, 0.6)]
    with Pool(asked.processes) as pool:
        for n, rho, (ours, kendall, straight) in pool.imap(series, jobs):
            print(f"| {n} | {rho} | {ours:.3f} | {kendall:.3f} | {straight:.3f} |", flush=True)
        print(f"\nsimulated soaks of {asked.measure} s, {asked.soaks} each\n")
        print(
            "| engine | load | slower at the end | fail | inconclusive | pass | TTFT fails | ITL fails | thirds rule |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        todo = [
            (name, load, slower, asked.seed + k, float(asked.measure), asked.regimes)
            for name in SCENARIOS for load in LOADS for slower in SLOWER for k in range(asked.soaks)
            if slower == 0.0 or (load == 0.5 and k < asked.soaks // 2)
        ]  # fmt: skip
        totals: dict[tuple[str, float, float], Counter[str]] = {}
        for name, load, slower, said in pool.imap(soak, todo):
            total = totals.setdefault((name, load, slower), Counter())
            total.update(said)
            wanted = asked.soaks if slower == 0.0 else asked.soaks // 2
            if total["soaks"] == wanted:
                told = [total[key] / wanted for key in
                        ("fail", "inconclusive", "pass", "ttft fail", "itl fail", "thirds")]  # fmt: skip
                print(f"| {name} | {load} | {slower:.0%} | " + " | ".join(f"{x:.2f}" for x in told) + " |", flush=True)
    still = [total for (_, _, slower), total in totals.items() if slower == 0.0]
    alarms, count = sum(t["fail"] for t in still), sum(t["soaks"] for t in still)
    print(f"\nfalse alarms in soaks that do not drift: {alarms} of {count}")


if __name__ == "__main__":
    main()
