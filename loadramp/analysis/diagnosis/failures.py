"""Rules about requests that failed: refused at the door, a server that died, out of memory, broken hardware."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from loadramp.analysis.diagnosis.lost_connections import (
    GOES_ON,
    broke_midway,
    connections_refused,
    gone,
    kept_counting,
    restarted,
    silent,
    went_on,
)
from loadramp.analysis.diagnosis.symptoms import Case, StepView, indices
from loadramp.analysis.error_classes import OF_THE_REQUEST, WORDS, classes
from loadramp.analysis.proportions import Proportion
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
    classes = _all_classes(case)
    again, away = restarted(case.run.samples), gone(case)
    broke = classes["broken"] >= LEAST_BROKEN and any(_ratio(step, "broken") > BROKEN_RATIO for step in case.steps)
    before = any(step.row.ok for step in case.steps)
    if classes["memory"] or not before or not (again or classes["dead"] or classes["gateway"] or broke):
        return None
    if not (again or away or classes["dead"] or classes["gateway"]) and connections_refused(case):
        return None
    steps = case.where(
        lambda step: (
            step.row.server_restarted or _ratio(step, "dead", "gateway") > 0 or _ratio(step, "broken") > BROKEN_RATIO
        )
    )
    sure: Confidence = "possible"
    if again or classes["dead"]:
        sure = "certain"
    elif (broke and away) or any(_no_server(step, case) for step in steps):
        sure = "likely"
    evidence = [*_died(case, steps), *_why_down(case, classes, again)]
    return Finding("server_down", sure, tuple(evidence), indices(steps))


def _no_server(step: StepView, case: Case) -> bool:
    """A gateway found no server for more than 1 % of the requests; not in overload of one that went on."""
    return _ratio(step, "gateway") > MOST_RATIO and not (step.row.saturated and kept_counting(case))


def _why_down(case: Case, classes: Counter[str], again: bool) -> list[str]:
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
        out.append("against it: its metrics page answered after that, and its counters did not begin again")
    if not out and not classes["dead"]:
        out.append("a proxy or the network can break connections, too: the server did not say that it went away")
    return out


def out_of_memory(case: Case) -> Finding | None:
    """The server says that memory ran out."""
    classes = _all_classes(case)
    if not classes["memory"]:
        return None
    steps = case.where(lambda step: step.failed["memory"] > 0)
    evidence = [f"{plural(classes['memory'], 'request')} ended with words of the server about memory that ran out"]
    return Finding("out_of_memory", "certain", tuple(evidence + _died(case, steps)), indices(steps))


def hardware_fault(case: Case) -> Finding | None:
    """An Xid error of a GPU (certain when it appeared during the run), or the engine's words about CUDA or NCCL."""
    counts = [s.values["gpu_xid_errors"] for s in case.run.samples if "gpu_xid_errors" in s.values]
    codes = {round(code) for code in counts if code}
    classes = _all_classes(case)
    if not codes and not classes["hardware"]:
        return None
    evidence = []
    if codes:
        fresh = counts[0] not in codes or len(codes) > 1
        when = "during the run" if fresh else "before the run began, and not cleared since"
        evidence.append(f"Xid {', '.join(map(str, sorted(codes)))} reported by the GPU driver {when}")
    if classes["hardware"]:
        evidence.append(
            f"{plural(classes['hardware'], 'request')} ended with the server's words about CUDA, NCCL or the GPU"
        )
    steps = case.where(lambda step: step.failed["hardware"] > 0)
    fresh_code = bool(codes) and counts[0] not in codes
    sure: Confidence = "certain" if fresh_code else "likely" if classes["hardware"] else "possible"
    return Finding("hardware_fault", sure, tuple(evidence), indices(steps))


