"""What the events of an answer say, in chat, completions and responses. Pure.

Typed and quick where servers do what they document, tolerant where they do not: no shape of JSON raises.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from loadramp.client.stream.usage import Usage, struct_of
from loadramp.client.stream.vendor_quirks import (
    call_size,
    delta_in,
    failure_in,
    mapping_of,
    mappings_in,
    text_in,
    text_of,
    too_many_parts,
    usage_in,
)
from loadramp.record.sanitize import clean

MOST_CHOICES = 1024
_NO_REASON = frozenset({"", "null", "none", "finish_reason_unspecified"})
"""Finish reasons of an answer that goes on, as servers write them that print an empty value."""


class Delta(msgspec.Struct, gc=False):
    """What one event adds to one choice (``delta``), or a whole reply (``message``)."""

    content: Any = None
    reasoning: Any = None
    reasoning_content: Any = None
    reasoning_text: Any = None
    reasoning_details: Any = None
    thinking: Any = None
    thinking_blocks: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    usage: Any = None
    finish_reason: Any = None
    finishReason: Any = None  # noqa: N815  # a server's spelling


class ChoiceDelta(msgspec.Struct, gc=False):
    index: Any = 0
    delta: Delta | None = None
    message: Delta | None = None
    text: Any = None
    finish_reason: Any = None
    finishReason: Any = None  # noqa: N815
    error: Any = None
    usage: Any = None


class Event(msgspec.Struct, gc=False):
    """The data of one event, or a whole JSON reply, of any of the three APIs."""

    choices: list[ChoiceDelta] | None = None
    usage: Usage | None = None
    error: Any = None
    detail: Any = None
    message: Any = None
    code: Any = None
    object: Any = None
    type: Any = None
    delta: Any = None
    text: Any = None
    item: Any = None
    response: Any = None
    output: Any = None
    status: Any = None
    incomplete_details: Any = None
    finish_reason: Any = None
    finishReason: Any = None  # noqa: N815


class Output(NamedTuple):
    """What one event generated for one choice: ``size`` characters, of which ``text`` is the visible answer."""

    choice: int
    size: int
    reasoning: bool
    text: str
    source: str = ""
    """What may say once more what was streamed before: a ``message``, or the closing event of that name."""


_CLOSING = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
_decoder = msgspec.json.Decoder(Event)


def read_event(payload: bytes) -> Event | None:
    """The event in ``payload``; None when it is not a JSON object.

    What the typed decoder refuses (odd types, NaN, lone surrogates, broken UTF-8) is read once more with patience.
    """
    if too_many_parts(payload):
        return None
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raw = mapping_of(payload)
    return None if raw is None else _loose(raw)


def _loose(raw: Mapping[str, Any]) -> Event:
    """An Event from any mapping: parts of the wrong type are left out."""
    event = Event(**{name: raw.get(name) for name in Event.__struct_fields__ if name not in {"choices", "usage"}})
    usage = raw.get("usage")
    event.usage = struct_of(Usage, usage) if isinstance(usage, dict) else None
    choices = raw.get("choices")
    if isinstance(choices, list):
        event.choices = [_loose_choice(choice) for choice in choices if isinstance(choice, dict)]
    return event


def _loose_choice(raw: Mapping[str, Any]) -> ChoiceDelta:
    delta, message = (
        struct_of(Delta, part) if isinstance(part, dict) else None for part in (raw.get("delta"), raw.get("message"))
    )
    more = {name: raw.get(name) for name in ("index", "text", "finish_reason", "finishReason", "error", "usage")}
    return ChoiceDelta(delta=delta, message=message, **more)


def event_of_sdk(chunk: Any) -> Event:
    """The event that the openai SDK made a pydantic model of."""
    raw = chunk.model_dump(warnings=False)
    event = _loose(raw)
    look_again(event, raw)
    return event


def look_again(event: Event, raw: Mapping[str, Any]) -> None:
    """Fill in what ``event``, read from ``raw``, lacks, from where no document has it."""
    usage = usage_of(event)
    if (usage is None or not usage.counts) and (found := usage_in(raw)) is not None:
        event.usage = struct_of(Usage, found)
    event.error = event.error or failure_in(raw)
    if event.type is not None:
        event.text = event.text or text_in(raw)
    for choice, given in zip(event.choices or (), mappings_in(raw.get("choices")), strict=False):
        if output_of(choice) is None and (added := delta_in(given)) is not None:
            choice.delta = struct_of(Delta, added)


def outputs(event: Event) -> list[Output]:
    """What ``event`` generated, an entry for each choice; role-only, empty, usage-only and finish-only give none."""
    if event.choices:
        found = (output_of(choice) for choice in event.choices)
        return [output for output in found if output is not None]
    if isinstance(event.output, list) and event.object == "response":
        return _reply_items(event.output)
    kind = event.type
    if isinstance(kind, str) and kind.startswith("response."):
        return _response_output(event, kind)
    return []


class Indexed(Protocol):
    @property
    def index(self) -> Any: ...


def index_of(choice: Indexed) -> int:
    """The number of the answer that ``choice`` belongs to; 0 where it says none that can be."""
    index = choice.index
    return index if type(index) is int and 0 <= index < MOST_CHOICES else 0


def output_of(choice: ChoiceDelta) -> Output | None:
    index = index_of(choice)
    if choice.delta is not None and (found := _part(index, choice.delta)) is not None:
        return found
    if choice.text and (text := text_of(choice.text)):
        return Output(index, len(text), False, text)
    return None if choice.message is None else _part(index, choice.message, "message")


def _part(index: int, part: Delta, source: str = "") -> Output | None:
    text = text_of(part.content, thoughts=False)
    thought = len(_thought(part)) or len(text_of(part.content)) - len(text)
    text += text_of(part.refusal)
    calls = sum(map(call_size, _listed(part.tool_calls))) + call_size(part.function_call)
    size = len(text) + calls + thought
    return Output(index, size, not (text or calls), text, source) if size else None


def _thought(part: Delta) -> str:
    """Reasoning under whichever name it comes; servers that send it under two names send it once under each."""
    for value in (
        part.reasoning,
        part.reasoning_content,
        part.reasoning_text,
        part.thinking,
        part.reasoning_details,
        part.thinking_blocks,
    ):
        if value and (text := text_of(value)):
            return text
    return ""


def _response_output(event: Event, kind: str) -> list[Output]:
    if kind.endswith(".delta"):
        text = text_of(event.delta)
        visible = text if kind in {"response.output_text.delta", "response.refusal.delta"} else ""
        return [Output(0, len(text), "reasoning" in kind, visible)] if text else []
    if kind == "response.output_item.added" and isinstance(event.item, dict):
        size = call_size(event.item) if str(event.item.get("type")).endswith("_call") else 0
        return [Output(0, size, False, "")] if size else []
    if (reply := final_response(event)) is not None:
        return _reply_items(_listed(reply.output), kind)
    if kind == "response.output_item.done":
        return _reply_items([event.item], kind)
    if kind.endswith(".done") and (text := text_of(event.text)):
        visible = "" if "reasoning" in kind or "call" in kind else text
        return [Output(0, len(text), "reasoning" in kind, visible, kind)]
    return []


def _reply_items(items: list[Any], source: str = "") -> list[Output]:
    """One Output of the items of a reply of the responses API."""
    parts = [item for item in items if isinstance(item, dict)]
    text = "".join(text_of(p.get("content")) for p in parts if p.get("type") in ("message", None))
    thought = "".join(text_of(p.get("content") or p.get("summary")) for p in parts if p.get("type") == "reasoning")
    calls = sum(call_size(p) for p in parts if str(p.get("type")).endswith("_call"))
    size = len(text) + len(thought) + calls
    return [Output(0, size, not (text or calls), text, source)] if size else []


def finishes(event: Event) -> list[tuple[int, str]]:
    """(choice, reason) of every choice that ``event`` ends. Responses: ``stop``, ``length`` or the reason given."""
    if event.choices:
        general = _reason_beside(event)
        return [(index_of(choice), reason) for choice in event.choices if (reason := reason_in(choice) or general)]
    reply = final_response(event)
    if reply is None:
        return [(0, reason)] if event.choices is not None and (reason := _reason_beside(event)) else []
    if reply.status in (None, "failed", "cancelled", "in_progress", "queued"):
        return []
    if reply.status != "incomplete":
        return [(0, "stop" if reply.status == "completed" else _word(str(reply.status)))]
    why = reply.incomplete_details.get("reason") if isinstance(reply.incomplete_details, dict) else None
    return [(0, "length" if why in (None, "max_output_tokens", "max_tokens") else _word(str(why)))]


def reason_in(choice: ChoiceDelta) -> str:
    """Why ``choice`` ended, from itself or from what it holds; empty: it goes on."""
    if choice.finish_reason is not None and (reason := reason_of(choice.finish_reason)):
        return reason
    for part in (choice, choice.delta, choice.message):
        if part is not None and (reason := _reason_beside(part)):
            return reason
    return ""


def _reason_beside(part: ChoiceDelta | Delta | Event) -> str:
    return reason_of(part.finish_reason) or reason_of(part.finishReason)


def reason_of(value: Any) -> str:
    if isinstance(value, dict):  # engines' native form: {"type": "length", "length": 64}
        value = value.get("type")
    return _word(value) if isinstance(value, str) and value.lower() not in _NO_REASON else ""


def _word(text: str) -> str:
    return clean(text[:100])


def usage_of(event: Event) -> Usage | None:
    """Token counts that ``event`` carries, wherever its API puts them."""
    if event.usage is not None:
        return event.usage
    for choice in event.choices or ():
        for held in (choice, choice.delta, choice.message):
            if held is not None and isinstance(held.usage, dict):
                return struct_of(Usage, held.usage)
    reply = final_response(event)
    return None if reply is None else reply.usage


def final_response(event: Event) -> Event | None:
    """The response object of a closing event (or of a whole reply) of the responses API. Where it does not say its
    status the event's type does."""
    if event.object == "response" and not event.choices:
        return event
    status = _CLOSING.get(event.type) if isinstance(event.type, str) else None
    if status is None:
        return None
    reply = _loose(event.response) if isinstance(event.response, dict) else Event()
    if reply.status not in _CLOSING.values():
        reply.status = status
    return reply


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if value else []
