"""What lies between a client and its model: proxies, limits, balancers. Each is a ``world`` of ``ramp_in_memory``.

A world is a function of the service that returns how a client connects. It lives on the jumping clock.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from memory_pipe import Connect, MemoryPipe, connect_in_memory

from loadramp.client.http.sockets import ConnectFailed, OnBytes, OnClose
from loadramp.simulator.faults import Fate
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.service import Service

World = Callable[[Service], Connect]

REFUSED = "connection refused by 127.0.0.1:8000: is the server up, is the port right?"
DEAD = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 11\r\n\r\nbad gateway"
NO_FILES = "too many open files: raise the limit (ulimit -n)"


def seats(ceiling_rps: float, seats: int, tokens: int = 12, **more: object) -> EngineProfile:
    """An engine that serves ``seats`` requests at once, ``ceiling_rps`` in all, however many there are: answers of
    ``tokens`` tokens take ``seats / ceiling_rps`` seconds."""
    step_s = seats / ceiling_rps / tokens
    profile = EngineProfile(
        name="seats",
        t0_s=step_s,
        decode_s=0.0,
        context_s=0.0,
        prefill_s=0.0,
        max_num_seqs=seats,
        frontend_s=0.002,
        kv_blocks=60_000,
    )
    return replace(profile, **more)  # type: ignore[arg-type]  # fields of the profile


def straight(service: Service) -> Connect:
    """Nothing between."""
    return connect_in_memory(service, refused=lambda _, detail: ConnectFailed("connect", detail))


def most_connections(limit: int, kind: Literal["connect", "client"] = "connect", detail: str = REFUSED) -> World:
    """No connection beyond ``limit`` open ones: a server's listen limit, a proxy's, or the client's own ulimit."""

    def world(service: Service) -> Connect:
        inner = straight(service)

        async def connect(on_bytes: OnBytes, on_close: OnClose) -> MemoryPipe:
            if len(service.connections) >= limit:
                raise ConnectFailed(kind, detail)
            return await inner(on_bytes, on_close)

        return connect

    return world


@dataclass(slots=True)
class Bucket:
    """A token bucket: ``rate_rps`` requests pass, ``burst`` at once."""

    rate_rps: float
    burst: float
    _level: float = 0.0
    _last_s: float = 0.0

    def __post_init__(self) -> None:
        self._level = self.burst

    def takes(self, now_s: float) -> bool:
        self._level = min(self.burst, self._level + (now_s - self._last_s) * self.rate_rps)
        self._last_s = now_s
        passes = self._level >= 1.0
        self._level -= passes
        return passes


def rate_limit(rate_rps: float, burst: float = 5.0) -> World:
    """A gateway that answers 429 to what exceeds its rate. The service's ``error_status`` must say 429."""

    def world(service: Service) -> Connect:
        bucket, fate = Bucket(rate_rps, burst), service.faults.draw

        def decided() -> Fate:
            drawn = fate(service._rng)
            return drawn if bucket.takes(service.clock()) else replace(drawn, error=True)

        service.fate = decided  # type: ignore[method-assign]
        return straight(service)

    return world


class Dealt:
    """A connection to a balancer that gives each request to the replica whose turn it is; None: a replica that is dead
    and answers 502."""

    stamps: Literal["kernel", "user"] = "user"

    def __init__(self, next_one: Callable[[], Service | None], on_bytes: OnBytes, on_close: OnClose) -> None:
        self._next, self._on_bytes, self._on_close = next_one, on_bytes, on_close
        self._pipe: MemoryPipe | None = None

    def write(self, data: bytes) -> None:
        """A whole request."""
        self.close()
        service = self._next()
        if service is None:
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: self._on_bytes(DEAD, loop.time()))
            return
        self._pipe = MemoryPipe(service, self._on_bytes, lambda *_: None, 0.0)
        self._pipe.write(data)

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()

    def expect(self, on_batch: object, patient: bool) -> None:
        """Nothing is kept back."""

    def parsed(self, sure: bool, like: bytes = b"") -> None:
        """Nothing is kept back."""

    def pull(self) -> None:
        """Nothing waits."""


def balanced(*others: EngineProfile | None, from_s: float = 0.0) -> World:
    """A balancer that deals requests in turn to the service and to others; None: a replica that is dead.

    The others are there from ``from_s`` on.
    """

    def world(service: Service) -> Connect:
        more = [None if profile is None else Service(profile, seed=k + 1) for k, profile in enumerate(others)]
        replicas, turn = [service, *more], itertools.count()

        def next_one() -> Service | None:
            return replicas[next(turn) % len(replicas)] if service.clock() >= from_s else service

        async def connect(on_bytes: OnBytes, on_close: OnClose) -> Dealt:
            return Dealt(next_one, on_bytes, on_close)

        return connect  # type: ignore[return-value]  # another pipe

    return world
