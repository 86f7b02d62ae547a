"""Parts of HTTP replies that mean something here: compressed bodies, status codes, Retry-After. Pure."""

import codecs
import math
import re
import zlib
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

from loadramp.record.types import ErrorKind

_GZIP = b"\x1f\x8b"
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_SLICE_BYTES = 4096
INFLATED = frozenset({"gzip", "x-gzip", "deflate"})
"""The codings that ``Inflate`` understands."""
FREE_BYTES, MOST_RATIO = 4 << 20, 200
"""A body that is more than FREE_BYTES when unpacked, and more than MOST_RATIO times what came, is a bomb: streams of
tokens come to a tenth of that ratio."""


class Inflate:
    """gzip or deflate, as it comes: zlib's header or gzip's is recognised, raw deflate tried where neither fits."""

    __slots__ = ("_came", "_held", "_made", "_padding", "_z", "beyond", "broken")

    def __init__(self) -> None:
        self.broken = ""
        """Why nothing more comes out: the data are none from here on, in zlib's words."""
        self.beyond = ""
        """The limit that the body went beyond: nothing more comes out."""
        self._came = self._made = 0  # bytes, in and out
        self._z: Any = None
        self._padding = False
        self._held = b""  # too little to tell a header by

    def feed(self, data: bytes) -> bytes:
        """What ``data`` brings, up to where it is ``broken``; the same in all however the data were cut."""
        out = []
        for at in range(0, len(data), _SLICE_BYTES):
            piece = data[at : at + _SLICE_BYTES]
            self._came += len(piece)
            for part in self._slice(piece):
                self._made += len(part)
                out.append(part)
            if self._made > FREE_BYTES and self._made > MOST_RATIO * self._came:
                self.beyond = f"the compressed body grows to more than {MOST_RATIO} times its size"
                break
        return b"".join(out)

    def _slice(self, data: bytes) -> Iterator[bytes]:
        """What data brings that is so short that many small members in it cost no long copies."""
        data, self._held = self._held + data, b""
        while data and not (self._padding or self.broken):
            if self._z is None or self._z.eof:
                if len(data) < len(_GZIP):
                    self._held = data
                    return
                if self._z is None:
                    self._z = zlib.decompressobj(_window_bits(data))
                elif data.startswith(_GZIP):  # gzip members may follow one another; anything else behind one is padding
                    self._z = zlib.decompressobj(31)
                else:
                    self._padding = True
                    return
            yield self._decompress(data)
            data = self._z.unused_data

    def _decompress(self, data: bytes) -> bytes:
        before = self._z.copy()
        try:
            out: bytes = self._z.decompress(data)
        except zlib.error:  # which takes with it what came before the fault: once more, a byte at a time
            parts = []
            self._z = before
            try:
                for at in range(len(data)):
                    parts.append(self._z.decompress(data[at : at + 1]))  # noqa: PERF401  # kept when one raises
            except zlib.error as error:
                self.broken = str(error)
            out = b"".join(parts)
        return out


def _window_bits(begin: bytes) -> int:
    """For zlib, by the first two bytes: gzip, zlib, or else raw deflate (RFC 1950, 2.2; RFC 1952, 2.3.1)."""
    if begin.startswith(_GZIP):
        return 31
    return 15 if begin[0] & 0x8F == 8 and int.from_bytes(begin[:2], "big") % 31 == 0 else -15


def codings_of(value: bytes) -> list[str]:
    """The names in a Content-Encoding or Transfer-Encoding header that change anything, in lower case."""
    named = [name.strip().lower() for name in value.decode("latin-1").split(",")]
    return [name for name in named if name not in {"", "identity", "none"}]


def is_text(body: bytes | bytearray) -> bool:
    """``body`` is text as it stands: UTF-8, perhaps cut off inside a character, without control characters. No gzip is,
    and next to nothing that is compressed otherwise."""
    if not body or _CONTROL.search(body):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return False
    return True


def without_query(address: str) -> str:
    """``address`` without user, password, query and fragment."""
    plain = re.split("[?#]", address, maxsplit=1)[0]
    return re.sub("^([a-zA-Z][a-zA-Z0-9+.-]*:)?//[^/]*@", r"\1//", plain)


def http_kind(status: int) -> ErrorKind:
    if status == 429:
        return "http_429"
    return "http_5xx" if status >= 500 else "http_4xx"


def retry_after_s(headers: dict[bytes, bytes]) -> float | None:
    """Seconds that the server asks to wait: from ``retry-after-ms``, or ``Retry-After`` in seconds or as a date.

    A date counts from the reply's own ``Date``. None when there is neither, or none that can be.
    """
    try:
        if b"retry-after-ms" in headers:
            asked_s = float(headers[b"retry-after-ms"]) / 1000
        else:
            asked_s = _asked_s(headers[b"retry-after"].decode("latin-1").strip(), headers)
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    return asked_s if 0.0 <= asked_s < math.inf else None


def _asked_s(value: str, headers: dict[bytes, bytes]) -> float:
    """Seconds from ``value`` in digits, or as a date. Raises KeyError, ValueError, TypeError or OverflowError."""
    if value.replace(".", "", 1).isdigit():
        return float(value)
    asked = parsedate_to_datetime(value)
    return max(0.0, (asked - parsedate_to_datetime(headers[b"date"].decode("latin-1"))).total_seconds())


def describe_status(status: int, message: str) -> str:
    """``HTTP 503 Service Unavailable: what the body said``."""
    try:
        named = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        named = f"HTTP {status}"
    return f"{named}: {message}" if message else named
