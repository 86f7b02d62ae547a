"""What to measure next, given what was measured: the whole race as a function of its visits, so that one that was
interrupted goes on where it was. Pure.

Explore with short steps; who is shown to be below the best is out; survivors get longer steps; the last two are
measured in ABBA order until one is shown to be better or their difference is small (docs/method.md, "Tuning").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadramp.tune.candidates import Descent, Search, descend, needless
from loadramp.tune.flags import tidy
from loadramp.tune.noise import LogRatio, ObjectiveLevel, VisitNoise, as_log, confirmed, levels_of, noise_of
from loadramp.tune.visit import Purpose, Visit

QUAD = 4
CLEAR = 0.35
"""A difference of logarithms that one round of four shows with the shortest steps, at the assumed scatter."""
SPARE = 1
"""Rounds of four that may be measured again because a measurement had no number."""
TRIES = 2
"""A configuration without a number is measured so often at least."""


@dataclass(slots=True, frozen=True)
class RaceRules:
    """What the race is judged by; of ``[tune]``."""

    search: Search
    rounds: int = 3
    return_every: int = 3
    confirmations: int = 3
    same_ratio: float = 0.1
    visit_sd: float = 0.05
    sign: int = 1
    """-1: less is better."""

    @property
    def baseline(self) -> str:
        return tidy(self.search.baseline)


@dataclass(slots=True, frozen=True)
class NextVisit:
    """The next visit."""

    flags: str
    purpose: Purpose
    round: int


@dataclass(slots=True, frozen=True)
class RaceOver:
    """Nothing is left to measure."""

    why: str


@dataclass(slots=True)
class RaceState:
    """How the race stands. ``out``: configuration to why it is out."""

    noise: VisitNoise
    levels: dict[str, ObjectiveLevel]
    out: dict[str, str] = field(default_factory=dict)
    best: str | None = None
    descent: Descent = field(default_factory=lambda: Descent(""))
    pair: tuple[str, str] | None = None
    """The last two."""
    ratio: LogRatio | None = None
    """ln(first of the pair / second), from the confirming visits alone."""
    settled: bool = False
    """The confirmation has come to its end."""

    @property
    def winner(self) -> str | None:
        """Of the pair, the one that is shown to be better."""
        if self.pair is None or self.ratio is None or self.ratio.low <= 0.0 <= self.ratio.high:
            return None
        return self.pair[0] if self.ratio.low > 0.0 else self.pair[1]

    @property
    def alive(self) -> list[str]:
        """Measured and not out, the best first."""
        left = [flags for flags in self.levels if flags not in self.out]
        return sorted(left, key=lambda flags: -self.levels[flags].mean)


def standing(rules: RaceRules, visits: Sequence[Visit]) -> RaceState:
    """How the race stands after ``visits``."""
    noise = noise_of(visits, rules.sign, rules.visit_sd)
    levels = levels_of([one for one in visits if not one.failed], rules.sign, noise)
    found = RaceState(noise, levels, _outs(rules, visits))
    found.best = next(iter(found.alive), None)
    _confirm(rules, visits, found)
    found.descent = descend(rules.search, visits, levels, found.winner)
    return found


def _outs(rules: RaceRules, visits: Sequence[Visit]) -> dict[str, str]:
    """Configuration to why it is out: one that failed, and all that the visits up to any moment put out, which stay so:
    what is measured later of others brings nobody back. One that failed puts nobody out."""
    out = {one.flags: one.reason or one.state for one in visits if one.failed}
    serving = [one for one in visits if one.flags not in out]
    for k in range(1, len(serving) + 1):
        seen = serving[:k]
        levels = levels_of(seen, rules.sign, noise_of(seen, rules.sign, rules.visit_sd))
        alive = {flags: level for flags, level in levels.items() if flags not in out}
        if not alive:
            continue
        top = max(alive.values(), key=lambda level: level.mean)
        out |= {flags: "shown to be below the best" for flags, level in alive.items() if level.high < top.low}
        for one in seen:
            if one.value is None and one.high is not None and one.flags not in levels and _above(rules, one.high, top):
                out.setdefault(one.flags, f"below {one.high:.3g}: {one.reason}")
        alive = {flags: level for flags, level in alive.items() if flags not in out}
        for flags in alive:
            other = needless(flags, rules.baseline, alive, least=2)
            if other is not None:
                out[flags] = f"not shown to be better than {other}, which needs fewer flags"
    return out


def _above(rules: RaceRules, bound: float, top: ObjectiveLevel) -> bool:
    """All of the best level's interval is better than ``bound``."""
    _, low, high = top.values(rules.sign)
    return low > bound if rules.sign > 0 else high is not None and high < bound


def next_of(rules: RaceRules, visits: Sequence[Visit]) -> NextVisit | RaceOver:
    """The next visit, or why there is none."""
    own = [one for one in visits if one.flags == rules.baseline]
    first = _baseline_first(rules, own)
    if first is not None:
        return first
    now = standing(rules, visits)
    again = _explore(now) if now.settled and now.winner not in {None, rules.baseline} else None
    if now.settled and again is None:
        return RaceOver("the last two were confirmed")
    begun = now.pair is not None and bool(confirming(visits)) and again is None
    wanted = None if begun else again or _explore(now) or _longer(rules, visits, now)
    if wanted is not None:
        return NextVisit(rules.baseline, "return", wanted.round) if _return_due(rules, visits) else wanted
    if now.pair is None:
        return RaceOver("nothing is left that could be better than the baseline")
    return NextVisit(_turn(now.pair, visits), "confirm", _confirming_round(rules, now, visits))