def admission_failure(case: Case) -> Finding | None:
    """More than 1 % of a step's requests were refused as too busy; certain where so few requests show that (exact
    one-sided limit at 5 %)."""
    steps = case.where(lambda step: refused(step) > MOST_RATIO * step.row.requests)
    if not steps:
        return None
    worst = max(steps, key=lambda step: refused(step) / step.row.requests)
    share, lowest = refused(worst) / worst.row.requests, case.lowest
    evidence = [
        f"{refused(worst)} of {plural(worst.row.requests, 'request')} {worst.at} "
        f"{agreed(refused(worst), 'were')} refused ({percent(share)}), with at most "
        f"{worst.row.in_flight_max:.0f} in flight"
    ]
    lower = lowest is not None and 2.0 * lowest.load <= worst.load
    if lowest is not None and lower and refused(lowest) > 0.5 * share * lowest.row.requests:
        evidence.append(f"as many {lowest.at}, the lowest load: a quota rather than a lack of room")
    shown = Proportion(refused(worst), worst.row.requests).lower() > MOST_RATIO
    if not shown:
        evidence.append(f"so few refusals do not show that more than {percent(MOST_RATIO)} are refused")
    rejected = max((step.row.requests_rejected or 0.0 for step in steps), default=0.0)
    if rejected:
        evidence.append(f"the server itself counted {plural(round(rejected), 'rejection')}")
    return Finding("admission_failure", "certain" if shown else "possible", tuple(evidence), indices(steps))


def refused(step: StepView) -> int:
    """Requests refused as too busy: by the server's words or, where these are unknown, by its own count."""
    known = step.failed
    unexplained = sum(n for name, n in known.items() if name not in WORDS)
    return known["full"] or min(unexplained, round(step.row.requests_rejected or 0.0))


def errors(case: Case) -> Finding | None:
    """More than 1 % failures that no other rule explains; time-outs of an overloaded step are its queue's, if it
    answered anything."""
    answered = any(step.row.ok for step in case.steps)
    down = ("dead", "gateway", "broken") if answered else ()  # of what never answered nobody can say that it went down

    def unexplained(step: StepView) -> Counter[str]:
        explained = ("memory", "hardware", "full", *down, *(("late",) if step.row.saturated and step.row.ok else ()))
        return Counter({name: n for name, n in step.failed.items() if name not in explained})

    steps = case.where(lambda step: sum(unexplained(step).values()) - refused(step) > MOST_RATIO * step.row.requests)
    if not steps:
        return None
    evidence = [
        f"{sum(classes.values())} of {plural(step.row.requests, 'request')} failed {step.at} ({_list(classes)})"
        for step, classes in ((step, unexplained(step)) for step in steps)
    ][:4]
    if all(name in OF_THE_REQUEST for step in steps for name in unexplained(step)):
        evidence.append("none of this depends on load: such requests fail on an idle server too")
    return Finding("errors", "certain", tuple(evidence), indices(steps))


def _ratio(step: StepView, *names: str) -> float:
    return sum(step.failed[name] for name in names) / max(step.row.requests, 1)


def _all_classes(case: Case) -> Counter[str]:
    """Failures of the whole run from the first measured window on, the drain and the tail included."""
    rows = [step.row for step in case.steps]
    if not rows:
        return Counter()
    return classes(case.run.table.select(case.run.table.due_s >= min(row.window_begin_s for row in rows)))


def _died(case: Case, steps: Iterable[StepView]) -> list[str]:
    """How many failed of what, and how much was in flight when it began."""
    table = case.run.table
    out = [f"{step.at}: {_list(step.failed)}, of {plural(step.row.requests, 'request')}" for step in list(steps)[:2]]
    broken = table.select(table.failed)
    ends = np.sort(broken.stream_end_s[~np.isnan(broken.stream_end_s)])
    if len(ends):
        flight = float(in_flight_at(table, ends[:1] - 0.05)[0])
        before = max((step.row.in_flight_max for step in case.steps if step.row.window_end_s < ends[0]),
                     default=0.0)  # fmt: skip
        most = ", more than ever before in this run" if flight > before else ""
        out.append(f"{plural(round(flight), 'request', 'were')} in flight when the first of them failed{most}")
    return out


def _list(counted: Mapping[str, int]) -> str:
    ranked = sorted(counted.items(), key=lambda item: -item[1])
    return ", ".join(f"{n} {WORDS.get(name, name.replace('_', ' '))}" for name, n in ranked) or "nothing failed"
