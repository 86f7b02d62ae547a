"""One HTTP/1.1 response on one pipe, without I/O: bytes and their instants in, a Record out.

Bytes are kept with their stamp and parsed later, in batches, while nothing waits for them; what the record says never
depends on how they were cut, apart from an event's instant being that of the read that completes it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import httptools

from loadramp.client.error_text import describe_error_body
from loadramp.client.http.limits import BEYOND, limit_passed, most_events, shorten, size_words, unlooked_bytes
from loadramp.client.http.reply_parts import INFLATED, Inflate, codings_of, is_text, retry_after_s, without_query
from loadramp.client.stream.answer import StreamAnswer
from loadramp.client.stream.event_batch import EventBatch, PlainEvent, events_of, plain_events
from loadramp.client.stream.event_shape import NotedEvents
from loadramp.client.stream.events import read_event
from loadramp.client.stream.outcome import Outcome, RequestedOutput, conclude
from loadramp.client.stream.sse import SseParser
from loadramp.record.types import ErrorKind, Record

BATCH_READS = 32
"""Reads that pile up before they are parsed, in a request's first batch fewer, another number for each: streams of
one engine step must not all be parsed at once. Nothing piles up before the first output event."""
BATCH_BYTES = 8192
"""A read this large is parsed at once."""
PARSE_S, SHORT_PARSE_S = 0.05, 0.001
"""Parsing of one answer up to PARSE_S is no matter. Of a batch or a read that took less than SHORT_PARSE_S nothing is
counted: it kept nothing waiting, however long the answer is."""
ERROR_BODY_BYTES = 16_384
REFUSAL_BYTES = 1 << 20
"""What is read of the body of a reply that refuses: behind it nothing is waited for."""
FRAME_BYTES, FRAME_RATIO = 1 << 20, 64
"""Limit of all that is not body (headers, 1xx replies, chunk sizes and extensions, trailers): FRAME_BYTES, and
FRAME_RATIO more for each byte of the body, which may come in tiny chunks."""
_TLS_ALERT = b"\x15"
"""How a server begins that expects TLS, and nothing that speaks HTTP."""
_EVENT_ENDS = (b"}\n\n\r\n", b"}\n\n")
"""How a read ends that can wait: with an event, in a chunk of its own or not. The end of a stream looks otherwise."""


class ResponseReader:
    """Feed what the pipe brings, tell it of the pipe's end, ask for the Record.

    Args:
        record: who asked and when; it is filled by ``finish``.
        requested: what was requested of every answer.
        most_tokens: how many output tokens were asked for; None when that is not known.
        clock: seconds, by which parsing is timed; None: it is not.
    """

    def __init__(
        self,
        record: Record,
        requested: RequestedOutput,
        most_tokens: int | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.answer = StreamAnswer(save_text=requested.save_text, most_tokens=most_tokens)
        self._most_events = most_events(requested.max_events, most_tokens)
        self.over = False
        """The HTTP response is complete, or broken beyond use."""
        self.reusable = False
        """The pipe may carry another request (only once ``over``)."""
        self.began = False
        """Some byte of the response has arrived."""
        self.record = record
        self._requested = requested
        self._clock = clock or _no_clock
        self._parse_s = 0.0
        self._doubtful_s: float | None = None
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(  # no danger where every reply is from the one server that was asked
            lenient_chunked_length=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._held: list[bytes] = []
        self._held_s: list[float] = []
        self._eager = True
        self._batch_reads = 1 + record.seq % BATCH_READS
        self._between_chunks = False
        self._now_s = 0.0
        self._begins_as_tls = False
        self._status: int | None = None
        self._interim = False
        self._headers: dict[bytes, bytes] = {}
        self._error_body = bytearray()
        self._error_packed = bytearray()  # the same before it was unpacked
        self._refusal = SseParser()
        self._body: list[bytes] = []  # of the read that is being parsed
        self._body_bytes = 0
        self._fed_bytes = 0  # what the HTTP parser was given up to the latest look at the limits
        self._room_bytes = self._room_then_bytes = 0  # so many need no look: now, and after the latest
        self._inflate: Any = None
        self._coding = ""  # what the body is said to be in; often it is plain all the same
        self._head_s: float | None = None
        self._body_s: float | None = None
        self._end_s: float | None = None
        self._refused_s: float | None = None
        self._fault: tuple[ErrorKind, str] | None = None
        self._beyond_limit = False  # the fault is that the reply went beyond a limit

    # -- what the pipe brings

    def feed(self, data: bytes, t_s: float) -> bool:
        """Bytes that arrived at ``t_s``. True when they have been parsed: something may have changed.

        Parsing waits while only single whole events of a running stream come in: nothing else can end a stream or be
        its first output. A finish reason may be in the batch; ``digest`` brings it out.
        """
        held = self._held
        held.append(data)
        self._held_s.append(t_s)
        waits = data.endswith(_EVENT_ENDS) and len(data) <= BATCH_BYTES and data.count(b"\ndata:") < 2
        if self._eager or len(held) >= self._batch_reads or not waits:
            self.digest()
            return True
        return False

    def digest(self) -> None:
        """Parse everything that has arrived."""
        if not self._held:
            return
        held, stamps = self._held, self._held_s
        self._held, self._held_s = [], []
        if not self._eager:
            self._batch_reads = BATCH_READS
        if self.over:
            self.reusable = False
            return
        began_s = self._clock()
        self._parse(held, stamps)
        took_s = self._clock() - began_s
        if took_s > SHORT_PARSE_S:
            self._parse_s += took_s
            if self._doubtful_s is None and self._parse_s > PARSE_S:
                self._doubtful_s = stamps[-1]

    def _parse(self, held: list[bytes], stamps: list[float]) -> None:
        if len(held) > 1 and self._plain(plain_events, held, stamps):
            self._bound()
            return
        feed_data = self._parser.feed_data
        if not self.began:
            self.began = True
            self._head_s = stamps[0]
            self._begins_as_tls = held[0].startswith(_TLS_ALERT)
        for data, t_s in zip(held, stamps, strict=True):
            self._now_s = t_s
            self._room_bytes = room_bytes = self._room_bytes - len(data)
            try:
                feed_data(data)
            except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
                self._take_body()
                self._broken(error)
                return
            self._take_body()
            if room_bytes < 0:
                self._bound()
        lines = held[-1].endswith(b"\n") and self._inflate is None and b"content-length" not in self._headers
        self._eager = not (lines and self.answer.event_s)

    def feed_batch(self, batch: EventBatch | NotedEvents | list[tuple[bytes, float]], t0_s: float) -> None:
        """What waited where it was read, stamped ``t0_s`` later: a batch or other reads. It is parsed at once."""
        self.digest()
        if isinstance(batch, list):
            self._held, self._held_s = [data for data, _ in batch], [stamp_s - t0_s for _, stamp_s in batch]
            self.digest()
            return
        stamps = [stamp_s - t0_s for stamp_s in batch.stamps_s]
        if isinstance(batch, NotedEvents) and not self.over:
            assert self._between  # else they were no events
            self.answer.noted(batch, stamps)
        elif isinstance(batch, NotedEvents):
            self.reusable = False
            return
        else:
            payloads = batch.payloads()
            if self.over or not self._plain(events_of, payloads, stamps):
                self._held, self._held_s = batch.reads(), stamps
                self.digest()
                return
            self._eager, self.answer.like = False, payloads[-1]
        self._now_s = stamps[-1]
        self._bound()

    @property
    def patient(self) -> bool:
        """Whole events that come now may wait for a batch: everything was parsed, and a whole event was the last."""
        return not self._eager and not self.over and not self._held and self._between

    @property
    def _between(self) -> bool:
        """Between two chunks and two events of a stream that runs."""
        return self._between_chunks and self._inflate is None and self.answer.between_events

    def _plain(
        self, events_in: Callable[[Sequence[bytes]], list[PlainEvent] | None], reads: list[bytes], stamps: list[float]
    ) -> bool:
        """Take the batch without the parsers, which stay where they are: between two chunks and two events."""
        if not self._between:
            return False
        events = events_in(reads)
        return events is not None and self.answer.plain(events, stamps)

    def closed(self, kind: ErrorKind | None, detail: str, t_s: float) -> None:
        """The pipe has ended: cleanly (``kind`` None) or not."""
        self.digest()
        if self.over:
            self.reusable = False
            return
        self._now_s = t_s
        if kind is not None:
            self.fail(kind, detail, t_s)
        elif self._status is None and not self.began:
            self.fail("reset", "the connection was closed before any reply", t_s)
        elif self._status is None or self._unfinished():
            self.fail("truncated", "the connection was closed inside the reply", t_s)
        else:
            self._complete()
        self.reusable = False

    def fail(self, kind: ErrorKind, detail: str, t_s: float) -> None:
        """The client gives up, or the pipe broke. A failure known before stays."""
        self.digest()
        if self._fault is None and not self.over:
            self._fault = (kind, detail)
            self._end_s = t_s
            self.over = True
            self.reusable = False

    def _unfinished(self) -> bool:
        """The headers promised an end that has not come; without such a promise the closing is the end."""
        if codings_of(self._headers.get(b"transfer-encoding", b""))[-1:] == ["chunked"]:
            return True
        return self._body_bytes < int(self._headers.get(b"content-length", 0))

    # -- what comes out

    @property
    def _refuses(self) -> bool:
        return self._status is not None and self._status >= 300

    @property
    def ended_s(self) -> float | None:
        """Since when nothing more can come that matters, though the response is not over; None while it can."""
        return self.answer.last_s if self.answer.ended else self._refused_s

    def finish(self) -> Record:
        """The record with its verdict. Call once, when over or when what is left is not worth waiting for."""
        self.digest()
        self.over = True
        self._parser = None  # the parser holds this object's methods: without the cycle no collector is needed
        if self._coding and self.answer.last_s is None and self.answer.error is None:
            self.answer.error = f"content-encoding {self._coding} although identity was asked"
        self._fill(self.record)
        outcome = Outcome(
            self._status,
            self._fault,
            (self._location() or self._refusal_words()) if self._refuses else "",
            self._headers.get(b"content-type", b"").decode("latin-1"),
            self._inflate is not None,
        )
        conclude(self.record, self.answer, outcome, self._requested)
        if self._beyond_limit:
            shorten(self.record)
        return self.record

    def snapshot(self) -> Record:
        """What has arrived so far; status ``in_flight``."""
        self.digest()
        record = replace(self.record, warnings=list(self.record.warnings))
        self._fill(record)
        record.stream_end_s = None
        return record

    def _refusal_words(self) -> str:
        if is_text(self._error_packed):  # what stands before the server has unpacked the body and left the header
            return describe_error_body(bytes(self._error_packed))
        if self._coding and not is_text(self._error_body):
            return f"(the body is in {self._coding}, although identity was asked)" if self._error_body else ""
        return describe_error_body(bytes(self._error_body))

    def _location(self) -> str:
        """Where a redirect leads, without its query: a login's holds what is nobody's business."""
        target = self._headers.get(b"location", b"").decode("latin-1") if (self._status or 0) < 400 else ""
        return f"redirect to {without_query(target)}" if target else ""

    def _fill(self, record: Record) -> None:
        self.answer.fill(record)
        if self._doubtful_s is not None:
            record.parse_s, record.doubtful_s = self._parse_s, self._doubtful_s
        record.http_status = self._status
        record.first_byte_s = self._head_s if self._body_s is None else self._body_s
        record.stream_end_s = next((t for t in (self._end_s, self.ended_s, self.answer.last_s) if t is not None), None)
        record.retry_after_s = retry_after_s(self._headers) if self._status and self._status >= 300 else None

    # -- what the parser calls

    def on_message_begin(self) -> None:
        if self.over:
            self.reusable = False  # bytes behind the end of the response: the two ends disagree

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.over:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self.over:
            return
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200 and status != 101  # 100 Continue, 103 Early Hints: the reply is to come
        if self._interim:
            self._headers.clear()
            return
        self._status = status
        if status == 101:
            self._stop("connect", "the server switched to another protocol (HTTP 101): what answers here is no API")
            return
        codings = codings_of(self._headers.get(b"content-encoding", b""))
        if len(codings) == 1 and codings[0] in INFLATED:
            self._inflate = Inflate()
        else:
            self._coding = ", ".join(codings)

    def on_body(self, body: bytes) -> None:
        if self.over:
            return
        if self._body_s is None:
            self._body_s = self._now_s
        self._body.append(body)

    def _take_body(self) -> None:
        """All chunks of a read at once: they share its instant, and a chunk may be a byte."""
        if not self._body:
            return
        body, self._body = b"".join(self._body), []
        self._body_bytes += len(body)
        if self._inflate is not None:
            if self._refuses:
                self._error_packed += body[: ERROR_BODY_BYTES - len(self._error_packed)]
            body = self._inflate.feed(body)
        if self._refuses:
            self._refused(body[: ERROR_BODY_BYTES - len(self._error_body)])
        elif body:
            self.answer.body(body, self._now_s)
        if self._inflate is not None and self._inflate.beyond:
            self._stop_beyond(self._inflate.beyond)
        elif self._inflate is not None and self._inflate.broken and self._refuses:
            self._refused_s = self._now_s if self._refused_s is None else self._refused_s  # it may be plain text
        elif self._inflate is not None and self._inflate.broken:
            self._stop("truncated", f"the compressed body is broken: {self._inflate.broken}")

    def _refused(self, body: bytes) -> None:
        """More of the body of a reply that refuses: JSON is its end, for some servers leave the connection open."""
        self._error_body += body
        for _, payload in self._refusal.feed(body):
            if self._refused_s is None and read_event(payload) is not None:
                self._refused_s = self._now_s

    def _bound(self) -> None:
        """End a reply that goes beyond what the client will keep in memory."""
        if self.over:
            return
        self._fed_bytes += self._room_then_bytes - self._room_bytes
        self._room_bytes = self._room_then_bytes = 0
        frame_room = FRAME_BYTES + (1 + FRAME_RATIO) * self._body_bytes - self._fed_bytes
        if frame_room < 0:
            self._stop_beyond(f"headers and framing of more than {size_words(FRAME_BYTES)}")
        elif passed := limit_passed(self.answer, self._requested.max_event_bytes, self._most_events):
            self._stop_beyond(passed)
        elif self._refuses and self._body_bytes > REFUSAL_BYTES:
            self._complete()
        elif self._status is not None and self._inflate is None and not self._refuses:
            room = unlooked_bytes(self.answer, self._requested.max_event_bytes, self._most_events)
            self._room_bytes = self._room_then_bytes = min(room, frame_room)

    def on_chunk_header(self) -> None:
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        self._between_chunks = True

    def on_message_complete(self) -> None:
        if self.over:
            return
        if self._interim:
            self._interim = False
        else:
            self.reusable = self._parser.should_keep_alive()
            self._take_body()
            if not self.over:
                self._complete()

    def _complete(self) -> None:
        self.over = True
        self._end_s = self._now_s
        self.answer.end(self._now_s)

    def _stop(self, kind: ErrorKind, detail: str) -> None:
        self.over, self.reusable = True, False
        self._end_s = self._now_s
        self._fault = (kind, detail)

    def _stop_beyond(self, limit: str) -> None:
        self._beyond_limit = True
        self._stop("truncated", f"{BEYOND}{limit}")

    def _broken(self, error: Exception) -> None:
        if isinstance(error, httptools.HttpParserCallbackError):  # raised in a method of this object
            raise error.__context__ or error
        if self.over:
            self.reusable = False
        elif self._status is not None or self._parser.get_status_code() >= 100:
            self._stop("truncated", f"the reply breaks HTTP: {error}")
        elif self._begins_as_tls:
            self._stop("tls", "the server speaks TLS on this port: write https://")
        else:
            self._stop("connect", f"what answers on this port does not speak HTTP/1.1: {error}")


def _no_clock() -> float:
    return 0.0
