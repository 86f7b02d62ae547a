"""Was the rate that a step asked for offered? A step claims the load that was due in it, not the one in its name. Pure.

Rule: ordinary scatter of random arrivals is no difference; what the plan itself leaves out is. docs/method.md,
"Asked and offered".
"""

from collections.abc import Sequence
from math import sqrt

from loadramp.analysis.load_errors import load_error_ratio, load_requests
from loadramp.analysis.saturation import variation
from loadramp.record.row import Row
from loadramp.record.table import Floats, Run
from loadramp.record.types import Check

MATERIAL_RATIO = 0.1
"""Rates closer than this are not told apart anywhere else either (a ceiling needs about 490 arrivals for 10 %)."""
DEVIATIONS = 3.0
"""Standard deviations of the number of arrivals: one random step in 740 lies further below."""
FEW_ERRORS = 0.01
EDGE = 1.0
"""One arrival more or less at the ends of a window says nothing."""

WAYS_OUT = {
    "replay": "choose a stretch of the trace that is as busy as the whole ([arrivals] or [prompts] window_s), "
    "or make the steps longer (--set ramp.measure_s=N)",
    "diurnal": "make the steps last whole periods (--set ramp.measure_s=N, N a multiple of [arrivals] period_s), "
    "or shorten period_s",
    "spike": "make the steps last whole periods (--set ramp.measure_s=N, N a multiple of [arrivals] every_s), "
    "or shorten every_s",
    "sessions": "let the sessions fill up before it is measured (--set ramp.warmup_s=N, longer than most sessions "
    "last), or make the steps longer (--set ramp.measure_s=N)",
}
OTHERWISE = "make the steps longer (--set ramp.measure_s=N)"


def load_rps(asked_rps: float, arrivals: int, length_s: float, *, share: float = 1.0, gap_cv: float = 1.0) -> float:
    """The rate that a step may speak for: what was due in its window where that clearly differs from what was asked,
    else what was asked.

    Clearly: by more than 10 % and by more than 3 standard deviations of the number of arrivals, ``gap_cv sqrt(n)`` for
    n expected ones. No scatter is allowed for where the plan's own shape leaves more than 10 % out, or adds it.

    Args:
        asked_rps: the rate of the step.
        arrivals: requests due in the window.
        length_s: seconds of the window.
        share: of the asked rate that the arrival process offers in this window on average (1: all of it).
        gap_cv: coefficient of variation of the gaps between arrivals; 0: the arrivals are no matter of chance.
    """
    if length_s <= 0.0:
        return asked_rps
    planned = asked_rps * length_s
    apart = abs(arrivals - planned)
    shaped = abs(share - 1.0) > MATERIAL_RATIO and (share < 1.0) == (arrivals < planned)
    scatter = 0.0 if shaped else DEVIATIONS * gap_cv * sqrt(planned)
    clear = apart > MATERIAL_RATIO * planned and apart > scatter + EDGE
    return arrivals / length_s if clear else asked_rps


def load_of_step(row: Row, due_s: Floats, *, share: float = 1.0, gap_cv: float | None = 1.0) -> float | None:
    """The same for a row of the curve whose signals are known; None in a closed loop. Without the requests that failed
    whatever the load, where these are more than 10 %: they were no load.

    Later turns of sessions come when answers do. Where the server kept up, what was due is all that a step of sessions
    can speak for, and no scatter is allowed for; where it did not, fewer turns are its own doing.

    Args:
        row: with its window, its signals and its errors.
        due_s: of the requests due in the window.
        share: as above.
        gap_cv: as above; None: not known, as seen, at least 1.
    """
    if row.rate_rps is None:
        return None
    cv = max(1.0, variation(due_s)) if gap_cv is None else gap_cv
    if row.sessions:
        if row.saturated or row.deficit or (load_error_ratio(row) or 0.0) > FEW_ERRORS:
            return float(row.rate_rps)
        cv = 0.0
    length_s = row.length_s
    came_rps = load_rps(row.rate_rps, len(due_s), length_s, share=share, gap_cv=cv)
    return came_rps * load_requests(row) / len(due_s) if lightened(row) else came_rps


