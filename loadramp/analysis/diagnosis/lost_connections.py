"""Connections that are refused or break: did the server go down, or is there only no room for more? Pure.

Rule: a server that went down shows it. Its page falls silent, its counters or its start time begin anew, or the streams
under way break, too. Where these go on, connections that are refused are overload, whatever their number.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from loadramp.analysis import server_window
from loadramp.analysis.diagnosis.symptoms import Case, StepView, indices
from loadramp.analysis.server_window import engine_pages
from loadramp.metrics.dialects import COUNTERS
from loadramp.record.table import Bools, Floats, Table
from loadramp.record.types import Finding, Sample
from loadramp.units import agreed, percent, plural

MOST_RATIO = 0.01
LOW_LOAD = 0.25
"""A share at the lowest load that is above this share of the worst does not come with load."""
GOES_ON = 0.5
"""Of the streams under way: where more of them went on, what served them did not go down."""
AFTER_S = 0.05
MOST_BEFORE = 0.9
"""Of the failures: so many lie before the last page that was read, or it says nothing about them."""
FAILED_SCRAPES = 2
MOMENTS = 100
BROKEN = ("connect", "reset", "truncated")
BAD_GATEWAY = 502
COUNTED_ON = "its metrics page answered after that, and its counters did not begin again: the server did not go down"


def connections_refused(case: Case) -> Finding | None:
    """More than 1 % of a step's requests found no connection, or lost it before any answer, while the server went on:
    a full listen backlog, a limit on open files, or a proxy's limit."""
    steps = case.where(lambda step: at_the_door(step) > MOST_RATIO)
    share, alive = went_on(case.run.table), kept_counting(case)
    if not steps or not any(step.row.ok for step in case.steps) or restarted(case.run.samples) or gone(case):
        return None
    served = alive and any(step.row.ok for step in steps)  # a page alone does not show that anything was
    if not (served if share is None else share > GOES_ON):
        return None
    worst = max(steps, key=at_the_door)
    n, requests = int(np.count_nonzero(turned_away(worst.window.due))), worst.row.requests
    evidence = [
        f"{n} of {plural(requests, 'request')} {worst.at} {agreed(n, 'were')} refused a connection, or lost it before "
        f"any answer ({percent(at_the_door(worst))}), with at most {worst.row.in_flight_max:.0f} in flight"
    ]
    if share is not None:
        evidence.append(f"{percent(share)} of the streams under way at those moments went on")
    if alive:
        evidence.append(COUNTED_ON)
    lowest = case.lowest
    if lowest is not None and lowest is not worst:
        by_load = at_the_door(lowest) <= LOW_LOAD * at_the_door(worst)
        evidence.append("it comes with load: a full listen backlog, a limit on open files or on connections looks so"
                        if by_load else f"as many {lowest.at}, the lowest load: not a matter of load")  # fmt: skip
    return Finding("connections_refused", "likely", tuple(evidence), indices(steps))


def at_the_door(step: StepView) -> float:
    """Share of the step's requests that got no connection, or lost it before any answer."""
    return float(np.count_nonzero(turned_away(step.window.due))) / max(step.row.requests, 1)


def turned_away(table: Table) -> Bools:
    """Requests that found no connection, or one that closed before any answer, shape n."""
    return np.asarray(table.failed & np.isin(table.error, BROKEN) & (table.events == 0), dtype=np.bool_)


def gone(case: Case) -> bool:
    """The server is seen to be away: its page fell silent, or most of the streams under way when connections failed
    broke, too, and no counter went on."""
    share, broke, fell_silent = went_on(case.run.table), broke_midway(case.run.table), silent(case.run.samples)
    most = share is None or share < GOES_ON
    return (fell_silent and (broke or most)) or (broke and most and not kept_counting(case))


def lost_at_s(table: Table) -> Floats:
    """When connections failed or broke, or a gateway had no server, sorted."""
    lost = table.select(table.failed & (np.isin(table.error, BROKEN) | (table.http_status == BAD_GATEWAY)))
    ended_s = np.where(np.isnan(lost.stream_end_s), lost.due_s, lost.stream_end_s)
    return np.sort(ended_s)


def went_on(table: Table) -> float | None:
    """Of the streams that had begun when connections failed, the share that got something after it; None without."""
    at_s = lost_at_s(table)
    at_s = at_s[np.linspace(0, len(at_s) - 1, min(len(at_s), MOMENTS)).astype(int)] if len(at_s) else at_s
    ends_s = np.where(np.isnan(table.stream_end_s), np.inf, table.stream_end_s)
    first_s, last_s = table.first_s, table.last_s
    open_ = going = 0
    for t_s in at_s.tolist():
        under_way = (first_s <= t_s - AFTER_S) & (ends_s > t_s - AFTER_S)
        open_ += int(np.count_nonzero(under_way))
        going += int(np.count_nonzero(under_way & (last_s > t_s + AFTER_S)))
    return going / open_ if open_ else None


def broke_midway(table: Table) -> bool:
    """Streams broke that had begun."""
    return bool(np.any(table.failed & np.isin(table.error, BROKEN) & (table.events > 0)))


def kept_counting(case: Case) -> bool:
    """Every engine's page was read after connections failed, and its counters went on from before: it lives."""
    at_s = lost_at_s(case.run.table)
    pages = engine_pages(case.run.samples)
    if not pages or not len(at_s) or silent(case.run.samples) or restarted(case.run.samples):
        return False
    for scrapes in pages:
        read_s = [s.t_s for s in scrapes if s.values.keys() & (COUNTERS | {"process_start_s"})]
        if not read_s or read_s[0] > at_s[0] or np.mean(at_s <= read_s[-1]) < MOST_BEFORE:
            return False
    return True


def silent(samples: Sequence[Sample]) -> bool:
    """A page of an engine ceased to answer, to the end of the run: not by time-outs alone, as under load."""
    for scrapes in engine_pages(samples):
        last = max(s.t_s for s in scrapes if s.values)
        after = [s for s in scrapes if s.t_s > last]
        if len(after) >= FAILED_SCRAPES and any(s.error != "timeout" for s in after):
            return True
    return False


def restarted(samples: Iterable[Sample]) -> bool:
    """A counter went down, or the process has another start time."""
    read = [s for s in samples if s.values]
    return bool(read) and server_window.deltas(read, read[0].t_s, read[-1].t_s).restarted
