"""What one row of a JSON file asks for, in the many forms that tools write. Pure.

A row without a request that can be sent is a ValueError that says why. Settings that a run does not follow are counted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import msgspec

from loadramp.record.types import Prompt
from loadramp.scenario.scenario import Target
from loadramp.units import plural
from loadramp.workload.prompts.lines import RowCounts

PROMPTS = ("prompt", "text", "text_input", "question", "instruction", "problem", "query", "input", "content")
SYSTEMS = ("system_prompt", "system", "prefix")
OUTPUTS = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "output_tokens", "output_length", "completion_tokens",
    "output_tokens_count", "completion_tokens_count", "tok_output_length",
)  # fmt: skip
INPUTS = ("input_tokens", "prompt_tokens_count", "input_tokens_count", "tok_input_length", "input_length")
TIMES = ("timestamp", "time", "arrived_at")
BODY = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "temperature", "top_p", "stop", "seed")
UNSENT = (
    "frequency_penalty", "presence_penalty", "repetition_penalty", "top_k", "min_p", "logprobs", "top_logprobs",
    "logit_bias", "best_of", "echo", "suffix", "ignore_eos", "min_tokens", "reasoning_effort", "chat_template_kwargs",
    "functions", "function_call",
)  # fmt: skip
"""Fields of requests that a row without a ``body`` may have, and that are not sent."""
PATHS = ("/chat/completions", "/completions", "/responses")
_API = {"chat": "/chat/completions", "completions": "/completions", "responses": "/responses"}
MOST_NAMES = 3
_OURS = {"model", "messages", "prompt", "input", "stream", "stream_options", "n", *OUTPUTS}


def requests_of(row: Mapping[str, Any], tally: RowCounts) -> list[Prompt]:
    """The requests of a row: one, or one for each of its ``payloads``.

    Raises:
        ValueError: it asks for nothing that can be sent; says why.
    """
    payloads = row.get("payloads", row.get("payload"))
    if payloads is None:
        return [_request_of(row, _body_of(row), tally)]
    listed = payloads if isinstance(payloads, list) else [payloads]
    if not listed or not all(isinstance(item, dict) for item in listed):
        raise ValueError("a payload that is no object")
    outer = {key: value for key, value in row.items() if key not in ("payload", "payloads")}
    prompts = [_request_of(outer, item, tally) for item in listed]
    if len(prompts) > 1:
        tally.setting("turns", "", len(prompts) - 1)
    return prompts


def _body_of(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The body of a row of a batch file; None where the row itself is the request."""
    url, method, body = row.get("url"), row.get("method"), row.get("body")
    path = urlsplit(url).path.rstrip("/") if isinstance(url, str) else ""
    if isinstance(url, str) and body is not None and not path.endswith(PATHS):
        raise ValueError(f"for {path or url}"[:60])
    if isinstance(method, str) and body is not None and method.upper() != "POST":
        raise ValueError(f"method {method}"[:60])
    if isinstance(row.get("response"), dict) and "custom_id" in row:
        raise ValueError("the answer to a batch row, not a request")
    if isinstance(body, str):
        try:
            body = msgspec.json.decode(body)
        except msgspec.DecodeError:
            raise ValueError("a body given as text that is no JSON") from None
        if not isinstance(body, dict):
            raise ValueError("a body that is no object")
    return body if isinstance(body, dict) else None


def _request_of(row: Mapping[str, Any], body: Mapping[str, Any] | None, tally: RowCounts) -> Prompt:
    inner = row if body is None else body
    n = _only(inner.get("n"))
    if isinstance(n, int) and n > 1:
        raise ValueError("more than one answer (n)")
    if body is not None:
        extra = {key: value for key, value in body.items() if key not in _OURS}
    else:
        extra = {key: row[key] for key in BODY if row.get(key) is not None}
    asked = Prompt(
        input_tokens=length_of(row, INPUTS),
        output_tokens=length_of(inner, OUTPUTS),
        body=extra or None,
        label=str(row.get("label") or row.get("category") or ""),
    )
    messages = messages_of(inner)
    asked = replace(asked, messages=messages) if messages else replace(asked, text=_text(inner))
    _count(row, inner, asked, tally)
    return asked


def _count(row: Mapping[str, Any], inner: Mapping[str, Any], asked: Prompt, tally: RowCounts) -> None:
    """Count what the row says that the run may not do."""
    model, stream = _only(inner.get("model")), _only(inner.get("stream"))
    if isinstance(model, str) and model:
        tally.setting("model", model)
    if isinstance(stream, bool):
        tally.setting("stream", "yes" if stream else "no")
    if asked.messages and asked.messages[-1].get("role") == "assistant":
        tally.setting("last", "assistant")
    if row.get("delay") is not None and all(row.get(key) is None for key in TIMES):
        tally.setting("delay")
    if isinstance(row.get("url"), str):
        path = urlsplit(row["url"]).path.rstrip("/")
        tally.setting(
            "url", next(ending for ending in PATHS if path.endswith(ending)) if path.endswith(PATHS) else path
        )
    if inner is row:
        for name in UNSENT:
            if row.get(name) is not None:
                tally.setting("field", name)


