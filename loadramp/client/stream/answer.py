"""What the body of one answer adds up to: output events and their instants, tokens, how it ended. Pure.

An instant is that of the bytes that complete an event. Nothing else here depends on how the bytes were cut.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from loadramp.client.error_text import describe_error_body, error_of, names_failure
from loadramp.client.stream.event_batch import PlainEvent, RunningUsage, plain_event
from loadramp.client.stream.event_shape import NotedEvents
from loadramp.client.stream.events import (
    Event,
    Output,
    finishes,
    index_of,
    look_again,
    outputs,
    read_event,
    usage_of,
)
from loadramp.client.stream.known_event import KnownEvent, known_event
from loadramp.client.stream.sse import SseEvent, SseParser, is_done
from loadramp.client.stream.token_counts import UNKNOWN, tokens_of
from loadramp.client.stream.usage import MOST_TOKENS, Usage
from loadramp.client.stream.vendor_quirks import mapping_of
from loadramp.record.sanitize import encodable
from loadramp.record.types import Record

_ODD_BYTES = 2000
_ENDS = b'"finish_reason":"'
"""An event with it in it is seldom plain, and to find that out by the parser takes as long as reading it."""


@dataclass(slots=True)
class StreamAnswer:
    """One answer as it comes in. Feed ``body``, then ``end`` at a clean end of the body; read the rest at any time."""

    save_text: bool = False
    most_tokens: int | None = None
    """How many output tokens were asked for of each choice; None when that is not known."""
    event_s: list[float] = field(default_factory=list)
    choices: list[int] = field(default_factory=list)
    """Choice index of each output event."""
    answer_s: float | None = None
    last_s: float | None = None
    """The latest event of any kind."""
    finish_reason: str | None = None
    finished_s: float | None = None
    """When every choice seen so far had its finish reason; None while one goes on."""
    resumed: bool = False
    """Output followed a finish reason, as when a server runs several turns in one stream: a further one is no end."""
    done_s: float | None = None
    """When ``[DONE]`` came, or the end of a JSON reply."""
    error: str | None = None
    """The error that the server reported inside the answer, in words."""
    malformed: int = 0
    whole: bool = False
    """The reply was one JSON document, not a stream."""
    implausible_usage: bool = False
    """The server sent token counts that cannot be right; known once ``fill`` was called."""
    like: bytes = b""
    """The latest event that added text, where it was read by itself: those that follow may be as it is."""
    quiet_bytes: int = 0
    """What has come in whole reads since one that completed an event: no less than this is waiting for its end."""
    _characters: int = 0
    _summed_to: int = 0  # output events whose text is in ``_characters``
    _odd: bytes = b""  # the first event that is not JSON, or its message
    _lone: int = -1  # output events at the end of a document that may be the whole reply; -1: there is none such
    _sse: SseParser = field(default_factory=SseParser)
    _sizes: list[int] = field(default_factory=list)
    _running: list[int] = field(default_factory=list)
    _open: set[int] = field(default_factory=set)
    _closed: set[int] = field(default_factory=set)  # choices that had a finish reason, whatever followed it
    _seen: set[int] = field(default_factory=set)  # choices that had output
    _prompt: Usage | None = None
    _counted: Usage | None = None
    _per_choice: dict[int, int] = field(default_factory=dict)
    _summed: bool = False
    _text: dict[int, list[str]] = field(default_factory=dict)
    _sources: dict[int, str] = field(default_factory=dict)
    _shared: set[int] = field(default_factory=set)  # events that may belong to the token of the event before them
    _thinking: bool = False  # the latest event was a thought

    @property
    def ended(self) -> bool:
        """Nothing more can come that matters: ``[DONE]``, an error, or a whole JSON reply."""
        return self.done_s is not None or self.error is not None

    @property
    def keepalives(self) -> int:
        return self._sse.comments

    @property
    def between_events(self) -> bool:
        """A stream is being read, and nothing of its next event has come."""
        return self.done_s is None and self._sse.idle

    @property
    def unread(self) -> str:
        """The beginning of the first words in the body that are no part of an answer."""
        return " ".join((self._odd or self._sse.stray).decode("utf-8", "replace").split())

    def characters(self) -> int:
        """Of all output so far."""
        self._characters += sum(self._sizes[self._summed_to :])
        self._summed_to = len(self._sizes)
        return self._characters

    def body(self, data: bytes, t_s: float) -> None:
        """More of the body (decompressed), which arrived at ``t_s``."""
        events = self._sse.feed(data)
        self.quiet_bytes = 0 if events else self.quiet_bytes + len(data)
        for event in events:
            self._take(event, t_s)

    def end(self, t_s: float) -> None:
        """The body ended cleanly: take an event that lacked only its blank line."""
        for event in self._sse.flush():
            self._take(event, t_s)
        if self._lone == len(self.event_s) and self.done_s is None:
            self.whole, self.done_s = True, self.last_s
        if self.resumed and self.finished_s is None and self._open <= self._closed:
            self.finished_s = self.last_s  # what followed the finish reason ends with the body

    def _take(self, event: SseEvent, t_s: float) -> None:
        name, payload = event
        if not payload.startswith(b"{"):
            payload = payload.strip()
            if payload.startswith(b"data:"):  # framed twice, by a server and what stands before it
                payload = payload[5:].strip()
            if is_done(payload):
                if self.done_s is None:
                    self.done_s = self.last_s = t_s
                return
            if not payload and not names_failure(name):
                return
        if self.last_s is not None and self.done_s is None and _ENDS not in payload:
            plain = plain_event(payload)
            if plain is not None and self._plain(plain, t_s):
                self.like = payload
                return
        if self.done_s is None and self._sse.bare is False and not name:
            known = known_event(payload)
            if known is not None:
                self._known(known, t_s)
                self.like = payload
                return
        parsed = read_event(payload)
        if self.done_s is not None:
            self._behind(parsed, payload)
        elif parsed is None:
            self._unreadable(name, payload, t_s)
        else:
            alone = self.last_s is None and self._sse.bare and not self.malformed
            alone = alone and all(choice.delta is None for choice in parsed.choices or ())
            self.event(parsed, name, t_s, payload)
            self._lone = -1
            if alone:
                self._settle(parsed, t_s)

    def _settle(self, event: Event, t_s: float) -> None:
        """The first thing in the body is a document: the whole reply where it says how it ended, for some servers leave
        the connection open behind it; else perhaps the first line of many."""
        final = self.error is not None or event.object == "response" or finishes(event)
        if final or any(choice.message is not None for choice in event.choices or ()):
            self.whole, self.done_s = True, t_s
        else:
            self._lone = len(self.event_s)

    def _unreadable(self, name: bytes, payload: bytes, t_s: float) -> None:
        """Data that is no JSON object."""
        if names_failure(name) and self.error is None:
            self.error, self.last_s = describe_error_body(payload) or "an error event", t_s
        self.malformed += bool(payload)
        self._odd = self._odd or payload[:_ODD_BYTES]

    def _behind(self, event: Event | None, payload: bytes) -> None:
        """Behind the end only token counts matter."""
        if event is not None:
            look_again(event, mapping_of(payload) or {})
            self._count(usage_of(event) or Usage(), event)

    def event(self, event: Event, name: bytes, t_s: float, payload: bytes = b"") -> None:
        """One event that has been read, with its SSE name, from ``payload``."""
        self.last_s = t_s
        if event.type is None and name.startswith(b"response."):
            event.type = name.decode("latin-1")
        found = outputs(event)
        choices, ends = event.choices or (), finishes(event)
        if payload and (ends or len(found) < (len(choices) or 1)):
            look_again(event, mapping_of(payload) or {})
            found = outputs(event)
        usage = usage_of(event)
        running = UNKNOWN if usage is None else self._count(usage, event)
        for output in found:
            if output.source and self._repeats(output):
                continue
            choice, size, reasoning, text, _ = output
            if not (text or reasoning):  # a call: its name may be no token at all
                self._shared.add(len(self.event_s))
            self._think(reasoning)
            self.event_s.append(t_s)
            self.choices.append(choice)
            self._sizes.append(size)
            self._running.append(running)
            self._resume({choice})
            if not reasoning and self.answer_s is None:
                self.answer_s = t_s
            if self.save_text and text:
                self._text.setdefault(choice, []).append(text)
        for choice, reason in ends:
            self._finish(choice, reason, t_s)
        error = error_of(event, name)
        if error is not None and self.error is None:
            self.error = error
        if not choices and isinstance(event.message, str):
            self._odd = self._odd or event.message.encode("utf-8", "replace")[:_ODD_BYTES]

    def _known(self, event: KnownEvent, t_s: float) -> None:
        """What ``event`` does, for one in which nothing can hide."""
        self.last_s, self._lone = t_s, -1
        running = UNKNOWN if event.usage is None else self._count(event.usage, event)
        for choice in event.choices:
            text = choice.output
            if text:
                self._take_plain([t_s], [choice.index], [len(text)], [running])
                if self.save_text:
                    self._text.setdefault(choice.index, []).append(text)
            if choice.finish_reason is not None:
                self._finish(choice.index, choice.finish_reason, t_s)

    def _finish(self, choice: int, reason: str, t_s: float) -> None:
        self.finish_reason = reason
        self._open.discard(choice)
        self._closed.add(choice)
        if not self._open:
            self.finished_s = t_s

    def _resume(self, choices: set[int]) -> None:
        """Output of ``choices`` has come."""
        if self._closed and (self.finished_s is not None or not self._closed.isdisjoint(choices)):
            self.resumed = True
        self._open |= choices
        self._seen |= choices
        self.finished_s = None

    def _think(self, reasoning: bool) -> None:
        """Some servers cut the token between thoughts and answer into an event of each."""
        if self._thinking and not reasoning:
            self._shared.add(len(self.event_s))
        self._thinking = reasoning

    def _repeats(self, output: Output) -> bool:
        """A final summary message is output only where nothing of it came before, or nothing but thoughts, or all of it
        came in such pieces."""
        choice, _, reasoning, _, source = output
        if choice in self._seen and self._sources.get(choice) != source and (reasoning or self.answer_s is not None):
            return True
        self._sources[choice] = source
        return False

    def _plain(self, event: PlainEvent, t_s: float) -> bool:
        """Take a plain event, as nearly every one is. False, and nothing taken: it has no text."""
        choice, usage = event.choices[0], event.usage
        text, index = choice.text if choice.delta is None else choice.delta.content, choice.index
        if not text:
            return False
        if self._thinking:
            self._think(False)
        self.event_s.append(t_s)
        self.choices.append(index)
        self._sizes.append(len(text))
        self._running.append(UNKNOWN if usage is None else usage.completion_tokens)
        if usage is not None:
            self._count_plain(usage, index)
        if self._closed or index not in self._open:
            self._resume({index})
        self.last_s, self._lone = t_s, -1
        if self.answer_s is None:
            self.answer_s = t_s
        if self.save_text:
            self._text.setdefault(index, []).append(text)
        return True

    def _count_plain(self, usage: RunningUsage, index: int) -> None:
        """What ``_count`` does, for a usage that needs no second look."""
        self._prompt = self._counted = usage
        self._summed = False
        self._per_choice[index] = usage.completion_tokens

    def plain(self, events: list[PlainEvent], stamps: list[float]) -> bool:
        """Take several events at once, each with its instant. False, and nothing taken: one of them has no text."""
        choices = [event.choices[0] for event in events]
        texts = [choice.text if choice.delta is None else choice.delta.content for choice in choices]
        if None in texts:
            return False
        indices = [choice.index for choice in choices]
        usages = [event.usage for event in events]
        running = [UNKNOWN if usage is None else usage.completion_tokens for usage in usages]
        self._take_plain(stamps, indices, [len(text) for text in texts if text], running)
        for index, usage in zip(indices, usages, strict=True):
            if usage is not None:
                self._count_plain(usage, index)
        if self.save_text:
            for index, text in zip(indices, texts, strict=True):
                self._text.setdefault(index, []).append(text or "")
        return True

    def noted(self, events: NotedEvents, stamps: list[float]) -> None:
        """Take plain events of one shape, each with its instant."""
        choice, usage, sizes, running = events.shape.choice, events.shape.usage, events.characters, events.tokens
        last_s = self.last_s = stamps[-1]
        self._lone = -1
        if 0 in sizes:  # tokens without text are no output
            heard = [i for i, size in enumerate(sizes) if size]
            stamps, sizes, running = [stamps[i] for i in heard], [sizes[i] for i in heard], [running[i] for i in heard]
        if stamps:
            self._take_plain(stamps, [choice] * len(stamps), sizes, running)
            self.last_s = last_s
        if usage is not None:
            tokens, prompt = events.tokens[-1], events.prompt_tokens
            self._count_plain(replace(usage, completion_tokens=tokens, prompt_tokens=prompt), choice)
        if self.save_text and stamps:
            self._text.setdefault(choice, []).extend(filter(None, events.texts()))

    def _take_plain(self, stamps: list[float], indices: list[int], sizes: list[int], running: list[int]) -> None:
        if self._thinking:
            self._think(False)
        self.event_s += stamps
        self.choices += indices
        self._sizes += sizes
        self._running += running
        self._resume(set(indices))
        self.last_s = stamps[-1]
        if self.answer_s is None:
            self.answer_s = stamps[0]

    def _count(self, usage: Usage, event: Event | KnownEvent) -> int:
        """Keep the last usable figures; returns the completion tokens so far where this event says them of its one
        choice, else ``UNKNOWN``."""
        choices = event.choices or ()
        output, prompt = usage.completion_tokens, usage.prompt_tokens
        if type(output) is not int or type(prompt) is not int or not 0 <= output <= MOST_TOKENS:
            output, prompt = usage.output, usage.prompt
        if prompt is not None:
            self._prompt = usage
        if output is None:
            return UNKNOWN
        of_one = len(choices) == 1
        if output or self._counted is None:
            self._counted = usage
            self._summed = not of_one
            for choice in choices:
                self._per_choice[index_of(choice)] = output
        return output if of_one else UNKNOWN

    def fill(self, record: Record) -> None:
        """Write everything but the verdict into ``record``."""
        counted = self._counted
        reasoning = (counted and counted.reasoning) or 0  # what some servers count beyond the limit
        most = None if self.most_tokens is None else self.most_tokens + reasoning
        tokens, source, total, self.implausible_usage = tokens_of(
            self._sizes, self._running, self.choices, self._total(), shared=self._shared, most=most
        )
        if self.whole and len(tokens) == 1 and total:
            source = "usage"  # a whole reply brings all its tokens at once: nothing was spread
        record.event_s = list(self.event_s)
        record.event_tokens = [] if tokens.count(1) == len(tokens) else tokens
        record.event_choice = list(self.choices) if any(self.choices) else []
        record.answer_s = self.answer_s
        record.output_tokens = total or (sum(tokens) or None)
        record.token_source = source if tokens else None
        record.finish_reason = self.finish_reason
        record.done_marker = self.done_s is not None and not self.whole
        record.keepalives = self.keepalives
        record.malformed_events = self.malformed
        if counted is not None and not self.implausible_usage:
            record.reasoning_tokens = _part_of(counted.output, counted.reasoning)
        if self._prompt is not None:
            record.prompt_tokens = self._prompt.prompt
            record.cached_tokens = _part_of(self._prompt.prompt, self._prompt.cached)
        if self.save_text:
            text = "\n".join("".join(self._text[choice]) for choice in sorted(self._text))
            record.text = encodable(text)

    def _total(self) -> int | None:
        """Completion tokens of the request: the last figure given, unless that is the running count of one choice."""
        of_one = len(self._per_choice) > 1 and not self._summed and UNKNOWN not in self._running
        return None if self._counted is None or of_one else self._counted.output


def _part_of(whole: int | None, part: int | None) -> int | None:
    """``part``, unless it is more than the whole: then it is no count."""
    return None if part is None or (whole is not None and part > whole) else part
