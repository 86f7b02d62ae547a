"""Visits with literal numbers: what the race is tried on."""

from collections.abc import Mapping
from dataclasses import replace

from loadramp.tune.candidates import Search
from loadramp.tune.race import NextVisit, RaceRules, next_of
from loadramp.tune.visit import Proposal, Purpose, Visit, VisitState

Spec = dict[str, float]


def visit(
    flags: str,
    value: float | None,
    purpose: Purpose = "race",
    number: int = 0,
    state: VisitState = "measured",
    rival: str | None = None,
) -> Visit:
    """A visit whose run states 4 % on each side."""
    if value is None:
        return Visit(flags, purpose, number, rival, "unmeasured" if state == "measured" else state, reason="no number")
    return Visit(flags, purpose, number, rival, state, value, value / 1.04, value * 1.04)


def played(
    rules: RaceRules,
    truth: Spec,
    most: int = 100,
    factors: tuple[float, ...] = (1.0,),
    cures: Mapping[str, str] | None = None,
) -> list[Visit]:
    """The race to its end on configurations whose objective is known; ``factors``: of one visit after the other;
    ``cures``: configuration to the flags that its runs propose. One that is not in ``truth`` does not start."""
    visits: list[Visit] = []
    while isinstance(action := next_of(rules, visits), NextVisit) and len(visits) < most:
        factor = factors[len(visits) % len(factors)]
        value = truth.get(action.flags)
        if value is None:
            visits.append(visit(action.flags, None, action.purpose, action.round, "did_not_start", action.rival))
        else:
            seen = visit(action.flags, value * factor, action.purpose, action.round, "measured", action.rival)
            told = (cures or {}).get(action.flags)
            visits.append(replace(seen, cures=[Proposal(told, "more_sequences")]) if told else seen)
    return visits


def rules_of(*tries: str, **more: object) -> RaceRules:
    """RaceRules for these candidates, on top of a baseline without flags."""
    return RaceRules(Search(tries=tries), **more)  # type: ignore[arg-type]
