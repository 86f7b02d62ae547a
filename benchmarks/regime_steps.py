"""Do the intervals of the steps of a ramp hold the long run on engines that are slow at times, from low load to high?

    python benchmarks/regime_steps.py [--ramps 40] [--seed 90000] [--scenarios sequences ...] [--regimes captured ...]

A ramp goes over eight loads (shares of the long-run capacity, the last one too much) on an engine of coverage.py, a
minute each after twelve seconds of warm-up, and is judged as `loadramp report` does, with the ceiling that it found.
The truth of each load is that of four runs of half an hour. A cell: how many of the printed intervals hold it, the
share of steps that print one, and the median half-width (logarithm) over 1.96 times how far the steps lie from it.
"""

import argparse
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import Pool

import numpy as np
from coverage import SCENARIOS
from engine_population import Lengths, capacity_rps
from offline_engine import simulate
from regime_coverage import STEMS, Interval, Seen, cell, counted, printed_by, truths

from loadramp.analysis import latency, regimes
from loadramp.analysis.curve import fold
from loadramp.analysis.itl_knee import completed
from loadramp.record.row import Row
from loadramp.record.types import Step
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.regimes import REGIMES
from loadramp.workload.arrivals import poisson

LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.75, 0.9, 1.4)
JUDGED = LOADS[:6]
WARMUP_S, MEASURE_S, TAIL_S = 12.0, 60.0, 30.0
LEAD_S, LONG_S, LONG_RUNS = 120.0, 1800.0, 4


def engine(name: str, kind: str) -> tuple[EngineProfile, Lengths, float]:
    """The engine with these regimes, the lengths, and the capacity in the long run."""
    profile, lengths = SCENARIOS[name]
    profile = replace(profile, regimes=REGIMES[kind])
    return profile, lengths, capacity_rps(profile, lengths, np.random.default_rng(1))


def long_run_at(job: tuple[str, str, float, int]) -> Seen:
    """All values of half an hour at one load."""
    name, kind, load, seed = job
    profile, lengths, capacity = engine(name, kind)
    rng = np.random.default_rng([seed, 2, round(1000 * load)])
    end_s = LEAD_S + LONG_S
    due_s = poisson(load * capacity, end_s + TAIL_S, rng)
    table, _ = simulate(profile, due_s, *lengths.draw(rng, len(due_s)), rng, sample_period_s=0.0)
    return counted([latency.window_view(table, (LEAD_S, end_s))])


def ramp(job: tuple[str, str, int]) -> list[dict[str, Interval]]:
    """What each judged step of one ramp prints."""
    name, kind, seed = job
    profile, lengths, capacity = engine(name, kind)
    rng = np.random.default_rng([seed, 1])
    steps = [
        Step(k, rate_rps=load * capacity, begin_s=k * (WARMUP_S + MEASURE_S), warmup_s=WARMUP_S, measure_s=MEASURE_S)
        for k, load in enumerate(LOADS)
    ]
    due_s = np.concatenate(
        [one.begin_s + poisson(one.rate_rps or 0.0, WARMUP_S + MEASURE_S, rng) for one in steps]
    )  # fmt: skip
    end_s = steps[-1].end_s + TAIL_S
    table, samples = simulate(profile, due_s, *lengths.draw(rng, len(due_s)), rng, until_s=end_s)
    rows: list[Row] = []
    seen = []
    for step in steps:
        part = table.select((table.done_s >= step.begin_s) & (table.due_s < step.end_s))
        base_s = rows[0].of("ttft").p50.value if rows else None
        rows.append(fold(step, part, samples=samples, base_ttft_p50_s=base_s))
        seen.append(latency.window_view(part, step.window_s))
    rows = completed(regimes.widen(completed(rows), seen.__getitem__, 0.99))
    return [printed_by(row) for row in rows[: len(JUDGED)]]


def show(name: str, kind: str, ramps: Sequence[list[dict[str, Interval]]], true: Sequence[dict[str, float]]) -> None:
    print(f"\n### {name}, {kind}: {len(ramps)} ramps\n\n| | {' | '.join(map(str, JUDGED))} | all |")
    print(f"|---|{'---|' * (len(JUDGED) + 1)}")
    for stem in STEMS:
        cells, held, widths = [], [], []
        for k, truth in enumerate(true):
            steps = [one[k] for one in ramps]
            away = [np.log(value / truth[stem]) for value, _, _ in (one[stem] for one in steps) if value]
            scatter = float(np.sqrt(np.mean(np.square(away)))) if away else np.nan
            cells.append(cell(steps, stem, truth[stem], scatter))
            limits = [(low, high) for _, low, high in (one[stem] for one in steps) if low and high]
            held += [low <= truth[stem] <= high for low, high in limits]
            widths += [np.log(high / low) / 2.0 / (1.96 * scatter) for low, high in limits]
        share = len(held) / (len(ramps) * len(JUDGED))
        every = f"{np.mean(held):.3f} ({share:.2f}) {np.median(widths):.2f}" if held else "-"
        print(f"| {stem} | {' | '.join(cells)} | {every} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("ramps", 40), ("seed", 90_000), ("processes", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--scenarios", nargs="*", default=["sequences", "compute", "kv", "prefill"], choices=SCENARIOS)
    parser.add_argument("--regimes", nargs="*", default=["captured", "doubling"], choices=REGIMES)
    asked = parser.parse_args()
    begun_s = time.monotonic()
    print(f"{platform.machine()}, Python {platform.python_version()}, seed {asked.seed}")
    with Pool(asked.processes) as pool:
        for name in asked.scenarios:
            for kind in asked.regimes:
                found = pool.map_async(ramp, [(name, kind, asked.seed + k) for k in range(asked.ramps)], chunksize=1)
                jobs = [(name, kind, load, asked.seed + k) for load in JUDGED for k in range(LONG_RUNS)]
                long = pool.map(long_run_at, jobs, chunksize=1)
                true = [truths(long[k : k + LONG_RUNS]) for k in range(0, len(jobs), LONG_RUNS)]
                show(name, kind, found.get(), true)
    print(f"\n{time.monotonic() - begun_s:.0f} s")


if __name__ == "__main__":
    main()
