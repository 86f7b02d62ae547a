"""What made each long gap long: the client, an eviction of that stream alone, prefill of others, or the whole engine.

Formulas: docs/method.md, "Long gaps". Rule: the first cause that fits is the cause, and jitter is none: a gap is long
only well beyond what the quietest step showed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadramp.analysis.latency import WindowView
from loadramp.analysis.quantiles import block_order, by_block
from loadramp.record.table import Bools, Floats, Gaps, Ints, Table
from loadramp.record.types import ClientSample

CAUSES = ("client", "private", "recompute", "prefill", "engine")
CLIENT, PRIVATE, RECOMPUTE, PREFILL, ENGINE = range(5)
LONG_FACTOR, LONG_S, LONG_JITTERS = 3.0, 0.005, 6.0
PRIVATE_FACTOR, PRIVATE_S = 5.0, 0.050
EDGE = 0.15
"""Share of a gap left out at each end when asking what others did meanwhile."""
LONG_PROMPT_TOKENS = 1024
MOST_RANKED = 50_000
MANY = 200
"""Values a block."""
PIECE = 250_000
"""Gaps that are placed among first tokens at once: in memory that is used again, and little of it."""
CELLS = 8
"""Cells of time for each instant that many others are placed among."""
SAME_READ_S = 0.0002
"""Events closer than this came out of one read."""


@dataclass(slots=True, frozen=True)
class Attribution:
    """The long gaps of one window, one entry each, and what they are long against.

    ``excess_s`` is gap minus ``median_s``; ``cause`` an index into CAUSES. ``total_s`` and ``gaps`` are of all gaps.
    """

    median_s: float
    p99_s: float
    threshold_s: float
    gaps: int
    total_s: float
    request: Ints
    end_s: Floats
    excess_s: Floats
    cause: Ints

    def share(self, *causes: int) -> float:
        """Share of all excess time that has one of these causes; 0 without long gaps."""
        whole = float(self.excess_s.sum())
        return float(self.excess_s[np.isin(self.cause, causes)].sum()) / whole if whole > 0.0 else 0.0

    @property
    def excess_ratio(self) -> float:
        """Excess time over all time spent in gaps."""
        return float(self.excess_s.sum()) / self.total_s if self.total_s > 0.0 else 0.0

    def count(self, cause: int) -> int:
        """Long gaps with this cause."""
        return int(np.count_nonzero(self.cause == cause))

    def requests(self, cause: int) -> int:
        """Requests that had one."""
        return len(np.unique(self.request[self.cause == cause]))

    def moments(self, cause: int, above_s: float = 0.0) -> int:
        """Instants at which those ended that lost more than ``above_s``; ends within one median of each other are one
        event of the engine."""
        ends = np.sort(self.end_s[(self.cause == cause) & (self.excess_s > above_s)])
        return 1 + int(np.count_nonzero(np.diff(ends) > self.median_s)) if len(ends) else 0


@dataclass(slots=True, frozen=True)
class Mixing:
    """How gaps follow prefills. ``lift``: a gap is how many times as likely to be long when the first token of another
    request came in it; ``dose``: Spearman's correlation of gaps and the prompt tokens of these first tokens."""

    lift: float
    dose: float


def jitter_s(gaps: Gaps) -> float:
    """Scatter of ordinary gaps: 1.4826 times the median distance from the median (a standard deviation if normal)."""
    if len(gaps.gap_s) == 0:
        return 0.0
    return 1.4826 * float(np.median(np.abs(gaps.gap_s - np.median(gaps.gap_s))))


def longest_prefill_s(table: Table) -> float | None:
    """p95 of the time from sending to first token of prompts of 1024 tokens and more; None under three of them.

    Of a step without a queue this bounds how long a prefill takes.
    """
    big = table.sent_ttft_s[table.input_tokens >= LONG_PROMPT_TOKENS]
    big = big[~np.isnan(big)]
    return float(np.quantile(big, 0.95)) if len(big) >= 3 else None


