"""How often `loadramp tune` finds the best flags of simulated engines, and in how many minutes, beside a full grid.

Engines are those of the population with tight limits; candidates are two limits on sequences, a larger token budget and
an 8-bit KV cache. The truth is a configuration's long-run completion rate under overload. A start of a server counts
60 s. The race is the product's (`next_of`), and so are ramp, rows and ceiling; only time is simulated.

    python benchmarks/tune.py [--engines 50] [--first 0] [--processes 2] [--lines FILE]
    python benchmarks/tune.py --read FILE

FILE gets a line of JSON as each engine ends; ``--read`` prints the table of such lines, however many there are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from math import exp
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from engine_population import Lengths, capacity_rps, random_profile
from ramp_bench import Bench

from loadramp.analysis import steady_state
from loadramp.analysis.ceiling import ceiling
from loadramp.record.types import Step
from loadramp.scenario.scenario import Slo
from loadramp.simulator.practise import with_flags
from loadramp.simulator.profiles import EngineProfile
from loadramp.tune.candidates import Search, grid_of
from loadramp.tune.flags import knobs_of
from loadramp.tune.race import NextVisit, RaceRules, next_of
from loadramp.tune.score import not_yet
from loadramp.tune.steps import known_start
from loadramp.tune.verdict import TuneVerdict, verdict_of
from loadramp.tune.visit import Visit
from loadramp.workload.ramps import RAMPS

TRIES = ("--max-num-seqs 128", "--max-num-seqs 512", "--max-num-batched-tokens 8192", "--kv-cache-dtype fp8")
MOST = "--kv-cache-dtype fp8 --max-num-batched-tokens 8192 --max-num-seqs 512"
"""More of everything: no configuration sustains more, up to the error of the simulation."""
START_S, SETTLE_S = 60.0, 10.0
STEP_S = (20.0, 40.0, 60.0)
GRID_STEP_S = 60.0
SLOWER = 3.0
"""Times the costs of the population: fewer steps of the engine to simulate in the same minutes."""
SHORTER = 3.0
"""Its answers are so many times shorter."""
FASTEST_RPS = 12.0
"""Faster machines are passed over: they take the same minutes and many more of the simulation."""
TRUTH_REQUESTS = 4000
CLOSE = 0.95
"""Of the best one's capacity: as good as the best."""


@dataclass(slots=True)
class Machine:
    """One simulated machine: what flags make of its engine, and the true capacity of each configuration."""

    profile: EngineProfile
    lengths: Lengths
    seed: int
    known: dict[str, float] = field(default_factory=dict)

    def truth(self, flags: str) -> float:
        """The true capacity with these flags: of the same requests for all of them."""
        if flags not in self.known:
            rng = np.random.default_rng([self.seed, 5])
            self.known[flags] = capacity_rps(engine_of(self.profile, flags), self.lengths, rng, TRUTH_REQUESTS)
        return self.known[flags]

    def visit(self, flags: str, start_rps: float, measure_s: float, number: int, final: bool = True) -> Visit:
        """A start of the server with these flags and a climb; ``took_s`` counts both. ``final``: as of ``score_of``."""
        bench = Bench(engine_of(self.profile, flags), self.lengths, 1000 * self.seed + number)
        bench.offer(start_rps, max(SETTLE_S, 20.0 / start_rps), -1)
        rows = []
        while isinstance(step := RAMPS["ceiling"](rows, start_rps=start_rps, soak_s=0.0), Step):
            warmup_s = steady_state.warmup_s(bench.latest_e2e_s(), measure_s)
            timed = replace(step, begin_s=bench.now_s, warmup_s=warmup_s, measure_s=measure_s)
            rows.append(bench.measure(timed, rows, Slo()))
        found = ceiling(rows)
        took_s = START_S + bench.now_s
        if found.status not in {"found", "below_range"} or found.rate_rps is None:
            return Visit(flags, state="unmeasured", reason=found.reason, took_s=took_s)
        if not final and (short := not_yet(found, rows)):
            facts = {"ceiling_rps": found.rate_rps}
            return Visit(flags, state="unmeasured", reason=short, took_s=took_s, facts=facts)
        rate = found.rate_rps
        high = found.high_rps or rate
        low = found.low_rps or rate * rate / high
        return Visit(flags, value=rate, low=low, high=high, took_s=took_s, facts={"ceiling_rps": rate})


