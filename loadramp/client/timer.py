"""Waits until an instant of CLOCK_MONOTONIC, to within some tens of microseconds where the kernel has timer files.

Event loops round their timers to a millisecond (epoll, libuv); at 1,000 arrivals a second that is a whole gap. A
timerfd wakes the loop as a socket does. Without one, and on a simulated clock, the loop's own timer is used.
"""

import asyncio
import ctypes
import os
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class _TimerFile:
    """A timerfd. ``fd`` is -1 where the kernel has none, and after ``close``."""

    __slots__ = ("_libc", "fd")

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        known = hasattr(self._libc, "timerfd_create")
        self.fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC) if known else -1

    def set(self, first: _Timespec, every: _Timespec, flags: int = 0) -> None:
        """Fire after (or with _TFD_TIMER_ABSTIME at) ``first``, then each ``every``; zeros: never."""
        self._libc.timerfd_settime(self.fd, flags, ctypes.byref(_Itimerspec(every, first)), None)

    def fired(self) -> bool:
        """Whether it has fired since the last call."""
        try:
            return bool(os.read(self.fd, 8))
        except BlockingIOError:
            return False

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Timer:
    """One waiter at a time. Call ``close`` when done with it."""

    __slots__ = ("_clock", "_file", "_loop", "_waiter")

    def __init__(self, clock: Callable[[], float], precise: bool = True) -> None:
        """``clock`` is the one whose instants are waited for; ``precise`` only if that is CLOCK_MONOTONIC."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._file = _TimerFile() if precise else None
        if self._file is not None and self._file.fd >= 0:
            self._loop.add_reader(self._file.fd, self._fired)

    async def until(self, instant_s: float) -> None:
        """Return at ``instant_s``; if that is past, after one turn of the loop."""
        if instant_s <= self._clock():
            await asyncio.sleep(0)
        elif self._file is None or self._file.fd < 0:
            await asyncio.sleep(instant_s - self._clock())
        else:
            seconds = int(instant_s)
            first = _Timespec(seconds, max(1, int((instant_s - seconds) * 1e9)))
            self._file.set(first, _Timespec(0, 0), _TFD_TIMER_ABSTIME)
            self._waiter = self._loop.create_future()
            await self._waiter

    def close(self) -> None:
        if self._file is not None and self._file.fd >= 0:
            self._loop.remove_reader(self._file.fd)
            self._file.close()

    def _fired(self) -> None:
        if self._file is not None and self._file.fired() and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class PeriodicTimer:
    """Calls ``on_beat`` every ``period_s`` (under a second) between ``start`` and ``stop``; when the loop has missed
    several beats it calls once."""

    __slots__ = ("_file", "_loop", "_on_beat", "_period_s", "_running")

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float, on_beat: Callable[[], None]) -> None:
        self._loop, self._period_s, self._on_beat = loop, period_s, on_beat
        self._file: _TimerFile | None = None
        self._running = False

    def start(self) -> bool:
        """False: this kernel has no timer files, and nothing will be called."""
        self._file = self._file or _TimerFile()
        if self._file.fd < 0:
            return False
        every = _Timespec(0, int(self._period_s * 1e9))
        self._file.set(every, every)
        self._loop.add_reader(self._file.fd, self._fired)
        self._running = True
        return True

    def stop(self) -> None:
        if self._running and self._file is not None:
            self._loop.remove_reader(self._file.fd)
            self._file.set(_Timespec(0, 0), _Timespec(0, 0))
            self._running = False

    def close(self) -> None:
        self.stop()
        if self._file is not None:
            self._file.close()

    def _fired(self) -> None:
        if self._file is not None and self._file.fired():
            self._on_beat()
