"""What a ramp would send if nothing stopped it: for ``loadramp plan``, and before a large run. Pure.

The steps are those that the commands themselves choose, by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from loadramp.record.types import Row, Step
from loadramp.scenario.scenario import SHORTEST_WARMUP_S, Scenario
from loadramp.workload.prefix_reuse import PrefixHistory
from loadramp.workload.schedule import arrivals_of, beginning, lack_of_rows

MOST_STEPS = 64
LARGE_REQUESTS = 20_000
"""Beyond this many requests in a step, tokens are counted on the first ones and scaled."""


@dataclass(slots=True, frozen=True)
class Foreseen:
    """One step as it would be. Requests and tokens are None for a closed loop: they depend on the answers."""

    step: Step
    requests: int | None
    input_tokens: int | None
    output_tokens: int | None
    cumulative_s: float
    offered_rps: float | None = None
    """Requests a second due in the measured part, where that was looked at."""


@dataclass(slots=True, frozen=True)
class PreviewPart:
    """What one command, or one phase of it, would send."""

    title: str
    steps: tuple[Foreseen, ...] = ()
    notes: tuple[str, ...] = ()
    runs: int = 1
    """How often all of it is sent."""


def foresee(scenario: Scenario) -> Iterator[Foreseen]:
    """The steps that follow when every step is quiet, with the shortest warm-up where the scenario leaves it open.

    A ceiling ramp stops at the first overload, so these are the most it can send; its soak comes on top.
    """
    rows: list[Row] = []
    at_s = 0.0
    first_seq = 0
    settle = True
    while len(rows) < MOST_STEPS:
        proposal = scenario.ramp(rows)
        if not isinstance(proposal, Step):
            return
        if settle:
            settle = False
            seconds = settle_s(scenario, proposal.rate_rps)
            if seconds:
                step = replace(proposal, role="settle", begin_s=at_s, warmup_s=0.0, measure_s=seconds)
                at_s, first_seq, seen = add_step(scenario, step, first_seq)
                yield seen
        warmup_s, measure_s = times(scenario, proposal)
        step = replace(proposal, index=len(rows) + 1, begin_s=at_s, warmup_s=warmup_s, measure_s=measure_s)
        if lack_of_rows(scenario, step, first_seq):
            return
        at_s, first_seq, seen = add_step(scenario, step, first_seq)
        yield seen
        rows.append(_quiet(step))


def most_users(scenario: Scenario) -> int | None:
    """The largest number of users of a closed-loop ramp; None for an open loop, whose requests in flight depend on the
    answers."""
    rows: list[Row] = []
    while len(rows) < MOST_STEPS and isinstance(proposal := scenario.ramp(rows), Step) and proposal.users is not None:
        rows.append(_quiet(proposal))
    return max((row["users"] for row in rows), default=None)


def settle_s(scenario: Scenario, rate_rps: float | None, longest_s: float = 300.0) -> float:
    """Seconds of discarded load before the first step: ``settle_s`` and ``settle_requests``, whichever is longer."""
    pace = scenario.pace
    if not rate_rps:
        return pace.settle_s
    return min(max(pace.settle_s, pace.settle_requests / rate_rps), max(pace.settle_s, longest_s))


def times(scenario: Scenario, step: Step) -> tuple[float, float]:
    """Warm-up and measured part before anything is known of the server."""
    pace = scenario.pace
    measure_s = step.measure_s or pace.length_s(step.rate_rps)
    warmup_s = pace.warmup_s if pace.warmup_s is not None else min(SHORTEST_WARMUP_S, measure_s * 2 / 3)
    return warmup_s, measure_s


def add_step(scenario: Scenario, step: Step, first_seq: int) -> tuple[float, int, Foreseen]:
    """The step as it would be: its end, the ``seq`` of the next request, and requests and tokens counted."""
    if step.users is not None:
        return step.end_s, first_seq, Foreseen(step, None, None, None, step.end_s)
    plan = beginning(scenario, step, first_seq)
    arrivals = len(plan) if plan.step == step else round(arrivals_of(scenario, step))
    counted = plan[:LARGE_REQUESTS]
    requests, inputs, outputs = 0, 0.0, 0
    for arrival in counted:
        prompt = arrival.prompt
        if prompt.input_tokens is not None and not prompt.following:
            sizes = [(float(prompt.input_tokens), prompt.output_tokens)]
        else:
            sizes = [(size.input_tokens, size.output_tokens) for size in PrefixHistory().sizes(prompt)]
        requests += len(sizes)
        inputs += sum(tokens for tokens, _ in sizes)
        outputs += sum(tokens or 0 for _, tokens in sizes)
    scale = arrivals / max(1, len(counted))
    seen = Foreseen(step, round(requests * scale), round(inputs * scale), round(outputs * scale), step.end_s)
    return step.end_s, first_seq + arrivals, seen


def _quiet(step: Step) -> dict[str, Any]:
    return {
        "role": "step",
        "rate_rps": step.rate_rps,
        "users": step.users,
        "saturated": False,
        "deficit": False,
        "void": False,
        "overloaded": False,
        "ceiling_rps": None,
    }
