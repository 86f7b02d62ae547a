"""Do the ceiling's intervals hold on engines whose step time has regimes, and what makes them narrow? Whole ramps.

    python benchmarks/lengthening.py [--seeds 200] [--seed 26000] [--cases regimes doubling] [--minutes 20]

Each ramp is judged with steps of 60 s; with steps that are 2 and 3 times as long; with steps near the ceiling that go
on where the step time is unstable, as is the default; and with ``until_sure = 0.2`` of the throughput, looked at as
often as the product looks. The same engine then makes two further ramps with steps of 60 s, for 2 and 3 repeats.
Engines are those of knee.py, from 2 to 12 req/s; the capacity counts regimes with their long-run mean speed. All rules
see the same arrivals: a step is offered for 180 s, the longest that any of them asks for, and read as far as the rule
lets it go on.
"""

import argparse
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from multiprocessing import Pool

import numpy as np
from engine_population import capacity_rps, mean_speed
from ramp_bench import Bench, engine_of

from loadramp.analysis import lengthen, long_run, precision, steady_state
from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.curve import fold
from loadramp.analysis.repeats import pooled_estimates
from loadramp.record.table import Run, Table
from loadramp.record.types import Estimate, Row, Step
from loadramp.runner.scenarios import load
from loadramp.workload.ramps import RAMPS

MEASURE_S, UNTIL_SURE, LONGEST_S = 60.0, 0.2, 180.0
SLOWEST_RPS, FASTEST_RPS = 2.0, 12.0
Interval = tuple[float | None, float | None, float | None]
Result = dict[str, tuple[Interval, float]]
"""Rule to what it printed, as ratios of the capacity, and the minutes of the ramp."""
GoesOn = Callable[["Recorded", list[Row]], float]


class Recorded:
    """One engine and the steps of its ramp, each offered as long as any rule wants it; rows are of their beginnings."""

    def __init__(self, case: str, seed: int, chance: int, longest_s: float) -> None:
        profile, lengths = engine_of(case, seed)
        self.bench = Bench(profile, lengths, seed + 1_000_000 * chance)
        self.bench.offer(1.0, 50.0, -1)
        self.longest_s = longest_s
        self.steps: list[Step] = []
        self.tables: list[Table] = []
        self.known: dict[tuple[int, float], Row] = {}

    def row(self, k: int, rate_rps: float, measure_s: float, before: Sequence[Row]) -> Row:
        """Step ``k`` as it is after ``measure_s``."""
        bench = self.bench
        while k >= len(self.steps):
            warmup_s = steady_state.warmup_s(bench.latest_e2e_s(), MEASURE_S)
            self.steps.append(Step(k, rate_rps=rate_rps, begin_s=bench.now_s, warmup_s=warmup_s, measure_s=measure_s))
            bench.offer(rate_rps, warmup_s + self.longest_s, k)
            self.tables.append(bench.engine.table())
        if (k, measure_s) not in self.known:
            step, table = replace(self.steps[k], measure_s=measure_s), self.tables[k]
            recent = table.select((table.done_s >= step.begin_s) & (table.due_s < step.end_s))
            samples = [s for s in bench.engine.samples if step.begin_s <= s.t_s < step.end_s]
            base_s = before[0]["ttft_p50_s"] if before else None
            row = fold(step, recent, samples=samples, base_ttft_p50_s=base_s, now_s=step.end_s)
            self.known[k, measure_s] = row | {"overloaded": False}
        row = dict(self.known[k, measure_s])
        row["ceiling_rps"] = ceiling([*before, row]).rate_rps
        return row


def fixed(times: float) -> GoesOn:
    return lambda _, rows: max(0.0, times * MEASURE_S - _length_s(rows[-1]))


def by_default(of: Recorded, rows: list[Row]) -> float:
    more_s = lengthen.further_s(_length_s(rows[-1]), LONGEST_S)
    if not more_s or not lengthen.concerns(rows[-1]) or lengthen.is_long_enough(rows):
        return 0.0
    run = Run(info={}, scenario=load(""), steps=[], table=of.tables[len(rows) - 1], samples=[], rows=rows)
    return more_s if lengthen.has_regimes(run) else 0.0


def until_sure(_: Recorded, rows: list[Row]) -> float:
    reached, measured_s = precision.reach(long_run.with_scatter(rows)[-1], "throughput"), _length_s(rows[-1])
    if reached is not None and reached <= UNTIL_SURE:
        return 0.0
    return max(0.0, min(precision.next_look_s(measured_s), LONGEST_S) - measured_s)


