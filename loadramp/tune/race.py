"""What to measure next, given what was measured: the whole race as a function of its visits, so that one that was
interrupted goes on where it was. Pure.

Explore with short steps; who is shown to be below the best is out; survivors get longer steps; the last two are
measured in ABBA order until one is shown to be better or their difference is small (docs/method.md, "Tuning").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import sqrt

from loadramp.tune.candidates import Descent, Search, descend, simpler
from loadramp.tune.confirm import CLEAR, QUAD, Confirmation, Pair, present, weigh
from loadramp.tune.flags import tidy
from loadramp.tune.noise import ObjectiveLevel, VisitNoise, better, levels_of, noise_of
from loadramp.tune.visit import Purpose, Visit

SMALL = 0.05
"""A gain over the baseline, as a difference of logarithms, that is not built on unless it is confirmed."""
REACH = 1.5
"""Standard errors below the leader's at which a configuration may well be the better one still."""
TRIES = 2
"""A configuration without a number is measured so often at least, and so are the baseline and one to build on."""


@dataclass(slots=True, frozen=True)
class RaceRules:
    """What the race is judged by; of ``[tune]``."""

    search: Search
    rounds: int = 3
    return_every: int = 3
    confirmations: int = 2
    same_ratio: float = 0.15
    visit_sd: float = 0.05
    sign: int = 1
    """-1: less is better."""

    @property
    def baseline(self) -> str:
        return tidy(self.search.baseline)

    def racing(self, number: int) -> int:
        """How many at most get a measurement in this round: two in the last one, one more in each before it."""
        return self.rounds + 1 - number


@dataclass(slots=True, frozen=True)
class NextVisit:
    """The next visit."""

    flags: str
    purpose: Purpose
    round: int
    rival: str | None = None
    """The other one of the pair that it confirms."""


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
    descent: Descent = field(default_factory=Descent)
    confirmation: Confirmation | None = None
    """Of the last two; None where there are not two."""
    going_on: bool = False
    """The last visit was one of it."""

    @property
    def settled(self) -> bool:
        """The confirmation has come to its end."""
        return self.confirmation is not None and self.confirmation.settled

    @property
    def alive(self) -> list[str]:
        """Measured and not out, the best first."""
        left = [flags for flags in self.levels if flags not in self.out]
        return sorted(left, key=lambda flags: -self.levels[flags].mean)

    @property
    def within_reach(self) -> list[str]:
        """Alive, and not far below the leader, which is the first."""
        alive = self.alive
        return [flags for flags in alive if _reaches(self.levels[flags], self.levels[alive[0]])]


def standing(rules: RaceRules, visits: Sequence[Visit]) -> RaceState:
    """How the race stands after ``visits``."""
    noise = noise_of(visits, rules.sign, rules.visit_sd)
    levels = levels_of([visit for visit in visits if not visit.failed], rules.sign, noise)
    now = RaceState(noise, levels, _outs(rules, visits))
    now.best = next(iter(now.alive), None)
    pair = present(visits)
    now.going_on, pair = pair is not None, pair or pair_of(rules, now)
    if pair is not None:
        now.confirmation = confirmation_of(rules, pair, visits, noise)
    now.descent = descend(rules.search, visits, levels, _leader(rules, now))
    return now


def _leader(rules: RaceRules, now: RaceState) -> str | None:
    """The best so far, where others are to be derived from it: it is not going to be raced any further first, and its
    gain over the baseline is no small one, or it was confirmed."""
    base = now.levels.get(rules.baseline)
    if base is None or now.best is None:
        return None
    level, firm = now.levels[now.best], rules.rounds == 1 or len(now.within_reach) == 1
    confirmed = now.confirmation is not None and now.confirmation.winner == now.best
    small = level.mean - base.mean < SMALL
    return now.best if confirmed or (not small and (firm or level.visits >= TRIES)) else None


