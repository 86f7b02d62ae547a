"""One probed request, as a document and in words. Pure."""

from math import inf
from typing import NotRequired, TypedDict

import numpy as np

from loadramp.record.sanitize import clean
from loadramp.record.table import Gaps, Table
from loadramp.record.types import Record
from loadramp.registry import data_of
from loadramp.units import finite, latency, plural

WARNINGS: dict[str, str] = data_of(__package__, "words.toml")["warnings"]
NOT_STREAMED = "the answer was not streamed: it came whole, so tokens have no times of their own"
PARSED_LATE = "the client was busy parsing when it came"


class ProbeDocument(TypedDict):
    """What ``probe --json`` prints. Durations count from the due time; None: there is nothing to measure."""

    status: str
    error: str | None
    error_detail: str | None
    http_status: int | None
    ttft_s: float | None
    sent_ttft_s: float | None
    e2e_s: float | None
    stream_end_s: float | None
    time_to_first_byte_s: float | None
    time_to_first_answer_s: float | None
    gap_s: list[float]
    itl_s: list[float]
    tpot_s: float | None
    output_tokens: int | None
    prompt_tokens: int | None
    token_source: str | None
    finish_reason: str | None
    done_marker: bool
    keepalives: int
    malformed_events: int
    warnings: list[str]
    reasons: NotRequired[dict[str, str]]
    text: NotRequired[str]


def probe_document(record: Record, streamed: bool = True) -> ProbeDocument:
    """The document of one request. ``gap_s`` and ``itl_s`` list choice 0 first, then choice 1, and so on.

    An answer that was not ``streamed`` comes whole: it has no first token, and ``reasons`` says so. Where parsing kept
    the client from reading, times that end later would measure the client: they are left out, too.
    """
    table = Table.of([record])
    until_s = inf if record.doubtful_s is None else record.doubtful_s
    gaps = _until(table.gaps(), until_s)
    first_s, last_s = (record.event_s[0], record.event_s[-1]) if record.event_s else (None, None)
    reasons: dict[str, str] = {}

    def unless(value: float | None, name: str, end_s: float | None, of_a_stream: bool = False) -> float | None:
        why = NOT_STREAMED if of_a_stream and not streamed else ""
        why = PARSED_LATE if end_s is not None and end_s > until_s else why
        if why:
            reasons[name] = why
        return None if why else value

    def since_due(instant_s: float | None) -> float | None:
        return None if instant_s is None else instant_s - record.due_s

    document: ProbeDocument = {
        "status": record.status,
        "error": record.error,
        "error_detail": record.error_detail,
        "http_status": record.http_status,
        "ttft_s": unless(record.ttft_s, "ttft_s", first_s, True),
        "sent_ttft_s": unless(record.sent_ttft_s, "sent_ttft_s", first_s, True),
        "e2e_s": unless(record.e2e_s, "e2e_s", last_s),
        "stream_end_s": since_due(record.stream_end_s),
        "time_to_first_byte_s": since_due(record.first_byte_s),
        "time_to_first_answer_s": unless(since_due(record.answer_s), "time_to_first_answer_s", record.answer_s),
        "gap_s": gaps.gap_s.tolist(),
        "itl_s": gaps.itl()[0].tolist(),
        "tpot_s": unless(finite(table.tpot_s[0]), "tpot_s", last_s, True),
        "output_tokens": record.output_tokens,
        "prompt_tokens": record.prompt_tokens,
        "token_source": record.token_source,
        "finish_reason": record.finish_reason,
        "done_marker": record.done_marker,
        "keepalives": record.keepalives,
        "malformed_events": record.malformed_events,
        "warnings": list(dict.fromkeys(record.warnings)),
    }
    reasons |= {} if streamed else {"itl_s": NOT_STREAMED}
    if reasons:
        document["reasons"] = reasons
    if record.text is not None:
        document["text"] = record.text
    return document


def _until(gaps: Gaps, until_s: float) -> Gaps:
    keep = np.asarray(gaps.end_s <= until_s)
    return Gaps(gaps.request[keep], gaps.end_s[keep], gaps.gap_s[keep], gaps.tokens[keep])


def probe_words(document: ProbeDocument) -> str:
    """The same for people: the outcome first, then times, tokens, warnings."""
    gaps = sorted(document["gap_s"])
    prompt_tokens = document["prompt_tokens"]
    figures = {
        "first token": latency(document["ttft_s"]),
        "first byte": latency(document["time_to_first_byte_s"]),
        "first answer token": latency(document["time_to_first_answer_s"]),
        "last token": latency(document["e2e_s"]),
        "stream end": latency(document["stream_end_s"]),
        "gaps": f"{len(gaps)}, median {latency(gaps[len(gaps) // 2])}, longest {latency(gaps[-1])}" if gaps else "",
        "time per output token": latency(document["tpot_s"]),
        "prompt tokens": "" if prompt_tokens is None else str(prompt_tokens),
        "output tokens": _tokens(document),
        "finish reason": document["finish_reason"] or "",
    }
    width = max(map(len, figures))
    lines = [_outcome(document), *(f"  {name.ljust(width)}  {value}" for name, value in figures.items() if value)]
    lines += [f"note: {WARNINGS.get(code, code)}" for code in document["warnings"]]
    if text := document.get("text"):
        lines += ["", clean(text, lines=True)]
    return "\n".join(lines)


def _outcome(document: ProbeDocument) -> str:
    status = f"HTTP {document['http_status']}" if document["http_status"] else "no reply"
    if document["status"] == "ok":
        return f"ok, {status}"
    return f"{document['status']}: {document['error']}, {status}: {document['error_detail'] or ''}".rstrip(": ")


def _tokens(document: ProbeDocument) -> str:
    if document["output_tokens"] is None:
        return ""
    events = len(document["gap_s"]) + 1 if document["e2e_s"] is not None else 0
    return f"{document['output_tokens']} in {plural(events, 'event')} (counted by: {document['token_source']})"
