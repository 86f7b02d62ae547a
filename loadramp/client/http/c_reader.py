"""The optional reader in C (c_reader.c), as Python sees it: batches of reads of one socket. Without it a token costs
about twice as much, and everything else is the same.

It is compiled at installation where there is a compiler (hatch_build.py) and called through ctypes, so one file serves
every version of Python.
"""

from __future__ import annotations

import ctypes
import math
from array import array
from functools import lru_cache
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from loadramp.client.stream.event_batch import EventBatch, first_payload
from loadramp.client.stream.event_shape import (
    KNOWN,
    Hole,
    NotedEvents,
    Opening,
    Parts,
    Shape,
    ends_an_answer,
    opening_of,
    shape_of,
)

LIBRARY = Path(__file__).with_name("_c_reader.so")

TRIES, WORN = 4, 32
"""Of so many events in a row that have another shape each is learned; after WORN of one shape again so many."""
OPENING_BYTES = 8192
"""Of a reply that is longer before its first events are noted nothing is learned."""
_LAYOUT, _LOT_READS, _LOT_EVENTS, _DATA_BYTES, _MOST_READS = 7, 32, 512, 16_384 + 65_536, 128
_HEAD = Struct("=13i")
_HOLES: dict[Hole, int] = {
    "end": 0,
    "text": 1,
    "string": 2,
    "number": 3,
    "count": 4,
    "same": 5,
    "line": 6,
    "any_text": 7,
}
_RUNNING, _REPLY_HEAD, _PRELUDE = range(3)


class _Lot(ctypes.Structure):
    _fields_ = [
        ("head", ctypes.c_int32 * 13),
        ("starts", ctypes.c_int32 * _LOT_READS),
        ("ends", ctypes.c_int32 * _LOT_READS),
        ("stamps_s", ctypes.c_double * _LOT_READS),
        ("events", ctypes.c_char * (16 * _LOT_EVENTS)),
        ("data", ctypes.c_char * _DATA_BYTES),
    ]


class _Beats(ctypes.Structure):
    _fields_ = [
        ("due", ctypes.c_int32 * _MOST_READS),
        *((name, ctypes.c_int32) for name in ("due_count", "several", "beats", "reads", "blurred", "all")),
        *((name, ctypes.c_int32) for name in ("noted", "late", "begun")),
    ]


class _Reader(ctypes.Structure):
    _fields_ = [("now", _Beats), ("taken", _Lot)]


class Beat(NamedTuple):
    period_s: float
    late_s: float
    """A read this much later after its data than the thread has napped was late."""
    look_beats: int
    """After so many something is to be collected."""
    late_beats: float
    """One that comes so many periods too late says nothing of the streams."""


class Beats(NamedTuple):
    """What a thread that reads on the beat has brought."""

    due: list[int]
    """Sockets that must be looked at."""
    beats: int
    reads: int
    """On punctual beats."""
    blurred: int
    """Those of them that hold events of several instants."""
    all: int
    """Reads on any beat."""


Read = tuple[bytes, float]
"""And its instant, absolute seconds on the loop's clock."""


class Taken(NamedTuple):
    """What has come since the last call, in this order."""

    opening: list[Read]
    """Reads with which a reply begins as earlier ones did."""
    noted: NotedEvents | None
    batch: EventBatch | None
    others: list[Read]
    """What is neither; a patient reader goes on behind one."""
    kernel: bool
    """The kernel stamped some of it."""
    late: int
    """Reads that came late."""
    over: bool
    """The other end has closed."""
    error: int
    """The errno with which it did; 0 for none."""