def lightened(row: Row) -> bool:
    """So many requests failed whatever the load that the load was clearly less than what was sent."""
    return 0 < load_requests(row) < (1.0 - MATERIAL_RATIO) * row.requests


def asked(row: Row) -> float:
    """The rate that an open-loop row asked for; 0 in a closed loop."""
    return row.rate_rps or 0.0


def load_of(row: Row) -> float:
    """The rate that an open-loop row speaks for (column ``load_rps``), else the one that was asked."""
    return asked(row) if row.load_rps is None else row.load_rps


def less(row: Row) -> bool:
    """Clearly less was offered than asked. False in a closed loop."""
    return bool(row.rate_rps) and load_of(row) < (1.0 - MATERIAL_RATIO) * asked(row)


def more(row: Row) -> bool:
    """Clearly more was offered than asked. False in a closed loop."""
    return bool(row.rate_rps) and load_of(row) > (1.0 + MATERIAL_RATIO) * asked(row)


def differs(row: Row) -> bool:
    """Clearly something else was offered than asked. False in a closed loop."""
    return less(row) or more(row)


def at(row: Row) -> str:
    """``8 req/s``; ``5.2 req/s (8 asked)`` where clearly something else was offered than asked."""
    asked = f" ({row.rate_rps:.3g} asked)" if differs(row) else ""
    return f"{load_of(row):.3g} req/s{asked}"


def not_shown(row: Row, status: str, harder: bool) -> str:
    """Why a step's ``pass``, ``fail`` or ``inconclusive`` says nothing about the rate that it asked for; "": it does.

    With less load than asked, a limit that load makes harder to keep can only be missed, with more load only kept; the
    other way round for what load makes easier.
    """
    if (less(row) and status != ("fail" if harder else "pass")) or (
        more(row) and status != ("pass" if harder else "fail")
    ):
        return pairs([(asked(row), load_of(row))])
    return ""


def way_out(arrivals: str, sessions: bool) -> str:
    """What to change so that a step offers what it asks; ``arrivals``: the kind of the arrival process."""
    return WAYS_OUT.get("sessions" if sessions else arrivals, OTHERWISE)


def pairs(asked_and_offered: Sequence[tuple[float, float]]) -> str:
    """``8 req/s asked, 5.2 offered; 16 asked, 9.8 offered``."""
    texts = [f"{asked:.3g} asked, {offered:.3g} offered" for asked, offered in asked_and_offered]
    return "; ".join([texts[0].replace(" asked", " req/s asked", 1), *texts[1:]])


def offered(run: Run) -> list[Check]:
    """Steps that offered clearly less, or clearly more, than they asked for, and those of which much was no load."""
    kind, rows = run.info.arrivals or "", [row for row in run.rows if not row.void]
    checks = []
    for which, claim in (
        (less, "these steps speak for what was offered only"),
        (more, "these steps speak for what was offered, and what failed there says nothing about the rate asked"),
    ):
        apart = [row for row in rows if which(row) and not lightened(row)]
        if apart:
            loads = pairs([(asked(row), load_of(row)) for row in apart])
            advice = way_out(kind, any(row.sessions for row in apart))
            step = apart[0].step if len(apart) == 1 else None
            checks.append(Check("offered", "warn", f"{loads}: {claim}", advice, step))
    light = [row for row in rows if row.rate_rps and lightened(row)]
    if light:
        loads = pairs([(asked(row), load_of(row)) for row in light])
        claim = "the rest failed for reasons that do not depend on load; these steps speak for what was left only"
        advice = "first correct the requests that fail (check request_errors)"
        checks.append(Check("offered", "warn", f"{loads}: {claim}", advice, light[0].step if len(light) == 1 else None))
    return checks
