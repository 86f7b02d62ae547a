"""A jumping event loop: time does not pass, it jumps to the next timer, so minutes of waiting are no waiting at all.

``loop.time()`` is the clock. No real sockets, threads or subprocesses: only timers move it.
The same program sees the same instants.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DeadlockError(RuntimeError):
    """Nothing is scheduled and nothing is ready: the program waits for something that can never happen."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time stands still while callbacks run and jumps when all of them wait."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._timers_s: list[float] = []
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio's; the instant is also noted, so that the clock can jump to exactly it."""
        heapq.heappush(self._timers_s, when)
        return super().call_at(when, callback, *args, context=context)

    def _jump(self) -> None:
        """To the next timer. A cancelled one only makes an extra stop."""
        while self._timers_s and self._timers_s[0] <= self._now_s:
            heapq.heappop(self._timers_s)
        if self._timers_s:
            self._now_s = self._timers_s[0]

    def _stuck(self) -> DeadlockError:
        waiting = sorted(task.get_coro().__qualname__ for task in asyncio.all_tasks(self))  # type: ignore[union-attr]
        return DeadlockError(
            f"nothing is scheduled at {self._now_s:.6f} s of simulated time, yet these wait: {', '.join(waiting)}"
        )


class _Jumping(selectors.SelectSelector):
    """Watches nothing: instead of waiting for a time-out it makes that time pass."""

    def __init__(self, jump: Callable[[], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, JumpingLoop)
            raise loop._stuck()
        if timeout > 0:
            self._jump()
        return []


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
