"""Parts of HTTP replies that mean something here: compressed bodies, status codes, Retry-After. Pure."""

from __future__ import annotations

import zlib
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from loadramp.record.types import ErrorKind

_GZIP = b"\x1f\x8b"


class Inflate:
    """gzip or deflate, as it comes: zlib's header or gzip's is recognised, raw deflate tried where neither fits."""

    __slots__ = ("_fresh", "_held", "_padding", "_z")

    def __init__(self) -> None:
        self._z = zlib.decompressobj(47)
        self._fresh = True
        self._padding = False
        self._held = b""  # too little to tell a header by

    def feed(self, data: bytes) -> bytes:
        """What ``data`` brings. Raises zlib.error."""
        data, self._held, out = self._held + data, b"", b""
        if self._fresh:
            if len(data) < len(_GZIP):
                self._held = data
                return b""
            self._fresh = False
            try:
                out = self._z.decompress(data)
            except zlib.error:
                self._z = zlib.decompressobj(-15)
                out = self._z.decompress(data)
            data = self._z.unused_data
        while data and not self._padding:
            if self._z.eof:  # gzip members may follow one another; anything else behind one is padding
                if len(data) < len(_GZIP):
                    self._held = data
                    break
                self._padding = not data.startswith(_GZIP)
                if self._padding:
                    break
                self._z = zlib.decompressobj(47)
            out += self._z.decompress(data)
            data = self._z.unused_data
        return out


def codings_of(value: bytes) -> list[str]:
    """The names in a Content-Encoding or Transfer-Encoding header that change anything, in lower case."""
    named = [name.strip().lower() for name in value.decode("latin-1").split(",")]
    return [name for name in named if name not in {"", "identity", "none"}]


def http_kind(status: int) -> ErrorKind:
    if status == 429:
        return "http_429"
    return "http_5xx" if status >= 500 else "http_4xx"


def retry_after_s(headers: dict[bytes, bytes]) -> float | None:
    """Seconds that the server asks to wait: from ``retry-after-ms``, or ``Retry-After`` in seconds or as a date.

    A date counts from the reply's own ``Date``. None when there is neither.
    """
    try:
        if b"retry-after-ms" in headers:
            return float(headers[b"retry-after-ms"]) / 1000
        value = headers[b"retry-after"].decode("latin-1").strip()
        if value.replace(".", "", 1).isdigit():
            return float(value)
        asked = parsedate_to_datetime(value)
        return max(0.0, (asked - parsedate_to_datetime(headers[b"date"].decode("latin-1"))).total_seconds())
    except (KeyError, ValueError, TypeError):
        return None


def status_words(status: int, said: str) -> str:
    """``HTTP 503 Service Unavailable: what the body said``."""
    try:
        named = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        named = f"HTTP {status}"
    return f"{named}: {said}" if said else named
