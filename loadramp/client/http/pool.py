"""Requests under way and the connections that carry them.

A connection is kept for the next request while it is young; the cost does not depend on the size of the pool.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf

from loadramp.client.client_failure import client_error_record, describe_exception
from loadramp.client.http.c_reader import Read
from loadramp.client.http.response import ResponseReader
from loadramp.client.http.sockets import Pipe
from loadramp.client.stream.answer import StreamAnswer
from loadramp.client.stream.event_batch import EventBatch
from loadramp.client.stream.event_shape import NotedEvents
from loadramp.record.types import Arrival, ErrorKind, Record
from loadramp.scenario.scenario import Target

IDLE_S = 4.0
"""How long a connection is kept for another request; vLLM closes idle ones at 5.0 s sharp."""
STALE_S, STALE_CONNECTS, STALE_MOST_S = 0.05, 2.0, 1.0
"""A kept connection that dies this soon after the request, without a byte, was dead before it: the other end answers at
once that it knows nothing of it. So long, or twice what it took to connect, but never a second."""
END_GRACE_S = 0.25
"""How long the end of the HTTP response may follow ``[DONE]``: waiting for it only saves the connection."""

SHORTEST_LOOK_S = 0.05
"""A request is not looked at more often, unless a deadline is nearer."""
_TICK_RATIO = 0.1
_SHORTEST_WAIT_S = 0.001
_SLACK_S = 1e-6


@dataclass(slots=True)
class Counts:
    """Of all requests of a client, over its whole life."""

    sent: int = 0
    finished: int = 0
    tokens: int = 0
    """Output tokens; those of answers that still stream lag by one batch of reads."""
    in_flight: int = 0
    waiting: int = 0
    """In flight without an output event yet."""
    late_reads: int = 0
    """Reads that came more than 5 ms after their bytes; 0 where the kernel does not stamp."""

    def stream(self, answer: StreamAnswer, waiting: bool, counted: int) -> tuple[bool, int]:
        """Count what ``answer`` has beyond ``counted`` output events; returns whether it waits, and its events."""
        n = len(answer.event_s)
        if n and waiting:
            self.waiting -= 1
        self.tokens += n - counted
        return waiting and not n, n

    def end(self, waiting: bool, record: Record, counted: int) -> None:
        """Count a request that has ended, of which ``counted`` output events were counted before."""
        self.in_flight -= 1
        self.finished += 1
        self.waiting -= waiting
        self.tokens += (record.output_tokens or 0) - counted


@dataclass(slots=True, eq=False)
class Connection:
    """One connection: gives what it receives to the request that it carries. ``t0_s``: when the run began."""

    t0_s: float
    request: ActiveRequest | None = None
    pipe: Pipe | None = None
    dead: bool = False
    reused: bool = False
    connect_s: float = 0.0
    idle_since_s: float = 0.0

    def on_bytes(self, data: bytes, t_s: float) -> None:
        request = self.request
        if request is None:  # nobody asked: a server that sends out of turn is not asked again
            self.drop()
            return
        try:
            if request.reader.feed(data, t_s - self.t0_s):
                request.parsed()
        except Exception as error:  # the fence (``_failed``)
            self._failed(request, error)

    def on_batch(self, batch: EventBatch | NotedEvents | list[Read]) -> None:
        request = self.request
        if request is None:
            self.drop()
            return
        try:
            request.reader.feed_batch(batch, self.t0_s)
            request.parsed()
        except Exception as error:  # the fence (``_failed``)
            self._failed(request, error)

    def on_close(self, kind: ErrorKind | None, detail: str) -> None:
        self.dead = True
        request = self.request
        if request is not None:
            try:
                request.disconnected(kind, detail)
            except Exception as error:  # the fence (``_failed``)
                self._failed(request, error)

    def _failed(self, request: ActiveRequest, error: Exception) -> None:
        """The client failed on what it received. A broad ``except`` is right here and in the other places that call
        ``ActiveRequest.abandon``, and nowhere else: what a server can send has no bounds, and an exception in a
        callback of the loop would leave this request waiting for ever. It ends this request only, whose record names
        it."""
        request.abandon(error)
        self.give_up()

    def drop(self) -> None:
        self.dead = True
        self.request = None
        if self.pipe is not None:
            self.pipe.close()

    def give_up(self) -> None:
        """Drop it after a failure of the client: closing may fail as well, which says nothing new."""
        with suppress(Exception):
            self.drop()


@dataclass(slots=True)
class Reminders:
    """Looks at the requests of a client, at each at most ``wait_s`` after the latest time, with one timer.

    A timer for each costs ten times as much, and an object for each keeps the garbage collector busy.
    """

    now_s: Callable[[], float]
    wait_s: float
    requests: Mapping[ActiveRequest, None]
    """Those under way."""
    _timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Call it when there is a request that waits for a look."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.wait_s * _TICK_RATIO, self._tick)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        next_s = self.now_s() + self.wait_s * _TICK_RATIO + _SLACK_S
        for request in [request for request in self.requests if request.look_s < next_s]:
            request.check()
        if self.requests:
            self.start()


@dataclass(slots=True)
class Pool:
    """Connections that wait for another request. ``now_s``: seconds since the run began."""

    now_s: Callable[[], float]
    reminders: Reminders
    _idle: deque[Connection] = field(default_factory=deque)  # oldest left, latest right
    _reaper: asyncio.TimerHandle | None = None

    def take(self) -> Connection | None:
        """The connection used last, while it is young."""
        while self._idle:
            connection = self._idle.pop()
            if connection.dead:
                continue
            if self.now_s() - connection.idle_since_s < IDLE_S:
                connection.reused = True
                return connection
            connection.drop()
        return None

    def keep(self, connection: Connection) -> None:
        connection.idle_since_s = self.now_s()
        self._idle.append(connection)
        if self._reaper is None:
            self._reaper = asyncio.get_running_loop().call_later(IDLE_S, self._reap)

    def close(self) -> None:
        self.reminders.close()
        while self._idle:
            self._idle.pop().give_up()
        if self._reaper is not None:
            self._reaper.cancel()
            self._reaper = None

    def _reap(self) -> None:
        """Drop the old end of the pool before the server does."""
        now_s = self.now_s()
        while self._idle and (self._idle[0].dead or now_s - self._idle[0].idle_since_s >= IDLE_S - _SLACK_S):
            self._idle.popleft().give_up()
        self._reaper = None
        if self._idle:
            wait_s = max(_SHORTEST_WAIT_S, self._idle[0].idle_since_s + IDLE_S - now_s)
            self._reaper = asyncio.get_running_loop().call_later(wait_s, self._reap)


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """One request under way: its response and its connection.

    Of a patient one little is in memory while its answer streams: the reader is made when there is something to read.
    """

    _target: Target
    arrival: Arrival
    data: bytes
    """The request as it is sent."""
    _make: Callable[[Arrival], ResponseReader]
    _counts: Counts
    _pool: Pool
    patient: bool = False
    """Nobody waits for it: it may be told of its answer a little later."""
    on_over: Callable[[ActiveRequest], None] | None = None
    """Called when its answer is over, given up, or ``stale``; not of one that ``send_on`` waits for."""
    done: Callable[[ActiveRequest, Record], None] | None = None
    """For whoever started it."""
    connection: Connection | None = None
    failure: str = ""
    """What the client failed on; empty while it has not."""
    stale: bool = False
    """The kept connection was dead before the request: it may be sent again."""
    connect_s: float | None = None
    """As in its record."""
    _reader: ResponseReader | None = None
    _waiting: bool = True
    _now_s: Callable[[], float] = field(init=False)
    _sent_s: float | None = None
    _counted: int = 0
    _ending: bool = False
    _late: int = 0
    look_s: float = inf
    """When it is to be looked at (``Reminders``)."""
    _timer: asyncio.TimerHandle | None = None
    _done: asyncio.Future[None] | None = None

    def __post_init__(self) -> None:
        self._now_s = self._pool.now_s
        self._counts.in_flight += 1
        self._counts.waiting += 1

    @property
    def reader(self) -> ResponseReader:
        reader = self._reader
        if reader is None:
            reader = self._reader = self._make(self.arrival)
            reader.record.sent_s, reader.record.connect_s = self._sent_s, self.connect_s
        return reader

    @property
    def record(self) -> Record:
        return self.reader.record

    async def send_on(self, connection: Connection) -> None:
        """Write the request and return when its answer is over, given up, or ``stale``."""
        self._done = asyncio.get_running_loop().create_future()
        self.begin_on(connection)
        await self._done

    def begin_on(self, connection: Connection) -> None:
        """Write the request."""
        pipe = connection.pipe
        assert pipe is not None
        self.stale = False
        self.connection, connection.request = connection, self
        self._late = getattr(pipe, "late_reads", 0)
        if self._sent_s is None:
            self._counts.sent += 1
        pipe.expect(connection.on_batch, self.patient)
        self._sent_s = now_s = self._now_s()
        if self._reader is not None:
            self._reader.record.sent_s, self._reader.record.connect_s = now_s, self.connect_s
        pipe.write(self.data)
        if self.connection is not None:
            first_s = self._target.first_timeout_s if self._target.stream else self._target.timeout_s
            self._look_in(min(first_s, self._target.timeout_s), now_s)

    def parsed(self) -> None:
        """Bytes were parsed."""
        self._count()
        if self.reader.over:
            self.release()
        elif not self._ending and self.reader.ended_s is not None:
            self._ending = True
            self.check()  # sets the timer to the short wait for the response's end
        connection = self.connection
        if connection is not None and connection.pipe is not None:
            connection.pipe.parsed(self.reader.patient, self.reader.answer.like)

    def pull(self) -> None:
        """Take what the connection holds back; the end may be among it."""
        if self.connection is not None and self.connection.pipe is not None:
            self.connection.pipe.pull()

    def disconnected(self, kind: ErrorKind | None, detail: str) -> None:
        """The connection died. A kept one that dies at once and without a byte was dead before: the server has not seen
        the request."""
        now_s = self._now_s()
        connection = self.connection
        if connection is not None and connection.reused and self._sent_s is not None and not self.reader.began:
            stale_s = min(max(STALE_S, STALE_CONNECTS * connection.connect_s), STALE_MOST_S)
            self.stale = now_s - self._sent_s < stale_s
        if not self.stale:
            self.reader.closed(kind, detail, now_s)
        self.release()

    def fail(self, kind: ErrorKind, detail: str) -> None:
        """Give up, for a reason that lies outside the answer."""
        self.pull()
        self.reader.fail(kind, detail, self._now_s())
        self.release()

    def release(self) -> None:
        """Stop waiting: give the connection back or drop it, and wake ``send_on``."""
        self._count()
        self._stop_waiting()
        connection, self.connection = self.connection, None
        if connection is not None:
            self._part_with(connection)

    def abandon(self, error: Exception) -> None:
        """The client failed on this request with an unforeseen exception: the request is over. Never raises."""
        self.failure = self.failure or describe_exception(error)
        self._stop_waiting()
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.give_up()

    def finish(self) -> Record:
        """The finished record; the counts are brought up to it. Never raises."""
        record = self.record
        try:
            if not self.failure:
                self.release()
                record = self.reader.finish()
        except Exception as error:  # the fence (``Connection._failed``)
            self.abandon(error)
        if self.failure:
            record = client_error_record(self.record, self.failure, self._now_s())
        self._counts.end(self._waiting, record, self._counted)
        return record

    def _stop_waiting(self) -> None:
        self._look_no_more()
        if self._done is not None:
            if not self._done.done():
                self._done.set_result(None)  # ``send_on`` goes on in a later turn of the loop
        elif self.on_over is not None:
            asyncio.get_running_loop().call_soon(self.on_over, self)
            self.on_over = None

    def _look_in(self, wait_s: float, now_s: float) -> None:
        """Look at it again after at most ``wait_s``. What arrives meanwhile can bring no deadline nearer than
        ``Reminders.wait_s``; among it, unparsed, a finish reason."""
        self._look_no_more()
        if wait_s >= self._pool.reminders.wait_s:
            self.look_s = now_s + self._pool.reminders.wait_s
            self._pool.reminders.start()
        else:
            self._timer = asyncio.get_running_loop().call_later(max(_SHORTEST_WAIT_S, wait_s), self.check)

    def _look_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.look_s = inf

    def _part_with(self, connection: Connection) -> None:
        connection.request = None
        if connection.pipe is not None:
            self.record.stamps = connection.pipe.stamps
            if getattr(connection.pipe, "late_reads", 0) > self._late:
                self.record.warnings.append("late_reads")
            connection.pipe.parsed(False)
        if self.reader.over and self.reader.reusable and not connection.dead:
            self._pool.keep(connection)
        else:
            connection.drop()

    def _count(self) -> None:
        self._waiting, self._counted = self._counts.stream(self.reader.answer, self._waiting, self._counted)

    def check(self) -> None:
        """Look at it: called by a timer."""
        try:
            self._look()
        except Exception as error:  # the fence (``Connection._failed``)
            self.abandon(error)

    def _look(self) -> None:
        """Parse what waits, then give up, finish, or sleep until the next instant that matters."""
        self.pull()
        if self.connection is None:  # that was the end
            return
        self.reader.digest()
        self._count()
        now_s, sent_s = self._now_s(), self._sent_s
        assert sent_s is not None
        deadline_s, kind, detail = deadline_of(self._target, self.reader.answer, sent_s, self.reader.ended_s)
        if self.reader.over:
            self.release()
        elif now_s < deadline_s - _SLACK_S:
            self._look_in(deadline_s - now_s, now_s)
        else:
            if kind is not None:
                self.reader.fail(kind, detail, now_s)
            self.release()


def deadline_of(
    target: Target, answer: StreamAnswer, sent_s: float, ended_s: float | None
) -> tuple[float, ErrorKind | None, str]:
    """The next instant at which something must happen to a request sent at ``sent_s``, and what: a time-out, or (None)
    an end left open. ``ended_s``: since when nothing more can come that matters.

    Timers count output events: comments and empty events do not stop them.
    """
    total_s = sent_s + target.timeout_s
    if ended_s is not None:
        return min(total_s, ended_s + min(target.grace_s, END_GRACE_S)), None, ""
    if answer.finished_s is not None and answer.last_s is not None:
        if not answer.resumed:
            return min(total_s, answer.last_s + target.grace_s), None, ""
        # output has followed a finish reason before and may do so again: no grace, but the whole idle time-out
        return min(total_s, answer.finished_s + target.idle_timeout_s), None, ""
    if answer.event_s:
        quiet_s = answer.event_s[-1] + target.idle_timeout_s
        if quiet_s < total_s:
            return quiet_s, "timeout_idle", f"no output for {target.idle_timeout_s:g} s"
    elif target.stream and sent_s + target.first_timeout_s < total_s:
        first_s = sent_s + target.first_timeout_s
        return first_s, "timeout_first", f"no output within {target.first_timeout_s:g} s"
    return total_s, "timeout_total", f"not finished within {target.timeout_s:g} s"
