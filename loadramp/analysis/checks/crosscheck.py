"""The client's counts against the server's, step by step, and how much of TTFT passes outside the server. Pure.

Both sides are counted between the same two scrapes. Rule: a server may count a request when it begins or when it ends,
and one that failed or not, so it disagrees only when it is outside all of the client's counts and the tolerance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from loadramp.analysis import server_window as server
from loadramp.record.row import Row
from loadramp.record.table import Bools, Floats, Run, Table, within
from loadramp.record.types import EVENTS, Check, Sample
from loadramp.units import latency

TOLERANCE = 0.02
LEAST = 2.0
"""Requests (or their tokens) that may lie on the other side of a scrape whatever their number."""
EDGE_S = 0.1
"""A scrape and the bytes on the wire are not of the same instant."""
OUTSIDE_RATIO, OUTSIDE_S = 0.25, 0.010
SHORTEST_S = 5.0
NOUNS = {"requests": "finished requests", "prompt_tokens": "prompt tokens", "output_tokens": "output tokens"}
_COUNTERS = {"requests": "requests_done", "prompt_tokens": "prompt_tokens", "output_tokens": "output_tokens"}


@dataclass(slots=True, frozen=True)
class CountComparison:
    """One quantity of one step: what the client counted (least and most, by begin or end), what the server did."""

    name: str
    low: float
    high: float
    server: float
    allowed: float

    @property
    def agrees(self) -> bool:
        return self.low - self.allowed <= self.server <= self.high + self.allowed


def compare(row: Row, table: Table, samples: Sequence[Sample]) -> list[CountComparison]:
    """Requests, prompt tokens and output tokens of a step, as far as the server counts them.

    Tolerance: 2 % of the count, two requests' worth, and what arrives in the time by which scrapes may be off. Empty
    without a scrape near both ends, after a restart, or with less than 5 s between the scrapes.
    """
    span = _scraped(samples, *row.window_s)
    if span is None:
        return []
    begin_s, end_s, slack_s = span
    grown = server.deltas(samples, begin_s, end_s)
    out = []
    for name, counter in _COUNTERS.items():
        total = grown.get(counter)
        if total is None:
            continue
        by_begin, by_end, each = _counts(table, name, begin_s, end_s)
        low, high = min(by_begin, by_end), max(by_begin, by_end) + _given_up(table, name, begin_s, end_s)
        rate = max(high, total) / (end_s - begin_s)
        allowed = TOLERANCE * max(high, total) + LEAST * each + rate * slack_s + 3.0 * sqrt(each * rate * slack_s)
        out.append(CountComparison(name, low, high, total, allowed))
    return out


def outside_s(row: Row) -> float | None:
    """Client's mean sent TTFT minus the server's mean TTFT: network, proxy, and the wait to be accepted, in seconds.

    None without the server's, and in steps that were not stationary: there the two means are of different requests.
    """
    client, server = row.of("sent_ttft").mean.value, row.server_ttft_mean_s
    return None if client is None or server is None or not row.stationary else client - server


def server_counts(run: Run) -> list[Check]:
    """Steps in which client and server disagree about how much was done."""
    out = []
    for row in run.rows:
        if row.void or row.server_restarted:
            continue
        near = [s for s in run.samples
                if row.window_begin_s - server.NEAR_S <= s.t_s <= row.window_end_s + server.NEAR_S]  # fmt: skip
        told = row.token_source != EVENTS  # else the client knows no tokens that could disagree
        out += [
            _mismatch(row, comparison)
            for comparison in compare(row, run.table, near)
            if not comparison.agrees and (told or comparison.name == "requests")
        ]
    return out


def ttft_outside(run: Run) -> list[Check]:
    """Steps in which more than a quarter of TTFT, and more than 10 ms, passes outside the server."""
    out = []
    for row in run.rows:
        outside, mean_s = None if row.void else outside_s(row), row.of("sent_ttft").mean.value or 0.0
        if outside is None or outside <= max(OUTSIDE_S, OUTSIDE_RATIO * mean_s):
            continue
        message = (
            f"{latency(outside)} of a mean TTFT of {latency(mean_s)} pass outside the "
            f"server (its own mean: {latency(row.server_ttft_mean_s)})"
        )
        advice = "network, proxy or load balancer: measure beside the server too, and compare"
        out.append(Check("ttft_outside_server", "note", message, advice, row.step))
    return out


def _mismatch(row: Row, comparison: CountComparison) -> Check:
    noun = NOUNS[comparison.name]
    nearest = comparison.high if comparison.server > comparison.high else comparison.low
    message = (
        f"the server counted {comparison.server:,.0f} {noun}, the client {nearest:,.0f} "
        f"(tolerance {comparison.allowed:,.0f})"
    )
    more = (
        "others use this server too, or something on the way repeats requests: what is measured is not this load alone"
    )
    less = "not every replica is scraped, or a cache on the way answers: list them all in [metrics] urls"
    return Check("server_counts", "warn", message, more if comparison.server > comparison.high else less, row.step)


def _scraped(samples: Sequence[Sample], begin_s: float, end_s: float) -> tuple[float, float, float] | None:
    """The scrapes nearest to both ends: instants in the middle of all replicas', and by how much these differ."""
    by_url: dict[str, list[float]] = {}
    for s in samples:
        if s.values:
            by_url.setdefault(s.url, []).append(s.t_s)
    if not by_url:
        return None
    firsts = [min(times, key=lambda t_s: abs(t_s - begin_s)) for times in by_url.values()]
    lasts = [min(times, key=lambda t_s: abs(t_s - end_s)) for times in by_url.values()]
    first_s, last_s = (max(firsts) + min(firsts)) / 2.0, (max(lasts) + min(lasts)) / 2.0
    if last_s - first_s < SHORTEST_S:
        return None
    cost_s = max((s.cost_s for s in samples), default=0.0)
    return first_s, last_s, EDGE_S + cost_s + (max(firsts) - min(firsts)) + (max(lasts) - min(lasts))