def engine_of(profile: EngineProfile, flags: str) -> EngineProfile:
    """The engine with flags as the simulator's command takes them."""
    known = {name[2:].replace("-", "_"): words[1] for name, words in knobs_of(flags).items()}
    numbers = {name: value if name == "kv_cache_dtype" else int(value) for name, value in known.items()}
    return with_flags(profile, numbers)


def machine_of(seed: int) -> Machine | None:
    """The machine of one seed; None where it is too fast to climb in a simulation, or a configuration cannot start."""
    rng = np.random.default_rng([seed, 77])
    profile, lengths = random_profile(rng)
    lengths = replace(lengths, output_median=lengths.output_median / SHORTER)
    costs = {name: SLOWER * getattr(profile, name) for name in ("t0_s", "decode_s", "context_s", "prefill_s")}
    seqs, blocks = int(rng.choice([16, 32, 64])), int(rng.integers(1500, 12_000))
    machine = Machine(replace(profile, max_num_seqs=seqs, token_budget=2048, kv_blocks=blocks, **costs), lengths, seed)
    try:
        return machine if machine.truth(MOST) <= FASTEST_RPS else None
    except (ValueError, AssertionError):
        return None


def race(machine: Machine, grid: bool = False) -> tuple[TuneVerdict, list[Visit]]:
    """The product's race on one machine."""
    rules = RaceRules(Search(tries=TRIES, grid=grid), rounds=len(STEP_S))
    visits: list[Visit] = []
    while isinstance(action := next_of(rules, visits), NextVisit):
        start = known_start(visits, action.flags, "", "ceiling") or 1.0
        final = action.round == len(STEP_S) - 1
        seen = machine.visit(action.flags, start, STEP_S[action.round], len(visits), final)
        runs = bool(visits) and visits[-1].flags == action.flags
        took_s = seen.took_s - (START_S if runs else 0.0)
        visits.append(replace(seen, purpose=action.purpose, round=action.round, rival=action.rival, took_s=took_s))
    return verdict_of(rules, visits), visits


def full_grid(machine: Machine) -> tuple[str, float]:
    """Every configuration once with fixed steps, from 1 req/s on as a script would: the best ceiling, and seconds."""
    wanted = ["", *grid_of("", TRIES)]
    visits = [machine.visit(flags, 1.0, GRID_STEP_S, 500 + k) for k, flags in enumerate(wanted)]
    best = max(visits, key=lambda one: one.value or 0.0)
    return best.flags, sum(one.took_s for one in visits)


@dataclass(slots=True, frozen=True)
class Result:
    """What both searches found on one machine. Shares are of the best configuration's true capacity."""

    seed: int
    word: str
    best: str
    share: float
    minutes: float
    confirm_minutes: float
    visits: int
    top: str
    """The best configuration, and what became of it."""
    lost: str
    grid_best: str
    grid_share: float
    grid_minutes: float
    told: bool
    """A ratio to the baseline was told; then whether its interval holds the true one, and that is above 1."""
    held: bool
    better: bool
    cpu_s: dict[str, float]


def one_of(seed: int) -> Result:
    """Both searches on the machine of one seed that is not passed over."""
    clock = [time.process_time()]
    machine = machine_of(seed)
    assert machine is not None
    found, visits = race(machine)
    clock.append(time.process_time())
    flags, grid_s = full_grid(machine)
    clock.append(time.process_time())
    truths = {one: machine.truth(one) for one in ("", *grid_of("", TRIES))}
    clock.append(time.process_time())
    best, top = found.best or "", max(truths, key=truths.__getitem__)
    over = found.over_baseline if found.word == "best" else None
    ratio = truths[best] / truths[""]
    return Result(
        seed, found.word, best, truths[best] / truths[top], sum(one.took_s for one in visits) / 60.0,
        sum(one.took_s for one in visits if one.purpose == "confirm") / 60.0, len(visits), top,
        _lost(top, found, visits), flags, truths[flags] / truths[top], grid_s / 60.0, over is not None,
        over is not None and exp(over.low) <= ratio <= exp(over.high), ratio > 1.0,
        dict(zip(("tune", "grid", "truth"), np.diff(clock).round(2).tolist(), strict=True)),
    )  # fmt: skip


