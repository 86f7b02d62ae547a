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
from loadramp.client.stream.event_shape import KNOWN, Hole, NotedEvents, Parts, Shape, shape_of

LIBRARY = Path(__file__).with_name("_c_reader.so")

TRIES, WORN = 4, 32
"""Of so many events in a row that have another shape each is learned; after WORN of one shape again so many."""
_LAYOUT, _LOT_READS, _LOT_EVENTS, _DATA_BYTES, _MOST_READS = 5, 32, 512, 16_384 + 65_536, 128
_HEAD = Struct("=9i")
_HOLES: dict[Hole, int] = {"end": 0, "text": 1, "string": 2, "number": 3, "count": 4}


class _Lot(ctypes.Structure):
    _fields_ = [
        ("head", ctypes.c_int32 * 9),
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
        *((name, ctypes.c_int32) for name in ("noted", "late")),
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


class Taken(NamedTuple):
    """What has come since the last call: noted events, behind them a batch, and behind it another read."""

    noted: NotedEvents | None
    batch: EventBatch | None
    other: bytes
    """The last read, when it belongs in neither."""
    other_s: float
    """Its instant, as those of the batch."""
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

    __slots__ = ("_fd", "_reader", "_shape", "_tries")

    def __init__(self, reader: CReader, fd: int) -> None:
        self._reader, self._fd = reader, fd
        self._shape: Shape | None = None
        self._tries = TRIES

    def take(self) -> Taken:
        """All of them; afterwards there are none."""
        head, lot = self._reader.take(self._fd)
        noted_n, reads, plain, kernel, late, over, error, text, used = head
        noted = batch = None
        if noted_n and self._shape is not None:
            noted = NotedEvents(self._shape, *self._reader.events(noted_n), self._reader.data(0, text))
            if noted_n >= WORN:
                self._tries = TRIES
        ends = lot.ends[:reads] if reads else []
        middle = ends[plain - 1] if plain else 0
        if plain:
            data = self._reader.data(text, text + middle)
            batch = EventBatch(data, lot.starts[:plain], ends[:plain], lot.stamps_s[:plain])
        other, other_s = b"", 0.0
        if plain < reads:
            other, other_s = self._reader.data(text + middle, used), lot.stamps_s[plain]
        if self._tries and (batch is not None or (other and self._shape is None)):  # not of each answer's end
            payload = first_payload(other) if batch is None else batch.payloads()[-1]
            if payload is not None:
                self.learn(payload)
        return Taken(noted, batch, other, other_s, bool(kernel), late, bool(over), error)

    def note(self, sure: bool) -> None:
        """Whether the next read is sure to begin with a chunk and an event, so that events may be noted: all reads that
        were taken were parsed."""
        self._reader.note(self._fd, sure)

    def learn(self, payload: bytes) -> None:
        """The next events may be as ``payload`` is."""
        self._tries -= 1
        self._shape = shape_of(payload, self._reader.shapes) if self._tries else None
        parts = () if self._shape is None else self._shape.parts
        self._reader.learn(self._fd, 1 if self._tries else _LOT_READS, *_packed(parts))


@lru_cache(maxsize=KNOWN)
def _packed(parts: Parts) -> tuple[bytes, bytes]:
    """The array of ``struct part``, and the bytes of all parts."""
    numbers = array("i", chain.from_iterable((len(literal), _HOLES[hole]) for literal, hole in parts))
    return numbers.tobytes(), b"".join(literal for literal, _ in parts)


class CReader:
    """Reads the sockets of one epoll. Close it last: ``close`` frees what it holds back."""

    __slots__ = ("_at", "_data", "_events", "_head", "_ints", "_library", "_lot", "_now", "shapes")

    def __init__(self, library: Any) -> None:
        self._library = library
        self.shapes: dict[Parts, Shape] = {}
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

    def drop(self, fd: int, lose: bool = True) -> bool:
        """No longer, and the ``KeptReads`` must not be used again. False: something waits that may not be lost."""
        return bool(self._library.gather_drop(self._at, fd, lose))

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

    def waiting(self) -> tuple[int, int]:
        """Events and late reads that are held back now."""
        self._library.gather_count(self._at)
        return self._now.noted, self._now.late

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

    def learn(self, fd: int, most_reads: int, parts: bytes, literals: bytes) -> None:
        self._library.gather_learn(self._at, fd, most_reads, len(parts) // 8, parts, len(literals), literals)

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
        ("gather_drop", number, [pointer, number, number]),
        ("gather_free", None, [pointer]),
        ("gather_read", number, [pointer, number, seconds, seconds]),
        ("gather_take", None, [pointer, number]),
        ("gather_learn", None, [pointer, number, number, number, ctypes.c_char_p, number, ctypes.c_char_p]),
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
