"""Whole ramps on simulated engines of known capacity, driven by the product's own ramp: what knee.py counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from engine_population import Lengths, capacity_rps, random_profile
from numpy.typing import NDArray
from offline_engine import Offline, TwoEngines, simulate

from loadramp.analysis import latency, long_run, steady_state
from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.curve import fold
from loadramp.analysis.quantiles import quantile
from loadramp.record.row import Row
from loadramp.record.types import Step
from loadramp.scenario.scenario import Slo
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.regimes import REGIMES, Stall
from loadramp.workload.arrivals import gamma, poisson
from loadramp.workload.ramps import RAMPS

CASES = {
    "population": "random engines, limited by sequences, KV blocks or budget; Poisson arrivals",
    "no chunked prefill": "prompts go whole and alone",
    "1024 sequences": "limits and costs as of one H100",
    "kv bound": "an eighth of the KV blocks",
    "hiccups": "150 ms every 20 s",
    "stalls": "3 s every 2 min",
    "bursty": "gamma arrivals, cv 3",
    "regimes": "the pace changes by itself as that of a real engine did",
    "doubling": "half speed for stretches of 12 s, a fifth of the time",
    "neighbour": "two thirds of the speed for about a minute, a quarter of the time",
    "slow drift": "the pace wanders by 10 %, over two minutes",
    "two engines": "two engines like those of `regimes` behind one endpoint",
}
REGIMES_OF = {"regimes": "captured", "doubling": "doubling", "neighbour": "neighbour", "slow drift": "slow_drift",
              "two engines": "captured"}  # fmt: skip
SLO_QUANTILE, SLO_SHARE = 0.95, 0.6
SLOWEST_RPS, FASTEST_RPS = 2.0, 100.0
"""Engines of another capacity are passed over: a ramp from 1 req/s has nothing to climb there, or takes too long."""


@dataclass(slots=True)
class Ramp:
    """What one ramp found, and the truth beside it."""

    case: str
    seed: int
    capacity_rps: float
    limits: dict[str, float] = field(default_factory=dict)
    """SLO metric to what it is, at SLO_QUANTILE, at SLO_SHARE of the capacity: there the true SLO capacity lies."""
    rows: list[Row] = field(default_factory=list)
    climb_s: float = 0.0
    total_s: float = 0.0

    @property
    def steps(self) -> list[Row]:
        return [row for row in self.rows if row.role == "step"]


def engine_of(case: str, seed: int) -> tuple[EngineProfile, Lengths]:
    """The engine and workload of one seed."""
    profile, lengths = random_profile(np.random.default_rng([seed, 0]))
    if case == "no chunked prefill":
        profile = replace(profile, chunked_prefill=False)
    elif case == "1024 sequences":
        profile = replace(EngineProfile(), max_model_len=profile.max_model_len)
    elif case == "kv bound":
        profile = replace(profile, max_num_seqs=1024, kv_blocks=max(1100, profile.kv_blocks // 8))
    elif case == "hiccups":
        profile = replace(profile, stalls=(Stall(every_s=20.0, duration_s=0.15),))
    elif case == "stalls":
        profile = replace(profile, stalls=(Stall(every_s=120.0, duration_s=3.0),))
    elif case in REGIMES_OF:
        profile = replace(profile, regimes=REGIMES[REGIMES_OF[case]])
    return profile, lengths


@dataclass(slots=True)
class Bench:
    """An engine that is offered one step after the other, as a conductor would."""

    profile: EngineProfile
    lengths: Lengths
    seed: int
    cv: float = 1.0
    now_s: float = 0.0
    engines: int = 1
    """1, or 2 behind one endpoint."""
    chance: dict[str, np.random.Generator] = field(init=False)
    engine: Offline | TwoEngines = field(init=False)

    def __post_init__(self) -> None:
        self.chance = {
            name: np.random.default_rng([self.seed, k]) for k, name in enumerate(("", "arrivals", "lengths"))
        }
        one = Offline(self.profile, np.random.default_rng([self.seed, 9]))
        self.engine = one if self.engines == 1 else TwoEngines(self.profile, self.seed)

    def offer(self, rate_rps: float, seconds: float, step: int) -> None:
        rng = self.chance["arrivals"]
        drawn = poisson(rate_rps, seconds, rng) if self.cv == 1.0 else gamma(rate_rps, seconds, rng, cv=self.cv)
        prompt, output = self.lengths.draw(self.chance["lengths"], len(drawn))
        self.engine.offer(self.now_s + drawn, prompt, output, step=step)
        self.now_s += seconds
        self.engine.run(self.now_s)

    def drain(self, longest_s: float) -> None:
        """No new load until all is answered."""
        until_s = self.now_s + longest_s
        while self.now_s < until_s and self.engine.table().in_flight.any():
            self.now_s += 5.0
            self.engine.run(self.now_s)

    def latest_e2e_s(self) -> NDArray[np.float64]:
        table = self.engine.table()
        latest = np.argsort(table.stream_end_s[table.ok])[-500:]
        return np.asarray(table.e2e_s[table.ok][latest], dtype=np.float64)

    def measure(self, step: Step, before: Sequence[Row], slo: Slo) -> Row:
        self.offer(step.rate_rps or 0.0, step.end_s - step.begin_s, step.index)
        return self.row(step, before, slo)

    def row(self, step: Step, before: Sequence[Row], slo: Slo) -> Row:
        """The row of a step that was offered."""
        table = self.engine.table()
        recent = table.select(table.done_s >= step.begin_s)
        base_s = before[0].of("ttft").p50.value if before else None
        samples = [s for s in self.engine.samples if s.t_s >= step.begin_s]
        row = fold(step, recent, samples=samples, slo=slo, base_ttft_p50_s=base_s,
                   now_s=self.now_s)  # fmt: skip
        row = replace(row, overloaded=False)
        return replace(row, ceiling_rps=ceiling([*before, row]).rate_rps)


def ramp(case: str, seed: int, measure_s: float, soak_s: float, share: float | None = None) -> Ramp | None:
    """One ramp of the default kind; None when the engine's capacity is out of range.

    Args:
        case: a key of CASES.
        seed: of engine, workload and all chance.
        measure_s: measured part of each step.
        soak_s: length of the confirmation soak; 0: none.
        share: the ramp ends at this share of the capacity; None: when it has found the ceiling.
    """
    profile, lengths = engine_of(case, seed)
    try:
        capacity = capacity_rps(profile, lengths, np.random.default_rng([seed, 5]))
    except (ValueError, AssertionError):
        return None
    if not SLOWEST_RPS <= capacity <= FASTEST_RPS:
        return None
    bench = Bench(profile, lengths, seed, 3.0 if case == "bursty" else 1.0)
    top = 1024.0 if share is None else share * capacity
    start = 1.0 if share is None else top / 2.0 ** np.floor(np.log2(top)) if top >= 1.0 else top
    out = Ramp(case, seed, capacity, {} if share else _true_limits(profile, lengths, capacity, seed))
    return _climb(out, bench, float(start), float(top), measure_s, soak_s)


def slo_of(limits: Mapping[str, float]) -> Slo:
    """These limits, each for SLO_QUANTILE."""
    return Slo(**{f"{metric}_s": limit_s for metric, limit_s in limits.items()}, quantile=SLO_QUANTILE)


def _true_limits(
    profile: EngineProfile, lengths: Lengths, capacity: float, seed: int, seconds: float = 1800.0
) -> dict[str, float]:
    """ITL and TTFT at SLO_QUANTILE in a long run at SLO_SHARE of the capacity."""
    rng = np.random.default_rng([seed, 6])
    due_s = poisson(SLO_SHARE * capacity, seconds, rng)
    prompt, output = lengths.draw(rng, len(due_s))
    table, _ = simulate(profile, due_s, prompt, output, rng, sample_period_s=0)
    pooled = latency.families(latency.window_view(table, (60.0, seconds)))
    return {name: quantile(pooled[name].ordered, SLO_QUANTILE) for name in ("itl", "ttft")}


def _climb(out: Ramp, bench: Bench, start_rps: float, max_rps: float, measure_s: float, soak_s: float) -> Ramp:
    bench.offer(start_rps, max(30.0, 50.0 / start_rps), -1)
    while isinstance(
        step := RAMPS["ceiling"](out.rows, start_rps=start_rps, max_rps=max_rps * 1.0001, soak_s=soak_s), Step
    ):
        if step.role == "soak" and out.rows[-1].role == "step":
            out.climb_s = bench.now_s
            bench.drain(120.0)
        seconds = step.measure_s or measure_s
        warmup_s = steady_state.warmup_s(bench.latest_e2e_s(), seconds)
        timed = replace(step, begin_s=bench.now_s, warmup_s=warmup_s, measure_s=seconds)
        out.rows.append(bench.measure(timed, out.rows, slo_of(out.limits)))
    out.rows = long_run.with_scatter(out.rows)
    out.climb_s, out.total_s = out.climb_s or bench.now_s, bench.now_s
    return out
