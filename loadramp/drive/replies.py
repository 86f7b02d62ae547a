"""Parts of HTTP replies that mean something here: compressed bodies, status codes, Retry-After. Pure."""

from __future__ import annotations

import zlib
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from loadramp.record.types import ErrorKind


class Inflate:
    """gzip or deflate, as it comes: zlib's header or gzip's is recognised, raw deflate tried where neither fits."""

    __slots__ = ("_fresh", "_z")

    def __init__(self) -> None:
        self._z = zlib.decompressobj(47)
        self._fresh = True

    def feed(self, data: bytes) -> bytes:
        try:
            out = self._z.decompress(data)
        except zlib.error:
            if not self._fresh:
                raise
            self._z = zlib.decompressobj(-15)
            out = self._z.decompress(data)
        self._fresh = False
        while self._z.eof and self._z.unused_data:  # gzip members may follow one another
            rest = self._z.unused_data
            self._z = zlib.decompressobj(47)
            out += self._z.decompress(rest)
        return out


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
