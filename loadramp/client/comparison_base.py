"""What the comparison clients share: the methods of the measuring client, its counts and its time-outs."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from loadramp.client.client_failure import client_error_record, describe_exception
from loadramp.client.endpoint import Endpoint
from loadramp.client.http.limits import BEYOND, limit_passed, most_events
from loadramp.client.http.pool import ActiveRequest, Counts, deadline_of
from loadramp.client.http.reply_parts import codings_of, retry_after_s
from loadramp.client.http.sockets import Connect
from loadramp.client.measuring_client import record_of
from loadramp.client.request_body import OPTIONAL_FIELDS, RequestBuilder, most_tokens
from loadramp.client.stream.answer import StreamAnswer
from loadramp.client.stream.outcome import CUT_OFF, Outcome, conclude, requested_output
from loadramp.record.types import Arrival, ErrorKind, Record
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.workload.prompts.content import Content


@dataclass(slots=True)
class ComparedRequest:
    """One request under way."""

    record: Record
    answer: StreamAnswer
    most_events: int
    status: int | None = None
    headers: dict[bytes, bytes] = field(default_factory=dict)
    refusal: str = ""
    """The message of a reply that refuses."""
    fault: tuple[ErrorKind, str] | None = None
    counted: int = 0
    waiting: bool = True
    failure: str = ""
    """What the client failed on; empty while it has not."""
    left_open: bool = False
    """The answer was complete, but the stream was not closed."""


class ComparisonClient:
    """Sends requests through another library, as ``client.Client`` does."""

    def __init__(
        self,
        target: Target,
        endpoint: Endpoint,
        model: str,
        *,
        connect: Connect | None = None,
        clock: Callable[[], float],
        t0_s: float,
        worker: int = 0,
        save_text: bool = False,
        fields: frozenset[str] = OPTIONAL_FIELDS,
    ) -> None:
        if connect is not None:
            raise ScenarioError(f"[target] via: {target.via!r} needs a real server; in memory only 'direct' works")
        self.counts = Counts()
        self._target, self._clock, self._t0_s, self._worker = target, clock, t0_s, worker
        self._requested = requested_output(target, save_text, endpoint.redact, sees_done=target.via == "httpx")
        self._builder = RequestBuilder(target, model, fields, endpoint.templates)
        self._run = int(t0_s * 1e3)
        self._active: dict[int, ComparedRequest] = {}

    def prepare(self, arrival: Arrival, content: Content) -> bytes:
        """The request's JSON body; the library writes the rest. Raises ScenarioError as ``request_body`` does."""
        return self._builder.body(arrival, content)

    async def send(self, arrival: Arrival, request: bytes) -> Record:
        """Send ``request`` now and read its answer. Never raises; a cancelled one is a record of what arrived."""
        most = most_tokens(self._target, arrival.prompt)
        answer = StreamAnswer(save_text=self._requested.save_text, most_tokens=most)
        record = record_of(arrival, self._worker, self._target)
        active = ComparedRequest(record, answer, most_events(self._requested.max_events, most))
        counts = self.counts
        self._active[id(active)] = active
        counts.sent += 1
        counts.in_flight += 1
        counts.waiting += 1
        record.sent_s = self.now_s()
        timeouts = _Timeouts(self._target, active, self.now_s)
        try:
            await self._stream(active, arrival, request)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()  # the caller gets the record instead
            if not active.left_open and active.fault is None:
                active.fault = ("client", CUT_OFF)
        except Exception as error:  # the fence (``Connection._failed``): a library may raise anything
            active.failure = describe_exception(error)
        finally:
            timeouts.stop()
            del self._active[id(active)]
        return self._finish(active)

    def meanwhile(self, call: Callable[[], None]) -> None:
        """The work is a library's."""

    def start(
        self, arrival: Arrival, request: bytes, done: Callable[[ActiveRequest, Record], None], *, patient: bool
    ) -> ActiveRequest | None:
        """Not without a task."""
        return None

    def cut(self, active: ActiveRequest) -> None:
        """Nothing was started."""

    def snapshot(self) -> list[Record]:
        """Copies of the records of all requests in flight, with what has arrived so far."""
        copies = []
        for active in self._active.values():
            copy = replace(active.record, warnings=list(active.record.warnings))
            try:
                active.answer.fill(copy)
            except Exception as error:  # the fence (``Connection._failed``)
                active.failure = describe_exception(error)
            else:
                copies.append(copy)
        return copies

    def now_s(self) -> float:
        return self._clock() - self._t0_s

    async def close(self) -> None:
        raise NotImplementedError

    async def _stream(self, active: ComparedRequest, arrival: Arrival, request: bytes) -> None:
        """Send and read to the end; failures go into ``active``."""
        raise NotImplementedError

    def _passed_limit(self, active: ComparedRequest) -> bool:
        """The answer went beyond a limit: nothing more of it is read."""
        passed = limit_passed(active.answer, self._requested.max_event_bytes, active.most_events)
        if passed:
            active.fault = ("truncated", f"{BEYOND}{passed}")
        return bool(passed)

    def _received(self, active: ComparedRequest, t_s: float) -> None:
        if active.record.first_byte_s is None:
            active.record.first_byte_s = t_s
        active.waiting, active.counted = self.counts.stream(active.answer, active.waiting, active.counted)

    def _finish(self, active: ComparedRequest) -> Record:
        record = active.record
        try:
            self._conclude(active)
        except Exception as error:  # the fence (``Connection._failed``)
            active.failure = active.failure or describe_exception(error)
        if active.failure:
            record = client_error_record(record, active.failure, self.now_s())
        self.counts.end(active.waiting, record, active.counted)
        return record

    def _conclude(self, active: ComparedRequest) -> None:
        record = active.record
        active.answer.fill(record)
        record.http_status = active.status
        record.stream_end_s = active.answer.last_s if active.left_open else self.now_s()
        if active.status is not None and active.status >= 300:
            record.retry_after_s = retry_after_s(active.headers)
        content_type = active.headers.get(b"content-type", b"").decode("latin-1")
        compressed = bool(codings_of(active.headers.get(b"content-encoding", b"")))
        outcome = Outcome(active.status, active.fault, active.refusal, content_type, compressed)
        conclude(record, active.answer, outcome, self._requested)

    def _headers_of(self, arrival: Arrival) -> dict[str, str]:
        return {"X-Request-Id": f"loadramp-{self._run:x}-{arrival.seq}"} | self._builder.headers(arrival)


class _Timeouts:
    """Cancels the task that made it when a time-out strikes, or when an answer is complete and its stream is not."""

    __slots__ = ("_active", "_now_s", "_target", "_task", "_timer")

    def __init__(self, target: Target, active: ComparedRequest, now_s: Callable[[], float]) -> None:
        self._target, self._active, self._now_s = target, active, now_s
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(0, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        active, now_s = self._active, self._now_s()
        answer = active.answer
        ended_s = answer.last_s if answer.ended else None
        deadline_s, kind, detail = deadline_of(self._target, answer, active.record.sent_s or 0.0, ended_s)
        if now_s < deadline_s:
            nearest_s = min(self._target.grace_s, self._target.idle_timeout_s, 0.25)
            wait_s = max(0.001, min(deadline_s - now_s, nearest_s))
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._check)
            return
        active.left_open = kind is None
        if kind is not None:
            active.fault = (kind, detail)
        if self._task is not None:
            self._task.cancel()
