"""The requests that steps would offer in their measured part, by their own plan and before anything is sent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from loadramp.record.types import Step
from loadramp.scenario.scenario import Scenario
from loadramp.workload.schedule import LOOKED_AT, StepPlan, arrivals_of, offer_of, plan_step, turns_of

MOST_SESSIONS = 20_000
"""Beyond these the later turns of a step are not looked at one by one."""


def offered(scenario: Scenario, steps: Sequence[Step]) -> list[float | None]:
    """Requests a second due in the measured part of each step; None in a closed loop, and where there are too many.

    Later turns of sessions are put where they would be if every answer came at once, those of earlier steps included.
    Where the run itself chooses the warm-up, sessions get the longest that it may choose.

    Args:
        scenario: with its files read.
        steps: in the order in which they are offered, with their times.
    """
    turns = turns_of(scenario) > 1.0
    later_s: list[float] = []
    return [_of_step(scenario, step, later_s if turns else None) for step in _with_warmups(scenario, steps, turns)]


def _with_warmups(scenario: Scenario, steps: Sequence[Step], turns: bool) -> Iterator[Step]:
    moved_s = 0.0
    for step in steps:
        placed = replace(step, begin_s=step.begin_s + moved_s)
        if turns and step.measured and scenario.pace.warmup_s is None:
            placed = replace(placed, warmup_s=max(step.warmup_s or 0.0, (step.measure_s or 0.0) * 2.0 / 3.0))
            moved_s += (placed.warmup_s or 0.0) - (step.warmup_s or 0.0)
        yield placed


def _of_step(scenario: Scenario, step: Step, later_s: list[float] | None) -> float | None:
    if not step.rate_rps or not step.measure_s:
        return None
    arrivals = arrivals_of(scenario, step)
    if later_s is None and arrivals > LOOKED_AT:
        return step.rate_rps * offer_of(scenario, step).share
    if later_s is not None and arrivals > MOST_SESSIONS:
        return None
    plan = plan_step(scenario, step)
    due_s = plan.due_s
    if later_s is not None:
        later_s += _later_turns(plan)
        due_s = np.concatenate((due_s, later_s))
    begin_s, end_s = step.window_s
    return int(np.count_nonzero((due_s >= begin_s) & (due_s < end_s))) / step.measure_s


def _later_turns(plan: StepPlan) -> Iterator[float]:
    """Due times of the turns after the first, if answers took no time."""
    for arrival in plan:
        at_s = arrival.due_s
        for turn in (arrival.prompt, *arrival.prompt.following)[:-1]:
            at_s += turn.think_s
            yield at_s
