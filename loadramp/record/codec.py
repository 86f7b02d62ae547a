"""Records to JSON lines and back. Pure: lines in, lines out.

Format 1: one request a line. Times are integer microseconds: ``due_us`` since the run began, ``sent_us``,
``first_byte_us``, ``end_us``, ``answer_us``, ``doubtful_us`` since ``due_us``, and ``event_us`` the gaps between output
events, the first one since ``due_us``. Gaps are differences of rounded instants, so rounding never adds up. A field
that holds its default is left out. Gap lists take 6 bytes a token, float seconds take 12.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from loadramp.record.types import Record

Decoded = TypeVar("Decoded")

_TIMES = {"sent_s": "sent_us", "first_byte_s": "first_byte_us", "answer_s": "answer_us", "stream_end_s": "end_us",
          "doubtful_s": "doubtful_us"}  # fmt: skip
_PLAIN = [
    (f.name, f.default)
    for f in fields(Record)
    if f.name not in {*_TIMES, "due_s", "event_s", "event_tokens", "event_choice", "warnings"}
]
_LISTS = ("event_tokens", "event_choice", "warnings")
NO_GAPS = np.zeros(0, dtype=np.int64)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])


def encode(record: Record) -> bytes:
    """One JSON line, newline included."""
    line: dict[str, Any] = {}
    for name, default in _PLAIN:
        value = getattr(record, name)
        if value != default or name in {"seq", "step", "status"}:
            line[name] = value
    due_us = _us(record.due_s)
    line["due_us"] = due_us
    for name, key in _TIMES.items():
        instant_s = getattr(record, name)
        if instant_s is not None:
            line[key] = _us(instant_s) - due_us
    if record.event_s:
        stamps_us = [due_us, *map(_us, record.event_s)]
        line["event_us"] = [b - a for a, b in pairwise(stamps_us)]
    for name in _LISTS:
        value = getattr(record, name)
        if value and not (name == "event_tokens" and all(tokens == 1 for tokens in value)):
            line[name] = value
    return _encoder.encode(line) + b"\n"


def decode(line: bytes) -> Record:
    """The record of one line.

    Raises:
        ValueError: the line is torn or is not a record.
    """
    record, due_us, gaps_us = _parts(line)
    record.event_s = [stamp / 1e6 for stamp in accumulate(gaps_us.tolist(), initial=due_us)][1:]
    return record


def _parts(line: bytes) -> tuple[Record, int, NDArray[np.int64]]:
    """The record of one line without its events, when it was due, and its gaps, both in microseconds.

    Raises:
        ValueError: the line is torn or is not a record.
    """
    try:
        raw = _decoder.decode(line)
        due_us: int = raw.pop("due_us")
        times = {name: (due_us + raw.pop(key)) / 1e6 for name, key in _TIMES.items() if key in raw}
        gaps_us = np.array(raw.pop("event_us", []) or NO_GAPS)
        if gaps_us.dtype != np.int64 or gaps_us.ndim != 1:
            raise TypeError("event_us is no list of integers")
        if any(raw.get(name) and len(raw[name]) != len(gaps_us) for name in ("event_tokens", "event_choice")):
            raise TypeError("event_tokens or event_choice has another length than event_us")
        return Record(due_s=due_us / 1e6, **times, **raw), due_us, gaps_us
    except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a record: {error}") from None


@dataclass(slots=True)
class Lines:
    """Decoded records and how many lines could not be read (a torn last line after a kill is one)."""

    records: list[Record]
    skipped: int = 0
    event_s: list[NDArray[np.float64]] | None = None
    """Of ``decode_batch``: the events of each record, which has none itself. A day's events are no list of floats."""


def decode_each(lines: Iterable[bytes], kind: type[Decoded]) -> tuple[list[Decoded], int]:
    """What ``lines`` of JSON hold, and how many of them could not be read as a ``kind``."""
    decoder = msgspec.json.Decoder(kind)
    found: list[Decoded] = []
    skipped = 0
    for line in lines:
        try:
            found.append(decoder.decode(line))
        except msgspec.DecodeError:
            skipped += 1
    return found, skipped


def decode_lines(lines: Iterable[bytes]) -> Lines:
    """All records that can be read; the rest is counted, never raised."""
    out = Lines([])
    for line in lines:
        if not line.strip():
            continue
        try:
            out.records.append(decode(line))
        except ValueError:
            out.skipped += 1
    return out


def decode_batch(lines: Iterable[bytes]) -> Lines:
    """``decode_lines``, with the events of each record as an array beside it, in less than half the time."""
    out = Lines([], event_s=(event_s := []))
    for line in lines:
        if not line.strip():
            continue
        try:
            record, due_us, gaps_us = _parts(line)
        except ValueError:
            out.skipped += 1
            continue
        out.records.append(record)
        event_s.append((due_us + np.cumsum(gaps_us)) / 1e6)
    return out


def _us(instant_s: float) -> int:
    return round(instant_s * 1e6)


def plain_data(value: Any) -> Any:
    """``value`` as JSON holds it: dataclasses and numpy unwrapped, sets sorted, NaN and infinity None, other objects as
    text."""
    if hasattr(value, "__dataclass_fields__"):
        return plain_data(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool | int):
        return value
    if hasattr(value, "tolist"):  # of numpy, numbers and arrays
        return plain_data(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, set | frozenset):
        return [plain_data(item) for item in sorted(value, key=str)]
    return [plain_data(item) for item in value] if isinstance(value, Iterable) else str(value)
