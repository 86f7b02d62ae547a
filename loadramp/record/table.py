"""Records as columns: what the judge reads. Pure.

A ramp of a million tokens is 8 MB here and 32 MB as lists of floats, and every statistic is a numpy expression.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from operator import attrgetter
from sys import intern
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadramp.record.event_columns import EVENTS, every, gathered, joined, stepped
from loadramp.record.row import Row
from loadramp.record.run_info import RunInfo
from loadramp.record.types import (
    ENDS,
    LENGTH_NOT_FORCED,
    Check,
    ClientSample,
    Estimate,
    Finding,
    GateResult,
    Record,
    Sample,
    Step,
    says_no_room,
)
from loadramp.scenario.scenario import Scenario

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Strings = NDArray[np.object_]

_REQUEST_FLOATS = (
    "sent_s",
    "connect_s",
    "first_byte_s",
    "answer_s",
    "stream_end_s",
    "doubtful_s",
    "asked_input_tokens",
    "asked_output_tokens",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "http_status",
    "error_status",
    "session",
)

_REQUEST_INTS = ("seq", "step", "worker", "turn", "turns", "malformed_events")


def within(instants_s: Floats, window_s: tuple[float, float]) -> Bools:
    """Which instants are in a window: its begin is, its end and NaN are not."""
    return np.asarray((instants_s >= window_s[0]) & (instants_s < window_s[1]))


ALL = (-np.inf, np.inf)
"""A window without ends."""
SLICE_EVENTS = 250_000
"""What is counted for every event takes memory for so many at once; for fewer it would not take less time."""


@dataclass(slots=True, frozen=True)
class Gaps:
    """Differences between successive output events of one choice of one request. All arrays have one entry a gap."""

    request: Ints
    """Row of the table that the gap belongs to."""
    end_s: Floats
    gap_s: Floats
    tokens: Ints
    """Tokens that the event at the gap's end brought."""

    def itl(self) -> tuple[Floats, Floats]:
        """Inter-token latencies and the instants they end at: an event of k tokens after gap g is k entries of g/k.

        An event of no token of its own (pro rata rounding) gives no entry; its gap goes to no token.
        """
        k = np.maximum(self.tokens, 0)
        per_token_s = np.divide(self.gap_s, k, out=np.zeros_like(self.gap_s), where=k > 0)
        return np.repeat(per_token_s, k), np.repeat(self.end_s, k)


