"""What a ramp would send if nothing stopped it: for ``loadramp plan``, and before a large run. Pure.

The steps are those that the commands themselves choose, by the same functions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

import numpy as np

from loadramp.record.row import Row
from loadramp.record.table import within
from loadramp.record.types import Role, Step
from loadramp.scenario.scenario import SHORTEST_WARMUP_S, RampOptions, Scenario
from loadramp.units import span
from loadramp.workload.prefix_reuse import PrefixHistory
from loadramp.workload.ramps import RAMPS
from loadramp.workload.schedule import (
    LOOKED_AT,
    StepPlan,
    arrivals_of,
    beginning,
    lack_of_rows,
    offer_of,
    plan_step,
    reads_a_file,
    turns_of,
)

MOST_STEPS = 64
LARGE_REQUESTS = 20_000
"""Beyond this many requests in a step, tokens are counted on the first ones and scaled."""
MOST_SESSIONS = 20_000
"""Beyond this many sessions, the later turns of a step are not placed one by one."""
LONGEST_FACTOR, LONGEST_S = 3.0, 600.0


@dataclass(slots=True, frozen=True)
class PreviewStep:
    """One step as it would be. Requests and tokens are None for a closed loop: they depend on the answers."""

    step: Step
    requests: int | None
    input_tokens: int | None
    output_tokens: int | None
    cumulative_s: float
    offered_rps: float | None = None
    """Requests a second due in the measured part, once that is known."""


@dataclass(slots=True, frozen=True)
class PreviewPart:
    """What one command, or one phase of it, would send."""

    title: str
    steps: tuple[PreviewStep, ...] = ()
    notes: tuple[str, ...] = ()
    runs: int = 1
    """How often all of it is sent."""


def imagined_climb(scenario: Scenario) -> Iterator[list[Step]]:
    """The steps of the ramp if every step is quiet, each with its times and, before the first one, the discarded load;
    when they begin is for the caller to say."""
    rows: list[Row] = []
    while isinstance(proposal := scenario.ramp(rows), Step):
        warmup_s, measure_s = times(scenario, proposal)
        steps = [replace(proposal, warmup_s=warmup_s, measure_s=measure_s)]
        if not rows and (seconds := settle_s(scenario, proposal.rate_rps)):
            steps.insert(0, replace(proposal, role="settle", warmup_s=0.0, measure_s=seconds))
        yield steps
        rows.append(imagined_row(steps[-1]))


def preview_steps(scenario: Scenario) -> Iterator[PreviewStep]:
    """The steps of the ramp if every step is quiet, with the shortest warm-up unless the scenario sets one.

    A ceiling ramp stops at the first overload, so these are the most that it can send; its soak comes on top.
    """
    at_s, first_seq = 0.0, 0
    for number, steps in enumerate(islice(imagined_climb(scenario), MOST_STEPS), start=1):
        for step in steps:
            placed = replace(step, begin_s=at_s, index=step.index if step.role == "settle" else number)
            if step.role != "settle" and lack_of_rows(scenario, placed, first_seq):
                return
            at_s, first_seq, planned = add_step(scenario, placed, first_seq)
            yield planned


def most_users(scenario: Scenario) -> int | None:
    """The largest number of users of a closed-loop ramp; None for an open loop, whose requests in flight depend on the
    answers."""
    asked = (steps[-1].users or 0 for steps in islice(imagined_climb(scenario), MOST_STEPS))
    return max(takewhile(bool, asked), default=None)


def over_a_cap(scenario: Scenario, step: Step, planned: float, number: int) -> str:
    """Why a ramp ends before ``step``, whose times are known; empty where it goes on.

    Args:
        scenario: with its files read.
        step: the next one.
        planned: requests of the steps before it, with all turns of their sessions.
        number: of its first arrival.
    """
    pace = scenario.pace
    if missing := lack_of_rows(scenario, step, number):
        return missing
    if pace.max_minutes is not None and step.end_s > pace.max_minutes * 60:
        return f"the next step would end after max_minutes = {pace.max_minutes:g}"
    requests = planned + (step.rate_rps or 0.0) * (step.end_s - step.begin_s)
    if pace.max_requests is not None and step.rate_rps and requests > pace.max_requests:
        return f"the next step would exceed max_requests = {pace.max_requests}"
    return ""


def settle_s(scenario: Scenario, rate_rps: float | None, longest_s: float = 300.0) -> float:
    """Seconds of discarded load before the first step: ``settle_s`` and ``settle_requests``, whichever is longer."""
    pace = scenario.pace
    if not rate_rps:
        return pace.settle_s
    return min(max(pace.settle_s, pace.settle_requests / rate_rps), max(pace.settle_s, longest_s))


def times(scenario: Scenario, step: Step) -> tuple[float, float]:
    """Seconds of warm-up and of the measured part, before anything is known of the server."""
    pace = scenario.pace
    measure_s = step.measure_s or pace.length_s(step.rate_rps)
    warmup_s = pace.warmup_s if pace.warmup_s is not None else min(SHORTEST_WARMUP_S, measure_s * 2 / 3)
    return warmup_s, measure_s


def add_step(scenario: Scenario, step: Step, first_seq: int) -> tuple[float, int, PreviewStep]:
    """The step as it would be: its end, the ``seq`` of the next request, and requests and tokens counted."""
    if step.users is not None:
        return step.end_s, first_seq, PreviewStep(step, None, None, None, step.end_s)
    plan = beginning(scenario, step, first_seq)
    arrivals = len(plan) if plan.step == step else round(arrivals_of(scenario, step))
    counted = plan[:LARGE_REQUESTS]
    requests, inputs, outputs = 0, 0.0, 0
    for number in counted.numbers.tolist():
        prompt = plan.prompts[number]
        if prompt.input_tokens is not None and not prompt.following:
            requests += 1
            inputs += prompt.input_tokens
            outputs += prompt.output_tokens or 0
            continue
        for size in PrefixHistory().sizes(prompt):
            requests += 1
            inputs += size.input_tokens
            outputs += size.output_tokens or 0
    scale = arrivals / max(1, len(counted))
    planned = PreviewStep(step, round(requests * scale), round(inputs * scale), round(outputs * scale), step.end_s)
    return step.end_s, first_seq + arrivals, planned


def imagined_row(step: Step) -> Row:
    """The row of a step at which nothing gives way."""
    return Row(role=step.role, rate_rps=step.rate_rps, users=step.users, overloaded=False)


def _saturated(step: Step) -> Row:
    """The row of a step whose rate is the ceiling."""
    return replace(imagined_row(step), saturated=True, deficit=True, ceiling_rps=step.rate_rps)


def ahead_s(scenario: Scenario, rows: Sequence[Row]) -> tuple[float, float] | None:
    """Least and most seconds of load that a ramp takes after the steps of ``rows``.

    Of three courses: nothing gives way any more, the next step of the climb does, or the soaks after it do too. Steps
    that go on longer are left out. None for a ramp from outside: it may expect rows as they are measured.
    """
    if scenario.ramp.kind not in RAMPS:
        return None
    lasts_s = [_course_s(scenario, rows, giving_way) for giving_way in ((), ("step",), ("step", "soak"))]
    return min(lasts_s), max(lasts_s)


def _course_s(scenario: Scenario, rows: Sequence[Row], giving_way: Sequence[Role]) -> float:
    """Seconds of all further steps if those of the roles ``giving_way`` are saturated, and no others."""
    climbed, total_s = list(rows), 0.0
    while len(climbed) < MOST_STEPS and isinstance(step := scenario.ramp(climbed), Step):
        climbed.append(_saturated(step) if step.role in giving_way else imagined_row(step))
        total_s += sum(times(scenario, step))
    return total_s


def longest_s(pace: RampOptions, measure_s: float) -> float:
    """Most measured seconds of a step whose usual length is ``measure_s``: ``longest_s``, or three times as long but at
    most ten minutes."""
    most_s = min(LONGEST_FACTOR * measure_s, LONGEST_S) if pace.longest_s is None else pace.longest_s
    return max(measure_s, most_s)


def most_extra_s(scenario: Scenario) -> float:
    """By how much all steps of one ramp together may be longer if the engine's step time has regimes, in seconds.

    That is one step at its longest, and a soak (docs/method.md, "Longer steps or more ramps"). It is 0 if the scenario
    lists its steps or says itself when they end, and for a replayed trace, which has no more of the same load.
    """
    pace, ramp = scenario.pace, scenario.ramp
    replayed = reads_a_file(scenario.arrivals.function)
    if ramp.kind not in ("ceiling", "geometric") or pace.until_sure is not None or replayed:
        return 0.0
    usual_s = [pace.length_s(ramp.option("start_rps"))]
    if ramp.kind == "ceiling":
        usual_s.append(ramp.option("soak_s"))
    return float(sum(longest_s(pace, usual) - usual for usual in usual_s if usual))


def longer_steps_note(scenario: Scenario) -> list[str]:
    """What ``plan`` says of steps that may be longer; nothing if none may."""
    extra_s = most_extra_s(scenario)
    if not extra_s:
        return []
    which = "overloaded steps"
    if scenario.ramp.kind == "ceiling":
        soak = " and the soak" if scenario.ramp.option("soak_s") else ""
        which = f"steps near the ceiling{soak}"
    return [f"Up to {span(extra_s)} more if the engine's step time is unstable: {which} go on ([ramp] longest_s)."]


def offered_rates(scenario: Scenario, steps: Sequence[Step]) -> list[float | None]:
    """Requests a second due in the measured part of each step; None in a closed loop, and if there are too many.

    Later turns of sessions, those of earlier steps included, are placed as if every answer came at once. If the run
    itself chooses the warm-up, sessions get the longest that it may choose.

    Args:
        scenario: with its files read.
        steps: in the order in which they are offered, with their times.
    """
    turns = turns_of(scenario) > 1.0
    later_s: list[float] = []
    return [_offered(scenario, step, later_s if turns else None) for step in _with_warmups(scenario, steps, turns)]


def _with_warmups(scenario: Scenario, steps: Sequence[Step], turns: bool) -> Iterator[Step]:
    moved_s = 0.0
    for step in steps:
        placed = replace(step, begin_s=step.begin_s + moved_s)
        if turns and step.measured and scenario.pace.warmup_s is None:
            placed = replace(placed, warmup_s=max(step.warmup_s or 0.0, (step.measure_s or 0.0) * 2.0 / 3.0))
            moved_s += (placed.warmup_s or 0.0) - (step.warmup_s or 0.0)
        yield placed


def _offered(scenario: Scenario, step: Step, later_s: list[float] | None) -> float | None:
    """The rate of one step. ``later_s``: the later turns so far, to which its own are added; None: there are none."""
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
    return int(np.count_nonzero(within(due_s, step.window_s))) / step.measure_s


def _later_turns(plan: StepPlan) -> Iterator[float]:
    """Due times of the turns after the first, if answers took no time."""
    for arrival in plan:
        at_s = arrival.due_s
        for turn in (arrival.prompt, *arrival.prompt.following)[:-1]:
            at_s += turn.think_s
            yield at_s
