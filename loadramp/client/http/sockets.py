"""The seam between client and network (``Connect`` opens a ``Pipe``), and pipes on real sockets.

The instant of a read is taken first of all: by the kernel where it stamps segments, else here.
"""

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from loadramp.client.client_failure import describe_exception
from loadramp.client.error_text import describe_os_error, describe_tls_error
from loadramp.client.http.c_reader import KeptReads, Read, Taken
from loadramp.client.http.poller import Poller
from loadramp.client.stream.event_batch import EventBatch
from loadramp.client.stream.event_shape import NotedEvents
from loadramp.record.types import ErrorKind

OnBytes = Callable[[bytes, float], None]
"""Data and the instant it arrived, absolute seconds on the loop's clock (CLOCK_MONOTONIC)."""
OnClose = Callable[[ErrorKind | None, str], None]
"""Called once. None: clean end of file; ``reset``: connection reset, with words."""

OnBatch = Callable[[EventBatch | NotedEvents | list[Read]], None]
Stamps = Literal["kernel", "user"]
"""Who took the instants of the latest reads."""

_READ_BYTES = 65_536
_CONTROL_BYTES = 64
_AHEAD_S = 0.00005  # a stamp may be this far ahead of the clock that was read before it
_unpack_timespec = struct.Struct("@ll").unpack_from


class Pipe(Protocol):
    """A connection as the client sees it."""

    @property
    def stamps(self) -> Stamps:
        """Who took the instants of the latest reads."""

    def write(self, data: bytes) -> None:
        """Send all of ``data``, now or as soon as the other end takes it."""

    def close(self) -> None:
        """Let go of it; no callback is called any more."""

    def expect(self, on_batch: OnBatch, patient: bool) -> None:
        """A request is about to be written. Reads of whole events in its reply may wait until there is a batch of them,
        and where it is ``patient``, all of the reply until it is over. A pipe may ignore this."""

    def parsed(self, sure: bool, like: bytes = b"") -> None:
        """Call it each time that all that came was parsed. ``sure``: a whole event was the last of it. Only then events
        may be noted without being parsed. ``like``: the JSON of an event as the next ones may be."""

    def pull(self) -> None:
        """Hand over what waits."""


Connect = Callable[[OnBytes, OnClose], Awaitable[Pipe]]
"""Opens a pipe. Raises ConnectFailed."""


class ConnectFailed(Exception):  # noqa: N818  # named after the event, like the error kinds
    """No pipe could be opened; ``detail`` says why in plain words."""

    def __init__(self, kind: Literal["connect", "tls", "client"], detail: str) -> None:
        super().__init__(detail)
        self.kind: Literal["connect", "tls", "client"] = kind
        self.detail = detail


@dataclass(slots=True)
class SocketTally:
    """Counts over all pipes of one dialer."""

    late_reads: int = 0
    opened: int = 0
    poller: Poller = field(default_factory=Poller)
    """Waits for their data, and counts the reads."""


