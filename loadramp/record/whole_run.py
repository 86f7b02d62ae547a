"""The records of a whole run as one Table, in order of ``due_s``.

Rule: the events of a long run lie in a file without a name, mapped so that the system reads them as they are needed.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from loadramp.record.columns import decode_table
from loadramp.record.event_columns import EVENTS, every, gathered, joined
from loadramp.record.table import Ints, Table

BATCH_BYTES = 2_000_000
"""Of records that are lines at once."""
IN_MEMORY_BYTES = 200_000_000
"""Of records whose events are kept in memory: some 27 million tokens."""
PIECE = 1_000_000
"""Events that are put in order at once."""


def read_records(paths: Iterable[Path], in_memory_bytes: int = IN_MEMORY_BYTES) -> tuple[Table, int]:
    """The records in files of lines, and how many lines could not be read.

    Args:
        paths: the files.
        in_memory_bytes: where all files together are larger, events are kept in temporary files of 8 bytes an event
            (16 where events bring several tokens), twice as much while they are read.

    Raises:
        OSError: a file cannot be read, or there is no room for the temporary ones.
    """
    paths = list(paths)
    large = sum(path.stat().st_size for path in paths) > in_memory_bytes
    requests, skipped = [], 0
    none: dict[str, Any] = dict.fromkeys(EVENTS, every(0, 0))
    with contextlib.ExitStack() as files:
        stores = {name: _Store(files.enter_context(tempfile.TemporaryFile()) if large else None) for name in EVENTS}
        for lines in _batches(paths):
            table, torn = decode_table(lines)
            skipped += torn
            for name, store in stores.items():
                store.add(getattr(table, name))
            requests.append(replace(table, **none))
        if not requests:
            return Table.of([]), skipped
        whole = Table.concat(requests)
        order = whole.due_s.argsort(kind="stable")
        columns = {f.name: getattr(whole, f.name)[order] for f in fields(Table) if f.name not in {"begin", *EVENTS}}
        first, size = whole.begin[:-1][order], whole.events[order]
        columns["begin"] = np.concatenate(([0], np.cumsum(size))).astype(np.int64)
        return Table(**columns, **{name: store.in_order(first, size) for name, store in stores.items()}), skipped


def _batches(paths: Iterable[Path]) -> Iterator[list[bytes]]:
    for path in paths:
        with path.open("rb") as file:
            while lines := file.readlines(BATCH_BYTES):
                yield lines


@dataclass(slots=True)
class _Store:
    """One column of events: added as it is read, taken out in order. In memory if there is no file."""

    file: IO[bytes] | None
    _parts: list[NDArray[Any]] = field(default_factory=list)

    def add(self, part: NDArray[Any]) -> None:
        self._parts.append(part)
        if self.file and (self.file.tell() or joined(self._parts).strides != (0,)):  # alike so far: no room is taken
            for kept in self._parts:
                self.file.write(np.ascontiguousarray(kept).data)
            self._parts = [part[:0]]

    def in_order(self, first: Ints, size: Ints) -> NDArray[Any]:
        """``size[i]`` entries from ``first[i]`` on, for every i in turn. Can be asked once."""
        kind, column = self._parts[0].dtype, joined(self._parts)
        self._parts.clear()
        if not self.file or not self.file.tell():
            return gathered(column, first, size)
        column = _mapped(self.file, kind)
        pieces = np.searchsorted(np.cumsum(size), np.arange(PIECE, len(column), PIECE))
        with tempfile.TemporaryFile() as ordered:
            for rows, sizes in zip(np.split(first, pieces), np.split(size, pieces), strict=True):
                ordered.write(gathered(column, rows, sizes).data)
            return _mapped(ordered, kind)


def _mapped(file: IO[bytes], kind: np.dtype[Any]) -> NDArray[Any]:
    """What was written to ``file``, which may be closed then."""
    file.flush()
    return np.frombuffer(mmap(file.fileno(), 0, access=ACCESS_READ), dtype=kind)
