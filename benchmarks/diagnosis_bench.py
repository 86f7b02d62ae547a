"""Ramps with one thing wrong, for diagnosis.py: a class and a seed in, a judged run out.

Most run on the offline engine with random costs and workloads; what happens on the wire (a crash, a proxy, refusals)
goes through the real client and parser in memory.
"""

import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from engine_population import Lengths, capacity_rps, random_profile
from offline_engine import Offline

from loadramp.analysis.saturation import in_flight_at
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import ClientSample, Record, Step
from loadramp.runner.assess import assess
from loadramp.runner.scenarios import load
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.regimes import Regimes, Slow, Stall

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from run_in_memory import ramp_in_memory, scenario_of

MEASURE_S, WARMUP_S, JITTER_S = 40.0, 10.0, 0.001
PLAIN = load("", "bench.toml")
Rng = np.random.Generator


@dataclass(slots=True)
class Workload:
    """An engine, what it is asked, and its capacity."""

    profile: EngineProfile
    lengths: Lengths
    capacity: float


def between(rng: Rng, low: float, high: float) -> float:
    """Log-uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def costs(rng: Rng, **limits: object) -> EngineProfile:
    """H100-like costs within a factor of about two; ``limits`` as given."""
    plain = EngineProfile(
        name="random",
        t0_s=between(rng, 0.006, 0.02),
        decode_s=between(rng, 8e-6, 30e-6),
        context_s=between(rng, 20e-9, 90e-9),
        prefill_s=between(rng, 12e-6, 40e-6),
        max_num_seqs=int(rng.choice([128, 256, 512])),
        token_budget=2048,
        kv_blocks=60_000,
        max_model_len=8192,
    )
    return replace(plain, **limits)  # type: ignore[arg-type]  # names of fields


def short(rng: Rng, prompt: float = 200.0, output: float = 150.0) -> Lengths:
    """Prompts and answers of ordinary lengths."""
    return Lengths(
        prompt_median=between(rng, prompt / 2, prompt * 1.5),
        prompt_sigma=float(rng.uniform(0.2, 0.6)),
        output_median=between(rng, output / 1.5, output * 1.5),
        output_sigma=float(rng.uniform(0.3, 0.6)),
        prompt_max=1200,
        output_max=1500,
    )


def sized(profile: EngineProfile, lengths: Lengths, rng: Rng) -> Workload:
    return Workload(profile, lengths, capacity_rps(replace(profile, stalls=(), draft_tokens=0), lengths, rng, 1500))


def ramp(
    work: Workload,
    shares: Sequence[float],
    seed: int,
    *,
    metrics: bool = True,
    jitter_s: float = JITTER_S,
    blocks: Callable[[int, Rng], Sequence[Sequence[int]]] | None = None,
    client: Callable[[Table, Sequence[Step], Rng], tuple[Table, list[ClientSample]]] | None = None,
) -> Run:
    """A ladder at ``shares`` of the capacity (at most 120 req/s), judged as the product judges it.

    Args:
        work: what serves, and what it is asked.
        shares: of the capacity.
        seed: of arrivals, lengths, engine and network.
        metrics: whether the server's page is read.
        jitter_s: standard deviation of the network's delay of an event.
        blocks: contents of each request's blocks, for the prefix cache.
        client: what the client makes of the records.
    """
    rng = np.random.default_rng([seed, 1])
    engine = Offline(work.profile, np.random.default_rng([seed, 2]))
    steps: list[Step] = []
    now_s = 0.0
    for index, share in enumerate([shares[0], *shares]):
        rate = min(share * work.capacity, 120.0)
        step = Step(index, "step" if index else "settle", rate, None, now_s, WARMUP_S, MEASURE_S if index else 5.0)
        due_s = now_s + np.sort(rng.uniform(0.0, step.end_s - now_s, rng.poisson(rate * (step.end_s - now_s))))
        known = blocks(len(due_s), rng) if blocks else None
        engine.offer(due_s, *work.lengths.draw(rng, len(due_s)), step=index, blocks=known)
        now_s = step.end_s
        engine.run(now_s)
        steps.append(step)
    engine.run(now_s + 60.0)
    table, seen = shaken(engine.table(), rng, jitter_s), []
    if client:
        table, seen = client(table, steps, rng)
    return assess(Run(RunInfo(), PLAIN, steps, table, engine.samples if metrics else [], seen))


def shaken(table: Table, rng: Rng, jitter_s: float) -> Table:
    """Events delayed by a network, in order within each stream."""
    at_s = table.event_s + np.abs(rng.normal(0.0, jitter_s, len(table.event_s)))
    stream = np.repeat(np.arange(len(table)), table.events) * 1e6  # far apart, so that one running maximum serves all
    at_s = np.maximum.accumulate(at_s + stream) - stream
    last = np.where(table.events > 0, table.begin[1:] - 1, 0)
    ends_s = np.where(table.ok, at_s[last] if len(at_s) else np.nan, table.stream_end_s)
    return replace(table, event_s=at_s, stream_end_s=ends_s)


def blocked(table: Table, steps: Sequence[Step], rng: Rng) -> tuple[Table, list[ClientSample]]:
    """A client whose loop stands still for a while every second: what came meanwhile is stamped when it moves again."""
    length_s = float(rng.uniform(0.08, 0.25))
    end_s = steps[-1].end_s

    def late(at_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        into = at_s % 1.0
        return np.where(into < length_s, at_s - into + length_s, at_s)

    moved = replace(
        table, event_s=late(table.event_s), sent_s=late(table.sent_s), stream_end_s=late(table.stream_end_s)
    )
    return moved, [ClientSample(float(t), loop_lag_s=length_s, cpu_ratio=0.9) for t in range(1, int(end_s) + 1)]


def healthy(seed: int, **options: object) -> Run:
    rng = np.random.default_rng([seed, 0])
    return ramp(sized(costs(rng), short(rng), rng), (0.15, 0.3, 0.6), seed, **options)  # type: ignore[arg-type]  # passed on


def kv(seed: int, metrics: bool = True) -> Run:
    rng = np.random.default_rng([seed, 0])
    lengths = short(rng, prompt=150.0, output=300.0)
    held = (lengths.prompt_median + lengths.output_median) * rng.uniform(20.0, 60.0) / 16.0
    profile = costs(rng, max_num_seqs=1024, kv_blocks=max(180, int(held)), max_model_len=2700)
    return ramp(sized(profile, lengths, rng), (0.2, 0.5, 1.0, 1.6), seed, metrics=metrics)


def prefill(seed: int) -> Run:
    """Long prompts among short ones; half the engines compute them whole, half in large chunks."""
    rng = np.random.default_rng([seed, 0])
    lengths = Lengths(between(rng, 300, 1200), float(rng.uniform(0.9, 1.2)), between(rng, 100, 250), 0.4, 7000, 1000)
    profile = costs(rng, chunked_prefill=bool(rng.random() < 0.5), token_budget=8192)
    return ramp(sized(profile, lengths, rng), (0.15, 0.3, 0.5), seed)


def batch_limit(seed: int, metrics: bool = True) -> Run:
    rng = np.random.default_rng([seed, 0])
    profile = costs(rng, max_num_seqs=int(rng.choice([16, 24, 32, 48, 64])))
    return ramp(sized(profile, short(rng), rng), (0.25, 0.5, 1.1, 1.8), seed, metrics=metrics)


def compute(seed: int) -> Run:
    """A batch so large that the GPU's time is what runs out first."""
    rng = np.random.default_rng([seed, 0])
    profile = costs(rng, max_num_seqs=1024, token_budget=8192, decode_s=between(rng, 60e-6, 150e-6))
    return ramp(sized(profile, short(rng, prompt=400.0), rng), (0.25, 0.5, 1.1, 1.6), seed)