def _confirming_round(rules: RaceRules, now: RaceState, visits: Sequence[Visit]) -> int:
    """How long the steps are that confirm: the shortest where the race has shown a difference that one look tells."""
    begun = confirming(visits)
    if begun:
        return begun[0].round if len(begun) < QUAD else rules.rounds - 1
    one, other = (now.levels[flags] for flags in now.pair or ())
    return 0 if abs(one.mean - other.mean) > CLEAR else rules.rounds - 1


def _baseline_first(rules: RaceRules, own: Sequence[Visit]) -> NextVisit | RaceOver | None:
    """The baseline until there is a number of it, with longer steps each time."""
    if any(one.state == "measured" for one in own):
        return None
    if any(one.failed for one in own):
        return RaceOver("the baseline could not be measured")
    if len(own) < max(TRIES, rules.rounds):
        return NextVisit(rules.baseline, "race", min(len(own), rules.rounds - 1))
    return RaceOver("the baseline could not be measured, not with the longest steps either")


def _explore(now: RaceState) -> NextVisit | None:
    return NextVisit(now.descent.next, "race", 0) if now.descent.next is not None else None


def _longer(rules: RaceRules, visits: Sequence[Visit], now: RaceState) -> NextVisit | None:
    """A configuration without a number once more, with longer steps; then survivors, while more than two survive."""
    for flags in [one.flags for one in visits if one.flags not in now.levels and one.flags not in now.out]:
        times = sum(one.flags == flags for one in visits)
        if times < max(TRIES, rules.rounds):
            return NextVisit(flags, "race", min(times, rules.rounds - 1))
    racing = now.alive
    alive = {flags: now.levels[flags] for flags in racing}
    for flags in racing:
        part = needless(flags, rules.baseline, alive)
        for one in (flags, part) if part is not None else ():
            if alive[one].visits < TRIES:
                return NextVisit(one, "race", min(1, rules.rounds - 1))
    if len(racing) <= 2:
        return None
    done = {(one.flags, one.round) for one in visits}
    for number in range(1, rules.rounds):
        for flags in racing:
            if (flags, number) not in done:
                return NextVisit(flags, "race", number)
    return None


def _return_due(rules: RaceRules, visits: Sequence[Visit]) -> bool:
    since = 0
    for one in reversed(visits):
        if one.flags == rules.baseline:
            break
        since += 1
    return since >= rules.return_every


def pair_of(rules: RaceRules, now: RaceState) -> tuple[str, str] | None:
    """The last two: the best and the next that is not out, else the best and the baseline."""
    alive = now.alive
    if len(alive) > 1:
        return alive[0], alive[1]
    if alive and alive[0] != rules.baseline and rules.baseline in now.levels:
        return alive[0], rules.baseline
    return None


def _confirm(rules: RaceRules, visits: Sequence[Visit], now: RaceState) -> None:
    """The last two and what the visits that confirm say of them."""
    each = confirming(visits)
    before = visits[: len(visits) - len(each)]
    now.pair = pair_of(rules, standing(rules, before) if each else now)
    if now.pair is None or not each:
        return
    if len(each) % QUAD:
        return
    pairs = [pair for k in range(0, len(each), 2) if (pair := _ordered(each[k], each[k + 1], now.pair[0]))]
    known = [pair for pair in pairs if all(one.log(rules.sign) is not None for one in pair)]
    look = min(len(known) // 2, rules.confirmations)
    if look:
        now.ratio = confirmed(known, rules.sign, now.noise, look, rules.confirmations)
    far = as_log(rules.same_ratio)
    ratio = now.ratio
    told = ratio is not None and (ratio.low > 0.0 or ratio.high < 0.0 or (ratio.low > -far and ratio.high < far))
    now.settled = told or look >= rules.confirmations or len(each) >= QUAD * (rules.confirmations + SPARE)


def _ordered(one: Visit, other: Visit, first: str) -> tuple[Visit, Visit] | None:
    """The two with that of ``first`` in front; None where they are not one of each."""
    if one.flags == other.flags:
        return None
    return (one, other) if one.flags == first else (other, one)


def confirming(visits: Sequence[Visit]) -> list[Visit]:
    """The visits that confirm the present pair: those at the end. A failure among them makes another pair, and so does
    a race that went on once they had shown what it could build on."""
    found: list[Visit] = []
    for one in reversed(visits):
        if one.purpose != "confirm" or one.failed:
            break
        found.insert(0, one)
    return found


def _turn(pair: tuple[str, str], visits: Sequence[Visit]) -> str:
    """Whose turn it is in A B B A; A is what runs already, so that no start is wasted."""
    each = [one.flags for one in confirming(visits)]
    first = each[0] if each else visits[-1].flags if visits and visits[-1].flags in pair else pair[0]
    second = pair[1] if first == pair[0] else pair[0]
    return (first, second, second, first)[len(each) % QUAD]
