"""Findings about the measurement itself: may this run be believed? Rule: what happened, then what to do about it.

A check is a function ``f(run) -> list[Check]`` in CHECKS. ``void`` takes a step out of every verdict, ``warn`` asks for
care, ``note`` is good to know.
"""

from collections.abc import Callable, Sequence

import numpy as np

from loadramp.analysis import lengthen, page_ties, regimes
from loadramp.analysis.checks import clocks, unfinished
from loadramp.analysis.checks.answer_checks import ANSWER_CHECKS
from loadramp.analysis.checks.crosscheck import CROSS_CHECKS
from loadramp.analysis.checks.labels import contradictions
from loadramp.analysis.checks.server_metrics import SERVER_METRICS_CHECKS
from loadramp.analysis.checks.validity import COMFORTABLE_RATIO, cpu_ratio, workers_needed
from loadramp.analysis.latency import NOT_STREAMED
from loadramp.analysis.load_errors import load_error_ratio, over_length, request_errors
from loadramp.analysis.offered_load import at, offered
from loadramp.analysis.overload import alarmed, climb, failing, signs_of
from loadramp.analysis.steady_state import hysteresis, recovery_s
from loadramp.record.row import SHORT_NAMES, Row
from loadramp.record.table import Run
from loadramp.record.types import Check
from loadramp.scenario.scenario import SHORTEST_MEASURE_S
from loadramp.units import multiple, percent, plural, sig, span

_ORDER = {"void": 0, "warn": 1, "note": 2}


def run_checks(run: Run) -> list[Check]:
    """All findings, the gravest first."""
    checks = [check for function in CHECKS.values() for check in function(run)]
    return sorted(checks, key=lambda check: _ORDER[check.level])


def client_limited(run: Run) -> list[Check]:
    """Steps that the client could not deliver, or whose records are not all there."""
    return [
        Check(
            "records_missing" if row.no_record else "client_limited",
            "void",
            f"{_at(row)} is void: {row.void_what}",
            row.void_cure,
            row.step,
        )
        for row in run.rows
        if row.void
    ]


def client_busy(run: Run) -> list[Check]:
    """Steps delivered by a client above half its capacity."""
    out = []
    for row in run.rows:
        inside = [s for s in run.client if row.window_begin_s <= s.t_s <= row.window_end_s]
        ratio = cpu_ratio(inside)
        if not row.void and ratio > COMFORTABLE_RATIO:
            message = f"{_at(row)}: a client process used {percent(ratio)} of a core"
            advice = f"--set fleet.workers={workers_needed(inside)}, before it is too much"
            out.append(Check("client_busy", "warn", message, advice, row.step))
    return out


def all_failed(run: Run) -> list[Check]:
    """Steps without a single success."""
    advice = "see the error kinds, and try one request: loadramp probe"
    return [
        Check("all_failed", "warn", f"{_at(row)}: every request failed ({_kinds(row)})", advice, row.step)
        for row in run.rows
        if row.errors and not row.ok and not row.pending
    ]


