"""What servers say when they fail: a few classes by words that engines and gateways use, and whether the failure
depends on load. The text is never repeated.

Rule: a request that fails the same way on an idle server (too long, refused by a filter, an unknown model, a bad field)
says nothing about load. It counts as a failure and is no evidence of a ceiling. docs/method.md, "Failures".
"""

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from math import isnan

import numpy as np

from loadramp.record.table import Bools, Table
from loadramp.registry import data_of

_TABLES = data_of(__package__, "error_words.toml")
OF_THE_SERVER: dict[str, list[str]] = _TABLES["server"]
"""Class of a failure of the server to words that servers say; the first class that matches counts."""
OF_THE_REQUEST: dict[str, list[str]] = _TABLES["request"]
"""Class of a fault of the request, or of who sends it, to words."""
_BUSY: list[str] = _TABLES["busy"]
_INVALID: list[str] = _TABLES["invalid"]
WORDS: dict[str, str] = _TABLES["shown"]
"""Class to words for people."""
_KINDS = {"http_429": "full", "connect": "broken", "reset": "broken", "truncated": "broken",
          "timeout_first": "late", "timeout_idle": "late", "timeout_total": "late"}  # fmt: skip
_PASSING = {408: "late", 425: "full", 429: "full", 499: "late"}
"""Status codes in the 4xx that say nothing about the request. 499: something before the server gave up waiting."""
_BY_STATUS = {401: "denied", 402: "denied", 403: "denied", 407: "denied", 404: "unknown", 413: "long"}
_NEVER = {501, 505}
"""In the 5xx and the same on an idle server."""
_ANSWERED = frozenset({"http_4xx", "http_5xx", "in_band", "empty"})
"""Error kinds with words of a server that answered; the others tell of the connection, the clock or this client."""


def classes(table: Table) -> Counter[str]:
    """Failed requests by class; what fits none keeps its error kind. Those the client gave up are not counted."""
    out: Counter[str] = Counter()
    for (kind, detail, status), n in Counter(failures_of(table.select(table.failed))).items():
        if kind != "client":
            out[class_of(kind or "incomplete", detail, status)[0]] += n
    return out


def load_independent(table: Table) -> Bools:
    """Failed requests whose failure does not depend on load, shape n."""
    out = np.zeros(len(table), dtype=np.bool_)
    rows = np.flatnonzero(table.failed)
    out[rows] = [not class_of(*failure)[1] for failure in failures_of(table.select_rows(rows))]
    return out


@lru_cache(maxsize=4096)
def class_of(kind: str, detail: str, status: float | None = None) -> tuple[str, bool]:
    """The class of a failure, and whether it depends on load. Where that is not known it does.

    It does not: a status in the 4xx other than 408, 425, 429 and 499, or 501 and 505; a redirect, unless its address
    speaks of load (a waiting room); words about the request itself. Words about load come before any status.

    Args:
        kind: the record's error kind.
        detail: its words.
        status: that the failure names, else that of the reply (``failure_status``); None: neither.
    """
    lower = detail.lower()
    server = _first(OF_THE_SERVER, lower)
    if kind not in _ANSWERED:
        return server or _KINDS.get(kind, kind), True
    code = int(status) if status is not None and status >= 400 else None
    if status is not None and 300 <= status < 400 and not server:
        return ("full", True) if any(word in lower for word in _BUSY) else ("redirected", False)
    if server or code in _PASSING:
        return server or _PASSING[code or 0], True
    if code is not None and code > 500 and code not in _NEVER:
        return "gateway" if code == 502 else "full" if code == 503 else kind, True
    fault = _first(OF_THE_REQUEST, lower)
    if fault and (code != 500 or fault in {"long", "filtered"}):
        return fault, False
    refused = kind == "http_4xx" or (code is not None and code < 500)
    if refused and any(word in lower for word in _BUSY):
        return "full", True
    if refused or code in _NEVER or (kind != "empty" and any(word in lower for word in _INVALID)):
        return _BY_STATUS.get(code or 0, "invalid"), False
    return kind, True


def failures_of(table: Table) -> Iterable[tuple[str, str, float | None]]:
    status = [None if isnan(code) else code for code in table.failure_status.tolist()]
    return zip(table.error.tolist(), table.error_detail.tolist(), status, strict=True)


def _first(named: dict[str, list[str]], text: str) -> str | None:
    return next((name for name, words in named.items() if any(_holds(text, word) for word in words)), None)


def _holds(detail: str, word: str) -> bool:
    """``word`` stands in ``detail``; short ones only as a word of their own (a room is no oom)."""
    return word in detail if len(word) > 4 else word in detail.replace(":", " ").replace("(", " ").split()
