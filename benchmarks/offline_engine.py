"""The simulated engine without a clock, a loop or a wire: arrivals in, a table of records and server samples out.

What a client on a perfect network would have recorded, at a thousandth of the cost: the statistics are tried on this.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from loadramp.record.table import Table
from loadramp.record.types import ErrorKind, Record, Sample
from loadramp.simulator.engine.core import Engine
from loadramp.simulator.engine.request import RefusalReason, RefusedError, Request
from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.regimes import GRID_S

_ERRORS: dict[RefusalReason, tuple[ErrorKind, int]] = {
    "queue": ("in_band", 200),
    "in_flight": ("http_429", 429),
    "too_long": ("http_4xx", 400),
}
"""How a refusal looks to the client: error kind and HTTP status (vLLM tells of a full queue inside a stream)."""


@dataclass(slots=True)
class _Offer:
    """One arrival and what became of it."""

    seq: int
    step: int
    due_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[Hashable]
    adapter: str | None
    request: Request | None = None
    refused: RefusalReason | None = None


class Offline:
    """An engine that is offered arrivals piece by piece, so that what comes next may depend on what was measured.

    Running to the end in one go or in pieces gives the same bits.
    """

    def __init__(self, profile: EngineProfile, rng: np.random.Generator, sample_period_s: float = 1.0) -> None:
        self.engine = Engine(profile, rng)
        self.samples: list[Sample] = []
        self.now_s = 0.0
        """Begin of the current step, or of the idle time."""
        self._period_s = sample_period_s
        self._offers: list[_Offer] = []
        self._coming: list[tuple[float, int]] = []
        self._end_s: float | None = None

    def offer(
        self,
        due_s: ArrayLike,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        step: int = 0,
        blocks: Sequence[Sequence[Hashable]] | None = None,
        adapters: Sequence[str | None] | None = None,
    ) -> None:
        """Requests due at ``due_s`` (seconds since the run began, not before what was run so far), shape (n,).

        Args:
            due_s: arrival instants; the lengths broadcast to them.
            prompt_tokens: at least 1 each.
            output_tokens: at least 1 each.
            step: index of the ramp's step, for the table.
            blocks: content hashes of each request's full blocks (Request.blocks).
            adapters: LoRA adapter of each request.
        """
        due = np.atleast_1d(np.asarray(due_s, dtype=np.float64))
        prompt = np.broadcast_to(np.asarray(prompt_tokens, dtype=np.int64), due.shape).tolist()
        output = np.broadcast_to(np.asarray(output_tokens, dtype=np.int64), due.shape).tolist()
        for i, at_s in enumerate(due.tolist()):
            seq = len(self._offers)
            known = blocks[i] if blocks is not None else ()
            self._offers.append(
                _Offer(seq, step, at_s, prompt[i], output[i], known, adapters[i] if adapters is not None else None)
            )
            heapq.heappush(self._coming, (at_s + self.engine.frontend_s(at_s), seq))

    def run(self, until_s: float = np.inf) -> None:
        """Go on until ``until_s``, or until all that was offered is answered (then the clock stays at its end)."""
        engine = self.engine
        while True:
            if self._end_s is None:
                self._take_arrivals()
                duration_s = engine.begin(self.now_s)
                if duration_s is None:
                    next_s = self._coming[0][0] if self._coming else until_s
                    self._sample(min(next_s, until_s))
                    if next_s >= until_s:
                        return
                    self.now_s = next_s
                    continue
                self._end_s = self.now_s + duration_s
            self._sample(min(self._end_s, until_s))
            if self._end_s > until_s:
                return
            engine.finish(want_tokens=False)
            self.now_s, self._end_s = self._end_s, None

    def table(self) -> Table:
        """All requests offered so far, in the order offered; unfinished ones ``in_flight`` with their tokens so far."""
        return _table(self._offers, self.engine)

    def speed(self, begin_s: float, end_s: float) -> float:
        """Mean work done a second from ``begin_s`` to ``end_s``, relative to the engine without regimes."""
        at_s = np.arange(begin_s, end_s, GRID_S).tolist()
        return float(np.mean([1.0 / self.engine.slower(t_s) for t_s in at_s]))

    def _take_arrivals(self) -> None:
        while self._coming and self._coming[0][0] <= self.now_s:
            at_s, seq = heapq.heappop(self._coming)
            one = self._offers[seq]
            try:
                one.request = self.engine.submit(
                    seq, at_s, one.prompt_tokens, one.output_tokens, one.blocks, one.adapter
                )
            except RefusedError as refusal:
                one.refused = refusal.reason

    def _sample(self, before_s: float) -> None:
        """The samples that fall due before ``before_s``. None in the endless idle time after the last answer."""
        if self._period_s <= 0 or before_s == np.inf:
            return
        while (t_s := len(self.samples) * self._period_s) < before_s:
            self.samples.append(Sample(t_s, values=self.engine.gauges()))


class TwoEngines:
    """Two engines with regimes of their own behind one endpoint, as two on one host were: requests go by turns."""

    def __init__(self, profile: EngineProfile, seed: int) -> None:
        self.engines = [Offline(profile, np.random.default_rng([seed, 9, k])) for k in (0, 1)]
        self._offered = 0

    def offer(
        self, due_s: NDArray[np.float64], prompt: NDArray[np.int64], output: NDArray[np.int64], step: int
    ) -> None:
        turn = (self._offered + np.arange(len(due_s))) % 2
        self._offered += len(due_s)
        for k, engine in enumerate(self.engines):
            engine.offer(due_s[turn == k], prompt[turn == k], output[turn == k], step)

    def run(self, until_s: float) -> None:
        for engine in self.engines:
            engine.run(until_s)

    def table(self) -> Table:
        both = Table.concat([engine.table() for engine in self.engines])
        return both.select_rows(both.due_s.argsort(kind="stable"))

    @property
    def samples(self) -> list[Sample]:
        """None: what one of two servers says is not what the endpoint does."""
        return []

    def speed(self, begin_s: float, end_s: float) -> float:
        return float(np.mean([engine.speed(begin_s, end_s) for engine in self.engines]))


def simulate(
    profile: EngineProfile,
    due_s: ArrayLike,
    prompt_tokens: ArrayLike,
    output_tokens: ArrayLike,
    rng: np.random.Generator,
    *,
    steps: ArrayLike | None = None,
    blocks: Sequence[Sequence[Hashable]] | None = None,
    adapters: Sequence[str | None] | None = None,
    until_s: float = np.inf,
    sample_period_s: float = 1.0,
) -> tuple[Table, list[Sample]]:
    """Send requests to a simulated engine and record them.

    Args:
        profile: the engine.
        due_s: arrival instants, shape (n,), seconds.
        prompt_tokens: shape (n,) or one for all.
        output_tokens: shape (n,) or one for all.
        rng: all chance of the engine.
        steps: step index of each request, for the table; default 0.
        blocks: content hashes of each request's full blocks, for the prefix cache.
        adapters: LoRA adapter of each request.
        until_s: stop there and leave the rest ``in_flight``; default: until all are answered.
        sample_period_s: between server samples; 0: none.

    Returns:
        The table (``sent_s`` equals ``due_s``: the client is perfect) and the server samples.
    """
    offline = Offline(profile, rng, sample_period_s)
    offline.offer(due_s, prompt_tokens, output_tokens, 0, blocks, adapters)
    offline.run(until_s)
    table = offline.table()
    if steps is not None:
        table = replace(table, step=np.broadcast_to(np.asarray(steps, dtype=np.int64), table.step.shape).copy())
    return table, offline.samples


def _table(offers: Sequence[_Offer], engine: Engine) -> Table:
    """Columns of all offers. Shares nothing that the engine still changes."""
    ticks = np.asarray(engine.lane.tick_end_s, dtype=np.float64)
    lists = [_events(one.request, ticks) for one in offers]
    begin = np.concatenate(([0], np.cumsum([len(at) for at, _ in lists], dtype=np.int64))).astype(np.int64)
    event_tokens = np.ones(int(begin[-1]), dtype=np.int64)
    for first, (_, tokens) in zip(begin.tolist(), lists, strict=False):
        if tokens is not None:
            event_tokens[first : first + len(tokens)] = tokens
    return replace(
        Table.of([_record(one, len(ticks)) for one in offers]),
        begin=begin,
        event_s=np.concatenate([at for at, _ in lists]) if lists else np.empty(0),
        event_tokens=event_tokens,
        event_choice=np.zeros(int(begin[-1]), dtype=np.int64),
    )


def _record(one: _Offer, ticks: int) -> Record:
    """What the client knows of an offer, its output events left out."""
    record = Record(
        one.seq,
        one.step,
        one.due_s,
        sent_s=one.due_s,
        first_byte_s=one.due_s,
        http_status=200,
        asked_input_tokens=one.prompt_tokens,
        asked_output_tokens=one.output_tokens,
        model=one.adapter,
    )
    request = one.request
    if one.refused is not None:
        record.status, record.stream_end_s = "error", one.due_s
        record.error, record.http_status = _ERRORS[one.refused]
    elif request is not None and request.first_s is not None:
        record.answer_s = request.first_s
        record.token_source = "continuous"
        record.prompt_tokens, record.cached_tokens = one.prompt_tokens, request.cached_tokens
        record.output_tokens = request.emitted + (ticks - request.joined if request.ends >= 0 else 0)
        if record.output_tokens == one.output_tokens:
            record.status, record.stream_end_s, record.done_marker = "ok", request.last_s, True
            record.finish_reason = "length"
    return record


def _events(request: Request | None, ticks: NDArray[np.float64]) -> tuple[NDArray[np.float64], list[int] | None]:
    """Instants of a request's output events, and their tokens where some event brought other than one."""
    if request is None:
        return np.empty(0), None
    parts: list[Any] = []
    tokens: list[int] = []
    for piece in request.pieces:
        if len(piece) == 2:
            parts.append(piece[:1])
            tokens.append(piece[1])
        else:
            parts.append(ticks[piece[0] : piece[1]])
    if request.ends >= 0:  # decoding now
        parts.append(ticks[request.joined :])
    drafted = tokens if any(k != 1 for k in tokens) else None
    return np.concatenate(parts) if parts else np.empty(0), drafted
