"""The measuring client: one request, one Record, on pooled HTTP/1.1 connections.

A failed request is a record, never an exception, and is never sent again, with one exception: when a kept connection
turns out to have died before the server can have seen the request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Any

from loadramp.client.endpoint import Endpoint
from loadramp.client.error_text import describe_os_error
from loadramp.client.http.connect import Dialer, dialer_of, proxy_of
from loadramp.client.http.pool import SHORTEST_LOOK_S, ActiveRequest, Connection, Counts, Pool, Reminders
from loadramp.client.http.response import ResponseReader
from loadramp.client.http.sockets import Connect, ConnectFailed
from loadramp.client.request_body import OPTIONAL_FIELDS, RequestBuilder, most_tokens, unforced
from loadramp.client.stream.outcome import CUT_OFF, requested_output
from loadramp.record.types import LENGTH_NOT_FORCED, Arrival, Record
from loadramp.scenario.scenario import Target
from loadramp.workload.prompts.content import Content


class MeasuringClient:
    """Sends requests to one endpoint from one event loop.

    Args:
        target: the API, time-outs and options.
        endpoint: where, with which headers.
        model: the model to request.
        connect: opens a pipe; None: real sockets to ``endpoint``.
        clock: absolute seconds; the clock of the stamps.
        t0_s: the instant at which the run began, on that clock.
        worker: number that the records carry.
        save_text: keep the answers.
        fields: the optional request fields that this server takes (``probe.preflight``).

    Raises:
        ScenarioError: the CA file cannot be read, or the proxy is no HTTP address.
    """

    def __init__(
        self,
        target: Target,
        endpoint: Endpoint,
        model: str,
        *,
        connect: Connect | None,
        clock: Callable[[], float],
        t0_s: float,
        worker: int = 0,
        save_text: bool = False,
        fields: frozenset[str] = OPTIONAL_FIELDS,
    ) -> None:
        self._target = target
        self._counts = Counts()
        self._connect = connect or dialer_of(target, endpoint)
        self._clock = clock
        self._t0_s = t0_s
        self._worker = worker
        self._requested = requested_output(target, save_text, endpoint.redact)
        self._builder = RequestBuilder(target, model, fields, endpoint.templates)
        self._head = _head(target, endpoint, int(t0_s * 1e3))
        self._active: dict[ActiveRequest, None] = {}  # in the order of sending
        self._tasks: dict[ActiveRequest, asyncio.Task[None]] = {}
        self._meanwhile: Callable[[], None] = _nothing
        look_s = min(max(target.grace_s, SHORTEST_LOOK_S), target.idle_timeout_s)
        self._pool = Pool(self.now_s, Reminders(self.now_s, look_s, self._active))
        self._make, self._on_over = self._reader_of, self._over  # one object for all requests

    @property
    def counts(self) -> Counts:
        """How the client fares, over its whole life; cheap to read."""
        if not isinstance(self._connect, Dialer):
            return self._counts
        events, late, begun = self._connect.tally.poller.waiting()
        tokens, waiting = self._counts.tokens + events, self._counts.waiting - begun
        late_reads = self._connect.tally.late_reads + late
        return replace(self._counts, tokens=tokens, waiting=waiting, late_reads=late_reads)

    def now_s(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self._t0_s

    def meanwhile(self, call: Callable[[], None]) -> None:
        """Call ``call`` between two pieces of work, for what must not wait for all of them."""
        self._meanwhile = call
        if isinstance(self._connect, Dialer):
            self._connect.tally.poller.meanwhile = call

    def prepare(self, arrival: Arrival, content: Content) -> bytes:
        """The whole HTTP request. Raises ScenarioError for a body that cannot be measured."""
        body = self._builder.body(arrival, content)
        headers = "".join(f"\r\n{name}: {value}" for name, value in self._builder.headers(arrival).items())
        more = headers.encode("latin-1")
        return b"%s%d%s\r\nContent-Length: %d\r\n\r\n%s" % (self._head, arrival.seq, more, len(body), body)

    async def send(self, arrival: Arrival, request: bytes) -> Record:
        """Send ``request`` now and read its answer. Never raises; a cancelled one is a record of what arrived."""
        active = self._activate(arrival, request)
        return await self._record_of(active, self._send(active))

    def start(
        self, arrival: Arrival, request: bytes, done: Callable[[ActiveRequest, Record], None], *, patient: bool
    ) -> ActiveRequest:
        """Send ``request`` now, or as soon as there is a connection, and let ``done`` have the record when its answer
        is over.

        It costs half of what a task that awaits ``send`` does. ``patient``: ``done`` may be called some 20 ms late.
        """
        active = self._activate(arrival, request)
        active.patient, active.done = patient, done
        kept = self._pool.take()
        if kept is None:
            self._finish_by(active, self._send_anew(active))
            return active
        active.on_over = self._on_over
        try:
            active.begin_on(kept)
        except Exception as error:  # the fence (``Connection._failed``)
            active.abandon(error)
        return active

    def _over(self, active: ActiveRequest) -> None:
        """The answer of a request that was started on a kept connection is over."""
        if active.stale:
            self._finish_by(active, self._send_again(active))
            return
        del self._active[active]
        assert active.done is not None
        active.done(active, active.finish())
        self._meanwhile()

    def _finish_by(self, active: ActiveRequest, sending: Coroutine[Any, Any, None]) -> None:
        """Let a task send a request that was started, for it must wait for a connection."""

        async def finish() -> None:
            record = await self._record_of(active, sending)
            del self._tasks[active]
            assert active.done is not None
            active.done(active, record)

        self._tasks[active] = asyncio.get_running_loop().create_task(finish())

    def cut(self, active: ActiveRequest) -> None:
        """Stop waiting for the answer of a request that was started."""
        if active in self._tasks:
            self._tasks[active].cancel()
        elif active in self._active:
            self._cut(active)

    def _activate(self, arrival: Arrival, request: bytes) -> ActiveRequest:
        active = ActiveRequest(self._target, arrival, request, self._make, self._counts, self._pool)
        self._active[active] = None
        return active

    def _reader_of(self, arrival: Arrival) -> ResponseReader:
        record = record_of(arrival, self._worker, self._target)
        return ResponseReader(record, self._requested, most_tokens(self._target, arrival.prompt), self._clock)

    async def _record_of(self, active: ActiveRequest, sending: Awaitable[None]) -> Record:
        """The record of ``active`` when ``sending`` it has ended, however that ends."""
        try:
            await sending
        except ConnectFailed as failure:
            active.fail(failure.kind, failure.detail)
        except OSError as error:
            active.fail("client", describe_os_error(error))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()  # the caller gets the record instead
            self._cut(active)
        except Exception as error:  # the fence (``Connection._failed``)
            active.abandon(error)
        del self._active[active]
        return active.finish()

    def snapshot(self) -> Iterator[Record]:
        """Copies of the records of all requests in flight, with what has arrived so far; not of those that end before
        it is their turn."""
        for active in tuple(self._active):
            try:
                if active in self._active:
                    active.pull()
                    yield active.reader.snapshot()
            except Exception as error:  # the fence (``Connection._failed``)
                active.abandon(error)

    async def close(self) -> None:
        """Close idle connections and cut requests in flight (their ``send`` returns records)."""
        for active in tuple(self._active):
            self.cut(active)
        self._pool.close()
        await asyncio.sleep(0)

    def _cut(self, active: ActiveRequest) -> None:
        """Stop waiting for this answer."""
        try:
            active.fail("client", CUT_OFF)
        except Exception as error:  # the fence (``Connection._failed``)
            active.abandon(error)

    async def _send(self, active: ActiveRequest) -> None:
        kept = self._pool.take()
        if kept is None:
            await self._send_anew(active)
            return
        await active.send_on(kept)
        if active.stale:
            await self._send_again(active)

    async def _send_again(self, active: ActiveRequest) -> None:
        active.record.warnings.append("stale_connection")
        await self._send_anew(active)

    async def _send_anew(self, active: ActiveRequest) -> None:
        """On a connection of its own."""
        begin_s, connection = self.now_s(), Connection(self._t0_s)
        active.connect_s = 0.0
        try:
            connection.pipe = await self._connect(connection.on_bytes, connection.on_close)
        finally:
            active.record.connect_s = active.connect_s = connection.connect_s = self.now_s() - begin_s
        if active.reader.over:  # closed while connecting
            connection.drop()
        elif connection.dead:
            raise ConnectFailed("connect", "the server closed the connection at once")
        else:
            await active.send_on(connection)


def _nothing() -> None:
    pass


def record_of(arrival: Arrival, worker: int, target: Target | None = None) -> Record:
    """The record of ``arrival`` before anything has happened to it; ``target``: what it is sent to."""
    prompt = arrival.prompt
    return Record(
        arrival.seq,
        arrival.step,
        arrival.due_s,
        worker,
        asked_input_tokens=prompt.input_tokens,
        asked_output_tokens=prompt.output_tokens,
        label=prompt.label,
        model=prompt.model,
        session=prompt.session,
        turn=prompt.turn,
        warnings=[LENGTH_NOT_FORCED] if target is not None and unforced(target, prompt) else [],
        turns=0 if prompt.session is None else prompt.turn + 1 + len(prompt.following),
    )


def _head(target: Target, endpoint: Endpoint, run: int) -> bytes:
    """The head of every request, up to the number in its id; the user's headers win."""
    headers = {
        "Host": endpoint.authority,
        "User-Agent": "loadramp",
        "Accept": "text/event-stream, application/json" if target.stream else "application/json",
        "Accept-Encoding": "identity",
        "Content-Type": "application/json",
    }
    names = {name.lower() for name in endpoint.headers}
    proxy = None if endpoint.tls else proxy_of(target)
    where = endpoint.path(target.api) if proxy is None else endpoint.address(target.api)
    if proxy is not None and proxy.authorization:
        headers["Proxy-Authorization"] = proxy.authorization
    lines = [f"POST {where} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() not in names]
    lines += [f"{name}: {value}" for name, value in endpoint.headers.items() if name not in endpoint.templates]
    name = "X-Loadramp-Id" if "x-request-id" in names else "X-Request-Id"
    return ("\r\n".join(lines) + f"\r\n{name}: loadramp-{run:x}-").encode("latin-1")
