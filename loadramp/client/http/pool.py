"""Requests under way and the connections that carry them: one timer a request, whatever it streams.

A connection is kept for the next request while it is young; taking and keeping one costs the same in any pool.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from loadramp.client.client_failure import escaped_words, wreck
from loadramp.client.http.response import ResponseReader
from loadramp.client.http.sockets import Pipe
from loadramp.client.stream.answer import StreamAnswer
from loadramp.client.stream.event_batch import Lot
from loadramp.record.types import ErrorKind, Record
from loadramp.scenario.scenario import Target

IDLE_S = 4.0
"""How long a connection is kept for another request; vLLM closes idle ones at 5.0 s sharp."""
STALE_S, STALE_CONNECTS, STALE_MOST_S = 0.05, 2.0, 1.0
"""A kept connection that dies this soon after the request, without a byte, was dead before it: the other end answers at
once that it knows nothing of it. So long, or twice what it took to connect, but never a second."""
END_GRACE_S = 0.25
"""How long the end of the HTTP response may follow ``[DONE]``: waiting for it only saves the connection."""

_SHORTEST_WAIT_S = 0.001
_SLACK_S = 1e-6


@dataclass(slots=True)
class Counts:
    """Of all requests of a client, over its whole life."""

    sent: int = 0
    finished: int = 0
    tokens: int = 0
    """Output tokens; those of answers that still stream lag by one lot of reads."""
    in_flight: int = 0
    waiting: int = 0
    """In flight without an output event yet."""
    late_reads: int = 0
    """Reads that came more than 5 ms after their bytes; 0 where the kernel does not stamp."""


class Connection:
    """One connection: gives what it hears to the flight it carries."""

    __slots__ = ("connect_s", "dead", "flight", "idle_since_s", "pipe", "reused", "t0_s")

    def __init__(self, t0_s: float) -> None:
        self.flight: Flight | None = None
        self.pipe: Pipe | None = None
        self.t0_s = t0_s
        self.dead = False
        self.reused = False
        self.connect_s = 0.0
        self.idle_since_s = 0.0

    def on_bytes(self, data: bytes, t_s: float) -> None:
        flight = self.flight
        if flight is None:  # nobody asked: a server that talks out of turn is not asked again
            self.drop()
        else:
            try:
                if flight.exchange.feed(data, t_s - self.t0_s):
                    flight.heard()
            except Exception as error:  # the fence (``_broke``)
                self._broke(flight, error)

    def on_lot(self, lot: Lot) -> None:
        flight = self.flight
        if flight is None:
            self.drop()
        else:
            try:
                flight.exchange.feed_lot(lot, self.t0_s)
                flight.heard()
            except Exception as error:  # the fence (``_broke``)
                self._broke(flight, error)

    def on_close(self, kind: ErrorKind | None, detail: str) -> None:
        self.dead = True
        flight = self.flight
        if flight is not None:
            try:
                flight.lost(kind, detail)
            except Exception as error:  # the fence (``_broke``)
                self._broke(flight, error)

    def _broke(self, flight: Flight, error: Exception) -> None:
        """The client failed on what it has heard. A broad ``except`` is right here and in the other places that call
        ``Flight.broke``, and nowhere else: what a server can send has no bounds, and an exception in a callback of the
        loop would leave this request waiting for ever. It ends this request only, and the record names it."""
        flight.broke(error)
        self.give_up()

    def drop(self) -> None:
        self.dead = True
        self.flight = None
        if self.pipe is not None:
            self.pipe.close()

    def give_up(self) -> None:
        """Drop it although something of it has failed: closing may fail as well, and says nothing new."""
        with suppress(Exception):
            self.drop()


@dataclass(slots=True)
class Pool:
    """Connections that wait for another request. ``now_s``: seconds since the run began."""

    now_s: Callable[[], float]
    _idle: deque[Connection] = field(default_factory=deque)  # oldest left, latest right
    _reaper: asyncio.TimerHandle | None = None

    def take(self) -> Connection | None:
        """The connection used last, while it is young."""
        while self._idle:
            line = self._idle.pop()
            if line.dead:
                continue
            if self.now_s() - line.idle_since_s < IDLE_S:
                line.reused = True
                return line
            line.drop()
        return None

    def keep(self, line: Connection) -> None:
        line.idle_since_s = self.now_s()
        self._idle.append(line)
        if self._reaper is None:
            self._reaper = asyncio.get_running_loop().call_later(IDLE_S, self._reap)

    def close(self) -> None:
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


class Flight:
    """One request under way: its exchange, its line, its one timer."""

    __slots__ = (
        "_counted",
        "_counts",
        "_done",
        "_ending",
        "_late",
        "_now_s",
        "_pool",
        "_sent_s",
        "_target",
        "_timer",
        "broken",
        "exchange",
        "line",
        "record",
        "stale",
        "waiting",
    )

    def __init__(self, target: Target, exchange: ResponseReader, record: Record, counts: Counts, pool: Pool) -> None:
        self.exchange = exchange
        self.record = record
        self.line: Connection | None = None
        self.broken = ""
        """What the client failed on; empty while it has not."""
        self.stale = False
        """The kept connection was dead before the request: it may be sent again."""
        self.waiting = True
        self._target = target
        self._counts = counts
        self._pool = pool
        self._now_s = pool.now_s
        self._sent_s = 0.0
        self._counted = 0
        self._ending = False
        self._late = 0
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] | None = None
        counts.in_flight += 1
        counts.waiting += 1

    async def ride(self, line: Connection, request: bytes) -> None:
        """Write ``request`` to ``line`` and return when its answer is over, given up, or ``stale``."""
        assert line.pipe is not None
        self.stale = False
        self._done = asyncio.get_running_loop().create_future()
        self.line, line.flight = line, self
        self._late = getattr(line.pipe, "late_reads", 0)
        if self.record.sent_s is None:
            self._counts.sent += 1
        self._sent_s = self.record.sent_s = self._now_s()
        line.pipe.write(request)
        if not self._done.done():
            self._check()
        await self._done

    def heard(self) -> None:
        """Bytes were parsed."""
        self._count()
        if self.exchange.over:
            self.land()
        elif not self._ending and self.exchange.ended_s is not None:
            self._ending = True
            self._check()  # sets the timer to the short wait for the response's end
        line = self.line
        if line is not None and line.pipe is not None:
            line.pipe.keep(line.on_lot if self.exchange.patient else None)

    def pull(self) -> None:
        """Take what the line keeps back; among it may be the end."""
        if self.line is not None and self.line.pipe is not None:
            self.line.pipe.pull()

    def lost(self, kind: ErrorKind | None, detail: str) -> None:
        """The line died. A kept line that dies at once and mute was dead before: the request has not been seen."""
        now_s = self._now_s()
        line = self.line
        if line is not None and line.reused and not self.exchange.began:
            stale_s = min(max(STALE_S, STALE_CONNECTS * line.connect_s), STALE_MOST_S)
            self.stale = now_s - self._sent_s < stale_s
        if not self.stale:
            self.exchange.closed(kind, detail, now_s)
        self.land()

    def fail(self, kind: ErrorKind, detail: str) -> None:
        """Give up, for a reason that lies outside the answer."""
        self.pull()
        self.exchange.fail(kind, detail, self._now_s())
        self.land()

    def land(self) -> None:
        """Nothing more is waited for: give the line back or drop it, and wake ``ride``."""
        self._count()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.line is not None:
            self._part(self.line)
            self.line = None
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def broke(self, error: Exception) -> None:
        """The client failed on this request with an exception that nothing foresaw: it is over. Never raises."""
        self.broken = self.broken or escaped_words(error)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        line, self.line = self.line, None
        if line is not None:
            line.give_up()
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    def finish(self) -> Record:
        """The finished record; the counts are brought up to it. Never raises."""
        record = self.record
        try:
            if not self.broken:
                self.land()
                record = self.exchange.finish()
        except Exception as error:  # the fence (``Connection._broke``)
            self.broke(error)
        if self.broken:
            record = wreck(self.record, self.broken, self._now_s())
        counts = self._counts
        counts.in_flight -= 1
        counts.finished += 1
        if self.waiting:
            counts.waiting -= 1
        counts.tokens += (record.output_tokens or 0) - self._counted
        return record

    def _part(self, line: Connection) -> None:
        line.flight = None
        if line.pipe is not None:
            self.record.stamps = line.pipe.stamps
            if getattr(line.pipe, "late_reads", 0) > self._late:
                self.record.warnings.append("late_reads")
            line.pipe.keep(None)
        if self.exchange.over and self.exchange.reusable and not line.dead:
            self._pool.keep(line)
        else:
            line.drop()

    def _count(self) -> None:
        n = len(self.exchange.answer.event_s)
        if n and self.waiting:
            self.waiting = False
            self._counts.waiting -= 1
        self._counts.tokens += n - self._counted
        self._counted = n

    def _check(self) -> None:
        """The timer's turn."""
        try:
            self._look()
        except Exception as error:  # the fence (``Connection._broke``)
            self.broke(error)

    def _look(self) -> None:
        """Parse what waits, then give up, finish, or sleep until the next instant that matters."""
        self.pull()
        if self.line is None:  # that was the end
            return
        self.exchange.digest()
        self._count()
        now_s = self._now_s()
        deadline_s, kind, detail = deadline_of(self._target, self.exchange.answer, self._sent_s, self.exchange.ended_s)
        if self.exchange.over:
            self.land()
        elif now_s < deadline_s - _SLACK_S:
            # what arrives meanwhile can bring the deadline no nearer than these; among it, unparsed, a finish reason
            nearest_s = min(max(self._target.grace_s, 0.05), self._target.idle_timeout_s)
            wait_s = max(_SHORTEST_WAIT_S, min(deadline_s - now_s, nearest_s))
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._check)
        else:
            if kind is not None:
                self.exchange.fail(kind, detail, now_s)
            self.land()


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
