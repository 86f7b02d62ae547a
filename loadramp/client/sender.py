"""One process's share of the load: starts each arrival at its instant, never waits for an earlier one.

Open loop: an absolute schedule, planned before the step; lateness is recorded, never carried over to the next request.
Closed loop: so many users, each sending its next request when the last one is answered; after a failure it waits.
Sessions: the schedule starts them; each later turn is due when the answer before it has ended and the pause is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from asyncio_throttle.throttler import Throttler

from loadramp.client.client import Client
from loadramp.client.client_failure import client_error_record, describe_exception
from loadramp.client.http.pool import ActiveRequest
from loadramp.client.measuring_client import record_of
from loadramp.client.timer import Timer
from loadramp.record.types import Arrival, Calibration, Record, Step, no_room
from loadramp.scenario.scenario import Scenario
from loadramp.workload.placeholders import FIRST_TURN
from loadramp.workload.prompts.content import Content, content_of, next_content
from loadramp.workload.schedule import Prompts, plan_step, prompts_of

HOLD_S = 30.0
"""How far past its end a step is planned: load for the moment until the next step is decided."""
GIVE_UP_S = 1.0
"""An arrival later than this is recorded as failed and not sent: no storm of overdue requests after a stall."""
AHEAD, AHEAD_S, SPARE_S = 16, 0.05, 0.0001
"""So many requests at most, due within AHEAD_S of the first, are built in a row, and none when it is due soon."""
_SLACK_S = 1e-9
"""A timer may fire so much early."""
LEFT_OPEN_S = 0.2
"""An answer known to be over so much later than its last byte was left open by the server."""
FIRST_WAIT_S, LONGEST_WAIT_S, LONGEST_RETRY_AFTER_S = 1.0, 10.0, 60.0
"""How long a user waits after a failure: doubled with each failure in a row, or as long as the server asks."""
TURN = FIRST_TURN
"""The ``seq`` of a later turn is that of the session's first request plus so many for each turn before it."""


@dataclass(slots=True)
class _Ends:
    """When the arrivals of one step end: at the begin of the next one, once that is known."""

    until_s: float = float("inf")


@dataclass(slots=True, eq=False)
class _Pace:
    """The requests of one step, in the order in which they are due; some of them are built."""

    batches: Iterator[deque[_Ask]]
    ends: _Ends
    _ready: deque[_Ask] = field(default_factory=deque)

    def first(self) -> _Ask | None:
        """The one that is due first; None: there is none before the end of the step."""
        if not self._ready:
            self._ready = next(self.batches, self._ready)
        if self._ready and self._ready[0].arrival.due_s >= self.ends.until_s:
            self.batches = iter(())
            self._ready.clear()
        return self._ready[0] if self._ready else None

    def take(self) -> _Ask:
        return self._ready.popleft()


@dataclass(slots=True, frozen=True)
class _Ask:
    """One request, ready to be sent: its bytes, and what it says where a later turn will build on that."""

    arrival: Arrival
    request: bytes
    content: Content | None = None


