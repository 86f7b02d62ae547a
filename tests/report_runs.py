"""Runs written down by hand for the tests of the report: a ramp with the figures of a real batch-limited server."""

from __future__ import annotations

import zlib
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
from curve_rows import changed, row_of

from loadramp.record.row import Row
from loadramp.record.run_info import read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import Check, ClientSample, Estimate, Record, Sample, Step
from loadramp.report.json_data import ALPHABET, BITS
from loadramp.runner.scenarios import load

SCENARIO = """name = "chat"
seed = 42

[slo]
ttft_s = 1.0
itl_s = 0.06

[prompts]
kind = "lognormal"
input_tokens = 512
output_tokens = 128
"""
# rate, TTFT p50 and p99, ITL p50 and p99 (ms), throughput: vLLM with max_num_seqs 64 on an H200
SERVED = (
    (2.0, 78, 211, 26.1, 40.6, 2.0),
    (4.0, 85, 180, 26.5, 44.0, 4.0),
    (8.0, 93, 174, 29.2, 55.1, 8.0),
    (12.0, 88, 315, 25.0, 48.4, 12.0),
    (28.0, 3833, 10596, 28.5, 36.5, 15.9),
)
STEP_S, WARMUP_S = 30.0, 5.0


def row(step: int, rate_rps: float | None, **more: Any) -> Row:
    """A quiet row; ``more`` replaces or adds columns."""
    begin_s, done_rps = step * STEP_S, rate_rps or 0.0
    plain: dict[str, Any] = {
        "step": step, "role": "step", "rate_rps": rate_rps, "users": None, "begin_s": begin_s,
        "window_begin_s": begin_s + WARMUP_S, "window_end_s": begin_s + STEP_S,
        "requests": 400, "ok": 400, "pending": 0,
        "errors": {}, "error_ratio": 0.0, "sent_rps": done_rps, "done_rps": done_rps, "throughput_rps": done_rps,
        "output_tokens_per_s": 128.0 * (rate_rps or 1.0), "lag_p50_s": 0.0002, "lag_p99_s": 0.001, "good_ratio": 1.0,
        "good_rps": done_rps, "saturated": False, "deficit": False, "signals": [], "stationary": True, "void": False,
        "reasons": {},
    }  # fmt: skip
    return row_of(**{**plain, **more})


def latencies(ttft_p50: float, ttft_p99: float, itl_p50: float, itl_p99: float) -> dict[str, Any]:
    """Latency columns from milliseconds; p95 and the intervals of p99 are made up around them."""
    columns: dict[str, Any] = {}
    for name, p50, p99 in (("ttft", ttft_p50, ttft_p99), ("itl", itl_p50, itl_p99), ("tpot", itl_p50, itl_p50 * 1.2),
                           ("e2e", ttft_p50 + 128 * itl_p50, ttft_p99 + 200 * itl_p50)):  # fmt: skip
        columns |= {f"{name}_p50_s": p50 / 1e3, f"{name}_p95_s": (p50 + p99) / 2e3, f"{name}_p99_s": p99 / 1e3,
                    f"{name}_p99_low_s": p99 * 0.9 / 1e3, f"{name}_p99_high_s": p99 * 1.15 / 1e3,
                    f"{name}_n": 400}  # fmt: skip
    return columns


def served_rows() -> list[Row]:
    """Five steps, the last overloaded, then a soak of five minutes at 13.6 req/s."""
    return list(_served_rows())


@cache
def _served_rows() -> list[Row]:
    rows = [
        row(i, rate, throughput_rps=throughput, **latencies(*ms)) for i, (rate, *ms, throughput) in enumerate(SERVED)
    ]
    rows[-1] = changed(
        rows[-1], saturated=True, deficit=True, signals=["queue", "backlog", "ttft_trend"], good_ratio=0.0,
        done_rps=15.4, good_rps=0.0, stationary=False,
    )  # fmt: skip
    soak = row(6, 13.6, role="soak", window_begin_s=185.0, window_end_s=485.0, **latencies(90, 400, 25.5, 47.0))
    return [*rows, soak]


