"""Ramps: the rows so far to the next step, or why to stop. Pure.

A ramp is a function ``f(rows, *, options) -> Step | Stop``. It reads the rows of the measured steps, in order (columns
``saturated``, ``deficit``, ``void`` and ``overloaded``: more errors than ``max_error_ratio``, beyond doubt), and leaves
the times of the step it proposes to the conductor unless it has a reason to set them.
"""

from collections.abc import Callable, Sequence
from math import isfinite, sqrt
from typing import Annotated, Any

from msgspec import Meta

from loadramp.record.row import Row, void_words
from loadramp.record.types import Step, Stop
from loadramp.units import agreed, plural

Rate = Annotated[float, Meta(gt=0)]
Length = Annotated[float, Meta(gt=0)]
Factor = Annotated[float, Meta(gt=1)]
Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[float, Meta(ge=0)]

MOST_SOAKS = 3
_NO_ESTIMATE = Stop("saturated, but the ceiling cannot be estimated", complete=False)


def ladder(
    rows: Sequence[Row], *, rates: Annotated[list[Rate], Meta(min_length=1)], lengths: list[Length] | None = None
) -> Step | Stop:
    """The given rates, one after the other, in the given order; ``lengths``: how long each is measured, in seconds."""
    if any(row.overloaded for row in rows):
        return _too_many_errors(rows)
    if len(rows) == len(rates):
        return Stop(f"all {plural(len(rates), 'rate', 'were')} tried")
    measure_s = lengths[len(rows)] if lengths and len(rows) < len(lengths) else None
    return Step(len(rows), rate_rps=rates[len(rows)], measure_s=measure_s)


def geometric(
    rows: Sequence[Row], *, start_rps: Rate = 1.0, factor: Factor = 2.0, max_rps: Rate = 64.0, overload_steps: Count = 2
) -> Step | Stop:
    """``start_rps`` times powers of ``factor`` to ``max_rps``; ``overload_steps`` saturated steps in a row end it."""
    if any(row.overloaded for row in rows):
        return _too_many_errors(rows)
    if len(rows) >= overload_steps and all(row.saturated for row in rows[-overload_steps:]):
        return Stop(f"the last {plural(overload_steps, 'step', 'were')} saturated")
    rate_rps = start_rps * factor ** len(rows)
    if rate_rps > max_rps * (1 + 1e-9):
        return Stop(f"reached max_rps = {max_rps:g}")
    return Step(len(rows), rate_rps=rate_rps)


def users(
    rows: Sequence[Row],
    *,
    users: Annotated[list[Count], Meta(min_length=1)] = [1, 8, 32, 64, 128],  # noqa: B006 (read only)
) -> Step | Stop:
    """Closed loop: so many users, each sending its next request when the last one is answered."""
    if any(row.overloaded for row in rows):
        return _too_many_errors(rows)
    if len(rows) == len(users):
        return Stop(f"all {plural(len(users), 'number')} of users {agreed(len(users), 'were')} tried")
    return Step(len(rows), users=users[len(rows)])


def ceiling(
    rows: Sequence[Row],
    *,
    start_rps: Rate = 1.0,
    factor: Factor = 2.0,
    max_rps: Rate = 1024.0,
    soak_s: NotNegative = 300.0,
    soak_ratio: Annotated[float, Meta(gt=0, lt=1)] = 0.85,
    retry_ratio: Annotated[float, Meta(gt=0, lt=1)] = 0.7,
    down: bool = False,
) -> Step | Stop:
    """Climb until the endpoint is saturated, then show with a soak what it sustains (docs/method.md, "The ramp").

    The climb ends at the first step that is saturated and in deficit, or fails too often. A saturated step without
    deficit counts only if the next one is saturated too; then at most two more steps look for a deficit. A lone alarm
    is noise: recorded, passed over. Then ``soak_s`` seconds at ``soak_ratio`` of the estimate and, if that is not
    quiet, at ``retry_ratio`` of it; a soak that shows a far lower ceiling is followed by one at ``soak_ratio`` of that,
    at most three in all. A void step is offered once more: a client that was disturbed once may not be slow.
    ``down`` offers the quiet rates of the climb again, downwards, before the soak: does it come back by itself?
    """
    if rows and rows[-1].void:
        return _once_more(rows, soak_s)
    soaks = [row for row in rows if row.role == "soak" and not row.void]
    climb = [row for row in rows if row.role == "step" and not row.void]
    if soaks:
        return _after_soak(rows, soaks, soak_s, soak_ratio, retry_ratio)
    if climb and not _climb_goes_on(climb):
        back = _way_down(rows) if down else None
        if back is not None:
            return back
        estimate_rps = climb[-1].ceiling_rps
        if estimate_rps is None:
            return _too_many_errors(climb) if climb[-1].overloaded else _NO_ESTIMATE
        if soak_s == 0:
            return Stop("the ceiling was reached; no soak was asked for")
        return Step(len(rows), role="soak", rate_rps=soak_ratio * estimate_rps, measure_s=soak_s)
    beyond = next((row for k, row in enumerate(rows) if _twice_void(rows[: k + 1])), None)
    if beyond is not None:  # and the rate half-way to it has not shown an overload
        return _not_delivered(beyond, f"{beyond.rate_rps:.3g} req/s")
    rate_rps = start_rps * factor ** len(climb)
    if rate_rps > max_rps * (1 + 1e-9):
        return Stop(f"reached max_rps = {max_rps:g} without finding the ceiling")
    return Step(len(rows), rate_rps=rate_rps)


