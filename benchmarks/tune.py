"""How often `loadramp tune` finds the best flags of simulated engines, and in how many minutes, beside a full grid.

Engines are those of the population with tight limits; candidates are two limits on sequences, a larger token budget and
an 8-bit KV cache. The truth is a configuration's long-run completion rate under overload. A start of a server counts
60 s. The race is the product's (`next_of`), and so are ramp, rows and ceiling; only time is simulated.

    python benchmarks/tune.py [ENGINES] [FIRST SEED]
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp

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
        """The true capacity with these flags."""
        if flags not in self.known:
            rng = np.random.default_rng([self.seed, 5])
            self.known[flags] = capacity_rps(engine_of(self.profile, flags), self.lengths, rng, 2000)
        return self.known[flags]

    def visit(self, flags: str, start_rps: float, measure_s: float, number: int) -> Visit:
        """A start of the server with these flags and a climb; ``took_s`` counts both."""
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
        seen = machine.visit(action.flags, start, STEP_S[action.round], len(visits))
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


def main(engines: int, first: int) -> None:
    shares: dict[str, list[float]] = {"tune": [], "grid": []}
    minutes: dict[str, list[float]] = {"tune": [], "grid": []}
    proving: list[float] = []
    words: dict[str, int] = {}
    held = told = wrong = starts = 0
    seed, done = first, 0
    while done < engines:
        machine, seed = machine_of(seed), seed + 1
        if machine is None:
            continue
        done += 1
        found, visits = race(machine)
        best = found.best or ""
        flags, grid_s = full_grid(machine)
        top = max(machine.truth(one) for one in (MOST, best, flags))
        shares["tune"].append(machine.truth(best) / top)
        shares["grid"].append(machine.truth(flags) / top)
        minutes["tune"].append(sum(one.took_s for one in visits) / 60.0)
        minutes["grid"].append(grid_s / 60.0)
        proving.append(sum(one.took_s for one in visits if one.purpose == "confirm") / 60.0)
        words[found.word] = words.get(found.word, 0) + 1
        starts += len(visits)
        if found.over_baseline is not None and found.word == "best":
            ratio = machine.truth(best) / machine.truth("")
            told += 1
            held += exp(found.over_baseline.low) <= ratio <= exp(found.over_baseline.high)
            wrong += ratio <= 1.0
        line = f"{seed - 1}: {found.word} {best or 'baseline'}, {machine.truth(best) / top:.2f} of the best"
        print(f"{line}; {minutes['tune'][-1]:.0f} min, grid {minutes['grid'][-1]:.0f} min", flush=True)
        if done % 10 == 0 or done == engines:
            table(shares, minutes)
            print(f"verdicts: {words}; {starts / done:.1f} measurements a tuning")
            print(f"of its minutes {np.median(proving):.0f} are the confirmation (median)")
            print(
                f"ratio to the baseline: {held} of {told} intervals hold it; {wrong} best ones are not better",
                flush=True,
            )


def table(shares: dict[str, list[float]], minutes: dict[str, list[float]]) -> None:
    """The table of docs/benchmarks.md."""
    print("| search | best or within 5 % | worst | minutes p10, median, p90 |\n|---|---|---|---|")
    for name, own in shares.items():
        found = np.mean(np.asarray(own) >= CLOSE)
        p10, p50, p90 = np.quantile(minutes[name], [0.1, 0.5, 0.9])
        print(f"| {name} | {100 * found:.0f} % | {min(own):.2f} | {p10:.0f}, {p50:.0f}, {p90:.0f} |")


def _arguments(given: Sequence[str]) -> tuple[int, int]:
    numbers = [int(one) for one in given]
    return (numbers[0] if numbers else 50), (numbers[1] if len(numbers) > 1 else 0)


if __name__ == "__main__":
    main(*_arguments(sys.argv[1:]))