def few_preemptions(seed: int) -> Run:
    """A busy GPU whose server also preempts some requests of the highest step, at most 1.8 % of them."""
    run = compute(seed)
    last, row = run.steps[-1], run.rows[-1]
    most = float(np.random.default_rng([seed, 3]).uniform(0.001, 0.018)) * row.requests

    def counted(t_s: float) -> float:
        return float(np.floor(most * np.clip((t_s - last.window_s[0]) / last.measure_s, 0.0, 1.0)))

    samples = [replace(s, values={**s.values, "preemptions": counted(s.t_s)}) for s in run.samples]
    return assess(Run(run.info, run.scenario, run.steps, run.table, samples, run.client))


def no_room(table: Table, steps: Sequence[Step], rng: Rng) -> tuple[Table, list[ClientSample]]:
    """A server that refuses connections above twice what the highest quiet step has open; who is in goes on."""
    quiet = in_flight_at(table, np.linspace(*steps[-2].window_s, 50))
    away = in_flight_at(table, table.due_s) > 2.0 * quiet.max()
    lost = [
        Record(seq=int(table.seq[i]), step=int(table.step[i]), due_s=float(table.due_s[i]),
               sent_s=float(table.due_s[i]), stream_end_s=float(table.due_s[i] + rng.exponential(0.01)),
               status="error", error="connect" if rng.random() < 0.7 else "reset")
        for i in np.flatnonzero(away)
    ]  # fmt: skip
    return Table.concat([table.select(~away), Table.of(lost)]), []


