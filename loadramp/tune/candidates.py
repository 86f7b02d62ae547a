"""Which configuration is tried next: each flag on its own, then together what helped. Pure.

Coordinate descent: once a configuration is shown to be better, the other flags are tried on top of it, those that
helped on their own first, then those that made no difference (they may, once the first limit is gone), then the cures
of its own run. Flags that were shown to hurt are left, and so are other values of a flag that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from loadramp.tune.flags import knobs_of, merged, tidy
from loadramp.tune.noise import ObjectiveLevel, better
from loadramp.tune.visit import Proposal, Visit


@dataclass(slots=True, frozen=True)
class Search:
    """What may be tried. ``tries``: flags as given; none: the cures of findings."""

    baseline: str = ""
    tries: Sequence[str] = ()
    grid: bool = False
    skip: Sequence[str] = ()
    most: int = 16
    cures: Sequence[Proposal] = ()
    """Of another run (``--from``), tried before those of the baseline's own."""


@dataclass(slots=True)
class Descent:
    """How far the search has come: ``current`` is the best that was shown, ``left`` what it would still try."""

    current: str
    next: str | None = None
    left: list[tuple[str, str]] = field(default_factory=list)
    """Flags that are not tried and why."""


def grid_of(baseline: str, tries: Sequence[str]) -> list[str]:
    """Every combination of the values of every flag, each flag also left as it is, the baseline itself left out."""
    values: dict[tuple[str, ...], list[str]] = {}
    for flags in tries:
        values.setdefault(tuple(knobs_of(flags)), [""]).append(flags)
    found = []
    for chosen in product(*values.values()):
        flags = baseline
        for more in chosen:
            flags = merged(flags, more)
        found.append(flags)
    return [flags for flags in dict.fromkeys(found) if flags != tidy(baseline)]


def descend(search: Search, visits: Sequence[Visit], levels: Mapping[str, ObjectiveLevel]) -> Descent:
    """What to try next, given what was measured; ``next`` is None when nothing is left.

    Args:
        search: what may be tried.
        visits: so far, those that failed included.
        levels: of the configurations that were measured.
    """
    baseline = tidy(search.baseline)
    tried = {one.flags for one in visits}
    out = Descent(baseline)
    if search.grid:
        wanted = grid_of(search.baseline, search.tries)
        return _capped(out, [flags for flags in wanted if flags not in tried], tried, baseline, search.most)
    singles, not_tried = _singles(search, visits, baseline)
    out.left += not_tried
    first = [flags for one in singles if (flags := merged(baseline, one)) != baseline]
    fresh = [flags for flags in dict.fromkeys(first) if flags not in tried]
    if fresh:
        return _capped(out, fresh, tried, baseline, search.most)
    fresh = _together(search, out, singles, visits, levels)
    return _capped(out, fresh, tried, baseline, search.most)


def _capped(out: Descent, fresh: list[str], tried: set[str], baseline: str, most: int) -> Descent:
    room = most - len(tried - {baseline})
    if fresh and room > 0:
        out.next = fresh[0]
    out.left += [(flags, f"[tune] most_candidates = {most} was reached") for flags in fresh[max(room, 0) :]]
    return out


def _singles(search: Search, visits: Sequence[Visit], baseline: str) -> tuple[list[str], list[tuple[str, str]]]:
    """What is tried on its own, in order, and what is not with why."""
    if search.tries:
        others, left = _usable(search.cures, search.skip)
        return [*(tidy(one) for one in search.tries), *others], left
    own = next((one.cures for one in visits if one.flags == baseline and one.cures), ())
    return _usable([*search.cures, *own], search.skip)


def _usable(cures: Sequence[Proposal], skip: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    wanted = [one.flags for one in cures if one.flags and one.cure not in skip]
    left = [(one.flags or one.cure, "[tune] skip") for one in cures if one.cure in skip]
    left += [(one.cure, one.not_tried) for one in cures if not one.flags and one.cure not in skip]
    return list(dict.fromkeys(wanted)), list(dict.fromkeys(left))


def _together(
    search: Search, out: Descent, singles: Sequence[str], visits: Sequence[Visit], levels: Mapping[str, ObjectiveLevel]
) -> list[str]:
    """Climb from the best single flag as far as measured configurations go; the first that is not measured yet is what
    comes next. ``out.current`` is where the climb stands."""
    base = levels.get(out.current)
    if base is None:
        return []
    failed = {one.flags for one in visits if one.failed}
    measured = [(levels[flags], one) for one in singles if (flags := merged(out.current, one)) in levels]
    helped = [(level, one) for level, one in measured if better(level, base)]
    hurt = {one for level, one in measured if better(base, level)}
    if not helped:
        return []
    helped.sort(key=lambda each: -each[0].mean)
    baseline, out.current = out.current, merged(out.current, helped[0][1])
    neutral = [one for _, one in measured if one not in hurt and one not in {two for _, two in helped}]
    order = [*(one for _, one in helped), *neutral]
    while True:
        before = out.current
        own = _cures_of(search, visits, out.current)
        for one in [*order, *own]:
            taken = set(knobs_of(one)) & (set(knobs_of(out.current)) - _as_before(baseline, out.current))
            if taken and one not in own:
                continue
            flags = merged(out.current, one)
            if flags == out.current or flags in failed:
                continue
            if flags not in levels:
                if any(visit.flags == flags for visit in visits):
                    continue  # measured without a number
                return [flags]
            if better(levels[flags], levels[out.current]):
                out.current = flags
        if out.current == before:
            return []


def _cures_of(search: Search, visits: Sequence[Visit], flags: str) -> list[str]:
    """The cures of the latest run of a configuration, where cures are what is tried."""
    if search.tries:
        return []
    latest = next((one.cures for one in reversed(visits) if one.flags == flags and one.cures), ())
    return _usable(latest, search.skip)[0]


def _as_before(baseline: str, current: str) -> set[str]:
    """Flags that ``current`` has as the baseline has them."""
    before, now = knobs_of(baseline), knobs_of(current)
    return {name for name in now if before.get(name) == now[name]}
