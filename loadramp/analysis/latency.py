"""The latencies of one measured window. Rule: requests belong to the step they were due in, gaps to where they ended.

Failed requests are in no percentile of successes and in the ``all_*`` ones as +inf; requests that have not finished
count with their age (Kaplan-Meier).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from loadramp.analysis.quantiles import (
    NOT_STATIONARY,
    QuantileEstimate,
    Values,
    carry_over,
    estimate,
    mean,
    pool,
    quantile_name,
)
from loadramp.record.event_columns import narrow, runs, taken
from loadramp.record.row import Quantiles, Row, SloStatistic, Statistic, columns_of
from loadramp.record.table import Bools, Floats, Gaps, Table, within
from loadramp.record.types import EVENTS
from loadramp.scenario.scenario import Slo
from loadramp.units import percent

FAMILIES = ("ttft", "sent_ttft", "itl", "gap", "tpot", "e2e")
QUANTILES = (0.5, 0.9, 0.95, 0.99)
OF_STREAMS = ("ttft", "sent_ttft", "itl", "gap", "tpot", "all_ttft")
"""Latencies that answers without a stream do not have."""
NOT_STREAMED = "[target] stream = false: answers come whole, so tokens have no times of their own"
OF_GAPS = ("itl", "gap")
"""Latencies that need the instant of every token."""
NO_GAPS = "only the first and the last token of each answer are known"
BY_TOKEN = frozenset({"itl", "tpot"})
"""Times for each token. Where events count as tokens, those measured are upper bounds: of TPOT as it is, of a quantile
of ITL by ``at_worst``."""
BY_EVENTS = "the server sends no usage, and an event may carry several tokens"
Window = tuple[float, float]
Reasons = dict[str, str]
"""Name of a column to why it is null."""
Slower = Callable[[Floats, Floats], Floats]
"""Begins and ends of spans of time, shape (n,), to how many times as long everything took in them, shape (n,)."""


@dataclass(slots=True, frozen=True)
class WindowView:
    """What the records say about one window ``[begin_s, end_s)`` at the instant ``now_s``.

    ``near``: rows that touch the window; ``due``: those of them due in it.
    """

    window_s: Window
    now_s: float
    due: Table
    near: Table
    _gaps: Gaps | None = None

    @property
    def gaps(self) -> Gaps:
        """The gaps that end in the window, of successes and of requests still in flight; ``request`` is their row of
        ``near``."""
        return self._gaps or self.near.gaps(self.window_s, self.near.ok | self.near.in_flight)

    def ends(self) -> WindowView:
        """The same in little memory: its requests with their first and last events alone, and without gaps."""
        return replace(self, due=self.due.ends(), near=self.near.ends(), _gaps=None)

    def arrivals(self, *bins: int) -> list[Floats]:
        """Tokens that came in each of so many equal parts of the window, shape (bins,)."""
        out = [np.zeros(n) for n in bins]
        for _, part in self.near.slices():
            inside = within(part.event_s, self.window_s)
            since_s, tokens = part.event_s[inside] - self.window_s[0], taken(part.event_tokens, inside)
            for i, n in enumerate(bins):
                at = since_s * (n / self.length_s)
                place = np.clip(at, 0, n - 1, out=at).astype(np.int64)
                first = runs(place)
                out[i] += np.bincount(place[first], np.add.reduceat(tokens, first, dtype=np.float64), n)
        return out

    @property
    def length_s(self) -> float:
        return max(self.window_s[1] - self.window_s[0], 1e-9)


def window_view(table: Table, window_s: Window, now_s: float | None = None) -> WindowView:
    """Cut one window out of all records of a run so far, snapshots of unfinished requests included.

    Args:
        table: all records; only those that touch the window are read further.
        window_s: begin and end, seconds since the run began.
        now_s: the instant up to which the data reaches; None: the end of what the table holds.
    """
    begin_s, end_s = window_s
    due = within(table.due_s, window_s)
    last_s = table.last_s
    touching = due | ((table.due_s < end_s) & (last_s >= begin_s))
    near = table.select(touching)
    if now_s is None:
        now_s = float(np.nanmax(np.concatenate((table.stream_end_s, last_s, [end_s]))))
    window = WindowView(window_s, now_s, near.select(due[touching]), near)
    return replace(window, _gaps=window.gaps)


def families(window: WindowView, slower: Slower | None = None) -> dict[str, Values]:
    """The values of each latency family. Requests are put into time blocks by ``due_s``, gaps by their end.

    With ``slower`` each value is divided by what that says of the time it spans: what is left is without regimes.
    """
    carry = carried(window)
    out = {name: _requests(window, name, carry, slower) for name in ("ttft", "sent_ttft", "tpot", "e2e")}
    gaps = window.gaps
    if slower is not None:
        gaps = replace(gaps, gap_s=gaps.gap_s / slower(gaps.end_s - gaps.gap_s, gaps.end_s))
    requests = len(runs(gaps.request))
    out["gap"] = pool(gaps.gap_s, gaps.end_s, window.window_s, "gaps", requests, carry=carry)
    if len(gaps.tokens) == 0 or bool((gaps.tokens == 1).all()):
        plain = out["gap"]
        out["itl"] = replace(plain, unit="tokens")
    else:
        itl_s, at_s = gaps.itl()
        out["itl"] = pool(itl_s, at_s, window.window_s, "tokens", requests, carry=carry)
    return out


def statistics(
    name: str, data: Values, stationary: bool, of_mean: QuantileEstimate | None = None
) -> tuple[Quantiles, Reasons]:
    """The statistics of one family, and the reasons of nulls. ``of_mean``: its mean, if it is known."""
    figures = [estimate(data, q, stationary) for q in QUANTILES]
    of_mean = mean(data, stationary) if of_mean is None else of_mean
    reasons = why_null(f"{name}_mean", of_mean)
    for q, figure in zip(QUANTILES, figures, strict=True):
        reasons |= why_null(f"{name}_{quantile_name(q)}", figure)
    p50, p90, p95, p99 = map(statistic_of, figures)
    return Quantiles(len(data), statistic_of(of_mean), p50, p90, p95, replace(p99, log_se=figures[-1].log_se)), reasons


def everyone(window: WindowView, stationary: bool) -> tuple[dict[str, Quantiles], Reasons]:
    """``all_ttft`` and ``all_e2e``: failed requests as +inf; null where the quantile is infinite."""
    out: dict[str, Quantiles] = {}
    reasons: Reasons = {}
    due, pending = window.due, window.due.in_flight
    for name, plain in (("ttft", due.ttft_s), ("e2e", due.e2e_s)):
        waiting = pending & np.isnan(plain) if name == "ttft" else pending
        values = np.where(due.failed, np.inf, np.where(waiting, window.now_s - due.due_s, plain))
        cut = np.asarray(waiting & ~due.failed)
        data = pool(values, due.due_s, window.window_s, "requests", censored=cut, carry=carried(window))
        figures = [estimate(data, q, stationary) for q in QUANTILES]
        failed = (
            QuantileEstimate(None, reason=f"{percent(due.failed.mean())} of the requests failed") if len(due) else None
        )
        figures = [
            failed if failed and figure.value is not None and np.isinf(figure.value) else figure for figure in figures
        ]
        for q, figure in zip(QUANTILES, figures, strict=True):
            reasons |= why_null(f"all_{name}_{quantile_name(q)}", figure)
        p50, p90, p95, p99 = map(statistic_of, figures)
        out[f"all_{name}"] = Quantiles(p50=p50, p90=p90, p95=p95, p99=p99)
    return out, reasons


def stalls(row: Row, window: WindowView, gaps: Values) -> tuple[Row, Reasons]:
    """Share of requests with a gap above max(10 medians, 250 ms), and the longest gaps. ``gaps``: all of the window.

    A preemption is one gap in a request: it hardly shows in pooled percentiles, but it does here.
    """
    longest_s, at_s = longest(window)
    figure = estimate(pool(longest_s, at_s, window.window_s, "requests", carry=carried(window)), 0.99, row.stationary)
    row, reasons = replace(row, longest_gap_p99=statistic_of(figure)), why_null("longest_gap_p99", figure)
    if not len(longest_s):
        return row, reasons | {"stalled_ratio": "no request of this window has two output events"}
    ratio = float(np.mean(longest_s > stall_limit_s(gaps.ordered)))
    return replace(row, stalled_ratio=ratio, longest_gap_max_s=float(longest_s.max())), reasons


def stall_limit_s(gap_s: Floats) -> float:
    """Above this a gap is a stall: max(10 medians, 250 ms)."""
    return max(10.0 * float(np.median(gap_s)), 0.25) if len(gap_s) else 0.25


def at_worst(gaps: Gaps, unknown: Bools, limit_s: float) -> Gaps:
    """Gaps whose events brought as many tokens as could all be slower than ``limit_s``: ``ceil(gap / limit) - 1``, at
    least 1. The share of tokens beyond the limit is at most what they say, whatever the events carry.

    Args:
        gaps: of any requests.
        unknown: whose events count as tokens, since nobody says how many each brought; by their ``gaps.request``.
        limit_s: above 0.
    """
    of = unknown[gaps.request]
    most = np.maximum(np.ceil(gaps.gap_s / limit_s - 1e-9) - 1.0, 1.0).astype(np.int64)
    return replace(gaps, tokens=np.where(of, most, gaps.tokens)) if of.any() else gaps


def itl_at_worst(window: WindowView, limit_s: float) -> Values:
    """The inter-token latencies of ``at_worst``, put into time blocks."""
    gaps = at_worst(window.gaps, window.near.token_source == EVENTS, limit_s)
    itl_s, at_s = gaps.itl()
    return pool(itl_s, at_s, window.window_s, "tokens", len(runs(gaps.request)), carry=carried(window))


def good(window: WindowView, slo: Slo) -> tuple[int, int, int]:
    """Requests within every limit, requests decided, and of these how many may be within: the times of their tokens are
    not known (``BY_EVENTS``).

    A request is good when it succeeded, its TTFT, TPOT and end-to-end time are within their limits, and at most
    ``1 - quantile`` of its own inter-token latencies exceed theirs. One still in flight is decided only when it is too
    late.
    """
    due = window.due
    measured = {"ttft": due.ttft_s, "e2e": due.e2e_s, "tpot": due.tpot_s}
    fine, may_be, unknown = due.ok.copy(), due.ok.copy(), due.token_source == EVENTS
    late = np.zeros(len(due), dtype=np.bool_)
    age_s = window.now_s - due.due_s
    for metric, limit_s in slo.limits.items():
        itl = metric == "itl"
        within_limit = _itl_within(window, limit_s, slo.quantile) if itl else ~(measured[metric] > limit_s)
        fine &= within_limit
        may_be &= within_limit | unknown if metric in BY_TOKEN else within_limit
        if metric == "e2e":
            late |= age_s > limit_s
        elif metric == "ttft":
            late |= np.where(np.isnan(due.ttft_s), age_s, due.ttft_s) > limit_s
    decided = ~due.in_flight | late
    return int(np.count_nonzero(fine)), int(np.count_nonzero(decided)), int(np.count_nonzero(may_be & ~fine))


def _itl_within(window: WindowView, limit_s: float, q: float) -> Bools:
    kept = np.ones(len(window.due), dtype=np.bool_)
    for at, part in window.due.slices():
        gaps = at_worst(part.gaps(), part.token_source == EVENTS, limit_s)
        first, k = runs(gaps.request), narrow(gaps.tokens)
        over = (gaps.gap_s > limit_s * k) & (k > 0)
        beyond, total = (np.add.reduceat(tokens, first, dtype=np.float64) for tokens in (over * k, gaps.tokens))
        kept[at + gaps.request[first]] = beyond <= (1.0 - q) * total + 1e-9
    return kept


def without_stream(row: Row) -> Row:
    """The row without what only a stream can tell, and why: an answer that comes whole has one instant."""
    return _without(row, OF_STREAMS, NOT_STREAMED)


def without_gaps(row: Row) -> Row:
    """The row without what needs the instant of every token, and why."""
    return _without(row, OF_GAPS, NO_GAPS)


def _without(row: Row, measures: tuple[str, ...], why: str) -> Row:
    starts = (*(f"{kind}{name}_" for kind in ("", "slo_") for name in measures), "longest_gap_", "prefill_share")
    names = [name for name in columns_of(row) if name.startswith(starts) and not name.endswith(("_n", "_log_se"))]
    return replace(
        row,
        latency={
            name: Quantiles(quantiles.n) if name in measures else quantiles for name, quantiles in row.latency.items()
        },
        longest_gap_p99=Statistic(),
        longest_gap_max_s=None,
        prefill_share=None,
        slo={name: SloStatistic() if name in measures else figure for name, figure in row.slo.items()},
        reasons={**row.reasons, **dict.fromkeys(names, why)},
    )


def carried(window: WindowView) -> float:
    """How much more means over the window vary than its blocks tell, since requests live across blocks."""
    due = window.due
    lived_s = np.where(due.in_flight, window.now_s - due.due_s, due.e2e_s)
    return carry_over(lived_s[(due.ok | due.in_flight) & ~np.isnan(lived_s)], window.window_s)


def _requests(window: WindowView, name: str, carry: float, slower: Slower | None = None) -> Values:
    """Successes of the window, and those in flight as censored at their age where their value is not known yet."""
    due = window.due
    values: Floats = getattr(due, f"{name}_s").copy()
    pending = due.in_flight
    waiting = np.zeros(len(due), dtype=np.bool_)
    if name in {"ttft", "sent_ttft"}:
        waiting = pending & np.isnan(due.first_s)
    elif name == "e2e":
        waiting = pending
    since_s = due.sent_s if name == "sent_ttft" else due.due_s
    values[waiting] = np.maximum(window.now_s - since_s, 0.0)[waiting]
    keep = due.ok | waiting | (pending if name.endswith("ttft") else np.False_)
    keep &= ~np.isnan(values)
    cut = np.asarray(waiting[keep])
    if slower is not None:
        begin_s = due.first_s if name == "tpot" else since_s
        end_s = due.last_s if name == "tpot" else since_s + values
        values[keep] /= slower(begin_s[keep], end_s[keep])
    return pool(values[keep], due.due_s[keep], window.window_s, "requests", censored=cut, carry=carry)


def longest(window: WindowView) -> tuple[Floats, Floats]:
    """Longest gap of each request due in the window that has one (so far), and the request's ``due_s``."""
    due = window.due
    longest = np.full(len(due), -1.0)
    for at, part in due.slices():
        gaps = part.gaps()
        first = runs(gaps.request)
        longest[at + gaps.request[first]] = np.maximum.reduceat(gaps.gap_s, first)
    keep = (longest >= 0.0) & (due.ok | due.in_flight)
    return longest[keep], due.due_s[keep]


def statistic_of(figure: QuantileEstimate) -> Statistic:
    return Statistic(figure.value, figure.low, figure.high)


def why_null(stem: str, figure: QuantileEstimate) -> Reasons:
    if figure.value is None:
        return {f"{stem}_s": figure.reason}
    if figure.high is None and figure.interval_reason != NOT_STATIONARY:  # that is said once, for the row
        return {f"{stem}_high_s": figure.interval_reason}
    return {}
