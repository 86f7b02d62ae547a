"""What servers say when they fail, sorted into a few classes by words that engines use. The text is never repeated."""

from __future__ import annotations

from collections import Counter

from loadramp.record.table import Table

SAID: dict[str, tuple[str, ...]] = {
    "memory": ("out of memory", "outofmemory", "out-of-memory", "failed to allocate", "cannot allocate memory",
               "cublas_status_alloc_failed", "oom"),
    "hardware": ("nccl", "uncorrectable ecc", "illegal memory access", "device-side assert", "unspecified launch",
                 "xid", "cuda error", "hip error", "nvlink"),
    "dead": ("enginecore", "enginedead", "engine is dead", "engine has died", "engine process", "background loop",
             "scheduler died", "no healthy upstream", "bad gateway", "connection refused by upstream"),
    "full": ("too many requests", "overloaded", "currently busy", "queue is full", "queue full", "max_queue",
             "maximum number of queued", "rate limit", "cannot accept", "try again later", "no available slot",
             "temporarily unavailable", "at capacity"),
    "long": ("maximum context length", "context length exceeded", "context_length_exceeded", "available context size",
             "longer than the model's context", "max_model_len", "maximum model length"),
}  # fmt: skip
"""Class of failure to words that servers say; the first class that matches counts."""
WORDS = {"memory": "out of memory", "hardware": "GPU or interconnect error", "dead": "engine dead",
         "full": "refused as too busy", "long": "longer than the model's context",
         "broken": "connection broken or refused", "late": "timed out"}  # fmt: skip
_KINDS = {"http_429": "full", "connect": "broken", "reset": "broken", "truncated": "broken",
          "timeout_first": "late", "timeout_idle": "late", "timeout_total": "late"}  # fmt: skip


def classes(table: Table) -> Counter[str]:
    """Failed requests by class; what fits none keeps its error kind. Those the client gave up are not counted."""
    failed = table.select(table.failed)
    told = zip(failed.error.tolist(), failed.error_detail.tolist(), failed.http_status.tolist(), strict=True)
    counted = Counter(told)
    out: Counter[str] = Counter()
    for (kind, detail, status), n in counted.items():
        if kind != "client":
            out[_class(kind or "incomplete", detail.lower(), status)] += n
    return out


def _class(kind: str, detail: str, status: float) -> str:
    for name, words in SAID.items():
        if any(_holds(detail, word) for word in words):
            return name
    if kind == "http_5xx":
        return "dead" if status == 502 else "full" if status == 503 else kind
    return _KINDS.get(kind, kind)


def _holds(detail: str, word: str) -> bool:
    """``word`` stands in ``detail``; short ones only as a word of their own (a room is no oom)."""
    return word in detail if len(word) > 4 else word in detail.replace(":", " ").replace("(", " ").split()