def confirmation_of(rules: RaceRules, pair: Pair, visits: Sequence[Visit], noise: VisitNoise) -> Confirmation:
    """What the confirming visits of ``pair`` have shown, by the rules of the race."""
    rounds = max(1, rules.confirmations - spared(rules, pair, visits))
    return weigh(pair, visits, noise, sign=rules.sign, rounds=rounds, same_ratio=rules.same_ratio)


def spared(rules: RaceRules, pair: Pair, visits: Sequence[Visit]) -> int:
    """Rounds of four that ``pair`` does without: 1 where both were shown to be better than the baseline before it was
    confirmed. Which of them is named then matters less, and the looks at it stay those that were planned."""
    two = set(pair)
    began = (k for k, visit in enumerate(visits) if visit.purpose == "confirm" and {visit.flags, visit.rival} == two)
    before = [visit for visit in visits[: next(began, len(visits))] if not visit.failed]
    levels = levels_of(before, rules.sign, noise_of(before, rules.sign, rules.visit_sd))
    base, both = levels.get(rules.baseline), [levels[flags] for flags in pair if flags in levels]
    return int(base is not None and len(both) == 2 and all(better(level, base) for level in both))


def _outs(rules: RaceRules, visits: Sequence[Visit]) -> dict[str, str]:
    """Configuration to why it is out: one that failed, and all that the visits up to any moment put out, which stay so:
    what is measured later of others brings nobody back. One that failed puts nobody out."""
    out = {visit.flags: visit.reason or visit.state for visit in visits if visit.failed}
    serving = [visit for visit in visits if visit.flags not in out]
    for k in range(1, len(serving) + 1):
        so_far = serving[:k]
        levels = levels_of(so_far, rules.sign, noise_of(so_far, rules.sign, rules.visit_sd))
        alive = {flags: level for flags, level in levels.items() if flags not in out}
        if not alive:
            continue
        top = max(alive.values(), key=lambda level: level.mean)
        out |= {flags: "shown to be below the best" for flags, level in alive.items() if level.high < top.low}
        for visit in so_far:
            bound = visit.high if visit.value is None and visit.flags not in levels else None
            if bound is not None and _above(rules, bound, top):
                out.setdefault(visit.flags, f"below {bound:.3g}: {visit.reason}")
    return out


def _reaches(level: ObjectiveLevel, leader: ObjectiveLevel) -> bool:
    return leader.mean - level.mean < REACH * sqrt(level.se**2 + leader.se**2)


def _above(rules: RaceRules, bound: float, top: ObjectiveLevel) -> bool:
    """All of the best level's interval is better than ``bound``."""
    _, low, high = top.values(rules.sign)
    return low > bound if rules.sign > 0 else high is not None and high < bound


def next_of(rules: RaceRules, visits: Sequence[Visit]) -> NextVisit | RaceOver:
    """The next visit, or why there is none."""
    of_baseline = [visit for visit in visits if visit.flags == rules.baseline]
    first = _baseline_first(rules, of_baseline)
    if first is not None:
        return first
    now = standing(rules, visits)
    pair = now.confirmation
    if now.going_on and pair is not None:
        built_on = now.settled and pair.winner not in {None, rules.baseline}
        if not now.settled:
            return _confirm(rules, now, visits, pair)
        return (_explore(now) if built_on else None) or RaceOver("the last two were confirmed")
    again = _once_more(rules, visits, now)
    if again is not None:
        return again
    wanted = _explore(now) or _longer(rules, visits, now) or _baseline_again(rules, of_baseline, now)
    if wanted is not None:
        return NextVisit(rules.baseline, "return", wanted.round) if _return_due(rules, visits) else wanted
    if pair is None:
        return RaceOver("nothing is left that could be better than the baseline")
    if pair.settled:
        return RaceOver("the last two were confirmed before")
    last = visits[-1].flags
    turned = replace(pair, pair=pair.pair[::-1]) if not pair.visits and last == pair.pair[1] else pair
    return _confirm(rules, now, visits, turned)  # it begins with the one that runs already, so that no start is wasted


