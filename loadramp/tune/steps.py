"""The ramp of one visit: where it starts, how long it may take. Pure.

It is the scenario's climb with other numbers: it doubles on until it is overloaded, whatever the scenario's start was.
"""

from __future__ import annotations

from collections.abc import Sequence

from loadramp.analysis.quantiles import needed
from loadramp.registry import options_of
from loadramp.scenario.scenario import SHORTEST_WARMUP_S, Scenario, toml_value
from loadramp.tune.flags import slug
from loadramp.tune.race import NextVisit
from loadramp.tune.table import Objective, objective_of, slo_with_limit, tune_of
from loadramp.tune.visit import Visit

BELOW = 0.7
"""A climb starts at this share of the ceiling that is known: one step is quiet, the next is beyond."""
BELOW_SLO = 0.5
FACTOR, FINE_FACTOR = 2.0, 1.5
"""Of a climb; the fine one where a curve between the steps is read, and its rate is known already."""
SETTLE_S, SETTLE_REQUESTS = 10.0, 20
LONGEST_STEP_S = 300.0
USUAL_STOP_S = 5.0
DRAIN_S = 15.0
"""Until what the last step left behind is answered."""
STEPS, FIRST_STEPS = 2, 5
"""A climb from near the ceiling, and one from a start that nobody knows."""


def start_rps(scenario: Scenario, flags: str, baseline: str, visits: Sequence[Visit]) -> float:
    """Where the climb of ``flags`` starts: below what it, or else the baseline, was found to sustain; else where the
    scenario starts."""
    known = known_start(visits, flags, baseline, objective_of(scenario))
    if known is not None:
        return known
    for name in ("start_rps", "rates"):
        if name in options_of(scenario.ramp.function):
            start = scenario.ramp.option(name)
            return float(start[0] if name == "rates" else start)
    return 1.0


def known_start(visits: Sequence[Visit], flags: str, baseline: str, objective: Objective) -> float | None:
    """Where a climb of ``flags`` starts that ends soon: below what it, or the baseline, sustains; None: unknown."""
    return _known(visits, flags, objective) or _known(visits, baseline, objective)


def _known(visits: Sequence[Visit], flags: str, objective: Objective) -> float | None:
    measured = [visit for visit in visits if visit.flags == flags and not visit.failed]
    for visit in reversed(measured):
        within, ceiling = visit.facts.get("slo_capacity_rps"), visit.facts.get("ceiling_rps")
        if objective == "slo_capacity" and within:
            return BELOW_SLO * within
        if ceiling:
            return (BELOW if objective == "ceiling" else BELOW_SLO) * ceiling
        if visit.value is None and visit.high and objective == "slo_capacity":
            return BELOW_SLO * visit.high
    return None


def _ceiling_known(visits: Sequence[Visit], flags: str) -> bool:
    return any(visit.flags == flags and visit.facts.get("ceiling_rps") for visit in visits)


def overrides_of(
    scenario: Scenario, action: NextVisit, baseline: str, visits: Sequence[Visit], left_s: float | None
) -> list[str]:
    """What ``--set`` would have to be given to make the scenario this visit.

    Args:
        scenario: of the tuning.
        action: what is measured.
        baseline: its flags.
        visits: so far.
        left_s: seconds that the ramp may take; None: as long as it needs.
    """
    pace, table, objective = scenario.pace, tune_of(scenario), objective_of(scenario)
    start = start_rps(scenario, action.flags, baseline, visits)
    measure_s = step_s(scenario, action.round, start)
    known = _ceiling_known(visits, action.flags)
    ramp = {
        "kind": "ceiling", "start_rps": start, "factor": FINE_FACTOR if known and objective != "ceiling" else FACTOR,
        "soak_s": 0.0, "measure_s": measure_s, "longest_s": 0.0, "warmup_s": pace.warmup_s,
        "settle_s": min(pace.settle_s, SETTLE_S), "settle_requests": min(pace.settle_requests, SETTLE_REQUESTS),
        "tail_s": pace.tail_s, "max_in_flight": pace.max_in_flight, "max_error_ratio": pace.max_error_ratio,
        "give_up_s": pace.give_up_s, "max_minutes": None if left_s is None else max(left_s, 1.0) / 60.0,
    }  # fmt: skip
    if "max_rps" in scenario.ramp.options and scenario.ramp.kind == "ceiling":
        ramp["max_rps"] = scenario.ramp.option("max_rps")
    limits = [f"{key}={value!r}" for key, value in slo_with_limit(scenario.slo, table.limit).items()]
    name = toml_value(f"{scenario.name}-{slug(action.flags)}")
    return [f"name={name}", f"ramp={toml_value(ramp)}", "gates={}", *limits]


def step_s(scenario: Scenario, number: int, rate_rps: float) -> float:
    """Measured seconds of a step: as ``[tune] step_s`` says, longer where a service level's quantile needs it."""
    asked = tune_of(scenario).step_s
    length_s = asked[min(number, len(asked) - 1)]
    if objective_of(scenario) not in {"slo_capacity", "goodput"} and not tune_of(scenario).limit:
        return length_s
    least_s = 1.2 * needed(scenario.slo.quantile) / rate_rps
    return max(length_s, min(least_s, LONGEST_STEP_S))


def foreseen_s(
    scenario: Scenario, action: NextVisit, visits: Sequence[Visit], *, start_rps: float, runs_already: bool
) -> float:
    """How long a visit will take: as those before it, else as long as its steps with the usual start of a server."""
    starts = [visit.start_s for visit in visits if visit.start_s is not None]
    start_s = 0.0 if runs_already else max(starts, default=tune_of(scenario).start_s) + USUAL_STOP_S
    pace = scenario.pace
    warmup_s = SHORTEST_WARMUP_S if pace.warmup_s is None else pace.warmup_s
    steps = FIRST_STEPS if not visits else STEPS if _ceiling_known(visits, action.flags) else STEPS + 1
    settle_s = max(min(pace.settle_s, SETTLE_S), min(pace.settle_requests, SETTLE_REQUESTS) / start_rps)
    tail_s = 5.0 if pace.tail_s is None else pace.tail_s
    return start_s + settle_s + steps * (warmup_s + step_s(scenario, action.round, start_rps)) + tail_s + DRAIN_S