def messages_of(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...] | None:
    """Chat messages as a row gives them; a conversation only up to what is asked first."""
    given = row.get("messages", row.get("input") if isinstance(row.get("input"), list) else None)
    if isinstance(given, list):
        usable = [message for message in given if isinstance(message, dict) and message.get("role")]
        if not usable or len(usable) != len(given):
            raise ValueError("messages without a role")
        return tuple(usable)
    turns = row.get("conversations")
    if isinstance(turns, list):
        opening = turns[0].get("content", turns[0].get("value")) if turns and isinstance(turns[0], dict) else None
        if not isinstance(opening, str) or not opening.strip():
            raise ValueError("an empty prompt")
        return ({"role": "user", "content": opening},)
    return None


def _text(row: Mapping[str, Any]) -> str:
    name = next((key for key in PROMPTS if row.get(key) is not None), None)
    if name is None:
        raise ValueError("no prompt")
    asked = _only(row[name])
    if not isinstance(asked, str):
        raise ValueError(f"{name} is no text")
    if not asked.strip():
        raise ValueError("an empty prompt")
    parts = [row.get(key) for key in (*SYSTEMS, "context")]
    more = row.get("input") if name == "instruction" else None
    return "\n\n".join(part for part in (*parts, asked, more) if isinstance(part, str) and part.strip())


def length_of(row: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    """The first of ``keys`` that the row has, as a number of tokens; numbers may be text.

    Raises:
        ValueError: it is none, or below 1.
    """
    value = _only(next((row[key] for key in keys if row.get(key) is not None), None))
    if value is None:
        return None
    try:
        tokens = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("a length that is no number") from None
    if tokens < 1 or isinstance(value, bool):
        raise ValueError("a length below 1")
    return tokens


def _only(value: Any) -> Any:
    """A value as it is, or the only one of a list or tensor (``{"content": [..], "shape": [1]}``)."""
    if isinstance(value, dict) and isinstance(value.get("content"), list) and "shape" in value:
        value = value["content"]
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def ignored_settings(tally: RowCounts, target: Target, model: str = "") -> list[str]:
    """A line for each thing that rows say and the run does not do.

    Args:
        tally: of one file that was read.
        target: how requests are sent.
        model: the model that is asked; empty: not known yet.
    """
    settings, out = tally.settings, []
    others = {name: n for name, n in settings.get("model", {}).items() if name != model}
    if others and model:
        out.append(f"{_rows(others, 'name', 'another model')} ({_names(others)}): {model} is asked")
    elif others:
        out.append(f"{_rows(others, 'name', 'a model')} ({_names(others)}): the model of the run is asked")
    unlike = {name: n for name, n in settings.get("stream", {}).items() if (name == "yes") != target.stream}
    if unlike and target.stream:
        out.append(f"{_rows(unlike, 'ask', 'for no stream')}: streamed all the same")
    elif unlike:
        out.append(f"{_rows(unlike, 'ask', 'for a stream')}: not streamed ([target] stream = false)")
    elsewhere = {name: n for name, n in settings.get("url", {}).items() if name != _API[target.api]}
    if elsewhere:
        out.append(f"{_rows(elsewhere, 'is', 'are', verb=True)} for {_names(elsewhere)}: sent to {_API[target.api]}")
    if last := settings.get("last"):
        out.append(f"{_rows(last, 'end', 'with an assistant message')}: sent as it stands")
    if delay := settings.get("delay"):
        out.append(f"{_rows(delay, 'have', 'a delay and no time stamp')}: the delay is not followed")
    if turns := settings.get("turns"):
        out.append(f"{plural(sum(turns.values()), 'later payload')} of sessions: each is a request of its own")
    if fields := settings.get("field"):
        out.append(f"fields of rows are not sent: {_names(fields)}; [prompts] body sends them with every request")
    return [f"{tally.file}: {line}" for line in out]


def _rows(counted: Mapping[str, int], verb_: str, rest: str, *, verb: bool = False) -> str:
    """``1 row names another model``, ``2 rows name another model``."""
    n = sum(counted.values())
    if verb:
        return f"{plural(n, 'row')} {verb_ if n == 1 else rest}"
    singular = {"have": "has"}.get(verb_, f"{verb_}s")
    return f"{plural(n, 'row')} {singular if n == 1 else verb_} {rest}"


def _names(counted: Mapping[str, int]) -> str:
    names = sorted(counted, key=lambda name: -counted[name])
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