def attribute(
    window: WindowView,
    client: Sequence[ClientSample] = (),
    *,
    jitter_s: float = 0.0,
    longest_prefill_s: float | None = None,
) -> Attribution | None:
    """Say of each long gap of a window what made it long; None when there are no gaps.

    A gap is long above ``max(3 median, median + 5 ms, median + 6 jitter)``. In this order it is the client's when the
    client's loop lagged at its end (and, where the kernel stamped, the next event came out of the same read: lag can
    only merge events then, not delay them); private when the other streams went on meanwhile; recompute when such a
    stream comes back at its end; prefill when another request's first token came in it or a long prompt was being
    computed; else the engine's.

    Args:
        window: whose gaps.
        client: samples of the client's loop, of the whole run or of the window.
        jitter_s: of the quietest step.
        longest_prefill_s: how long before its first token a long prompt may be in prefill; None: since it was sent.
    """
    gaps = window.gaps
    if len(gaps.gap_s) == 0:
        return None
    median_s, p99_s = (float(v) for v in np.quantile(gaps.gap_s, (0.5, 0.99)))
    limit_s = max(LONG_FACTOR * median_s, median_s + LONG_S, median_s + LONG_JITTERS * jitter_s)
    long = gaps.gap_s > limit_s
    some = Gaps(gaps.request[long], gaps.end_s[long], gaps.gap_s[long], gaps.tokens[long])
    cause = np.full(len(some.gap_s), ENGINE, dtype=np.int64)
    if len(cause):
        reach_s = _reach_s(median_s)
        private = _private(window.near, some, median_s, _nearby_s(gaps, some, median_s))
        first_s = np.sort(window.near.first_s[~np.isnan(window.near.first_s)])
        begin, end = _inside(first_s, some, reach_s)
        cause[(end > begin) | _long_prompt(window.near, some, longest_prefill_s)] = PREFILL
        cause[_lands_at(some.end_s, some.end_s[private], reach_s)] = RECOMPUTE
        cause[private] = PRIVATE
        merged = np.append((gaps.gap_s[1:] < SAME_READ_S) & (gaps.request[1:] == gaps.request[:-1]), False)[long]
        read = merged | ~window.near.kernel_stamps[some.request]
        cause[read & _client(window.near, some, client)] = CLIENT
    total_s = float(gaps.gap_s.sum())
    excess_s = some.gap_s - median_s
    return Attribution(
        median_s, p99_s, limit_s, len(gaps.gap_s), total_s, some.request, some.end_s, excess_s, cause
    )  # fmt: skip


def undisturbed(window: WindowView, median_s: float) -> Bools:
    """Gaps of the window in which no other request's first token came: plain decoding."""
    first_s = np.sort(window.near.first_s[~np.isnan(window.near.first_s)])
    return ~_holds(first_s, window.gaps, _reach_s(median_s))


