"""What a campaign shows of what was prepared beside it: alert rules, the size, the way back. Pure."""

from dataclasses import dataclass
from typing import Literal

from loadramp.record.preparation import Alerts, Rollback, Sized
from loadramp.units import plural, sig, span

Proof = Literal["shown", "gap", "open"]
ROLLBACK_S = 60.0
"""A rollback must take less."""
ROLLBACK_ERRORS = 0.01
"""Share of failed requests above which the version before does not work after a rollback."""


@dataclass(slots=True, frozen=True)
class Evidence:
    """What the campaign says of an item."""

    proof: Proof
    words: str
    phase: str = ""
    """Whose run shows it."""


def alerts_shown(alerts: Alerts | None) -> Evidence:
    """Rules for error rate, latency and GPU health, each of them valid."""
    if alerts is None:
        return Evidence("open", "nothing was run under load to make alert rules from")
    if alerts.refused:
        return Evidence("open", f"no rules can be made: {alerts.refused}", alerts.phase)
    made = f"{plural(alerts.rules, 'rule')} made and valid, in {alerts.engine}'s names (alerts.yml)"
    if alerts.missing:
        return Evidence("open", f"{made}; none for {', '.join(alerts.missing)}", alerts.phase)
    return Evidence("shown", f"{made}; that they are loaded and reach somebody is not seen here", alerts.phase)


def size_shown(sized: Sized | None) -> Evidence:
    """One of what was measured carries the peak with its headroom. More than one may well be there: that is asked."""
    if sized is None:
        return Evidence("open", "needs the peak ([campaign] target_rps) and a ramp (or loadramp advise --peak-rps)")
    if sized.needed is None:
        return Evidence("open", f"cannot be sized: {sized.reason}", "ramp")
    each = f"the endpoint as measured takes at least {sig(sized.low_rps)} req/s"
    observed = f"{each}; the peak of {sig(sized.peak_rps)} req/s plus 30 % is {sig(sized.asked_rps)}"
    if sized.needed == 1:
        return Evidence("shown", observed, "ramp")
    return Evidence(
        "open", f"{observed}: it takes {sized.needed} of what was measured; whether they are there was not seen", "ramp"
    )


def rollback_tried(rollback: Rollback | None) -> Evidence:
    """The version before served again after a switch back under load."""
    if rollback is None or not (rollback.took_s or rollback.unanswered):
        return Evidence("open", _unseen(rollback))
    if rollback.unanswered:
        times = plural(rollback.unanswered, "time")
        return Evidence("gap", f"{rollback.name}: after the switch back no request succeeded ({times})")
    share = rollback.failed / max(rollback.requests, 1)
    served = f"{plural(rollback.requests, 'request')} to the version before after it, {rollback.failed:,} failed"
    observed = f"{rollback.name}: switched back {plural(len(rollback.took_s), 'time')}; {served}"
    return Evidence("shown" if share <= ROLLBACK_ERRORS else "gap", observed)


def rollback_timed(rollback: Rollback | None) -> Evidence:
    """The slowest switch back, up to the first request that succeeded."""
    if rollback is None or not rollback.took_s:
        return Evidence("open", _unseen(rollback))
    slowest = max(rollback.took_s)
    command = f", the command {span(max(rollback.command_s))} of it" if rollback.command_s else ""
    observed = f"{rollback.name}: {span(slowest)} to the first request that succeeded{command}"
    if slowest >= ROLLBACK_S:
        return Evidence("gap", f"{observed}; less than {span(ROLLBACK_S)} is asked")
    return Evidence("shown", observed)


def _unseen(rollback: Rollback | None) -> str:
    if rollback is None:
        return "no canary was given (--canary DIR of one with [canary] design = 'abba' and --switch-command)"
    return f"{rollback.name} has no switch back: it takes [canary] design = 'abba' and --switch-command"