@dataclass(slots=True)
class Sender:
    """Worker ``index`` of ``of``. ``write`` is called with every record as it finishes."""

    scenario: Scenario
    client: Client
    clock: Callable[[], float]
    t0_s: float
    write: Callable[[Record], None]
    index: int = 0
    of: int = 1
    salt: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    precise: bool = True
    keep_text: bool = False
    """Records keep the answers' text; otherwise it lives only as long as a session needs it."""
    held: int = 0
    """Requests that ``max_rps`` or ``max_in_flight`` kept back, or that came too late to be sent."""
    failure: str = ""
    """What broke in here; empty while nothing did."""
    _ends: _Ends = field(default_factory=_Ends)
    _users: int = 0
    _user_tasks: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: iter(()))
    _closed: Prompts | None = None
    _steps: list[Step] = field(default_factory=list)
    _resting: bool = True
    """Nothing new is sent, later turns included: before the first step, in a drain, at the end."""
    _sending: set[asyncio.Task[None]] = field(default_factory=set)
    _started: dict[ActiveRequest, _Ask] = field(default_factory=dict)
    """Requests under way that no task of ``_sending`` waits for."""
    _done: Callable[[ActiveRequest, Record], None] = field(init=False)
    _none_started: asyncio.Future[None] | None = None
    _thinking: set[asyncio.Task[None]] = field(default_factory=set)
    """Sessions between an answer and the next turn."""
    _paces: list[_Pace] = field(default_factory=list)
    _next_s: float = inf
    """When the first request of any of them is due."""
    _pacers: set[asyncio.Task[None]] = field(default_factory=set)
    _throttle: Throttler | None = None

    def __post_init__(self) -> None:
        self.client.meanwhile(self.launch_between)
        self._done = self._landed

    def begin(self, step: Step, first_seq: int) -> None:
        """Start ``step`` at its ``begin_s`` and end the one before at the same instant. Times must be filled in."""
        self._ends.until_s = step.begin_s
        self._ends = _Ends()
        self._steps = [*self._steps[-1:], step]
        self._resting = step.users is None and not step.rate_rps
        if self._resting:
            self._cut_sessions()
        if self.scenario.target.max_rps is not None and self._throttle is None:
            # asyncio-throttle fires in bursts, so it guards and never paces; a window of 100 ms keeps the bursts small
            limit = max(1, round(self.scenario.target.max_rps / self.of * 0.1))
            self._throttle = Throttler(limit, period=limit / (self.scenario.target.max_rps / self.of))
        run = self._closed_loop if step.users is not None else self._open_loop
        self._keep(self._pacers, run(step, first_seq))

    async def finish(self, deadline_s: float) -> None:
        """Start nothing more; wait for what is in flight until ``deadline_s`` of the run's time, then cut the rest."""
        self._stop_arrivals()
        await self._idle(max(0.0, deadline_s - self._now_s()))
        for task in tuple(self._sending):
            task.cancel()
        for active in tuple(self._started):
            self.client.cut(active)
        await self._idle(None)

    async def _idle(self, timeout_s: float | None) -> None:
        """Wait until nothing is in flight, at most so long."""
        waits: set[asyncio.Future[None]] = set(self._sending)
        if self._started:
            self._none_started = asyncio.get_running_loop().create_future()
            waits.add(self._none_started)
        if waits:
            await asyncio.wait(waits, timeout=timeout_s)

    async def close(self) -> None:
        """Cut everything and let go of the client."""
        await self.finish(0.0)
        await self.client.close()

    def _stop_arrivals(self) -> None:
        self._ends.until_s = float("-inf")
        self._users = 0
        self._resting = True
        self._cut_sessions()
        for task in tuple(self._pacers):
            task.cancel()

    def _cut_sessions(self) -> None:
        for task in tuple(self._thinking):
            task.cancel()

    async def _open_loop(self, step: Step, first_seq: int) -> None:
        ends = self._ends
        plan = plan_step(self.scenario, step, first_seq, self.salt, HOLD_S)[self.index :: self.of]
        timer, pace = Timer(self.clock, self.precise), _Pace(self._prepared(plan), ends)
        try:
            await timer.until(self.t0_s + step.begin_s)
            self._users = 0
            self._paces.append(pace)
            while (ask := pace.first()) is not None:
                self._next_s = min(self._next_s, self.t0_s + ask.arrival.due_s)
                await timer.until(self.t0_s + ask.arrival.due_s)
                self._launch_due()
        finally:
            if pace in self._paces:
                self._paces.remove(pace)
            timer.close()

    def launch_between(self) -> None:
        """Send what is due, between two pieces of other work, so that it never waits for several. Never raises."""
        try:
            self._launch_due()
        except Exception as error:  # as of a pacer's task (``_ended``): the other work must go on
            self._broke(error)

    def _launch_due(self) -> None:
        now_s = self.clock() + _SLACK_S
        if now_s < self._next_s:  # as nearly always
            return
        self._next_s = inf
        for pace in self._paces:
            while (ask := pace.first()) is not None and self.t0_s + ask.arrival.due_s <= now_s:
                self._launch(pace.take())
            if ask is not None:
                self._next_s = min(self._next_s, self.t0_s + ask.arrival.due_s)

    def _prepared(self, plan: Iterable[Arrival]) -> Iterator[deque[_Ask]]:
        """The requests of ``plan``, built before they are due, so that building is not lag: several in a row while
        there is time until the first of them, since that takes half as long for each."""
        ready: deque[_Ask] = deque()
        for arrival in plan:
            before_s = self._now_s()
            ready.append(self._prepare(arrival))
            now_s, first_s = self._now_s(), ready[0].arrival.due_s
            spare_s = first_s - now_s - 2.0 * (now_s - before_s)
            if len(ready) < AHEAD and arrival.due_s < first_s + AHEAD_S and spare_s > SPARE_S:
                continue
            yield ready
        if ready:
            yield ready

    async def _closed_loop(self, step: Step, first_seq: int) -> None:
        assert step.users is not None
        timer = Timer(self.clock, self.precise)
        try:
            await timer.until(self.t0_s + step.begin_s)
        finally:
            timer.close()
        self._closed = prompts_of(self.scenario, step, first_seq, self.salt)
        self._numbers = iter(range(self.index, 1 << 40, self.of))
        self._users = len(range(self.index, step.users, self.of))
        while self._user_tasks < self._users:
            self._keep(self._sending, self._user(self._user_tasks))
            self._user_tasks += 1

    async def _user(self, number: int) -> None:
        """One user: send, wait for the answer, think, again; leaves when a later step has fewer users.

        A user whose request failed waits, so that a server that refuses at once is not flooded.
        """
        failed = 0  # in a row
        try:
            while number < self._users and self._closed is not None:
                prompts = self._closed
                k = next(self._numbers)
                last = prompts.runs_out_at()
                if last is not None and k >= last:
                    return
                ask: _Ask | None = self._prepare(Arrival(prompts.first_seq + k, prompts.step, 0.0, prompts[k]))
                while ask is not None and number < self._users:
                    now_s = self._now_s()
                    ask = replace(ask, arrival=replace(ask.arrival, step=self._step_at(now_s), due_s=now_s))
                    record, later = self._followed(ask, await self._exchange(ask))
                    self._write(record)
                    failed = 0 if record.ok else failed + 1
                    pause_s = max(ask.arrival.prompt.think_s, wait_after(failed, record.retry_after_s))
                    if pause_s and number < self._users:
                        await self._pause(pause_s)
                    ask = later
        finally:
            self._user_tasks -= 1

    async def _pause(self, pause_s: float) -> None:
        """A user thinks or waits; the end of the load ends that at once."""
        task = asyncio.current_task()
        assert task is not None
        self._thinking.add(task)
        try:
            await asyncio.sleep(pause_s)
        finally:
            self._thinking.discard(task)

    def _launch(self, ask: _Ask) -> None:
        late_s = self._now_s() - ask.arrival.due_s
        most = self.scenario.pace.max_in_flight
        if late_s > GIVE_UP_S:
            self.write(self._not_sent(ask.arrival, f"not sent: the client was {late_s:.1f} s late"))
        elif most is not None and len(self._sending) + len(self._started) >= -(-most // self.of):
            self.write(self._not_sent(ask.arrival, no_room(most)))
        elif self._throttle is not None or not self._start(ask):
            self._keep(self._sending, self._send(ask))

    def _start(self, ask: _Ask) -> bool:
        """Send without a task, if the client can: a task costs more than sending does."""
        patient = not ask.arrival.prompt.following
        started = self.client.start(ask.arrival, ask.request, self._done, patient=patient)
        if started is not None:
            self._started[started] = ask
        return started is not None

    def _landed(self, active: ActiveRequest, record: Record) -> None:
        """The answer of a request that was started is over."""
        ask = self._started.pop(active)
        if not self._started and self._none_started is not None and not self._none_started.done():
            self._none_started.set_result(None)
        self._ended_with(ask, record)

    async def _send(self, ask: _Ask) -> None:
        """Send, and let the session go on when the answer is there."""
        self._ended_with(ask, await self._exchange(ask))

    def _ended_with(self, ask: _Ask, record: Record) -> None:
        record, later = self._followed(ask, record)
        self._write(record)
        if later is not None and not self._resting:
            self._keep(self._thinking, self._think(later))

    async def _think(self, later: _Ask) -> None:
        """Wait until a later turn is due; it belongs to the step that is on by then."""
        due_s = later.arrival.due_s
        await asyncio.sleep(max(0.0, due_s - self._now_s()))
        self._launch(replace(later, arrival=replace(later.arrival, step=self._step_at(due_s))))

    def _followed(self, ask: _Ask, record: Record) -> tuple[Record, _Ask | None]:
        """The record of ``ask``, and the turn that follows it."""
        try:
            return record, self._next_turn(ask, record)
        except (
            Exception
        ) as error:  # the fence (client/client_failure.py): the next turn is made of what the server sent
            return client_error_record(record, describe_exception(error), record.stream_end_s), None

    def _next_turn(self, ask: _Ask, record: Record) -> _Ask | None:
        """The turn that follows ``ask`` in its session; None where there is none, or where this one failed.

        It is due when the answer's stream has ended and the pause is over.
        """
        prompt = ask.arrival.prompt
        if not prompt.following or not record.ok or ask.content is None:
            return None
        first, *rest = prompt.following
        turn = replace(first, following=tuple(rest))
        content = next_content(ask.content, record.text or "", turn, self.calibration, self.scenario.target.api)
        now_s = self._now_s()
        ended_s = record.stream_end_s if record.stream_end_s is not None else now_s
        if now_s - ended_s > LEFT_OPEN_S:  # only by waiting was it known that nothing more would come
            ended_s = now_s
        due_s = ended_s + prompt.think_s
        arrival = Arrival(ask.arrival.seq + TURN, ask.arrival.step, due_s, turn)
        return _Ask(arrival, self.client.prepare(arrival, content), content if rest else None)

    async def _exchange(self, ask: _Ask) -> Record:
        if self._throttle is not None:
            before_s = self.clock()
            try:
                async with self._throttle:
                    self.held += self.clock() - before_s > 0.005
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()  # the record is the answer to it
                held = self._not_sent(ask.arrival, "not sent: held back by max_rps until the load had ended")
                held.status, held.error = "unfinished", None
                return held
        return await self.client.send(ask.arrival, ask.request)

    def _write(self, record: Record) -> None:
        if not self.keep_text:
            record.text = None
        self.write(record)

    def _not_sent(self, arrival: Arrival, why: str) -> Record:
        self.held += 1
        record = record_of(arrival, self.index)
        record.stream_end_s = self._now_s()
        record.status, record.error, record.error_detail = "error", "client", why
        return record

    def _prepare(self, arrival: Arrival) -> _Ask:
        content = content_of(arrival.prompt, self.calibration, self.scenario.target.api)
        request = self.client.prepare(arrival, content)
        return _Ask(arrival, request, content if arrival.prompt.following else None)

    def _keep(self, tasks: set[asyncio.Task[None]], coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        tasks.add(task)
        task.add_done_callback(partial(self._ended, tasks))

    def _ended(self, tasks: set[asyncio.Task[None]], task: asyncio.Task[None]) -> None:
        """A pacer or a user that broke must end the run: half the load under the whole one's name is a wrong number."""
        tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        self.failure = self.failure or f"{type(error).__name__}: {error}"

    def _step_at(self, t_s: float) -> int:
        """Index of the step that is on at ``t_s``; the next one is announced a little before it begins."""
        on = next((step for step in reversed(self._steps) if step.begin_s <= t_s), self._steps[0])
        return on.index

    def _now_s(self) -> float:
        return self.clock() - self.t0_s


def wait_after(failures: int, retry_after_s: float | None = None) -> float:
    """Seconds that a user of a closed loop waits before the next request.

    Args:
        failures: how many of its requests have failed in a row; 0: the last one was answered, no wait.
        retry_after_s: what the server asked for, if it did. Kept between FIRST_WAIT_S and LONGEST_RETRY_AFTER_S.
    """
    if failures == 0:
        return 0.0
    if retry_after_s is not None:
        return min(max(FIRST_WAIT_S, retry_after_s), LONGEST_RETRY_AFTER_S)
    return min(FIRST_WAIT_S * 2.0 ** min(failures - 1, 10), LONGEST_WAIT_S)
