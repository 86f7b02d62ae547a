"""Names and places that no API documents and servers use all the same, as read from an event's mapping. Pure.

Only what brought nothing under its documented name is looked for here, so that plain events need no second look.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from loadramp.client.stream.sse import tells_failure

_LONG_DIGITS = 30
MOST_PARTS = 400_000
MOST_DEPTH = 32
"""Of lists and objects within each other, of which words are read: beyond it there are none for people."""
_THOUGHT = re.compile(r"reason|think|thought|(^|_)cot(_|$)", re.IGNORECASE)
_NO_THOUGHT = re.compile(  # what is said about a thought, and why an answer ended
    r"finish|stop|token|effort|signature|status|type|format|mode|level|budget|time|duration|start|complete|done"
    r"|(^|_)(end|ids?)(_|$)|Id$",
    re.IGNORECASE,
)
_CAMEL = {"tool_calls": "toolCalls", "function_call": "functionCall"}
_FAILURES = ("errors", "error_message", "error_msg", "errorMessage", "errorMsg", "errmsg", "err", "fault", "exception")
_CODES = ("code", "statusCode", "status_code", "error_code", "errorCode", "errcode")
_FINE = frozenset({"", "0", "200", "ok", "success", "succeeded", "completed", "none", "null", "false", "true"})


def mapping_of(payload: bytes) -> dict[str, Any] | None:
    """The JSON object in ``payload``, or the only one in a list of one; None when it is something else."""
    if too_many_parts(payload):
        return None
    try:
        raw = msgspec.json.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        try:
            raw = json.loads(payload.decode("utf-8", "replace"), parse_int=_number)
        except (ValueError, RecursionError):
            return None
    if isinstance(raw, list) and len(raw) == 1:
        raw = raw[0]
    return raw if isinstance(raw, dict) else None


def too_many_parts(payload: bytes) -> bool:
    """JSON of more than MOST_PARTS lists and objects, each of which takes up to 30 times its bytes in memory. No answer
    has so many: 20 alternatives for each of 10,000 tokens are half of that."""
    return len(payload) > 2 * MOST_PARTS and payload.count(b"[") + payload.count(b"{") > MOST_PARTS


def _number(digits: str) -> float:
    """An integer of any length; Python reads those of up to 4,300 digits only."""
    return int(digits) if len(digits) < _LONG_DIGITS else float(digits)


def text_of(value: Any, *, thoughts: bool = True, depth: int = MOST_DEPTH) -> str:
    """Text given as a string, an object that holds it, or a list of these; without ``thoughts`` only the answer."""
    if isinstance(value, str):
        return value
    if depth == 0:
        return ""
    if isinstance(value, list):
        return "".join(text_of(part, thoughts=thoughts, depth=depth - 1) for part in value)
    if isinstance(value, dict):
        if not thoughts and value.get("type") in ("thinking", "reasoning", "reasoning_text"):
            return ""
        for key in ("text", "content", "thinking", "summary", "refusal", "data"):
            if value.get(key):
                return text_of(value[key], thoughts=thoughts, depth=depth - 1)
    return ""


def call_size(call: Any) -> int:
    """Characters of a tool call's name and arguments (text, or an object where a server does not stringify)."""
    if not isinstance(call, dict):
        return 0
    inner = next((call[key] for key in ("function", "custom") if isinstance(call.get(key), dict)), call)
    given = (inner.get("name"), inner.get("arguments"), inner.get("input"))
    return sum(len(value if isinstance(value, str) else json.dumps(value)) for value in given if value)


def mappings_in(value: Any) -> list[dict[str, Any]]:
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def delta_in(choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a choice adds, in the names of a delta: a delta that is bare text, text or thoughts under other names in it,
    or anything at all beside it. None: nothing."""
    for part in (choice.get("delta"), choice):
        if isinstance(part, str) and part:
            return {"content": part}
        if not isinstance(part, Mapping):
            continue
        found = {**part, "content": part.get("content") or part.get("text")}
        thought = next((value for key, value in part.items() if _is_thought(key) and text_of(value)), None)
        if thought is not None:
            found["reasoning"] = thought
        for key, other in _CAMEL.items():
            found[key] = found.get(key) or found.get(other)
        if any(found.get(key) for key in ("content", "reasoning", "refusal", "tool_calls", "function_call")):
            return found
    return None


def usage_in(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Token counts one level down (``x_groq``), or those that llama.cpp keeps beside its times."""
    for holder in raw.values():
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            usage: dict[str, Any] = holder["usage"]
            return usage
    timings = raw.get("timings")
    if not isinstance(timings, dict):
        return None
    fresh, kept = timings.get("prompt_n"), timings.get("cache_n")
    prompt = fresh + kept if type(fresh) is int and type(kept) is int else fresh
    return {
        "prompt_tokens": prompt,
        "completion_tokens": timings.get("predicted_n"),
        "prompt_tokens_details": {"cached_tokens": kept},
    }


def failure_in(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The part of an event that reports a failure in other words than ``error``; None: it does not."""
    if any(_says(raw.get(key)) for key in _FAILURES):
        return raw
    base = raw.get("base_resp")  # MiniMax; in every event
    if isinstance(base, dict) and _says(base.get("status_code")):
        return base
    if raw.get("choices"):
        return None
    codes = [raw.get(key) for key in _CODES]
    named = (raw.get("message") or raw.get("msg")) and any(map(_says, codes))
    failed = any(map(_fails, [*codes, raw.get("status")]))  # a status in words may also be "queued"
    return raw if named or failed or raw.get("success") is False else None


def text_in(raw: Mapping[str, Any]) -> str:
    """The text of an event of the responses API that closes a part."""
    return text_of([raw.get(key) for key in ("refusal", "arguments", "part")])


def _is_thought(key: str) -> bool:
    return _THOUGHT.search(key) is not None and _NO_THOUGHT.search(key) is None


def _fails(code: Any) -> bool:
    return tells_failure(code) if isinstance(code, str) else type(code) is int and 400 <= code < 600


def _says(value: Any) -> bool:
    return bool(value) and str(value).lower() not in _FINE
