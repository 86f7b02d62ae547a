"""The server's side of one HTTP/1.1 connection: bytes in, bytes out, no socket. Keep-alive, pipelining and idle close
as the server of a real vLLM does them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING

import httptools

from loadramp.simulator.generation import Generation
from loadramp.simulator.routes import answer

if TYPE_CHECKING:
    from loadramp.simulator.service import Service

IDLE_S = 5.0
"""An idle connection is closed after this time, as uvicorn does by default."""


@dataclass(slots=True)
class HttpRequest:
    """One HTTP request as parsed. Header names in lower case."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    keep_alive: bool = True


class ServerConnection:
    """One connection.

    Args:
        service: the server behind it.
        write: takes the bytes for the client.
        hang_up: closes the connection from the server's side; True resets it.
    """

    def __init__(self, service: Service, write: Callable[[bytes], None], hang_up: Callable[[bool], None]) -> None:
        self.service = service
        self._write_out = write
        self._hang_up = hang_up
        self._parser = httptools.HttpRequestParser(self)
        self._parsing = HttpRequest()
        self._waiting: deque[HttpRequest] = deque()
        self._current: HttpRequest | None = None
        self.exchange: Generation | None = None
        """The generation under way on this connection."""
        self._open = True
        self._idle: asyncio.TimerHandle | None = None
        self._held: list[bytes] = []
        service.connections[self] = None

    # -- from the client

    def feed(self, data: bytes) -> None:
        """Bytes from the client."""
        if not self._open:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._bad("Upgrade is not supported.")
        except httptools.HttpParserError as error:
            self._bad(str(error))
        if self._current is None:
            self._next()

    def lost(self) -> None:
        """The client has closed or reset the connection."""
        self._shut()

    def on_message_begin(self) -> None:
        self._parsing = HttpRequest()

    def on_url(self, url: bytes) -> None:
        self._parsing.path += url.decode("latin-1")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._parsing.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._parsing.headers.get("expect", "").lower() == "100-continue":
            self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._parsing.body += body

    def on_message_complete(self) -> None:
        request = self._parsing
        request.method = self._parser.get_method().decode()
        request.keep_alive = self._parser.should_keep_alive()
        self._waiting.append(request)  # served after parsing: an error in serving is no parse error

    # -- to the client

    def respond(
        self, status: int, body: bytes = b"", kind: str = "application/json", headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """A whole response at once."""
        kinds = [("content-type", kind)] if body else []
        self._head(status, [("content-length", str(len(body))), *kinds, *headers], body)
        self._done()

    def begin_stream(self) -> None:
        """Status and headers of an event stream."""
        self._head(200, [("content-type", "text/event-stream; charset=utf-8")], b"", chunked=True)

    def chunk(self, *events: bytes) -> None:
        """Each event as one chunk, in one write."""
        if len(events) == 1:
            self._write(b"%x\r\n%b\r\n" % (len(events[0]), events[0]))
        else:
            self._write(b"".join([b"%x\r\n%b\r\n" % (len(event), event) for event in events if event]))

    def end_stream(self, *events: bytes) -> None:
        """The last events and the end of the response."""
        parts = [b"%x\r\n%b\r\n" % (len(event), event) for event in events if event]
        self._write(b"".join([*parts, b"0\r\n\r\n"]))
        self._done()

    def tear(self, data: bytes) -> None:
        """``data`` raw, then the connection closes in the middle of whatever that was."""
        self._write(data)
        self._flush()
        self._shut()
        self._hang_up(False)

    def kill(self, reset: bool = False) -> None:
        """The connection ends here and now."""
        if self._open:
            self._shut()
            self._hang_up(reset)

    # -- inside

    def _next(self) -> None:
        """Serve the next request that has come in whole."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._waiting and self._open:
            self._current = self._waiting.popleft()
            answer(self, self._current)

    def _done(self) -> None:
        """The response to the current request is out."""
        request, self._current, self.exchange = self._current, None, None
        if request is not None and not request.keep_alive:
            self._flush()
            self.kill()
        elif self._waiting:
            self.service.loop.call_soon(self._next)
        else:
            self._idle = self.service.loop.call_later(IDLE_S, self.kill)

    def _bad(self, words: str) -> None:
        self._parsing.keep_alive = False
        self._current = self._parsing
        self.respond(400, f"Invalid HTTP request received: {words}".encode(), "text/plain; charset=utf-8")

    def _head(self, status: int, headers: list[tuple[str, str]], body: bytes, chunked: bool = False) -> None:
        keep_alive = self._current is None or self._current.keep_alive
        lines = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            f"date: {formatdate(self.service.wall_s(), usegmt=True)}",
            "server: uvicorn",
            *(f"{name}: {value}" for name, value in headers),
            *([] if keep_alive else ["connection: close"]),
            *(["transfer-encoding: chunked"] if chunked else []),
        ]
        self._write("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body)

    def _write(self, data: bytes) -> None:
        if not self._open:
            return
        period_s = self.service.faults.coalesce_s
        if period_s <= 0:
            self._write_out(data)
            return
        self._held.append(data)
        if len(self._held) == 1:
            self.service.loop.call_later(period_s, self._flush)

    def _flush(self) -> None:
        """What a buffering proxy held back goes out."""
        if self._held and self._open:
            data, self._held = b"".join(self._held), []
            self._write_out(data)

    def _shut(self) -> None:
        """Nothing more is read, written or computed for this connection."""
        self._open = False
        self.service.connections.pop(self, None)
        if self._idle is not None:
            self._idle.cancel()
        if self.exchange is not None:
            self.exchange.drop()
            self.exchange = None
