"""The ceiling: the rate an endpoint can sustain. Queue signals say that it is overloaded, its throughput says how much.

Formulas: docs/method.md, "Ceiling". Rule: void rows are never used, and one bad step is not a ceiling.
"""

from collections.abc import Sequence
from math import exp
from typing import Annotated

import numpy as np
from msgspec import Meta

from loadramp.analysis.load_errors import load_arrival_rps, load_error_ratio, load_requests
from loadramp.analysis.offered_load import asked, at, load_of
from loadramp.analysis.overload import Climb, alarmed, climb, failing, shows_overload, signs_of, usable, went_away
from loadramp.analysis.proportions import Proportion, fisher
from loadramp.analysis.throughput import corpus_output_tokens, fit, read
from loadramp.record.row import Row
from loadramp.record.types import Estimate, EstimateStatus
from loadramp.units import percent, plural

Ratio = Annotated[float, Meta(gt=0, lt=1)]
BEYOND_RATIO = 1.1
"""An estimate so far beyond a rate that overloads the endpoint is wrong: it served more there than it sustains."""
UNKNOWN_TIMES = 3.0
"""An interval from less than a third to more than three times the estimate says less than the rates that were tried."""


def ceiling(rows: Sequence[Row], *, deficit_ratio: Ratio = 0.85) -> Estimate:
    """The ceiling with its 95 % interval, or why there is none.

    Args:
        rows: rows of the curve in any order; ``soak`` rows give ``sustained_rps``.
        deficit_ratio: throughput below this share of the arrivals shows overload.
    """
    if not rows:
        return _estimate("not_measurable", "no step was measured")
    if not usable(rows, ("step", "soak", "down")):
        return _estimate("not_measurable", _nothing(rows))
    if any(row.users for row in usable(rows)):
        return plateau(usable(rows))
    climbed = climb(rows)
    if not climbed.rows:
        return _only_soaks(rows)
    if all(row.ok == 0 and row.requests > row.pending for row in climbed.rows):
        return _estimate("not_measurable", "every request failed")
    worst = climbed.overloaded
    if worst is None:
        return _not_overloaded(climbed)
    if climbed.last_quiet is None and failing(worst) and not _too_much(worst):
        return _estimate("inconclusive", _fails_at_once(worst, climbed.rows[-1]))
    if climbed.last_quiet is not None and failing(worst) and went_away(worst, climbed.last_quiet):
        return _gone(climbed, worst, climbed.last_quiet, sustained(rows))
    return _overloaded(climbed, worst, rows, deficit_ratio)


def _too_much(row: Row) -> bool:
    """The failures of the lowest step are of its load: a queue grew, or much was refused as too many requests (429)."""
    return row.deficit and (row.saturated or _mostly(row, "http_429"))


def _mostly(row: Row, kind: str) -> bool:
    return 2 * row.errors.get(kind, 0) > row.failed


def _fails_at_once(row: Row, highest: Row) -> str:
    """What failures at the lowest rate may mean, as far as their kind tells, and whether a far higher rate has more."""
    failed = f"{_failed(row)} at the lowest rate already"
    if _mostly(row, "http_429"):
        return f"{failed} (429, too many requests): a limit lies below it, start lower"
    if _mostly(row, "connect"):
        return f"{failed} (no connection): part of the endpoint is down, or it takes fewer connections: start lower"
    if row.deficit:
        return f"{failed}, and no queue grows: part of the endpoint is down, or it refuses so much: start lower"
    if load_of(highest) >= 2.0 * load_of(row) and (load_error_ratio(highest) or 0.0) <= 1.5 * (
        load_error_ratio(row) or 0
    ):
        return f"{failed}, and no larger share at {at(highest)}: not a matter of load"
    return f"{failed}: whether it comes of load, one rate does not tell; start lower"


def _nothing(rows: Sequence[Row]) -> str:
    """Why no row is usable."""
    if any(row.void for row in rows):
        missing = any(row.no_record for row in rows)
        return "no step has all its records" if missing else "the client could deliver no step"
    if any(load_requests(row) > 0 for row in rows):
        return "the first step was cut short"
    if any(row.requests for row in rows):
        return "every request failed, for reasons that do not depend on load"
    return "no request was due in any step"


