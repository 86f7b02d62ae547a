"""A run as it goes on, in words: one line a second, and a small table for a terminal. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from loadramp.record.row import Row, void_words
from loadramp.record.table import Floats, Table
from loadramp.record.types import ClientSample, Step
from loadramp.units import NOTHING, latency, percent, plural

BARS = "▁▂▃▄▅▆▇█"
FEWEST_FOR_P99 = 100
LATEST = 300


@dataclass(slots=True, frozen=True)
class Progress:
    """What a bystander sees once a second."""

    t_s: float
    step: Step
    steps: int
    sent: int
    finished: int
    failed: int
    in_flight: int
    waiting: int
    tokens_per_s: float
    rows: Sequence[Row]
    errors: Mapping[str, int] = field(default_factory=dict)
    """Failed requests so far by kind."""
    latest: Table = field(default_factory=lambda: Table.of([]))
    """The last ``LATEST`` requests that ended."""
    client: Sequence[ClientSample] = ()
    """The latest sample of each worker."""
    history: Sequence[float] = ()
    """Output tokens a second in each of the last seconds, the oldest first."""
    left_s: tuple[float, float] | None = None
    """Least and most seconds until the end of the last step. None: not known."""


Watch = Callable[[Progress], None]


def step_words(step: Step) -> str:
    """``8 req/s``, ``32 users``, ``soak at 13.5 req/s``, ``draining``, ``settling at 1 req/s``."""
    load = plural(step.users, "user") if step.users is not None else f"{step.rate_rps:.4g} req/s"
    before = {"soak": "soak at ", "settle": "settling at ", "tail": "last answers, still ", "down": "down to "}
    return "draining" if step.role == "drain" else f"{before.get(step.role, '')}{load}"


def line(progress: Progress) -> str:
    """One plain line: time, step and how far it is, what is sent, waiting and failed."""
    step = progress.step
    length_s = step.end_s - step.begin_s
    into_s = min(max(progress.t_s - step.begin_s, 0.0), length_s)
    parts = [
        f"{clock(progress.t_s)}",
        f"{step_words(step)}",
        f"{into_s:.0f}/{length_s:.0f} s",
        f"sent {progress.sent:,}",
        f"in flight {progress.in_flight} ({progress.waiting} without a token)",
        f"{progress.tokens_per_s:,.0f} tokens/s",
    ]
    if progress.left_s is not None:
        parts.append(left_words(progress.left_s))
    if progress.failed:
        parts.append(f"FAILED {progress.failed:,}")
    return " | ".join(parts)


def left_words(left_s: tuple[float, float]) -> str:
    """``5 min left``, or ``3 to 14 min left`` where it depends on when the endpoint gives way."""
    least_s, most_s = left_s
    if most_s - least_s < max(10.0, 0.1 * most_s):
        return f"{_about(most_s)} left"
    low, high = _about(least_s), _about(most_s)
    unit = low[low.index(" ") :]
    return f"{low.removesuffix(unit) if high.endswith(unit) else low} to {high} left"


def _about(seconds: float) -> str:
    """``20 s``, ``5 min``: nobody can say it more exactly."""
    return f"{10 * ceil(seconds / 10)} s" if seconds <= 60 else f"{ceil(seconds / 60)} min"


def panel(progress: Progress) -> list[tuple[str, str]]:
    """The lines below the bar of a terminal: what each is about, and how it stands.

    Latencies are those of the last answers that ended, so they say nothing about requests that still wait.
    """
    errors = ", ".join(f"{kind} {n:,}" for kind, n in sorted(progress.errors.items(), key=lambda pair: -pair[1])[:3])
    counts = f"{progress.sent:,} sent, {progress.finished:,} ended, {progress.in_flight:,} in flight"
    waits = f"{progress.waiting:,} without a token"
    answers = progress.latest.select(progress.latest.ok)
    lag_s = max((sample.loop_lag_s for sample in progress.client), default=0.0)
    busy = max((sample.cpu_ratio for sample in progress.client), default=0.0)
    return [
        ("requests", f"{counts} ({waits})"),
        ("failed", errors or "none"),
        ("TTFT", _quantiles(answers.ttft_s)),
        ("ITL", _quantiles(answers.gaps().itl()[0])),
        ("tokens/s", f"{progress.tokens_per_s:>7,.0f} {sparkline(progress.history)}"),
        ("client", f"loop up to {latency(lag_s) or '0 ms'} late, busiest worker {percent(busy)} of a core"),
    ]


def sparkline(values: Sequence[float]) -> str:
    """Eighths of a line for each value, the largest one full."""
    top = max(values, default=0.0)
    return "".join(BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] if top else BARS[0] for value in values)


def _quantiles(values_s: Floats) -> str:
    """``p50 48 ms  p99 210 ms``; no p99 of fewer than 100."""
    if not len(values_s):
        return NOTHING
    p99 = latency(float(np.quantile(values_s, 0.99))) if len(values_s) >= FEWEST_FOR_P99 else NOTHING
    return f"p50 {latency(float(np.median(values_s)))}  p99 {p99}  (the last {len(values_s):,})"


def row_line(row: Row) -> str:
    """What a finished step came to, in one line."""
    load = plural(row.users, "user") if row.users is not None else f"{row.rate_rps:,.4g} req/s"
    words = [f"{row.role} {load}: {row.ok:,} of {row.requests:,} finished"]
    for name, column in (("TTFT", "ttft"), ("ITL", "itl")):
        p50, p99 = row.statistic(f"{column}_p50").value, row.statistic(f"{column}_p99").value
        if p50 is not None:
            words.append(f"{name} p50 {latency(p50)}" + (f" p99 {latency(p99)}" if p99 is not None else ""))
    if row.partial:
        words.append("PARTIAL (cut short)")
    elif row.load_rps is not None and row.load_rps != row.rate_rps:
        words.append(f"{row.load_rps:,.4g} req/s offered")
    if row.void:
        words.append(f"VOID ({void_words(row.void)})")
    elif row.saturated:
        words.append(f"saturated ({', '.join(row.signals)})")
    return "; ".join(words)


def clock(t_s: float) -> str:
    """``3:07`` or ``1:02:09``."""
    minutes, seconds = divmod(int(t_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
