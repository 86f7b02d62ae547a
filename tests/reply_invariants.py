"""What must hold of any reply whatever: no exception, and the same record however it was cut and whoever read it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from mutated_replies import Mutated

from hatch_build import compiled
from loadramp.client.http.c_reader import CReader, KeptReads, load
from loadramp.client.http.response import ResponseReader
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.codec import decode, encode
from loadramp.record.types import Record

SOURCE = Path(__file__).with_name("c_reader_fed.c")
_FD = 9
_BEAT_S = 0.5
"""Between two reads: a stamp that the kernel's nanoseconds hold exactly."""
_READ_BYTES = 65_536
_EVENT_END = re.compile(rb"\r\n\r\n(?=[0-9a-f]+\r\n)|\}\n\n\r\n")  # of the headers, or of an event that is a chunk
_FIELDS = tuple(Record.__dataclass_fields__)


class Fed:
    """The reader in C, reading from memory. Build it once; ``close`` it last."""

    def __init__(self, where: Path) -> None:
        fault = compiled(SOURCE, where / "gather_fed.so")
        assert not fault, fault
        library = load(where / "gather_fed.so")
        assert library is not None
        library.gather_feed.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_double]
        library.gather_feed.restype = None
        library.gather_fed_beat.argtypes, library.gather_fed_beat.restype = [ctypes.c_void_p, ctypes.c_int], None
        library.gather_fed_offset.argtypes = [ctypes.c_void_p, ctypes.c_double, ctypes.c_double]
        library.gather_fed_offset.restype = ctypes.c_double
        self._feed, self._offset = library.gather_feed, library.gather_fed_offset
        self._beat = library.gather_fed_beat
        self._gather = CReader(library)

    def keep(self) -> KeptReads:
        return self._gather.keep(_FD)

    def drop(self) -> None:
        self._gather.drop(_FD)

    def beat(self, beats: bool) -> None:
        """Whether it reads on the beat, so that patient requests can be."""
        self._beat(self._gather._at, beats)

    def forget(self) -> None:
        """No reply has been seen yet."""
        self._gather.opening = self._gather.shape = None

    def waiting(self) -> tuple[int, int, int]:
        return self._gather.waiting()

    def read(self, data: bytes, t_s: float) -> bool:
        """Whether what is kept must be looked at now that ``data`` came."""
        self._feed(_FD, data, len(data), t_s)
        return bool(self._gather.read(0, 0.0, 1.0)[1])

    def offset_s(self, now_s: float, ahead_s: float) -> float:
        """What a beat at ``now_s`` believes of the wall clock, which is ``ahead_s`` ahead; NaN: nothing."""
        return float(self._offset(self._gather._at, now_s, ahead_s))

    def close(self) -> None:
        self._gather.close()


def exchange_of(one: Mutated) -> ResponseReader:
    asked = RequestedOutput(streamed=one.streamed, done_expected=one.done_expected, save_text=True)
    return ResponseReader(
        Record(one.seq, 0, 0.0, sent_s=0.0, asked_output_tokens=one.most_tokens), asked, one.most_tokens
    )


def ended(exchange: ResponseReader, one: Mutated, t_s: float) -> Record:
    if one.ending == "cut":
        exchange.fail("timeout_total", "given up", t_s)
    else:
        exchange.closed(None if one.ending == "eof" else "reset", "" if one.ending == "eof" else "reset", t_s)
    return exchange.finish()


def in_python(one: Mutated, pieces: Sequence[bytes], beat_s: float = 0.0) -> Record:
    """The record of ``pieces``, read one every ``beat_s``."""
    exchange = exchange_of(one)
    for number, piece in enumerate(pieces, 2):
        exchange.feed(piece, 1.0 + beat_s * number)
        if exchange.over:
            break
    return ended(exchange, one, 1.0 + beat_s * (len(pieces) + 2))


def in_c(fed: Fed, one: Mutated, pieces: Sequence[bytes], beat_s: float, patient: bool = False) -> Record:
    """The same by way of the reader in C, as a socket's pipe uses it."""
    exchange = exchange_of(one)
    kept = fed.keep()
    fed.beat(patient)
    kept.expect(patient)

    def pull() -> None:
        taken = kept.take()
        for data, stamp_s in taken.opening:
            exchange.feed(data, stamp_s)
        for batch in (taken.noted, taken.batch):
            if batch is not None:
                exchange.feed_batch(batch, 0.0)
        for data, stamp_s in taken.others:
            if not exchange.over:
                exchange.feed(data, stamp_s)
        kept.note(exchange.patient, exchange.answer.like)

    for number, piece in enumerate(pieces, 2):
        if fed.read(piece, 1.0 + beat_s * number):
            pull()
        if exchange.over:
            break
    pull()
    fed.drop()
    return ended(exchange, one, 1.0 + beat_s * (len(pieces) + 2))


def ways_in_c(fed: Fed, one: Mutated, pieces: Sequence[bytes], beat_s: float) -> list[Record]:
    """The records of ``in_c``: at once, and patiently where no reply has begun so before, and where this one has."""
    fed.forget()
    return [in_c(fed, one, pieces, beat_s, patient) for patient in (False, True, True)]


def cuts(rng: Random, raw: bytes, how: str) -> list[bytes]:
    """``raw`` in pieces: ``whole``, in ``few``, in ``many``, in single ``bytes``, or one for each HTTP chunk that holds
    an event (``events``) or for some of them (``groups``)."""
    if how in {"events", "groups"}:
        bounds = [found.end() for found in _EVENT_END.finditer(raw)]
        if how == "groups":
            bounds = [bound for bound in bounds if rng.random() < 0.5]
    else:
        most = {"whole": 0, "few": rng.randint(1, 6), "many": 3 + len(raw) // 160, "bytes": len(raw)}[how]
        bounds = list(range(1, len(raw))) if how == "bytes" else [rng.randrange(len(raw) + 1) for _ in range(most)]
    bounds = sorted({*bounds, *range(0, len(raw), _READ_BYTES), len(raw)} - {0})
    return [raw[a:b] for a, b in zip([0, *bounds], bounds, strict=False)]


def fields(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _FIELDS}


def faults_of(one: Mutated, fed: Fed | None) -> list[str]:
    """What does not hold of ``one``; empty when all does. Whatever raises is raised."""
    rng = Random(f"{one.key}/cuts")
    whole = in_python(one, cuts(rng, one.raw, "whole"))
    found = []
    if whole.error == "client":
        found.append(f"client: {whole.error_detail}")
    written = encode(whole)
    if encode(decode(written)) != written:
        found.append("the record does not survive being written")
    for how in ("few", "bytes" if len(one.raw) < 2_000 and rng.random() < 0.2 else "many"):
        other = in_python(one, cuts(rng, one.raw, how))
        found += [f"cut in {how}: {said}" for said in apart(whole, other)]
    if fed is not None and rng.random() < 0.6:
        pieces = cuts(rng, one.raw, rng.choice(("events", "events", "events", "groups", "many")))
        python = in_python(one, pieces, _BEAT_S)
        for c in ways_in_c(fed, one, pieces, _BEAT_S):
            found += [f"in C: {said}" for said in apart(python, c)]
    return found


def apart(one: Record, other: Record) -> list[str]:
    """The fields in which two records differ."""
    a, b = fields(one), fields(other)
    return [f"{name} is {a[name]!r:.200} and {b[name]!r:.200}" for name in a if a[name] != b[name]]
