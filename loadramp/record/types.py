"""The nouns every room shares. Plain data: nothing here reads a clock, a file or a socket.

Units: float seconds since the run began (``_s``), requests a second (``_rps``), shares 0..1 (``_ratio``).
Instants say what happened (``due_s``, ``sent_s``); durations are nouns (``ttft_s``, ``lag_s``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from loadramp.units import plural

Role = Literal["settle", "step", "soak", "drain", "down", "tail"]
"""What a step is for. ``settle`` (discarded warm-up before the first step), ``drain`` and ``tail`` are load
that is offered and recorded but never measured; the others become rows of the curve."""

RecordStatus = Literal["ok", "empty", "incomplete", "error", "in_flight", "unfinished"]
"""``in_flight`` only in snapshots taken while the run goes on, never on disk. ``unfinished``: the client ended the run
before the answer had ended; it is neither a success nor a failure, and how long it would have taken is not known."""

ErrorKind = Literal[
    "connect", "tls", "timeout_first", "timeout_idle", "timeout_total", "http_4xx", "http_429", "http_5xx",
    "in_band", "truncated", "empty", "reset", "client",
]  # fmt: skip

TokenSource = Literal["continuous", "usage", "pro_rata", "events", "ends"]
"""Where the token count of each event comes from: running usage in every event, final usage equal to the number of
events, final usage spread over the events in proportion to their text, or (no usage at all) one token an event.
``ends``: another tool kept only the first and the last token; no gap between tokens is known."""

ENDS: TokenSource = "ends"
EVENTS: TokenSource = "events"

EstimateStatus = Literal["found", "not_found_up_to", "below_range", "inconclusive", "not_measurable"]
IntervalOf = Literal["long_run", "these_minutes"]
"""``long_run``: what the engine does, given hours; ``these_minutes``: what it does as long as it stays as it was while
it was measured."""
CheckLevel = Literal["note", "warn", "void"]
Verdict = Literal["pass", "fail", "inconclusive", "void"]
Confidence = Literal["certain", "likely", "possible"]
"""``certain``: the server counted it itself or nothing else looks like it; ``likely``: seen from the client alone;
``possible``: worth a look, other causes look alike."""

MEASURED_ROLES: frozenset[Role] = frozenset({"step", "soak", "down"})


@dataclass(slots=True, frozen=True)
class Step:
    """One level of load. Exactly one of ``rate_rps`` (open loop) and ``users`` (closed loop) is set.

    The measured window is ``[begin_s + warmup_s, end_s)``. A ramp leaves the times as None where the conductor is
    to choose them from what was measured so far.
    """

    index: int
    role: Role = "step"
    rate_rps: float | None = None
    users: int | None = None
    begin_s: float = 0.0
    warmup_s: float | None = None
    measure_s: float | None = None
    repeat: int = 0
    """Which of several whole ramps the step belongs to."""
    partial: bool = False
    """It was ended early; ``measure_s`` is what was measured of it."""

    @property
    def window_s(self) -> tuple[float, float]:
        """The measured window (begin, end), seconds since the run began."""
        begin_s = self.begin_s + (self.warmup_s or 0.0)
        return begin_s, begin_s + (self.measure_s or 0.0)

    @property
    def end_s(self) -> float:
        """The instant at which the step's arrivals end."""
        return self.window_s[1]

    @property
    def measured(self) -> bool:
        return self.role in MEASURED_ROLES


StopCause = Literal["gone", "refused", "missed"]
"""Nobody answers any more; every request fails whatever the load; or a threshold is missed beyond doubt."""


@dataclass(slots=True, frozen=True)
class Stop:
    """What a ramp returns instead of the next step.

    ``complete`` is False when it ended before its question was answered.
    """

    reason: str
    complete: bool = True
    cause: StopCause | None = None


GONE = "the endpoint stopped answering"
REFUSED = "every request fails, for reasons that do not depend on load"
"""What ``gone`` and ``refused`` say; the classes of the failures may follow the latter."""


