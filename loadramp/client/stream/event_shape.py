"""The shape of a plain event: what of its bytes stays the same in the events that follow, and what may differ. Pure.

The reader in C compares bytes and parses nothing. What may differ is found by name here, and the parser proves it: the
event is parsed once more with other values in all these places, and must say the same but for its text and its count.
"""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from loadramp.client.stream.event_batch import PlainEvent, RunningUsage, plain_event

Hole = Literal["end", "text", "string", "number", "count"]
MOST_PARTS, SHAPE_BYTES = 16, 4096
"""Limits of the reader in C."""
KNOWN = 256
"""So many shapes are known at once."""

_HOLES = re.compile(
    rb'"(content|text|id|obfuscation|created|total_tokens|completion_tokens)": *+'
    rb'(?:("(?:[^"\\]++|\\.)*+")|(\d++)(?=[,}]))'
)
_STRINGS: dict[bytes, Hole] = {b"content": "text", b"text": "text", b"id": "string", b"obfuscation": "string"}
_NUMBERS: dict[bytes, Hole] = {b"completion_tokens": "count", b"created": "number", b"total_tokens": "number"}
_PROBE_TEXT, _PROBE_TOKENS = "an other text", 1_234_567
_PROBES: dict[Hole, bytes] = {
    "text": b'"an other text"',
    "string": b'"an other string"',
    "number": b"7654321",
    "count": b"1234567",
}


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
    """Of the text of each, shape n."""
    json_texts: bytes
    """The texts as JSON, a line each."""

    def texts(self) -> list[str]:
        return msgspec.json.Decoder(str).decode_lines(self.json_texts)


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


def _parts_of(payload: bytes) -> Parts:
    parts: list[tuple[bytes, Hole]] = []
    begin, before = 0, b"\r\ndata: "
    for found in _HOLES.finditer(payload):
        hole = (_STRINGS if found[2] else _NUMBERS).get(found[1])
        if hole is not None:
            at, end = found.span(2 if found[2] else 3)
            parts.append((before + payload[begin:at], hole))
            begin, before = end, b""
    parts.append((before + payload[begin:] + b"\n\n\r\n", "end"))
    return tuple(parts)


def _proved(payload: bytes, parts: Parts) -> Shape | None:
    event = plain_event(payload)
    if event is None or b"\n" in payload or b"\r" in payload:
        return None
    kinds = [hole for _, hole in parts]
    fits = len(parts) <= MOST_PARTS and sum(len(literal) for literal, _ in parts) <= SHAPE_BYTES
    if not fits or kinds.count("text") != 1 or kinds.count("count") != (event.usage is not None):
        return None
    shape = Shape(parts, event.choices[0].index, event.usage and msgspec.structs.replace(event.usage))
    return shape if plain_event(_probe(parts)) == _as_probed(event) else None


def _probe(parts: Parts) -> bytes:
    whole = b"".join(literal + _PROBES.get(hole, b"") for literal, hole in parts)
    return whole[len(b"\r\ndata: ") : -len(b"\n\n\r\n")]


def _as_probed(event: PlainEvent) -> PlainEvent:
    """What the parser must say of the probe if the holes are what they are taken for."""
    choice = event.choices[0]
    if choice.delta is None:
        choice.text = _PROBE_TEXT
    else:
        choice.delta.content = _PROBE_TEXT
    if event.usage is not None:
        event.usage.completion_tokens = _PROBE_TOKENS
    return event
