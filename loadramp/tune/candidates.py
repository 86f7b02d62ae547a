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
    found = []
    for chosen in product(*values.values()):
        flags = tidy(baseline)
        for more in chosen:
            flags = merged(flags, more)
        found.append(flags)
    return [flags for flags in dict.fromkeys(found) if flags != tidy(baseline)]


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
    tried = {one.flags for one in visits}
    out = Descent()
    if search.grid:
        wanted = grid_of(search.baseline, search.tries)
        return _capped(out, [flags for flags in wanted if flags not in tried], tried, baseline, search.most)
    singles, not_tried = _singles(search, visits, baseline)
    out.left += not_tried
    first = [flags for one in singles if (flags := merged(baseline, one)) != baseline]
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
    tried = {one.flags for one in visits}
    known = [(levels[flags], one) for one in singles if (flags := merged(baseline, one)) in levels]
    fit = sorted((each for each in known if not better(base, each[0])), key=lambda each: -each[0].mean)
    at_once = baseline
    for _, one in reversed(fit):  # of two values of a flag the better one stays
        at_once = merged(at_once, one)
    good = [one for level, one in fit if not any(better(other, level) for other, more in fit if _clash(one, more))]
    together = [flags for one in good if len(_own(baseline, flags := merged(at_once, one))) > 1]
    if fresh := [flags for flags in dict.fromkeys(together) if flags not in tried]:
        return fresh
    if leader is None or leader == baseline:
        return []
    wanted = [merged(leader, one) for one in [*(one for _, one in fit), *_cures_of(search, visits, leader)]]
    mine = knobs_of(apart(baseline, leader))
    helped = {one for level, one in known if better(level, base)}
    spare = [name for name, words in mine.items() if len(mine) > 1 and text_of({name: words}) not in helped]
    wanted += [merged(baseline, text_of({own: mine[own] for own in mine if own != name})) for name in spare]
    return [flags for flags in dict.fromkeys(wanted) if flags not in tried]


def simpler(flags: str, baseline: str, others: Sequence[str]) -> list[str]:
    """Those of ``others`` that have a part of what ``flags`` adds to the baseline."""
    mine = _own(baseline, flags)
    return [other for other in others if _own(baseline, other) < mine]


def _clash(one: str, other: str) -> bool:
    """Both set the same flag."""
    return not set(knobs_of(one)).isdisjoint(knobs_of(other))


def _own(baseline: str, flags: str) -> set[tuple[str, ...]]:
    return {tuple(words) for words in knobs_of(apart(baseline, flags)).values()}


def _cures_of(search: Search, visits: Sequence[Visit], flags: str) -> list[str]:
    """The cures of the latest run of a configuration, where cures are what is tried."""
    if search.tries:
        return []
    latest = next((one.cures for one in reversed(visits) if one.flags == flags and one.cures), ())
    return _usable(latest, search.skip)[0]
