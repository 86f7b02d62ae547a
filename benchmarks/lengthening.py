"""Do the ceiling's intervals hold on engines whose step time has regimes, and what makes them narrow? Whole ramps.

    python benchmarks/lengthening.py [--engines 100] [--seed 26000] [--cases regimes doubling ...] [--minutes 20]
        [--processes 1] [--measure 60]

Each ramp is judged with steps of 60 s; with steps that are 2 and 3 times as long; with steps near the ceiling that go
on where the step time is unstable, as is the default; and with ``until_sure = 0.2`` of the throughput, looked at as
often as the product looks. The same engine then makes two further ramps at other times, for 2 and 3 repeats.
Engines are those of knee.py, from 2 to 12 req/s; the capacity counts regimes with their long-run mean speed. All rules
see the same arrivals: a step is offered for 180 s, the longest that any of them asks for, and read as far as the rule
lets it go on. Intervals that speak of these minutes are also held against the capacity at the engine's mean speed in
the steps in deficit. Regimes and doubling are tried on every engine, minutes' on each second, the others on each third.
"""

import argparse
import multiprocessing
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from engine_population import capacity_rps, mean_speed
from ramp_bench import Bench, engine_of

from loadramp.analysis import lengthen, long_run, steady_state
from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.curve import fold
from loadramp.analysis.repeats import pooled_estimates
from loadramp.record.row import Row
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Estimate, IntervalOf, Step
from loadramp.runner.scenarios import load
from loadramp.workload.ramps import RAMPS

CASES = {"regimes": 1, "doubling": 1, "neighbour": 2, "slow drift": 2, "population": 3, "two engines": 3}
"""Kind of engine to how many engines go by for each one that is tried."""
MEASURE_S, UNTIL_SURE, LONGEST_S = 60.0, 0.2, 180.0
SLOWEST_RPS, FASTEST_RPS = 2.0, 12.0
GoesOn = Callable[["Recorded", list[Row]], float]


@dataclass(slots=True, frozen=True)
class Climbed:
    """One ramp or several. Rates as ratios of the long-run capacity; ``now``: the capacity at the speed of the steps in
    deficit."""

    estimate: Estimate
    rows: Sequence[Row]
    now: float
    minutes: float
    interval_of: IntervalOf


Result = dict[str, Climbed]


class Recorded:
    """One engine and the steps of its ramp, each offered as long as any rule wants it; rows are of their beginnings."""

    def __init__(self, case: str, seed: int, chance: int, longest_s: float) -> None:
        profile, lengths = engine_of(case, seed)
        self.bench = Bench(profile, lengths, seed + 1_000_000 * chance, engines=2 if case == "two engines" else 1)
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
            base_s = before[0].of("ttft").p50.value if before else None
            row = fold(step, recent, samples=samples, base_ttft_p50_s=base_s, now_s=step.end_s)
            self.known[k, measure_s] = replace(row, overloaded=False)
        row = self.known[k, measure_s]
        return replace(row, ceiling_rps=ceiling([*before, row]).rate_rps)


def fixed(times: float) -> GoesOn:
    return lambda _, rows: max(0.0, times * MEASURE_S - _length_s(rows[-1]))


def by_default(of: Recorded, rows: list[Row]) -> float:
    more_s = lengthen.further_s(_length_s(rows[-1]), LONGEST_S)
    if not more_s or not lengthen.concerns(rows[-1]) or lengthen.is_long_enough(rows):
        return 0.0
    run = Run(info=RunInfo(), scenario=load(""), steps=[], table=of.tables[len(rows) - 1], samples=[], rows=rows)
    return more_s if lengthen.has_regimes(run) else 0.0


def until_sure(_: Recorded, rows: list[Row]) -> float:
    reached, measured_s = lengthen.reach(long_run.with_scatter(rows)[-1], "throughput"), _length_s(rows[-1])
    if reached is not None and reached <= UNTIL_SURE:
        return 0.0
    return max(0.0, min(lengthen.next_look_s(measured_s), LONGEST_S) - measured_s)


def climb(of: Recorded, goes_on: GoesOn, true: float) -> Climbed:
    """The ramp without a soak."""
    rows: list[Row] = []
    while isinstance(step := RAMPS["ceiling"](rows, soak_s=0.0), Step):
        k, rate_rps, measure_s = len(rows), step.rate_rps or 0.0, MEASURE_S
        rows.append(of.row(k, rate_rps, measure_s, rows))
        while more_s := goes_on(of, rows):
            measure_s += more_s
            rows[-1] = of.row(k, rate_rps, measure_s, rows[:-1])
    rows = long_run.with_scatter(rows)
    warmups_s = sum(step.warmup_s or 0.0 for step in of.steps[: len(rows)])
    minutes = (sum(map(_length_s, rows)) + warmups_s) / 60.0
    found = ceiling(rows)
    low, value, high = (rate and rate / true for rate in (found.low_rps, found.rate_rps, found.high_rps))
    now = np.mean([of.bench.engine.speed(r.window_begin_s, r.window_end_s) for r in rows if r.deficit] or [1.0])
    of_what = long_run.interval_of(rows)
    scaled = replace(found, low_rps=low, rate_rps=value, high_rps=high, interval_of=of_what)
    return Climbed(scaled, rows, float(now), minutes, of_what)