@dataclass(slots=True, frozen=True)
class Prompt:
    """What one request asks. Text is either given or built from segments when it is needed.

    ``segments`` is a tuple of (seed, tokens): the same seed gives the same words in every process, so equal leading
    segments are a shared prefix and a segment with a fresh seed is unique text. Lengths are in tokens.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    segments: tuple[tuple[int, int], ...] = ()
    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    body: Mapping[str, Any] | None = None
    """Extra request fields of this prompt alone (tools, images, response format)."""
    model: str | None = None
    label: str = ""
    """The class of traffic, for per-class rows."""
    session: int | None = None
    turn: int = 0
    think_s: float = 0.0
    """Pause between the end of this prompt's answer and the next turn (closed loop: the next request)."""
    tag: int | None = None
    """Seed of a few opening words that tell this run's use of a given text from all others."""
    images: tuple[tuple[int, int, int], ...] = ()
    """(seed, width, height) in pixels of each image that goes with it."""
    following: tuple[Prompt, ...] = ()
    """The later turns of the session that this prompt opens."""


@dataclass(slots=True, frozen=True)
class Arrival:
    """One request as planned. ``seq`` counts arrivals of the whole run, over all workers, in order of ``due_s``."""

    seq: int
    step: int
    due_s: float
    prompt: Prompt


@dataclass(slots=True, frozen=True)
class Calibration:
    """How a server's tokenizer counts our words: ``prompt_tokens = overhead_tokens + tokens_per_word * words``.

    ``overhead_tokens`` is what the chat template and special tokens add to every request. ``words``: 256 words to
    write with instead of the usual ones (one token each, where the tokenizer is known). ``ids``: 256 token ids, for
    an endpoint that takes them; then a word is an id.
    """

    tokens_per_word: float = 1.0
    overhead_tokens: float = 0.0
    words: tuple[str, ...] = ()
    ids: tuple[int, ...] = ()

    def count(self, tokens: int, *, whole: bool = False) -> int:
        """Words that make ``tokens`` tokens; at least one. ``whole``: of a whole prompt, so the overhead comes off."""
        new_tokens = tokens - self.overhead_tokens if whole else tokens
        return max(1, round(new_tokens / self.tokens_per_word))


NO_FILES = "too many open files"
"""In the ``error_detail`` of a request for which no socket could be opened."""
LENGTH_NOT_FORCED = "length_not_forced"
"""Warning of a record whose answer has a form of its own (a format, a grammar, tools), so that it ends by itself."""


def no_room(most: int) -> str:
    """The ``error_detail`` of a request that was not sent because ``most`` others were in flight."""
    return f"not sent: {plural(most, 'request')} in flight (max_in_flight, or the limit on open files)"


def says_no_room(detail: str) -> bool:
    """Whether an ``error_detail`` says that no more requests could be in flight: ``no_room`` or ``NO_FILES``."""
    return NO_FILES in detail.lower() or "in flight (max_in_flight" in detail


@dataclass(slots=True)
class Record:
    """One request as it happened. Filled while its answer streams, then never changed.

    ``event_s`` are the instants at which output events arrived, ascending within a choice; ``event_tokens`` how many
    tokens each brought (empty: one each); ``event_choice`` the choice index of each (empty: all 0).
    """

    seq: int
    step: int
    due_s: float
    worker: int = 0
    sent_s: float | None = None
    """Just before the bytes were written; None when nothing was ever written."""
    connect_s: float | None = None
    """The part of ``lag_s`` spent on opening a connection for this request; None when one was ready."""
    first_byte_s: float | None = None
    event_s: list[float] = field(default_factory=list)
    event_tokens: list[int] = field(default_factory=list)
    event_choice: list[int] = field(default_factory=list)
    answer_s: float | None = None
    """First output event that is not reasoning."""
    stream_end_s: float | None = None
    status: RecordStatus = "in_flight"
    error: ErrorKind | None = None
    error_detail: str | None = None
    http_status: int | None = None
    error_status: int | None = None
    """The HTTP status that an error names within a reply of another one (200)."""
    retry_after_s: float | None = None
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    token_source: TokenSource | None = None
    finish_reason: str | None = None
    done_marker: bool = False
    keepalives: int = 0
    malformed_events: int = 0
    parse_s: float = 0.0
    """What the client spent on parsing this answer; 0 up to 50 ms, and of reads that took it less than 1 ms."""
    doubtful_s: float | None = None
    """From there on parsing may have kept the client from reading: instants after it may be late by ``parse_s``."""
    stamps: Literal["kernel", "user"] = "user"
    warnings: list[str] = field(default_factory=list)
    label: str = ""
    model: str | None = None
    session: int | None = None
    turn: int = 0
    """From 0."""
    turns: int = 0
    """How many the session has as planned; 0: no session."""
    text: str | None = None
    """The answer, kept only when asked for (``--save-text``, ``--show-text``)."""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def failure_status(self) -> int | None:
        """The status that a failure names, else that of the reply."""
        return self.http_status if self.error_status is None else self.error_status

    @property
    def lag_s(self) -> float | None:
        """How late the client was: ``sent_s - due_s``."""
        return None if self.sent_s is None else self.sent_s - self.due_s

    @property
    def ttft_s(self) -> float | None:
        """First output event minus ``due_s``: what a caller waits."""
        return self.event_s[0] - self.due_s if self.event_s else None

    @property
    def sent_ttft_s(self) -> float | None:
        """First output event minus ``sent_s``: what other tools print."""
        return self.event_s[0] - self.sent_s if self.event_s and self.sent_s is not None else None

    @property
    def e2e_s(self) -> float | None:
        """Last output event minus ``due_s``."""
        return self.event_s[-1] - self.due_s if self.event_s else None

    @property
    def done_s(self) -> float | None:
        """The instant after which the request no longer counts as in flight."""
        return None if self.status in ("in_flight", "unfinished") else self.stream_end_s


