"""Do the metrics pages show the load that was sent? A page of another server or model has a queue and a KV cache, too.

Rule: a page is tied to the load by what both sides count. Either the counts agree, or the page counts more where more
was sent: so do a page of one replica among several, and one of a server that others use, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from loadramp.analysis import server_window
from loadramp.analysis.checks.crosscheck import NOUNS, CountComparison, compare
from loadramp.analysis.offered_load import at, load_of
from loadramp.record.row import Row
from loadramp.record.table import Run, Table
from loadramp.record.types import EVENTS, Check, Sample
from loadramp.units import plural

LEAST = 20
"""Fewer requests, or the tokens of fewer, agree by chance."""
APART = 1.5
"""Loads that differ by less do not show whether a page follows them."""
SHARE = 0.05
"""Of what more was sent at the higher load, a page that follows it counts at least this: one replica of twenty."""
DEVIATIONS = 3.0
STREAMS, CLOSE_RATIO, CLOSE = 4.0, 0.25, 2.0
"""From so many streams under way on, the server's batch is compared with them, and how close it is then."""


@dataclass(slots=True, frozen=True)
class Untied:
    """Why nothing ties the pages to the load."""

    why: str
    against: bool
    """What could be compared differs; False: nothing could be compared."""


def untied(run: Run) -> Untied | None:
    """Why nothing ties the engines' pages of a judged run to the load that was sent; None where something does, or
    where there is no page."""
    pages = server_window.engine_pages(run.samples)
    rows = sorted((row for row in run.rows if not row.void and not row.server_restarted and row.ok), key=_load)
    if not pages or not rows:
        return None
    low, high = rows[0], rows[-1]
    together = [_counts(run.table, row, run.samples) for row in (low, high)]
    if any(one.agrees and one.high <= APART * one.low for counts in together for one in counts.values()):
        return None
    each = [(_counts(run.table, low, page), _counts(run.table, high, page)) for page in pages]
    batch = _batch(rows)
    if all(_follows(low, high, *counts) for counts in each) or (batch and all(close for *_, close in batch)):
        return None
    counts = next((both for both in each if both[0].keys() & both[1].keys() and not _follows(low, high, *both)), None)
    if counts is not None:
        return Untied(_differ(low, high, *counts), True)
    if batch:
        server, client, row = next((server, client, row) for server, client, row, close in batch if not close)
        had = f"it had {plural(round(server), 'request')} in the batch"
        return Untied(f"{had} where {plural(round(client), 'stream', 'were')} under way {_at(row)}", True)
    return Untied("it has no counts to compare, or too few requests or seconds to compare them", False)


def check(run: Run) -> list[Check]:
    """Pages that do not follow the load that was sent."""
    found = untied(run)
    if found is None or not found.against:
        return []
    advice = "is it the page of this server and model ([metrics] urls)? Causes that rest on it are at most possible"
    return [
        Check("metrics_untied", "warn", f"the metrics page does not follow the load that was sent: {found.why}", advice)
    ]


def client_only(run: Run) -> Run:
    """The run without what the engines' pages show; GPUs have their own."""
    gpu = [sample for sample in run.samples if all(name.startswith("gpu_") for name in sample.values)]
    rows = [server_window.without_server(row) for row in run.rows]
    return replace(run, samples=gpu, rows=rows)


def _load(row: Row) -> float:
    return float(row.users or 0.0) if row.rate_rps is None else load_of(row)


def _at(row: Row) -> str:
    return f"with {plural(row.users, 'user')}" if row.users else f"at {at(row)}"


def _counts(table: Table, row: Row, samples: Iterable[Sample]) -> Mapping[str, CountComparison]:
    """What both sides counted in the row's window, as far as it is enough to tell: by quantity."""
    begin_s, end_s = row.window_s
    near = [s for s in samples if begin_s - server_window.NEAR_S <= s.t_s <= end_s + server_window.NEAR_S]
    if row.requests < LEAST:
        return {}
    told = row.token_source != EVENTS
    return {one.name: one for one in compare(row, table, near) if one.high > 0 and (told or one.name == "requests")}


def _follows(
    low: Row, high: Row, at_low: Mapping[str, CountComparison], at_high: Mapping[str, CountComparison]
) -> bool:
    """The page counted more a second at the higher load, by more than chance explains and a share of what was sent."""
    for name in at_low.keys() & at_high.keys():
        sent = [(one.low + one.high) / 2.0 / row.length_s for one, row in ((at_low[name], low), (at_high[name], high))]
        seen = [one.server / row.length_s for one, row in ((at_low[name], low), (at_high[name], high))]
        each = max(at_high[name].high / max(high.ok, 1), 1.0) if name != "requests" else 1.0
        chance = DEVIATIONS * sqrt(each * sum(rate / row.length_s for rate, row in zip(seen, (low, high), strict=True)))
        if sent[1] >= APART * sent[0] and seen[1] - seen[0] > max(SHARE * (sent[1] - sent[0]), chance):
            return True
    return False


def _batch(rows: Sequence[Row]) -> list[tuple[float, float, Row, bool]]:
    """The server's batch and the streams under way of each row that has enough of them, and whether they are close."""
    out = []
    for row in rows:
        streams = row.in_flight_mean - (row.queue_first_third + row.queue_last_third) / 2.0
        if row.running_mean is not None and streams >= STREAMS:
            close = abs(row.running_mean - streams) <= max(CLOSE, CLOSE_RATIO * streams)
            out.append((row.running_mean, streams, row, close))
    return out


def _differ(low: Row, high: Row, at_low: Mapping[str, CountComparison], at_high: Mapping[str, CountComparison]) -> str:
    name = next(name for name in NOUNS if name in at_low and name in at_high)
    parts = [
        f"{one.server:,.0f} {NOUNS[name]} {_at(row)}, where the client counted {one.high:,.0f}"
        for one, row in ((at_low[name], low), (at_high[name], high))
    ]
    return f"it counted {' and '.join(dict.fromkeys(parts))}"
