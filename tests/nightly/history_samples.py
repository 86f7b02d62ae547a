"""Nights made by hand: a history as ``loadramp nightly`` writes it, with changes planted in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from loadramp.nightly.history import Alarm, Entry
from loadramp.nightly.series import JUDGED
from loadramp.nightly.trend import NightOutcome, judge_night

FIRST = datetime(2026, 1, 1, 3, 0, 0, tzinfo=UTC)
LEVELS = {"ceiling_rps": 16.0, "ref_itl_p50_s": 0.025, "ref_itl_p99_s": 0.048, "ref_ttft_p50_s": 0.09}
FINGERPRINT = {
    "scenario": "0123456789ab", "reference_rps": "8", "model": "sim", "engine": "vllm", "version": "0.10.0",
    "gpu": "H100", "driver": "550", "client": "0.1.0",
}  # fmt: skip

Levels = Callable[[int, str], float]
"""Night and metric to the true value."""


def night_of(i: int) -> str:
    return (FIRST + timedelta(days=i)).isoformat(timespec="seconds")


def steady(_: int, metric: str) -> float:
    return LEVELS[metric]


def measured(
    i: int,
    level: Levels,
    rng: np.random.Generator | None = None,
    *,
    sd: float = 0.02,
    runs: int = 3,
    rerun: bool = False,
    fingerprint: Mapping[str, str] = FINGERPRINT,
    metrics: Sequence[str] = JUDGED,
) -> list[Entry]:
    """The lines of one night: ``runs`` runs scattered by ``sd`` around a night's own level, which is scattered too."""
    rng = rng or np.random.default_rng(1000 + i)
    lines = []
    for metric in metrics:
        own = level(i, metric) * math.exp(rng.normal(0.0, sd))
        for repeat in range(runs):
            value = own * math.exp(rng.normal(0.0, sd))
            lines.append(
                Entry(night_of(i), "nightly", "measured", metric, value, value * 0.95, value * 1.05, repeat, rerun,
                      f"reports/{i}-{repeat}", 0, "", fingerprint)
            )  # fmt: skip
    return lines


def failed(i: int, reason: str = "http://host: connection refused") -> list[Entry]:
    return [Entry(night_of(i), "nightly", "failed", exit_code=1, reason=reason)]


def told(outcome: NightOutcome) -> list[Entry]:
    """The lines that the alarms of a night leave."""
    return [
        Entry(outcome.night, "nightly", "alarm", a.metric, a.after, fingerprint=FINGERPRINT, alarm=a)
        for a in outcome.alarms
    ]


def live(
    nights: int, make: Callable[[int], list[Entry]], accepted: Mapping[int, str] | None = None, **options: Any
) -> tuple[list[Entry], list[Alarm]]:
    """Night after night as the product does it: measure, judge with what is known by then, write down, accept."""
    entries: list[Entry] = []
    alarms: list[Alarm] = []
    for i in range(nights):
        entries += make(i)
        outcome = judge_night(entries, **options)
        entries += told(outcome)
        alarms += outcome.alarms
        if accepted and i in accepted:
            entries.append(Entry(night_of(i), "nightly", "accepted", accepted[i], reason="meant"))
    return entries, alarms
