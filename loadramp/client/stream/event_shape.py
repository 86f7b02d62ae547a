"""The shape of a plain event: what of its bytes stays the same in the events that follow, and what may differ. Pure.

The reader in C compares bytes and parses nothing. What may differ is found by name here, and the parser proves it: the
event is parsed once more with other values in all these places, and must say the same but for its text and its count.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from loadramp.client.stream.event_batch import PlainEvent, RunningUsage, plain_event
from loadramp.client.stream.known_event import known_event

Hole = Literal["end", "text", "any_text", "string", "number", "count", "same", "line"]
MOST_PARTS, SHAPE_BYTES = 16, 4096
"""Limits of the reader in C."""
KNOWN = 256
"""So many shapes are known at once."""

_HOLES = re.compile(
    rb'"(content|text|id|obfuscation|created|total_tokens|prompt_tokens|completion_tokens)": *+'
    rb'(?:("(?:[^"\\]++|\\.)*+")|(\d++)(?=[,}]))'
)
_BEFORE_ANSWER: dict[bytes, Hole] = {
    b"id": "string",
    b"obfuscation": "string",
    b"created": "number",
    b"total_tokens": "number",
    b"completion_tokens": "number",  # none so far
    b"prompt_tokens": "same",
}
_IN_ANSWER: dict[bytes, Hole] = {**_BEFORE_ANSWER, b"content": "text", b"text": "text"}
_ALL: dict[bytes, Hole] = {**_IN_ANSWER, b"completion_tokens": "count"}
_PROBE_TEXT, _PROBE_TOKENS, _PROBE_PROMPT = "an other text", 1_234_567, 2_345_678
_PROBES: dict[Hole, bytes] = {
    "text": b'"an other text"',
    "string": b'"an other string"',
    "number": b"7654321",
    "count": b"1234567",
    "same": b"2345678",
}
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,6})\r\ndata: ([^\r]*)\n\n\r\n")
_HEADER = re.compile(rb"([A-Za-z0-9-]+): ([^\r\n]*)")
_DECISIVE = frozenset(
    {
        b"connection", b"content-encoding", b"content-length", b"content-type", b"keep-alive", b"location",
        b"retry-after", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip
"""Headers that say how the reply is to be read: of another value it is another reply."""
_FINAL = re.compile(rb'"finish_reason": ?"|"choices": ?\[\]')


Parts = tuple[tuple[bytes, Hole], ...]
"""Bytes of a whole chunk behind its size, and what follows them; the last is followed by nothing (``end``)."""


class Shape(NamedTuple):
    parts: Parts
    choice: int
    """Index of the choice that the events belong to."""
    usage: RunningUsage | None
    """Their usage, whose count grows; None where they have none."""


@dataclass(slots=True, frozen=True)
class NotedEvents:
    """Events of one shape, in the order they came; n of them."""

    shape: Shape
    stamps_s: list[float]
    """When each arrived, absolute seconds on the loop's clock, shape n."""
    tokens: list[int]
    """Completion tokens so far, shape n; ``token_counts.UNKNOWN`` where the shape has no count."""
    characters: list[int]
    """Of the text of each, shape n; 0 where it has none."""
    json_texts: bytes
    """The texts as JSON, a line each."""
    prompt_tokens: int = -1
    """What all of them say of the prompt; -1 where they say nothing."""

    def texts(self) -> list[str]:
        return msgspec.json.Decoder(str).decode_lines(self.json_texts)


class Opening(NamedTuple):
    """How a reply begins: its head, and the chunk before the answer, or with its first event in it (empty: none)."""

    head: Parts
    prelude: Parts


def opening_of(begin: bytes) -> Opening | None:
    """The opening of other replies that begin as ``begin`` does, whose answer could be noted; None: nothing can be
    said.

    Nothing is taken for granted but how much of a reply may wait: what opens it is parsed.
    """
    head, blank, body = begin.partition(b"\r\n\r\n")
    prelude: Parts = ()
    while blank and (found := _CHUNK.match(body)) is not None and int(found[1], 16) == len(found[2]) + 8:
        before, _, last = found[2].rpartition(b"\n\ndata: ")
        begun = plain_event(last) is not None
        if before or not begun:
            parts = _parts_of(found[2], _IN_ANSWER if begun else _BEFORE_ANSWER)
            if prelude and prelude != parts:
                return None
            prelude = parts
        if begun:
            opening = Opening(_head_parts(head), prelude)
            return opening if all(map(_fits, opening)) else None
        body = body[found.end() :]
    return None


