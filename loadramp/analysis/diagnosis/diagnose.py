"""Why does it give way? A judged run in, findings out, the first cause first. Pure.

A rule is a function ``f(case) -> Finding | None`` in RULES. What the client shaped is never laid at the server's door:
steps that it could not deliver are left out, and where that leaves none, nothing else is said. Rules and thresholds:
docs/diagnosis.md, docs/method.md.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from loadramp.analysis.checks.answer_checks import BURST_SHARE
from loadramp.analysis.diagnosis.capacity_shifts import autoscaler_moved
from loadramp.analysis.diagnosis.counters import prefix_cache, speculation_weak
from loadramp.analysis.diagnosis.doubts import as_tied, steps_by_themselves, unasked_models
from loadramp.analysis.diagnosis.failures import (
    MOST_RATIO,
    admission_failure,
    errors,
    hardware_fault,
    out_of_memory,
    server_down,
)
from loadramp.analysis.diagnosis.gap_causes import CLIENT, ENGINE, PREFILL, PRIVATE
from loadramp.analysis.diagnosis.lost_connections import connections_refused
from loadramp.analysis.diagnosis.queueing import (
    compute_bound,
    few_counted,
    kv_eviction,
    kv_full,
    kv_steps,
    scheduler_oversubscription,
    stalled_ratio,
)
from loadramp.analysis.diagnosis.symptoms import Case, StepView, case_of, indices
from loadramp.analysis.diagnosis.unstable_engine import engine_unstable
from loadramp.analysis.overload import counts
from loadramp.analysis.page_ties import client_only, untied
from loadramp.analysis.slo_capacity import missed
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.record.types import Confidence, Finding
from loadramp.units import agreed, latency, multiple, percent, plural

CLIENT_SHARE = 0.3
ENGINE_SHARE = 0.3
ENGINE_GAPS = 20
MOMENTS = 5
EXCESS = 0.01
PREFILL_SHARE = 0.5
NOTICED_S = 0.050
"""Readers hardly notice gaps below 20 tokens a second."""
GAPS_TO_CLEAR = 1000
STALLED_RATIO = 0.02
"""Of the requests: where more of them stalled than this, nobody is told that nothing gave way."""
FLOOD_RATIO = 0.1
"""Failures above this share of the requests set the pace of a closed loop."""
NOTHING_RATIO = 0.5
"""Where nothing succeeded and more than this share of the requests failed, the server failed them."""


def client_limited(case: Case) -> Finding | None:
    """The client could not deliver a step, or its own loop made the gaps."""
    steps = case.where(lambda step: step.gaps is not None and step.gaps.share(CLIENT) > CLIENT_SHARE and _matters(step))
    void = [row for row in case.void if not (row.no_record or _flood_of_failures(row))]
    if not void and not steps:
        return None
    evidence = _voids(case, void)
    evidence += [f"{_share(step, CLIENT)} the client's own loop was late {step.at}" for step in steps]
    where = (*(row.step for row in void), *indices(steps))
    return Finding("client_limited", "certain" if void else "likely", tuple(evidence[:4]), where)


def _flood_of_failures(row: Row) -> bool:
    """A closed loop with many failures: how fast it sent is the failures' doing, and no limit of the client's. Or a
    step without one answer, most of whose requests failed in the end: the server failed them, late or not."""
    slow = any(void.rule in ("loop_lag", "cpu") for void in row.void)  # and may have let time limits run out
    failed = sum(n for kind, n in row.errors.items() if kind != "client" and not (slow and kind.startswith("timeout")))
    if row.users:
        return failed > FLOOD_RATIO * row.requests
    return not row.ok and failed > NOTHING_RATIO * row.requests


def _failures_alone(run: Run) -> list[Finding]:
    """What failed in steps that are void because of it (``_flood_of_failures``); nothing else is read from them."""
    rows = [replace(row, void=()) for row in run.rows if row.void and _flood_of_failures(row)]
    if not rows:
        return []
    case = case_of(replace(run, rows=rows))
    return [finding for rule in FAILURES if (finding := rule(case))]


def _voids(case: Case, void: Sequence[Row]) -> list[str]:
    """How many steps are void, and why: a rule is worded once, with the figures of the first step that it voids."""
    rules = [row.void[0].rule or row.void[0].what for row in void]
    first = {rule: row.void[0].what for rule, row in reversed(list(zip(rules, void, strict=True)))}
    reasons = [(n, first[rule]) for rule, n in Counter(rules).most_common()]
    of = f"{len(void)} of {plural(len(case.run.rows), 'step')} {agreed(len(void), 'are')} void"
    return [f"{n} of them: {reason}" if k else f"{of}: {reason}" for k, (n, reason) in enumerate(reasons)]


def proxy_buffering(case: Case) -> Finding | None:
    """Events come in bursts: something between engine and client holds them back."""
    steps = case.where(lambda step: step.bursty > BURST_SHARE)
    if not steps:
        return None
    step, lowest = steps[0], case.lowest
    gap_s = step.look().gaps.gap_s
    apart = gap_s[gap_s >= 0.0002]
    evidence = [f"{percent(step.bursty)} of the output events {step.at} came together with the one before"]
    if len(apart):
        evidence.append(f"the bursts are {latency(float(sorted(apart)[len(apart) // 2]))} apart")
    if step.row.server_itl_mean_s:
        evidence.append(f"the server itself put {latency(step.row.server_itl_mean_s)} between outputs")
    if step is not lowest:
        evidence.append("only under load: the API process may be too busy to write each event by itself")
    return Finding("proxy_buffering", "likely" if step is lowest else "possible", tuple(evidence), indices(steps))


def engine_stall(case: Case) -> Finding | None:
    """All streams freeze together, with no prefill to explain it; credible where the lowest load has it too."""
    steps = case.where(lambda step: _stalls(step, ENGINE, ENGINE_SHARE))
    if not steps:
        return None
    step, low = steps[0], steps[0] is case.lowest
    gaps = step.gaps
    assert gaps is not None
    evidence = [
        f"{_share(step, ENGINE)} all streams stood still together {step.at}: {plural(gaps.count(ENGINE), 'gap')} at "
        f"{plural(gaps.moments(ENGINE), 'moment')}, p99 ITL {latency(gaps.p99_s)} against a median of "
        f"{latency(gaps.median_s)}"
    ]
    only = len({step.load for step in case.steps}) == 1
    evidence.append("at the only load that was measured" if only else
                    "at the lowest load already, so it is not a matter of load" if low else
                    "not at the lowest load, where a stall of the machine would show too")  # fmt: skip
    sure: Confidence = "possible"
    if low and (_spread(step) > 3.0 or gaps.moments(ENGINE, NOTICED_S) >= MOMENTS):
        sure = "certain" if gaps.share(ENGINE) > 0.8 and len(steps) > 1 else "likely"
    return Finding("engine_stall", sure, tuple(evidence), indices(steps))


def prefill_contention(case: Case) -> Finding | None:
    """Tokens wait while prompts are computed: ITL spikes follow the arrival of prompts rather than the load.

    Overloaded steps are left out: there a whole queue of prompts is computed whenever room comes free.
    """
    over = {step.index for step in case.over}
    steps = case.where(
        lambda step: step.index not in over and _stalls(step, PREFILL, PREFILL_SHARE) and _spread(step) > 3.0
    )
    if not steps:
        return None
    limit_s, knee = case.run.scenario.slo.itl_s, case.run.estimates.get("p99_itl_knee")
    noticed = [step for step in steps if _p99_s(step) > (limit_s or NOTICED_S)]
    highest = max((step.load for step in case.climb if step.index not in over), default=0.0)
    early = limit_s or len(case.climb) == 1 or any(step.load < highest or _spread(step) > 5.0 for step in noticed)
    step = noticed[0] if noticed else steps[-1]
    gaps, mixing = step.gaps, step.mixing()
    assert gaps is not None
    evidence = [
        f"p99 ITL {latency(gaps.p99_s)} {step.at}, {multiple(_spread(step))} the median",
        f"{_share(step, PREFILL)} prompts of other requests were computed",
        f"a gap is {_times(mixing.lift)} as likely to be long when another request's first token falls into it; rank "
        f"correlation of gap and prompt length {mixing.dose:.2f}",
    ]
    longest = float(np.nan_to_num(step.window.due.input_tokens).max(initial=0.0))
    if longest:
        evidence.append(f"longest prompt {step.at}: {plural(round(longest), 'token')}")
    likely = (noticed and early) or (knee is not None and knee.cause == "prefill_mixing")
    return Finding("prefill_contention", "likely" if likely else "possible", tuple(evidence), indices(steps))


def stream_stall(case: Case) -> Finding | None:
    """Single streams freeze at any load: a network, a proxy, or one replica among several; not the KV cache."""
    kv = {step.index for step in (*kv_steps(case), *case.where(lambda step: few_counted(step, case)))}
    steps = case.where(lambda step: step.index not in kv and stalled_ratio(step) > 0.02 and _moments(step) >= MOMENTS)
    if not steps:
        return None
    gaps = steps[0].gaps
    assert gaps is not None
    evidence = (
        f"{percent(stalled_ratio(steps[0]))} of the requests {steps[0].at} froze while the other streams went on "
        f"({plural(gaps.count(PRIVATE), 'gap')})",
        "the server counted no preemptions" if steps[0].row.preemptions == 0 else
        "without regard to load, as a full KV cache would not",
    )  # fmt: skip
    return Finding("stream_stall", "likely", evidence, indices(steps))


FAILURES: tuple[Callable[[Case], Finding | None], ...] = (
    hardware_fault,
    out_of_memory,
    server_down,
    connections_refused,
    admission_failure,
    errors,
)

RULES: list[Callable[[Case], Finding | None]] = [
    client_limited,
    *FAILURES,
    autoscaler_moved,
    proxy_buffering,
    kv_eviction,
    kv_full,
    scheduler_oversubscription,
    compute_bound,
    engine_unstable,
    engine_stall,
    prefill_contention,
    stream_stall,
    speculation_weak,
    prefix_cache,
]
"""In the order in which findings are told: what voids others before them, what ends a ramp before what slows it."""


BY_THE_WAY = frozenset({"prefix_cache_idle"})
"""True, and no reason why anything gives way."""

LIMITS = frozenset({"connections_refused", "kv_eviction", "kv_full", "scheduler_oversubscription", "compute_bound"})
"""What holds requests back under load. The first to do so makes the ceiling; others may join in above it."""


def diagnose(run: Run) -> list[Finding]:
    """Findings of a judged run (rows, estimates and checks filled in); without cures, which are ``advise``'s.

    Of several limits the one that shows at the lowest load comes first. Those that are merely possible, or by the way,
    come last. Where no step is left to judge by, only what made them void is said: the client, or the failures.
    """
    doubt = untied(run)
    case = case_of(run if doubt is None or not doubt.against else client_only(run))
    if not case.steps:
        alone = client_limited(case)
        return [*_failures_alone(run), *([alone] if alone else [])]
    findings = _by_rules(case)
    if doubt is not None:
        other = _by_rules(case_of(run if doubt.against else client_only(run)))
        findings = as_tied(findings, other, doubt) if doubt.against else as_tied(other, findings, doubt)
    findings = [steps_by_themselves(case, unasked_models(run, finding)) for finding in findings]
    sure = [finding for finding in findings if finding.confidence != "possible" and finding.code not in BY_THE_WAY]
    clear = [] if sure or case.over else [finding for finding in [stalls(case) or healthy(case)] if finding]
    return [*_by_load(case, sure), *clear, *(finding for finding in findings if finding not in sure)]


def _by_rules(case: Case) -> list[Finding]:
    return [finding for rule in RULES if (finding := rule(case))]


def _by_load(case: Case, findings: Sequence[Finding]) -> list[Finding]:
    """``findings`` with their limits in order of the lowest load that shows them; the others keep their places."""
    load = {step.index: step.load for step in case.steps}
    limits = iter(
        sorted(
            (finding for finding in findings if finding.code in LIMITS),
            key=lambda finding: min(load[step] for step in finding.steps),
        )
    )
    return [next(limits) if finding.code in LIMITS else finding for finding in findings]


def stalls(case: Case) -> Finding | None:
    """Requests stalled, and no rule says why: as many do not pass for nothing."""
    steps = case.where(lambda step: _stalled(step) > STALLED_RATIO)
    if not steps:
        return None
    worst = max(steps, key=_stalled)
    longest_s, evidence = worst.row.longest_gap_max_s, []
    evidence.append(f"{percent(_stalled(worst))} of the requests {worst.at} stalled: a gap above 250 ms and 10 medians")
    if longest_s:
        evidence.append(f"the longest gap there was {latency(longest_s)}")
    return Finding("stalls", "likely", tuple(evidence), indices(steps))


def _stalled(step: StepView) -> float:
    return step.row.stalled_ratio or 0.0


def healthy(case: Case) -> Finding | None:
    """Nothing gave way at any load that was offered; None when a step was overloaded, failed or missed the service
    level after all."""
    if any((step.row.error_ratio or 0.0) > MOST_RATIO for step in case.steps):
        return None
    if (case.quiet is None and case.climb) or missed(case.run.rows, case.run.scenario.slo):
        return None
    gaps = sum(step.gaps_seen for step in case.steps)
    whole = [step for step in case.climb or case.steps if counts(step.row)]
    if not whole:
        return None
    top = max(whole, key=lambda step: step.load)
    failed, requests = (sum(step.row.failed for step in case.steps), sum(step.row.requests for step in case.steps))
    none = f"{failed} of {plural(requests, 'request')} failed" if failed else "none failed"
    evidence = [f"every step up to {top.load:.3g} {'users' if top.row.users else 'req/s'} kept up, {none}"]
    if top.gaps is not None:
        evidence.append(f"{percent(top.gaps.excess_ratio)} of the streaming time {top.at} was lost in long gaps")
    used, preempted = top.row.kv_used_ratio_max, top.row.preemptions or 0.0
    if used is not None:
        evidence.append(f"KV cache at most {percent(used)} full, {plural(round(preempted), 'preemption')}")
    return Finding("healthy", "likely" if gaps >= GAPS_TO_CLEAR else "possible", tuple(evidence), indices(case.steps))


def _matters(step: StepView) -> bool:
    return step.gaps is not None and step.gaps.excess_ratio > EXCESS


def _stalls(step: StepView, cause: int, share: float) -> bool:
    """The cause has this share of the time lost in long gaps, at several moments, and it is time worth speaking of."""
    gaps = step.gaps
    if gaps is None or gaps.share(cause) <= share or gaps.count(cause) < ENGINE_GAPS or gaps.moments(cause) < MOMENTS:
        return False
    return gaps.share(CLIENT) <= CLIENT_SHARE and gaps.share(cause) * gaps.excess_ratio > EXCESS


def _moments(step: StepView) -> int:
    return step.gaps.moments(PRIVATE) if step.gaps is not None else 0


def _spread(step: StepView) -> float:
    return step.gaps.p99_s / step.gaps.median_s if step.gaps is not None and step.gaps.median_s > 0.0 else 0.0


def _p99_s(step: StepView) -> float:
    return step.gaps.p99_s if step.gaps is not None else 0.0


def _share(step: StepView, cause: int) -> str:
    assert step.gaps is not None
    return f"{percent(step.gaps.share(cause))} of the time lost in long gaps was lost while"


def _times(lift: float) -> str:
    return "more than 1,000 times" if lift > 1000.0 else multiple(lift)