def climb(of: Recorded, goes_on: GoesOn) -> tuple[Estimate, float]:
    """The ramp without a soak, and its minutes."""
    rows: list[Row] = []
    while isinstance(step := RAMPS["ceiling"](rows, soak_s=0.0), Step):
        k, rate_rps, measure_s = len(rows), step.rate_rps or 0.0, MEASURE_S
        rows.append(of.row(k, rate_rps, measure_s, rows))
        while more_s := goes_on(of, rows):
            measure_s += more_s
            rows[-1] = of.row(k, rate_rps, measure_s, rows[:-1])
    rows = long_run.with_scatter(rows)
    warmups_s = sum(step.warmup_s or 0.0 for step in of.steps[: len(rows)])
    return ceiling(rows), (sum(map(_length_s, rows)) + warmups_s) / 60.0


@cache
def speed(case: str) -> float:
    """Long-run mean speed of an engine with the regimes of that kind."""
    return mean_speed(engine_of(case, 0)[0].regimes, np.random.default_rng([0, 7]))


def one(job: tuple[str, int]) -> Result | None:
    case, seed = job
    try:
        true = capacity_rps(*engine_of("population", seed), np.random.default_rng([seed, 5]), 3000) * speed(case)
    except (ValueError, AssertionError):
        return None
    if not SLOWEST_RPS <= true <= FASTEST_RPS:
        return None
    rules = {"60 s": fixed(1.0), "twice as long": fixed(2.0), "three times as long": fixed(3.0),
             "near the ceiling (default)": by_default, "until sure of 20 %": until_sure}  # fmt: skip
    recorded = Recorded(case, seed, 0, LONGEST_S)
    found = {name: climb(recorded, rule) for name, rule in rules.items()}
    single = [found["60 s"], *(climb(Recorded(case, seed, k, MEASURE_S), fixed(1.0)) for k in (1, 2))]
    for n in (2, 3):
        pooled = pooled_estimates([{"ceiling": estimate} for estimate, _ in single[:n]])["ceiling"]
        found[f"{n} ramps of 60 s"] = pooled, sum(minutes for _, minutes in single[:n])
    return {name: (_interval(estimate, true), minutes) for name, (estimate, minutes) in found.items()}


def _interval(found: Estimate, true: float) -> Interval:
    if found.status not in {"found", "below_range"}:
        return None, None, None
    low, value, high = (rate and rate / true for rate in (found.low_rps, found.rate_rps, found.high_rps))
    return low, value, high


def _length_s(row: Row) -> float:
    return float(row["window_end_s"] - row["window_begin_s"])


def show(case: str, results: Sequence[Result]) -> None:
    print(f"\n### {case}: {len(results)} engines\n")
    print("| rule | found | within 10 % | sd of ln | intervals | hold the capacity | half-width | minutes |")
    print("|---|---|---|---|---|---|---|---|")
    for rule in results[0]:
        values = np.array([r[rule][0][1] for r in results if r[rule][0][1]], dtype=np.float64)
        ends = [(low, high) for low, _, high in (r[rule][0] for r in results) if low and high]
        held = sum(low <= 1.0 <= high for low, high in ends)
        half = np.median([np.log(high / low) / 2.0 for low, high in ends]) if ends else np.nan
        print(f"| {rule} | {len(values)} | {np.mean(abs(values - 1.0) <= 0.1):.2f} | {np.log(values).std():.3f} | "
              f"{len(ends)} | {held} ({held / max(1, len(ends)):.2f}) | {half:.3f} | "
              f"{np.median([r[rule][1] for r in results]):.1f} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200, help="most engines are out of range")
    parser.add_argument("--seed", type=int, default=26_000)
    parser.add_argument("--cases", nargs="*", default=["regimes", "doubling"])
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no further engine after so long")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    begun_s = time.monotonic()
    print(f"{platform.machine()}, Python {platform.python_version()}, seeds from {asked.seed}")
    results: dict[str, list[Result]] = {case: [] for case in asked.cases}
    jobs = [(case, asked.seed + k) for k in range(asked.seeds) for case in asked.cases]
    with Pool(asked.processes) as pool:
        for (case, _), found in zip(jobs, pool.imap(one, jobs), strict=True):
            results[case] += [found] if found else []
            if time.monotonic() - begun_s > 60.0 * asked.minutes:
                break
    for case, own in results.items():
        if own:
            show(case, own)
    print(f"\n{time.monotonic() - begun_s:.0f} s")


if __name__ == "__main__":
    main()
