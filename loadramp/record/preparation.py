"""What one feature finds of a launch's preparation and another shows: alert rules, size, the way back. Plain."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Alerts:
    """The rules that ``loadramp alerts`` makes of a phase's run."""

    phase: str
    rules: int = 0
    engine: str = ""
    missing: Sequence[str] = ()
    """Of error rate, latency and GPU health, what no rule watches."""
    refused: str = ""
    """Why no rules can be made."""


@dataclass(slots=True, frozen=True)
class Sized:
    """What ``loadramp advise`` says of the peak and its headroom."""

    peak_rps: float
    asked_rps: float
    """The peak with its headroom."""
    low_rps: float | None = None
    """What the endpoint, as measured, takes at least; None: not known."""
    needed: int | None = None
    """How many of it the load with its headroom needs."""
    reason: str = ""
    """Why neither is known."""


@dataclass(slots=True, frozen=True)
class Rollback:
    """Switches back to the version before, timed by a canary on one machine."""

    name: str
    """Of the canary's directory."""
    took_s: Sequence[float] = ()
    """For each switch back: from the begin of the command to the end of the first request that succeeded."""
    command_s: Sequence[float] = ()
    """What the command itself took of that."""
    unanswered: int = 0
    """Switches back after which no request succeeded."""
    measured_s: float = 0.0
    """Load measured on the version before, after a switch back."""
    requests: int = 0
    failed: int = 0
