"""How many tokens each output event brought, and where that is known from. Pure.

A server's count is checked against what cannot be otherwise; one that fails is not believed.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from loadramp.record.types import TokenSource

UNKNOWN = -1
"""A running count that an event did not carry."""


class TokenCounts(NamedTuple):
    """The tokens of one answer with n output events."""

    of_events: list[int]
    """Shape n."""
    source: TokenSource
    total: int | None
    """Completion tokens of the request as the server counted them; None when there is no count to believe."""
    implausible: bool = False
    """The server sent a count that cannot be right."""


def tokens_of(
    sizes: Sequence[int],
    running: Sequence[int],
    choices: Sequence[int],
    total: int | None,
    *,
    shared: Collection[int] = (),
    most: int | None = None,
) -> TokenCounts:
    """Tokens of each of n output events and where they come from.

    Args:
        sizes: characters that each event generated, shape n.
        running: completion tokens so far as each event's own usage said, ``UNKNOWN`` where it carried none, shape n.
        choices: choice index of each event, shape n.
        total: completion tokens as the last usage said, over all choices; None or 0 when there was none to use.
        shared: indices of events that may belong to the same token as the event before them.
        most: how many tokens were asked for of each choice; None when that is not known.

    Returns:
        Tokens whose source is ``continuous`` (differences of ``running``: tokens of events without text, as when a
        server holds back half a character, go to the next output event; those after the last one go to none),
        ``usage`` (n tokens in n events), ``pro_rata`` or ``events``.
    """
    n = len(sizes)
    if n and total == n and not shared and not any(choices) and running == [*range(1, n + 1)]:  # as most are
        return TokenCounts([1] * n, "continuous", total)
    per_choice = Counter(choices)
    counted, broken = _differences(running, choices, shared)
    claimed = total or (sum(counted) if counted is not None else 0)
    if broken and (not claimed or claimed == running[-1] != n):  # nothing but a series that cannot be right
        return TokenCounts([1] * n, "events", None, True)
    if claimed and not _plausible(claimed, per_choice, choices, shared, most):
        if counted is not None and _plausible(sum(counted), per_choice, choices, shared, most):
            return TokenCounts(counted, "continuous", None, True)
        return TokenCounts([1] * n, "events", None, True)
    if counted is not None and sum(counted) <= claimed:
        return TokenCounts(counted, "continuous", total)
    if not total:
        return TokenCounts([1] * n, "events", None)
    if total == n:
        return TokenCounts([1] * n, "usage", total, broken)
    if min(running, default=0) > 0 and sum(running) == total:  # how many each event brought, not how many so far
        return TokenCounts(list(running), "continuous", total)
    return TokenCounts(pro_rata(sizes, total), "pro_rata", total, broken or counted is not None)


def _plausible(
    count: int, per_choice: Counter[int], choices: Sequence[int], shared: Collection[int], most: int | None
) -> bool:
    """``count`` is at least the number of events with text of each choice (some servers count one choice only), and at
    most what was asked for, unless the events show that the server does not keep to that."""
    least = max((per_choice - Counter(choices[i] for i in shared)).values(), default=0)
    if count < least:
        return False
    return most is None or least > most or count <= most * len(per_choice)


def _differences(
    running: Sequence[int], choices: Sequence[int], shared: Collection[int]
) -> tuple[list[int] | None, bool]:
    """New tokens of each event from running counts; None unless every event carried one and they do run. And whether
    they cannot be right: they fell, or stood still while text came."""
    if not running or min(running) < 0 or max(running) == 0:
        return None, False
    several = len(set(choices)) > 1
    if several and all(b > a for a, b in pairwise(running)):  # one count over all choices; vLLM has one for each
        several = False
    counted = _grown(running, choices) if several else [b - a for a, b in pairwise((0, *running))]
    least = min(counted)
    if least > 0:
        return counted, False
    n = len(set(choices)) if several else 1
    if len(running) > n and len(counted) - counted.count(0) <= n:
        return None, False  # the same figure in every event is a total, not a running count
    if least == 0 and all(i in shared for i, tokens in enumerate(counted) if not tokens):
        return counted, False
    return None, True


def _grown(running: Sequence[int], choices: Sequence[int]) -> list[int]:
    """How far the count of each event is beyond the one before it of its choice."""
    latest: dict[int, int] = {}
    counted = []
    for count, choice in zip(running, choices, strict=True):
        counted.append(count - latest.get(choice, 0))
        latest[choice] = count
    return counted


def pro_rata(sizes: Sequence[int], total: int) -> list[int]:
    """``total`` tokens over n events in proportion to ``sizes``; sums to ``total``, the first event gets at least 1.

    Cumulative rounding: event i ends at ``round(total * sum(sizes[:i + 1]) / sum(sizes))``.
    """
    whole = sum(sizes)
    if not whole:
        return []
    ends = [max(1, round(total * so_far / whole)) for so_far in accumulate(sizes)]
    return [end - begin for begin, end in pairwise([0, *ends])]
