"""The engines and lengths that the statistics are tried on, and the true capacity of each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from loadramp.simulator.engine import Engine
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.regimes import GRID_S, RegimePath, Regimes

Ints = NDArray[np.int64]
_AVERAGED_S = 50_000.0


@dataclass(slots=True, frozen=True)
class Lengths:
    """Lognormal prompt and answer lengths in tokens, between 1 and the maxima. ``sigma`` 0: all equal."""

    prompt_median: float = 512.0
    prompt_sigma: float = 0.0
    output_median: float = 128.0
    output_sigma: float = 0.0
    prompt_max: int = 6000
    output_max: int = 2000

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Ints, Ints]:
        """Prompt and output tokens of ``n`` requests, each shape (n,)."""
        prompt = _lognormal(rng, n, self.prompt_median, self.prompt_sigma, self.prompt_max)
        return prompt, _lognormal(rng, n, self.output_median, self.output_sigma, self.output_max)


def _lognormal(rng: np.random.Generator, n: int, median: float, sigma: float, most: int) -> Ints:
    drawn = np.rint(median * np.exp(sigma * rng.standard_normal(n)))
    return np.clip(drawn, 1, most).astype(np.int64)


def random_profile(rng: np.random.Generator) -> tuple[EngineProfile, Lengths]:
    """One engine and workload of the population that the statistics are tried on.

    Costs are the H100-like defaults within a factor of about two; limits and lengths range from a small shared card to
    a large one. Most are limited by ``max_num_seqs`` (over-represented here), the rest by KV blocks or prefill.
    """

    def between(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    profile = EngineProfile(
        name="random",
        t0_s=between(0.004, 0.016),
        decode_s=between(8e-6, 30e-6),
        context_s=between(20e-9, 90e-9),
        prefill_s=between(12e-6, 50e-6),
        max_num_seqs=int(rng.choice([32, 48, 64, 96, 128, 256, 512, 1024])),
        token_budget=int(rng.choice([2048, 4096, 8192, 16_384])),
        kv_blocks=int(between(2500, 40_000)),
        max_model_len=16_384,
    )
    lengths = Lengths(
        prompt_median=between(64, 2000),
        prompt_sigma=float(rng.uniform(0.3, 1.0)),
        output_median=between(60, 500),
        output_sigma=float(rng.uniform(0.4, 0.8)),
        prompt_max=12_000,
        output_max=4000,
    )
    return profile, lengths


def capacity_rps(profile: EngineProfile, lengths: Lengths, rng: np.random.Generator, requests: int = 6000) -> float:
    """True capacity: the long-run completion rate while the queue never empties, requests a second.

    All requests wait from the start; the rate is taken from output tokens over their mean, from when a third of the
    requests has entered the batch until the queue empties. Good to about 1 % at 6,000 requests of sigma 0.7. Limits on
    admission and changes of speed are left out; regimes count with their long-run mean speed.
    """
    n = max(requests, 6 * profile.max_num_seqs)
    prompt, output = lengths.draw(rng, n)
    steady = Regimes(stalls=profile.regimes.stalls)
    engine = Engine(replace(profile, max_queue=None, max_in_flight=None, speeds=(), regimes=steady), rng)
    for i, (p, o) in enumerate(zip(prompt.tolist(), output.tolist(), strict=True)):
        engine.submit(i, 0.0, p, o)
    now_s = begin_s = 0.0
    begin_tokens = 0
    while engine.waiting:
        duration_s = engine.begin(now_s)
        assert duration_s is not None
        now_s += duration_s
        engine.finish(want_tokens=False)
        if not begin_tokens and len(engine.waiting) <= n * 2 // 3:
            begin_s, begin_tokens = now_s, engine.stats.output_tokens
    quiet_rps = (engine.stats.output_tokens - begin_tokens) / (now_s - begin_s) / float(np.mean(output))
    return quiet_rps * mean_speed(profile.regimes, rng)


def mean_speed(regimes: Regimes, rng: np.random.Generator) -> float:
    """Long-run work done a second, relative to the engine without regimes: the mean of 1 / factor over time.

    From 50,000 s of a path; stalls are not in it.
    """
    if not regimes.changes:
        return 1.0
    path = RegimePath(regimes, rng)
    return float(np.mean([1.0 / path.factor(t_s) for t_s in np.arange(0.0, _AVERAGED_S, GRID_S).tolist()]))
