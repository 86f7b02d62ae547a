"""The last two, measured in the order A B B A: whose turn it is, what it has shown, when it is enough. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadramp.tune.noise import LogRatio, VisitNoise, as_log, confirmed
from loadramp.tune.visit import Visit

Pair = tuple[str, str]
QUAD = 4
SPARE = 1
"""Rounds of four that may be measured again because a measurement had no number."""
CLEAR = 0.35
"""A difference of logarithms that one round of four shows with the shortest steps, at the assumed scatter."""


@dataclass(slots=True, frozen=True)
class Confirmation:
    """What the visits of one pair have shown. ``ratio``: ln(first / second)."""

    pair: Pair
    visits: Sequence[Visit] = ()
    ratio: LogRatio | None = None
    settled: bool = False

    @property
    def winner(self) -> str | None:
        """The one that is shown to be better."""
        if not self.settled or self.ratio is None or self.ratio.low <= 0.0 <= self.ratio.high:
            return None
        return self.pair[0] if self.ratio.low > 0.0 else self.pair[1]

    @property
    def turn(self) -> str:
        """Whose turn it is."""
        first, second = self.pair
        return (first, second, second, first)[len(self.visits) % QUAD]


def pairs_of(visits: Sequence[Visit]) -> list[Pair]:
    """The pairs that were confirmed or are being, in order; the first of each is the one that was measured first."""
    pairs: dict[frozenset[str], Pair] = {}
    for visit in visits:
        if visit.purpose == "confirm" and visit.rival is not None:
            pairs.setdefault(frozenset((visit.flags, visit.rival)), (visit.flags, visit.rival))
    return list(pairs.values())


def present(visits: Sequence[Visit]) -> Pair | None:
    """The pair that the last visit belongs to; None where that was no confirming one, or one of the two failed."""
    last = visits[-1] if visits else None
    if last is None or last.purpose != "confirm" or last.failed or last.rival is None:
        return None
    return next(pair for pair in pairs_of(visits) if last.flags in pair and last.rival in pair)


def weigh(
    pair: Pair, visits: Sequence[Visit], noise: VisitNoise, *, sign: int, rounds: int, same_ratio: float
) -> Confirmation:
    """What the visits of ``pair`` have shown.

    Args:
        pair: in either order.
        visits: all of the race.
        noise: between visits.
        sign: 1, or -1 for a cost.
        rounds: of four, at most.
        same_ratio: a difference within it is as good as none.
    """
    pair = next((listed for listed in pairs_of(visits) if set(listed) == set(pair)), pair)
    each = [visit for visit in visits if visit.purpose == "confirm" and visit.flags in pair and visit.rival in pair]
    begun = Confirmation(pair, each)
    if not each or len(each) % QUAD:
        return begun
    couples = [_in_order(visit, other, pair[0]) for visit, other in zip(each[::2], each[1::2], strict=True)]
    known = [two for two in couples if all(visit.log(sign) is not None for visit in two)]
    look = min(len(known) // 2, rounds)
    ratio = confirmed(known, sign, noise, look, rounds) if look else None
    far = as_log(same_ratio)
    decided = ratio is not None and (ratio.low > 0.0 or ratio.high < 0.0 or (ratio.low > -far and ratio.high < far))
    settled = decided or look >= rounds or len(each) >= QUAD * (rounds + SPARE)
    return Confirmation(pair, each, ratio, settled)


def _in_order(visit: Visit, other: Visit, first: str) -> tuple[Visit, Visit]:
    return (visit, other) if visit.flags == first else (other, visit)
