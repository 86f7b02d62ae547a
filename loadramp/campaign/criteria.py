"""Single criteria of the phases before a launch: what was asked, what was seen, and whether it holds. Pure.

Rule: what was not seen is inconclusive; an interval that straddles its limit is, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from loadramp.analysis import offered_load
from loadramp.analysis.overload import signs_of
from loadramp.analysis.proportions import Proportion, needed
from loadramp.analysis.quantiles import quantile_name
from loadramp.analysis.thresholds import Status
from loadramp.campaign.drift import Drift
from loadramp.campaign.recovery import Availability, HealthSample, availability, failures, recovery_s, usual_ttft_s
from loadramp.campaign.table import hold_s
from loadramp.record.row import SHORT_NAMES, Row
from loadramp.record.table import Run
from loadramp.record.types import Estimate
from loadramp.scenario.scenario import Slo
from loadramp.units import agreed, latency, latency_span, multiple, percent, plural


@dataclass(slots=True, frozen=True)
class Criterion:
    """One thing that a phase must show: what was asked, and what was seen, in words with numbers."""

    code: str
    asked: str
    status: Status
    observed: str
    outcome: str = ""
    """Of ``recovery``: what happened, as ``it was well again after 5 s``, for the sentence of the whole campaign."""


class Strike(msgspec.Struct, frozen=True):
    """The command of the chaos phase, as it went."""

    begin_s: float
    end_s: float
    exit_code: int | None
    """None: it took too long and was ended, or could not be started."""
    output: str = msgspec.field(default="", name="said")
    """The last line that it printed."""


@dataclass(slots=True)
class PhaseView:
    """One phase as it was measured."""

    run: Run
    target_rps: float | None = None
    health: Sequence[HealthSample] = ()
    strike: Strike | None = None
    slo: Slo = field(default_factory=Slo)
    drifts: list[Drift] = field(default_factory=list)
    """Filled by ``sustained``."""

    @property
    def rows(self) -> list[Row]:
        return self.run.rows

    @property
    def ending(self) -> str:
        return self.run.info.ending or ""

    @property
    def gone(self) -> bool:
        """The endpoint stopped answering."""
        return self.run.info.stop_cause == "gone"


def verdict_of(criteria: Sequence[Criterion]) -> Status:
    """fail if one fails, else inconclusive if one is, else pass."""
    statuses = {criterion.status for criterion in criteria}
    return "fail" if "fail" in statuses else "inconclusive" if "inconclusive" in statuses or not criteria else "pass"


def only(phase: PhaseView) -> Row | None:
    return phase.rows[0] if phase.rows else None


def nothing(phase: PhaseView) -> Criterion:
    gone = phase.gone
    observed = phase.ending or "the phase was interrupted"
    return Criterion("measured", "something was measured", "fail" if gone else "inconclusive", observed)


def criterion(code: str, asked: str, holds: bool, words: str) -> Criterion:
    return Criterion(code, asked, "pass" if holds else "fail", words)


def delivered(rows: Sequence[Row]) -> Criterion:
    """Only a load that was delivered, and that was as large as asked, says anything."""
    void = [row.void[0].what for row in rows if row.void]
    short = ["the step was cut short" for row in rows if row.partial]
    less = [row for row in rows if offered_load.less(row)]
    little = [offered_load.pairs([(offered_load.asked(row), offered_load.load_of(row))]) for row in less]
    observed = [*void, *short, *little]
    status: Status = "inconclusive" if observed else "pass"
    return Criterion("delivered", "the client delivers the load", status, observed[0] if observed else "all of it")


def reached(rows: Sequence[Row]) -> list[Criterion]:
    """Loads of a ramp that the client never delivered, neither later nor a larger one: what lies there is not known.
    Empty where there is none."""

    def offered(row: Row) -> float:
        return float(row.rate_rps or row.users or 0.0)

    def made_good(row: Row) -> bool:
        return any(not other.void and other.role == row.role and offered(other) >= offered(row) for other in rows)

    lost = [row for row in rows if row.void and not made_good(row)]
    if not lost:
        return []
    row = lost[-1]
    load = f"{row.rate_rps:.4g} req/s" if row.rate_rps else plural(row.users or 0, "user")
    observed = f"not at {load}: {row.void[0].what}"
    return [Criterion("delivered", "the client delivers the load", "inconclusive", observed)]


def ended(phase: PhaseView) -> Criterion:
    gone = phase.gone
    return criterion("to_the_end", "it answers to the end", not gone, phase.ending if gone else "yes")


def errors(rows: Sequence[Row], limit: float) -> Criterion:
    """Exact one-sided limits of the share of failures."""
    failed = sum(row.failed for row in rows)
    share = Proportion(failed, sum(row.ended for row in rows))
    asked = f"less than {percent(limit)} of the requests fail"
    observed = f"{share.failed:,} of {share.requests:,} failed: below {percent(share.upper())} with 95 % confidence"
    if share.upper() < limit:
        return Criterion("errors", asked, "pass", observed)
    if share.failed and share.lower() > limit:
        return Criterion("errors", asked, "fail", f"{observed}, above {percent(share.lower())}")
    more = needed(share.failed, limit) - share.requests
    return Criterion(
        "errors", asked, "inconclusive", f"{observed}; {plural(more, 'more request')} without a failure would show it"
    )


def steady(rows: Sequence[Row]) -> Criterion:
    """No signal of saturation in any part."""
    bad = [(k, row) for k, row in enumerate(rows, start=1) if row.saturated or row.deficit]
    if not bad:
        return Criterion("steady", "the queue does not grow", "pass", "no signal of saturation")
    k, row = bad[0]
    where = f" in part {k} of {len(rows)}" if len(rows) > 1 else ""
    observed = (signs_of(row) or "less went out than came in") + where
    return Criterion("steady", "the queue does not grow", "fail", observed)


def slo_met(phase: PhaseView, rows: Sequence[Row], prefix: str = "") -> list[Criterion]:
    """Each limited latency at the SLO's quantile, by its interval; of several rows the worst decides."""
    order = ("fail", "inconclusive", "pass")
    out = []
    for metric, limit_s in phase.slo.limits.items():
        each = [_within(phase, row, metric, limit_s, prefix) for row in rows]
        out.append(min(each, key=lambda judged: order.index(judged.status)))
    return out


