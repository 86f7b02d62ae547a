"""How many tokens each output event brought, and where that is known from. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from loadramp.record.types import TokenSource

UNKNOWN = -1
"""A running count that an event did not carry."""


def tokens_of(
    sizes: Sequence[int], running: Sequence[int], choices: Sequence[int], total: int | None
) -> tuple[list[int], TokenSource]:
    """Tokens of each of n output events and where they come from.

    Args:
        sizes: characters that each event generated, shape n.
        running: completion tokens so far as each event's own usage said, ``UNKNOWN`` where it carried none, shape n.
        choices: choice index of each event, shape n.
        total: completion tokens as the last usage said, over all choices; None or 0 when there was none to use.

    Returns:
        tokens (shape n) and ``continuous`` (differences of ``running``: tokens of events without text, as when a
        server holds back half a character, go to the next output event; those after the last one go to none),
        ``usage`` (n tokens in n events), ``pro_rata`` or ``events``.
    """
    counted = _differences(running, choices)
    if counted is not None and sum(counted) <= (total or sum(counted)):
        return counted, "continuous"
    if not total:
        return [1] * len(sizes), "events"
    if total == len(sizes):
        return [1] * len(sizes), "usage"
    return pro_rata(sizes, total), "pro_rata"


def _differences(running: Sequence[int], choices: Sequence[int]) -> list[int] | None:
    """New tokens of each event from running counts; None unless every event carried one and they do run."""
    if not running or min(running) < 0 or max(running) == 0:
        return None
    if len(set(choices)) > 1 and all(b > a for a, b in pairwise(running)):
        choices = [0] * len(running)  # one count over all choices; vLLM counts each choice by itself
    latest: dict[int, int] = {}
    counted = []
    for count, choice in zip(running, choices, strict=True):
        counted.append(count - latest.get(choice, 0))
        latest[choice] = count
    if min(counted) < 0:
        return None
    repeated = len(running) > len(latest) and sum(1 for tokens in counted if tokens) <= len(latest)
    return None if repeated else counted  # the same figure in every event is a total, not a running count


def pro_rata(sizes: Sequence[int], total: int) -> list[int]:
    """``total`` tokens over n events in proportion to ``sizes``; sums to ``total``, the first event gets at least 1.

    Cumulative rounding: event i ends at ``round(total * sum(sizes[:i + 1]) / sum(sizes))``.
    """
    whole = sum(sizes)
    if not whole:
        return []
    ends = [max(1, round(total * so_far / whole)) for so_far in accumulate(sizes)]
    return [end - begin for begin, end in pairwise([0, *ends])]
