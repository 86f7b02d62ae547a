"""Literal records and rows that the judge's tests are made of."""

import gzip
import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from curve_rows import changed

from loadramp.analysis.curve import fold
from loadramp.record.row import Row
from loadramp.record.table import Table
from loadramp.record.types import Record, Step

H200 = Path(__file__).parent / "data" / "h200"
H200_RATES = (4, 8, 16, 32, 48, 64, 96)


def answer(seq: int, due_s: float, first_s: float, gaps_s: Sequence[float] = (), **more: Any) -> Record:
    """A request that was answered at ``first_s`` and after each gap."""
    event_s = [first_s]
    for gap_s in gaps_s:
        event_s.append(event_s[-1] + gap_s)
    tokens = sum(more.get("event_tokens", [])) or len(event_s)
    plain: dict[str, Any] = {
        "step": 0,
        "sent_s": due_s,
        "stream_end_s": event_s[-1],
        "status": "ok",
        "output_tokens": tokens,
        "token_source": "usage",
        "http_status": 200,
        "stamps": "kernel",
    }
    return Record(seq=seq, due_s=due_s, event_s=event_s, **{**plain, **more})


def failure(seq: int, due_s: float, after_s: float = 0.0, kind: str = "http_5xx") -> Record:
    """A request that failed."""
    return Record(seq=seq, step=0, due_s=due_s, sent_s=due_s, stream_end_s=due_s + after_s, status="error", error=kind)  # type: ignore[arg-type]  # literal


def unfinished(seq: int, due_s: float, event_s: Sequence[float] = ()) -> Record:
    """A snapshot of a request in flight."""
    return Record(seq=seq, step=0, due_s=due_s, sent_s=due_s, event_s=list(event_s))


def one_server(due_s: Iterable[float], service_s: float, tokens: int = 10, step: int = 0, seq: int = 0) -> list[Record]:
    """A single server, first come first served, that takes ``service_s`` for a request (M/D/1 for Poisson arrivals)."""
    out: list[Record] = []
    free_s = 0.0
    for due in due_s:
        begin_s = max(due, free_s)
        free_s = begin_s + service_s
        gap_s = service_s / tokens
        out.append(
            answer(seq + len(out), due, begin_s + gap_s, [gap_s] * (tokens - 1), step=step, asked_output_tokens=tokens)
        )
    return out


def window(measure_s: float, rate_rps: float = 1.0, **more: Any) -> Step:
    """A step that begins at 0 and is measured from its first instant."""
    return Step(**{"index": 0, "rate_rps": rate_rps, "begin_s": 0.0, "warmup_s": 0.0, "measure_s": measure_s, **more})


def row(rate_rps: float, **columns: Any) -> Row:
    """A quiet row of the curve at ``rate_rps``, 60 s long, answers of 100 tokens, with ``columns`` changed.

    What is not named here is as in a step in which nothing happened.
    """
    throughput = columns.get("throughput_rps", rate_rps)
    at_rate: dict[str, Any] = {
        "rate_rps": rate_rps,
        "arrival_rps": rate_rps,
        "load_rps": rate_rps,
        "requests": round(60 * rate_rps),
        "ok": round(60 * rate_rps),
        "throughput_rps": throughput,
        "throughput_blocks": [throughput * (1 + 0.02 * (-1) ** k) for k in range(10)],
        "first_token_blocks": [throughput * (1 + 0.03 * (-1) ** (k // 2)) for k in range(10)],
        "output_tokens_n": round(60 * rate_rps),
        "done_rps": throughput,
        "in_flight_mean": rate_rps,
        "good_n": round(60 * rate_rps),
    }
    return changed(_at_any_rate(), **{**at_rate, **columns})


@cache
def _at_any_rate() -> Row:
    """What rows have in common whatever their rate: folded once for all of them."""
    return changed(
        fold(window(60.0), Table.of([])),
        step=0,
        role="step",
        users=None,
        begin_s=0.0,
        window_begin_s=0.0,
        window_end_s=60.0,
        pending=0,
        errors={},
        error_ratio=0.0,
        output_tokens_mean=100.0,
        output_tokens_sd=0.0,
        saturated=False,
        deficit=False,
        signals=[],
        evidence={},
        itl_p50_s=0.010,
        itl_p99_s=0.020,
        itl_p99_log_se=0.02,
        ttft_p50_s=0.050,
        ttft_p99_s=0.100,
        prefill_share=0.0,
        good_ratio=1.0,
        began_with_backlog=False,
        settled=True,
        server_restarted=None,
        void=False,
        reasons={},
    )


def overload(rate_rps: float, served_rps: float, **columns: Any) -> Row:
    """A row whose queue grew and whose throughput stayed at ``served_rps``."""
    more = {"saturated": True, "deficit": True, "signals": ["queue", "backlog"], "throughput_rps": served_rps}
    return row(rate_rps, **{**more, **columns})


def h200(rate: int, begin_s: float = 0.0, step: int = 0, seq: int = 0) -> list[Record]:
    """vLLM's default limits on one H200 at ``rate`` req/s for 20 s: every token (0.1 ms), as it was captured."""
    out = []
    with gzip.open(H200 / f"default_{rate}.jsonl.gz", "rt") as lines:
        for line in lines:
            due, prompt, tokens, gaps = json.loads(line)
            due_s = begin_s + due / 1e4
            one = answer(
                seq + len(out),
                due_s,
                due_s + gaps[0] / 1e4,
                [gap / 1e4 for gap in gaps[1:]],
                step=step,
                prompt_tokens=prompt,
                asked_output_tokens=tokens,
            )
            out.append(one)
    return out