def _within(phase: PhaseView, row: Row, metric: str, limit_s: float, prefix: str) -> Criterion:
    """By the interval; where the step was too short for one, by none of the requests being beyond the limit."""
    measured = row.slo[metric]
    value, low, high = measured.figure.value, measured.figure.low, measured.figure.high
    asked = f"{prefix}{quantile_name(phase.slo.quantile)} {SHORT_NAMES[metric]} within {latency(limit_s)}"
    code = f"slo_{metric}"
    if value is None:
        return Criterion(code, asked, "inconclusive", row.reasons.get(f"slo_{metric}_s") or "too few values")
    observed = f"{SHORT_NAMES[metric]} {latency(value)}"
    if low is not None and high is not None:
        status: Status = "pass" if high <= limit_s else "fail" if low > limit_s else "inconclusive"
        return Criterion(code, asked, status, f"{observed} ({latency_span(low, high)})")
    if (value if low is None else low) > limit_s:
        return Criterion(code, asked, "fail", observed)
    if not row.stationary:
        return Criterion(code, asked, "inconclusive", f"{observed}, but the queue grew: longer would have been worse")
    n = int(row.number(f"{metric}_n") or 0)
    if metric != "itl" and measured.over_ratio == 0.0 and Proportion(0, n).upper() <= 1.0 - phase.slo.quantile:
        return Criterion(code, asked, "pass", f"{observed}, none of {n:,} beyond the limit")
    return Criterion(code, asked, "inconclusive", f"{observed}, but the step was too short for an interval")


def headroom(phase: PhaseView, row: Row, check_factor: float, limit: float) -> list[Criterion]:
    """At a little more than the target it still holds."""
    at = f"at {percent(check_factor)} of the target "
    asked = f"{at}at most {percent(limit)} fail and the queue does not grow without end"
    endless = row.saturated and row.deficit
    few = row.failed <= limit * max(row.requests, 1)
    observed = failed_words(row) + (f"; {signs_of(row)}" if endless else ", as much went out as came in")
    return [criterion("headroom", asked, few and not endless, observed), *slo_met(phase, [row], at)]


def refusals(phase: PhaseView, over: Row, factor: float, limit: float) -> Criterion:
    """Failures under overload: refusing is right, breaking is not."""
    failed = failures(phase.run.table, over.begin_s, over.window_end_s)
    asked = f"at {multiple(factor)} the target what fails is refused (429 or 503), not broken"
    kinds = f" ({', '.join(f'{kind} {n:,}' for kind, n in failed.kinds.items())})" if failed.kinds else ""
    observed = f"of {plural(failed.requests, 'request')} {failed.refused:,} {agreed(failed.refused, 'were')} refused, "
    observed += f"{failed.gave_up:,} timed out, {failed.broken:,} broke{kinds}"
    return criterion("refusals", asked, failed.broken <= limit * max(failed.requests, 1), observed)


def crash(phase: PhaseView, begin_s: float, end_s: float) -> Criterion:
    """From the health check, the server's own metrics, and whether anybody answered."""
    there = availability(phase.health, begin_s, end_s)
    down = [outage for outage in there.outages if outage.down]
    restarted = any(row.server_restarted for row in phase.rows)
    if phase.gone or restarted or down:
        observed = phase.ending if phase.gone else "a server restarted" if restarted else ""
        if down:
            gone = f"the health check failed at {down[0].begin_s:.0f} s for {down[0].end_s - down[0].begin_s:.3g} s"
            observed = f"{observed}; {gone}" if observed else f"{gone} ({down[0].error})"
        return Criterion("no_crash", "no crash", "fail", observed)
    known = there.checks > 0 or any(row.server_restarted is not None for row in phase.rows)
    if not known:
        return Criterion("no_crash", "no crash", "inconclusive", "neither a health check nor metrics were seen")
    slow = f"; {plural(len(there.outages), 'health check', 'were')} late" if there.outages else ""
    return Criterion(
        "no_crash", "no crash", "pass", f"{there.good:,} of {plural(there.checks, 'health check')} answered{slow}"
    )


