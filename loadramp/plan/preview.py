"""What a ramp or a canary would send if nothing stopped it: for ``loadramp plan``, and before a large run. Pure.

The steps are those that the commands themselves choose, by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from loadramp.plan.canary import block_rates, climb_rates, order_of
from loadramp.plan.reuse import Seen
from loadramp.plan.scenario import Scenario
from loadramp.plan.schedule import arrivals_of, beginning, lack_of_rows
from loadramp.record.types import Row, Step

SHORTEST_WARMUP_S = 10.0
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
class Part:
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
                at_s, first_seq, seen = _add(scenario, step, first_seq)
                yield seen
        warmup_s, measure_s = times(scenario, proposal)
        step = replace(proposal, index=len(rows) + 1, begin_s=at_s, warmup_s=warmup_s, measure_s=measure_s)
        if lack_of_rows(scenario, step, first_seq):
            return
        at_s, first_seq, seen = _add(scenario, step, first_seq)
        yield seen
        rows.append(_quiet(step))


def most_users(scenario: Scenario) -> int | None:
    """The largest number of users of a closed-loop ramp; None for an open loop, whose requests in flight depend on the
    answers."""
    rows: list[Row] = []
    while len(rows) < MOST_STEPS and isinstance(proposal := scenario.ramp(rows), Step) and proposal.users is not None:
        rows.append(_quiet(proposal))
    return max((row["users"] for row in rows), default=None)


def foresee_canary(scenario: Scenario) -> Iterator[Foreseen]:
    """The blocks of a canary that is never sure before its last one. Both endpoints get them at once; where they take
    turns, the blocks of both, one after the other. Requests are counted once for all blocks alike."""
    counted: dict[Step, Foreseen] = {}
    at_s = 0.0
    for index, step in enumerate(_canary_steps(scenario)):
        if step not in counted:
            counted[step] = _add(scenario, step, 0)[2]
        placed = replace(step, index=index, begin_s=at_s)
        at_s = placed.end_s
        yield replace(counted[step], step=placed, cumulative_s=at_s)


def _canary_steps(scenario: Scenario) -> Iterator[Step]:
    canary = scenario.canary
    if canary.design != "mirrored":
        warmup_s = turn_warmup_s(scenario)
        for _ in order_of(canary):
            for rate_rps in canary.rates:
                yield Step(0, rate_rps=rate_rps, warmup_s=warmup_s, measure_s=canary.block_s)
        return
    seconds = settle_s(scenario, canary.rates[0])
    if seconds:
        yield Step(0, role="settle", rate_rps=canary.rates[0], warmup_s=0.0, measure_s=seconds)
    before_rps = canary.rates[0] if seconds else None
    for number in range(canary.blocks):
        for rate_rps, warms in block_rates(canary, number, before_rps):
            warmup_s = _canary_warmup_s(scenario, canary.block_s) if warms else 0.0
            yield Step(0, rate_rps=rate_rps, warmup_s=warmup_s, measure_s=canary.block_s)
            before_rps = rate_rps
    for rate_rps in climb_rates(canary) if canary.ceiling else ():
        measure_s = times(scenario, Step(0, rate_rps=rate_rps))[1]
        yield Step(0, rate_rps=rate_rps, warmup_s=_canary_warmup_s(scenario, measure_s), measure_s=measure_s)


def _canary_warmup_s(scenario: Scenario, measure_s: float) -> float:
    asked = scenario.canary.warmup_s
    asked = scenario.pace.warmup_s if asked is None else asked
    return min(SHORTEST_WARMUP_S, measure_s * 2 / 3) if asked is None else asked


def turn_warmup_s(scenario: Scenario) -> float:
    """Warm-up of every block where two versions take turns: the same whether it was switched before it or not, so that
    each segment is replayed whole."""
    asked = scenario.canary.warmup_s
    asked = scenario.pace.warmup_s if asked is None else asked
    return max(SHORTEST_WARMUP_S, scenario.pace.settle_s) if asked is None else asked


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


def _add(scenario: Scenario, step: Step, first_seq: int) -> tuple[float, int, Foreseen]:
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
            sizes = [(size.input_tokens, size.output_tokens) for size in Seen().sizes(prompt)]
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
