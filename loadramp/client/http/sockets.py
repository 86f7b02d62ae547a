"""The one seam between client and network (``Connect`` opens a ``Pipe``), and pipes on real sockets.

The instant of a read is taken before anything else is done with it: by the kernel where it stamps segments, else here.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from loadramp.client.client_failure import escaped_words
from loadramp.client.error_text import os_words, tls_words
from loadramp.client.http.c_reader import KeptBuffer
from loadramp.client.http.poller import Intake
from loadramp.client.stream.event_batch import Lot
from loadramp.record.types import ErrorKind

OnBytes = Callable[[bytes, float], None]
"""Data and the instant it arrived, absolute seconds on the loop's clock (CLOCK_MONOTONIC)."""
OnClose = Callable[[ErrorKind | None, str], None]
"""Called once. None: clean end of file; ``reset``: connection reset, with words."""

OnLot = Callable[[Lot], None]

_READ_BYTES = 65_536
_CONTROL_BYTES = 64
_FORESIGHT_S = 0.00005  # between the two clock readings
_unpack_timespec = struct.Struct("@ll").unpack_from


class Pipe(Protocol):
    """A connection as the client sees it."""

    @property
    def stamps(self) -> Literal["kernel", "user"]:
        """Who took the instants of the latest reads."""

    def write(self, data: bytes) -> None:
        """Send all of ``data``, now or as soon as the other end takes it."""

    def close(self) -> None:
        """Let go of it; no callback is called any more."""

    def keep(self, on_lot: OnLot | None) -> None:
        """Reads that hold one whole event each may wait until there is a lot of them. None: no longer, and what waits
        is handed over. A pipe need not make use of it."""

    def pull(self) -> None:
        """Hand over what waits."""


Connect = Callable[[OnBytes, OnClose], Awaitable[Pipe]]
"""Opens a pipe. Raises ConnectFailed."""


class ConnectFailed(Exception):  # noqa: N818  # said as the event it is, like the error kinds
    """No pipe could be opened; ``detail`` says why in words a person understands."""

    def __init__(self, kind: Literal["connect", "tls", "client"], detail: str) -> None:
        super().__init__(detail)
        self.kind: Literal["connect", "tls", "client"] = kind
        self.detail = detail


@dataclass(slots=True)
class SocketTally:
    """What the pipes of one dialer went through."""

    late_reads: int = 0
    opened: int = 0
    intake: Intake = field(default_factory=Intake)
    """Who waits for their data, and counts the reads."""


class SocketPipe:
    """A connected, non-blocking TCP socket on the running loop."""

    __slots__ = (
        "_fd",
        "_intake",
        "_kept",
        "_loop",
        "_on_bytes",
        "_on_close",
        "_on_lot",
        "_recvmsg",
        "_sock",
        "_tally",
        "_unsent",
        "late_reads",
        "stamps",
    )

    def __init__(self, sock: socket.socket, on_bytes: OnBytes, on_close: OnClose, tally: SocketTally) -> None:
        self.stamps: Literal["kernel", "user"] = "user"
        self.late_reads = 0
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._fd = sock.fileno()
        self._recvmsg = sock.recvmsg
        self._on_bytes = on_bytes
        self._on_close = on_close
        self._kept: KeptBuffer | None = None
        self._on_lot: OnLot | None = None
        self._tally = tally
        self._unsent = bytearray()
        self._intake = tally.intake
        self._intake.add(self._fd, self._readable)

    def write(self, data: bytes) -> None:
        if self._fd < 0:
            return
        if not self._unsent:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._ended("reset", os_words(error))
                return
            if sent == len(data):
                return
            self._loop.add_writer(self._fd, self._writable)
            data = data[sent:]
        self._unsent += data

    def close(self) -> None:
        if self._fd >= 0:
            self._intake.remove(self._fd)
            if self._unsent:
                self._loop.remove_writer(self._fd)
            self._fd, self._kept = -1, None
            self._sock.close()

    def keep(self, on_lot: OnLot | None) -> None:
        if self._fd < 0 or on_lot == self._on_lot:
            return
        self.pull()
        if self._fd < 0:  # among what waited was the end
            return
        self._on_lot = on_lot
        if on_lot is not None:
            self._kept = self._intake.keep(self._fd)
        elif self._kept is not None:
            self._kept = None
            self._intake.drop(self._fd)

    def pull(self) -> None:
        if self._kept is None:
            return
        taken = self._kept.take()
        if taken.kernel:
            self.stamps = "kernel"
        if taken.late:
            self._late(taken.late)
        if taken.lot is not None and self._on_lot is not None:
            self._on_lot(taken.lot)
        if taken.other and self._fd >= 0:
            self._heard(taken.other, taken.other_s)
        if taken.over and self._fd >= 0:
            if taken.error:
                self._ended("reset", os_words(OSError(taken.error, "")))
            else:
                self._ended(None, "")

    def _readable(self, now_s: float, offset_s: float | None) -> None:
        try:
            self._read(now_s, offset_s)
        except Exception as error:  # the fence (``Connection._broke``), before a connection has heard it
            self.close()
            self._on_close("client", escaped_words(error))

    def _read(self, now_s: float, offset_s: float | None) -> None:
        if self._kept is not None:
            self.pull()
            return
        try:
            data, control, _, _ = self._recvmsg(_READ_BYTES, _CONTROL_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._ended("reset", os_words(error))
            return
        if not data:
            self._ended(None, "")
            return
        if control and offset_s is not None:
            seconds, nanoseconds = _unpack_timespec(control[0][2])
            stamp_s = seconds - offset_s + nanoseconds * 1e-9
            if stamp_s > now_s:  # it came after the clocks were read
                now_s = time.monotonic()
            age_s = now_s - stamp_s
            if age_s > -_FORESIGHT_S:
                self.stamps = "kernel"
                if age_s > self._intake.late_s:
                    self._late(1)
            if age_s < 0.0:
                stamp_s = now_s
        else:
            stamp_s = time.monotonic()
        self._heard(data, stamp_s)

    def _late(self, reads: int) -> None:
        self.late_reads += reads
        self._tally.late_reads += reads

    def _heard(self, data: bytes, stamp_s: float) -> None:
        if self._intake.beating and (self.stamps != "kernel" or data.count(b"data:") > 1):
            self._intake.mind(data, self.stamps == "kernel")
        self._on_bytes(data, stamp_s)

    def mind(self, data: bytes) -> None:
        """Plain text that was read; only where reads may be late does that matter."""
        if self._intake.beating:
            self._intake.mind(data, self.stamps == "kernel")

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._ended("reset", os_words(error))
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._fd)

    def _ended(self, kind: ErrorKind | None, detail: str) -> None:
        self.pull()  # what came before the end
        if self._fd >= 0:
            self.close()
            self._on_close(kind, detail)