def _way_down(rows: Sequence[Row]) -> Step | None:
    """The highest rate that was quiet on the way up and has not been offered on the way down yet."""
    rates = {row.rate_rps for row in rows if row.role == "down"}
    quiet = [row.rate_rps or 0.0 for row in rows if row.role == "step" and not (row.saturated or row.void)]
    left = [rate_rps for rate_rps in quiet if rate_rps not in rates]
    return Step(len(rows), role="down", rate_rps=max(left)) if left else None


def _once_more(rows: Sequence[Row], soak_s: float) -> Step | Stop:
    """After a void row: the same again. After the second attempt, where a step below it has raised an alarm, once the
    rate half-way to that step: the ceiling lies near."""
    last = rows[-1]
    if not _twice_void(rows):
        measure_s = soak_s if last.role == "soak" else None
        return Step(len(rows), role=last.role, rate_rps=last.rate_rps, measure_s=measure_s)
    climb = [row for row in rows if row.role == "step" and not row.void]
    tried = {row.rate_rps for row in rows if row.void}
    if last.role == "step" and len(tried) == 1 and climb and climb[-1].saturated:
        return Step(len(rows), rate_rps=sqrt((climb[-1].rate_rps or 0.0) * (last.rate_rps or 0.0)))
    return _not_delivered(last, "the last step")


def _twice_void(rows: Sequence[Row]) -> bool:
    """The client could not deliver the last step, nor the attempt before it."""
    return len(rows) > 1 and all(row.void for row in rows[-2:]) and rows[-1].rate_rps == rows[-2].rate_rps


def _not_delivered(row: Row, which: str) -> Stop:
    return Stop(f"the client could not deliver {which}, twice: {void_words(row.void)}", complete=False)


def _climb_goes_on(climb: Sequence[Row]) -> bool:
    for row in reversed(climb):  # also a step below the last one, whose requests failed after it had ended
        if row.overloaded or (row.saturated and row.deficit):
            return False
        if not (row.saturated or row.deficit):
            break
    return not all(row.saturated for row in climb[-4:]) or len(climb) < 4


def _after_soak(
    rows: Sequence[Row], soaks: Sequence[Row], soak_s: float, soak_ratio: float, retry_ratio: float
) -> Step | Stop:
    last = soaks[-1]
    if not (last.saturated or last.deficit or last.overloaded):
        offered_rps = last.rate_rps if last.load_rps is None else last.load_rps
        held_s = last.length_s
        return Stop(f"{offered_rps:.3g} req/s held for {round(held_s) if held_s > soak_s + 1.0 else soak_s:g} s")
    climbed = [row for row in rows if row.role == "step" and not row.void]
    first_rps, now_rps = (climbed[-1] if climbed else soaks[0]).ceiling_rps, rows[-1].ceiling_rps
    if first_rps is not None and now_rps is not None:
        rate_rps = min(retry_ratio * first_rps, soak_ratio * now_rps)
        lower = rate_rps < min(retry_ratio * first_rps, last.rate_rps or 0.0)  # the retry proved the estimate wrong
        if len(soaks) == 1 or (lower and len(soaks) < MOST_SOAKS):
            return Step(len(rows), role="soak", rate_rps=rate_rps, measure_s=soak_s)
    return Stop("the soak was not quiet", complete=False)


def _too_many_errors(rows: Sequence[Row]) -> Stop:
    row = next(row for row in reversed(rows) if row.overloaded)
    at = f"with {plural(row.users, 'user')}" if row.users else f"at {row.rate_rps:.3g} req/s"
    return Stop(f"more errors {at} than max_error_ratio allows", complete=False)


RAMPS: dict[str, Callable[..., Any]] = {
    "ceiling": ceiling,
    "geometric": geometric,
    "ladder": ladder,
    "users": users,
}


def check_step(result: Any, *_: Any) -> str:
    """What was expected of a ramp from outside the repository if it returned something else; empty if all is well."""
    if isinstance(result, Stop):
        return ""
    if not isinstance(result, Step):
        return "expected a Step or a Stop"
    if (result.rate_rps is None) == (result.users is None):
        return "expected a Step with rate_rps or users"
    load = result.rate_rps if result.users is None else result.users
    fine = isinstance(load, int | float) and isfinite(load) and load > 0
    return "" if fine else "expected a Step with a load above 0"