def ends_an_answer(payload: bytes) -> bool:
    """Other events will not be as this one is."""
    return _FINAL.search(payload) is not None


def shape_of(payload: bytes, known: dict[Parts, Shape]) -> Shape | None:
    """The shape of the plain event ``payload``; None when it is no plain event, or nothing can be said of others.
    ``known``: the shapes found before, of other streams as well; it is added to."""
    parts = _parts_of(payload)
    shape = known.get(parts) or _proved(payload, parts)
    if shape is not None:
        if len(known) >= KNOWN:
            known.clear()
        known[parts] = shape
    return shape


def _parts_of(payload: bytes, holes: Mapping[bytes, Hole] = _ALL) -> Parts:
    """``holes``: what may differ, by its key."""
    parts: list[tuple[bytes, Hole]] = []
    begin, before = 0, b"\r\ndata: "
    for found in _HOLES.finditer(payload):
        hole = holes.get(found[1])
        if hole is not None and (hole in {"text", "string"}) == bool(found[2]):
            at, end = found.span(2 if found[2] else 3)
            parts.append((before + payload[begin:at], hole))
            begin, before = end, b""
    parts.append((before + payload[begin:] + b"\n\n\r\n", "end"))
    return tuple(parts)


def _head_parts(head: bytes) -> Parts:
    """Values may be others but of the headers that say how to read the reply."""
    parts: list[tuple[bytes, Hole]] = []
    status, *lines = head.split(b"\r\n")
    before = status
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None or found[1].lower() in _DECISIVE:
            before += b"\r\n" + line
        else:
            parts.append((before + b"\r\n" + found[1] + b": ", "line"))
            before = b""
    return *parts, (before + b"\r\n\r\n", "end")


def _fits(parts: Parts) -> bool:
    return len(parts) <= MOST_PARTS and sum(len(literal) for literal, _ in parts) <= SHAPE_BYTES


def _proved(payload: bytes, parts: Parts) -> Shape | None:
    event = plain_event(payload)
    if event is None or b"\n" in payload or b"\r" in payload:
        return None
    kinds = [hole for _, hole in parts]
    counts = event.usage is not None
    if not _fits(parts) or kinds.count("text") != 1 or (kinds.count("count"), kinds.count("same")) != (counts, counts):
        return None
    index, usage = event.choices[0].index, event.usage and msgspec.structs.replace(event.usage)
    if plain_event(_probe(parts)) != _as_probed(event):
        return None
    silent = known_event(_probe(parts, {"text": b'""'}))
    if silent is not None and not silent.choices[0].output and silent.choices[0].finish_reason is None:
        # a token without text, such as the first bytes of a character, ends no batch
        parts = tuple((literal, "any_text" if hole == "text" else hole) for literal, hole in parts)
    return Shape(parts, index, usage)


def _probe(parts: Parts, others: Mapping[Hole, bytes] = MappingProxyType({})) -> bytes:
    """``others``: values that are not those of ``_PROBES``."""
    whole = b"".join(literal + others.get(hole, _PROBES.get(hole, b"")) for literal, hole in parts)
    return whole[len(b"\r\ndata: ") : -len(b"\n\n\r\n")]


def _as_probed(event: PlainEvent) -> PlainEvent:
    """What the parser must say of the probe if the holes are what they are taken for."""
    choice = event.choices[0]
    if choice.delta is None:
        choice.text = _PROBE_TEXT
    else:
        choice.delta.content = _PROBE_TEXT
    if event.usage is not None:
        event.usage.completion_tokens, event.usage.prompt_tokens = _PROBE_TOKENS, _PROBE_PROMPT
    return event
