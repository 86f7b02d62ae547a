"""Columns with one entry an event, of which a run has millions. Pure.

Rule: what can be seen without a copy is not copied, and a column of one value takes the memory of one entry.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
EVENTS = ("event_s", "event_tokens", "event_choice")
"""The columns with one entry an event. In most runs the last two hold one value, in the memory of one entry."""
SHORT_RUN = 16
"""Runs of fewer entries than these are gathered one by one."""


def every(value: int, n: int) -> Ints:
    """``value`` n times, in the memory of one."""
    return np.broadcast_to(np.int64(value), n)


def taken(column: Ints, keep: NDArray[np.bool_]) -> Ints:
    """``column[keep]``; what is alike everywhere stays in the memory of one."""
    if column.strides != (0,) or not len(column):
        return np.asarray(column[keep])
    return every(int(column[0]), int(np.count_nonzero(keep)))


def narrow(column: Ints) -> Ints:
    """``column``; one entry, which broadcasts, where it takes the memory of one."""
    return column[:1] if column.strides == (0,) else column


def runs(column: Ints) -> Ints:
    """Where each run of equal entries begins: what ``reduceat`` takes, four times as fast as ``bincount``."""
    return np.flatnonzero(np.append(True, column[1:] != column[:-1])[: len(column)])


def gathered(column: NDArray[Any], first: Ints, size: Ints) -> NDArray[Any]:
    """``size[i]`` entries from ``first[i]`` on, for every i in turn; not copied where they follow one another."""
    n = int(size.sum())
    if column.strides == (0,) and len(column):
        return every(int(column[0]), n)
    first, size = first[size > 0], size[size > 0]
    apart = np.flatnonzero(first[1:] != first[:-1] + size[:-1]) + 1
    begin, end = first[np.append(0, apart)] if n else first, np.append((first + size)[apart - 1], (first + size)[-1:])
    if len(begin) == 1:
        return column[begin[0] : end[0]]
    if _close(begin, end, n):
        return np.asarray(column[begin[0] : end[-1]][_kept(begin, end)])
    if len(begin) * SHORT_RUN < n:
        return np.concatenate([column[a:b] for a, b in zip(begin.tolist(), end.tolist(), strict=True)])
    return np.asarray(column[np.arange(n) + np.repeat(first - (np.cumsum(size) - size), size)])


def stepped(column: NDArray[Any], first: Ints, size: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
    """``gathered(column, first, size)``, and how much larger each entry is than the one before it in ``column``."""
    end = first + size
    if not _close(first, end, int(size.sum())):
        later = gathered(column, first, size)
        return later, later - gathered(column, first - 1, size)
    keep, span = _kept(first, end), column[first[0] - 1 : end[-1]]
    return span[1:][keep], np.diff(span)[keep]


def _close(begin: Ints, end: Ints, n: int) -> bool:
    """Whether the runs, ``n`` entries in all, ascend and are most of what they span."""
    return n > 0 and 2 * n > end[-1] - begin[0] and bool((begin[1:] >= end[:-1]).all())


def _kept(begin: Ints, end: Ints) -> NDArray[np.bool_]:
    """Which entries from ``begin[0]`` to ``end[-1]`` lie in one of the runs, which ascend."""
    keep = np.ones(end[-1] - begin[0], dtype=np.bool_)
    between = begin[1:] - end[:-1]
    before = end[:-1] - begin[0] - (np.cumsum(between) - between)
    keep[np.repeat(before, between) + np.arange(between.sum())] = False
    return keep


def joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """``np.concatenate(parts)``; what is alike everywhere stays in the memory of one."""
    parts = [part for part in parts if len(part)] or parts[:1]
    values = {value for part in parts for value in part[:1].tolist()}
    if len(values) == 1 and all(part.strides == (0,) for part in parts):
        return every(values.pop(), sum(map(len, parts)))
    return np.concatenate(parts)