class KeptReads:
    """The reads of one socket that are held back."""

    __slots__ = ("_came", "_fd", "_learnt", "_opening", "_reader", "_shape", "_strange", "_tries")

    def __init__(self, reader: CReader, fd: int) -> None:
        self._reader, self._fd = reader, fd
        self._shape: Shape | None = None
        self._opening: Opening | None = None
        self._came: list[bytes] | None = None  # of a reply of which nothing was noted yet
        self._strange = False  # some of that is not as other replies were
        self._learnt = False  # the events of this reply have begun
        self._tries = TRIES

    def expect(self, patient: bool) -> None:
        """A reply is to come. ``patient``: nobody waits for it, so it is due together with others, and where it begins
        as earlier replies did when it is over."""
        reader = self._reader
        self._tries, self._came = 0, [] if patient else None
        self._strange = self._learnt = False
        if patient and reader.opening is not None:
            if self._shape is not reader.shape:
                self._shape = reader.shape
                self._teach(_RUNNING, 1, () if self._shape is None else self._shape.parts)
            if self._opening is not reader.opening:
                self._opening = reader.opening
                self._teach(_REPLY_HEAD, 1, self._opening.head)
                self._teach(_PRELUDE, 1, self._opening.prelude)
        reader.expect(self._fd, patient)

    def take(self) -> Taken:
        """All of them; afterwards there are none."""
        head, lot = self._reader.take(self._fd)
        noted_n, reads, opening_n, kernel, late, over, error, text, text_end, _, same, begun, plain = head
        if begun:
            self._learnt, self._tries = True, TRIES
        noted = batch = None
        if noted_n and self._shape is not None:
            numbers = self._reader.events(noted_n)
            noted = NotedEvents(self._shape, *numbers, self._reader.data(text, text_end), same)
            self._came = None
            if noted_n >= WORN:
                self._tries = TRIES
        if not reads:
            return Taken([], noted, None, [], bool(kernel), late, bool(over), error)
        starts, ends, stamps_s = lot.starts[:reads], lot.ends[:reads], lot.stamps_s[:reads]
        begins = [0, *ends]
        if noted_n:
            begins[opening_n] = text_end
        first_other = reads
        if opening_n + plain < reads:
            first_other = next(n for n, start in enumerate(starts) if n >= opening_n and not start)
        if first_other > opening_n:
            begin = begins[opening_n]
            data = self._reader.data(begin, ends[first_other - 1])
            at = slice(opening_n, first_other)
            batch = EventBatch(data, [n - begin for n in starts[at]], [n - begin for n in ends[at]], stamps_s[at])
        single = [*range(opening_n), *range(first_other, reads)]
        singly = [(self._reader.data(begins[n], ends[n]), stamps_s[n]) for n in single]
        opening, others = singly[:opening_n], singly[opening_n:]
        self._look_at(opening, batch, others)
        return Taken(opening, noted, batch, others, bool(kernel), late, bool(over), error)

    def _look_at(self, opening: list[Read], batch: EventBatch | None, others: list[Read]) -> None:
        """Learn from reads that were not noted."""
        if self._came is not None:
            self._came += [data for data, _ in opening] + ([] if batch is None else batch.reads())
            self._came += [data for data, _ in others]
            self._strange = self._strange or batch is not None or bool(others)
        if self._tries and (batch is not None or (others and self._shape is None)):
            payload = first_payload(others[0][0]) if batch is None else batch.payloads()[-1]
            if payload is not None and not ends_an_answer(payload):
                self.learn(payload)

    def note(self, sure: bool, like: bytes = b"") -> None:
        """Whether the next read is sure to begin with a chunk and an event, so that events may be noted: all reads that
        were taken were parsed. ``like``: the JSON of an event of this reply; the first one counts."""
        if sure and not self._learnt:
            self._learnt, self._tries = True, self._tries or TRIES
            if like:
                self.learn(like)
        if sure and self._came and self._shape is not None:
            came, self._came = b"".join(self._came), None
            if self._strange and len(came) <= OPENING_BYTES:
                self._reader.opening = opening_of(came) or self._reader.opening
        self._reader.note(self._fd, sure)

    def learn(self, payload: bytes) -> None:
        """The next events may be as ``payload`` is."""
        self._tries -= 1
        self._shape = shape_of(payload, self._reader.shapes) if self._tries else None
        if self._shape is not None:
            self._reader.shape = self._shape
        self._teach(_RUNNING, 1 if self._tries else _LOT_READS, () if self._shape is None else self._shape.parts)

    def _teach(self, which: int, most_reads: int, parts: Parts) -> None:
        self._reader.learn(self._fd, which, most_reads, *_packed(parts))


@lru_cache(maxsize=KNOWN)
def _packed(parts: Parts) -> tuple[bytes, bytes]:
    """The array of ``struct part``, and the bytes of all parts."""
    numbers = array("i", chain.from_iterable((len(literal), _HOLES[hole]) for literal, hole in parts))
    return numbers.tobytes(), b"".join(literal for literal, _ in parts)


