"""The steps of a ramp as one plan agreed beforehand, for machines that do not hear of one another's results. Pure.

The plan is a function of the scenario alone: each machine makes it for itself, and all of them make the same one.
"""

from collections.abc import Iterator
from dataclasses import replace

from loadramp.record.types import Step
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Scenario
from loadramp.workload.preview import imagined_climb, over_a_cap
from loadramp.workload.schedule import arrivals_of, turns_of

FIRST_S = 1.0
"""When the first step begins: the workers have heard of it by then."""
GAP_S, PLAN_S = 0.5, 2e-7
"""Between two steps, for telling the workers of the next one, and for each of its arrivals, since two processes plan
all of them one after the other. The load of the step before goes on meanwhile."""
LISTED = ("geometric", "ladder", "users")
"""The kinds of ramp whose steps can be listed beforehand; what they would end for is not looked at."""


def check_agreeable(scenario: Scenario, option: str) -> None:
    """Find out whether the steps can be agreed beforehand.

    Args:
        scenario: how to ramp.
        option: what asks for it, for the message.

    Raises:
        ScenarioError: results would choose some of it; names every key of ``[ramp]`` to set, and to what.
    """
    pace = scenario.pace
    wrong = []
    if scenario.ramp.kind not in LISTED:
        wrong.append(f"kind = {scenario.ramp.kind!r} picks its steps by results: set it to one of {', '.join(LISTED)}")
    if pace.warmup_s is None:
        wrong.append("warmup_s is not set: set it to twice the longest time of a request, such as 30")
    if pace.tail_s is None:
        wrong.append("tail_s is not set: set it to the longest time of a request, such as 15")
    if pace.until_sure is not None:
        wrong.append("until_sure ends steps by results: leave it out")
    if wrong:
        raise ScenarioError(f"{option} needs all steps to be known beforehand: [ramp] {'; [ramp] '.join(wrong)}")
    if scenario.gates.abort:
        raise ScenarioError(f"{option} needs all steps to be known beforehand: [gates] abort ends a ramp by results")


def agreed_steps(scenario: Scenario) -> list[Step]:
    """All steps with their times, the load before the first and after the last one included.

    Args:
        scenario: with its files read; ``check_agreeable`` has been asked.

    Raises:
        ScenarioError: the limits of ``[ramp]``, or a file that is too short, leave no step.
    """
    steps = list(_steps(scenario))
    if not any(step.measured for step in steps):
        raise ScenarioError("[ramp] max_minutes, max_requests, or the file to go through once: no step is left")
    last, tail_s = steps[-1], scenario.pace.tail_s or 0.0
    if tail_s:
        begin_s = last.end_s + GAP_S
        steps.append(replace(last, index=len(steps), role="tail", begin_s=begin_s, warmup_s=0.0, measure_s=tail_s))
    return steps


def _steps(scenario: Scenario) -> Iterator[Step]:
    at_s, index, arrivals = FIRST_S, 0, 0.0
    for steps in imagined_climb(scenario):
        for proposed in steps:
            begin_s = at_s + round(PLAN_S * arrivals_of(scenario, proposed), 3)
            step = replace(proposed, index=index, begin_s=begin_s)
            if step.measured and over_a_cap(scenario, step, arrivals * turns_of(scenario), round(arrivals)):
                return
            yield step
            at_s, index, arrivals = step.end_s + GAP_S, index + 1, arrivals + arrivals_of(scenario, step)
