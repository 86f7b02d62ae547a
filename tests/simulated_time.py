"""A jumping event loop: time does not pass, it jumps to the next timer, so minutes of waiting are no waiting at all.

``loop.time()`` is the clock. No real sockets, threads or subprocesses: only timers move it.
The same program sees the same instants.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T")
MOST_CANCELLED = 50
"""With so many cancelled timers, and as many as others, they are cleared away before their time."""


class DeadlockError(RuntimeError):
    """Nothing is scheduled and nothing is ready: the program waits for something that can never happen."""


class JumpingLoop(asyncio.BaseEventLoop):
    """An asyncio loop whose time stands still while callbacks run and jumps when all of them wait.

    Whole runs make hundreds of thousands of callbacks: what asyncio does besides for each of them (looks at sockets,
    asks whether to debug, compares timers in Python) is left out. Timers of one instant run in the order in which they
    were set.
    """

    get_debug = staticmethod(bool)  # False, without a call in Python

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._calls = 0
        self._ready: deque[asyncio.Handle]  # of asyncio's own loop, as the others here
        self._scheduled: list[tuple[float, int, asyncio.TimerHandle]]
        self._timer_cancelled_count: int
        self._clock_resolution: float
        self._stopping: bool
        super().__init__()

    def time(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        timer._scheduled = True
        self._calls += 1
        heappush(self._scheduled, (when, self._calls, timer))
        return timer

    def _run_once(self) -> None:
        """What is ready; where nothing is, time jumps to exactly the next timer."""
        ready, timers = self._ready, self._scheduled
        if self._timer_cancelled_count > MOST_CANCELLED + len(timers) // 2:
            timers[:] = [entry for entry in timers if not entry[2]._cancelled]
            heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][2]._cancelled:
            self._timer_cancelled_count -= 1
            heappop(timers)[2]._scheduled = False
        if not ready and not self._stopping:
            if not timers:
                raise self._stuck()
            self._now_s = max(self._now_s, timers[0][0])
        end_s = self._now_s + self._clock_resolution
        while timers and timers[0][0] < end_s:
            timer = heappop(timers)[2]
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _write_to_self(self) -> None:
        """Nothing sleeps that would have to be woken (by Ctrl-C)."""

    def _stuck(self) -> DeadlockError:
        waiting = sorted(task.get_coro().__qualname__ for task in asyncio.all_tasks(self))  # type: ignore[union-attr]
        return DeadlockError(
            f"nothing is scheduled at {self._now_s:.6f} s of simulated time, yet these wait: {', '.join(waiting)}"
        )


def new_loop() -> JumpingLoop:
    """A jumping loop that starts at 0 s."""
    return JumpingLoop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run ``main`` to its end in simulated time, as asyncio.run does in real time.

    Raises:
        DeadlockError: everything waits and no timer is set.
    """
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)