class CReader:
    """Reads the sockets of one epoll. Close it last: ``close`` frees what it holds back."""

    __slots__ = ("_at", "_data", "_events", "_head", "_ints", "_library", "_lot", "_now", "opening", "shape", "shapes")

    def __init__(self, library: Any) -> None:
        self._library = library
        self.shapes: dict[Parts, Shape] = {}
        self.shape: Shape | None = None
        """The latest of any socket."""
        self.opening: Opening | None = None
        self._at = library.gather_new()
        if not self._at:
            raise MemoryError
        reader = _Reader.from_address(self._at)
        self._now, self._lot = reader.now, reader.taken
        view = memoryview(reader.taken).cast("B")
        self._head, self._data = view[: _HEAD.size], view[_Lot.data.offset :]
        events = view[_Lot.events.offset : _Lot.data.offset]
        self._events: Any = events.cast("d")
        self._ints: Any = events.cast("i")

    def keep(self, fd: int) -> KeptReads:
        """From now on read ``fd`` here."""
        if not self._library.gather_keep(self._at, fd):
            raise MemoryError
        return KeptReads(self, fd)

    def drop(self, fd: int) -> None:
        """No longer; what waits is lost, and the ``KeptReads`` must not be used again."""
        self._library.gather_drop(self._at, fd)

    def read(self, epoll_fd: int, offset_s: float | None, late_s: float) -> tuple[int, list[int], int]:
        """Read what is ready; returns how many sockets that was, those that must be looked at, and how many reads held
        several events that were noted."""
        offset = math.nan if offset_s is None else offset_s
        count = self._library.gather_read(self._at, epoll_fd, offset, late_s)
        due = self._now.due_count
        return count, self._now.due[:due] if due else [], self._now.several

    def start(self, epoll_fd: int, told_fd: int, offset_s: float, beat: Beat) -> bool:
        """Read on the beat, in a thread; it writes to ``told_fd`` when there is something to collect. False: there can
        be no thread. ``offset_s``: how far the wall clock is ahead now."""
        return bool(self._library.gather_start(self._at, epoll_fd, told_fd, offset_s, *beat))

    def stop(self) -> None:
        self._library.gather_stop(self._at)

    def collect(self) -> Beats:
        """What the beats since the last call brought. If something is due, the thread reads on after ``handled``."""
        self._library.gather_collect(self._at, ctypes.byref(into := _Beats()))
        return Beats(into.due[: into.due_count], into.beats, into.reads, into.blurred, into.all)

    def handled(self) -> None:
        """What was due was looked at."""
        self._library.gather_handled(self._at)

    def waiting(self) -> tuple[int, int, int]:
        """Events and late reads that are held back now, and replies of which nothing else has been seen but the events
        held back."""
        self._library.gather_count(self._at)
        return self._now.noted, self._now.late, self._now.begun

    def close(self) -> None:
        self._library.gather_free(self._at)

    # -- what KeptReads needs

    def take(self, fd: int) -> tuple[tuple[int, ...], _Lot]:
        """What is held back of ``fd``, until the next call: the numbers before its arrays, and the arrays."""
        self._library.gather_take(self._at, fd)
        return _HEAD.unpack(self._head), self._lot

    def events(self, n: int) -> tuple[list[float], list[int], list[int]]:
        """Instants, tokens and characters of the n noted events that were taken."""
        ints = self._ints[: 4 * n]
        return self._events[: 2 * n : 2].tolist(), ints[2::4].tolist(), ints[3::4].tolist()

    def data(self, begin: int, end: int) -> bytes:
        return bytes(self._data[begin:end])

    def learn(self, fd: int, which: int, most_reads: int, parts: bytes, literals: bytes) -> None:
        self._library.gather_learn(self._at, fd, which, most_reads, len(parts) // 8, parts, len(literals), literals)

    def expect(self, fd: int, patient: bool) -> None:
        self._library.gather_expect(self._at, fd, patient)

    def note(self, fd: int, sure: bool) -> None:
        self._library.gather_note(self._at, fd, sure)


def load(path: Path = LIBRARY) -> Any:
    """The compiled reader; None where it was not built, cannot be loaded, or is of another version than this file."""
    try:
        library = ctypes.PyDLL(str(path))
        if library.gather_layout() != _LAYOUT:
            return None
    except (OSError, AttributeError):
        return None
    pointer, number, seconds = ctypes.c_void_p, ctypes.c_int, ctypes.c_double
    for name, result, arguments in (
        ("gather_new", pointer, []),
        ("gather_keep", number, [pointer, number]),
        ("gather_drop", None, [pointer, number]),
        ("gather_free", None, [pointer]),
        ("gather_read", number, [pointer, number, seconds, seconds]),
        ("gather_take", None, [pointer, number]),
        ("gather_learn", None, [pointer, *[number] * 4, ctypes.c_char_p, number, ctypes.c_char_p]),
        ("gather_expect", None, [pointer, number, number]),
        ("gather_note", None, [pointer, number, number]),
        ("gather_count", None, [pointer]),
        ("gather_start", number, [pointer, number, number, *[seconds] * 3, number, seconds]),
        ("gather_stop", None, [pointer]),
        ("gather_collect", None, [pointer, pointer]),
        ("gather_handled", None, [pointer]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


LOADED = load()


def new_c_reader() -> CReader | None:
    """A reader for another epoll; None where there is none in C."""
    return None if LOADED is None else CReader(LOADED)
