"""Waits until an instant of CLOCK_MONOTONIC, to some tens of microseconds where the kernel offers a timer file.

Event loops round their timers to a millisecond (epoll, libuv); at 1,000 arrivals a second that is a whole gap. A
timerfd wakes the loop like a socket does. Without one, and on a simulated clock, the loop's own timer serves.
"""

from __future__ import annotations

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


def _timerfd() -> tuple[ctypes.CDLL | None, int]:
    """The C library and a new timer file; -1 where the kernel has none."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "timerfd_create"):
        return None, -1
    return libc, libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)


class Timer:
    """One waiter at a time. Call ``close`` when done with it."""

    __slots__ = ("_clock", "_fd", "_libc", "_loop", "_waiter")

    def __init__(self, clock: Callable[[], float], precise: bool = True) -> None:
        """``clock`` is the one whose instants are waited for; ``precise`` only if that is CLOCK_MONOTONIC."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._libc, self._fd = _timerfd() if precise else (None, -1)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._fired)

    async def until(self, instant_s: float) -> None:
        """Return at ``instant_s``, or at once, but after a turn of the loop, when that is past."""
        if instant_s <= self._clock():
            await asyncio.sleep(0)
        elif self._fd < 0:
            await asyncio.sleep(instant_s - self._clock())
        else:
            seconds = int(instant_s)
            spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, max(1, int((instant_s - seconds) * 1e9))))
            assert self._libc is not None
            self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None)
            self._waiter = self._loop.create_future()
            await self._waiter

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Beat:
    """Calls ``on_beat`` every ``period_s`` (under a second) between ``start`` and ``stop``; beats that the loop missed
    are one."""

    __slots__ = ("_fd", "_libc", "_loop", "_on_beat", "_period_s", "_running")

    def __init__(self, loop: asyncio.AbstractEventLoop, period_s: float, on_beat: Callable[[], None]) -> None:
        self._loop, self._period_s, self._on_beat = loop, period_s, on_beat
        self._libc: ctypes.CDLL | None = None
        self._fd = -1
        self._running = False

    def start(self) -> bool:
        """False: this kernel has no timer files, nothing will beat."""
        if self._fd < 0:
            self._libc, self._fd = _timerfd()
        if self._fd < 0:
            return False
        self._set(self._period_s)
        self._loop.add_reader(self._fd, self._fired)
        self._running = True
        return True

    def stop(self) -> None:
        if self._running:
            self._loop.remove_reader(self._fd)
            self._set(0.0)
            self._running = False

    def close(self) -> None:
        self.stop()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _set(self, period_s: float) -> None:
        assert self._libc is not None
        every = _Timespec(0, int(period_s * 1e9))
        self._libc.timerfd_settime(self._fd, 0, ctypes.byref(_Itimerspec(every, every)), None)

    def _fired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._on_beat()
