"""Rules about requests that failed: refused at the door, a server that died, out of memory, broken hardware."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from loadramp.analysis.diagnosis.lost_connections import (
    COUNTED_ON,
    GOES_ON,
    broke_midway,
    connections_refused,
    gone,
    kept_counting,
    restarted,
    silent,
    went_on,
)
from loadramp.analysis.diagnosis.symptoms import Case, StepSeen, indices
from loadramp.analysis.error_classes import OF_THE_REQUEST, WORDS, classes
from loadramp.analysis.saturation import in_flight_at
from loadramp.record.types import Confidence, Finding
from loadramp.units import agreed, percent, plural

MOST_RATIO = 0.01
LEAST_BROKEN = 5
BROKEN_RATIO = 0.03


def server_down(case: Case) -> Finding | None:
    """The server or its engine went away: its counters began anew, its own words, or what it served broke off.

    Connections that fail while the server goes on are no sign of that (``connections_refused``).
    """
    found = _all_classes(case)
    again, away = restarted(case.run.samples), gone(case)
    broke = found["broken"] >= LEAST_BROKEN and any(_ratio(one, "broken") > BROKEN_RATIO for one in case.steps)
    before = any(one.row.ok for one in case.steps)
    if found["memory"] or not before or not (again or found["dead"] or found["gateway"] or broke):
        return None
    if not (again or away or found["dead"] or found["gateway"]) and connections_refused(case):
        return None
    steps = case.where(
        lambda one: (
            one.row.server_restarted or _ratio(one, "dead", "gateway") > 0 or _ratio(one, "broken") > BROKEN_RATIO
        )
    )
    sure: Confidence = "possible"
    if again or found["dead"]:
        sure = "certain"
    elif (broke and away) or any(_no_server(one, case) for one in steps):
        sure = "likely"
    evidence = [*_died(case, steps), *_why_down(case, found, again)]
    return Finding("server_down", sure, tuple(evidence), indices(steps))


def _no_server(one: StepSeen, case: Case) -> bool:
    """A gateway found no server for more than 1 % of the requests; not in overload of one that went on."""
    return _ratio(one, "gateway") > MOST_RATIO and not (one.row.saturated and kept_counting(case))


def _why_down(case: Case, found: Counter[str], again: bool) -> list[str]:
    """What says that the server went away, or that it did not."""
    if again:
        return ["its counters began again at zero: the server process started anew"]
    out = []
    share = went_on(case.run.table)
    if broke_midway(case.run.table) and share is not None and share < GOES_ON:
        out.append(f"{percent(1.0 - share)} of the streams under way at those moments broke or got nothing more")
    if silent(case.run.samples):
        out.append("its metrics page did not answer any more at the end")
    if kept_counting(case):
        out.append(COUNTED_ON)
    if not out and not found["dead"]:
        out.append("a proxy or the network can break connections, too: the server did not say that it went away")
    return out


def out_of_memory(case: Case) -> Finding | None:
    """The server says that memory ran out."""
    found = _all_classes(case)
    if not found["memory"]:
        return None
    steps = case.where(lambda one: one.failed["memory"] > 0)
    evidence = [f"{plural(found['memory'], 'request')} ended with words of the server about memory that ran out"]
    return Finding("out_of_memory", "certain", tuple(evidence + _died(case, steps)), indices(steps))


def hardware_fault(case: Case) -> Finding | None:
    """An Xid error of a GPU (certain when it appeared during the run), or the engine's words about CUDA or NCCL."""
    seen = [s.values["gpu_xid_errors"] for s in case.run.samples if "gpu_xid_errors" in s.values]
    codes = {round(code) for code in seen if code}
    found = _all_classes(case)
    if not codes and not found["hardware"]:
        return None
    evidence = []
    if codes:
        fresh = seen[0] not in codes or len(codes) > 1
        when = "during the run" if fresh else "before the run began, and not cleared since"
        evidence.append(f"Xid {', '.join(map(str, sorted(codes)))} reported by the GPU driver {when}")
    if found["hardware"]:
        evidence.append(
            f"{plural(found['hardware'], 'request')} ended with the server's words about CUDA, NCCL or the GPU"
        )
    steps = case.where(lambda one: one.failed["hardware"] > 0)
    fresh_code = bool(codes) and seen[0] not in codes
    sure: Confidence = "certain" if fresh_code else "likely" if found["hardware"] else "possible"
    return Finding("hardware_fault", sure, tuple(evidence), indices(steps))


