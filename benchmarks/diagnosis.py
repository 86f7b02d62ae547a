"""Is the first finding right? A confusion matrix over ramps with one thing wrong, and false findings on healthy ones.

    python benchmarks/diagnosis.py [--seeds 50] [--population 60] [--first 40000] [--processes 2] [--only NAME]

Every row is a class of ramps (benchmarks/diagnosis_bench.py) with what must be found first. ``right``: it was.
``named``: it is among the findings that are at least likely. Then random engines in overload, with and without their
metrics: do both tell the same story? Seeds below 40000 were looked at when the rules were made.
"""

import argparse
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from multiprocessing import Pool

import numpy as np
from diagnosis_bench import CLASSES, population

from loadramp.analysis.diagnosis.gap_causes import attribute
from loadramp.analysis.latency import window_view
from loadramp.record.table import Table


def diagnosed(job: tuple[str, int]) -> tuple[str, int, list[tuple[str, str]]]:
    """Class and seed of a ramp, and its findings as (code, confidence)."""
    name, seed = job
    run = CLASSES[name][1](seed)
    return name, seed, [(one.code, one.confidence) for one in run.findings]


def table(found: Sequence[tuple[str, int, list[tuple[str, str]]]]) -> None:
    """One line a class: how often the first finding is right, and what else came first."""
    print(
        f"{'what is wrong':22s} {'n':>4s} {'right':>6s} {'named':>6s}  first finding where another came first (seeds)"
    )
    for name, (code, _) in CLASSES.items():
        own = [(seed, findings) for which, seed, findings in found if which == name]
        if not own:
            continue
        first = {seed: findings[0][0] if findings else "none" for seed, findings in own}
        named = sum(any(c == code and sure != "possible" for c, sure in findings) for _, findings in own)
        wrong = Counter(one for one in first.values() if one != code)
        seeds = {one: [seed for seed, c in first.items() if c == one][:3] for one in wrong}
        others = ", ".join(f"{one} {n} {seeds[one]}" for one, n in wrong.most_common())
        right = len(own) - sum(wrong.values())
        print(f"{name.strip():22s} {len(own):4d} {right / len(own):6.2f} {named / len(own):6.2f}  {others}")


def matrix(found: Sequence[tuple[str, int, list[tuple[str, str]]]]) -> None:
    """Classes of one expected code together, against the first finding."""
    expected = list(dict.fromkeys(code for code, _ in CLASSES.values()))
    counts = Counter((CLASSES[name][0], findings[0][0] if findings else "none") for name, _, findings in found)
    columns = [*expected, *sorted({seen for _, seen in counts} - set(expected))]
    print(f"{'expected / first':28s}" + "".join(f"{i + 1:>5d}" for i in range(len(columns))))
    for i, code in enumerate(expected):
        if any(counts[code, seen] for seen in columns):
            print(f"{i + 1:2d} {code:25s}" + "".join(f"{counts[code, seen] or '.':>5}" for seen in columns))
    for i, code in enumerate(columns[len(expected) :], start=len(expected) + 1):
        print(f"{i:2d} {code}")


def synthetic(requests: int, tokens: int, rate_rps: float, seed: int = 0) -> Table:
    """Poisson arrivals, exponential TTFT of 0.1 s, lognormal gaps of 20 ms."""
    rng = np.random.default_rng(seed)
    due_s = np.cumsum(rng.exponential(1.0 / rate_rps, requests))
    first_s = due_s + rng.exponential(0.1, requests)
    gaps_s = 0.02 * rng.lognormal(0.0, 0.3, (requests, tokens))
    gaps_s[:, 0] = 0.0
    event_s = first_s[:, None] + np.cumsum(gaps_s, axis=1)
    columns = {f.name: np.full(requests, np.nan) for f in fields(Table)}
    columns |= {name: np.zeros(requests, dtype=np.int64) for name in ("step", "worker")}
    columns |= {name: np.full(requests, "", dtype=object) for name in ("error", "error_detail", "label", "model")}
    columns |= {
        "seq": np.arange(requests),
        "due_s": due_s,
        "sent_s": due_s + 0.0005,
        "stream_end_s": event_s[:, -1],
        "prompt_tokens": np.full(requests, 512.0),
        "asked_output_tokens": np.full(requests, float(tokens)),
        "output_tokens": np.full(requests, float(tokens)),
        "status": np.full(requests, "ok", dtype=object),
        "token_source": np.full(requests, "usage", dtype=object),
        "kernel_stamps": np.ones(requests, dtype=np.bool_),
        "begin": np.arange(requests + 1) * tokens,
        "event_s": event_s.ravel(),
        "event_tokens": np.ones(requests * tokens, dtype=np.int64),
        "event_choice": np.zeros(requests * tokens, dtype=np.int64),
    }
    return Table(**columns)