def _counts(table: Table, name: str, begin_s: float, end_s: float) -> tuple[float, float, float]:
    """What the client saw in ``[begin_s, end_s)``: counted when a request begins to answer (output tokens: as they
    come), counted when it ends; and one request's worth."""
    window_s = begin_s, end_s
    began, ended = within(table.first_s, window_s), within(table.stream_end_s, window_s) & table.ok
    if name == "requests":
        return float(np.count_nonzero(began)), float(np.count_nonzero(ended)), 1.0
    if name == "prompt_tokens":
        tokens = np.nan_to_num(table.prompt_tokens)
        return float(tokens[began].sum()), float(tokens[ended].sum()), _mean(tokens, ended | began)
    near = table.select((table.due_s < end_s) & (table.last_s >= begin_s))
    came = float(near.event_tokens[within(near.event_s, window_s)].sum())
    tokens = np.nan_to_num(table.output_tokens)
    return came, float(tokens[ended].sum()), _mean(tokens, ended)


def _given_up(table: Table, name: str, begin_s: float, end_s: float) -> float:
    """What the server may have counted of requests that failed while they were alive in the window, unseen by the
    client: it goes on with some of them for a while, and has computed their prompts."""
    failed = table.select_rows(np.flatnonzero(table.failed & (table.due_s < end_s) & (table.done_s >= begin_s)))
    if name == "output_tokens":
        return float(np.maximum(np.nan_to_num(failed.asked_output_tokens) - failed.received, 0.0).sum())
    unseen = ~within(failed.first_s, (begin_s, end_s))
    return float(np.nan_to_num(failed.input_tokens)[unseen].sum() if name == "prompt_tokens" else unseen.sum())


def _mean(values: Floats, keep: Bools) -> float:
    return float(values[keep].mean()) if keep.any() else 0.0


CROSS_CHECKS = {"server_counts": server_counts, "ttft_outside": ttft_outside}
