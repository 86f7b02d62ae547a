"""Which configuration is tried next: each flag on its own, then together what helped. Pure.

Coordinate descent: once a configuration is shown to be better, the other flags are tried on top of it, those that
helped on their own first, then those that made no difference (they may, once the first limit is gone), then the cures
of its own run. Flags that were shown to hurt are left. Where none helps alone, all that do not hurt are tried at once,
and if that helps, without one of them at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import inf

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
        flags = tidy(baseline)
        for more in chosen:
            flags = merged(flags, more)
        found.append(flags)
    return [flags for flags in dict.fromkeys(found) if flags != tidy(baseline)]


def descend(
    search: Search, visits: Sequence[Visit], levels: Mapping[str, ObjectiveLevel], winner: str | None = None
) -> Descent:
    """What to try next, given what was measured; ``next`` is None when nothing is left.

    Args:
        search: what may be tried.
        visits: so far, those that failed included.
        levels: of the configurations that were measured.
        winner: shown to be better than the other one of a pair by a confirmation.
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
    fresh = _together(search, out, singles, visits, levels, winner)
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
    out: Descent,
    singles: Sequence[str],
    visits: Sequence[Visit],
    levels: Mapping[str, ObjectiveLevel],
    winner: str | None,
) -> list[str]:
    """What has not been tried yet on top of the best configuration that is shown to be better than the baseline."""
    baseline, base = out.current, levels.get(out.current)
    if base is None:
        return []
    tried, failed = {one.flags for one in visits}, {one.flags for one in visits if one.failed}
    known = [(levels[flags], one) for one in singles if (flags := merged(baseline, one)) in levels]
    helped = sorted((each for each in known if better(each[0], base)), key=lambda each: -each[0].mean)
    neutral = [(level, one) for level, one in known if not better(level, base) and not better(base, level)]
    at_once = _at_once(baseline, neutral)
    if not helped and len(_own(baseline, at_once)) > 1 and at_once not in tried:
        return [at_once]
    ahead = [flags for flags, level in levels.items() if flags not in failed and better(level, base)]
    ahead = [flags for flags in ahead if not needless(flags, baseline, levels)]
    ahead += [winner] if winner is not None and winner not in {baseline, *ahead} else []
    if not ahead:
        return []
    out.current = max(ahead, key=lambda flags: levels[flags].mean)
    mine = knobs_of(apart(baseline, out.current))
    order = [one for _, one in helped] + [one for _, one in neutral if not set(knobs_of(one)) & set(mine)]
    wanted = [merged(out.current, one) for one in [*order, *_cures_of(search, visits, out.current)]]
    if not helped and len(mine) > 2:
        wanted = [merged(baseline, text_of({own: mine[own] for own in mine if own != name})) for name in mine] + wanted
    return [flags for flags in dict.fromkeys(wanted) if flags not in tried]


def _at_once(baseline: str, neutral: Sequence[tuple[ObjectiveLevel, str]]) -> str:
    """All flags together that made no difference alone, of each the best value: they may help together only."""
    flags = baseline
    for _, one in sorted(neutral, key=lambda each: each[0].mean):
        flags = merged(flags, one)
    return flags


def needless(
    flags: str, baseline: str, levels: Mapping[str, ObjectiveLevel], least: int = 1, gain: float = inf
) -> str | None:
    """A configuration with a part of these flags that they are not shown to be better than; the baseline is none.

    Args:
        flags, baseline, levels: as of ``descend``.
        least: both were measured so often.
        gain: and the estimated gain, a difference of logarithms, is below that.
    """
    mine = _own(baseline, flags)
    for other, level in levels.items():
        part = _own(baseline, other)
        enough = min(level.visits, levels[flags].visits) >= least
        small = levels[flags].mean - level.mean < gain
        if part and part < mine and enough and small and not better(levels[flags], level):
            return other
    return None


def _own(baseline: str, flags: str) -> set[tuple[str, ...]]:
    return {tuple(words) for words in knobs_of(apart(baseline, flags)).values()}


def _cures_of(search: Search, visits: Sequence[Visit], flags: str) -> list[str]:
    """The cures of the latest run of a configuration, where cures are what is tried."""
    if search.tries:
        return []
    latest = next((one.cures for one in reversed(visits) if one.flags == flags and one.cures), ())
    return _usable(latest, search.skip)[0]
