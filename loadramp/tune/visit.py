"""One measurement of one configuration, as tune.json keeps it. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log
from typing import Literal

Purpose = Literal["race", "return", "confirm"]
"""``return``: the baseline again, to see whether the host drifts."""
VisitState = Literal["measured", "unmeasured", "did_not_start", "died"]


@dataclass(slots=True, frozen=True)
class Proposal:
    """A cure of a run's findings as flags, or why it is not tried."""

    flags: str
    cure: str
    why: str = ""
    not_tried: str = ""


@dataclass(slots=True, frozen=True)
class Visit:
    """A configuration started (or still running), ramped once. Times in seconds of work since the tuning began."""

    flags: str
    purpose: Purpose = "race"
    round: int = 0
    """Which of ``[tune] step_s``."""
    rival: str | None = None
    """Of a confirming visit: the other one of the pair."""
    state: VisitState = "measured"
    value: float | None = None
    low: float | None = None
    high: float | None = None
    """As of a Score: without ``value`` the objective lies below it."""
    reason: str = ""
    begin_s: float = 0.0
    took_s: float = 0.0
    start_s: float | None = None
    """From the start of the server to its first answer; None: it ran already, or never answered."""
    run: str = ""
    """Name of its run directory."""
    exit_code: int | None = None
    log_tail: Sequence[str] = ()
    facts: Mapping[str, float] = field(default_factory=dict)
    cures: Sequence[Proposal] = ()

    @property
    def failed(self) -> bool:
        """The configuration cannot serve."""
        return self.state in {"did_not_start", "died"}

    def log(self, sign: int) -> float | None:
        """ln(objective), larger being better (``sign`` -1: of a cost); None without a value."""
        return sign * log(self.value) if self.state == "measured" and self.value else None

    @property
    def stated_se(self) -> float:
        """Standard error of the logarithm that the run itself states; infinite for a bound."""
        if not self.value or not self.high or not self.low:
            return inf
        return log(self.high / self.low) / 3.92
