"""A step to its arrivals: the whole step is planned before it starts. Pure.

The plan is a function of (scenario, step, salt) alone: any process can rebuild it; ``plan[i::n]`` is worker i's share.
Due times are an array; prompts are drawn in blocks when they are first looked at, so that a long soak takes no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from loadramp.plan.prompts.synthetic import Draw
from loadramp.plan.scenario import Scenario
from loadramp.record.types import Arrival, Prompt, Step

BLOCK = 256
_ARRIVALS, _LENGTHS, _TEXTS = 0, 1, 2


@dataclass(slots=True)
class Prompts:
    """The prompts of one step, by number. Keeps the two blocks it used last."""

    scenario: Scenario
    step: int
    first_seq: int
    salt: int
    _blocks: dict[int, list[Prompt]] = field(default_factory=dict)

    def __getitem__(self, k: int) -> Prompt:
        block, within = divmod(k, BLOCK)
        if block not in self._blocks:
            if len(self._blocks) > 1:
                del self._blocks[min(self._blocks)]
            self._blocks[block] = self._draw(block)
        return self._blocks[block][within]

    def _draw(self, block: int) -> list[Prompt]:
        seed = self.scenario.seed
        drawn: list[Prompt] = self.scenario.prompts(
            Draw(
                first=self.first_seq + block * BLOCK,
                n=BLOCK,
                lengths=_rng(seed, _LENGTHS, self.step, block),
                texts=_rng(seed, _TEXTS, self.step, block, self.salt),
            )
        )
        return drawn


@dataclass(slots=True, frozen=True)
class Plan:
    """Arrivals of one open-loop step, ascending in ``due_s`` (absolute). ``numbers`` are places in the whole plan."""

    step: Step
    first_seq: int
    due_s: NDArray[np.float64]
    numbers: NDArray[np.int64]
    prompts: Prompts

    def __len__(self) -> int:
        return len(self.due_s)

    def __getitem__(self, part: slice) -> Plan:
        return Plan(self.step, self.first_seq, self.due_s[part], self.numbers[part], self.prompts)

    def __iter__(self) -> Iterator[Arrival]:
        for number, due_s in zip(self.numbers.tolist(), self.due_s.tolist(), strict=True):
            yield Arrival(self.first_seq + number, self.step.index, due_s, self.prompts[number])


def plan_step(scenario: Scenario, step: Step, first_seq: int = 0, salt: int = 0, hold_s: float = 0.0) -> Plan:
    """All arrivals of an open-loop step, and of ``hold_s`` more at the same rate.

    The held-over arrivals are load for the moment between two steps: sent only while the next step has not begun.

    Args:
        scenario: gives the arrival process, the prompts and the seed.
        step: with its times filled in; ``rate_rps`` 0 or None plans nothing.
        first_seq: ``seq`` of the step's first arrival.
        salt: changes the texts of the prompts and nothing else, so that no run repeats the text of another.
        hold_s: seconds past the step's end.
    """
    prompts = Prompts(scenario, step.index, first_seq, salt)
    if not step.rate_rps:
        return Plan(step, first_seq, np.empty(0), np.empty(0, dtype=np.int64), prompts)
    rng = _rng(scenario.seed, _ARRIVALS, step.index)
    due_s = step.begin_s + scenario.arrivals(step.rate_rps, step.end_s - step.begin_s + hold_s, rng)
    return Plan(step, first_seq, due_s, np.arange(len(due_s)), prompts)


def _rng(seed: int, *key: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