@dataclass(slots=True, frozen=True)
class Sample:
    """One scrape of one server, in canonical names. Absent is None, never zero.

    ``values`` holds gauges as read and counters as totals; keys are those of ``metrics.dialects.CANONICAL``.
    """

    t_s: float
    url: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    cost_s: float = 0.0
    """How long the scrape took."""
    error: str | None = None
    unasked: bool | UnsetType = UNSET
    """``values`` are of models that nobody asked for: the page names others only. Unset: they are not."""


@dataclass(slots=True, frozen=True)
class Estimate:
    """One of the three numbers: a rate with its interval, or why there is none."""

    status: EstimateStatus
    rate_rps: float | None = None
    low_rps: float | None = None
    high_rps: float | None = None
    detector: str = ""
    reason: str = ""
    sustained_rps: float | None = None
    """Ceiling only: the rate that a soak has shown to hold."""
    cause: str | None = None
    """p99 ITL knee only: ``capacity`` or ``prefill_mixing``."""
    limit: str | None = None
    """SLO capacity only: the limit that binds."""
    interval_of: IntervalOf | None = None
    """What the interval speaks of; None where there is none."""

    @property
    def known_rps(self) -> float | None:
        """The rate where the ramp reached it, be it with its lowest step; None otherwise."""
        return self.rate_rps if self.status in {"found", "below_range"} else None


@dataclass(slots=True, frozen=True)
class Check:
    """A finding about the measurement itself: what happened and what to do.

    ``void`` takes the step out of every verdict.
    """

    code: str
    level: CheckLevel
    message: str
    advice: str = ""
    step: int | None = None


@dataclass(slots=True, frozen=True)
class Cure:
    """Something to change about a finding, and how to see whether it helped."""

    name: str
    action: str
    when: str
    """When it matters, and what it costs."""
    change: str = ""
    """The engine's own flag or setting; empty where none is known."""
    proof: str = ""


@dataclass(slots=True, frozen=True)
class Finding:
    """Something about the server that explains what the ramp saw. ``evidence`` are words with numbers."""

    code: str
    confidence: Confidence
    evidence: tuple[str, ...]
    steps: tuple[int, ...] = ()
    """Indices of the steps in which it was seen."""
    cures: tuple[Cure, ...] = ()
    """The first one first."""


@dataclass(slots=True, frozen=True)
class GateResult:
    """One threshold, judged: the rule as it was written, and what it was judged by."""

    rule: str
    metric: str
    """What the rule limits, without its aggregate: ``ttft_s``, ``ceiling_rps``."""
    status: Literal["pass", "fail", "inconclusive"]
    value: float | None
    low: float | None
    high: float | None
    """95 % interval of ``value``; None on a side that is not known."""
    limit: float
    reason: str = ""
    step: int | None = None
    """The step that decided, where the rule speaks of steps."""


@dataclass(slots=True)
class ClientSample:
    """How one worker fared in one second: its loop's lag, its CPU share, its pauses. All in seconds or shares."""

    t_s: float
    worker: int = 0
    loop_lag_s: float = 0.0
    """Largest lateness of the 20 ms ticker within the second."""
    cpu_ratio: float = 0.0
    gc_pause_s: float = 0.0
    in_flight: int = 0
    waiting: int = 0
    """In flight without an output event yet."""
    sent: int = 0
    finished: int = 0
    tokens: int = 0
    held: int = 0
    """Requests that ``max_rps`` or ``max_in_flight`` kept back."""
    late_reads: int = 0
    """Reads that the loop came to more than 5 ms after the kernel had the data."""
