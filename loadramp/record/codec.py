"""Records to JSON lines and back. Pure: lines in, lines out.

Format 1: one request a line. Times are integer microseconds: ``due_us`` since the run began, ``sent_us``,
``first_byte_us``, ``end_us``, ``answer_us``, ``doubtful_us`` since ``due_us``, and ``event_us`` the gaps between output
events, the first one since ``due_us``. Gaps are differences of rounded instants, so rounding never adds up. A field
that holds its default is left out. Gap lists take 6 bytes a token, float seconds take 12.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from itertools import accumulate
from operator import attrgetter, sub
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from msgspec import UNSET

from loadramp.record.types import Record

Decoded = TypeVar("Decoded")

TIMES = {"sent_s": "sent_us", "first_byte_s": "first_byte_us", "answer_s": "answer_us", "stream_end_s": "end_us",
          "doubtful_s": "doubtful_us"}  # fmt: skip
_PLAIN = [
    (f.name, f.default)
    for f in fields(Record)
    if f.name not in {*TIMES, "due_s", "event_s", "event_tokens", "event_choice", "warnings"}
]
_written_values = attrgetter(*(name for name, _ in _PLAIN))
_instants = attrgetter(*TIMES)
_LISTS = ("event_tokens", "event_choice", "warnings")
_FEW = 100
"""So few numbers Python rounds in less time than NumPy, which costs some microseconds a call."""
_HINTS = get_type_hints(Record)


def _written(name: str) -> Any:
    """What a line may hold in a field: of words any, as later versions may know more."""
    hint = _HINTS[name]
    kinds = [hint, *get_args(hint)]
    if str in kinds or any(get_origin(kind) is Literal for kind in kinds):
        return str | None
    return hint if hint in {bool, int} else int | float | None


_Line = msgspec.defstruct(
    "_Line",
    [("due_s", int), *((name, int | None, None) for name in TIMES), ("event_s", list[int], []),
     *((name, _written(name)) if default is MISSING else (name, _written(name), default) for name, default in _PLAIN),
     *((name, list[str] if name == "warnings" else list[int], []) for name in _LISTS)],
    rename={"due_s": "due_us", **TIMES, "event_s": "event_us"}, kw_only=True, forbid_unknown_fields=True,
)  # fmt: skip
"""A line as it is written, by the names of a Record: microseconds, which count from ``due_s`` on in ``TIMES``."""
_Written = msgspec.defstruct(
    "_Written",
    [*((name, Any, UNSET if default is MISSING or name == "status" else default) for name, default in _PLAIN),
     *((name, Any, None) for name in ("due_us", *TIMES.values())),
     *((name, list, []) for name in ("event_us", *_LISTS))],
    omit_defaults=True, gc=False,
)  # fmt: skip
"""A line as it is made: in the order of ``_written_values``, and without type checks. A status is always there."""
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Line)


def encode(record: Record) -> bytes:
    """One JSON line, newline included."""
    due_us = _us(record.due_s)
    times = [None if instant_s is None else _us(instant_s) - due_us for instant_s in _instants(record)]
    tokens = record.event_tokens
    if tokens and tokens.count(1) == len(tokens):
        tokens = []
    events = _gaps_us(record.event_s, due_us)
    line = _Written(*_written_values(record), due_us, *times, events, tokens, record.event_choice, record.warnings)
    return _encoder.encode(line) + b"\n"


def _gaps_us(event_s: list[float], before_us: int) -> list[int]:
    """Microseconds from one to the next, the first one since ``before_us``."""
    if len(event_s) < _FEW:
        stamps_us = [round(instant_s * 1e6) for instant_s in event_s]
        return list(map(sub, stamps_us, [before_us, *stamps_us]))
    gaps_us = np.rint(np.array(event_s) * 1e6).astype(np.int64)  # as _us rounds
    gaps_us[1:] -= gaps_us[:-1]  # np.diff takes three times as long
    gaps_us[0] -= before_us
    gaps: list[int] = gaps_us.tolist()
    return gaps


def decode(line: bytes) -> Record:
    """The record of one line.

    Raises:
        ValueError: the line is torn or is not a record.
    """
    raw = parse_line(line)
    times: dict[str, Any] = {
        name: None if (us := getattr(raw, name)) is None else (raw.due_s + us) / 1e6 for name in TIMES
    }
    events = [stamp / 1e6 for stamp in accumulate(raw.event_s, initial=raw.due_s)][1:]
    same: dict[str, Any] = {name: getattr(raw, name) for name in (*(name for name, _ in _PLAIN), *_LISTS)}
    return Record(due_s=raw.due_s / 1e6, event_s=events, **times, **same)


def parse_line(line: bytes, events: int | None = None) -> Any:
    """One line as a ``_Line``; ``events``: how many it has, if ``event_us`` is left out.

    Raises:
        ValueError: the line is torn or is not a record.
    """
    try:
        raw: Any = _decoder.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a record: {error}") from None
    tokens, choice, n = raw.event_tokens, raw.event_choice, len(raw.event_s) if events is None else events
    if (tokens and len(tokens) != n) or (choice and len(choice) != n):
        raise ValueError("not a record: event_tokens or event_choice has another length than event_us")
    return raw


@dataclass(slots=True)
class Lines:
    """Decoded records and how many lines could not be read (a torn last line after a kill is one)."""

    records: list[Record]
    skipped: int = 0


def decode_each(lines: Iterable[bytes], kind: type[Decoded]) -> tuple[list[Decoded], int]:
    """What ``lines`` of JSON hold, and how many of them could not be read as a ``kind``."""
    decoder = msgspec.json.Decoder(kind)
    decoded: list[Decoded] = []
    skipped = 0
    for line in lines:
        try:
            decoded.append(decoder.decode(line))
        except msgspec.DecodeError:
            skipped += 1
    return decoded, skipped


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


def _us(instant_s: float) -> int:
    return round(instant_s * 1e6)


_AS_THEY_ARE = (str, int)  # as a union they take twice as long, and most values come here


def plain_data(value: Any) -> Any:
    """``value`` as JSON holds it: dataclasses and numpy unwrapped, sets sorted, NaN and infinity None, other objects as
    text."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if value is None or isinstance(value, _AS_THEY_ARE):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return plain_data(asdict(value))
    if hasattr(value, "tolist"):  # of numpy, numbers and arrays
        return plain_data(value.tolist())
    if isinstance(value, set | frozenset):
        return [plain_data(item) for item in sorted(value, key=str)]
    return [plain_data(item) for item in value] if isinstance(value, Iterable) else str(value)
