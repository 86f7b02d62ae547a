"""How often is a night called worse that is not, and how long does it take to see one that is?

    python benchmarks/trend.py [--years 60] [--changes 300] [--seed 30000]
    python benchmarks/trend.py --second      # a second change, some nights after the first or after it was accepted

Nights are drawn with a standard deviation of 4 % (the median of three short runs of 2.7 % is what a careful setup gets;
4 % is a careless one) on six kinds of noise; every rule sees one night more at a time and its past, never its future.
An alarm ends that rule's baseline, as an alarm does in the product. Only alarms of the planted direction count as
detections.
"""

import argparse
import math
import platform
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pool
from typing import Any

import numpy as np

from loadramp.nightly.alarms import Rules
from loadramp.nightly.history import Alarm
from loadramp.nightly.series import Night
from loadramp.nightly.trend import judge_series
from loadramp.simulator.regimes import REGIMES, RegimePath

METRIC = "ref_itl_p99_s"  # lower is better: a rise is a regression
NIGHTS = 365
SEEN = 60
"""Nights before a planted change."""
KINDS = ("gauss", "t3", "AR(.4)", "outliers", "drift", "regimes")
RUNS, RUN_S, GRID_S = 3, 60.0, 0.5
"""Of a night of an engine with regimes: runs, their length, and how often its pace is looked at."""
CHANGES = (0.05, 0.10, 0.20)
BY = (3, 7, 14)


def noise(kind: str, n: int, sd: float, rng: np.random.Generator) -> np.ndarray:
    """Logarithms of n nights. Outliers: one night in 20 is 1.3 times as high; drift: 2 % in 30 nights; regimes: the
    median of three short runs on an engine that is slow at times, as a real one was."""
    plain = rng.normal(0.0, sd, n)
    if kind == "t3":
        return rng.standard_t(3, n) * sd / math.sqrt(3.0)
    if kind == "AR(.4)":
        out = np.empty(n)
        out[0] = plain[0]
        for i in range(1, n):
            out[i] = 0.4 * out[i - 1] + math.sqrt(1.0 - 0.16) * plain[i]
        return out
    if kind == "outliers":
        return plain + np.where(rng.random(n) < 0.05, math.log(1.3), 0.0)
    if kind == "regimes":
        return plain + np.array([slow_at_times(rng) for _ in range(n)])
    return plain + (np.arange(n) * math.log(1.02) / 30.0 if kind == "drift" else 0.0)


def slow_at_times(rng: np.random.Generator) -> float:
    """Logarithm of the median over RUNS of the mean step time of a run, the engine's fast pace being 0."""
    at_s = np.arange(0.0, RUN_S, GRID_S).tolist()
    paths = [RegimePath(REGIMES["captured"], own) for own in rng.spawn(RUNS)]
    return math.log(float(np.median([np.mean([path.factor(t_s) for t_s in at_s]) for path in paths])))


def product(
    logs: np.ndarray, again: np.ndarray, begin: int, *, rerun: bool, rule: str = "", accepted: int | None = None
) -> list[int]:
    """Nights (from ``begin`` on) at which the product raises an alarm for the worse.

    Args:
        logs: first measurement of each night.
        again: what a re-run of that night would have measured.
        begin: first night that is judged.
        rerun: measure again at once when a night looks bad.
        rule: only this one's alarms; empty: both.
        accepted: the night at which somebody accepts the level.
    """
    rules = Rules(p_limit=0.0) if rule == "page" else Rules(z_limit=math.inf) if rule == "ticket" else Rules()
    nights: list[Night] = []
    known: list[Alarm] = []
    raised = []
    taken: list[str] = []
    for i, log in enumerate(logs):
        nights.append(_night(i, log, False))
        if i < begin:
            continue
        alarm, standing = judge_series(nights, nights[-1].night, METRIC, known, taken, rules)
        if rerun and standing.state == "suspect":
            nights[-1] = _night(i, (log + again[i]) / 2.0, True)
            alarm, _ = judge_series(nights, nights[-1].night, METRIC, known, taken, rules)
        if i == accepted:
            taken.append(nights[-1].night)
        if alarm:
            known.append(alarm)
            if alarm.direction == "worse":
                raised.append(i)
    return raised


def _night(i: int, log: float, rerun: bool) -> Night:
    return Night(f"{i:06d}", math.exp(log), None, None, 3, None, rerun, {})


def threshold(logs: np.ndarray, again: np.ndarray, begin: int, *, span: int) -> list[int]:
    """More than 10 % above yesterday, or above the median of the last ``span`` nights."""
    return [i for i in range(begin, len(logs)) if logs[i] - float(np.median(logs[i - span : i])) > math.log(1.1)]


RULES: dict[str, Callable[..., list[int]]] = {
    "> 10 % above yesterday": partial(threshold, span=1),
    "> 10 % above the median of 7": partial(threshold, span=7),
    "page: two nights": partial(product, rerun=False, rule="page"),
    "page: two nights or a re-run": partial(product, rerun=True, rule="page"),
    "ticket": partial(product, rerun=False, rule="ticket"),
    "both (the default)": partial(product, rerun=False),
    "both, with a re-run": partial(product, rerun=True),
}


def false_alarms(job: tuple[str, str, int, float]) -> tuple[str, str, int, int]:
    """Alarms and judged nights of one year without a change (of drift: with nothing but that)."""
    name, kind, seed, sd = job
    rng = np.random.default_rng(seed)
    logs = noise(kind, NIGHTS, sd, rng)
    again = _rerun(kind, logs, sd, rng)
    return name, kind, len(RULES[name](logs, again, 28)), NIGHTS - 28


