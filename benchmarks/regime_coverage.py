"""Do the printed intervals hold the long run on engines whose step time has regimes? Ladders of equal steps, simulated.

    python benchmarks/regime_coverage.py [--ladders 91] [--seed 80000] [--regimes captured doubling ...]

A ladder is eleven steps of 45 s at 24 req/s, as captured on a real engine (tests/data/h200/ladder_24.npz). The truth of
each figure is that of all windows of all ladders pooled. `before`: intervals from the blocks of the step alone. `width`
is the median half-width on the log scale over 1.96 standard deviations of what the windows themselves scatter, which is
what an oracle would print that knows the regimes. Then: what is a second ramp worth against steps twice as long?
"""

import argparse
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pool

import numpy as np
from numpy.typing import NDArray
from offline_engine import simulate
from regimes import PROFILE, load

from loadramp.analysis import latency, long_run, regimes
from loadramp.analysis.curve import fold
from loadramp.analysis.latency import WindowView
from loadramp.analysis.repeats import TOO_WIDE, spread_of, stated
from loadramp.record.row import Row
from loadramp.record.types import IntervalOf, Step
from loadramp.simulator.regimes import REGIMES

STEPS, SETTLE_S, WARMUP_S, MEASURE_S, RATE_RPS = 11, 12.0, 2.0, 45.0, 24.0
FAMILIES = ("itl", "gap", "tpot", "ttft", "e2e")
STATISTICS = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
STEMS = tuple(f"{family}_{name}" for family in FAMILIES for name in STATISTICS)
LOWEST_S, BIN = 1e-4, 0.002
BINS = round(np.log(1e3 / LOWEST_S) / BIN)
Interval = tuple[float | None, float | None, float | None]


@dataclass(slots=True)
class Seen:
    """The values of some windows by family: how many in each bin of their logarithms, and their sums."""

    counts: dict[str, NDArray[np.int64]]
    sums: dict[str, float]


@dataclass(slots=True)
class Ladder:
    """What the steps of one ladder printed, and the values of all its windows."""

    before: list[dict[str, Interval]]
    after: list[dict[str, Interval]]
    log_sd: float
    interval_of: IntervalOf
    seen: Seen


def one(job: tuple[str, int]) -> Ladder:
    name, seed = job
    seconds = SETTLE_S + STEPS * (WARMUP_S + MEASURE_S) + 15.0
    profile = replace(PROFILE, regimes=REGIMES[name])
    rng = np.random.default_rng([seed, 1])
    table, samples = simulate(profile, *load(seed, seconds), rng, until_s=seconds)
    rows: list[Row] = []
    seen: list[WindowView] = []
    for k in range(STEPS):
        begin_s = SETTLE_S + k * (WARMUP_S + MEASURE_S)
        step = Step(k, rate_rps=RATE_RPS, begin_s=begin_s, warmup_s=WARMUP_S, measure_s=MEASURE_S)
        part = table.select((table.done_s >= begin_s) & (table.due_s < step.end_s))
        rows.append(fold(step, part, samples=samples))
        seen.append(latency.window_view(part, step.window_s))
    before, rows = rows, regimes.widen(long_run.with_scatter(rows), seen.__getitem__, 0.99)
    log_sd = float(rows[0].pace_log_sd or 0.0)
    printed = [[printed_by(row) for row in some] for some in (before, rows)]
    return Ladder(*printed, log_sd, long_run.interval_of(rows), counted(seen))


def counted(windows: Sequence[WindowView]) -> Seen:
    counts = {family: np.zeros(BINS, dtype=np.int64) for family in FAMILIES}
    sums = dict.fromkeys(FAMILIES, 0.0)
    for window in windows:
        for family, data in latency.families(window).items():
            if family in counts:
                at = np.log(np.maximum(data.values, LOWEST_S) / LOWEST_S) / BIN
                counts[family] += np.bincount(at.astype(np.int64), minlength=BINS)[:BINS]
                sums[family] += float(data.values.sum())
    return Seen(counts, sums)


def printed_by(row: Row) -> dict[str, Interval]:
    return {stem: (found.value, found.low, found.high) for stem in STEMS if (found := row.statistic(stem))}


def truths(seen: Sequence[Seen]) -> dict[str, float]:
    out = {}
    for family in FAMILIES:
        counts = np.sum([one.counts[family] for one in seen], axis=0)
        below = np.cumsum(counts) / counts.sum()
        for name, q in STATISTICS.items():
            mean_s = sum(one.sums[family] for one in seen) / int(counts.sum())
            out[f"{family}_{name}"] = (
                mean_s if q is None else LOWEST_S * float(np.exp(BIN * (np.searchsorted(below, q) + 0.5)))
            )
    return out


