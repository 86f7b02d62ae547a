"""The steps of a ramp as one plan agreed beforehand, for machines that do not hear of one another's results. Pure.

The plan is a function of the scenario alone: each machine makes it for itself, and all of them make the same one.
"""

from collections.abc import Iterator
from dataclasses import replace

from loadramp.record.row import Row
from loadramp.record.types import Step, Stop
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Scenario
from loadramp.workload.preview import imagined_row, settle_s, times
from loadramp.workload.schedule import arrivals_of, lack_of_rows, turns_of

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
    rows: list[Row] = []
    at_s, index, arrivals = FIRST_S, 0, 0.0
    while not isinstance(proposal := scenario.ramp(rows), Stop):
        warmup_s, measure_s = times(scenario, proposal)
        due = [replace(proposal, warmup_s=warmup_s, measure_s=measure_s)]
        if not rows and (seconds := settle_s(scenario, proposal.rate_rps)):
            due.insert(0, replace(proposal, role="settle", warmup_s=0.0, measure_s=seconds))
        for one in due:
            step = replace(one, index=index, begin_s=at_s + round(PLAN_S * arrivals_of(scenario, one), 3))
            if step.measured and _over_a_cap(scenario, step, arrivals):
                return
            yield step
            at_s, index, arrivals = step.end_s + GAP_S, index + 1, arrivals + arrivals_of(scenario, step)
        rows.append(imagined_row(due[-1]))


def _over_a_cap(scenario: Scenario, step: Step, before: float) -> bool:
    """Whether the ramp ends before ``step``, with so many arrivals ``before`` it."""
    pace = scenario.pace
    requests = (before + arrivals_of(scenario, step)) * turns_of(scenario)
    too_long = pace.max_minutes is not None and step.end_s > pace.max_minutes * 60
    too_many = pace.max_requests is not None and requests > pace.max_requests
    return too_long or too_many or bool(lack_of_rows(scenario, step, round(before)))
