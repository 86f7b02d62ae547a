"""The optional reader in C (c_reader.c), as Python sees it: batches of reads of one socket. Without it a token costs
some 40 % more, and everything else is the same.

It is compiled at installation where there is a compiler (hatch_build.py) and called through ctypes, so one file serves
every version of Python.
"""

import ctypes
import math
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from loadramp.client.stream.event_batch import EventBatch
from loadramp.client.stream.event_shape import MOST_PARTS, SHAPE_BYTES, Hole, NotedEvents, Shape, shape_of

LIBRARY = Path(__file__).with_name("_c_reader.so")

TRIES, WORN = 4, 32
"""Of so many events in a row that have another shape each is learned; after WORN of one shape again so many."""
_LAYOUT, _LOT_READS, _LOT_EVENTS, _DATA_BYTES, _MOST_READS = 2, 32, 512, 16_384 + 65_536, 128
_HEAD = Struct("=11i")
_HOLES: dict[Hole, int] = {"end": 0, "text": 1, "string": 2, "number": 3, "count": 4}


class _Kept(ctypes.Structure):
    _fields_ = [
        ("head", ctypes.c_int32 * 11),
        ("due_s", ctypes.c_double),
        ("part", ctypes.c_int32 * (2 * MOST_PARTS)),
        ("shape", ctypes.c_char * SHAPE_BYTES),
        ("stamps_s", ctypes.c_double * _LOT_READS),
        ("starts", ctypes.c_int32 * _LOT_READS),
        ("ends", ctypes.c_int32 * _LOT_READS),
        ("events", ctypes.c_char * (16 * _LOT_EVENTS)),
        ("data", ctypes.c_char * _DATA_BYTES),
    ]


class _Reader(ctypes.Structure):
    _fields_ = [
        ("due", ctypes.c_int32 * _MOST_READS),
        ("due_count", ctypes.c_int32),
        ("several", ctypes.c_int32),
    ]


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

    __slots__ = ("_ints", "_kept", "_parts", "_shape", "_stamps", "_tries", "_view")

    def __init__(self, kept: _Kept) -> None:
        self._kept = kept
        self._view = memoryview(kept).cast("B")
        events = self._view[_Kept.events.offset : _Kept.data.offset]
        self._stamps: Any = events.cast("d")
        self._ints: Any = events.cast("i")
        self._shape: Shape | None = None
        self._parts = 0
        self._tries = TRIES

    def take(self) -> Taken:
        """All of them; afterwards there are none."""
        kept, view, at = self._kept, self._view, _Kept.data.offset
        noted_n, reads, plain, kernel, late, over, error, text, used, _, parts = _HEAD.unpack_from(view)
        noted = batch = None
        if noted_n and self._shape is not None:
            stamps_s = self._stamps[: 2 * noted_n : 2].tolist()
            tokens, characters = (self._ints[i : 4 * noted_n : 4].tolist() for i in (2, 3))
            noted = NotedEvents(self._shape, stamps_s, tokens, characters, bytes(view[at : at + text]))
            if noted_n >= WORN:
                self._tries = TRIES
        at += text
        ends = kept.ends[:reads] if reads else []
        middle = ends[plain - 1] if plain else 0
        if plain:
            batch = EventBatch(bytes(view[at : at + middle]), kept.starts[:plain], ends[:plain], kept.stamps_s[:plain])
            self._learn(batch.payloads()[-1])
        other, other_s = b"", 0.0
        if plain < reads:
            other, other_s = bytes(view[at + middle : at + used - text]), kept.stamps_s[plain]
        _HEAD.pack_into(view, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 if self._tries else _LOT_READS, parts)
        return Taken(noted, batch, other, other_s, bool(kernel), late, bool(over), error)

    def note(self, sure: bool) -> None:
        """Whether the next read is sure to begin with a chunk and an event, so that events may be noted. No read that
        came may be unparsed."""
        self._kept.head[10] = self._parts if sure else 0

    def _learn(self, payload: bytes) -> None:
        """The next events may be as ``payload`` is."""
        if not self._tries:
            return
        self._tries -= 1
        self._shape = shape_of(payload) if self._tries else None
        parts = [] if self._shape is None else self._shape.parts
        self._parts = len(parts)
        literals = b"".join(literal for literal, _ in parts)
        numbers = ((len(literal), _HOLES[hole]) for literal, hole in parts)
        self._kept.part[: 2 * len(parts)] = list(chain.from_iterable(numbers))
        self._view[_Kept.shape.offset : _Kept.shape.offset + len(literals)] = literals


class CReader:
    """Reads the sockets of one epoll. Close it last: ``close`` frees what it holds back."""

    __slots__ = ("_at", "_library", "_reader")

    def __init__(self, library: Any) -> None:
        self._library = library
        self._at = library.gather_new()
        if not self._at:
            raise MemoryError
        self._reader = _Reader.from_address(self._at)

    def keep(self, fd: int) -> KeptReads:
        """From now on read ``fd`` here."""
        at = self._library.gather_keep(self._at, fd)
        if not at:
            raise MemoryError
        return KeptReads(_Kept.from_address(at))

    def drop(self, fd: int) -> None:
        """No longer; the ``KeptReads`` must not be used again."""
        self._library.gather_drop(self._at, fd)

    def read(self, epoll_fd: int, offset_s: float | None, late_s: float) -> tuple[int, list[int], int]:
        """Read what is ready; returns how many sockets that was, those that must be looked at, and how many reads held
        several events that were noted."""
        offset = math.nan if offset_s is None else offset_s
        count = self._library.gather_read(self._at, epoll_fd, offset, late_s)
        due = self._reader.due_count
        return count, self._reader.due[:due] if due else [], self._reader.several

    def close(self) -> None:
        self._library.gather_free(self._at)


def load(path: Path = LIBRARY) -> Any:
    """The compiled reader; None where it was not built, cannot be loaded, or is of another version than this file."""
    try:
        library = ctypes.PyDLL(str(path))
        if library.gather_layout() != _LAYOUT:
            return None
    except (OSError, AttributeError):
        return None
    pointer = ctypes.c_void_p
    for name, result, arguments in (
        ("gather_new", pointer, []),
        ("gather_keep", pointer, [pointer, ctypes.c_int]),
        ("gather_drop", None, [pointer, ctypes.c_int]),
        ("gather_free", None, [pointer]),
        ("gather_read", ctypes.c_int, [pointer, ctypes.c_int, ctypes.c_double, ctypes.c_double]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


LOADED = load()


def new_c_reader() -> CReader | None:
    """A reader for another epoll; None where there is none in C."""
    return None if LOADED is None else CReader(LOADED)