def speed(requests: int = 5000, tokens: int = 201) -> None:
    """How long the causes of a million gaps take, two thousand of them long."""
    table = synthetic(requests, tokens, requests / 300.0)
    late = np.random.default_rng(0).random(len(table.event_s)) < 0.02
    table = replace(table, event_s=np.sort((table.event_s + 0.3 * late).reshape(requests, tokens), axis=1).ravel())
    seen = window_view(table, (0.0, float(table.event_s.max()) + 1.0))
    begun = time.perf_counter()
    found = attribute(seen)
    took_s = time.perf_counter() - begun
    assert found is not None
    print(f"\n{found.gaps:,d} gaps, {len(found.cause):,d} of them long: {took_s:.2f} s")


IMPOSSIBLE = {"engine_stall", "engine_unstable", "stream_stall", "autoscaler_moved", "proxy_buffering",
              "client_limited", "server_down", "admission_failure", "errors", "speculation_weak",
              "healthy"}  # fmt: skip


def both_ways(seed: int) -> list[list[tuple[str, str]]] | None:
    """Findings of one random engine with and without its metrics."""
    out = []
    for metrics in (True, False):
        run = population(seed, metrics)
        if run is None:
            return None
        out.append([(one.code, one.confidence) for one in run.findings])
    return out


def overloaded(found: Sequence[list[list[tuple[str, str]]]]) -> None:
    """What came first on random engines, with and without metrics."""
    pairs = Counter(
        (with_[0][0] if with_ else "none", without[0][0] if without else "none") for with_, without in found
    )
    print(f"{'first with metrics':28s} {'first without':28s} {'n':>4s}")
    for (with_, without), n in pairs.most_common():
        print(f"{with_:28s} {without:28s} {n:4d}")
    counted = [without for with_, without in found if ("kv_eviction", "certain") in with_]
    others = [without for with_, without in found if ("kv_eviction", "certain") not in with_]
    seen = sum("kv_eviction" in dict(without) for without in counted)
    false = sum("kv_eviction" in dict(without) for without in others)
    wrong = sum(code in IMPOSSIBLE for both in found for one in both for code, sure in one if sure != "possible")
    print(f"KV eviction that the server counted, found without metrics: {seen} of {len(counted)}; claimed without it: "
          f"{false} of {len(others)}\nfindings that cannot be right: {wrong}\n")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50, help="ramps of each class")
    parser.add_argument("--population", type=int, default=60, help="random engines in overload")
    parser.add_argument("--first", type=int, default=40_000, help="first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="classes whose name contains this")
    args = parser.parse_args()
    jobs = [(name, args.first + k) for name in CLASSES if args.only in name for k in range(args.seeds)]
    begun = time.perf_counter()
    with Pool(args.processes) as pool:
        found = pool.map(diagnosed, jobs, chunksize=2)
        told = pool.map(both_ways, range(args.first, args.first + args.population), chunksize=1)
    took_s = time.perf_counter() - begun
    print(f"# python {platform.python_version()}, {args.seeds} seeds from {args.first}, {took_s:.0f} s")
    table(found)
    healthy = [findings for name, _, findings in found if CLASSES[name][0] == "healthy"]
    false = sum(findings[:1] != [] and findings[0][0] != "healthy" for findings in healthy)
    others = [(CLASSES[name][0], findings) for name, _, findings in found if CLASSES[name][0] != "healthy"]
    right = sum(bool(findings) and findings[0][0] == code for code, findings in others)
    if healthy:
        print(f"\nfalse findings on healthy ramps: {false} of {len(healthy)} ({false / len(healthy):.1%})")
    if others:
        print(f"first finding right on the others: {right} of {len(others)} ({right / len(others):.1%})\n")
    matrix(found)
    random = [both for both in told if both is not None]
    if random:
        print(f"\n## {len(random)} random engines, ramped to 1.6 times their capacity")
        overloaded(random)
    speed()


if __name__ == "__main__":
    main()
