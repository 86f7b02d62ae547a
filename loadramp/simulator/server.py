"""The simulated server on a socket. It binds to this machine alone unless told otherwise."""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Sequence
from typing import cast

from loadramp.simulator.faults import Faults
from loadramp.simulator.http import ServerConnection
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.service import Service

_BACKLOG = 4096


class SimulatorServer:
    """A server that listens. ``port`` is the one it got; ``service`` is what answers."""

    def __init__(self, service: Service, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self.service = service
        self.host = host
        self.port = port
        self._tls = tls
        self._listener: asyncio.Server | None = None
        self._task: asyncio.Task[None] | None = None
        service.on_down.append(self._stop_listening)
        service.on_up.append(self._listen_again)

    async def listen(self) -> None:
        """Take connections; the port is known from here on.

        Raises:
            OSError: the address is taken.
        """
        self._listener = await self.service.loop.create_server(
            lambda: _Protocol(self.service), self.host, self.port, ssl=self._tls, backlog=_BACKLOG
        )
        self.port = self._listener.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and break all connections."""
        if self._task is not None:
            self._task.cancel()
        self._stop_listening()
        self.service.close()
        await asyncio.sleep(0)  # let the transports close

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _listen_again(self) -> None:
        self._task = self.service.loop.create_task(self.listen())


async def serve(
    profile: EngineProfile,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    faults: Faults | None = None,
    model: str = "sim",
    adapters: Sequence[str] = (),
    seed: int = 0,
    api_key: str | None = None,
    answer_tokens: int = 200,
    tls: ssl.SSLContext | None = None,
) -> SimulatorServer:
    """Start a simulated server on the running loop.

    Args:
        profile: the engine (profiles.PROFILES has named ones).
        host: address to bind.
        port: 0 takes a free one.
        faults: what goes wrong on purpose.
        model: the name it serves.
        adapters: LoRA adapters, served as models too.
        seed: all chance.
        api_key: asked for under /v1 when set.
        answer_tokens: median natural length of answers whose length is not forced.
        tls: a server-side context; None: plain HTTP.

    Raises:
        OSError: the address cannot be bound.
    """
    service = Service(
        profile,
        seed=seed,
        faults=faults,
        model=model,
        adapters=adapters,
        answer_tokens=answer_tokens,
        api_key=api_key,
        clock=time.monotonic,
        epoch_s=time.time() - time.monotonic(),
    )
    server = SimulatorServer(service, host, port, tls)
    await server.listen()
    return server


class _Protocol(asyncio.Protocol):
    """A socket's bytes to and from a Connection."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._connection: ServerConnection | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without being an instance of it
        self._connection = ServerConnection(self._service, self._transport.write, self._hang_up)

    def data_received(self, data: bytes) -> None:
        assert self._connection is not None
        self._connection.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.lost()

    def _hang_up(self, reset: bool) -> None:
        assert self._transport is not None
        if not reset:
            self._transport.close()
            return
        sock = self._transport.get_extra_info("socket")
        if sock is not None:  # linger of zero: the peer gets a reset, not an end of file
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        asyncio.get_running_loop().call_soon(self._transport.abort)  # uvloop 0.19 has not written by now