def detection(job: tuple[str, str, float, int, float]) -> tuple[str, str, float, int | None]:
    """Nights until the first alarm after a planted change, itself counted; None within two weeks."""
    name, kind, change, seed, sd = job
    rng = np.random.default_rng(seed)
    n = SEEN + max(BY)
    logs = noise(kind, n, sd, rng)
    again = _rerun(kind, logs, sd, rng)
    logs[SEEN:] += math.log1p(change)
    again[SEEN:] += math.log1p(change)
    raised = [i for i in RULES[name](logs, again, SEEN) if i >= SEEN]
    return name, kind, change, raised[0] - SEEN + 1 if raised else None


def second(job: tuple[str, float, int, int, float]) -> tuple[str, float, int, int | None]:
    """Nights until the first alarm after a second change, ``after`` nights from the first, itself counted.

    ``case`` says what became of the first: ``alarm`` (told, left open), ``accepted`` (accepted on its seventh night),
    ``beforehand`` (accepted on its first, so that it raises no alarm), or ``first`` (there was none: the yardstick).
    """
    case, change, after, seed, sd = job
    rng = np.random.default_rng(seed)
    n = SEEN + after + max(BY)
    logs = noise("gauss", n, sd, rng)
    if case != "first":
        logs[SEEN:] += math.log1p(0.2)
    logs[SEEN + after :] += math.log1p(change)
    accepted = {"accepted": SEEN + 6, "beforehand": SEEN}.get(case)
    raised = [i for i in product(logs, logs, SEEN, rerun=False, accepted=accepted) if i >= SEEN + after]
    return case, change, after, raised[0] - SEEN - after + 1 if raised else None


def second_table(sd: float, args: argparse.Namespace, pool: Any) -> None:
    """What became of the first change down, nights since it and size of the second across."""
    cases, since = ("first", "alarm", "accepted", "beforehand"), (7, 10, 20)
    jobs = [
        (case, change, after, args.seed + 9000 + k, sd)
        for case in cases for change in CHANGES for after in since for k in range(args.changes)
    ]  # fmt: skip
    found = pool.map(second, jobs, chunksize=16)
    print(f"\n## a second change, detected by night 3/7/14; nights with a standard deviation of {sd:.0%}")
    print(f"{'first change':14s}{'nights since':>13s}" + "".join(f"{f'+{change:.0%}':>18s}" for change in CHANGES))
    for case in cases:
        for after in since:
            cells = []
            for change in CHANGES:
                delays = [d for what, c, a, d in found if (what, c, a) == (case, change, after)]
                shares = [np.mean([d is not None and d <= by for d in delays]) for by in BY]
                cells.append(f"{'/'.join(f'{share:.2f}' for share in shares):>18s}")
            print(f"{case:14s}{after:13d}{''.join(cells)}")


def _rerun(kind: str, logs: np.ndarray, sd: float, rng: np.random.Generator) -> np.ndarray:
    """A second measurement of the same night: half of the variance is the night's own (machine, weather), half is new.

    An outlier is the night's own: whatever disturbed it still goes on.
    """
    fresh = rng.normal(0.0, sd * math.sqrt(0.75), len(logs))
    return 0.5 * logs + fresh if kind != "outliers" else np.where(logs > 0.2, logs, 0.5 * logs) + fresh


def table(
    names: Sequence[str],
    alarms: Sequence[tuple[str, str, int, int]],
    found: Sequence[tuple[str, str, float, int | None]],
) -> None:
    """Rules down, noise and changes across."""
    print(f"{'':32s}| false alarms in 100 nights" + " " * 30 + "| detected by night 3/7/14 (gauss)")
    head = "".join(f"{kind:>9s}" for kind in KINDS)
    print(f"{'rule':32s}|{head}   |" + "".join(f"{f'+{change:.0%}':>18s}" for change in CHANGES))
    for name in names:
        rates = []
        for kind in KINDS:
            own = [(a, n) for who, what, a, n in alarms if (who, what) == (name, kind)]
            rates.append(f"{100 * sum(a for a, _ in own) / sum(n for _, n in own):9.2f}")
        cells = []
        for change in CHANGES:
            own_delays = [d for who, what, c, d in found if (who, what, c) == (name, "gauss", change)]
            shares = [np.mean([d is not None and d <= by for d in own_delays]) for by in BY]
            cells.append(f"{'/'.join(f'{share:.2f}' for share in shares):>18s}")
        print(f"{name:32s}|{''.join(rates)}   |{''.join(cells)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--years", type=int, default=60, help="years of quiet nights of each kind")
    parser.add_argument("--changes", type=int, default=300, help="planted changes of each size")
    parser.add_argument("--seed", type=int, default=30_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--second", action="store_true", help="only the table of second changes")
    parser.add_argument("--rule", choices=list(RULES), action="append", help="only these; may be repeated")
    args = parser.parse_args()
    names = args.rule or list(RULES)
    print(f"# python {platform.python_version()}, {args.years} years, {args.changes} changes, seeds from {args.seed}")
    for sd in (0.04, 0.02):
        with Pool(args.processes) as pool:
            second_table(sd, args, pool)
        if args.second:
            continue
        quiet = [(name, kind, args.seed + k, sd) for name in names for kind in KINDS for k in range(args.years)]
        planted = [
            (name, "gauss", c, args.seed + 5000 + k, sd) for name in names for c in CHANGES for k in range(args.changes)
        ]
        with Pool(args.processes) as pool:
            alarms = pool.map(false_alarms, quiet, chunksize=8)
            found = pool.map(detection, planted, chunksize=16)
        print(f"\n## nights with a standard deviation of {sd:.0%}")
        table(names, alarms, found)
    print("Alarms under drift are of a real change, 24 % in a year.")


if __name__ == "__main__":
    main()