class TlsPipe:
    """TLS over a SocketPipe. Plain text carries the stamp of the segment that completed its record."""

    __slots__ = ("_incoming", "_inner", "_on_bytes", "_on_close", "_outgoing", "_tls", "_waiter")

    def __init__(self, context: ssl.SSLContext, name: str | None, on_bytes: OnBytes, on_close: OnClose) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._on_bytes, self._on_close = on_bytes, on_close
        self._inner: SocketPipe | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def stamps(self) -> Literal["kernel", "user"]:
        return "user" if self._inner is None else self._inner.stamps

    @property
    def late_reads(self) -> int:
        return 0 if self._inner is None else self._inner.late_reads

    async def handshake(self, sock: socket.socket, tally: SocketTally) -> None:
        """Raises ssl.SSLError, or OSError when the other end closes."""
        self._inner = SocketPipe(sock, self._arrived, self._lost, tally)
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._waiter = asyncio.get_running_loop().create_future()  # also told when sending fails
                try:
                    self._flush()
                    await self._waiter
                finally:
                    self._waiter = None
            else:
                self._flush()
                return

    def write(self, data: bytes) -> None:
        self._tls.write(data)
        self._flush()

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()

    def keep(self, on_lot: OnLot | None) -> None:
        """What is read is sealed: nothing can be kept back."""

    def pull(self) -> None:
        """Nothing waits."""

    def _arrived(self, data: bytes, t_s: float) -> None:
        self._incoming.write(data)
        if self._waiter is not None:
            if not self._waiter.done():
                self._waiter.set_result(None)
            return
        plain, ended, fault = [], False, ""
        while not ended:
            try:
                piece = self._tls.read(_READ_BYTES)
                plain.append(piece)
                ended = not piece
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:  # close_notify: a clean end
                ended = True
            except ssl.SSLError as error:
                ended, fault = True, f"TLS: {tls_words(error)}"
        self._flush()
        if whole := b"".join(plain):
            if self._inner is not None:
                self._inner.mind(whole)
            self._on_bytes(whole, t_s)
        if ended and self._inner is not None:
            self._inner.close()
            self._on_close("tls" if fault else None, fault)

    def _lost(self, kind: ErrorKind | None, detail: str) -> None:
        if self._waiter is None:
            self._on_close(kind, detail)
        elif not self._waiter.done():
            self._waiter.set_exception(ConnectionResetError(detail or "the server closed the connection"))

    def _flush(self) -> None:
        if self._outgoing.pending and self._inner is not None:
            self._inner.write(self._outgoing.read())