def connections(seed: int, metrics: bool = True) -> Run:
    rng = np.random.default_rng([seed, 0])
    profile = costs(rng, max_num_seqs=int(rng.choice([16, 24, 32, 48, 64])))
    return ramp(sized(profile, short(rng), rng), (0.25, 0.5, 1.8), seed, metrics=metrics, client=no_room)


def stalls(seed: int) -> Run:
    rng = np.random.default_rng([seed, 0])
    stall = Stall(between(rng, 0.4, 1.5), between(rng, 0.08, 0.25), exponential=bool(rng.random() < 0.5))
    return ramp(sized(costs(rng, stalls=(stall,)), short(rng), rng), (0.05, 0.1, 0.2), seed)


def moved(seed: int) -> Run:
    """Half as fast or twice as fast from some moment of a measured window on."""
    rng = np.random.default_rng([seed, 0])
    factor = float(rng.uniform(0.4, 0.7) if rng.random() < 0.5 else rng.uniform(1.5, 2.5))
    step = int(rng.integers(0, 3))
    at_s = WARMUP_S + 5.0 + step * (WARMUP_S + MEASURE_S) + WARMUP_S + float(rng.uniform(8.0, MEASURE_S - 8.0))
    work = sized(costs(rng), short(rng), rng)
    return ramp(replace(work, profile=replace(work.profile, speeds=((at_s, factor),))), (0.1, 0.2, 0.35), seed)


def slow_stretches(seed: int) -> Run:
    """Every step takes 1.5 to 2.5 times as long for stretches of 2 to 12 s, a tenth to a third of the time."""
    rng = np.random.default_rng([seed, 0])
    lasts_s = between(rng, 2.0, 12.0)
    every_s = lasts_s * (1.0 / float(rng.uniform(0.1, 0.33)) - 1.0)
    slow = Slow(every_s, lasts_s, float(rng.uniform(1.5, 2.5)), spread=0.1)
    work = sized(costs(rng), short(rng), rng)
    return ramp(replace(work, profile=replace(work.profile, regimes=Regimes((slow,)))), (0.1, 0.2, 0.35), seed)


def weak_draft(seed: int) -> Run:
    rng = np.random.default_rng([seed, 0])
    profile = costs(rng, draft_tokens=int(rng.integers(2, 6)), accept_ratio=float(rng.uniform(0.2, 0.55)),
                    token_budget=8192)  # fmt: skip
    return ramp(sized(profile, short(rng), rng), (0.1, 0.2, 0.4), seed)


def warm_cache(seed: int) -> Run:
    """Every third prompt or so was sent before, by a run with the same seed."""
    rng = np.random.default_rng([seed, 0])
    share = float(rng.uniform(0.1, 0.4))

    def blocks(n: int, chance: Rng) -> list[list[int]]:
        again = chance.random(n) < share
        return [[100 + k for k in range(60)] if old else [] for old in again]

    return ramp(sized(costs(rng), short(rng), rng), (0.1, 0.2, 0.4), seed, blocks=blocks)