@dataclass(slots=True, frozen=True)
class Table:
    """n requests and their m output events as columns. Absent numbers are NaN, absent words are ``""``.

    ``begin[i]:begin[i + 1]`` are the events of request i. Rows keep the order they were given in.
    """

    seq: Ints
    step: Ints
    worker: Ints
    due_s: Floats
    sent_s: Floats
    connect_s: Floats
    first_byte_s: Floats
    answer_s: Floats
    stream_end_s: Floats
    doubtful_s: Floats
    asked_input_tokens: Floats
    asked_output_tokens: Floats
    prompt_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    http_status: Floats
    error_status: Floats
    """The HTTP status that an error within a reply of another one names."""
    status: Strings
    error: Strings
    error_detail: Strings
    token_source: Strings
    warnings: Strings
    """The codes of each request, with spaces between them."""
    label: Strings
    model: Strings
    session: Floats
    turn: Ints
    turns: Ints
    malformed_events: Ints
    kernel_stamps: Bools
    length_free: Bools
    """The length was not forced, since the answer has a form of its own."""
    begin: Ints
    event_s: Floats
    event_tokens: Ints
    event_choice: Ints

    def __len__(self) -> int:
        return len(self.due_s)

    @staticmethod
    def of(records: Sequence[Record], counts: Sequence[int] | None = None, event_s: Floats | None = None) -> Table:
        """Columns of ``records``, in their order.

        Args:
            records: n of them, or objects with the same attributes.
            counts, event_s: how many events each has, and those of all, if the records have none themselves.
        """
        if counts is None or event_s is None:
            counts = [len(record.event_s) for record in records]
            event_s = np.fromiter(chain.from_iterable(r.event_s for r in records), np.float64, sum(counts))
        begin = np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64)

        def floats(name: str) -> Floats:  # None becomes NaN
            values = list(map(attrgetter(name), records))
            if values.count(None) == len(values):
                return np.full(len(values), np.nan)
            return np.array(values, dtype=np.float64)

        def ints(name: str) -> Ints:
            return np.array(list(map(attrgetter(name), records)), dtype=np.int64)

        def words(name: str) -> Strings:  # few differ: each is there once
            values = list(map(attrgetter(name), records))
            once = {value: intern(value or "") for value in set(values)}
            return np.array([once[value] for value in values], dtype=object)

        def events(name: str, default: int) -> Ints:
            if not any(map(attrgetter(name), records)):
                return every(default, int(begin[-1]))
            column = np.full(int(begin[-1]), default, dtype=np.int64)
            for k, record in enumerate(records):
                if values := getattr(record, name):
                    column[begin[k] : begin[k + 1]] = values
            return column

        columns: dict[str, Any] = {name: ints(name) for name in _REQUEST_INTS}
        columns |= {name: floats(name) for name in ("due_s", *_REQUEST_FLOATS)}
        columns |= {name: words(name) for name in ("status", "error", "error_detail", "token_source", "label", "model")}
        return Table(
            **columns,
            warnings=np.array([intern(" ".join(r.warnings)) for r in records], dtype=object),
            kernel_stamps=np.array([r.stamps == "kernel" for r in records], dtype=np.bool_),
            length_free=np.array([LENGTH_NOT_FORCED in r.warnings for r in records], dtype=np.bool_),
            begin=begin,
            event_s=event_s,
            event_tokens=events("event_tokens", 1),
            event_choice=events("event_choice", 0),
        )

    @staticmethod
    def concat(tables: Iterable[Table]) -> Table:
        """One table of all rows of ``tables``, in that order."""
        parts = list(tables) or [Table.of([])]
        if len(parts) == 1:
            return parts[0]
        columns = {f.name: joined([getattr(part, f.name) for part in parts]) for f in fields(Table)}
        sizes = np.concatenate([part.events for part in parts])
        columns["begin"] = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        return Table(**columns)

    def without_events(self) -> Table:
        """The requests alone: as if no event had come."""
        return replace(self, begin=np.zeros_like(self.begin), **{name: getattr(self, name)[:0] for name in EVENTS})

    def ends(self) -> Table:
        """The requests with their first and last event alone, which is all that is known of their tokens then."""
        size = np.minimum(self.events, 2)
        begin = np.concatenate(([0], np.cumsum(size)))
        at = np.repeat(self.begin[:-1], size)
        at[begin[1:][size == 2] - 1] = self.begin[1:][size == 2] - 1
        columns = {name: gathered(getattr(self, name), at, np.ones_like(at)) for name in EVENTS}
        return replace(self, begin=begin, token_source=np.full(len(self), ENDS, dtype=object), **columns)

    def due_in(self, *windows_s: tuple[float, float]) -> Table:
        """The requests due in any of the windows."""
        return self.select(np.any([within(self.due_s, window_s) for window_s in windows_s], axis=0))

    def select(self, keep: Bools) -> Table:
        """The rows where ``keep`` (shape n) holds."""
        return self.select_rows(np.flatnonzero(keep))

    def select_rows(self, order: Ints) -> Table:
        """The rows at ``order``, in that order. May share memory with this table: none is written to."""
        if len(order) and order[-1] - order[0] == len(order) - 1 and (order[1:] - order[:-1] == 1).all():
            return self._following(int(order[0]), int(order[-1]) + 1)
        return self._part(order, self.begin[:-1][order], self.events[order])

    def slices(self, events: int = SLICE_EVENTS) -> Iterator[tuple[int, Table]]:
        """The table in parts of about ``events`` events, each with the row that it begins at; nothing is copied."""
        first, n = 0, len(self)
        while first < n:
            goal = self.begin[first] + events
            last = min(n, max(first + 1, int(np.searchsorted(self.begin, goal, side="right")) - 1))
            yield first, self._following(first, last)
            first = last

    def alive(self, since_s: float, until_s: float) -> Table:
        """The requests that had not ended at ``since_s``. Those due from ``until_s`` on are there without their events,
        which would be most of a run, but for the one that was the last to bring any."""
        rows = np.flatnonzero(self.done_s >= since_s)
        events = self.events[rows]
        later = np.flatnonzero(self.due_s[rows] >= until_s)
        last_s = np.nan_to_num(self.last_s[rows[later]], nan=-np.inf)
        kept = events.copy()
        kept[np.delete(later, last_s.argmax()) if len(later) else later] = 0
        return self._part(rows, self.begin[:-1][rows], kept)

    def _following(self, first: int, last: int) -> Table:
        """The rows from ``first`` to before ``last``, as most windows are; nothing is copied."""
        columns = {name: getattr(self, name)[first:last] for name in _OF_REQUESTS}
        begin = self.begin[first : last + 1]
        columns |= {name: getattr(self, name)[begin[0] : begin[-1]] for name in EVENTS}
        return Table(**columns, begin=begin - begin[0])

    def _part(self, rows: Ints, first: Ints, size: Ints) -> Table:
        """The rows ``rows``, each with ``size`` events from ``first`` on."""
        columns = {name: getattr(self, name)[rows] for name in _OF_REQUESTS}
        columns["begin"] = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
        return Table(**columns, **{name: gathered(getattr(self, name), first, size) for name in EVENTS})

    @property
    def ok(self) -> Bools:
        return np.asarray(self.status == "ok", dtype=np.bool_)

    def warned(self, code: str) -> Bools:
        """Requests whose record carries the warning ``code``, shape n."""
        return np.fromiter((code in words.split() for words in self.warnings), dtype=np.bool_, count=len(self))

    @property
    def failure_status(self) -> Floats:
        """The status that a failure names, else that of the reply; NaN: neither."""
        return np.where(np.isnan(self.error_status), self.http_status, self.error_status)

    @property
    def in_flight(self) -> Bools:
        """Requests that have not ended, those included that never will (``unfinished``), shape n."""
        return np.asarray(self.status == "in_flight", dtype=np.bool_) | self.unfinished

    @property
    def unfinished(self) -> Bools:
        """Requests that the client cut off when it ended the run, shape n."""
        return np.asarray(self.status == "unfinished", dtype=np.bool_)

    @property
    def failed(self) -> Bools:
        return ~self.ok & ~self.in_flight

    @property
    def out_of_room(self) -> bool:
        """Some requests were not sent because no more may be in flight: no file to open, or ``max_in_flight``."""
        return any(map(says_no_room, set(self.error_detail[self.error == "client"].tolist())))

    @property
    def input_tokens(self) -> Floats:
        """Prompt tokens as the server counted them, else as they were planned."""
        return np.where(np.isnan(self.prompt_tokens), self.asked_input_tokens, self.prompt_tokens)

    @property
    def events(self) -> Ints:
        """Output events of each request, shape n."""
        return self.begin[1:] - self.begin[:-1]

    @property
    def received(self) -> Floats:
        """Tokens that arrived in each request's events."""
        if self.event_tokens.strides == (0,):
            return np.asarray(self.events * float(self.event_tokens[:1].sum()), dtype=np.float64)
        has = self.events > 0
        out = np.zeros(len(self))
        out[has] = np.add.reduceat(self.event_tokens, self.begin[:-1][has])
        return out

    @property
    def first_s(self) -> Floats:
        """First output event, NaN where there was none."""
        return self._event_at(self.begin[:-1])

    @property
    def last_s(self) -> Floats:
        """Last output event, NaN where there was none."""
        return self._event_at(self.begin[1:] - 1)

    @property
    def first_tokens(self) -> Floats:
        """Tokens in the first output event, NaN where there was none."""
        has = self.events > 0
        out = np.full(len(self), np.nan)
        out[has] = self.event_tokens[self.begin[:-1][has]]
        return out

    @property
    def ttft_s(self) -> Floats:
        """First output event minus ``due_s``."""
        return self.first_s - self.due_s

    @property
    def sent_ttft_s(self) -> Floats:
        """First output event minus ``sent_s``."""
        return self.first_s - self.sent_s

    @property
    def e2e_s(self) -> Floats:
        """Last output event minus ``due_s``."""
        return self.last_s - self.due_s

    @property
    def parsed_late(self) -> Bools:
        """Requests whose last output event came after the client was kept from reading by parsing, shape n."""
        return np.asarray(self.last_s > self.doubtful_s, dtype=np.bool_)

    @property
    def lag_s(self) -> Floats:
        """``sent_s - due_s``."""
        return self.sent_s - self.due_s

    @property
    def tpot_s(self) -> Floats:
        """(last output - first output) / (output_tokens - tokens in the first event); NaN under two tokens."""
        after_first = self.output_tokens - self.first_tokens
        usable = (self.output_tokens >= 2) & (after_first >= 1) & (self.events >= 2)
        out = np.full(len(self), np.nan)
        np.divide(self.last_s - self.first_s, after_first, out=out, where=usable)
        return out

    @property
    def done_s(self) -> Floats:
        """When the request stopped being in flight; +inf where it still is."""
        return np.where(self.in_flight, np.inf, np.where(np.isnan(self.stream_end_s), self.due_s, self.stream_end_s))

    def gaps(self, window_s: tuple[float, float] = ALL, of: Bools | None = None) -> Gaps:
        """Gaps of all requests, failed ones included up to where they broke; first events have none, and neither have
        requests of which only the first and the last token are known.

        Args:
            window_s: only gaps that end in it: a gap counts in the window in which it arrived.
            of: only of these requests, shape n.
        """
        of = self.token_source != ENDS if of is None else of & (self.token_source != ENDS)
        if self.event_choice.any():
            return self._gaps_of_choices(window_s, of)
        first, size = self.events_in(window_s, 1)
        rows = np.flatnonzero(of & (size > 0))
        first, size = first[rows], size[rows]
        end_s, gap_s = stepped(self.event_s, first, size)
        return Gaps(np.repeat(rows, size), end_s, gap_s, gathered(self.event_tokens, first, size))

    def events_in(self, window_s: tuple[float, float], skipped: int = 0) -> tuple[Ints, Ints]:
        """Of each request's events after the first ``skipped`` those that came in the window: where they begin in the
        columns of events, and how many they are, shape n each. Of one choice alone, whose events ascend."""
        begin, end = self.begin[:-1], self.begin[1:]
        first, stop = np.minimum(begin + skipped, end), end.copy()
        if window_s != ALL:
            first_s, last_s = self.first_s, self.last_s
            outside = (last_s < window_s[0]) | (first_s >= window_s[1])
            stop[outside] = first[outside]
            for i in np.flatnonzero(~outside & ((first_s < window_s[0]) | (last_s >= window_s[1]))).tolist():
                low, high = self.event_s[begin[i] : end[i]].searchsorted(window_s).tolist()
                first[i], stop[i] = max(first[i], begin[i] + low), begin[i] + high
        return first, np.maximum(stop - first, 0)

    def _gaps_of_choices(self, window_s: tuple[float, float], of: Bools) -> Gaps:
        """``gaps`` of interleaved choices: a gap is between events of the same choice."""
        request = np.repeat(np.arange(len(self)), self.events)
        at = np.arange(len(self.event_s))
        at = np.lexsort((at, self.event_choice, request))
        same = (request[at][1:] == request[at][:-1]) & (self.event_choice[at][1:] == self.event_choice[at][:-1])
        same &= of[request[at][1:]] & within(self.event_s[at][1:], window_s)
        later, earlier = at[1:][same], at[:-1][same]
        return Gaps(
            request=request[later],
            end_s=self.event_s[later],
            gap_s=self.event_s[later] - self.event_s[earlier],
            tokens=self.event_tokens[later],
        )

    def _event_at(self, index: Ints) -> Floats:
        out = np.full(len(self), np.nan)
        has = self.events > 0
        out[has] = self.event_s[index[has]]
        return out


_OF_REQUESTS = tuple(f.name for f in fields(Table) if f.name not in {"begin", *EVENTS})


@dataclass(slots=True)
class Run:
    """All of a run as plain data: what a run directory holds, and all that a report sees."""

    info: RunInfo
    scenario: Scenario
    steps: list[Step]
    table: Table
    samples: list[Sample] = field(default_factory=list)
    client: list[ClientSample] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    """The curve; with repeats, one row a load over all of them."""
    repeats: list[dict[str, Estimate]] = field(default_factory=list)
    """The three numbers of each whole ramp, where there were several."""
    estimates: dict[str, Estimate] = field(default_factory=dict)
    """Keys ``ceiling``, ``p99_itl_knee``, ``slo_capacity``."""
    checks: list[Check] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Why it gives way, the first cause first."""
    gates: list[GateResult] = field(default_factory=list)
    """The thresholds that were asked, judged."""
    path: str = ""

    def estimate(self, name: str) -> Estimate:
        """One of the three numbers; not measurable where no estimate was made."""
        return self.estimates.get(name) or Estimate("not_measurable", reason="no estimate was made")
