"""Rules about what holds requests back under load: KV cache, batch limit, or the engine's step itself.

KV eviction is told from the rest by preemptions or, without metrics, by single streams that freeze while others go on:
pooled p99 ITL may stay flat all the while. Formulas: docs/method.md, "Labels".
"""

from loadramp.analysis.diagnosis.gap_causes import PRIVATE, RECOMPUTE
from loadramp.analysis.diagnosis.symptoms import Case, StepView, flat, indices
from loadramp.record.types import Confidence, Finding
from loadramp.units import latency, percent, plural

PREEMPTED_RATIO = 0.02
"""Preemptions a request, above which they hold the others up; as many or fewer come with overload of any cause."""
PREEMPTED_PER_MINUTE = 10.0
"""Below that share, more than these are mentioned."""
PRIVATE_SHARE = 0.25
STALLS = 5
KV_FULL_RATIO = 0.95
KV_ROOM_RATIO = 0.8
WAITING = 5.0


def kv_steps(case: Case) -> list[StepView]:
    """Steps in which the KV cache overflowed: counted by the server or, where it counts none, seen in its streams."""
    return case.where(lambda step: counted(step) or (step.row.preemptions is None and streams_freeze(step, case)))


def counted(step: StepView) -> bool:
    """The server counted at least 2 preemptions, of more than 2 % of the requests."""
    n = step.row.preemptions
    return n is not None and n >= 2 and n > PREEMPTED_RATIO * step.row.requests


def few_counted(step: StepView, case: Case) -> bool:
    """The server counted preemptions, of at most 2 % of the requests: more than 10 a minute, or streams froze, too."""
    n = step.row.preemptions
    if not n or counted(step):
        return False
    return (n >= 2 and n > PREEMPTED_PER_MINUTE * step.minutes) or streams_freeze(step, case)


def streams_freeze(step: StepView, case: Case) -> bool:
    """Single streams froze while the others went on, in a load above the lowest, which had hardly any.

    Their share of the time lost in long gaps is above 25 %, or they are more than 2 % of the requests; at least 5
    stalls. Not where the server counts preemptions and counted none, or shows a KV cache that had room.
    """
    gaps, lowest = step.gaps, case.lowest
    if gaps is None or gaps.moments(PRIVATE) < STALLS or step.row.preemptions == 0:
        return False
    used = step.row.kv_used_ratio_max
    if step.row.preemptions is None and used is not None and used < KV_ROOM_RATIO:
        return False
    if lowest is None or lowest is step or stalled_ratio(lowest) > 0.25 * stalled_ratio(step):
        return False
    return gaps.share(PRIVATE, RECOMPUTE) > PRIVATE_SHARE or stalled_ratio(step) > PREEMPTED_RATIO


def stalled_ratio(step: StepView) -> float:
    """Share of the step's requests that froze alone."""
    return step.gaps.requests(PRIVATE) / max(step.row.requests, 1) if step.gaps is not None else 0.0


def kv_eviction(case: Case) -> Finding | None:
    """The KV cache is too small for the load: running requests are thrown out and computed again.

    Merely possible where the server counted fewer preemptions than make a difference.
    """
    steps = kv_steps(case)
    few = [] if steps else case.where(lambda step: few_counted(step, case))
    if not steps and not few:
        return None
    sure: Confidence = "possible" if few else "certain" if any(counted(step) for step in steps) else "likely"
    worst = max(steps or few, key=lambda step: (step.row.preemptions or 0.0, stalled_ratio(step)))
    evidence = []
    if worst.row.preemptions:
        n, requests = worst.row.preemptions, worst.row.requests
        evidence.append(
            f"{plural(round(n), 'preemption')} among {plural(requests, 'request')} {worst.at} "
            f"({percent(n / requests)}, "
            f"{n / worst.minutes:.0f} a minute)"
        )
    if few:
        evidence.append(f"up to {percent(PREEMPTED_RATIO)} of the requests they are too few to hold up the others")
    if worst.row.kv_used_ratio_max is not None:
        evidence.append(f"KV cache up to {percent(worst.row.kv_used_ratio_max)} full there")
    return Finding("kv_eviction", sure, (*evidence, *_stalls(case, worst)), indices(steps or few))


def _stalls(case: Case, worst: StepView) -> list[str]:
    gaps, row = worst.gaps, worst.row
    out = []
    if gaps is not None and gaps.count(PRIVATE):
        out.append(
            f"{plural(gaps.count(PRIVATE), 'gap')} in single streams while the others went on, "
            f"in {percent(stalled_ratio(worst))} of the requests {worst.at}; "
            "with the recomputing that holds up the others, "
            f"{percent(gaps.share(PRIVATE, RECOMPUTE))} of the time lost in long gaps"
        )
    quiet = case.quiet
    longest_s, p99_s = row.longest_gap_p99.value, row.of("itl").p99.value
    quiet_s = quiet.row.of("itl").p99.value if quiet is not None else None
    if longest_s and p99_s and quiet is not None and quiet_s and p99_s <= 1.5 * quiet_s:
        out.append(
            f"pooled p99 ITL hides it ({latency(quiet_s)} {quiet.at}, {latency(p99_s)} {worst.at}): "
            f"p99 of each request's longest gap is {latency(longest_s)}"
        )
    return out