def plateau(rows: Sequence[Row]) -> Estimate:
    """Closed loop: the throughput that more users no longer raise (less than 10 % for half as many again or more)."""
    steps = sorted((row for row in rows if row.users), key=lambda row: row.users or 0)
    best = max(row.throughput_rps for row in steps)
    if best <= 0.0:
        return _estimate("not_measurable", "every request failed")
    reached = next(row for row in steps if row.throughput_rps >= best / 1.1)
    reading, users = read(reached, None), reached.users or 0
    more = [row for row in steps if (row.users or 0) >= 1.5 * users]
    if not more:
        words = f"throughput still rises at {plural(steps[-1].users or 0, 'user')}, the most tried"
        return _estimate("not_found_up_to", words, best)
    top = float(np.median([row.throughput_rps for row in [reached, *more]]))
    half = reading.log_half
    words = f"more than {plural(users, 'user')} bring no more throughput (closed loop: they wait for each other)"
    return Estimate("found", top, top * exp(-half), top * exp(half), "ceiling", words)


def sustained(rows: Sequence[Row]) -> float | None:
    """Highest rate that a soak has held quietly; of sessions, which may still have filled up, the rate that came."""
    held = [
        min(asked(row), row.arrival_rps) if row.sessions else load_of(row)
        for row in usable(rows, ("soak",))
        if not alarmed(row)
    ]
    return max(held, default=None)


def _overloaded(climbed: Climb, worst: Row, rows: Sequence[Row], deficit_ratio: float) -> Estimate:
    used = [*_telling(climbed, worst), *usable(rows, ("soak",))]
    mean = corpus_output_tokens(used)
    readings = [read(row, mean) for row in used]
    rates = np.array([load_arrival_rps(row) for row in used])
    throughputs = np.array([reading.rate_rps for reading in readings])
    arrivals = np.array([load_requests(row) for row in used], dtype=np.float64)
    quiet = climbed.last_quiet
    low_words = f"quiet up to {at(quiet)}" if quiet else "no quiet step below it"
    lagging = np.array([row.saturated and row.deficit for row in used])
    behind = (throughputs < deficit_ratio * rates) | lagging
    if not behind.any():
        return _only_errors(climbed, worst, sustained(rows))
    rate_rps = fit(rates, throughputs, arrivals)
    if rate_rps <= 0.0:
        return _estimate("not_measurable", f"{_failed(worst)} at {at(worst)}; {low_words}")
    lower = next((row for row in sorted(used, key=load_of) if _refutes(row, climbed, rate_rps)), None)
    if lower is not None:
        return _lower(lower, climbed, rows, mean, rate_rps)
    apart = np.where(behind, np.abs(np.log(np.maximum(throughputs, 1e-9) / rate_rps)), np.inf)
    i = int(np.argmin(apart))
    half = readings[i].log_half
    if exp(half) > UNKNOWN_TIMES:
        return _between_tried(climbed, worst, rows, rate_rps)
    status: EstimateStatus = "found" if quiet else "below_range"
    served = f"{throughputs[i]:.3g} of {rates[i]:.3g} req/s are served"
    words = "; ".join(
        [
            f"from {at(worst)} on {_signs(worst)}; {served}",
            low_words if quiet else "overloaded at the lowest rate: start lower",
            *_caveats(climbed, worst, rate_rps),
        ]
    )
    low_rps, loud = rate_rps * exp(-half), _loud_soaks(rows)
    if loud:
        words += f"; neither {' nor '.join(at(row) for row in loud)} was held, so it may lie as low as the quiet rates"
        low_rps = min(low_rps, load_of(quiet)) if quiet else low_rps
    return Estimate(status, rate_rps, low_rps, rate_rps * exp(half), "ceiling", words,
                    sustained_rps=sustained(rows))  # fmt: skip