def errors(run: Run) -> list[Check]:
    """Steps with more errors than allowed, and whether these flatter the latencies of the rest."""
    out = []
    for row in run.rows:
        if not failing(row) or not row.ok:
            continue
        message = f"{_at(row)}: {percent(load_error_ratio(row) or 0.0)} of the requests failed ({_kinds(row)})"
        advice = "percentiles are of successes only; read the all_* columns beside them"
        out.append(Check("errors", "warn", message, advice, row.step))
        due = run.table.due_in(row.window_s)
        failed_s = (due.done_s - due.due_s)[due.failed]
        median_s = row.of("e2e").p50.value
        if len(failed_s) and median_s and float(sorted(failed_s)[len(failed_s) // 2]) < 0.1 * median_s:
            message = f"{_at(row)}: failures came back at once, so they lighten the load that the others meet"
            advice = "do not read its latencies as those of this rate"
            out.append(Check("fast_failures", "warn", message, advice, row.step))
    return out


def malformed(run: Run) -> list[Check]:
    """Answers with events that cannot be read: what they held is lost, and nothing tells what it was."""
    rows = [row for row in run.rows if row.malformed_answers and not row.void]
    if not rows:
        return []
    events, answers = sum(row.malformed_events for row in rows), sum(row.malformed_answers for row in rows)
    ended = sum(row.ended for row in run.rows if not row.void)
    message = (
        f"{plural(events, 'event')} that cannot be read (malformed) in {answers:,} of {plural(ended, 'answer')}, "
        f"{percent(answers / ended)}"
    )
    advice = (
        "tokens in them are missing from every figure; see what sends them (loadramp probe), "
        "and limit them with [slo] malformed_ratio or the threshold malformed_ratio < 0.001"
    )
    return [Check("malformed_events", "warn", message, advice, rows[0].step if len(rows) == 1 else None)]


def partial(run: Run) -> list[Check]:
    """Steps that were cut short."""
    out = []
    for row in run.rows:
        if row.partial:
            seconds = span(row.length_s)
            message = f"{_at(row)} was cut short after {seconds} of measuring: it is shown, and is no full step"
            out.append(Check("partial_step", "warn", message, "run it again to the end", row.step))
    return out


def few_samples(run: Run) -> list[Check]:
    """Percentiles that were refused because the step was too short for them."""
    out = []
    for name in ("ttft", "itl", "e2e"):
        rows = [r for r in run.rows if not r.void and r.ok and r.statistic(f"{name}_p99").value is None]
        rows = [r for r in rows if r.reasons.get(f"{name}_p99_s") != NOT_STREAMED]
        if rows:
            why = rows[-1].reasons.get(f"{name}_p99_s", "too few")
            message = f"no p99 {SHORT_NAMES[name]} at {_rates(rows)}: {why}"
            advice = "longer steps (--set ramp.measure_s=300), or read p95 and p90"
            out.append(Check("few_samples", "note", message, advice))
    return out


def backlog(run: Run) -> list[Check]:
    """Steps that began while requests of before still queued; users of a closed loop all ask at once at its begin."""
    advice = "let the queue drain first, or read this step as the end of the one before"
    return [
        Check("began_with_backlog", "warn", f"{_at(row)} began with a queue left over", advice, row.step)
        for row in run.rows
        if row.began_with_backlog and not row.void and not row.users
    ]


def settled(run: Run) -> list[Check]:
    """Steps measured before their load had filled up."""
    advice = "a longer warm-up: --set ramp.warmup_s=N, about twice the time a request takes"
    return [
        Check("not_settled", "warn", f"{_at(row)} was measured while its load still filled up", advice, row.step)
        for row in run.rows
        if not row.settled and not row.void
    ]


def no_warmup(run: Run) -> list[Check]:
    """A first step that was measured from the first request on."""
    first = next((step for step in run.steps if step.measured and step.measure_s), None)
    if first is None or first.warmup_s or any(step.begin_s < first.begin_s and step.measure_s for step in run.steps):
        return []
    message = "no warm-up: the first step has in it what first requests pay (compilation, cold caches)"
    return [Check("no_warmup", "note", message, "--set ramp.settle_requests=50, or ramp.warmup_s=10", first.index)]


def alarms(run: Run) -> list[Check]:
    """Alarms of saturation that a higher rate refuted, or that nothing confirmed."""
    climbed = climb(run.rows)
    lone = climbed.above if len(climbed.above) == 1 and climbed.overloaded is None else []
    return [
        Check("lone_alarm", "note", f"{_at(row)}: {signs_of(row) or 'a lack of throughput'}, not confirmed",
              "a hiccup of server or machine, most likely; run that rate again if it matters", row.step)
        for row in [*climbed.hiccups, *lone]
    ]  # fmt: skip


def knee_at_edge(run: Run) -> list[Check]:
    """A ceiling that lies outside what was measured well."""
    ceiling, steps = run.estimates.get("ceiling"), climb(run.rows).rows
    if ceiling is None or not steps:
        return []
    if ceiling.status == "below_range":
        message = f"the lowest rate, {at(steps[0])}, was already too much"
        return [Check("knee_at_first_step", "warn", message, "start lower: --set ramp.start_rps=...")]
    quiet = climb(run.rows).quiet
    if ceiling.status == "found" and quiet == 0 and len(steps) > 1:
        message = f"only one step, {at(steps[0])}, was quiet"
        return [Check("knee_at_first_step", "warn", message, "start lower for a curve to compare with")]
    if ceiling.status == "not_found_up_to":
        message = f"the ramp ended at {at(steps[-1])} without reaching the ceiling"
        return [Check("knee_at_last_step", "note", message, "go higher: --set ramp.max_rps=...")]
    return []


def closed_loop(run: Run) -> list[Check]:
    """Users that wait for their answers."""
    if not any(row.users for row in run.rows):
        return []
    message = "closed loop: users wait for their answers, so overload slows the load down instead of showing in latency"
    return [Check("closed_loop", "note", message, "an open-loop ramp (ramp.kind = 'ceiling') shows what callers meet")]


def soak(run: Run) -> list[Check]:
    """Soaks that did not hold."""
    out = []
    for row in run.rows:
        if row.role == "soak" and not row.void and alarmed(row):
            why = signs_of(row) or _kinds(row) or "a lack of throughput"
            advice = "the next lower soak counts; without one no rate is known to last"
            out.append(Check("soak_failed", "warn", f"the soak at {at(row)}: {why}", advice, row.step))
    return out


def down(run: Run) -> list[Check]:
    """An endpoint that is slower on the way down."""
    return [
        Check("hysteresis", "warn", f"at {rate:.3g} req/s p99 ITL is {multiple(ratio)} what it was on the way up",
              "it does not recover by itself: shed load early")
        for rate, ratio in hysteresis(run.rows)
        if ratio > 1.2
    ]  # fmt: skip


def recovery(run: Run) -> list[Check]:
    """How long after the top of the ramp the load was back where it was on the way up, at the first downward rate."""
    first = next((step for step in run.steps if step.role == "down"), None)
    top = next(
        (step for step in reversed(run.steps) if first and step.role == "step" and step.index < first.index), None
    )
    usual = next((row for row in run.rows if first and row.role == "step" and row.rate_rps == first.rate_rps), None)
    if first is None or top is None or usual is None:
        return []
    took_s = recovery_s(run.table, top.end_s, first.end_s, usual.in_flight_mean)
    at = f"{top.rate_rps:.3g} req/s"
    if took_s is None:
        message = f"after {at} more requests stayed in flight than on the way up, to the end of the first downward step"
        return [Check("recovery", "warn", message, "it does not recover by itself: shed load early", first.index)]
    message = (
        f"after {at} it took {took_s:.0f} s until the requests in flight were as few as at {first.rate_rps:.3g} req/s"
    )
    return [Check("recovery", "note", message, "", first.index)]


def restarted(run: Run) -> list[Check]:
    """Steps in which a server's counters began anew."""
    return [
        Check("server_restarted", "warn", f"{_at(row)}: a server restarted", "see its log; run again", row.step)
        for row in run.rows
        if row.server_restarted
    ]


def quick(run: Run) -> list[Check]:
    """What the shortness of a quick ramp costs."""
    steps = [row.length_s for row in run.rows if row.role == "step"]
    if not run.info.quick or not steps:
        return []
    length_s = float(np.median(steps))
    wider = max(1.0, SHORTEST_MEASURE_S / length_s) ** 0.5
    message = (
        f"a quick ramp: with steps of {span(length_s)} intervals are about {sig(wider, 2)} times as wide as with those "
        f"of {span(SHORTEST_MEASURE_S)}, low rates bring too few requests for p99; a short soak shows no slow growth"
    )
    return [Check("quick", "warn", message, "run without --quick before anything depends on the answer")]


def imported(run: Run) -> list[Check]:
    """What a tool whose records these are has not told."""
    source = run.info.imported
    if source is None:
        return []
    lacks = "".join(f"; {why}" for why in source.lacks.values())
    message = f"the records come from {source.format}: whether its client kept up is not known{lacks}"
    return [Check("imported", "note", message, "")]


CHECKS: dict[str, Callable[[Run], list[Check]]] = {
    "client_limited": client_limited,
    "client_busy": client_busy,
    "all_failed": all_failed,
    "errors": errors,
    "cut_off": unfinished.check,
    "records_missing": unfinished.records_missing,
    "unread_lines": unfinished.unread_lines,
    "request_errors": request_errors,
    "over_length": over_length,
    "few_samples": few_samples,
    "began_with_backlog": backlog,
    "settled": settled,
    "no_warmup": no_warmup,
    "alarms": alarms,
    "knee_at_edge": knee_at_edge,
    "closed_loop": closed_loop,
    "soak": soak,
    "hysteresis": down,
    "recovery": recovery,
    "server_restarted": restarted,
    "offered": offered,
    "partial": partial,
    "malformed": malformed,
    "labels": contradictions,
    "imported": imported,
    "quick": quick,
    "pace_regimes": regimes.check,
    "lengthened": lengthen.check,
    "clocks": clocks.check,
    **SERVER_METRICS_CHECKS,
    "metrics_untied": page_ties.check,
    **CROSS_CHECKS,
    **ANSWER_CHECKS,
}


NAMES_STEP = frozenset({
    "client_limited", "records_missing", "client_busy", "all_failed", "errors", "fast_failures", "partial_step",
    "began_with_backlog", "not_settled", "lone_alarm", "soak_failed", "recovery", "server_restarted", "offered",
})  # fmt: skip
"""Codes of checks whose message says which step it is about; a report adds the step to the others."""


def _at(row: Row) -> str:
    level = plural(row.users, "user") if row.users else f"{row.rate_rps:.3g} req/s"
    kind = {"step": "the step", "soak": "the soak", "down": "the downward step"}.get(row.role, "the step")
    return f"{kind} at {level}"


def _kinds(row: Row) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(row.errors.items(), key=lambda item: -item[1]))


def _rates(rows: Sequence[Row]) -> str:
    levels = [plural(row.users, "user") if row.users else f"{row.rate_rps:.3g}" for row in rows]
    return ", ".join(levels) + ("" if rows[-1].users else " req/s")
