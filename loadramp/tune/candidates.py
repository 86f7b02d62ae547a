"""Which configuration is tried next: each flag on its own, then together what helped. Pure.

After each flag on its own, all that are not shown to hurt are tried at once: flags that do nothing alone may, once the
first limit is gone. Then coordinate descent: whatever differs from the leader in one flag (another value, one more, one
fewer), and the cures of its own run, until none of these leads. Estimates count, whether shown or not: several gains
too small to be shown make one that is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from loadramp.tune.flags import apart, knobs_of, merged, text_of, tidy
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
    """How far the search has come: ``left`` is what it would still try."""

    next: str | None = None
    left: list[tuple[str, str]] = field(default_factory=list)
    """Flags that are not tried and why."""


def grid_of(baseline: str, tries: Sequence[str]) -> list[str]:
    """Every combination of the values of every flag, each flag also left as it is, the baseline itself left out."""
    values: dict[tuple[str, ...], list[str]] = {}
    for flags in tries:
        values.setdefault(tuple(knobs_of(flags)), [""]).append(flags)
    combined = []
    for chosen in product(*values.values()):
        flags = tidy(baseline)
        for more in chosen:
            flags = merged(flags, more)
        combined.append(flags)
    return [flags for flags in dict.fromkeys(combined) if flags != tidy(baseline)]


def descend(
    search: Search, visits: Sequence[Visit], levels: Mapping[str, ObjectiveLevel], leader: str | None = None
) -> Descent:
    """What to try next, given what was measured; ``next`` is None when nothing is left.

    Args:
        search: what may be tried.
        visits: so far, those that failed included.
        levels: of the configurations that were measured.
        leader: the configuration that others are derived from; None: none is known well enough yet.
    """
    baseline = tidy(search.baseline)
    tried = {visit.flags for visit in visits}
    out = Descent()
    if search.grid:
        wanted = grid_of(search.baseline, search.tries)
        return _capped(out, [flags for flags in wanted if flags not in tried], tried, baseline, search.most)
    singles, not_tried = _singles(search, visits, baseline)
    out.left += not_tried
    first = [flags for solo in singles if (flags := merged(baseline, solo)) != baseline]
    fresh = [flags for flags in dict.fromkeys(first) if flags not in tried]
    if fresh:
        return _capped(out, fresh, tried, baseline, search.most)
    fresh = _together(search, baseline, singles, visits, levels, leader)
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
        others, left = usable(search.cures, search.skip)
        return [*(tidy(flags) for flags in search.tries), *others], left
    cures = next((visit.cures for visit in visits if visit.flags == baseline and visit.cures), ())
    return usable([*search.cures, *cures], search.skip)


def usable(cures: Sequence[Proposal], skip: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The flags of ``cures``, each once, and what is not tried with why."""
    wanted = [cure.flags for cure in cures if cure.flags and cure.cure not in skip]
    left = [(cure.flags or cure.cure, "[tune] skip") for cure in cures if cure.cure in skip]
    left += [(cure.cure, cure.not_tried) for cure in cures if not cure.flags and cure.cure not in skip]
    return list(dict.fromkeys(wanted)), list(dict.fromkeys(left))


def _together(
    search: Search,
    baseline: str,
    singles: Sequence[str],
    visits: Sequence[Visit],
    levels: Mapping[str, ObjectiveLevel],
    leader: str | None,
) -> list[str]:
    """All that does not hurt at once, then what differs from the leader in one flag, once the leader is known well."""
    base = levels.get(baseline)
    if base is None:
        return []
    tried = {visit.flags for visit in visits}
    known = [(levels[flags], solo) for solo in singles if (flags := merged(baseline, solo)) in levels]
    fit = sorted((each for each in known if not better(base, each[0])), key=lambda each: -each[0].mean)
    at_once = baseline
    for _, solo in reversed(fit):  # of two values of a flag the better one stays
        at_once = merged(at_once, solo)
    good = [solo for level, solo in fit if not any(better(other, level) for other, more in fit if _clash(solo, more))]
    together = [flags for solo in good if len(_own(baseline, flags := merged(at_once, solo))) > 1]
    if fresh := [flags for flags in dict.fromkeys(together) if flags not in tried]:
        return fresh
    if leader is None or leader == baseline:
        return []
    wanted = [merged(leader, solo) for solo in [*(solo for _, solo in fit), *_cures_of(search, visits, leader)]]
    mine = knobs_of(apart(baseline, leader))
    helped = {solo for level, solo in known if better(level, base)}
    spare = [name for name, words in mine.items() if len(mine) > 1 and text_of({name: words}) not in helped]
    wanted += [merged(baseline, text_of({other: mine[other] for other in mine if other != name})) for name in spare]
    return [flags for flags in dict.fromkeys(wanted) if flags not in tried]


def simpler(flags: str, baseline: str, others: Sequence[str]) -> list[str]:
    """Those of ``others`` that have a part of what ``flags`` adds to the baseline."""
    mine = _own(baseline, flags)
    return [other for other in others if _own(baseline, other) < mine]


def _clash(flags: str, other: str) -> bool:
    """Both set the same flag."""
    return not set(knobs_of(flags)).isdisjoint(knobs_of(other))


def _own(baseline: str, flags: str) -> set[tuple[str, ...]]:
    return {tuple(words) for words in knobs_of(apart(baseline, flags)).values()}


def _cures_of(search: Search, visits: Sequence[Visit], flags: str) -> list[str]:
    """The cures of the latest run of a configuration, where cures are what is tried."""
    if search.tries:
        return []
    latest = next((visit.cures for visit in reversed(visits) if visit.flags == flags and visit.cures), ())
    return usable(latest, search.skip)[0]
