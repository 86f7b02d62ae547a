"""Replies of real servers, changed at random, for the fuzz tests. The same seed and number give the same reply."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from real_replies import CAPTURES, reads_of

Ending = Literal["eof", "reset", "cut"]
"""How the connection goes: closed, reset, or given up by the client."""

USUAL_BYTES, MOST_BYTES = 5_000, 48_000
"""Long captures are cut to a stretch of that length before anything else is done, nine of ten to the shorter one."""

_KEY = re.compile(rb'"([A-Za-z_]+)": ?')
_NUMBER = re.compile(rb"(?<=[:\[ ,])-?\d+(?:\.\d+)?")
_VALUE = re.compile(rb'(?<=: )(?:"[^"]*"|-?[\d.]+|null|true|false)|(?<=":)(?:"[^"]*"|-?[\d.]+|null|true|false)')
_NAMES = (
    b"choices", b"delta", b"message", b"content", b"text", b"index", b"finish_reason", b"finishReason", b"usage",
    b"completion_tokens", b"completionTokens", b"prompt_tokens", b"tool_calls", b"function", b"arguments", b"name",
    b"error", b"errors", b"code", b"type", b"object", b"response", b"output", b"item", b"status", b"reasoning",
    b"reasoning_content", b"thinking", b"refusal", b"detail", b"x_groq", b"timings", b"predicted_n", b"base_resp",
    b"status_code", b"incomplete_details", b"completion_tokens_details", b"reasoning_tokens", b"\\ud800",
)  # fmt: skip
_VALUES = (
    b"null", b"true", b"0", b"-1", b"1", b"2", b"1e999", b"-1e999", b"NaN", b"Infinity", b"1.5", b"9" * 30,
    b"9" * 5_000, b'""', b'"stop"', b'"error"', b'"null"', b'"\\ud800"', b'"\\udc00x"', b'"\xff\xfe"',
    b'"data: [DONE]"', b"[]", b"{}", b"[{}]", b'[{"index": 0}]', b'{"text": "a"}', b'{"message": "no", "code": 500}',
    b'"response.failed"', b'"response"', b'"3"', b"1024", b"10000001", b'"' + b"x" * 3_000 + b'"',
)  # fmt: skip
_LINES = (
    b"data: [DONE]\n\n", b"[DONE]\n", b'data: "[DONE]"\n\n', b": ping\n\n", b":\n", b"\n", b"\n\n", b"\r", b"\r\n",
    b"\xef\xbb\xbf", b"event: error\n", b"event: ping\n", b"event:\n", b"id: 1\n", b"retry: 3\n", b"data\n\n",
    b"data:\n\n", b"error: no\n\n", b"data: {\n", b"data: }\n", b"{\n", b"}\n", b"[\n", b"]", b"{}", b"[]", b"[{}]",
    b" ", b"\t{", b"\0",
    b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}',
    b'{"error":{"message":"no"}}', b'data: {"error":{"message":"no","code":503}}\n\n', b"<html>no</html>",
    b"\xe2\x80\xa8",
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n', b"d\nata: {}\n\n", b"\\", b'"',
)  # fmt: skip
_STATUS = (
    b"200 OK", b"200", b"100 Continue", b"101 Switching Protocols", b"204 No Content", b"302 Found",
    b"400 Bad Request", b"404 Not Found", b"429 Too Many Requests", b"500 Oops", b"503 Busy", b"999 ?",
)  # fmt: skip
_HEADERS = (
    b"Retry-After: 3", b"Retry-After: Mon, 01 Jan 99999999999999999999 00:00:00 GMT", b"Retry-After: -1",
    b"Retry-After: Wed, 21 Oct 2099 07:28:00 GMT\r\nDate: Wed, 21 Oct 2015 07:28:00 GMT", b"retry-after-ms: 1e999",
    b"Retry-After: 1e308", b"Retry-After: nan", b"retry-after-ms: nan", b"Date: 0", b"Retry-After: " + b"9" * 400,
    b"Retry-After: \xb2", b"Content-Type: application/json", b"Content-Type: \xff", b"Location: /\x1b[31m",
    b"Content-Encoding: br", b"Content-Encoding: gzip, deflate", b"Content-Encoding: identity", b"Connection: close",
    b"Connection: upgrade\r\nUpgrade: h2c", b"Trailer: X", b"Content-Length: 10",
    b"Content-Length: 99999999999999999999", b"X: " + b"y" * 9_000,
)  # fmt: skip


@dataclass(slots=True, frozen=True)
class Source:
    """A captured reply: its status line and headers, and its body without the chunks."""

    name: str
    head: bytes
    body: bytes
    raw: bytes
    streamed: bool
    responses: bool


@dataclass(slots=True, frozen=True)
class Mutated:
    """A reply as it comes over the wire, and how its connection ends."""

    name: str
    """Of the capture that it was made of."""
    key: str
    """Of its chances: seed and number."""
    raw: bytes
    ending: Ending
    streamed: bool
    done_expected: bool
    most_tokens: int | None
    seq: int


Change = Callable[[Random, bytes, Sequence[Source]], bytes]


def sources() -> list[Source]:
    """All captures that hold a reply."""
    found = []
    for name, capture in CAPTURES.items():
        raw = b"".join(data for data, _ in reads_of(capture))
        head, gap, body = raw.partition(b"\r\n\r\n")
        if gap:
            plain = _without_chunks(body) if b"transfer-encoding: chunked" in head.lower() else body
            found.append(Source(name, head, plain, raw, capture["stream"], "responses" in capture["path"]))
    return found


def mutated(seed: int, number: int, corpus: Sequence[Source]) -> Mutated:
    """Reply ``number`` of ``seed``."""
    key = f"{seed}/{number}"
    rng = Random(key)
    source = rng.choice(corpus)
    if rng.random() < 0.2:
        raw = _stretch(rng, source.raw)
        for _ in range(rng.randint(1, 4)):
            raw = rng.choice(_BYTES)(rng, raw, corpus)[:MOST_BYTES]
    else:
        body = _stretch(rng, source.body)
        for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 5))):
            body = rng.choice(_BODY)(rng, body, corpus)[:MOST_BYTES]
        raw = _wire(rng, source, body)
    most = rng.choice((None, None, 1, 16, 1_000))
    ending = rng.choice(("eof", "eof", "eof", "reset", "cut"))
    return Mutated(source.name, key, raw, ending, source.streamed, not source.responses, most, rng.randrange(64))


def _stretch(rng: Random, data: bytes) -> bytes:
    """A long capture's beginning and end, with a hole between them."""
    most = USUAL_BYTES if rng.random() < 0.9 else MOST_BYTES
    if len(data) <= most:
        return data
    begin = rng.randrange(most)
    return data[:begin] + data[len(data) - most + begin :]


