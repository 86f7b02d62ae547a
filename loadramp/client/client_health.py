"""How the client itself fares: loop lag, CPU share, pauses of the garbage collector. The instrument watches itself."""

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from loadramp.client.http.pool import Counts
from loadramp.record.types import ClientSample

TICK_S = 0.020


@dataclass(slots=True)
class HealthMonitor:
    """Ticks every 20 ms on an absolute schedule; how late a tick is, is how late any other event of the loop was.

    ``worker`` names the process in the samples; ``clock`` is that of the run.
    """

    clock: Callable[[], float]
    t0_s: float
    worker: int = 0
    _lag_s: float = 0.0
    _gc_s: float = 0.0
    _gc_began_s: float = 0.0
    _cpu_s: float = 0.0
    _at_s: float = 0.0
    _before: tuple[int, ...] = (0, 0, 0, 0, 0)
    _due_s: float = 0.0
    _timer: asyncio.TimerHandle | None = field(default=None)

    def start(self) -> None:
        self._cpu_s, self._at_s = time.process_time(), self.clock()
        gc.callbacks.append(self._collected)
        self._due_s = self.clock()
        self._await_tick()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            gc.callbacks.remove(self._collected)
            self._timer = None

    def sample(self, counts: Counts, held: int) -> ClientSample:
        """What happened since the last sample.

        Args:
            counts: the client's: ``sent finished tokens in_flight waiting late_reads``, totals so far.
            held: requests kept back so far.
        """
        now_s, cpu_s = self.clock(), time.process_time()
        wall_s = max(now_s - self._at_s, 1e-9)
        totals = (counts.sent, counts.finished, counts.tokens, held, counts.late_reads)
        sent, finished, tokens, held, late_reads = (
            now - before for now, before in zip(totals, self._before, strict=True)
        )
        taken = ClientSample(
            t_s=now_s - self.t0_s,
            worker=self.worker,
            loop_lag_s=self._lag_s,
            cpu_ratio=(cpu_s - self._cpu_s) / wall_s,
            gc_pause_s=self._gc_s,
            in_flight=counts.in_flight,
            waiting=counts.waiting,
            sent=sent,
            finished=finished,
            tokens=tokens,
            held=held,
            late_reads=late_reads,
        )
        self._lag_s, self._gc_s, self._cpu_s, self._at_s = 0.0, 0.0, cpu_s, now_s
        self._before = totals
        return taken

    def _await_tick(self) -> None:
        """A timer and no task: fifty times a second, a task that sleeps costs several times as much."""
        self._due_s += TICK_S
        self._timer = asyncio.get_running_loop().call_later(self._due_s - self.clock(), self._tick)

    def _tick(self) -> None:
        late_s = self.clock() - self._due_s
        self._lag_s = max(self._lag_s, late_s)
        if late_s > 1.0:
            self._due_s = self.clock()  # after a long stall tick on from now: one stall, one lag
        self._await_tick()

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        now_s = time.perf_counter()
        if phase == "start":
            self._gc_began_s = now_s
        else:
            self._gc_s = max(self._gc_s, now_s - self._gc_began_s)
