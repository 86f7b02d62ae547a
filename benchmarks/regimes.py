"""How like a real engine is the simulated one whose pace has regimes? Its slow stretches beside the captured ones.

    python benchmarks/regimes.py [--runs 40] [--pairs 40] [--seed 70000] [--processes 2]
    python benchmarks/regimes.py --capture RUN > benchmarks/captured_pace.csv

``captured_pace.csv`` holds the pace of vLLM 0.25.1 on one H200 (8B shape, eager) at a constant 24 req/s for nine
minutes: the median gap of plain decoding per quarter of a second. The same figures are taken of simulated runs of the
same load and length. Then: by how much do two engines with regimes of their own differ, block by block, that get the
same requests?
"""

import argparse
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offline_engine import simulate

from loadramp.analysis import latency
from loadramp.analysis.step_time import StepTimes, pace_of, stretches
from loadramp.comparison.blocks import measure
from loadramp.record.table import Table
from loadramp.runner.scenarios import read_run
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.regimes import REGIMES

CAPTURED = Path(__file__).with_name("captured_pace.csv")
PROFILE = PROFILES["h200-8b-regimes"]
RATE_RPS, WIDTH_S, WARMUP_S, MEASURE_S = 24.0, 0.25, 5.0, 530.0
LAGS_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0)
AVERAGED_S = 20.0
BLOCKS = 20
Floats = NDArray[np.float64]


def load(seed: int, seconds: float) -> tuple[Floats, NDArray[np.int64], NDArray[np.int64]]:
    """Arrivals, prompt and answer lengths as in the captured run: Poisson, 512 and 128 tokens +- 50 %."""
    rng = np.random.default_rng([seed, 0])
    due_s = np.sort(rng.uniform(0.0, seconds, rng.poisson(RATE_RPS * seconds)))
    return due_s, rng.integers(256, 769, len(due_s)), rng.integers(64, 193, len(due_s))


def run(profile: EngineProfile, seed: int, engine: int, seconds: float) -> Table:
    rng = np.random.default_rng([seed, 1 + engine])
    table, _ = simulate(profile, *load(seed, seconds), rng, until_s=seconds, sample_period_s=0.0)
    return table


def captured() -> StepTimes:
    t_s, median_ms = np.genfromtxt(CAPTURED, delimiter=",", skip_header=1, unpack=True)
    known = ~np.isnan(median_ms)
    return StepTimes(float(t_s[0]), WIDTH_S, np.interp(t_s, t_s[known], median_ms[known]) / 1e3, known)


