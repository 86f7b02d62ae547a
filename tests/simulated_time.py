"""A jumping event loop: time does not pass, it jumps to the next timer, so minutes of waiting are no waiting at all.

``loop.time()`` is the clock. No real sockets, threads or subprocesses: only timers move it.
The same program sees the same instants.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class DeadlockError(RuntimeError):
    """Nothing is scheduled and nothing is ready: the program waits for something that can never happen."""


class JumpingLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose time stands still while callbacks run and jumps when all of them wait."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s
        self._scheduled: list[asyncio.TimerHandle]  # of asyncio's own loop
        super().__init__(_Jumping(self._jump))

    def time(self) -> float:
        """Simulated seconds."""
        return self._now_s

    def _jump(self) -> None:
        """To exactly the next timer, which the loop has at the head of its heap."""
        self._now_s = max(self._now_s, self._scheduled[0].when())

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
