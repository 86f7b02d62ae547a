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


class Timer:
    """One waiter at a time. Call ``close`` when done with it."""

    __slots__ = ("_clock", "_fd", "_libc", "_loop", "_waiter")

    def __init__(self, clock: Callable[[], float], precise: bool = True) -> None:
        """``clock`` is the one whose instants are waited for; ``precise`` only if that is CLOCK_MONOTONIC."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._libc = ctypes.CDLL(None, use_errno=True) if precise else None
        self._fd = -1
        if self._libc is not None and hasattr(self._libc, "timerfd_create"):
            self._fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
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
