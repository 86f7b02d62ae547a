"""One page over HTTP, again and again, on a connection that is kept. Blocking: never run it on the measuring loop.

A failure is a FetchFailed with a few words that hold no header, key or query. Redirects leave the host never.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

PAGE_CAP_BYTES = 8 * 1024 * 1024
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ACCEPT = "text/plain;version=0.0.4,application/json;q=0.5,*/*;q=0.1"


class FetchFailed(Exception):  # noqa: N818 - it names what happened, as the other rooms' do
    """No page: the reason in a few words."""


class Fetcher:
    """Gets one address, keeping its connection between calls. Compressed pages are not asked for but understood."""

    __slots__ = ("_connection", "_context", "_headers", "_parts")

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, context: ssl.SSLContext | None = None):
        """Takes an http or https address, user and password in it or not.

        Raises:
            FetchFailed: ``url`` is no such address.
        """
        self._headers = {"Accept": _ACCEPT, "User-Agent": "loadramp", **(headers or {})}
        self._context = context
        self._connection: http.client.HTTPConnection | None = None
        self.point(url)

    def point(self, url: str) -> None:
        """Get another address from now on."""
        self.close()
        self._parts = _split(url)
        if self._parts.username is not None:
            pair = f"{unquote(self._parts.username)}:{unquote(self._parts.password or '')}"
            self._headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()

    def get(self, timeout_s: float) -> str:
        """The page as text, within ``timeout_s`` from first to last byte.

        Raises:
            FetchFailed: refused, no such name, time-out, status other than 200, above 8 MB, not HTTP.
        """
        end_s = time.monotonic() + timeout_s
        if self._connection is not None:
            with contextlib.suppress(http.client.RemoteDisconnected, ConnectionError):
                return self._get(end_s)
            self.close()  # the server had closed the idle connection: that is no failure
        try:
            return self._get(end_s)
        except (http.client.RemoteDisconnected, ConnectionError) as error:
            raise FetchFailed(_words(error)) from None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, end_s: float) -> str:
        left_s = max(end_s - time.monotonic(), 0.001)
        if self._connection is None:
            self._connection = self._connect(left_s)
        late = threading.Event()
        cut = threading.Timer(left_s, _cut, [self._connection, late])  # a socket's own time-out is for one read only
        cut.daemon = True
        cut.start()
        try:
            body = self._exchange(self._connection)
        except (FetchFailed, OSError, http.client.HTTPException, ValueError, zlib.error) as error:
            self.close()
            if late.is_set() or isinstance(error, TimeoutError):
                raise FetchFailed("timeout") from None
            if isinstance(error, (FetchFailed, http.client.RemoteDisconnected, ConnectionError)):
                raise
            raise FetchFailed(_words(error)) from None
        finally:
            cut.cancel()
        if late.is_set():  # cut off in its headers, an answer looks like one without a body
            self.close()
            raise FetchFailed("timeout")
        return body

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._context)
        return http.client.HTTPConnection(host, port, timeout=timeout_s)

    def _exchange(self, connection: http.client.HTTPConnection) -> str:
        parts = self._parts
        for _ in range(3):
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", target, headers=self._headers)
            response = connection.getresponse()
            body = _body(response)
            if response.status == 200:
                return body
            location = response.getheader("Location")
            if response.status not in _REDIRECTS or not location:
                break
            onward = _split(urljoin(parts.geturl(), location))
            if (onward.scheme, onward.hostname, onward.port) != (parts.scheme, parts.hostname, parts.port):
                raise FetchFailed(f"http {response.status}: sends to another host")
            parts = onward
        raise FetchFailed(f"http {response.status}")


def tls_context(ca_file: str = "", insecure: bool = False) -> ssl.SSLContext:
    """How to check a server's certificate: the system's authorities, a CA file's, or not at all."""
    context = ssl.create_default_context(cafile=ca_file or None)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise FetchFailed("not an http address")
    return parts


def _body(response: http.client.HTTPResponse) -> str:
    framed = response.length is not None or response.chunked
    raw = response.read(PAGE_CAP_BYTES + 1)
    if response.length:
        raise FetchFailed("page above 8 MB" if len(raw) > PAGE_CAP_BYTES else "page cut short")
    if response.getheader("Content-Encoding", "").lower() in {"gzip", "x-gzip", "deflate"}:
        raw = zlib.decompressobj(wbits=47).decompress(raw, PAGE_CAP_BYTES + 1)
    if len(raw) > PAGE_CAP_BYTES:
        raise FetchFailed("page above 8 MB")
    if not framed:  # ends where the connection ends: a last line without its end may be half a number
        raw = raw[: raw.rfind(b"\n") + 1]
    return raw.decode("utf-8", "replace")


def _cut(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    if connection.sock is not None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # not the TLS layer's: it is in use


def _words(error: Exception) -> str:
    """What went wrong, without anything that was sent."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, socket.gaierror):
        return "no such host"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"tls: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason}"
    if isinstance(error, (ConnectionError, http.client.RemoteDisconnected)):
        return "connection lost"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return f"not HTTP ({type(error).__name__})"