def _without_chunks(body: bytes) -> bytes:
    out, at = [], 0
    while True:
        end = body.find(b"\r\n", at)
        size = int(body[at:end], 16) if end > at else 0
        if size == 0:
            return b"".join(out)
        out.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


# -- changes


def _span(rng: Random, data: bytes, longest: int = 400) -> tuple[int, int]:
    at = rng.randrange(len(data) + 1)
    return at, min(len(data), at + rng.randint(1, longest))


def _cut(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _drop(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + data[end:]


def _repeat(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    begin, end = _span(rng, data)
    return data[:end] + data[begin:end] * rng.randint(1, 3) + data[end:]


def _flip(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    out = bytearray(data)
    for _ in range(rng.randint(1, 6) if out else 0):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _splice(rng: Random, data: bytes, corpus: Sequence[Source]) -> bytes:
    other = rng.choice(corpus)
    begin, end = _span(rng, other.body, 2_000)
    at = rng.randrange(len(data) + 1)
    return data[:at] + other.body[begin:end] + data[at:]


def _insert(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    """A line or a part of one, mostly where a line begins."""
    at = rng.randrange(len(data) + 1)
    if rng.random() < 0.7:
        at = data.rfind(b"\n", 0, at) + 1
    return data[:at] + rng.choice(_LINES) * rng.choice((1, 1, 1, 2, 40)) + data[at:]


def _replace(rng: Random, data: bytes, pattern: re.Pattern[bytes], new: bytes, group: int = 0) -> bytes:
    """One place that fits ``pattern``, near a random one, or all of them."""
    if rng.random() < 0.3:
        return pattern.sub(lambda found: found[0].replace(found[group], new, 1), data)
    found = pattern.search(data, rng.randrange(len(data) + 1)) or pattern.search(data)
    return data if found is None else data[: found.start(group)] + new + data[found.end(group) :]


def _rename(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    return _replace(rng, data, _KEY, rng.choice(_NAMES), 1)


def _number(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    return _replace(rng, data, _NUMBER, rng.choice(_VALUES))


def _value(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    return _replace(rng, data, _VALUE, rng.choice(_VALUES))


def _nest(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    depth = rng.choice((1, 2, 40, 600, 1_100, 3_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'{"error":', b"}"), (b'[{"content":', b"}]")))
    inner = rng.choice((b"1", b"", b'"a"', b"[]"))
    return _replace(rng, data, _VALUE, opened * depth + inner + closed * rng.choice((depth, depth, depth - 1, 0)))


def _line_ends(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    old, new = rng.choice(
        ((b"\n", b"\r\n"), (b"\n", b"\r"), (b"\n\n", b"\n"), (b"\n", b""), (b"\n\n", b"\n\n\n"), (b"}", b"\n}\n"),
         (b"{", b"{\n"), (b",", b",\n"), (b"\n", b" \n"))
    )  # fmt: skip
    return data.replace(old, new)


def _framing(rng: Random, data: bytes, _: Sequence[Source]) -> bytes:
    old, new = rng.choice(
        ((b"data: ", b""), (b"data: ", b"data:"), (b"data: ", b"data: data: "), (b"data: ", b" data: "),
         (b"data: ", b"event: message\ndata: "), (b"data: ", b"error: "), (b"data: [DONE]\n\n", b""))
    )  # fmt: skip
    return data.replace(old, new) if rng.random() < 0.6 else data.replace(old, new, 1)


def _behind(rng: Random, data: bytes, corpus: Sequence[Source]) -> bytes:
    """Another reply behind this one."""
    return data + rng.choice((b"", b"\n", b" ", b"\n\n", b",")) + _stretch(rng, rng.choice(corpus).body)


_BYTES: tuple[Change, ...] = (_cut, _drop, _repeat, _flip, _splice, _insert)
_BODY: tuple[Change, ...] = (*_BYTES, _rename, _rename, _number, _value, _value, _nest, _line_ends, _framing, _behind)


# -- onto the wire


def _wire(rng: Random, source: Source, body: bytes) -> bytes:
    status, _, lines = source.head.partition(b"\r\n")
    if rng.random() < 0.15:
        status = b"HTTP/1.1 " + rng.choice(_STATUS)
    if rng.random() < 0.15:
        lines += b"\r\n" + rng.choice(_HEADERS)
    if rng.random() < 0.15:
        body, coding = _packed(rng, body)
        lines += b"\r\nContent-Encoding: " + coding
    chunked = rng.random() < 0.7
    kept = [one for one in lines.split(b"\r\n") if not one.lower().startswith((b"transfer-enc", b"content-length"))]
    head = b"\r\n".join((status, *kept))
    if not chunked:
        length = len(body) + rng.choice((0, 0, 0, 1, -1, 1_000))
        return head + (b"\r\nContent-Length: %d" % max(0, length) if rng.random() < 0.6 else b"") + b"\r\n\r\n" + body
    return head + b"\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunked(rng, body)


def _packed(rng: Random, body: bytes) -> tuple[bytes, bytes]:
    coding = rng.choice((b"gzip", b"x-gzip", b"deflate"))
    half = rng.randrange(len(body) + 1)
    whole, first, second = (gzip.compress(part, 1, mtime=0) for part in (body, body[:half], body[half:]))
    wrapped = zlib.compress(body, 1)
    packed = rng.choice((whole, first + second, wrapped, wrapped[2:-4], whole + b"\0" * 9, body))
    for _ in range(rng.choice((0, 0, 1, 2))):
        packed = rng.choice((_cut, _drop, _flip))(rng, packed, ())
    return packed, coding


def _chunked(rng: Random, body: bytes) -> bytes:
    """Chunks as servers make them: an event each, of one size, or at random."""
    how = rng.random()
    if how < 0.6:
        parts = re.findall(rb".*?\n\n|.+\Z", body, re.DOTALL)
    else:
        size = rng.choice((1, 7, 100, 4_096))
        size = max(size, len(body) // 400)
        parts = [body[at : at + size] for at in range(0, len(body), size)]
    last = rng.choice((b"\r\n", b"\r\n", b"\r\n", None, b"X: y\r\n\r\n", b"\r\nHTTP/1.1 200 OK\r\n\r\n"))
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + (b"" if last is None else b"0\r\n" + last)
