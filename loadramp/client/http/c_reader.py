"""The optional reader in C (c_reader.c), as Python sees it: batches of reads of one socket. Without it a token costs
some 40 % more, and everything else is the same.

It is compiled at installation where there is a compiler (hatch_build.py) and called through ctypes, so one file serves
every version of Python.
"""

import ctypes
import math
from pathlib import Path
from struct import Struct
from typing import Any, NamedTuple

from loadramp.client.stream.event_batch import EventBatch

LIBRARY = Path(__file__).with_name("_c_reader.so")

_LAYOUT, _BATCH_READS, _DATA_BYTES, _MOST_READS = 1, 32, 16_384 + 65_536, 64
_HEAD = Struct("=8i")
_NOTHING = _HEAD.pack(0, 0, 0, 0, 0, 0, 0, _BATCH_READS)


class _Kept(ctypes.Structure):
    _fields_ = [
        ("head", ctypes.c_int32 * 8),
        ("stamps_s", ctypes.c_double * _BATCH_READS),
        ("starts", ctypes.c_int32 * _BATCH_READS),
        ("ends", ctypes.c_int32 * _BATCH_READS),
        ("data", ctypes.c_char * _DATA_BYTES),
    ]


class _Reader(ctypes.Structure):
    _fields_ = [("due", ctypes.c_int32 * _MOST_READS), ("due_count", ctypes.c_int32)]


class Taken(NamedTuple):
    """What has come since the last call."""

    batch: EventBatch | None
    other: bytes
    """The last read, when it does not belong in the batch."""
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

    __slots__ = ("_kept", "_view")

    def __init__(self, kept: _Kept) -> None:
        self._kept = kept
        self._view = memoryview(kept).cast("B")

    def take(self) -> Taken:
        """All of them; afterwards there are none."""
        kept, view = self._kept, self._view
        reads, plain, kernel, late, over, error, used, _ = _HEAD.unpack_from(view)
        ends = kept.ends[:reads]
        middle = ends[plain - 1] if plain else 0
        at = _Kept.data.offset
        batch = None
        if plain:
            batch = EventBatch(bytes(view[at : at + middle]), kept.starts[:plain], ends[:plain], kept.stamps_s[:plain])
        other, other_s = b"", 0.0
        if plain < reads:
            other, other_s = bytes(view[at + middle : at + used]), kept.stamps_s[plain]
        view[: len(_NOTHING)] = _NOTHING
        return Taken(batch, other, other_s, bool(kernel), late, bool(over), error)


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

    def read(self, epoll_fd: int, offset_s: float | None, late_s: float) -> tuple[int, list[int]]:
        """Read what is ready; returns how many sockets that was, and those that must be looked at."""
        offset = math.nan if offset_s is None else offset_s
        count = self._library.gather_read(self._at, epoll_fd, offset, late_s)
        due = self._reader.due_count
        return count, self._reader.due[:due] if due else []

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