def together(ramps: Sequence[Climbed]) -> Climbed:
    """Repeats as the product pools them."""
    rows = [row for one in ramps for row in one.rows]
    now = float(np.exp(np.mean([np.log(one.now) for one in ramps])))
    pooled = pooled_estimates([{"ceiling": one.estimate} for one in ramps])["ceiling"]
    return Climbed(pooled, rows, now, sum(one.minutes for one in ramps), long_run.interval_of(rows))


@cache
def speed(case: str) -> float:
    """Long-run mean speed of an engine with the regimes of that kind."""
    return mean_speed(engine_of(case, 0)[0].regimes, np.random.default_rng([0, 7]))


def capacity(seed: int) -> float | None:
    """Of the engine without regimes; None where it is out of range."""
    try:
        true = capacity_rps(*engine_of("population", seed), np.random.default_rng([seed, 5]), 3000)
    except (ValueError, AssertionError):
        return None
    return true if SLOWEST_RPS <= true <= FASTEST_RPS else None


def one(job: tuple[str, int, float]) -> tuple[str, Result]:
    case, seed, quiet_rps = job
    true = quiet_rps * speed(case) * (2.0 if case == "two engines" else 1.0)
    plain = f"{MEASURE_S:g} s"
    rules = {plain: fixed(1.0), "twice as long": fixed(2.0), "three times as long": fixed(3.0),
             "near the ceiling (default)": by_default, "until sure of 20 %": until_sure}  # fmt: skip
    recorded = [Recorded(case, seed, chance, LONGEST_S) for chance in range(3)]
    found = {name: climb(recorded[0], rule, true) for name, rule in rules.items()}
    for name in ("near the ceiling (default)", plain):
        ramps = [found[name], *(climb(of, rules[name], true) for of in recorded[1:])]
        for n in (2, 3):
            found[f"{n} ramps, {name.partition(' (')[0]}"] = together(ramps[:n])
    return case, {name: replace(climbed, rows=(), now=climbed.now / speed(case)) for name, climbed in found.items()}


def _length_s(row: Row) -> float:
    return float(row.length_s)


def line(rule: str, found: Sequence[Climbed]) -> str:
    known = [one for one in found if one.estimate.status in {"found", "below_range"}]
    values = np.array([one.estimate.rate_rps for one in known], dtype=np.float64)
    whole = [one for one in known if one.estimate.low_rps and one.estimate.high_rps]
    of_run = [one for one in whole if one.interval_of == "long_run"]
    of_minutes = [one for one in whole if one.interval_of == "these_minutes"]
    halves = [np.log((one.estimate.high_rps or 0.0) / (one.estimate.low_rps or 1.0)) / 2.0 for one in whole]
    cells = [
        rule, f"{np.count_nonzero(abs(values - 1.0) <= 0.1)} of {len(found)}", f"{np.log(values).std():.3f}",
        f"{np.median(halves):.3f}" if halves else "-", f"{np.median([one.minutes for one in found]):.1f}",
        held(whole), held(of_run), held(of_minutes), held(of_minutes, now=True),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def held(some: Sequence[Climbed], now: bool = False) -> str:
    """How many intervals hold the long-run capacity, or that at the speed of their minutes."""
    n = sum((one.estimate.low_rps or 0.0) <= (one.now if now else 1.0) <= (one.estimate.high_rps or 0.0)
            for one in some)  # fmt: skip
    return f"{n} of {len(some)} ({n / len(some):.2f})" if some else "-"


def show(case: str, results: Sequence[Result]) -> None:
    print(f"\n### {case}: {len(results)} engines\n")
    print("| rule | within 10 % | sd of ln | half-width | minutes | all hold the long run | of the long run | of these "
          "minutes: hold the long run | hold these minutes |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for rule in results[0]:
        print(line(rule, [result[rule] for result in results]), flush=True)


def jobs(asked: argparse.Namespace, found: Sequence[float | None]) -> Iterator[tuple[str, int, float]]:
    """Kinds of engines by turns, so that whatever time ends has some of each."""
    usable = [(asked.seed + k, rps) for k, rps in enumerate(found) if rps is not None][: asked.engines]
    for i, (seed, rps) in enumerate(usable):
        yield from ((case, seed, rps) for case in asked.cases if i % CASES[case] == 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=100, help="with capacities in range; one seed in four is")
    parser.add_argument("--seed", type=int, default=26_000)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=CASES)
    parser.add_argument("--minutes", type=float, default=20.0, help="show what is there after so long")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--measure", type=float, default=MEASURE_S, help="seconds of a step")
    asked = parser.parse_args()
    globals()["MEASURE_S"] = asked.measure  # before the processes are forked
    begun_s = time.monotonic()
    print(f"{platform.machine()}, Python {platform.python_version()}, seeds from {asked.seed}")
    results: dict[str, list[Result]] = {case: [] for case in asked.cases}
    with multiprocessing.Pool(asked.processes) as pool:
        capacities = pool.map(capacity, range(asked.seed, asked.seed + 20 + 5 * asked.engines), chunksize=2)
        coming = pool.imap_unordered(one, jobs(asked, capacities))
        while (left_s := 60.0 * asked.minutes - (time.monotonic() - begun_s)) > 0.0:
            try:
                case, found = coming.next(left_s)
            except (StopIteration, multiprocessing.TimeoutError):
                break
            results[case].append(found)
    for case, own in results.items():
        if own:
            show(case, own)
    print(f"\n{time.monotonic() - begun_s:.0f} s")


if __name__ == "__main__":
    main()
