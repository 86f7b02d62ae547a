"""What may go wrong on purpose: with a request, on the wire, with the whole server. Pure data and draws from an rng."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

Ratio = Annotated[float, Meta(ge=0, le=1)]
NotNegative = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]
MetricsFault = Literal["none", "missing", "html", "hang"]
RegimeName = Literal["none", "captured", "doubling", "periodic_stalls", "slow_drift", "neighbour"]
"""The names in ``regimes.REGIMES``."""


@dataclass(slots=True, frozen=True)
class Faults:
    """Faults to switch on; the default is a healthy server. Ratios are shares of the requests, drawn independently."""

    error_ratio: Ratio = 0.0
    """Refused with ``error_status`` before anything is generated."""
    error_status: Annotated[int, Meta(ge=400, le=599)] = 500
    retry_after_s: NotNegative | None = None
    """Sent with those errors as Retry-After."""
    in_band_ratio: Ratio = 0.0
    """An error event inside a 200 stream, after ``in_band_tokens`` tokens."""
    in_band_tokens: Count = 0
    reset_ratio: Ratio = 0.0
    """The connection is reset after ``reset_tokens`` tokens."""
    reset_tokens: Count = 3
    truncate_ratio: Ratio = 0.0
    """The connection is closed in the middle of a chunk after ``truncate_tokens`` tokens."""
    truncate_tokens: Count = 3
    stall_ratio: Ratio = 0.0
    """After ``stall_tokens`` tokens nothing comes for ``stall_s``, then all that was held back at once."""
    stall_tokens: Count = 3
    stall_s: NotNegative = 1.0
    slow_requests: Count = 0
    """The first requests after a start each take ``slow_s`` longer to reach the engine."""
    slow_s: NotNegative = 0.5
    early_role: bool = False
    """The role chunk comes with the headers, not with the first token."""
    no_usage: bool = False
    no_done: bool = False
    coalesce_s: NotNegative = 0.0
    """A proxy that lets bytes through only every so often."""
    keepalive_s: NotNegative = 0.0
    """Comments in the stream while it is silent."""
    tokens_per_event: Annotated[int, Meta(ge=1)] = 1
    """As vLLM's --stream-interval; the first token still comes alone."""
    extra_prompt_tokens: Count = 0
    """Tokens that the chat template adds: the prompt is longer than its sender believes."""
    ignores_ignore_eos: bool = False
    """Answers stop at their natural length whatever was asked."""
    speeds: tuple[tuple[float, float], ...] = ()
    """(seconds since start, factor): the engine's speed from then on. An autoscaler, throttling, a noisy neighbour."""
    regimes: RegimeName = "none"
    """The engine's pace changes by itself, as ``simulator/regimes.py`` describes under that name."""
    crash_at_s: NotNegative | None = None
    """The engine dies that long after the start."""
    crash_running: Annotated[int, Meta(ge=1)] | None = None
    """The engine dies when that many requests run: out of memory."""
    crash_kind: Literal["engine", "process"] = "engine"
    """``engine``: streams end with an error event, then the process leaves. ``process``: streams break off."""
    restart_s: NotNegative | None = None
    """Back that long after it died, with empty counters. None: never."""
    leak_bytes_per_s: NotNegative = 0.0
    """The server's process grows by so much, from its start on."""
    metrics: MetricsFault = "none"
    """How /metrics answers: missing (404), html (200 with a page of HTML), hang (never)."""

    def draw(self, rng: np.random.Generator) -> Fate:
        """What happens to the next request. Always takes the same number of draws."""
        error, in_band, reset, truncate, stall = rng.random(5).tolist()
        breaks = [
            (self.in_band_tokens, "in_band", in_band < self.in_band_ratio),
            (self.reset_tokens, "reset", reset < self.reset_ratio),
            (self.truncate_tokens, "truncate", truncate < self.truncate_ratio),
        ]
        after, kind, _ = min((break_ for break_ in breaks if break_[2]), default=(0, "", False))
        return Fate(
            error=error < self.error_ratio,
            breaks=kind,
            breaks_after=after,
            stalls_after=self.stall_tokens if stall < self.stall_ratio else None,
        )


@dataclass(slots=True, frozen=True)
class Fate:
    """What happens to one request."""

    error: bool = False
    breaks: str = ""
    """``in_band``, ``reset``, ``truncate`` or nothing."""
    breaks_after: int = 0
    """After that many tokens."""
    stalls_after: int | None = None
    """Held back after that many tokens; None: never."""
