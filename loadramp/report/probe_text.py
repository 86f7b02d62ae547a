"""One probed request in words. Pure."""

from collections.abc import Mapping
from typing import Any

from loadramp.record.sanitize import clean
from loadramp.registry import data_of
from loadramp.units import latency, plural

WARNINGS: dict[str, str] = data_of(__package__, "words.toml")["warnings"]


def probe_words(document: Mapping[str, Any]) -> str:
    """The document of client.probe for people: the outcome first, then times, tokens, warnings."""
    gaps = sorted(document["gap_s"])
    lines = [_outcome(document)]
    lines += _pairs(
        ("first token", latency(document["ttft_s"])),
        ("first byte", latency(document["time_to_first_byte_s"])),
        ("first answer token", latency(document["time_to_first_answer_s"])),
        ("last token", latency(document["e2e_s"])),
        ("stream end", latency(document["stream_end_s"])),
        ("gaps", f"{len(gaps)}, median {latency(gaps[len(gaps) // 2])}, longest {latency(gaps[-1])}" if gaps else ""),
        ("time per output token", latency(document["tpot_s"])),
        ("prompt tokens", _number(document["prompt_tokens"])),
        ("output tokens", _tokens(document)),
        ("finish reason", document["finish_reason"] or ""),
    )
    lines += [f"note: {WARNINGS.get(code, code)}" for code in document["warnings"]]
    if document.get("text"):
        lines += ["", clean(document["text"], lines=True)]
    return "\n".join(lines)


def _outcome(document: Mapping[str, Any]) -> str:
    status = f"HTTP {document['http_status']}" if document["http_status"] else "no reply"
    if document["status"] == "ok":
        return f"ok, {status}"
    return f"{document['status']}: {document['error']}, {status}: {document['error_detail'] or ''}".rstrip(": ")


def _tokens(document: Mapping[str, Any]) -> str:
    if document["output_tokens"] is None:
        return ""
    events = len(document["gap_s"]) + 1 if document["e2e_s"] is not None else 0
    return f"{document['output_tokens']} in {plural(events, 'event')} (counted by: {document['token_source']})"


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _pairs(*pairs: tuple[str, str]) -> list[str]:
    width = max(len(name) for name, _ in pairs)
    return [f"  {name.ljust(width)}  {value}" for name, value in pairs if value]
