"""The answer of a tuning: the best configuration, by how much, how sure; or that none is shown to differ. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loadramp.tune.confirm import Confirmation, pairs_of
from loadramp.tune.flags import knobs_of
from loadramp.tune.noise import LogRatio, ObjectiveLevel, as_log, largest_change, levels_of, ratio_of, rounds_needed
from loadramp.tune.race import RaceRules, RaceState, confirmation_of, spared, standing
from loadramp.tune.visit import Visit
from loadramp.units import percent, plural

Word = Literal["best", "no_difference", "undecided", "not_measurable"]
EQUAL = 0.01
"""Of two that are not told apart the one with fewer flags, or that was tried first, is named where their estimates are
as close as that, as a difference of logarithms; else the one that looks better."""
EXIT_CODES: dict[Word, int] = {"best": 0, "no_difference": 0, "not_measurable": 1, "undecided": 3}

TOO_WIDE = 0.5
"""Two that may still differ by more, as a share, were measured too few times to say anything of them."""


@dataclass(slots=True, frozen=True)
class TuneVerdict:
    """The answer. ``best`` is the best one seen, whether that is shown or not; None: nothing was measured."""

    word: Word
    now: RaceState
    best: str | None = None
    level: ObjectiveLevel | None = None
    baseline: ObjectiveLevel | None = None
    over_baseline: LogRatio | None = None
    """ln(best / baseline); None where the best is the baseline."""
    confirmed: bool = False
    """Both are of the visits in ABBA order alone."""
    rival: str | None = None
    """The other one of the last two."""
    tie: float | None = None
    """The largest difference, as a share, that is still possible between the last two; None: they were told apart."""
    why: str = ""
    """Why it is undecided, or could not be measured."""


def verdict_of(rules: RaceRules, visits: Sequence[Visit], ended: str = "") -> TuneVerdict:
    """The answer after ``visits``; ``ended``: why the race ended before its end, empty where it has come to it."""
    now = standing(rules, visits)
    base = now.levels.get(rules.baseline)
    if base is None:
        why = next((visit.reason for visit in reversed(visits) if visit.flags == rules.baseline), ended)
        return TuneVerdict("not_measurable", now, why=why or ended)
    if now.confirmation is not None and now.settled:
        return _settled(rules, now, visits, now.confirmation, base, ended)
    pairs = [confirmation_of(rules, pair, visits, now.noise) for pair in reversed(pairs_of(visits))]
    no_answer = {None, rules.baseline, *(visit.flags for visit in visits if visit.failed)}
    before = next((confirmation for confirmation in pairs if confirmation.winner not in no_answer), None)
    if before is not None:  # it ended while something was built on that
        return _settled(rules, now, visits, before, base, ended)
    unknown = {visit.flags for visit in visits} - {*now.levels, *now.out}
    if unknown and not ended:
        ended = f"no number was found of {', '.join(sorted(unknown))}"
    return _early(rules, now, base, ended)


def _early(rules: RaceRules, now: RaceState, base: ObjectiveLevel, ended: str) -> TuneVerdict:
    """Without a confirmation: all others are out, or it ended too early to say."""
    best = now.best or rules.baseline
    level = now.levels.get(best, base)
    over = ratio_of(level, base) if best != rules.baseline else None
    if not ended and best == rules.baseline and now.confirmation is None:
        return TuneVerdict("best", now, best, level, base)
    why = ended or "the last two were not told apart"
    return TuneVerdict("undecided", now, best, level, base, over, why=why)


def _settled(
    rules: RaceRules, now: RaceState, visits: Sequence[Visit], pair: Confirmation, base: ObjectiveLevel, ended: str
) -> TuneVerdict:
    """What the confirmation says of the last two and, where the baseline is not one of them, the race of it."""
    ratio = pair.ratio
    if ratio is None:
        return TuneVerdict("undecided", now, now.best, now.levels.get(now.best or ""), base, why="no pair was measured")
    first = ratio.mean >= 0.0
    if pair.winner is None:  # then all measurements count, not only the confirming ones
        ahead = now.levels[pair.pair[0]].mean - now.levels[pair.pair[1]].mean
        order = sorted(pair.pair, key=lambda flags: (len(knobs_of(flags)), list(now.levels).index(flags)))
        first = order[0] == pair.pair[0] if abs(ahead) < EQUAL else ahead > 0.0
    best, rival = pair.pair if first else pair.pair[::-1]
    over = ratio if first else LogRatio(-ratio.mean, ratio.half, ratio.pairs)
    tie = None if pair.winner is not None else largest_change(over)
    fresh = levels_of(pair.visits, rules.sign, now.noise)
    level = fresh.get(best, now.levels[best])
    if rules.baseline in pair.pair:
        base = fresh.get(rules.baseline, base)
    over_base = over if rules.baseline in pair.pair else ratio_of(level, base)
    if tie is not None and tie > TOO_WIDE:
        rounds = rounds_needed(over, now.noise, as_log(TOO_WIDE)) + spared(rules, pair.pair, visits)
        why = f"the last two may still differ by {percent(tie, 2)}: measure them in about {plural(rounds, 'round')}"
        return TuneVerdict("undecided", now, best, level, base, over_base if best != rules.baseline else None, False,
                           rival, tie, f"{why} of four, [tune] confirmations = {rounds}")  # fmt: skip
    if rules.baseline in pair.pair:
        word: Word = "best" if tie is None else "no_difference"
        return TuneVerdict(
            word, now, best, level, base, over if best != rules.baseline else None, True, rival, tie, ended
        )
    if over_base.low > 0.0:
        return TuneVerdict("best", now, best, level, base, over_base, False, rival, tie, ended)
    word, why = ("no_difference", ended) if tie is not None else ("undecided", "it is not shown to beat the baseline")
    return TuneVerdict(word, now, best, level, base, over_base, False, rival, tie or largest_change(over_base), why)
