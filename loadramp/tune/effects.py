"""What each flag did on its own, and why each flag of the final command line is there. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp

from loadramp.tune.flags import apart, knobs_of, merged, text_of
from loadramp.tune.noise import LogRatio, ObjectiveLevel, ratio_of
from loadramp.tune.visit import Proposal, Visit
from loadramp.units import multiple, sig


@dataclass(slots=True, frozen=True)
class FlagEffect:
    """One flag against a configuration without it: ln(with / without), None where one of the two has no number."""

    flag: str
    on: str
    """The configuration that it was put on top of."""
    ratio: LogRatio | None
    reason: str = ""

    def words(self, sign: int) -> str:
        """``2.9 times (2.5 to 3.3)``, ``no difference shown (0.97 to 1.04)``, or why nothing is known."""
        if self.ratio is None:
            return self.reason or "not measured"
        low, high = sorted((exp(sign * self.ratio.low), exp(sign * self.ratio.high)))
        between = f"({sig(low)} to {sig(high)})"
        if self.ratio.low <= 0.0 <= self.ratio.high:
            return f"no difference shown {between}"
        return f"{multiple(exp(sign * self.ratio.mean))} {between}"


def alone(baseline: str, levels: Mapping[str, ObjectiveLevel], visits: Sequence[Visit]) -> list[FlagEffect]:
    """Each configuration that differs from the baseline in one flag, in the order of the first visit."""
    effects = []
    for flags in dict.fromkeys(visit.flags for visit in visits):
        more = apart(baseline, flags)
        if len(knobs_of(more)) == 1:
            effects.append(_effect(more, baseline, flags, levels, visits))
    return effects


def reasons(
    best: str,
    baseline: str,
    levels: Mapping[str, ObjectiveLevel],
    visits: Sequence[Visit],
    cures: Sequence[Proposal],
    sign: int,
) -> list[tuple[str, str]]:
    """(flag, why it is in ``best``) for each that the baseline has not: what it did, against the same without it where
    that was measured, else on its own; and the finding that it is a cure of."""
    out = []
    mine = knobs_of(apart(baseline, best))
    for name, words in mine.items():
        flag = shlex.join(words)
        others = text_of({other: its for other, its in mine.items() if other != name})
        effect = _effect(flag, merged(baseline, others), best, levels, visits)
        if effect.ratio is None:
            effect = _effect(flag, baseline, merged(baseline, flag), levels, visits)
        where = "on its own" if effect.on == baseline else f"on top of {apart(baseline, effect.on)}:"
        why = next((f"; {cure.why}" for cure in _every(visits, cures) if cure.flags == flag and cure.why), "")
        out.append((flag, f"{where} {effect.words(sign)}{why}"))
    return out


def _every(visits: Sequence[Visit], cures: Sequence[Proposal]) -> list[Proposal]:
    return [*cures, *(cure for visit in visits for cure in visit.cures)]


def _effect(
    flag: str, base: str, flags: str, levels: Mapping[str, ObjectiveLevel], visits: Sequence[Visit]
) -> FlagEffect:
    level, other = levels.get(flags), levels.get(base)
    if level is None or other is None:
        why = next((visit.reason for visit in visits if visit.flags == flags and visit.reason), "")
        return FlagEffect(flag, base, None, why)
    return FlagEffect(flag, base, ratio_of(level, other))