def figures(pace: StepTimes) -> dict[str, float]:
    """What a pace looks like, in the order in which it is printed."""
    parts = stretches(pace)
    slow = [one for one in parts if one.slow]
    lasts_s = np.array([one.lasts_s for one in slow])
    fast_s = np.array([one.lasts_s for one in parts if not one.slow])
    factor = np.array([one.factor for one in slow])
    ratio = pace.median_s / pace.usual_s()
    level = np.log(pace.median_s)
    away = level - level.mean()
    n = round(AVERAGED_S / WIDTH_S)
    blocks = np.median(level[: len(level) // n * n].reshape(-1, n), axis=1)
    out = {
        "usual pace, ms": 1e3 * float(np.median(pace.usual_s())),
        "share of time slow": float(lasts_s.sum() / (lasts_s.sum() + fast_s.sum())),
        "slow stretches a minute": len(slow) * 60.0 / (len(pace.median_s) * WIDTH_S),
    }
    out |= {f"slow stretch p{q}, s": float(np.quantile(lasts_s, q / 100)) for q in (50, 75, 90, 97)}
    out["longest slow stretch, s"] = float(lasts_s.max())
    out["slow time in stretches of 5 s and more"] = float(lasts_s[lasts_s >= 5.0].sum() / lasts_s.sum())
    out |= {f"time between, p{q}, s": float(np.quantile(fast_s, q / 100)) for q in (25, 50, 75, 90)}
    out |= {f"factor of a stretch, p{q}": float(np.quantile(factor, q / 100)) for q in (10, 50, 90)}
    out |= {f"factor over slow time, p{q}": float(np.quantile(ratio[ratio > 1.28], q / 100)) for q in (10, 50, 90)}
    for lag_s in LAGS_S:
        k = round(lag_s / WIDTH_S)
        out[f"autocorrelation at {lag_s:g} s"] = float(np.mean(away[:-k] * away[k:]) / np.mean(np.square(away)))
    out["sd of ln(median pace) over 20 s"] = float(blocks.std(ddof=1))
    return out


def simulated(seed: int) -> tuple[dict[str, float], dict[str, float]]:
    """Figures of the pace, and latencies in ms, of one simulated run like the captured one."""
    table = run(PROFILE, seed, 0, WARMUP_S + MEASURE_S)
    seen = latency.window_view(table, (WARMUP_S, WARMUP_S + MEASURE_S))
    pace = pace_of(seen, WIDTH_S)
    assert pace is not None
    data = latency.families(seen)
    beside = {f"{name} p{q}": 1e3 * float(np.quantile(data[name].ordered, q / 100))
              for name, qs in (("itl", (50, 90, 99)), ("ttft", (50, 90))) for q in qs}  # fmt: skip
    return figures(pace), beside


def scatter(job: tuple[str, int]) -> dict[str, Floats]:
    """ln of the ratio of two engines of that kind of regimes, same requests at the same instants, a value a block."""
    name, seed = job
    profile = replace(PROFILE, regimes=REGIMES[name])
    seconds = WARMUP_S + BLOCKS * AVERAGED_S + 15.0
    tables = [run(profile, seed, engine, seconds) for engine in (0, 1)]
    out: dict[str, list[float]] = {metric: [] for metric in ("itl_p50", "itl_p99", "ttft_p50")}
    for k in range(BLOCKS):
        window = (WARMUP_S + k * AVERAGED_S, WARMUP_S + (k + 1) * AVERAGED_S)
        both = [measure(table, window, shift=False) for table in tables]
        for metric, values in out.items():
            a, b = (one.values[metric] for one in both)
            values.append(np.log(b / a) if a and b else np.nan)
    return {metric: np.array(values) for metric, values in out.items()}


def pairs_line(name: str, found: Sequence[dict[str, Floats]]) -> str:
    cells = []
    for metric in ("itl_p50", "itl_p99", "ttft_p50"):
        d = np.array([one[metric] for one in found])
        away = d - np.nanmean(d)
        cells.append(
            f"{np.nanstd(d):.3f} ({np.nanmean(away[:, :-1] * away[:, 1:]) / np.nanmean(np.square(away)):+.2f})"
        )
    return f"| {name} | {' | '.join(cells)} |"


def capture(path: Path) -> None:
    """Print the pace of a run directory as this benchmark reads it."""
    table = read_run(path)[0].table
    pace = pace_of(latency.window_view(table, (WARMUP_S, WARMUP_S + MEASURE_S)), WIDTH_S)
    assert pace is not None
    print("t_s,median_ms")
    for i, (median_s, known) in enumerate(zip(pace.median_s, pace.known, strict=True)):
        print(f"{WARMUP_S + i * WIDTH_S:g},{f'{1e3 * median_s:.2f}' if known else ''}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("runs", 40), ("pairs", 40), ("seed", 70_000), ("processes", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--capture", type=Path, metavar="RUN", help="print the pace of this run and stop")
    asked = parser.parse_args()
    if asked.capture:
        capture(asked.capture)
        return
    begun_s = time.monotonic()
    print(f"{platform.machine()}, Python {platform.python_version()}, seed {asked.seed}")
    real = figures(captured())
    with Pool(asked.processes) as pool:
        found = pool.map(simulated, range(asked.seed, asked.seed + asked.runs))
        print(f"\npace in quarter seconds, 530 s at {RATE_RPS:g} req/s; {asked.runs} simulated runs")
        print("\n| | captured | simulated, mean | sd |")
        print("|---|---|---|---|")
        for name, value in real.items():
            own = np.array([one[name] for one, _ in found])
            print(f"| {name} | {value:.3g} | {own.mean():.3g} | {own.std(ddof=1):.2g} |")
        print("\nlatencies in ms: " + ", ".join(f"{k} {np.mean([b[k] for _, b in found]):.1f}" for k in found[0][1]))
        print("\ntwo engines, mirrored, blocks of 20 s: sd of ln ratio (correlation of neighbouring blocks)")
        print("\n| regimes | p50 ITL | p99 ITL | p50 TTFT |")
        print("|---|---|---|---|")
        for name in REGIMES:
            jobs = [(name, asked.seed + 1000 + i) for i in range(asked.pairs)]
            print(pairs_line(name, pool.map(scatter, jobs)), flush=True)
    print(f"\n{time.monotonic() - begun_s:.0f} s")


if __name__ == "__main__":
    main()
