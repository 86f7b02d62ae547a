"""Are the three numbers right? Bias, spread, brackets, intervals, false alarms and minutes over whole ramps.

    python benchmarks/knee.py [--ramps 120] [--seed 20000] [--measure 60] [--soak 300] [--quiet-ramps 300]

Each engine and workload is drawn at random; its capacity c is its completion rate while a queue never empties (good
to 1 %). Seeds below 20000 were looked at when the procedure was chosen.
"""

import argparse
import platform
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pool

import detectors
import numpy as np
from ramp_bench import CASES, SLO_QUANTILE, SLO_SHARE, Ramp, ramp, slo_of

from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.itl_knee import p99_itl_knee
from loadramp.analysis.overload import climb
from loadramp.analysis.slo_capacity import slo_capacity
from loadramp.record.row import Row
from loadramp.record.types import Estimate

Detector = Callable[[Sequence[Row]], Estimate]

DETECTORS: dict[str, Detector] = {
    "elasticity of p99 ITL > 1": detectors.elasticity,
    "  with 95 % confidence": partial(detectors.elasticity, sure=True),
    "  two steps in a row": partial(detectors.elasticity, in_a_row=2),
    "p99 ITL above the line of earlier steps": detectors.extrapolation,
    "broken stick, log-log, BIC": detectors.broken_stick,
    "kneedle on p99 ITL": detectors.kneedle,
    "kneedle on throughput": partial(detectors.kneedle, metric="throughput"),
    "a + b / (1 - r/c) on p99 ITL": detectors.hyperbola,
    "universal scalability law, peak": detectors.usl,
    "completions below 90 % of arrivals": detectors.completions,
    "elasticity of p50 TTFT > 2": partial(detectors.elasticity, metric="ttft_p50", threshold=2.0),
    "backlog, slope alone": partial(detectors.signal, name="backlog_slope"),
    "server queue": partial(detectors.signal, name="server_queue"),
    "any signal": detectors.signal,
    "min(r, c) fit alone": detectors.throughput_fit,
    "ceiling (the default)": ceiling,
}


def ceilings(ramps: Sequence[Ramp]) -> None:
    """One line a case."""
    print(
        f"{'case':20s} {'n':>4s} {'found':>6s} {'early':>6s} {'bracket':>8s}  {'p5':>5s} {'median':>6s} {'p95':>5s} "
        f"{'sd':>5s} {'+-10%':>6s} {'+-5%':>6s} {'covers':>7s} {'half':>5s}  {'held':>5s} {'held/c':>6s} {'climb':>6s} "
        f"{'all':>5s}"
    )
    for case in CASES:
        own = [one for one in ramps if one.case == case]
        if own:
            print(_line(case, own))
    print(
        "early: a ceiling below 0.8 c.  bracket: [last quiet - 5 %, first saturated + 5 %] holds c.  p5..p95: "
        "estimate / c, sd of its logarithm.\ncovers, half: the printed 95 % interval and its half-width.  held: a soak "
        "was quiet, at held/c.  climb, all: minutes without and with the soak."
    )


def _line(case: str, own: Sequence[Ramp]) -> str:
    found = [(one, ceiling(one.rows)) for one in own]
    found = [(one, e) for one, e in found if e.status in {"found", "below_range"} and e.rate_rps]
    ratio = np.array([e.rate_rps / one.capacity_rps for one, e in found if e.rate_rps])
    covered = [e.low_rps <= one.capacity_rps <= e.high_rps for one, e in found if e.low_rps and e.high_rps]
    half = [(e.high_rps - e.low_rps) / 2 / e.rate_rps for _, e in found if e.low_rps and e.high_rps and e.rate_rps]
    inside = [_bracketed(one) for one, _ in found]
    held = [e.sustained_rps / one.capacity_rps for one, e in found if e.sustained_rps]
    p5, p50, p95 = np.percentile(ratio, [5, 50, 95])
    return (
        f"{case:20s} {len(own):4d} {len(found) / len(own):6.3f} {np.mean(ratio < 0.8):6.3f} {np.mean(inside):8.3f}  "
        f"{p5:5.2f} {p50:6.2f} {p95:5.2f} {np.std(np.log(ratio)):5.3f} {np.mean(abs(ratio - 1) <= 0.1):6.3f} "
        f"{np.mean(abs(ratio - 1) <= 0.05):6.3f} {np.mean(covered):7.3f} {np.median(half):5.3f}  "
        f"{len(held) / len(found):5.2f} {np.median(held) if held else np.nan:6.2f} "
        f"{np.median([one.climb_s for one in own]) / 60:6.1f} {np.median([one.total_s for one in own]) / 60:5.1f}"
    )


def _bracketed(one: Ramp) -> bool:
    found = climb(one.steps)
    first = next((row.rate_rps for row in found.above if row.saturated), np.inf)
    low = found.last_quiet.rate_rps if found.last_quiet else 0.0
    return bool(0.95 * low <= one.capacity_rps <= 1.05 * first)


