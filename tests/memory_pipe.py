"""A connection without a socket: the client's bytes go to the same server-side code, at the loop's own instants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from loadramp.client.http.sockets import OnBytes, OnClose
from loadramp.simulator.http import ServerConnection
from loadramp.simulator.service import Service


class MemoryPipe:
    """One end of a connection without a socket; the other end is a Connection of the service."""

    stamps: Literal["kernel", "user"] = "user"

    def __init__(self, service: Service, on_bytes: OnBytes, on_close: OnClose, delay_s: float) -> None:
        self._service = service
        self._on_bytes = on_bytes
        self._on_close = on_close
        self._delay_s = delay_s
        self._open = True
        self._outbox: list[bytes] = []
        self._server = ServerConnection(service, self._send, self._hang_up)

    def write(self, data: bytes) -> None:
        """To the server."""
        if self._open:
            self._later(self._server.feed, data)

    def close(self) -> None:
        """The client hangs up; nothing more is heard."""
        if self._open:
            self._open = False
            self._later(self._server.lost)

    def expect(self, on_batch: object, patient: bool) -> None:
        """Nothing is kept back."""

    def parsed(self, sure: bool, like: bytes = b"") -> None:
        """Nothing is kept back: to wake up costs nothing here."""

    def pull(self) -> None:
        """Nothing waits."""

    def _send(self, data: bytes) -> None:
        self._outbox.append(data)
        if len(self._outbox) == 1:
            self._later(self._arrive)

    def _arrive(self) -> None:
        data, self._outbox = b"".join(self._outbox), []
        if self._open and data:
            self._on_bytes(data, self._service.loop.time())

    def _hang_up(self, reset: bool) -> None:
        self._later(self._hung_up, reset)

    def _hung_up(self, reset: bool) -> None:
        if self._open:
            self._open = False
            self._on_close("reset" if reset else None, "connection reset by peer" if reset else "")

    def _later(self, call: Callable[..., None], *args: object) -> None:
        if self._delay_s:
            self._service.loop.call_later(self._delay_s, call, *args)
        else:
            self._service.loop.call_soon(call, *args)


Connect = Callable[[OnBytes, OnClose], Awaitable[MemoryPipe]]


def connect_in_memory(
    service: Service,
    *,
    refused: Callable[[str, str], Exception] = lambda kind, detail: ConnectionRefusedError(detail),
    delay_s: float = 0.0,
) -> Connect:
    """How a client reaches ``service`` with no socket between: the same bytes, at the loop's own instants.

    Args:
        service: the server.
        refused: makes what is raised while the server is down, from a kind ("connect") and words.
        delay_s: of the network, each way.
    """

    async def connect(on_bytes: OnBytes, on_close: OnClose) -> MemoryPipe:
        if delay_s:
            await asyncio.sleep(2 * delay_s)
        if service.state == "down":
            raise refused("connect", "connection refused")
        return MemoryPipe(service, on_bytes, on_close, delay_s)

    return connect
