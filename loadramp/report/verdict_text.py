"""The sentence that opens everything, built from the estimates and the rows; and the verdict. Pure.

Plain English for a reader who is no statistician; failures come first, because a good number from few answers misleads.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log
from typing import Literal

from loadramp.analysis import offered_load
from loadramp.analysis.checks import server_metrics, unfinished
from loadramp.analysis.diagnosis.queueing import PREEMPTED_RATIO
from loadramp.analysis.load_errors import load_error_ratio, too_many
from loadramp.analysis.overload import failing, shows_overload, signs_of
from loadramp.analysis.quantiles import quantile_name
from loadramp.analysis.slo_capacity import missed_below, rates_words
from loadramp.record.row import SHORT_NAMES, Row, void_words
from loadramp.record.table import Run
from loadramp.record.types import Estimate, Verdict
from loadramp.report import rows as r
from loadramp.units import count, counted, latency, percent, plural, sig, span, span_of

Tone = Literal["plain", "warn", "bad"]

FLAT = 1.5
"""p99 ITL that grows by less than this factor into overload has stayed flat ..."""
FLAT_ELASTICITY = 0.5
"""... unless it grew faster than this power of the rate on the way there."""
BAD_ERROR_RATIO = 0.01
KV_FULL_RATIO = 0.95


@dataclass(slots=True, frozen=True)
class Phrase:
    """One sentence of the headline; ``bad`` is shown in red, ``minor`` smaller."""

    text: str
    tone: Tone = "plain"
    minor: bool = False


def verdict_sentence(run: Run) -> str:
    """The headline as one line of text."""
    return " ".join(phrase.text for phrase in headline(run))


def headline(run: Run) -> list[Phrase]:
    """The sentences that open every form of the report, the most important first."""
    failed = failures(run)
    if not run.rows:
        nothing = Phrase("No step was finished, so nothing was measured.", "bad")
        return [phrase for phrase in (nothing, failed, stopped(run)) if phrase]
    requests, failures_n = _totals(run)
    if failed and failures_n == requests:
        return [phrase for phrase in (failed, stopped(run)) if phrase]
    parts: list[Phrase | None] = [_main(run), failed, slo(run), stopped(run), _client_alone(run)]
    if failed and failed.tone == "bad":
        parts[:2] = [failed, _main(run)]
    return [phrase for phrase in parts if phrase]


def verdict(run: Run) -> Verdict:
    """``void``: no step may be used. ``inconclusive``: the question was not answered, be it that the client could not
    deliver the rates above those where no ceiling was found, or that too many failed with any number of users.
    ``fail``: even the lowest step breaks the SLO, or everything failed, perhaps of load. ``pass`` otherwise: it was
    measured, whatever the number is."""
    if run.info.verdict is not None:
        return run.info.verdict
    if run.rows and all(row.void for row in run.rows):
        return "void"
    if any(check.level == "void" and check.step is None for check in run.checks):
        return "void"
    requests, failed = _totals(run)
    slo_capacity = run.estimates.get("slo_capacity")
    if requests and failed == requests and _independent(run) >= failed:
        return "inconclusive"
    if (requests and failed == requests) or (slo_capacity and slo_capacity.status == "below_range"):
        return "fail"
    ceiling = run.estimates.get("ceiling")
    if r.closed_loop(run.rows):
        return "inconclusive" if all(failing(row) for row in r.delivered(run)) else "pass"
    if ceiling is None or ceiling.status not in ("found", "not_found_up_to"):
        return "inconclusive"
    return "inconclusive" if ceiling.status == "not_found_up_to" and _void_above(run, ceiling.rate_rps) else "pass"


def _void_above(run: Run, rate_rps: float | None) -> bool:
    """The ramp ended with steps above ``rate_rps`` that the client could not deliver."""
    return bool(run.rows and run.rows[-1].void) and (run.rows[-1].rate_rps or 0.0) > (rate_rps or 0.0)


def failures(run: Run) -> Phrase | None:
    """How many requests failed and of what, red where that is more than 1 % beyond doubt. Void steps are in no count
    of failures."""
    requests, failed = _totals(run)
    if not failed:
        return None
    kinds: dict[str, int] = {}
    for row in r.delivered(run):
        for kind, n in row.errors.items():
            kinds[kind] = kinds.get(kind, 0) + n
    if not kinds:
        for kind in run.table.error[run.table.failed]:
            kinds[str(kind)] = kinds.get(str(kind), 0) + 1
    of_what = ", ".join(f"{r.ERROR_WORDS.get(k, k)} {n:,}" for k, n in sorted(kinds.items(), key=lambda i: -i[1])[:4])
    ratio = failed / requests if requests else 1.0
    bad = too_many(failed, requests, min(run.scenario.slo.error_ratio, BAD_ERROR_RATIO))
    tone: Tone = "bad" if bad else "warn"
    void = len(run.rows) - len(r.delivered(run))
    without = (f", without {plural(void, 'void step')}" if void else "") + _apart_from_load(run, failed)
    if failed == requests:
        return Phrase(
            f"All {plural(requests, 'request')} failed ({of_what}){without}: there is nothing to judge.", "bad"
        )
    return Phrase(f"{failed:,} of {plural(requests, 'request')} failed, {percent(ratio)} ({of_what}){without}.", tone)


def _apart_from_load(run: Run, failed: int) -> str:
    """How many of the failures say nothing about load."""
    apart = _independent(run)
    of_them = "" if apart >= failed else f"{apart:,} of them "
    return f", {of_them}for reasons that do not depend on load" if apart else ""


def _independent(run: Run) -> int:
    return sum(row.load_independent_errors for row in r.delivered(run))


def slo(run: Run) -> Phrase | None:
    """Up to what rate the service level holds."""
    estimate = run.estimates.get("slo_capacity")
    wanted = slo_words(run)
    if estimate is None or not wanted:
        return None
    binds = f"; {limit_words(estimate.limit)} gives way first" if estimate.limit else ""
    rate, band = sig(estimate.rate_rps), _band(estimate)
    missed = missed_below(run.rows, run.scenario.slo, estimate)
    but = f". It was missed at {rates_words(missed)} all the same, which the rate does not explain" if missed else ""
    if estimate.status == "found" and rate:
        tone: Tone = "warn" if missed else "plain"
        return Phrase(f"The service level ({wanted}) holds up to {rate} req/s{band}{binds}{but}.", tone, minor=True)
    if estimate.status == "not_found_up_to" and rate:
        if missed:
            return Phrase(f"The service level ({wanted}) held at {rate} req/s{but}.", "warn", minor=True)
        low = estimate.low_rps
        doubt = f", beyond doubt {f'up to {sig(low)}' if low else 'at none of them'}" if low is not None else ""
        doubt = doubt if low is not None and low < (estimate.rate_rps or 0.0) else ""
        return Phrase(f"The service level ({wanted}) held at every rate up to {rate} req/s{doubt}.", minor=True)
    if estimate.status == "below_range":
        return Phrase(f"The service level ({wanted}) is missed already at the lowest rate{binds}.", "bad", minor=True)
    return Phrase(f"Whether the service level ({wanted}) holds is open{_because(estimate)}.", "warn", minor=True)


def slo_words(run: Run) -> str:
    """``p99 TTFT <= 500 ms, p99 ITL <= 50 ms``; empty when no limit is set."""
    wanted = run.scenario.slo
    p = quantile_name(wanted.quantile)
    parts = [f"{p} {SHORT_NAMES[m]} ≤ {latency(limit_s)}" for m, limit_s in wanted.limits.items()]
    if wanted.good_ratio is not None:
        parts.append(f"{percent(wanted.good_ratio)} of requests good")
    if wanted.malformed_ratio is not None:
        parts.append(f"malformed events in at most {percent(wanted.malformed_ratio)} of the answers")
    return ", ".join(parts)


def stopped(run: Run) -> Phrase | None:
    """That the run ended before its question was answered, and why."""
    if run.info.state in (None, "complete"):
        return None
    why = (run.info.ending or unfinished.how_it_ended(run)).strip().rstrip(".")
    done = len([row for row in run.rows if not (row.void or row.partial)])
    cut = ", ".join(r.whole_label(row) for row in run.rows if row.partial)
    short = f"; the step at {cut} was cut short and is not one of them" if cut else ""
    lost = f"; {unfinished_words}" if (unfinished_words := unfinished.words(run)) else ""
    rests = f"this rests on {plural(done, 'finished step')}{short}{lost}"
    return Phrase(f"Stopped early{f' ({why})' if why else ''}: {rests}.", "warn", minor=True)


def _client_alone(run: Run) -> Phrase | None:
    """That the server's own numbers are lost, and what rests on the client's alone."""
    why = server_metrics.lost(run)
    return (
        Phrase(f"The server's own numbers are lost ({why}): {server_metrics.ALONE}.", "warn", minor=True)
        if why
        else None
    )


def _main(run: Run) -> Phrase:
    """What the ramp found, by the status of the ceiling."""
    if all(row.void for row in run.rows):
        why = next((words for row in run.rows if (words := void_words(row.void))), "see the checks below").rstrip(".")
        if any(row.no_record for row in run.rows):
            return Phrase(f"No verdict: the run's files are not whole ({why}).", "bad")
        if run.findings and run.findings[0].code != "client_limited":
            return Phrase(f"No verdict: requests failed, and no step can be used ({why}).", "bad")
        return Phrase(f"No verdict: the client, not the server, was the limit in every step ({why}).", "bad")
    if r.closed_loop(run.rows):
        return _users(run)
    estimate = run.estimate("ceiling")
    return STATUS[estimate.status](run, estimate)


def _found(run: Run, estimate: Estimate) -> Phrase:
    rate, band = sig(estimate.rate_rps), _band(estimate)
    parts = (_what_grows(r.broke(run)) or _what_fails(run), _soak_overloaded(run))
    grows = ", and ".join(part for part in parts if part)
    way = gives_way(run)
    tail = f"{f', {grows}' if grows else ''}{f'; {way}' if way else ''}."
    if estimate.sustained_rps is None:
        return Phrase(f"Ceiling {rate} req/s{band}, not confirmed by a soak{tail}", "plain")
    soaked = soak_words(run, estimate.sustained_rps)
    return Phrase(f"Sustains {sig(estimate.sustained_rps)} req/s{soaked}; ceiling {rate}{band}{tail}")


def _not_found(run: Run, estimate: Estimate) -> Phrase:
    steps, above = r.kept_up(run), r.split_climb(run)[1]
    up_to = sig(estimate.rate_rps) or (sig(steps[-1].axis_load) if steps else "")
    top = steps[-1].axis_load if steps else None
    asked = (
        f" ({sig(steps[-1].load)} asked)"
        if steps and offered_load.differs(steps[-1]) and top == estimate.rate_rps
        else ""
    )
    every = "every whole step" if any(row.partial for row in run.rows) else "every step"
    if void := [row for row in run.rows if row.void]:
        every += " whose records are there" if void[-1].no_record else " that the client could deliver"
    alarm = next((row for row in above if row.saturated and not row.partial), None)
    mute = next((row for row in void if row.failed and not row.ok), None)
    higher = f"; at {r.label(mute)} nothing was answered" if mute is not None else ", so its limit lies higher"
    kept = f"the server kept up with {every}{higher}"
    if alarm is not None:
        served = sig(alarm.throughput_rps)
        signs = signs_of(alarm)
        kept = f"at {r.label(alarm)} {signs}, and {served} req/s were served, but no step confirmed an overload"
    text = f"No ceiling found up to {up_to} req/s{asked}: {kept}."
    itl_s = steps[-1].of("itl").p99.value if steps else None
    text += (
        f" p99 ITL is {latency(itl_s)} {'there' if alarm is None else f'at {up_to} req/s'}."
        if itl_s is not None
        else ""
    )
    return Phrase(text + r.stalls(steps))


def _below(run: Run, estimate: Estimate) -> Phrase:
    lowest = next((row for row in r.rising_rows(run) if not row.void), None)
    rate = sig(lowest.axis_load) if lowest else sig(estimate.rate_rps)
    bound = f"; its throughput there suggests about {sig(estimate.rate_rps)}" if lowest and estimate.rate_rps else ""
    return Phrase(
        f"Already overloaded at the lowest rate tried, {rate} req/s: the ceiling lies below it{bound}. Start lower.",
        "warn",
    )


def _inconclusive(run: Run, estimate: Estimate) -> Phrase:
    between = span_of(estimate.low_rps, estimate.high_rps)
    place = f" The ceiling lies in {between} req/s if anywhere." if between else ""
    return Phrase(f"Inconclusive{_because(estimate)}.{place}{_most_served(run)}", "warn")


def _most_served(run: Run) -> str:
    """What the endpoint has served at most, where a step asked for more than it kept up with."""
    steps = [row for row in r.split_climb(run)[1] if not row.partial and row.throughput_rps]
    best = max(steps, key=lambda row: row.throughput_rps, default=None)
    if best is None:
        return ""
    return f" At {r.label(best)}, {sig(best.number('throughput_rps'))} req/s were served."


def _not_measurable(run: Run, estimate: Estimate) -> Phrase:
    return Phrase(f"The ceiling could not be measured{_because(estimate)}.", "warn")


STATUS: dict[str, Callable[[Run, Estimate], Phrase]] = {
    "found": _found,
    "not_found_up_to": _not_found,
    "below_range": _below,
    "inconclusive": _inconclusive,
    "not_measurable": _not_measurable,
}


def _users(run: Run) -> Phrase:
    """The closed loop: users wait for their answers, so no queue can grow without end."""
    steps = [row for row in r.rising_rows(run) if r.usable(row)]
    if not steps:
        return Phrase("No step of the ladder of users can be used.", "warn")
    best = max(steps, key=lambda row: row.done_rps)
    itl_s, ttft_s = best.of("itl").p99.value, best.of("ttft").p99.value
    tails = [f"p99 {name} {latency(v)}" for name, v in (("TTFT", ttft_s), ("ITL", itl_s)) if v is not None]
    there = f", {' and '.join(tails)} there" if tails else ""
    rate = f"{sig(best.number('done_rps'))} req/s with {counted(count(best.load), 'user')}"
    peaks = run.estimate("ceiling").status != "not_found_up_to"
    return Phrase(
        f"Throughput {'peaks at' if peaks else 'rises up to'} {rate}{'' if peaks else ', the most tried'}{there}. "
        "Users wait for their answers before they ask again, so this ramp cannot show a queue that grows without end."
    )


def gives_way(run: Run) -> str:
    """Which part of the server reaches its limit, as far as p99 ITL and the KV counters tell."""
    knee = run.estimates.get("p99_itl_knee")
    over, steps = r.broke(run), r.kept_up(run)
    if over is None:
        return ""
    before_s = steps[-1].of("itl").p99.value if steps else None
    at_s = over.of("itl").p99.value
    doubted = any(f.code in ("kv_eviction", "kv_full") and f.confidence == "possible" for f in run.findings)
    starved = "" if doubted else _kv_words(over)
    if any(check.code == "burst_delivery" for check in run.checks):  # gaps are then not the engine's
        return starved
    if knee is not None and knee.status == "found" and knee.rate_rps is not None:
        if knee.cause == "prefill_mixing":
            return (
                f"p99 ITL turns upward from {sig(knee.rate_rps)} req/s because prompts are processed between tokens, "
                "which is no limit of capacity" + (f"; {starved}" if starved else "")
            )
        return (
            f"p99 ITL turns steeply upward from {sig(knee.rate_rps)} req/s, so each step of the engine gets slower"
            + (f", and {starved}" if starved else "")
        )
    if before_s is None or at_s is None:
        return starved
    first_s = next((v for row in steps if (v := row.of("itl").p99.value)), before_s)
    if at_s <= FLAT * before_s and not _grew(first_s, at_s, steps[0], over):
        stays = f"p99 ITL stays at {latency(before_s)}"
        if at_s > FLAT * first_s:
            times = f"{sig((over.axis_load or 1.0) / (steps[0].axis_load or 1.0))} times the rate"
            stays = f"p99 ITL grows only from {latency(first_s)} to {latency(at_s)} with {times}"
        if starved:
            return f"{stays} while {starved}: memory, not the GPU's step time, is what gives way"
        slower = any(f.code == "compute_bound" and f.confidence != "possible" for f in run.findings)
        return stays if slower else f"{stays}, so the batch limit, not the GPU's step time, is what gives way"
    grows = f"p99 ITL grows from {latency(first_s)} to {latency(at_s)} on the way there"
    return grows + (f", and {starved}" if starved else "")


def _grew(first_s: float, last_s: float, first: Row, last: Row) -> bool:
    """Whether a latency grew by more than a small power of the rate between two steps."""
    rates = (last.axis_load or 1.0) / (first.axis_load or 1.0)
    return rates > 1 and log(last_s / first_s) / log(rates) > FLAT_ELASTICITY if min(first_s, last_s) > 0 else False


def _kv_words(row: Row) -> str:
    preempted, used = row.preemptions, row.kv_used_ratio_max
    requests = row.requests
    if preempted and requests and preempted / requests > PREEMPTED_RATIO:
        full = " is full" if used is None or used >= KV_FULL_RATIO else ""
        return f"the KV cache{full or ' evicts'} ({counted(count(preempted), 'preemption')})"
    return ""


def _what_grows(row: Row | None) -> str:
    fired, share = (row.signals, _failing(row)) if row else ([], "")
    grows = ""
    if "queue" in fired or ("server_queue" in fired and not share):
        grows = "the queue grows"
    elif "backlog" in fired:
        grows = "requests pile up in flight"
    elif "ttft_trend" in fired:
        grows = "the wait for the first token keeps growing"
    if grows and share:
        return f"where {grows} and {share}"
    return f"where {grows}{' without end' if grows == 'the queue grows' else ''}" if grows else ""


def _failing(row: Row) -> str:
    """``27 % of the requests fail`` where these are more than the scenario allows."""
    share = load_error_ratio(row) if row.overloaded else None
    return f"{percent(share)} of the requests fail" if share else ""


def _what_fails(run: Run) -> str:
    """Where no queue grew, that failures ended the ramp."""
    row = next((row for row in r.split_climb(run)[1] if row.overloaded), None)
    share = _failing(row) if row is not None else ""
    return f"where the ramp ended because {share} at {r.label(row)}" if row is not None and share else ""


def _soak_overloaded(run: Run) -> str:
    """That a soak was overloaded at a rate below the steps that were."""
    soaks = [row for row in r.of_role(run, "soak") if not row.void and shows_overload(row)]
    lowest = min(soaks, key=lambda row: row.axis_load or 0.0, default=None)
    rate_rps = run.estimates["ceiling"].rate_rps
    if lowest is None or rate_rps is None or run.estimates["ceiling"].high_rps != lowest.axis_load:
        return ""
    signs = _failing(lowest) or signs_of(lowest)
    return f"{signs} in a soak at {sig(lowest.axis_load)} req/s"


def soak_words(run: Run, rate_rps: float) -> str:
    soaks = [row for row in r.of_role(run, "soak") if abs((row.axis_load or 0.0) - rate_rps) <= 0.02 * rate_rps]
    return f" (soaked {span(soaks[-1].length_s)})" if soaks else ""


def interval_words(run: Run, estimate: Estimate) -> str:
    """What the interval of an estimate speaks of: `` of the long run``, `` of 60 s of overload`` (all that the ceiling
    rests on), `` of these 6 min``, or nothing."""
    if estimate.interval_of != "these_minutes":
        return " of the long run" if estimate.interval_of else ""
    over = [row for row in run.rows if row.role == "step" and row.deficit and not row.void]
    if estimate.detector == "ceiling" and over:
        windows = [window_s for row in over for window_s in row.measured_windows]
        return f" of {span(sum(end_s - begin_s for begin_s, end_s in windows))} of overload"
    measured = [step for step in run.steps if step.measured]
    return f" of these {span(measured[-1].end_s - measured[0].begin_s)}" if measured else ""


def _band(estimate: Estimate) -> str:
    between = span_of(estimate.low_rps, estimate.high_rps)
    return f" ({between})" if between else ""


def _because(estimate: Estimate) -> str:
    why = estimate.reason.strip().rstrip(".")
    return f": {why}" if why else ""


def limit_words(limit: str) -> str:
    """``p99 TTFT`` for the limit called ``ttft`` or ``ttft_s``; other names as they are."""
    return SHORT_NAMES.get(limit.removesuffix("_s").lower()) or limit.replace("_", " ")


def _totals(run: Run) -> tuple[int, int]:
    """Requests that ended and those that failed: of the measured windows that are not void, else of the whole table."""
    rows = r.delivered(run)
    failed = sum(row.failed for row in rows)
    ended = sum(row.ended for row in rows)
    if ended == 0:
        return len(run.table) - int(run.table.in_flight.sum()), int(run.table.failed.sum())
    return max(ended, failed), failed
