"""Requests that the client did not see to their end: it was interrupted, gave up waiting, or was killed. Pure.

They are neither successes nor failures. Those whose records exist are censored at their age; those of a client that was
killed have none, and are only counted.
"""

from collections import Counter

import numpy as np

from loadramp.record.table import Run
from loadramp.record.types import Check
from loadramp.units import plural

KILLED = "killed"
STILL_RUNNING = "killed, or still going on"


def cut_off(run: Run) -> int:
    """Requests whose records say that the client cut them off."""
    return int(np.count_nonzero(run.table.unfinished))


def lost(run: Run) -> int:
    """Requests that were sent and have no record, since the client was killed: at least so many.

    Each worker says once a second how many requests it has sent: those of its records sent until then are told from
    them. What it sent after its last word is not known. 0 for a run that ended by itself, and for one that goes on.
    """
    if how_it_ended(run) != KILLED:
        return 0
    counts: Counter[int] = Counter()
    last_s: dict[int, float] = {}
    for sample in run.client:
        counts[sample.worker] += sample.sent
        last_s[sample.worker] = max(sample.t_s, last_s.get(sample.worker, 0.0))
    table, missing = run.table, 0
    for worker, sent in counts.items():
        known = np.count_nonzero((table.worker == worker) & (table.sent_s <= last_s[worker]))
        missing += max(0, sent - int(known))
    return missing


def how_it_ended(run: Run) -> str:
    """In words for a run whose end nobody wrote down; empty for any other."""
    if run.info.state != "running":
        return ""
    return KILLED if run.info.killed else STILL_RUNNING


def words(run: Run) -> str:
    """How many requests were cut off, for the headline; empty where none was."""
    known, gone = cut_off(run), lost(run)
    parts = [f"{plural(known, 'request')} cut off before the answer had ended"] if known else []
    parts += [f"at least {plural(gone, 'request')} in flight lost"] if gone else []
    return " and ".join(parts)


def check(run: Run) -> list[Check]:
    """How many were cut off, and what that means for the figures."""
    known, gone = cut_off(run), lost(run)
    out = []
    if known:
        message = (
            f"{plural(known, 'request')} had not been answered to the end when the client ended the run: unfinished, "
            "not failed"
        )
        out.append(Check("cut_off", "note", message, "no error ratio and no threshold counts them as failures"))
    if gone:
        message = f"the client was killed with at least {plural(gone, 'request')} in flight, which left no record"
        advice = "figures of the last step are of the answers that had ended by then, the short ones first"
        out.append(Check("killed", "warn", message, advice))
    return out