def wire(seed: int, rates: Sequence[float], profile: EngineProfile, faults: Faults | None = None) -> Run:
    """A ladder through client, parser and simulated server, in memory."""
    text = f"""
seed = {seed}
[prompts]
kind = "lognormal"
input_tokens = 60
output_tokens = 40
output_cv = 0.4
[ramp]
kind = "ladder"
rates = {list(rates)}
warmup_s = 4
measure_s = 25
settle_s = 2
settle_requests = 0
tail_s = 1
max_error_ratio = 1.0
"""
    with tempfile.TemporaryDirectory() as folder:
        return ramp_in_memory(scenario_of(text), Path(folder), profile, faults)


def refused(seed: int) -> Run:
    rng = np.random.default_rng([seed, 0])
    cap = int(rng.integers(4, 12))
    limit = {"max_queue": cap} if rng.random() < 0.5 else {"max_in_flight": 20 + cap}
    return wire(seed, (4.0, 12.0, 60.0), replace(PROFILES["small"], **limit))


def crash(seed: int) -> Run:
    rng = np.random.default_rng([seed, 0])
    kind = "engine" if rng.random() < 0.5 else "process"
    faults = Faults(crash_running=int(rng.integers(14, 24)), crash_kind=kind, restart_s=float(rng.uniform(3.0, 8.0)))
    return wire(seed, (4.0, 8.0, 24.0), PROFILES["small"], faults)


def proxy(seed: int) -> Run:
    rng = np.random.default_rng([seed, 0])
    return wire(seed, (2.0, 4.0, 8.0), PROFILES["small"], Faults(coalesce_s=float(rng.uniform(0.06, 0.25))))


def freezing(seed: int) -> Run:
    rng = np.random.default_rng([seed, 0])
    faults = Faults(stall_ratio=float(rng.uniform(0.06, 0.2)), stall_s=float(rng.uniform(0.3, 1.2)))
    return wire(seed, (4.0, 6.0, 8.0), PROFILES["small"], faults)


def slow_client(seed: int) -> Run:
    return healthy(seed, client=blocked)


def population(seed: int, metrics: bool) -> Run | None:
    """An engine and workload as random as those of knee.py, with nothing wrong but that it is overloaded at the end.

    None where its capacity is below 1 or above 60 req/s.
    """
    rng = np.random.default_rng([seed, 0])
    profile, lengths = random_profile(rng)
    if seed % 3 == 0:
        profile = replace(profile, kv_blocks=max(1100, profile.kv_blocks // 8), max_num_seqs=1024)
    try:
        work = sized(profile, lengths, rng)
    except (ValueError, AssertionError):
        return None
    return ramp(work, (0.1, 0.3, 0.6, 1.2, 1.6), seed, metrics=metrics) if 1.0 < work.capacity < 60.0 else None


CLASSES: dict[str, tuple[str, Callable[[int], Run]]] = {
    "healthy": ("healthy", healthy),
    "healthy, 3 ms jitter": ("healthy", lambda seed: healthy(seed, jitter_s=0.003)),
    "healthy, no metrics": ("healthy", lambda seed: healthy(seed, metrics=False)),
    "KV cache too small": ("kv_eviction", kv),
    "  same, no metrics": ("kv_eviction", lambda seed: kv(seed, metrics=False)),
    "batch limit": ("scheduler_oversubscription", batch_limit),
    "  same, no metrics ": ("scheduler_oversubscription", lambda seed: batch_limit(seed, metrics=False)),
    "large batch": ("compute_bound", compute),
    "few preemptions": ("compute_bound", few_preemptions),
    "no connections left": ("connections_refused", connections),
    "  same, no metrics  ": ("connections_refused", lambda seed: connections(seed, metrics=False)),
    "long prompts": ("prefill_contention", prefill),
    "engine stalls": ("engine_stall", stalls),
    "pace moved": ("engine_unstable", moved),
    "slow stretches": ("engine_unstable", slow_stretches),
    "weak draft": ("speculation_weak", weak_draft),
    "warm prefix cache": ("prefix_cache_accidental", warm_cache),
    "late client": ("client_limited", slow_client),
    "refusals": ("admission_failure", refused),
    "crash": ("server_down", crash),
    "buffering proxy": ("proxy_buffering", proxy),
    "freezing streams": ("stream_stall", freezing),
}
"""What is wrong: the code that must come first, and the ramp."""
