"""Which failures of a step count as evidence about load. Pure.

Rule: a request that would fail on an idle server too (``error_classes.class_of``) is a failure and no part of the load:
load is judged by the other requests, while the run goes on and at its end.
"""

from collections import Counter

import numpy as np

from loadramp.analysis.error_classes import OF_THE_REQUEST, WORDS, classes, load_independent
from loadramp.analysis.proportions import Proportion
from loadramp.record.row import Row
from loadramp.record.table import Bools, Run, Table
from loadramp.record.types import Check
from loadramp.units import percent, plural

CURES = {
    "long": "leave such prompts out or shorten them, or serve the model with a larger max_model_len",
    "filtered": "use prompts that the filter lets through, or switch the filter off for the test",
    "unknown": "compare --model and --base-url with what the server lists",
    "denied": "check the key (--api-key-env) and what it permits",
    "redirected": "a login or a gateway on the way, most likely: send what it asks for (--api-key-env, --header; has a "
    "session or a key run out?), or, if the endpoint has moved, name that address (--base-url)",
    "invalid": "read error_detail in records-*.jsonl, and correct [prompts] or the body in [target]",
}


def load_requests(row: Row) -> int:
    """Requests of the row that were a load."""
    return row.requests - row.load_independent_errors


def load_arrival_rps(row: Row) -> float:
    """Requests a second that were a load: those due, without those that fail whatever the load."""
    arrived = row.arrival_rps
    return arrived * load_requests(row) / row.requests if row.load_independent_errors else arrived


def load_error_ratio(row: Row) -> float | None:
    """Share of the requests that were a load and have ended that failed; None: none has ended."""
    apart = row.load_independent_errors
    if not apart:
        return row.error_ratio
    ended = row.ended - apart
    return (row.failed - apart) / ended if ended > 0 else None


def known_independent(due: Table, end_s: float) -> Bools:
    """Requests that had failed by ``end_s`` whatever the load, shape n: what is known when the step ends."""
    return np.asarray(load_independent(due) & (due.done_s <= end_s), dtype=np.bool_)


def fails_too_often(due: Table, max_error_ratio: float) -> bool:
    """More failures that may depend on load than ``max_error_ratio``, beyond what chance explains.

    Requests in flight, or cut off, count as requests: a refusal is there at once, answers beside it take their time.

    Args:
        due: the requests of the step.
        max_error_ratio: of the scenario.
    """
    load = due.select(~load_independent(due))
    return too_many(int(np.count_nonzero(load.failed)), len(load), max_error_ratio)


def too_many(failed: int, requests: int, limit: float) -> bool:
    """The share of failures is above ``limit``: so is its exact one-sided limit at 5 %."""
    return failed > limit * requests and Proportion(failed, requests).lower() > limit


def request_errors(run: Run) -> list[Check]:
    """Failures that say nothing about load: how many, of what, and what to change."""
    rows = [row for row in run.rows if not row.void and row.load_independent_errors]
    if not rows:
        return []
    counts: Counter[str] = Counter()
    addresses: Counter[str] = Counter()
    for row in rows:
        due = run.table.due_in(*(row.measured_windows))
        counts.update({name: n for name, n in classes(due).items() if name in OF_THE_REQUEST})
        redirected = due.failed & (due.failure_status >= 300) & (due.failure_status < 400)
        addresses.update(due.error_detail[redirected].tolist())
    failed = sum(row.load_independent_errors for row in run.rows if not row.void)
    of = sum(row.ended for row in run.rows if not row.void)
    kinds = ", ".join(f"{n:,} {WORDS[name]}" for name, n in counts.most_common())
    kinds += "".join(f"; {detail}" for detail, _ in addresses.most_common(1) if detail)
    message = (
        f"{failed:,} of {plural(of, 'request')}, {percent(failed / of)}, failed for reasons that do not depend on load "
        f"({kinds}): they count as failures, and no ceiling or SLO capacity rests on them"
    )
    advice = CURES[counts.most_common(1)[0][0]] if counts else CURES["invalid"]
    return [Check("request_errors", "warn", message, advice, rows[0].step if len(rows) == 1 else None)]


def over_length(run: Run) -> list[Check]:
    """Requests that were known to be longer than the model takes before the first was sent."""
    expected = run.info.over_length
    if expected is None or not expected.longer:
        return []
    message = (
        f"{percent(expected.longer / expected.requests)} of the planned requests ({expected.longer:,} of the first "
        f"{expected.requests:,}) are longer than max_model_len = {plural(expected.max_model_len, 'token')}, prompt "
        f"and answer "
        "together"
    )
    return [Check("over_length", "warn", message, CURES["long"])]
