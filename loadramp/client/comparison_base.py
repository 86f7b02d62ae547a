"""What the comparison clients share: the verbs of the measuring client, its counts and its time-outs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loadramp.client.client_failure import escaped_words, wreck
from loadramp.client.endpoint import Endpoint
from loadramp.client.http.limits import limit_passed, most_events
from loadramp.client.http.pool import Counts, deadline_of
from loadramp.client.http.reply_parts import codings_of, retry_after_s
from loadramp.client.measuring_client import record_of
from loadramp.client.request_body import OPTIONAL_FIELDS, most_tokens, request_body
from loadramp.client.stream.answer import StreamAnswer
from loadramp.client.stream.outcome import CUT_OFF, Outcome, asked_of, conclude
from loadramp.record.types import Arrival, ErrorKind, Record
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.workload import placeholders


@dataclass(slots=True)
class Sent:
    """One request under way."""

    record: Record
    answer: StreamAnswer
    status: int | None = None
    headers: dict[bytes, bytes] = field(default_factory=dict)
    said: str = ""
    fault: tuple[ErrorKind, str] | None = None
    counted: int = 0
    waiting: bool = True
    most_events: int = 0
    broken: str = ""
    """What the client failed on; empty while it has not."""
    left_open: bool = False
    """The answer was complete, the stream was not closed."""


class Foreign:
    """What both clients share: the verbs of ``client.measuring_client.Client``, and its time-outs."""

    def __init__(
        self,
        target: Target,
        endpoint: Endpoint,
        model: str,
        *,
        connect: Any = None,
        clock: Callable[[], float],
        t0_s: float,
        worker: int = 0,
        save_text: bool = False,
        fields: frozenset[str] = OPTIONAL_FIELDS,
    ) -> None:
        if connect is not None:
            raise ScenarioError(f"[target] via: {target.via!r} needs a real server; in memory only 'direct' works")
        self.counts = Counts()
        self._target, self._endpoint, self._model = target, endpoint, model
        self._clock, self._t0_s = clock, t0_s
        self._worker, self._fields = worker, fields
        self._asked = asked_of(target, save_text, endpoint.redact, sees_done=target.via == "httpx")
        self._templates = tuple(endpoint.templates.items())
        self._marked = placeholders.used_in(target.body)
        self._run = int(t0_s * 1e3)
        self._sending: dict[int, Sent] = {}

    def prepare(self, arrival: Arrival, content: str | Sequence[Mapping[str, Any]]) -> bytes:
        """The request's JSON body; the library writes the rest. Raises ScenarioError as ``request_body`` does."""
        prompt, target = arrival.prompt, self._target
        if self._marked:
            target = replace(target, body=placeholders.filled(target.body, placeholders.numbers_of(arrival)))
        return request_body(
            target,
            prompt.model or self._model,
            content,
            prompt.output_tokens,
            force_length=self._target.force_length,
            extra=prompt.body,
            fields=self._fields,
        )

    async def send(self, arrival: Arrival, request: bytes) -> Record:
        """Send ``request`` now and follow its answer. Never raises; a cancelled one is a record of what arrived."""
        answer = StreamAnswer(save_text=self._asked.save_text, most_tokens=most_tokens(self._target, arrival.prompt))
        sent = Sent(record_of(arrival, self._worker, self._target), answer)
        sent.most_events = most_events(self._asked.max_events, answer.most_tokens)
        counts = self.counts
        self._sending[id(sent)] = sent
        counts.sent += 1
        counts.in_flight += 1
        counts.waiting += 1
        sent.record.sent_s = self.now_s()
        watch = _Watch(self._target, sent, self.now_s)
        try:
            await self._stream(sent, arrival, request)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None:
                task.uncancel()  # the record is the answer to it
            if not sent.left_open and sent.fault is None:
                sent.fault = ("client", CUT_OFF)
        except Exception as error:  # the fence (``Connection._broke``): a library may raise anything
            sent.broken = escaped_words(error)
        finally:
            watch.stop()
            del self._sending[id(sent)]
        return self._finish(sent)

    def snapshot(self) -> list[Record]:
        """Copies of the records of all requests in flight, with what has arrived so far."""
        copies = []
        for sent in self._sending.values():
            copy = replace(sent.record, warnings=list(sent.record.warnings))
            try:
                sent.answer.fill(copy)
            except Exception as error:  # the fence (``Connection._broke``)
                sent.broken = escaped_words(error)
            else:
                copies.append(copy)
        return copies

    def now_s(self) -> float:
        return self._clock() - self._t0_s

    async def close(self) -> None:
        raise NotImplementedError

    async def _stream(self, sent: Sent, arrival: Arrival, request: bytes) -> None:
        """Send and read to the end; failures go into ``sent``."""
        raise NotImplementedError

    def _beyond(self, sent: Sent) -> bool:
        """The answer went beyond a limit: nothing more of it is read."""
        passed = limit_passed(sent.answer, self._asked.max_event_bytes, sent.most_events)
        if passed:
            sent.fault = ("truncated", passed)
        return bool(passed)

    def _heard(self, sent: Sent, t_s: float) -> None:
        if sent.record.first_byte_s is None:
            sent.record.first_byte_s = t_s
        n = len(sent.answer.event_s)
        if n and sent.waiting:
            sent.waiting = False
            self.counts.waiting -= 1
        self.counts.tokens += n - sent.counted
        sent.counted = n

    def _finish(self, sent: Sent) -> Record:
        record, counts = sent.record, self.counts
        try:
            self._conclude(sent)
        except Exception as error:  # the fence (``Connection._broke``)
            sent.broken = sent.broken or escaped_words(error)
        if sent.broken:
            record = wreck(record, sent.broken, self.now_s())
        counts.in_flight -= 1
        counts.finished += 1
        counts.waiting -= sent.waiting
        counts.tokens += (record.output_tokens or 0) - sent.counted
        return record

    def _conclude(self, sent: Sent) -> None:
        record = sent.record
        sent.answer.fill(record)
        record.http_status = sent.status
        record.stream_end_s = sent.answer.last_s if sent.left_open else self.now_s()
        if sent.status is not None and sent.status >= 300:
            record.retry_after_s = retry_after_s(sent.headers)
        content_type = sent.headers.get(b"content-type", b"").decode("latin-1")
        packed = bool(codings_of(sent.headers.get(b"content-encoding", b"")))
        outcome = Outcome(sent.status, sent.fault, sent.said, content_type, packed)
        conclude(record, sent.answer, outcome, self._asked)

    def _request_id(self, arrival: Arrival) -> dict[str, str]:
        numbers = placeholders.numbers_of(arrival)
        own = {name: placeholders.filled(value, numbers) for name, value in self._templates}
        return {"X-Request-Id": f"loadramp-{self._run:x}-{arrival.seq}"} | own


class _Watch:
    """Cancels the task that made it when a time-out strikes, or when an answer is complete and its stream is not."""

    __slots__ = ("_now_s", "_sent", "_target", "_task", "_timer")

    def __init__(self, target: Target, sent: Sent, now_s: Callable[[], float]) -> None:
        self._target, self._sent, self._now_s = target, sent, now_s
        self._task = asyncio.current_task()
        self._timer = asyncio.get_running_loop().call_later(0, self._check)

    def stop(self) -> None:
        self._timer.cancel()

    def _check(self) -> None:
        sent, now_s = self._sent, self._now_s()
        answer = sent.answer
        ended_s = answer.last_s if answer.ended else None
        deadline_s, kind, detail = deadline_of(self._target, answer, sent.record.sent_s or 0.0, ended_s)
        if now_s < deadline_s:
            nearest_s = min(self._target.grace_s, self._target.idle_timeout_s, 0.25)
            wait_s = max(0.001, min(deadline_s - now_s, nearest_s))
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._check)
            return
        sent.left_open = kind is None
        if kind is not None:
            sent.fault = (kind, detail)
        if self._task is not None:
            self._task.cancel()