def mixing(window: WindowView, attribution: Attribution) -> Mixing:
    """Lift and dose over all gaps of the window (the dose over at most 50,000 of them, evenly picked)."""
    gaps, near = window.gaps, window.near
    known = ~np.isnan(near.first_s)
    order = np.argsort(near.first_s[known])
    tokens = np.concatenate(([0.0], np.cumsum(np.nan_to_num(near.input_tokens[known][order]))))
    first_s, reach_s = near.first_s[known][order], _reach_s(attribution.median_s)
    landed = _holds(first_s, gaps, reach_s)
    long = gaps.gap_s > attribution.threshold_s
    with_, without = int(np.count_nonzero(landed)), int(np.count_nonzero(~landed))
    hit, miss = int(np.count_nonzero(long & landed)), int(np.count_nonzero(long & ~landed))
    lift = (hit / with_) / ((miss + 0.5) / (without + 1.0)) if with_ else 0.0  # half a gap: none is not never
    picked = slice(None, None, max(1, len(gaps.gap_s) // MOST_RANKED))
    begin, end = _inside(first_s, Gaps(*(getattr(gaps, name)[picked] for name in Gaps.__slots__)), reach_s)
    return Mixing(lift, _spearman(gaps.gap_s[picked], tokens[end] - tokens[begin]))


def block_medians(values: Floats, block: Ints, n: int, least: int) -> Floats:
    """Median (the upper one of an even number) of the values of each of ``n`` blocks; NaN under ``least`` values."""
    size = np.bincount(block, minlength=n)
    out = np.full(n, np.nan)
    enough = size >= max(least, 1)
    if len(values) > MANY * n:  # to part each block costs a fifth of sorting all
        parts = by_block(values, block, n)
        out[enough] = [np.partition(parts[k], size[k] // 2)[size[k] // 2] for k in np.flatnonzero(enough)]
        return out
    order = np.argsort(values)
    order = order[block_order(block[order], n)]
    out[enough] = values[order[(np.cumsum(size) - size + size // 2)[enough]]]
    return out


def _client(near: Table, some: Gaps, client: Sequence[ClientSample]) -> Bools:
    """The largest loop lag of the second in which the gap ended exceeds max(0.2 gap, 5 ms)."""
    late = np.zeros(len(some.gap_s), dtype=np.bool_)
    workers = near.worker[some.request]
    for worker in np.unique(workers):
        lags = sorted((s.t_s, s.loop_lag_s) for s in client if s.worker == worker)
        if not lags:
            continue
        t_s, lag_s = np.array(lags, dtype=np.float64).T
        mine = np.flatnonzero(workers == worker)
        at = np.minimum(np.searchsorted(t_s, some.end_s[mine], "left"), len(t_s) - 1)  # a sample ends its second
        near_s = np.abs(t_s[at] - some.end_s[mine]) <= 1.5
        late[mine] = near_s & (lag_s[at] > np.maximum(0.2 * some.gap_s[mine], 0.005))
    return late


def _nearby_s(gaps: Gaps, some: Gaps, median_s: float) -> Floats:
    """The median of the second in which each of ``some`` gaps ended, at least ``median_s``.

    In a slow stretch of the whole engine two of its steps are no freeze of one stream. Only the seconds that hold a gap
    beyond the private limit are looked at.
    """
    nearby_s = np.full(len(some.gap_s), median_s)
    far = some.gap_s > max(PRIVATE_FACTOR * median_s, PRIVATE_S)
    seconds, at = np.unique(np.floor(some.end_s[far]), return_inverse=True)
    if len(seconds):
        of = np.floor(gaps.end_s)
        which = np.minimum(np.searchsorted(seconds, of), len(seconds) - 1)
        near = seconds[which] == of
        medians = block_medians(gaps.gap_s[near], which[near], len(seconds), 1)
        nearby_s[far] = np.maximum(medians[at], median_s)
    return nearby_s


def _private(near: Table, some: Gaps, median_s: float, nearby_s: Floats) -> Bools:
    """The other streams brought at least half a token each within the inner 70 % of the gap.

    First tokens do not count: a prompt that is computed alone answers while all others stand still.
    """
    later_s, first_s, last_s = _stream_times(near)
    begin_s = some.end_s - some.gap_s
    low_s, high_s = begin_s + EDGE * some.gap_s, some.end_s - EDGE * some.gap_s
    inside = np.searchsorted(later_s, high_s, "left") - np.searchsorted(later_s, low_s, "right")
    middle_s = some.end_s - some.gap_s / 2.0
    active = np.searchsorted(first_s, middle_s, "right") - np.searchsorted(last_s, middle_s, "left")
    long = some.gap_s > np.maximum(max(PRIVATE_FACTOR * median_s, PRIVATE_S), LONG_FACTOR * nearby_s)
    return np.asarray(long & (active >= 2) & (inside >= 0.5 * (active - 1)) & (inside > 0))


def _stream_times(near: Table) -> tuple[Floats, Floats, Floats]:
    """Instants of all events but each stream's first; begins and ends of the streams. All ascending."""
    has = near.events > 0
    first = near.begin[:-1][has]
    keep = np.ones(len(near.event_s), dtype=np.bool_)
    keep[first] = False
    last_s = np.where(near.in_flight, np.inf, near.last_s)[has]
    return np.sort(near.event_s[keep]), np.sort(near.event_s[first]), np.sort(last_s)


def _reach_s(median_s: float) -> float:
    """Two instants this close to each other are one step of the engine."""
    return max(0.0015, 0.3 * median_s)


def _inside(instants_s: Floats, gaps: Gaps, reach_s: float) -> tuple[Ints, Ints]:
    """Which of the ascending instants lie in each gap, its end included and its begin not, as begin and end indices.

    An engine that computes prompts alone answers them in mid-gap, one that mixes at the gap's end.
    """
    begin = _placed(instants_s, gaps.end_s - gaps.gap_s + reach_s)
    end = _placed(instants_s, gaps.end_s + reach_s)
    return begin, np.maximum(begin, end)


def _holds(instants_s: Floats, gaps: Gaps, reach_s: float) -> Bools:
    """Whether any of the ascending instants lies in each gap, as ``_inside`` has it: the first one after its begin."""
    after_s = np.append(instants_s, np.inf)
    out = np.empty(len(gaps.gap_s), dtype=np.bool_)
    for at in range(0, len(out), PIECE):
        end_s, gap_s = gaps.end_s[at : at + PIECE], gaps.gap_s[at : at + PIECE]
        next_s = after_s[_placed(instants_s, end_s - gap_s + reach_s)]
        np.less_equal(next_s, end_s + reach_s, out=out[at : at + PIECE])
    return out


def _placed(instants_s: Floats, at_s: Floats) -> Ints:
    """``np.searchsorted(instants_s, at_s, "right")``, in half the time for many of them: in a cell of time that holds
    none of the instants every ``at_s`` has the same place."""
    n = len(instants_s) * CELLS
    if not 0 < n < len(at_s) or instants_s[-1] - instants_s[0] < 1e-6:
        return np.asarray(np.searchsorted(instants_s, at_s, "right"))

    def cell(t_s: Floats) -> Ints:
        scaled: Floats = (t_s - instants_s[0]) * (n / (instants_s[-1] - instants_s[0]))
        return np.clip(scaled, 0.0, n, out=scaled).astype(np.int64)

    held = np.bincount(cell(instants_s), minlength=n + 1)
    at = cell(at_s)
    place: Ints = (np.cumsum(held) - held)[at]
    unsure = np.flatnonzero(held[at])
    place[unsure] = np.searchsorted(instants_s, at_s[unsure], "right")
    return place


def _lands_at(end_s: Floats, instants_s: Floats, reach_s: float) -> Bools:
    """Some instant lies within ``reach_s`` of each end."""
    known = np.sort(instants_s)
    return np.asarray(
        np.searchsorted(known, end_s + reach_s, "right") > np.searchsorted(known, end_s - reach_s, "left")
    )


def _long_prompt(near: Table, some: Gaps, longest_s: float | None) -> Bools:
    """A prompt of 1024 tokens or more was sent and not answered yet at the gap's middle, and could be in prefill."""
    big = (near.input_tokens >= LONG_PROMPT_TOKENS) & ~np.isnan(near.sent_s)
    until_s = np.nan_to_num(near.first_s[big], nan=np.inf)
    since_s = near.sent_s[big]
    if longest_s is not None:
        since_s = np.maximum(since_s, until_s - longest_s)
    middle_s = some.end_s - some.gap_s / 2.0
    sent = np.searchsorted(np.sort(since_s), middle_s, "right")
    begun = np.searchsorted(np.sort(until_s), middle_s, "right")
    return np.asarray(sent > begun)


def _spearman(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation; 0 where one of the two does not vary."""
    if len(x) < 3 or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return 0.0
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(values: Floats) -> Floats:
    """Ranks from 1, ties their mean: scipy.stats has them too, but its import takes longer than a report."""
    _, which, ties = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(ties) - (ties - 1) / 2)[which])