def side_by_side(ramps: Sequence[Ramp], quiet: Sequence[Ramp]) -> None:
    """Every detector on the same rows; ``quiet`` are ramps that ended at 0.6 of the capacity."""
    print(f"{'detector':42s} {'found':>6s} {'right':>6s} {'false':>6s}  {'p10':>5s} {'median':>6s} {'p90':>5s}")
    for name, detect in DETECTORS.items():
        found = [(one, detect(one.steps)) for one in ramps]
        hits = [(one.capacity_rps, e) for one, e in found if e.status in {"found", "below_range"} and e.rate_rps]
        ratio = np.array([e.rate_rps / c for c, e in hits if e.rate_rps])
        right = [_right(e, c) for c, e in hits]
        wrong = [detect(one.steps).status in {"found", "below_range"} for one in quiet]
        p10, p50, p90 = np.percentile(ratio, [10, 50, 90]) if len(ratio) else [np.nan] * 3
        print(
            f"{name:42s} {len(hits) / len(found):6.2f} {sum(right) / len(found):6.2f} {np.mean(wrong):6.3f}  "
            f"{p10:5.2f} {p50:6.2f} {p90:5.2f}"
        )
    print(
        "right: the bracket holds c, or the point is within 10 % of it.  false: fires although the ramp ended at 0.6 c."
    )


def _right(found: Estimate, capacity: float) -> bool:
    low, high = found.low_rps or 0.0, found.high_rps or np.inf
    if found.detector in {"elasticity", "extrapolation", "completions", "signal"}:
        return bool(0.9 * low <= capacity <= 1.1 * high)
    return bool(found.rate_rps and abs(found.rate_rps / capacity - 1) <= 0.1)


def knees(ramps: Sequence[Ramp]) -> None:
    """What p99_itl_knee says of the same ramps."""
    found = [(one.capacity_rps, p99_itl_knee(one.rows)) for one in ramps]
    counts = {status: sum(e.status == status for _, e in found) for status in sorted({e.status for _, e in found})}
    print(", ".join(f"{status} {count}" for status, count in counts.items()))
    for cause in ("capacity", "prefill_mixing"):
        at = [e.rate_rps / c for c, e in found if e.cause == cause and e.rate_rps]
        if at:
            p10, p50, p90 = np.percentile(at, [10, 50, 90])
            print(f"{cause}: {len(at)} of {len(found)}, at {p10:.2f} - {p50:.2f} - {p90:.2f} of c (p10, median, p90)")


def slos(ramps: Sequence[Ramp]) -> None:
    """SLO capacity with the limit set to what the metric truly is at SLO_SHARE of the capacity."""
    print(f"{'limit':8s} {'n':>4s} {'found':>6s}  {'p10':>5s} {'median':>6s} {'p90':>5s} {'covers':>7s}")
    for metric in ("itl", "ttft"):
        found = []
        for one in ramps:
            answer = slo_capacity(one.rows, slo_of({metric: one.limits[metric]}))
            if answer.status == "found" and answer.rate_rps:
                found.append((answer, SLO_SHARE * one.capacity_rps))
        ratio = [e.rate_rps / true for e, true in found if e.rate_rps]
        covered = [(e.low_rps or 0.0) <= true <= (e.high_rps or np.inf) for e, true in found]
        p10, p50, p90 = np.percentile(ratio, [10, 50, 90]) if ratio else [np.nan] * 3
        share = len(found) / len(ramps)
        print(f"{metric:8s} {len(ramps):4d} {share:6.2f}  {p10:5.2f} {p50:6.2f} {p90:5.2f} {np.mean(covered):7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ramps", type=int, default=120, help="ramps of each case")
    parser.add_argument("--seed", type=int, default=20_000)
    parser.add_argument("--measure", type=float, default=60.0)
    parser.add_argument("--soak", type=float, default=300.0)
    parser.add_argument(
        "--quiet-ramps",
        type=int,
        default=300,
        help="ramps that end at 0.6 of the capacity; a third as many with bursts, and with stalls",
    )
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    print(
        f"# python {platform.python_version()}, seeds from {args.seed}, steps {args.measure:g} s, soak {args.soak:g} s"
    )
    jobs = [(case, args.seed + k, args.measure, args.soak, None) for case in args.cases for k in range(args.ramps)]
    quiet = [
        (case, args.seed + 10_000 + k, args.measure, 0.0, 0.6)
        for case, share in (("population", 1), ("bursty", 3), ("stalls", 3))
        for k in range(args.quiet_ramps // share)
    ]
    with Pool(args.processes) as pool:
        done = [one for one in pool.starmap(ramp, jobs, chunksize=2) if one is not None]
        still = [one for one in pool.starmap(ramp, quiet, chunksize=2) if one is not None]
    print("\n## ceiling")
    ceilings(done)
    print("\n## ramps that end at 0.6 c: false ceilings")
    for case in ("population", "bursty", "stalls"):
        own = [one for one in still if one.case == case]
        false = [one.seed for one in own if ceiling(one.rows).status in {"found", "below_range"}]
        print(f"{case:20s} {len(false)} of {len(own)} {false if false else ''}")
    population = [one for one in done if one.case == "population"]
    if population:
        print("\n## detectors side by side, on the population")
        side_by_side(population, [one for one in still if one.case == "population"])
    for case in [name for name in ("population", "1024 sequences") if name in args.cases]:
        print(f"\n## SLO capacity for p{100 * SLO_QUANTILE:g} limits: {case}")
        slos([one for one in done if one.case == case])
        print(f"\n## p99 ITL knee: {case}")
        knees([one for one in done if one.case == case])


if __name__ == "__main__":
    main()