def admission_failure(case: Case) -> Finding | None:
    """More than 1 % of a step's requests were refused as too busy."""
    steps = case.where(lambda one: refused(one) > MOST_RATIO * one.row.requests)
    if not steps:
        return None
    worst = max(steps, key=lambda one: refused(one) / one.row.requests)
    share, lowest = refused(worst) / worst.row.requests, case.lowest
    evidence = [
        f"{refused(worst)} of {plural(worst.row.requests, 'request')} {worst.at} "
        f"{agreed(refused(worst), 'were')} refused ({percent(share)}), with at most "
        f"{worst.row.in_flight_max:.0f} in flight"
    ]
    if lowest is not None and refused(lowest) > 0.5 * share * lowest.row.requests:
        evidence.append(f"as many {lowest.at}, the lowest load: a quota rather than a lack of room")
    rejected = max((one.row.requests_rejected or 0.0 for one in steps), default=0.0)
    if rejected:
        evidence.append(f"the server itself counted {plural(round(rejected), 'rejection')}")
    return Finding("admission_failure", "certain", tuple(evidence), indices(steps))


def refused(one: StepSeen) -> int:
    """Requests refused as too busy: by the server's words or, where these are unknown, by its own count."""
    known = one.failed
    unexplained = sum(n for name, n in known.items() if name not in WORDS)
    return known["full"] or min(unexplained, round(one.row.requests_rejected or 0.0))


def errors(case: Case) -> Finding | None:
    """More than 1 % failures that no other rule explains; time-outs of an overloaded step are its queue's."""
    answered = any(one.row.ok for one in case.steps)
    down = ("dead", "gateway", "broken") if answered else ()  # of what never answered nobody can say that it went down

    def own(one: StepSeen) -> Counter[str]:
        explained = ("memory", "hardware", "full", *down, *(("late",) if one.row.saturated else ()))
        return Counter({name: n for name, n in one.failed.items() if name not in explained})

    steps = case.where(lambda one: sum(own(one).values()) - refused(one) > MOST_RATIO * one.row.requests)
    if not steps:
        return None
    evidence = [
        f"{sum(own(one).values())} of {plural(one.row.requests, 'request')} failed {one.at} ({_list(own(one))})"
        for one in steps
    ][:4]
    if all(name in OF_THE_REQUEST for one in steps for name in own(one)):
        evidence.append("none of this depends on load: such requests fail on an idle server too")
    return Finding("errors", "certain", tuple(evidence), indices(steps))


def _ratio(one: StepSeen, *names: str) -> float:
    return sum(one.failed[name] for name in names) / max(one.row.requests, 1)


def _all_classes(case: Case) -> Counter[str]:
    """Failures of the whole run from the first measured window on, the drain and the tail included."""
    rows = [one.row for one in case.steps]
    if not rows:
        return Counter()
    return classes(case.run.table.select(case.run.table.due_s >= min(row.window_begin_s for row in rows)))


def _died(case: Case, steps: Iterable[StepSeen]) -> list[str]:
    """How many failed of what, and how much was in flight when it began."""
    table = case.run.table
    out = [f"{one.at}: {_list(one.failed)}, of {plural(one.row.requests, 'request')}" for one in list(steps)[:2]]
    broken = table.select(table.failed)
    ends = np.sort(broken.stream_end_s[~np.isnan(broken.stream_end_s)])
    if len(ends):
        flight = float(in_flight_at(table, ends[:1] - 0.05)[0])
        before = max((float(one.row.in_flight_max) for one in case.steps if one.row.window_end_s < ends[0]),
                     default=0.0)  # fmt: skip
        most = ", more than ever before in this run" if flight > before else ""
        out.append(f"{plural(round(flight), 'request', 'were')} in flight when the first of them failed{most}")
    return out


def _list(counted: Mapping[str, int]) -> str:
    ranked = sorted(counted.items(), key=lambda item: -item[1])
    return ", ".join(f"{n} {WORDS.get(name, name.replace('_', ' '))}" for name, n in ranked) or "nothing failed"