def memory(grown: Sequence[Drift]) -> Criterion:
    asked = "the server's memory does not grow"
    if not grown:
        observed = "no page shows memory: name an exporter of the process or of DCGM in [metrics] urls"
        return Criterion("memory", asked, "inconclusive", observed)
    worst = min(grown, key=lambda drift: ("fail", "inconclusive", "pass").index(drift.status))
    return Criterion("memory", asked, worst.status, worst.reason)


def available(there: Availability, least: float) -> Criterion:
    asked = f"at least {percent(least, 4)} of the health checks answer"
    if there.ratio is None:
        return Criterion("availability", asked, "inconclusive", "no health check was made")
    return criterion(
        "availability", asked, there.ratio >= least, f"{there.good:,} of {there.checks:,} ({percent(there.ratio, 4)})"
    )


def recovered(
    phase: PhaseView,
    asked: str,
    window: tuple[float, float],
    from_s: float,
    until_s: float,
    limit_s: float,
    words: str = "",
) -> Criterion:
    """``words``: what explains a slow recovery."""
    usual_s = usual_ttft_s(phase.run.table, *window, phase.slo.limits.get("ttft"))
    rate_rps = phase.target_rps or 1.0
    if usual_s is None:
        return unrecovered(asked, "inconclusive", "too few successes before to know what is usual")
    after_s = recovery_s(phase.run.table, from_s, until_s, usual_s, rate_rps)
    because = f"; {words}" if words else ""
    if after_s is None:
        observed = f"not within the {until_s - from_s:.0f} s that were watched{because}"
        enough = until_s - from_s >= limit_s + hold_s(rate_rps) - 1.0  # a second: instants are tried one a second
        return unrecovered(asked, "fail" if enough else "inconclusive", observed)
    when = f"after {after_s:.0f} s" if after_s else "at once"
    in_time = after_s <= limit_s
    observed = f"{when}: first tokens within {latency(usual_s)}{'' if in_time else because}"
    return Criterion("recovery", asked, "pass" if in_time else "fail", observed, f"it was well again {when}")


def unrecovered(asked: str, status: Status, words: str) -> Criterion:
    """It was not seen to recover: it did not, or that is not known."""
    outcome = f"whether it recovers is open: {words}" if status == "inconclusive" else f"it did not recover: {words}"
    return Criterion("recovery", asked, status, words, outcome)


def above(code: str, what: str, estimate: Estimate, asked_rps: float) -> Criterion:
    """By the end of the interval that decides; an end that is not known (the interval reaches below the lowest rate, or
    repeats lie too far apart) decides nothing. What a soak has held is shown."""
    asked = f"{what} is at least the target, {asked_rps:.3g} req/s"
    low, high = estimate.low_rps, estimate.high_rps
    if estimate.status == "not_found_up_to" and estimate.rate_rps is not None:
        low, high = estimate.rate_rps, None
    elif estimate.status == "below_range":
        low, high = 0.0, estimate.high_rps if estimate.high_rps is not None else estimate.rate_rps
    elif estimate.status == "found" and low is None:
        low = estimate.sustained_rps
    if low is not None and low >= asked_rps:
        return Criterion(code, asked, "pass", rate_words(estimate))
    if high is not None and high < asked_rps:
        return Criterion(code, asked, "fail", rate_words(estimate))
    return Criterion(code, asked, "inconclusive", rate_words(estimate))


def rate_words(estimate: Estimate) -> str:
    if estimate.rate_rps is None:
        return estimate.reason or estimate.status.replace("_", " ")
    if estimate.status == "not_found_up_to":
        return f"not reached at {estimate.rate_rps:.3g} req/s"
    if estimate.status == "below_range":
        return estimate.reason or "below the lowest rate"
    between = f" ({estimate.low_rps:.3g} to {estimate.high_rps:.3g})" if estimate.low_rps and estimate.high_rps else ""
    if estimate.status == "found" and estimate.low_rps is None:
        most = "" if estimate.high_rps is None else f"; at most {estimate.high_rps:.3g}"
        between = f" (its lower end is not known{most})"
    soaked = f", {estimate.sustained_rps:.3g} soaked" if estimate.sustained_rps else ""
    return f"{estimate.rate_rps:.3g} req/s{between}{soaked}"


def failed_words(row: Row) -> str:
    kinds = ", ".join(f"{kind} {n:,}" for kind, n in sorted(row.errors.items(), key=lambda item: -item[1]))
    return f"{row.failed:,} of {row.requests:,} failed{f' ({kinds})' if kinds else ''}"
