"""Batch fast path: each read is one whole chunk with one content event. Pure.

Such a batch is parsed in a few calls, at a third of the cost; any other goes through the parsers that understand
everything. Both give the same result (tests/client/test_event_batch.py).
"""

import re
from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from loadramp.client.stream.events import MOST_CHOICES, Delta
from loadramp.client.stream.usage import MOST_TOKENS, Usage

_CHUNK = re.compile(rb"([0-9a-fA-F]{1,6})\r\ndata: (\{.*\})\n\n\r\n")
_AROUND_DATA, _AROUND_EVENT = len("\r\n\r\n"), len("data: \n\n")
_AFTER_JSON = len("\n\n\r\n")

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class EventBatch(NamedTuple):
    """Reads of which each is one whole chunk with one event in JSON, in the order they came; n of them."""

    data: bytes
    """All of them, joined."""
    starts: list[int]
    """Where the JSON of each begins in ``data``, shape n; it ends four bytes before the read does."""
    ends: list[int]
    """Where each read ends, shape n."""
    stamps_s: list[float]
    """When each arrived, absolute seconds on the loop's clock, shape n."""

    def payloads(self) -> list[bytes]:
        data = self.data
        return [data[start : end - _AFTER_JSON] for start, end in zip(self.starts, self.ends, strict=True)]

    def reads(self) -> list[bytes]:
        data = self.data
        return [data[start:end] for start, end in zip([0, *self.ends], self.ends, strict=False)]


class RunningUsage(Usage, gc=False, kw_only=True):
    """Counts that need no second look."""

    prompt_tokens: Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
    completion_tokens: Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)]


_Delta = msgspec.defstruct(
    "_Delta",
    [("content", _Text), *((name, None, None) for name in Delta.__struct_fields__ if name != "content")],
    gc=False,
)
"""Content, and nothing else that is generated."""


class _Choice(msgspec.Struct, gc=False):
    delta: _Delta | None = None  # type: ignore[valid-type]
    text: _Text | None = None
    index: Annotated[int, msgspec.Meta(ge=0, lt=MOST_CHOICES)] = 0
    message: None = None
    finish_reason: None = None
    finishReason: None = None  # noqa: N815
    error: None = None
    usage: None = None


class PlainEvent(msgspec.Struct, gc=False):
    """An event that adds text to one choice and says nothing more, but perhaps how many tokens there were so far."""

    choices: tuple[_Choice]
    usage: RunningUsage | None = None
    error: None = None
    finish_reason: None = None
    finishReason: None = None  # noqa: N815


_decoder = msgspec.json.Decoder(PlainEvent)


def first_payload(read: bytes) -> bytes | None:
    """The JSON of the event with which ``read`` begins, where that is a whole chunk."""
    found = _CHUNK.match(read)
    return found[2] if found is not None and int(found[1], 16) == len(found[2]) + _AROUND_EVENT else None


def plain_events(reads: Sequence[bytes]) -> list[PlainEvent] | None:
    """The event of each of ``reads`` (the first starts a chunk); None when any of them is something else."""
    found = _CHUNK.findall(b"".join(reads))
    if len(found) != len(reads):
        return None
    for read, (size, payload) in zip(reads, found, strict=True):
        inner = len(payload) + _AROUND_EVENT
        if int(size, 16) != inner or len(read) != len(size) + inner + _AROUND_DATA:
            return None
    return events_of([payload for _, payload in found])


def events_of(payloads: Sequence[bytes]) -> list[PlainEvent] | None:
    """The event in each of ``payloads``, which hold no line feed; None when any of them is something else."""
    lines = b"\n".join(payloads)
    if b"\r" in lines:  # ends a line of an event, too
        return None
    try:  # by line: no text holds a bare line feed, so what is broken cannot borrow from its neighbour
        events = _decoder.decode_lines(lines)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    return events if len(events) == len(payloads) else None


def plain_event(payload: bytes) -> PlainEvent | None:
    """The event in ``payload``; None when it is something else."""
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
