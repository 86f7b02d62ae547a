"""A run as it goes on, in words: one line a second, and a small table for a terminal. Pure."""

from __future__ import annotations

from typing import Any

from loadramp.record.types import Row, Step
from loadramp.units import latency, plural


def step_words(step: Step) -> str:
    """``8 req/s``, ``32 users``, ``soak at 13.5 req/s``, ``draining``, ``settling at 1 req/s``."""
    load = plural(step.users, "user") if step.users is not None else f"{step.rate_rps:.4g} req/s"
    before = {"soak": "soak at ", "settle": "settling at ", "tail": "last answers, still ", "down": "down to "}
    return "draining" if step.role == "drain" else f"{before.get(step.role, '')}{load}"


def line(progress: Any) -> str:
    """One plain line: time, step and how far it is, what is sent, waiting and failed.

    ``progress`` is a conduct.Progress.
    """
    step: Step = progress.step
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
    if progress.failed:
        parts.append(f"FAILED {progress.failed:,}")
    return " | ".join(parts)


def row_line(row: Row) -> str:
    """What a finished step came to, in one line."""
    load = plural(row["users"], "user") if row.get("users") is not None else f"{row['rate_rps']:,.4g} req/s"
    words = [f"{row['role']} {load}: {row['ok']:,} of {row['requests']:,} finished"]
    for name, column in (("TTFT", "ttft"), ("ITL", "itl")):
        p50, p99 = row.get(f"{column}_p50_s"), row.get(f"{column}_p99_s")
        if p50 is not None:
            words.append(f"{name} p50 {latency(p50)}" + (f" p99 {latency(p99)}" if p99 is not None else ""))
    if row.get("partial"):
        words.append("PARTIAL (cut short)")
    elif row.get("load_rps") is not None and row["load_rps"] != row["rate_rps"]:
        words.append(f"{row['load_rps']:,.4g} req/s offered")
    if row["void"]:
        words.append(f"VOID ({row['reasons'].get('void', '')})")
    elif row["saturated"]:
        words.append(f"saturated ({', '.join(row['signals'])})")
    return "; ".join(words)


def clock(t_s: float) -> str:
    """``3:07`` or ``1:02:09``."""
    minutes, seconds = divmod(int(t_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