def _confirm(rules: RaceRules, now: RaceState, visits: Sequence[Visit], pair: Confirmation) -> NextVisit:
    """The next confirming visit: with the shortest steps that gave a number of both, where the race has shown a
    difference that they tell."""
    first, second = (now.levels[flags].mean for flags in pair.pair)
    known = [visit for visit in visits if visit.value is not None]
    rounds = ([visit.round for visit in known if visit.flags == flags] for flags in pair.pair)
    shortest = max(min(each, default=rules.rounds - 1) for each in rounds)
    number = shortest if abs(first - second) > CLEAR and len(pair.visits) < QUAD else rules.rounds - 1
    if pair.visits and len(pair.visits) < QUAD:
        number = pair.visits[0].round
    rival = pair.pair[1] if pair.turn == pair.pair[0] else pair.pair[0]
    return NextVisit(pair.turn, "confirm", number, rival)


def _baseline_first(rules: RaceRules, of_baseline: Sequence[Visit]) -> NextVisit | RaceOver | None:
    """The baseline until there is a number of it, with longer steps each time."""
    if any(visit.state == "measured" for visit in of_baseline):
        return None
    if any(visit.failed for visit in of_baseline):
        return RaceOver("the baseline could not be measured")
    if len(of_baseline) < max(TRIES, rules.rounds):
        return NextVisit(rules.baseline, "race", min(len(of_baseline), rules.rounds - 1))
    return RaceOver("the baseline could not be measured, not with the longest steps either")


def _explore(now: RaceState) -> NextVisit | None:
    return NextVisit(now.descent.next, "race", 0) if now.descent.next is not None else None


def _once_more(rules: RaceRules, visits: Sequence[Visit], now: RaceState) -> NextVisit | None:
    """A configuration without a number, with longer steps; it runs already."""
    for flags in [visit.flags for visit in visits if visit.flags not in now.levels and visit.flags not in now.out]:
        times = sum(visit.flags == flags for visit in visits)
        if times < max(TRIES, rules.rounds):
            return NextVisit(flags, "race", min(times, rules.rounds - 1))
    return None


def _longer(rules: RaceRules, visits: Sequence[Visit], now: RaceState) -> NextVisit | None:
    """The leader and the next within its reach with longer steps, fewer with each round."""
    done = {(visit.flags, visit.round) for visit in visits}
    for number in range(1, rules.rounds):
        racing = now.within_reach[: rules.racing(number)]
        for flags in racing if len(racing) > 1 else ():
            if (flags, number) not in done:
                return NextVisit(flags, "race", number)
    return None


def _baseline_again(rules: RaceRules, of_baseline: Sequence[Visit], now: RaceState) -> NextVisit | None:
    """The baseline, until it was measured TRIES times, where it is not one of the last two: the answer is a ratio to
    it, and one visit does not show its scatter."""
    pair = now.confirmation
    if pair is None or pair.settled or rules.baseline in pair.pair or len(of_baseline) >= TRIES:
        return None
    return NextVisit(rules.baseline, "return", min(len(of_baseline), rules.rounds - 1))


def _return_due(rules: RaceRules, visits: Sequence[Visit]) -> bool:
    last = max(k for k, visit in enumerate(visits) if visit.flags == rules.baseline)
    before = {visit.flags for visit in visits[:last]}
    return len({visit.flags for visit in visits[last:]} - before - {rules.baseline}) >= rules.return_every


def pair_of(rules: RaceRules, now: RaceState) -> Pair | None:
    """The last two: the leader, and the best within its reach that needs fewer flags; else the next that is not out;
    else the baseline."""
    alive = now.alive
    if len(alive) > 1:
        return alive[0], next(iter(simpler(alive[0], rules.baseline, now.within_reach)), alive[1])
    if alive and alive[0] != rules.baseline and rules.baseline in now.levels:
        return alive[0], rules.baseline
    return None