def _between_tried(climbed: Climb, worst: Row, rows: Sequence[Row], rate_rps: float) -> Estimate:
    """What was served varies too much (an engine whose step time changes, few answers) to say what is served in the
    long run: of its own minutes the ramp says that one rate was sustained and the next was not."""
    quiet = climbed.last_quiet
    low, high = load_of(quiet) if quiet else None, max(load_of(worst), rate_rps)
    words = "; ".join([
        f"from {at(worst)} on {_signs(worst)}",
        f"quiet up to {at(quiet)}" if quiet else "overloaded at the lowest rate: start lower",
        "what was served in these steps varies too much to say what is served in the long run: the interval is that of "
        "the rates tried; longer steps would narrow it",
        *_caveats(climbed, worst, rate_rps),
    ])  # fmt: skip
    return Estimate("found" if quiet else "below_range", rate_rps, low and min(low, rate_rps), high, "ceiling", words,
                    sustained_rps=sustained(rows), interval_of="these_minutes")  # fmt: skip


def _loud_soaks(rows: Sequence[Row]) -> list[Row]:
    """The soaks where there were several and none was quiet: the estimate that they rest on is in doubt."""
    soaks = usable(rows, ("soak",))
    return soaks if len(soaks) > 1 and all(alarmed(row) for row in soaks) else []


def _refutes(row: Row, climbed: Climb, rate_rps: float) -> bool:
    """The row was overloaded at a rate that the endpoint should sustain if its ceiling were ``rate_rps``."""
    highest = climbed.last_quiet
    above = row.role != "step" or highest is None or load_of(row) > load_of(highest)
    return above and shows_overload(row) and load_of(row) < rate_rps / BEYOND_RATIO


def _lower(row: Row, climbed: Climb, rows: Sequence[Row], mean: float | None, fitted_rps: float) -> Estimate:
    """The ceiling where a step or a soak was overloaded far below what higher rates served: parts of the endpoint are
    full before others, or a limit lets bursts pass. No rate at which it is overloaded is sustained."""
    reading = read(row, mean)
    served = min(reading.rate_rps, _succeeding_rps(row))
    kept = [load_of(row) for row in usable(rows, ("step", "soak", "down")) if not alarmed(row)]
    held = max((rate for rate in kept if rate <= served), default=None)
    what = _failed(row) if failing(row) else _signs(row)
    step = "the soak" if row.role == "soak" else "the step"
    words = "; ".join([
        f"{step} at {at(row)} was overloaded: {what}, and {served:.3g} req/s were served",
        f"quiet up to {held:.3g} req/s" if held is not None else "no quiet step below it",
        f"higher rates served up to {fitted_rps:.3g} req/s, so parts of the endpoint are full before others, or a "
        "limit lets bursts pass",
        *_hiccups(climbed),
    ])  # fmt: skip
    status: EstimateStatus = "below_range" if held is None else "found"
    return Estimate(status, served, held, load_of(row), "ceiling", words, sustained_rps=sustained(rows))


def _telling(climbed: Climb, worst: Row) -> list[Row]:
    """The rows whose throughput tells the ceiling: above a step that was overloaded without failures, one with too many
    tells of the failures."""
    spoilt = [row for row in climbed.above if row is not worst and failing(row) and load_of(row) > load_of(worst)]
    return [row for row in climbed.rows if not any(row is spoilt_row for spoilt_row in spoilt)]


def _only_soaks(rows: Sequence[Row]) -> Estimate:
    held = sustained(rows)
    if held is None:
        return _estimate("inconclusive", "no step was climbed, and no soak was quiet")
    words = f"{held:.3g} req/s held; no higher rate was tried"
    return Estimate("not_found_up_to", held, held, None, "ceiling", words, sustained_rps=held)


def _gone(climbed: Climb, worst: Row, quiet: Row, sustained_rps: float | None) -> Estimate:
    """The endpoint broke down or went away above the quiet rates: what it served until then is no rate it sustains."""
    low, high = load_of(quiet), load_of(worst)
    words = f"{_failed(worst)} at {at(worst)}: it broke down or went away; quiet up to {at(quiet)}"
    alarm = next((row for row in climbed.above if row is not worst and row.saturated), None)
    if alarm is not None and load_of(alarm) < high:
        words += f"; at {at(alarm)} {_signs(alarm)}, and {alarm.throughput_rps:.3g} req/s were served"
    return Estimate("inconclusive", None, low, high, "ceiling", words, sustained_rps=sustained_rps)