def _lost(top: str, found: TuneVerdict, visits: Sequence[Visit]) -> str:
    """What became of the best configuration."""
    own = [one for one in visits if one.flags == top]
    if found.best == top or not own:
        return "" if found.best == top else "never tried"
    after = f"after {len(own)} measurements: "
    if top in found.now.out:
        return after + found.now.out[top]
    return after + ("not told apart in the confirmation" if top == found.rival else "estimated to be lower")


def results(engines: int, first: int, processes: int) -> Iterator[Result]:
    """Of so many machines from one seed on, as each ends: the same ones whatever the number of processes."""
    wanted: list[int] = []
    with Pool(processes) as pool:
        for at in count(first, 4 * processes):
            seeds = range(at, at + 4 * processes)
            wanted += [seed for seed, fits in zip(seeds, pool.map(is_one, seeds, chunksize=1), strict=True) if fits]
            if len(wanted) >= engines:
                break
        yield from pool.imap_unordered(one_of, wanted[:engines], chunksize=1)


def is_one(seed: int) -> bool:
    """The machine of this seed is not passed over."""
    return machine_of(seed) is not None


def table(found: Sequence[Result]) -> None:
    """The table of docs/benchmarks.md, and what is said below it."""
    print("| search | best or within 5 % | worst | minutes p10, median, p90 |\n|---|---|---|---|")
    for name, shares, minutes in (
        ("tune", [one.share for one in found], [one.minutes for one in found]),
        ("grid", [one.grid_share for one in found], [one.grid_minutes for one in found]),
    ):
        close = np.mean(np.asarray(shares) >= CLOSE)
        p10, p50, p90 = np.quantile(minutes, [0.1, 0.5, 0.9])
        print(f"| {name} | {100 * close:.0f} % | {min(shares):.2f} | {p10:.0f}, {p50:.0f}, {p90:.0f} |")
    visits, proving = np.mean([one.visits for one in found]), np.median([one.confirm_minutes for one in found])
    print(f"{len(found)} engines; verdicts: {dict(Counter(one.word for one in found))}")
    print(f"{visits:.1f} measurements a tuning; of its minutes {proving:.0f} are the confirmation (median)")
    told = [one for one in found if one.told]
    wrong = sum(not one.better for one in told)
    print(f"ratio to the baseline: {sum(one.held for one in told)} of {len(told)} intervals hold it; {wrong} best "
          "ones are not better")  # fmt: skip
    for one in sorted(found, key=lambda one: one.share):
        if one.share < CLOSE:
            print(f"missed on {one.seed}: {one.best or 'baseline'} has {one.share:.3f} of {one.top}: {one.lost}")
    for name in ("tune", "grid", "truth"):
        print(f"CPU seconds an engine, {name}: {np.mean([one.cpu_s[name] for one in found]):.1f}")


def read(lines: Iterable[str]) -> list[Result]:
    """The results in a file of lines."""
    return [Result(**json.loads(line)) for line in lines if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--lines", type=Path, help="a line is appended here as each engine ends")
    parser.add_argument("--read", type=Path, help="print the table of these lines, and measure nothing")
    args = parser.parse_args()
    if args.read is not None:
        table(read(args.read.read_text().splitlines()))
        return
    found = []
    for one in results(args.engines, args.first, args.processes):
        found.append(one)
        if args.lines is not None:
            with args.lines.open("a") as lines:
                lines.write(json.dumps(asdict(one)) + "\n")
        print(f"{one.seed}: {one.word} {one.best or 'baseline'}, {one.share:.2f} of the best; {one.minutes:.0f} min, "
              f"grid {one.grid_share:.2f}, {one.grid_minutes:.0f} min", flush=True)  # fmt: skip
    table(found)


if __name__ == "__main__":
    main()