def kv_full(case: Case) -> Finding | None:
    """The KV cache is full and requests wait for room, without being thrown out."""
    steps = [step for step in _held(case) if _starved(step) and (step.row.waiting_max or WAITING) >= WAITING]
    if not steps:
        return None
    worst = steps[-1]
    evidence = [f"KV cache up to {percent(worst.row.kv_used_ratio_max)} full {worst.at}", *_queue_words(worst)]
    evidence.append("hardly any request was thrown out: they wait until one has ended")
    return Finding("kv_full", "likely", tuple(evidence), indices(steps))


def scheduler_oversubscription(case: Case) -> Finding | None:
    """The batch is at its limit: the queue grows and TTFT with it, while tokens come as fast as before."""
    steps = [step for step in _held(case) if not _starved(step) and _steps_flat(case, step) is not False]
    if not steps:
        return None
    worst = steps[-1]
    evidence = _queue_words(worst)
    stands = [step for step in steps if _at_limit(step)]
    if stands:
        step = stands[-1]
        evidence.append(
            f"the batch stands at {plural(round(step.running_mean), 'request')} {step.at} while others wait"
        )
    evidence += _itl_words(case, worst)
    known = worst.row.kv_used_ratio_max
    if known is not None:
        evidence.append(f"the KV cache has room (at most {percent(known)} full)")
    sure: Confidence = "possible"
    if case.confirmed:
        server_says = known is not None and (worst.row.waiting_max or 0.0) >= WAITING
        confirmed = _steps_flat(case, worst) is not None or bool(stands)
        sure = "certain" if stands and server_says else "likely" if confirmed else "possible"
    return Finding("scheduler_oversubscription", sure, tuple(evidence), indices(steps))


def compute_bound(case: Case) -> Finding | None:
    """Every step of the engine takes longer the more requests are in it: the GPU is what gives way."""
    steps = [step for step in _held(case) if not _starved(step) and _steps_flat(case, step) is False]
    if not steps:
        return None
    worst = steps[-1]
    evidence = [*_itl_words(case, worst), *_queue_words(worst)]
    sure: Confidence = "likely" if case.confirmed else "possible"
    return Finding("compute_bound", sure, tuple(evidence), indices(steps))


def _held(case: Case) -> list[StepView]:
    """Overloaded steps that answered something, and that a KV overflow does not explain."""
    kv = {step.index for step in kv_steps(case)}
    return [step for step in case.over if step.row.saturated and step.row.ok and step.index not in kv]


def _starved(step: StepView) -> bool:
    """The KV cache was full, and the batch breathed with it: one that stands still is held by its own limit."""
    mean, most = step.row.running_mean, step.row.running_max
    stands = mean is not None and most and mean >= 0.97 * most
    return (step.row.kv_used_ratio_max or 0.0) >= KV_FULL_RATIO and not stands


def _at_limit(step: StepView) -> bool:
    """The batch stood still while requests waited for it."""
    mean, most = step.row.running_mean, step.row.running_max
    if mean is not None and most:
        return mean >= 0.9 * most and (step.row.waiting_max or 0.0) >= WAITING
    return step.plateau


def _steps_flat(case: Case, step: StepView) -> bool | None:
    """Whether median ITL hardly grew with the batch since the last step that kept up; None when it cannot be said."""
    return flat(case.quiet, step) if case.quiet is not None else None


def _itl_words(case: Case, step: StepView) -> list[str]:
    quiet = case.quiet
    if quiet is None or not quiet.row.of("itl").p50.value or not step.row.of("itl").p50.value:
        return []
    return [
        f"median ITL {latency(quiet.row.of('itl').p50.value)} {quiet.at} with "
        f"{plural(round(quiet.running_mean), 'request')} in the batch, "
        f"{latency(step.row.of('itl').p50.value)} {step.at} with {step.running_mean:.0f}"
    ]


def _queue_words(step: StepView) -> list[str]:
    row = step.row
    first, last = row.queue_first_third, row.queue_last_third
    grew = f"grew from {first:.0f} to {last:.0f} within the step" if round(last) > round(first) else f"were {last:.0f}"
    server = f" (server: up to {row.waiting_max:.0f} waiting)" if row.waiting_max else ""
    out = [f"requests without a first token {grew} {step.at}{server}"]
    if row.of("ttft").p50.value:
        out.append(f"median TTFT {latency(row.of('ttft').p50.value)} {step.at}")
    return out
