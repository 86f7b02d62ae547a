"""Requests that the client did not see to their end: it was interrupted, gave up waiting, or was killed. Pure.

They are neither successes nor failures. Those whose records exist are censored at their age; those of a client that was
killed have none, and are only counted.
"""

from collections.abc import Sequence

import numpy as np

from loadramp.record.table import Floats, Ints, Run
from loadramp.record.types import Check, CheckLevel, ClientSample
from loadramp.units import agreed, plural

Shortfall = tuple[Floats, Ints]
KILLED = "killed"
WHOLE = "the run directory is damaged or was copied in part: take a whole copy of it (records-*.jsonl)"
STILL_RUNNING = "killed, or still going on"


def cut_off(run: Run) -> int:
    """Requests whose records say that the client cut them off."""
    return int(np.count_nonzero(run.table.unfinished))


def lost(run: Run) -> int:
    """Requests that were sent and have no record, since the client was killed: at least so many.

    What a worker sent after its last word is not known. 0 for a run that ended by itself, and for one that goes on.
    """
    return without_record(shortfalls(run)) if how_it_ended(run) == KILLED else 0


def shortfalls(run: Run) -> list[Shortfall]:
    """Of each worker: its words' instants (s), and how many requests it had sent by then that have no record.

    Each worker says once a second how many requests it has sent: those of its records sent until then are told from
    them.
    """
    words: dict[int, list[ClientSample]] = {}
    for sample in run.client:
        words.setdefault(sample.worker, []).append(sample)
    out = []
    for worker, samples in words.items():
        samples.sort(key=lambda sample: sample.t_s)
        t_s = np.array([sample.t_s for sample in samples])
        sent = np.cumsum([sample.sent for sample in samples])
        sent_s = np.sort(run.table.sent_s[run.table.worker == worker])  # NaN, never sent, comes last
        out.append((t_s, sent - np.searchsorted(sent_s, t_s, side="right")))
    return out


def without_record(shortfalls: Sequence[Shortfall], begin_s: float = 0.0, end_s: float = float("inf")) -> int:
    """At least so many of the requests sent from ``begin_s`` to ``end_s`` have no record."""
    number = 0
    for t_s, short in shortfalls:
        first = int(np.searchsorted(t_s, begin_s, side="right")) - 1
        last = min(int(np.searchsorted(t_s, end_s)), len(t_s) - 1)
        number += max(0, int(short[last]) - (int(short[first]) if first >= 0 else 0))
    return number


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


def records_missing(run: Run) -> list[Check]:
    """Requests that were sent and have no record though the run ended by itself: its files are not whole."""
    number = 0 if how_it_ended(run) or run.info.dead_workers else without_record(shortfalls(run))
    if not number:
        return []
    message = f"{plural(number, 'request')} that the client sent {agreed(number, 'have')} no record"
    return [Check("records_missing", "warn", message, WHOLE)]


def unread_lines(run: Run) -> list[Check]:
    """Lines of the run's files that could not be read. A last one that was cut off is usual where it was killed."""
    number = run.info.skipped_lines or 0
    if not number:
        return []
    level: CheckLevel = "note" if how_it_ended(run) else "warn"
    message = f"{plural(number, 'line')} of the run's files could not be read and {agreed(number, 'were')} left out"
    return [Check("unread_lines", level, message, WHOLE)]
