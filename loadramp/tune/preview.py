"""What a tuning will do before it starts: its candidates, and about how many minutes. Also for ``loadramp plan``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loadramp.client import input_files
from loadramp.runner.preview import planned_steps
from loadramp.scenario.scenario import Scenario
from loadramp.tune.candidates import descend, grid_of, usable
from loadramp.tune.confirm import QUAD
from loadramp.tune.flags import merged
from loadramp.tune.race import NextVisit, RaceRules
from loadramp.tune.state import TuneState, fresh
from loadramp.tune.steps import foreseen_s, overrides_of, start_rps
from loadramp.tune.table import objective_of, tune_of
from loadramp.tune.text import OBJECTIVES
from loadramp.units import plural, span
from loadramp.workload.preview import PreviewPart


def planned(scenario: Scenario, state: TuneState) -> list[str]:
    """The plan in lines: objective, candidates, minutes, what ends it."""
    rules, table = state.rules(scenario), tune_of(scenario)
    known, more = first_candidates(rules, state)
    lines = [
        f"objective: {OBJECTIVES[objective_of(scenario)]}" + (f", with {table.limit}" if table.limit else ""),
        f"baseline: {rules.baseline or 'the command as it is'}",
        *(f"candidate: {flags}" for flags in known),
        *more,
    ]
    if known:
        seconds = [_seconds(scenario, rules, number) for number in range(rules.rounds)]
        first = seconds[0] * (len(known) + 1 + len(known) // rules.return_every)
        last = QUAD * seconds[-1]
        races = sum(rules.racing(number) * seconds[number] for number in range(1, rules.rounds))
        most = first + seconds[0] * len(known) + races + last * rules.confirmations
        lines.append(
            f"about {span(first + last)} to {span(most)}, {span(table.start_s)} for each start of a server included"
        )
    if state.visits:
        lines.append(f"of it {plural(len(state.visits), 'measurement')} and {span(state.spent_s)} are done")
    if table.max_hours is not None:
        lines.append(f"nothing begins that would end after {span(table.max_hours * 3600.0)} (max_hours)")
    return lines


def first_candidates(rules: RaceRules, state: TuneState) -> tuple[list[str], list[str]]:
    """The candidates that are known before anything was measured, and lines on those that are not."""
    search = rules.search
    if search.grid:
        return grid_of(search.baseline, search.tries), []
    known = [merged(rules.baseline, flags) for flags in search.tries]
    known += [merged(rules.baseline, flags) for flags in usable(search.cures, search.skip)[0]]
    known = [flags for flags in dict.fromkeys(known) if flags != rules.baseline]
    left = descend(search, state.visits, {}).left
    more = ["then all of them that do not hurt, and what differs from the best in one flag"]
    if not search.tries:
        whose = f"of {state.of_run}" if state.of_run else "of the baseline's own run"
        more = [f"cures {whose}, then those of each better configuration"]
    return known, [*more, *(f"not tried: {flags}: {why}" for flags, why in left)]


def _seconds(scenario: Scenario, rules: RaceRules, number: int) -> float:
    rate = start_rps(scenario, rules.baseline, rules.baseline, [])
    return foreseen_s(scenario, NextVisit("", "race", number), [], start_rps=rate, runs_already=False)


def tune_parts(scenario: Scenario, read: Callable[[Sequence[str]], Scenario]) -> list[PreviewPart]:
    """What ``loadramp plan`` shows of ``loadramp tune``: the climb of the baseline, and the plan."""
    state = fresh(scenario)
    rules = state.rules(scenario)
    first = NextVisit(rules.baseline, "race", 0)
    full = input_files.ready(read(overrides_of(scenario, first, rules.baseline, [], None)))
    steps = planned_steps(full)
    lines = tuple(f"{line[:1].upper()}{line[1:]}." for line in planned(scenario, state))
    return [PreviewPart("tune: the climb of the baseline, the first of many", tuple(steps), lines)]
