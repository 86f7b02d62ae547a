"""Visits with literal numbers: what the race is tried on."""

from collections.abc import Mapping
from dataclasses import replace

from loadramp.tune.candidates import Search
from loadramp.tune.race import NextVisit, RaceRules, next_of
from loadramp.tune.visit import Proposal, Purpose, Visit, VisitState

Spec = dict[str, float]
M64, M256, M1024 = "--max-num-seqs 64", "--max-num-seqs 256", "--max-num-seqs 1024"
ON_A_GPU: list[tuple[str, Purpose, float, float, float]] = [
    (M64, "race", 23.018, 4.55, 116.4), (M1024, "race", 55.596, 17.9, 173.0), (M256, "race", 51.046, 23.6, 110.0),
    (M256, "confirm", 46.696, 27.0, 80.7), (M1024, "confirm", 53.944, 0.65, 4476.0),
    (M1024, "confirm", 55.347, 44.9, 68.3), (M256, "confirm", 51.494, 15.6, 170.0),
    (M256, "confirm", 51.036, 26.7, 97.5), (M1024, "confirm", 47.840, 2.9, 791.0),
    (M1024, "confirm", 54.097, 0.61, 4812.0), (M256, "confirm", 50.813, 24.8, 104.0),
]  # fmt: skip
"""vLLM 0.25.1 on one H200, steps of 15 s: flags, purpose, ceiling and the interval that the run states."""


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


def on_a_gpu() -> tuple[RaceRules, list[Visit]]:
    """ON_A_GPU as the race has it."""
    rivals = {M1024: M256, M256: M1024}
    visits = [
        Visit(flags, purpose, 0, rivals[flags] if purpose == "confirm" else None, "measured", *ends)
        for flags, purpose, *ends in ON_A_GPU
    ]
    return RaceRules(Search(M64, (M1024, M256)), rounds=1, confirmations=2), visits