def cell(steps: Sequence[dict[str, Interval]], stem: str, true: float, scatter: float) -> str:
    """Coverage of the long run, share of the steps that print an interval, relative width."""
    found = [(low, high) for _, low, high in (one[stem] for one in steps) if low and high]
    if len(found) < 20:
        return "-"
    held = np.mean([low <= true <= high for low, high in found])
    half = np.median([np.log(high / low) / 2.0 for low, high in found])
    return f"{held:.3f} ({len(found) / len(steps):.2f}) {half / (1.96 * scatter):.2f}"


def show(name: str, ladders: Sequence[Ladder]) -> None:
    true = truths([one.seen for one in ladders])
    before, after = ([step for one in ladders for step in getattr(one, which)] for which in ("before", "after"))
    of_run = [step for one in ladders if one.interval_of == "long_run" for step in one.after]
    low, middle, high = np.quantile([one.log_sd for one in ladders], [0.1, 0.5, 0.9])
    print(f"\n### {name}: {len(ladders)} ladders, {len(after)} steps; pace_log_sd {low:.3f}, {middle:.3f}, {high:.3f}")
    print(f"(p10, p50, p90). {len(of_run)} steps speak of the long run, the others of these minutes.")
    print("Coverage (share of steps with an interval) width.\n")
    print("| | scatter of ln | before | after | after, of the long run |\n|---|---|---|---|---|")
    for stem in STEMS:
        values = np.array([one[stem][0] or np.nan for one in after])
        scatter = float(np.nanstd(np.log(values))) if np.isfinite(values).any() else np.nan
        cells = " | ".join(cell(steps, stem, true[stem], scatter) for steps in (before, after, of_run))
        print(f"| {stem} | {scatter:.3f} | {cells} |")


def worth(name: str, ladders: Sequence[Ladder]) -> None:
    """Scatter of one step, of two neighbours (a step twice as long), and of two far apart (a second ramp)."""
    cells = []
    for stem in ("itl_p50", "itl_p95", "ttft_p50", "ttft_p95"):
        logs = np.log([[step[stem][0] or np.nan for step in one.after] for one in ladders])
        alone = np.nanstd(logs)
        longer = np.nanstd((logs[:, :-1] + logs[:, 1:]) / 2.0)
        again = np.nanstd((logs[:, : STEPS // 2] + logs[:, -(STEPS // 2) :]) / 2.0)
        cells.append(f"{alone:.3f} {longer:.3f} {again:.3f}")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def repeated(name: str, ladders: Sequence[Ladder]) -> None:
    """Coverage (share printed) of single steps, and of means over 2 and 3 of other ladders as repeats pool them."""
    true, cells = truths([one.seen for one in ladders]), []
    for n in (1, 2, 3):
        printed = held = all_ = 0
        for i in range(0, len(ladders) - n + 1, n):
            for steps in zip(*(one.after for one in ladders[i : i + n]), strict=True):
                for stem in STEMS:
                    one = interval([step[stem] for step in steps])
                    all_ += 1
                    printed += one is not None
                    held += one is not None and one[0] <= true[stem] <= one[1]
        cells.append(f"{held / max(printed, 1):.3f} ({printed / all_:.2f})")
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def interval(each: Sequence[Interval]) -> tuple[float, float] | None:
    """The one that is printed for these repeats."""
    ends = [(low, high) for _, low, high in each]
    if len(each) == 1:
        (low, high) = ends[0]
        return (low, high) if low and high else None
    spread = spread_of(value for value, _, _ in each)
    if spread is None or spread.n < 2:
        return None
    half = max(spread.half_width, stated(ends))
    return (spread.mean * float(np.exp(-half)), spread.mean * float(np.exp(half))) if half <= TOO_WIDE else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ladders", type=int, default=91, help="of each kind; 91 are 1,001 steps")
    parser.add_argument("--seed", type=int, default=80_000)
    parser.add_argument("--regimes", nargs="*", default=["captured", "none", "doubling", "neighbour", "slow_drift"])
    parser.add_argument("--processes", type=int, default=2)
    asked = parser.parse_args()
    begun_s = time.monotonic()
    print(f"{platform.machine()}, Python {platform.python_version()}, seeds from {asked.seed}")
    found = {}
    with Pool(asked.processes) as pool:
        for name in asked.regimes:
            jobs = [(name, asked.seed + i) for i in range(asked.ladders)]
            found[name] = pool.map(one, jobs, chunksize=2)
            show(name, found[name])
    print("\n### one step, a step twice as long, two ramps: scatter of ln\n")
    print("| | itl_p50 | itl_p95 | ttft_p50 | ttft_p95 |\n|---|---|---|---|---|")
    for name, ladders in found.items():
        worth(name, ladders)
    print(
        "\n### all figures: steps of one ramp, means over 2 ramps, over 3: coverage of the long run (share printed)\n"
    )
    print("| | 1 | 2 | 3 |\n|---|---|---|---|")
    for name, ladders in found.items():
        repeated(name, ladders)
    print(f"\n{time.monotonic() - begun_s:.0f} s")


if __name__ == "__main__":
    main()