@cache
def served_table(seconds: float = 150.0, per_s: float = 4.0, tokens: int = 12) -> Table:
    """Requests at even distances, ``tokens`` tokens about 25 ms apart; each fiftieth stalls for 400 ms, one fails.

    One for all that ask: nobody can write to it.
    """
    records = []
    n = int(seconds * per_s)
    for i in range(n):
        due_s = i / per_s
        gaps = [0.025 + 0.001 * (i % 7)] * (tokens - 1)
        if i % 50 == 49:
            gaps[5] = 0.4
        event_s = (due_s + 0.08 + np.cumsum([0.0, *gaps])).tolist()
        records.append(
            Record(i, int(due_s // STEP_S), due_s, sent_s=due_s + 0.0003, event_s=event_s,
                   stream_end_s=event_s[-1] + 0.001, status="ok", output_tokens=tokens,
                   prompt_tokens=2000 if i % 20 == 0 else 512)
        )  # fmt: skip
    records[-1].status, records[-1].error = "error", "http_5xx"
    table = Table.of(records)
    for column in fields(table):
        getattr(table, column.name).flags.writeable = False
    return table


def steps() -> list[Step]:
    made = [Step(i, rate_rps=rate, begin_s=i * STEP_S, warmup_s=WARMUP_S, measure_s=STEP_S - WARMUP_S)
            for i, (rate, *_) in enumerate(SERVED)]  # fmt: skip
    drain = Step(5, "drain", rate_rps=0.0, begin_s=150.0, warmup_s=0.0, measure_s=30.0)
    return [*made, drain, Step(6, "soak", rate_rps=13.6, begin_s=180.0, warmup_s=5.0, measure_s=300.0)]


def estimates(**more: Estimate) -> dict[str, Estimate]:
    return {
        "ceiling": Estimate("found", 15.9, 15.2, 16.7, "ceiling", "between 12 and 28 req/s", sustained_rps=13.6),
        "p99_itl_knee": Estimate("not_found_up_to", 28.0, reason="p99 ITL never grows faster than the rate"),
        "slo_capacity": Estimate("found", 12.4, 11.0, 13.9, "isotonic", "p99 TTFT crosses 1 s", limit="ttft"),
    } | more


def served(**more: Any) -> Run:
    """The whole run; ``more`` replaces fields; ``scenario`` may be text, ``info`` what run.json holds."""
    filled: dict[str, Any] = {
        "info": {
            "state": "complete", "name": "chat", "seed": 42, "began_at": "2026-01-02T03:04:05+00:00",
            "argv": ["loadramp", "run", "scenarios/chat.toml"], "versions": {"loadramp": "0.1.0"},
            "target": {"base_url": "http://127.0.0.1:8000", "model": "org/name:v1 (x)"},
        },
        "scenario": SCENARIO,
        "steps": steps(),
        "table": served_table(),
        "samples": [Sample(float(t), values={"running": 8.0, "waiting": float(t % 3), "kv_used_ratio": 0.4 + 0.003 * t,
                                             "preemptions": float(t // 50)}) for t in range(150)],
        "client": [ClientSample(float(t), w, loop_lag_s=0.0005 + 0.0001 * w, cpu_ratio=0.2)
                   for t in range(150) for w in (0, 1)],
        "rows": served_rows(),
        "estimates": estimates(),
        "checks": [
            Check("few_samples", "note", "too few requests for a p99 of TTFT", "Lengthen the steps.", 0),
            Check("busy_client", "warn", "the busiest worker used 58 % of its processor", "Add workers.", 4),
        ],
        "path": "reports/20260102-030405-chat",
    }  # fmt: skip
    filled |= more
    if isinstance(filled["scenario"], str):
        filled["scenario"] = load(filled["scenario"])
    if isinstance(filled["info"], dict):
        filled["info"] = read_info(filled["info"])
    return Run(**filled)


def unpacked(text: str) -> str:
    """What ``packed`` was given."""
    _, _, text = text.partition(":")
    place = np.zeros(127, dtype=np.int64)
    place[np.frombuffer(ALPHABET, dtype=np.uint8)] = np.arange(91)
    digits = place[np.frombuffer(text.encode("ascii"), dtype=np.uint8)].reshape(-1, 2)
    numbers = digits[:, 0] * 91 + digits[:, 1]
    bits = (numbers[:, None] >> np.arange(BITS - 1, -1, -1)) & 1
    data = np.packbits(bits.astype(np.uint8).reshape(-1)).tobytes()
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data).decode()
