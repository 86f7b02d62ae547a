"""How long the judge takes: one row of the curve from n requests of k tokens, and a typical step inside a long run.

python benchmarks/analysis_speed.py [--requests 100000] [--tokens 200]
"""

import argparse
import platform
import time
from dataclasses import fields

import numpy as np

from loadramp.analysis.curve import fold
from loadramp.analysis.itl_knee import completed, estimate
from loadramp.record.table import Table
from loadramp.record.types import Step
from loadramp.scenario.scenario import Slo


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


def timed(step: Step, table: Table, repeats: int) -> float:
    """Shortest of ``repeats`` folds, seconds."""
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        row = fold(step, table, slo=Slo(ttft_s=1.0, itl_s=0.1))
        estimate(completed([row]))
        best = min(best, time.perf_counter() - begun)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    rate_rps = args.requests / 300.0
    table = synthetic(args.requests, args.tokens, rate_rps)
    whole = Step(0, rate_rps=rate_rps, warmup_s=0.0, measure_s=float(table.due_s[-1]))
    typical = Step(0, rate_rps=16.0, begin_s=60.0, warmup_s=15.0, measure_s=60.0)
    print(f"# {platform.machine()}, python {platform.python_version()}, numpy {np.__version__}; best of repeats")
    print(f"{'case':52s} {'events':>12s} {'seconds':>8s}")
    print(f"{'one step of everything':52s} {len(table.event_s):12,d} {timed(whole, table, 2):8.2f}")
    for name, requests in (("a 60 s step of 16 req/s", 1_500), ("the same within a run of 10,000 requests", 10_000)):
        small = synthetic(requests, args.tokens, 16.0)
        print(f"{name:52s} {len(small.event_s):12,d} {timed(typical, small, 5):8.3f}")


if __name__ == "__main__":
    main()
