"""Simulated ramps for the tests of the diagnosis: an engine and a ladder in, a judged run out, without a socket."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.engine_population import Lengths
from benchmarks.offline_engine import Offline
from loadramp.record.run_info import read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import Finding, Sample, Step
from loadramp.runner.assess import assess
from loadramp.runner.scenarios import load
from loadramp.simulator.profiles import EngineProfile

CHAT = Lengths(200, 0.5, 100, 0.5, prompt_max=1000, output_max=600)


def ladder(
    profile: EngineProfile, rates: Sequence[float], lengths: Lengths = CHAT, *, metrics: bool = True,
    measure_s: float = 30.0, scenario: str = "", info: dict[str, Any] | None = None, blocks: Any = None, seed: int = 1,
) -> Run:  # fmt: skip
    """Steps of 8 s warm-up and ``measure_s`` at each rate, Poisson arrivals, a perfect client."""
    steps, table, samples = deepcopy(_measured(profile, tuple(rates), lengths, measure_s, blocks, seed))
    return assess(Run(read_info(info or {}), load(scenario, "test.toml"), steps, table, samples if metrics else []))


@lru_cache(maxsize=32)
def _measured(
    profile: EngineProfile, rates: tuple[float, ...], lengths: Lengths, measure_s: float, blocks: Any, seed: int
) -> tuple[list[Step], Table, list[Sample]]:
    """Simulated once: many tests judge the same ramp in other ways."""
    rng = np.random.default_rng([seed, 1])
    engine = Offline(profile, np.random.default_rng([seed, 2]))
    steps, now_s = [], 0.0
    for index, rate in enumerate(rates):
        step = Step(index, rate_rps=rate, begin_s=now_s, warmup_s=8.0, measure_s=measure_s)
        due_s = now_s + np.sort(rng.uniform(0.0, step.end_s - now_s, rng.poisson(rate * (step.end_s - now_s))))
        known = blocks(len(due_s)) if blocks else None
        engine.offer(due_s, *lengths.draw(rng, len(due_s)), step=index, blocks=known)
        now_s = step.end_s
        engine.run(now_s)
        steps.append(step)
    engine.run(now_s + 30.0)
    return steps, engine.table(), engine.samples


def codes(run: Run) -> list[str]:
    """What was found, without what is merely possible."""
    return [finding.code for finding in run.findings if finding.confidence != "possible"]


def found(run: Run, code: str) -> Finding:
    return next(finding for finding in run.findings if finding.code == code)
