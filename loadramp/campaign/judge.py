"""What each phase before a launch has to show, and whether it did. Pure; defaults and reasons: docs/campaign.md.

A phase fails when one criterion fails and passes when all of them pass.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from loadramp.analysis.saturation import in_flight_at
from loadramp.campaign import criteria as c
from loadramp.campaign.criteria import Criterion, PhaseView, Strike, criterion
from loadramp.campaign.drift import memory_growth, p99_drift
from loadramp.campaign.recovery import Harm, availability, harm, recovery_s, unaccounted, usual_ttft_s
from loadramp.campaign.table import OverloadPhase, SustainedPhase
from loadramp.record.row import SHORT_NAMES, Row
from loadramp.record.types import Estimate, Sample
from loadramp.units import agreed, latency, plural

FELT = "a worker that serves goes away"
TOLD = "nothing is lost silently"
CEILING = "a ceiling is found, or lies above every rate that was offered"
ABSORBED = 0.9
"""Share of the arriving requests that the healthy replicas must finish while one is away."""
LEAST_S = 10.0
RETRIED_ASKED = "failed requests are retried"
ABSORBED_ASKED = "healthy replicas absorb the load"


def baseline(phase: PhaseView) -> list[Criterion]:
    """One user at a time: nothing fails, and the median of each limited latency is within its limit."""
    row = c.only(phase)
    if row is None:
        return [c.nothing(phase)]
    failed = row.failed
    out = [c.delivered(phase.rows), c.criterion("no_errors", "no request fails", not failed, c.failed_words(row))]
    for metric, limit_s in phase.slo.limits.items():
        median_s = row.statistic(f"{metric}_p50").value
        asked = f"median {SHORT_NAMES[metric]} within {latency(limit_s)}"
        if median_s is None:
            out.append(Criterion(f"slo_{metric}", asked, "inconclusive", row.reasons.get(f"{metric}_p50_s", "")))
        else:
            observed = f"{SHORT_NAMES[metric]} {latency(median_s)}"
            out.append(c.criterion(f"slo_{metric}", asked, median_s <= limit_s, observed))
    return out


def ramp(phase: PhaseView, *, asked_rps: float | None) -> list[Criterion]:
    """A ceiling is found; where a target was asked for, ceiling and service level are above it. Thresholds hold."""
    if not phase.rows:
        return [c.nothing(phase)]
    ceiling = phase.run.estimates.get("ceiling") or Estimate("not_measurable")
    slo = phase.run.estimates.get("slo_capacity")
    undelivered = c.reached(phase.rows)
    known = ceiling.status == "found" or (ceiling.status == "not_found_up_to" and not undelivered)
    out = [*undelivered, Criterion("ceiling", CEILING, "pass" if known else "inconclusive", c.rate_words(ceiling))]
    if asked_rps is not None:
        out.append(c.above("capacity", "the ceiling", ceiling, asked_rps))
        if slo is not None and phase.slo.limits:
            out.append(c.above("slo_capacity", "the rate within the service level", slo, asked_rps))
    elif slo is not None and phase.slo.limits and slo.status == "below_range":
        out.append(Criterion("slo_capacity", "the service level holds at some rate", "fail", slo.reason))
    return out + [Criterion("gate", gate.rule, gate.status, gate.reason) for gate in phase.run.gates]


def sustained(phase: PhaseView, asked: SustainedPhase) -> list[Criterion]:
    """The target for a long time: few errors, no drift, no growth, no queue, the service level, always there.

    A long soak has several rows, one after the other without a gap.
    """
    rows = phase.rows
    if not rows:
        return [c.nothing(phase)]
    window = (rows[0].window_begin_s, rows[-1].window_end_s)
    drifts = p99_drift(phase.run.table, window, largest_ratio=asked.drift_ratio, unseen_ratio=asked.drift_unseen_ratio)
    grown = memory_growth(phase.run.samples, window, largest_ratio=asked.memory_ratio)
    phase.drifts = [*drifts, *grown]
    return [
        c.delivered(rows),
        c.ended(phase),
        c.errors(rows, asked.error_ratio),
        c.steady(rows),
        *c.slo_met(phase, rows),
        *(Criterion(f"drift_{drift.metric}", f"no drift of {drift.words} over time", drift.status, drift.reason)
          for drift in drifts),
        c.memory(grown),
        c.available(availability(phase.health, *window), asked.availability_ratio),
        replace(c.crash(phase, *window), code="no_restart", asked="no restart"),
    ]  # fmt: skip


def overload(phase: PhaseView, asked: OverloadPhase) -> list[Criterion]:
    """Four stages: target, ``check_factor`` times, ``factor`` times, target. The service level holds in the second; the
    third neither crashes it nor makes it fail in other ways than by refusing; the fourth is soon as the first."""
    rows = phase.rows
    if len(rows) < 3:
        gone = phase.gone
        return [Criterion("no_crash", "no crash", "fail", phase.ending)] if gone else [c.nothing(phase)]
    before, check, over = rows[:3]
    end_s = rows[-1].window_end_s
    out = [
        c.delivered(rows),
        *c.headroom(phase, check, asked.check_factor, asked.broken_ratio),
        c.crash(phase, over.begin_s, end_s),
        c.refusals(phase, over, asked.factor, asked.broken_ratio),
    ]
    as_before = f"as before within {asked.recovery_s:g} s after the load falls"
    if len(rows) < 4:
        return [*out, c.unrecovered(as_before, "fail" if phase.gone else "inconclusive", phase.ending)]
    fall_s = rows[3].begin_s
    backlog = int(in_flight_at(phase.run.table, np.array([fall_s]))[0])
    words = f"{plural(backlog, 'request', 'were')} in flight when it fell"
    return [*out, c.recovered(phase, as_before, before.window_s, fall_s, end_s, asked.recovery_s, words)]


def chaos(phase: PhaseView, *, recovery_limit_s: float) -> list[Criterion]:
    """The command works and is felt; soon it is as before; every request is answered, or told that it will not be."""
    row, strike = c.only(phase), phase.strike
    if row is None:
        return [c.nothing(phase)]
    if strike is None:
        return [Criterion("struck", "a worker is killed or restarted", "inconclusive", "no command was run")]
    before, end_s = (row.window_begin_s, strike.begin_s), row.window_end_s
    asked = f"as before within {recovery_limit_s:g} s after the command"
    out = [
        c.delivered(phase.rows),
        _struck(strike),
        c.recovered(phase, asked, before, strike.begin_s, end_s, recovery_limit_s),
    ]
    usual_s = usual_ttft_s(phase.run.table, *before, phase.slo.limits.get("ttft"))
    if usual_s is None:  # a proof that rests on these must not rest on what is left without them
        unknown = "too few successes before to know what is usual"
        return [
            *out,
            Criterion("felt", FELT, "inconclusive", unknown),
            Criterion("nothing_lost", TOLD, "inconclusive", unknown),
        ]
    after_s = recovery_s(phase.run.table, strike.begin_s, end_s, usual_s, row.arrival_rps or 1.0)
    until_s = end_s if after_s is None else strike.begin_s + max(after_s, 1.0)
    hurt = harm(phase.run.table, strike.begin_s, until_s, usual_s)
    taken = absorbed(phase.run.samples, strike.begin_s, until_s, row.arrival_rps or 0.0, hurt.failed)
    return [*out, _felt(phase, row, hurt, strike.begin_s), _nothing_lost(phase, hurt), *taken]


def _struck(strike: Strike) -> Criterion:
    observed = strike.output
    if strike.exit_code is not None:
        took = f"exit code {strike.exit_code} after {strike.end_s - strike.begin_s:.3g} s"
        observed = f"{took}: {strike.output}" if strike.exit_code and strike.output else took
    return Criterion("struck", "the command works", "pass" if strike.exit_code == 0 else "inconclusive", observed)


def _felt(phase: PhaseView, row: Row, hurt: Harm, from_s: float) -> Criterion:
    """Without a trace of it nobody knows whether a worker that serves went away."""
    there = availability(phase.health, from_s, row.window_end_s)
    if not (hurt.failed or hurt.slowed or there.outages or row.server_restarted):
        return Criterion("felt", FELT, "inconclusive", "nothing shows that one did: no failure, no delay, no restart")
    kinds = f" ({', '.join(f'{kind} {n:,}' for kind, n in hurt.kinds.items())})" if hurt.kinds else ""
    slowed = f"{hurt.slowed:,} {agreed(hurt.slowed, 'were')} slowed"
    observed = f"{hurt.failed:,} of {plural(hurt.requests, 'request')} failed{kinds}, {slowed}"
    down = f"; the health check failed for {there.down_s:.3g} s" if there.outages else ""
    return Criterion("felt", FELT, "pass", observed + down)


def _nothing_lost(phase: PhaseView, hurt: Harm) -> Criterion:
    missing = unaccounted(phase.run.table)
    observed = "every failure was told to its caller"
    if hurt.silent:
        observed = f"{plural(hurt.silent, 'request')} never got an answer nor an error"
    if missing:
        observed += f"; {plural(missing, 'planned request', 'have')} no record"
    return c.criterion("nothing_lost", TOLD, not hurt.silent and not missing, observed)


def absorbed(
    samples: Sequence[Sample], begin_s: float, end_s: float, arrival_rps: float, failed: int
) -> list[Criterion]:
    """The two criteria, from the replicas' pages between the kill and ``end_s``.

    Args:
        samples: of all pages.
        begin_s, end_s: from the command to the recovery, seconds since the run began.
        arrival_rps: what arrives, of all replicas together.
        failed: requests whose failure reached the caller in that time.
    """
    pages: dict[str, list[Sample]] = {}
    for sample in samples:
        pages.setdefault(sample.url, []).append(sample)
    shown = {url: page for url, page in pages.items() if any("requests_done" in check.values for check in page)}
    if len(shown) < 2:
        return _unseen("not seen: name the metrics page of every replica in [metrics] urls")
    hit = [url for url, page in shown.items() if _went(page, begin_s, end_s)]
    if not hit or len(hit) == len(shown):
        return _unseen(f"not seen: {len(hit)} of {plural(len(shown), 'replica')}' pages went away or restarted")
    busy = sum(_last(shown[url], begin_s, "running") for url in hit)
    if failed:
        observed = f"{plural(failed, 'failure')} reached the caller"
        retried = Criterion("retried", RETRIED_ASKED, "fail", observed)
    elif busy:
        observed = (
            f"about {plural(round(busy), 'request')} ran on the killed replica, and no failure reached the caller"
        )
        retried = Criterion("retried", RETRIED_ASKED, "pass", observed)
    else:
        retried = Criterion("retried", RETRIED_ASKED, "inconclusive", "nothing ran on the killed replica")
    until_s = max(end_s, begin_s + LEAST_S)
    done = sum(
        _last(page, until_s, "requests_done") - _last(page, begin_s, "requests_done")
        for url, page in shown.items()
        if url not in hit
    )
    rate_rps = done / (until_s - begin_s)
    observed = f"they finished {rate_rps:.3g} of {arrival_rps:.3g} req/s while {len(hit)} of {len(shown)} was away"
    return [retried, criterion("absorbed", ABSORBED_ASKED, rate_rps >= ABSORBED * arrival_rps, observed)]


def _unseen(why: str) -> list[Criterion]:
    return [Criterion("retried", RETRIED_ASKED, "inconclusive", why),
            Criterion("absorbed", ABSORBED_ASKED, "inconclusive", why)]  # fmt: skip


def _went(page: Sequence[Sample], begin_s: float, end_s: float) -> bool:
    """It could not be read, or its counters began anew."""
    after = [check for check in page if begin_s <= check.t_s <= max(end_s, begin_s + LEAST_S)]
    before = _last(page, begin_s, "requests_done")
    return any(check.error or check.values.get("requests_done", before) < before for check in after)


def _last(page: Sequence[Sample], until_s: float, name: str) -> float:
    return next((check.values[name] for check in reversed(page) if check.t_s <= until_s and name in check.values), 0.0)
