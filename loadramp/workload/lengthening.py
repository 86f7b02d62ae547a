"""How much longer a ramp may take where the engine's step time has regimes. Pure.

Steps near the ceiling and the soak then go on (docs/method.md, "Longer steps or more ramps"). Where the scenario lists
its steps, or says itself until when they go on, nothing does.
"""

from __future__ import annotations

from loadramp.scenario.scenario import RampOptions, Scenario
from loadramp.units import span
from loadramp.workload.schedule import reads_a_file

KINDS = ("ceiling", "geometric")
"""Ramps that look for the ceiling; the others list their steps."""
TIMES, LONGEST_S = 3.0, 600.0


def longest_s(pace: RampOptions, measure_s: float) -> float:
    """Most measured seconds of a step whose usual length is ``measure_s``: ``longest_s``, or three times as long but at
    most ten minutes."""
    most_s = min(TIMES * measure_s, LONGEST_S) if pace.longest_s is None else pace.longest_s
    return max(measure_s, most_s)


def may_go_on(scenario: Scenario) -> bool:
    """Whether any step may. A replayed trace has no more of the same load to give."""
    replayed = reads_a_file(scenario.arrivals.function)
    return scenario.ramp.kind in KINDS and scenario.pace.until_sure is None and not replayed


def most_further_s(scenario: Scenario) -> float:
    """By how much all steps of one ramp together may be longer, seconds: one step at its longest, and a soak."""
    if not may_go_on(scenario):
        return 0.0
    pace, options = scenario.pace, scenario.ramp.options
    usual_s = [pace.length_s(options.get("start_rps", 1.0))]
    if scenario.ramp.kind == "ceiling":
        usual_s.append(options.get("soak_s", 300.0))
    return float(sum(longest_s(pace, one) - one for one in usual_s if one))


def words(scenario: Scenario) -> list[str]:
    """What ``plan`` says of it; nothing where no step goes on."""
    further_s = most_further_s(scenario)
    if not further_s:
        return []
    which = (
        "steps near the ceiling and the soak"
        if scenario.ramp.options.get("soak_s", 300.0)
        else "steps near the ceiling"
    )
    if scenario.ramp.kind != "ceiling":
        which = "overloaded steps"
    return [f"Up to {span(further_s)} more if the engine's step time is unstable: {which} go on ([ramp] longest_s)."]
