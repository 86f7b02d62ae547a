"""The engine on an event loop: requests go in, tokens come out at their instants. Any loop, real or jumping.

Steps follow each other on an exact schedule: a loop that wakes a millisecond late does not slow the engine down. With
the same seed and the same arrivals the token instants are to the bit those of the engine alone.
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from loadramp.simulator.answers import ENGINE_DEAD
from loadramp.simulator.engine import Engine, RefusedError
from loadramp.simulator.faults import Fate, Faults
from loadramp.simulator.http import ServerConnection
from loadramp.simulator.job import GenerationJob
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.regimes import REGIMES

ENGINE_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)
_FAILING_S = 0.5
"""How long a server whose engine died still answers, with 503, before its process leaves."""
MEMORY_BYTES = 1.2e9
"""What an API process of vLLM takes."""
_LATE_S = 0.05
"""A loop later than this stops the simulated engine, too."""


class Service:
    """A simulated server without its sockets. To be made inside a running loop.

    Args:
        profile: the engine.
        seed: all chance, of the engine and of the faults.
        faults: what goes wrong on purpose.
        model: the name it serves.
        adapters: names of LoRA adapters, served as models too.
        answer_tokens: median natural length of an answer, for requests that do not force theirs.
        api_key: asked for under /v1 when set.
        clock: seconds; default: the loop's. A socket server passes time.monotonic (finer than uvloop's clock).
        epoch_s: Unix time at instant 0 of the clock; the default is a fixed date, so that bytes repeat.
    """

    def __init__(
        self,
        profile: EngineProfile,
        *,
        seed: int = 0,
        faults: Faults | None = None,
        model: str = "sim",
        adapters: Sequence[str] = (),
        answer_tokens: int = 200,
        api_key: str | None = None,
        clock: Callable[[], float] | None = None,
        epoch_s: float = 1_800_000_000.0,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = clock or self.loop.time
        self.faults = faults or Faults()
        regimes = profile.regimes if self.faults.regimes == "none" else REGIMES[self.faults.regimes]
        self.profile = replace(profile, speeds=(*profile.speeds, *self.faults.speeds), regimes=regimes)
        self.models = (model, *adapters)
        self.answer_tokens = answer_tokens
        self.api_key = api_key
        self.epoch_s = epoch_s
        self.state: Literal["up", "failing", "down"] = "up"
        self.connections: dict[ServerConnection, None] = {}
        """In the order in which they were opened."""
        self.on_down: list[Callable[[], None]] = []
        self.on_up: list[Callable[[], None]] = []
        self.late_s = 0.0
        """Longest time by which the loop was late for a step."""
        self._rng = np.random.default_rng(seed)
        self._jobs: dict[Hashable, GenerationJob] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._next_id = 0
        self._fresh = 0
        self._stepping: asyncio.Handle | None = None
        self._due_s = 0.0
        self._start()

    @property
    def at_cap(self) -> bool:
        """No more requests are taken in."""
        cap = self.profile.max_in_flight
        return cap is not None and len(self._jobs) >= cap

    def wall_s(self) -> float:
        """Unix time now."""
        return self.epoch_s + self.clock()

    def memory_bytes(self) -> float:
        """Resident memory of the process."""
        return MEMORY_BYTES + self.faults.leak_bytes_per_s * (self.clock() - self.started_s)

    def fate(self) -> Fate:
        """What is to happen to the next request."""
        return self.faults.draw(self._rng)

    def natural_tokens(self) -> int:
        """Length at which the model itself would stop: lognormal, sigma 0.6."""
        return max(1, round(self.answer_tokens * float(np.exp(0.6 * self._rng.standard_normal()))))

    def token(self) -> str:
        """16 hex digits, for identifiers."""
        return f"{int(self._rng.integers(1 << 62)):016x}"

    def submit(self, job: GenerationJob) -> None:
        """Let ``job`` run. Its callbacks come from the loop, never from within this call."""
        job.number = self._next_id
        self._next_id += 1
        self._jobs[job.number] = job
        delay_s = self.engine.frontend_s(self.clock())
        if self._fresh < self.faults.slow_requests:
            delay_s += self.faults.slow_s
        self._fresh += 1
        job.timer = self.loop.call_at(self.clock() + delay_s, self._enter, job)

    def cancel(self, job: GenerationJob) -> None:
        """Its client has gone."""
        if self._jobs.pop(job.number, None) is None:
            return
        if job.timer is not None:
            job.timer.cancel()
        self.engine.abort(job.number)

    def crash(self) -> None:
        """The engine dies, as ``faults.crash_kind`` says."""
        if self.state != "up":
            return
        if self.faults.crash_kind == "process":
            self._leave()
            return
        self.state = "failing"
        self._drop_jobs()
        self._timers.append(self.loop.call_later(_FAILING_S, self._leave))

    def close(self) -> None:
        """End everything at once."""
        self._stop_engine()
        self.state = "down"
        for timer in self._timers:
            timer.cancel()
        for connection in list(self.connections):
            connection.kill()

    # -- life and death

    def _start(self) -> None:
        self.state = "up"
        self.started_s = self.clock()
        self.engine = Engine(self.profile, self._rng.spawn(1)[0], self.started_s)
        self._fresh = 0
        if self.faults.crash_at_s is not None and not self._timers:
            self._timers.append(self.loop.call_later(self.faults.crash_at_s, self.crash))
        for up in self.on_up:
            up()

    def _stop_engine(self) -> None:
        if self._stepping is not None:
            self._stepping.cancel()
            self._stepping = None
        for job in self._jobs.values():
            if job.timer is not None:
                job.timer.cancel()

    def _drop_jobs(self) -> None:
        """All requests end with the error of a dead engine."""
        self._stop_engine()
        jobs = list(self._jobs.values())
        self._jobs.clear()
        for job in jobs:
            job.on_error(500, ENGINE_DEAD)

    def _leave(self) -> None:
        """The process is gone: connections break, new ones are refused."""
        self.state = "down"
        self._stop_engine()
        self._jobs.clear()
        for connection in list(self.connections):
            connection.kill()
        for down in self.on_down:
            down()
        if self.faults.restart_s is not None:
            self._timers.append(self.loop.call_later(self.faults.restart_s, self._start))

    # -- stepping

    def _enter(self, job: GenerationJob) -> None:
        """From the frontend into the engine's queue."""
        try:
            job.request = self.engine.submit(
                job.number, self.clock(), job.prompt_tokens, job.output_tokens, job.blocks, job.adapter, job.finish
            )
        except RefusedError:
            del self._jobs[job.number]
            job.on_error(503, ENGINE_BUSY)
            return
        if self._stepping is None:
            self._stepping = self.loop.call_soon(self._begin, None)

    def _begin(self, now_s: float | None) -> None:
        now_s = self.clock() if now_s is None else now_s
        duration_s = self.engine.begin(now_s)
        if duration_s is None:
            self._stepping = None
            return
        self._due_s = now_s + duration_s
        self._stepping = self.loop.call_at(self._due_s, self._end)
        if self.faults.crash_running is not None and self.engine.running >= self.faults.crash_running:
            self.crash()

    def _end(self) -> None:
        outcome = self.engine.finish()
        late_s = self.clock() - self._due_s
        for number, tokens in outcome.tokens:
            job = self._jobs.get(number)
            if job is None:
                continue  # its client has left in mid-step
            job.emitted += tokens
            last = job.emitted == job.output_tokens
            if last:
                del self._jobs[number]
            job.on_tokens(tokens, last)
        self.late_s = max(self.late_s, late_s)
        if self._stepping is not None:
            self._begin(self._due_s if late_s < _LATE_S else None)