def _only_errors(climbed: Climb, worst: Row, sustained_rps: float | None) -> Estimate:
    """Errors without a lack of throughput: the rate at which requests succeeded is the best there is to say, where more
    of them fail than at the rates below (Fisher's exact test at 5 %). Else they need not come of load."""
    quiet = climbed.last_quiet
    below = sum((_failures(row) for row in climbed.rows if load_of(row) < load_of(worst)), Proportion())
    if below.failed and fisher(below, _failures(worst)) >= 0.05:
        fewer = f"and hardly fewer below it ({percent(below.ratio or 0.0)})"
        words = f"{_failed(worst)} at {at(worst)}, {fewer}: that need not come of load"
        low_rps = load_of(quiet) if quiet else None
        return Estimate("inconclusive", None, low_rps, None, "ceiling", words, sustained_rps=sustained_rps)
    low, high = load_of(quiet) if quiet else None, load_of(worst)
    words = f"{_failed(worst)} at {at(worst)}; " + (f"quiet up to {at(quiet)}" if quiet else "no quiet step")
    rate_rps = min(max(_succeeding_rps(worst), low or 0.0), high)
    return Estimate("found", rate_rps, low, high, "ceiling", words, sustained_rps=sustained_rps)


def _failures(row: Row) -> Proportion:
    """Those that may depend on load, of the requests that were one."""
    return Proportion(row.failed - row.load_independent_errors, load_requests(row))


def _succeeding_rps(row: Row) -> float:
    """Arrivals that were a load, less those that failed: what is still under way has not."""
    failed = row.failed - row.load_independent_errors
    return load_arrival_rps(row) * (1.0 - failed / load_requests(row))


def _not_overloaded(climbed: Climb) -> Estimate:
    quiet, above = climbed.last_quiet, climbed.above
    alarms = [row for row in above if row.saturated]
    if len(alarms) >= 2:
        words = f"saturated from {at(alarms[0])} on, but throughput still follows the load: go higher"
        low = load_of(quiet) if quiet else None
        return Estimate("inconclusive", None, low, None, "ceiling", words)
    if quiet is None:
        words = f"{_signs(above[-1])} at {at(above[-1])}, the only rates measured: not confirmed"
        return _estimate("inconclusive", words)
    rate_rps = load_of(quiet)
    words = f"quiet up to {at(quiet)}, the highest rate tried"
    if above:
        words = f"quiet up to {at(quiet)}; {_signs(above[-1])} at {load_of(above[-1]):.3g}, not confirmed"
    return Estimate("not_found_up_to", rate_rps, rate_rps, None, "ceiling", "; ".join([words, *_hiccups(climbed)]))


def _caveats(climbed: Climb, worst: Row, rate_rps: float) -> list[str]:
    out = _hiccups(climbed)
    if failing(worst):
        out.append(f"{_failed(worst)} there")
    quiet = climbed.last_quiet
    if quiet and rate_rps < 0.9 * load_arrival_rps(quiet):
        out.append(f"overload costs throughput: {load_arrival_rps(quiet):.3g} req/s were served before it")
    if load_requests(worst) < 490:
        out.append(f"{plural(load_requests(worst), 'arrival')} in that step; telling rates 10 % apart takes about 490")
    return out


def _hiccups(climbed: Climb) -> list[str]:
    return [f"an alarm at {at(row)} was not confirmed above it (hiccup)" for row in climbed.hiccups]


def _signs(row: Row) -> str:
    return signs_of(row) or "throughput falls behind"


def _failed(row: Row) -> str:
    return f"{percent(load_error_ratio(row) or 0.0)} of the requests fail"


def _estimate(status: EstimateStatus, reason: str, rate_rps: float | None = None) -> Estimate:
    return Estimate(status, rate_rps, rate_rps, None, "ceiling", reason)