@dataclass(slots=True, eq=False)
class SocketPipe:
    """A connected, non-blocking TCP socket on the running loop."""

    _sock: socket.socket
    _on_bytes: OnBytes
    _on_close: OnClose
    _tally: SocketTally
    stamps: Stamps = field(default="user", init=False)
    late_reads: int = field(default=0, init=False)
    _kept: KeptReads | None = field(default=None, init=False)
    _on_batch: OnBatch | None = field(default=None, init=False)
    _like: bytes = field(default=b"", init=False)
    _pulling: bool = field(default=False, init=False)
    _sure: bool = field(default=False, init=False)
    _unsent: bytearray = field(default_factory=bytearray, init=False)
    _fd: int = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, init=False)
    _poller: Poller = field(init=False)

    def __post_init__(self) -> None:
        self._fd = self._sock.fileno()
        self._poller = self._tally.poller
        self._poller.add(self._fd, self._readable)

    def write(self, data: bytes) -> None:
        if self._fd < 0:
            return
        if not self._unsent:
            try:
                sent = self._sock.send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._ended("reset", describe_os_error(error))
                return
            if sent == len(data):
                return
            self._loop.add_writer(self._fd, self._writable)
            data = data[sent:]
        self._unsent += data

    def close(self) -> None:
        if self._fd >= 0:
            self._poller.remove(self._fd)
            if self._unsent:
                self._loop.remove_writer(self._fd)
            self._fd, self._kept = -1, None
            self._sock.close()

    def expect(self, on_batch: OnBatch, patient: bool) -> None:
        if self._fd < 0:
            return
        if self._kept is None:
            self._kept = self._poller.keep(self._fd)
        self._on_batch = on_batch
        if self._kept is not None:
            self._kept.expect(patient)

    def parsed(self, sure: bool, like: bytes = b"") -> None:
        self._sure, self._like = sure, like
        if self._kept is not None and self._fd >= 0 and not self._pulling:  # else there is more to be parsed
            self._kept.note(sure, like)

    def pull(self) -> None:
        if self._kept is None or self._pulling:
            return
        taken = self._kept.take()
        if taken.kernel:
            self.stamps = "kernel"
        if taken.late:
            self._late(taken.late)
        self._pulling, self._sure = True, False
        try:
            self._hand_over(taken)
        finally:
            self._pulling = False
        if self._sure:
            self.parsed(True, self._like)
        if taken.over and self._fd >= 0:
            if taken.error:
                self._ended("reset", describe_os_error(OSError(taken.error, "")))
            else:
                self._ended(None, "")

    def _hand_over(self, taken: Taken) -> None:
        """In the order in which it came, as long as somebody wants it."""
        for reads in (taken.opening, taken.noted, taken.batch, taken.others):
            if reads and self._fd >= 0:
                if isinstance(reads, list):
                    self._look_at(reads)
                if self._on_batch is not None:
                    self._on_batch(reads)

    def _readable(self, now_s: float, offset_s: float | None) -> None:
        try:
            self._read(now_s, offset_s)
        except Exception as error:  # the fence (``Connection._failed``), for a read that no connection has seen
            self.close()
            self._on_close("client", describe_exception(error))

    def _read(self, now_s: float, offset_s: float | None) -> None:
        if self._kept is not None:
            self.pull()
            return
        try:
            data, control, _, _ = self._sock.recvmsg(_READ_BYTES, _CONTROL_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._ended("reset", describe_os_error(error))
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
            if age_s > -_AHEAD_S:
                self.stamps = "kernel"
                if age_s > self._poller.late_s:
                    self._late(1)
            if age_s < 0.0:
                stamp_s = now_s
        else:
            stamp_s = time.monotonic()
        self._received(data, stamp_s)

    def _late(self, reads: int) -> None:
        self.late_reads += reads
        self._tally.late_reads += reads

    def _received(self, data: bytes, stamp_s: float) -> None:
        self._look_at([(data, stamp_s)])
        self._on_bytes(data, stamp_s)

    def _look_at(self, reads: list[Read]) -> None:
        """The poller must know where reads may be late."""
        for data, _ in reads if self._poller.beating else ():
            if self.stamps != "kernel" or data.count(b"data:") > 1:
                self._poller.note_blurred(data, self.stamps == "kernel")

    def note_decrypted(self, data: bytes) -> None:
        """Decrypted text was read: the poller must know where reads may be late."""
        if self._poller.beating:
            self._poller.note_blurred(data, self.stamps == "kernel")

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._ended("reset", describe_os_error(error))
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._fd)

    def _ended(self, kind: ErrorKind | None, detail: str) -> None:
        self.pull()  # what came before the end
        if self._fd >= 0:
            self.close()
            self._on_close(kind, detail)


@dataclass(slots=True, eq=False)
class TlsPipe:
    """TLS over a SocketPipe. Plain text carries the stamp of the segment that completed its record."""

    _context: ssl.SSLContext
    _name: str | None
    _on_bytes: OnBytes
    _on_close: OnClose
    _incoming: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO, init=False)
    _outgoing: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO, init=False)
    _tls: ssl.SSLObject = field(init=False)
    _inner: SocketPipe | None = field(default=None, init=False)
    _waiter: asyncio.Future[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._tls = self._context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._name)

    @property
    def stamps(self) -> Stamps:
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

    def expect(self, on_batch: OnBatch, patient: bool) -> None:
        """Data is encrypted when it is read, so none can be held back."""

    def parsed(self, sure: bool, like: bytes = b"") -> None:
        """Nothing is held back."""

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
                ended, fault = True, f"TLS: {describe_tls_error(error)}"
        self._flush()
        if whole := b"".join(plain):
            if self._inner is not None:
                self._inner.note_decrypted(whole)
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
