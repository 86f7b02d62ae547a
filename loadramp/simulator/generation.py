"""One generation on one connection: the engine's tokens become events, and faults happen to them."""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loadramp.simulator.answers import DONE, KEEPALIVE, WireAnswer, error_document, error_event
from loadramp.simulator.faults import Fate
from loadramp.simulator.job import GenerationJob
from loadramp.simulator.request_parser import GenerationRequest

if TYPE_CHECKING:
    from loadramp.simulator.http import ServerConnection

FAULT_WORDS = "injected fault"


_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
VOCABULARY = tuple(first + second for first in _SYLLABLES[::3] for second in _SYLLABLES)
"""The words of answers; plain ASCII, nothing that JSON escapes."""


class Generation:
    """One answer under way.

    Args:
        connection: where it goes.
        ask: what was asked.
        fate: what is to happen to it.
        request_id: identifier the client gave, if any.
    """

    def __init__(self, connection: ServerConnection, ask: GenerationRequest, fate: Fate, request_id: str) -> None:
        service = connection.service
        faults = service.faults
        self._connection, self._service, self._ask, self._fate = connection, service, ask, fate
        tokens, finish = _length(self)
        words = answer_words(ask.words, tokens)
        profile = service.profile
        prefix = "chatcmpl-" if ask.api == "chat" else "cmpl-"
        self._answer = WireAnswer(
            api=ask.api,
            id=prefix + (request_id or service.token()),
            created=int(service.wall_s()),
            model=ask.model,
            words=words,
            finish=finish,
            prompt_tokens=len(ask.words),
        )
        self._job = GenerationJob(
            prompt_tokens=len(ask.words),
            output_tokens=tokens,
            on_tokens=self._on_tokens,
            on_error=self._on_error,
            blocks=block_hashes(ask.words + words, profile.block_tokens) if profile.prefix_cache else (),
            adapter=None if ask.model == service.models[0] else ask.model,
            finish="stop" if finish == "stop" else "length",
        )
        self._usage = ask.include_usage and not faults.no_usage
        self._running_usage = ask.continuous_usage and not faults.no_usage
        self._role_sent = False
        self._pending = 0
        """Tokens that exist and are not sent: for the next event, or held back by a stall."""
        self._last = False
        self._over = False
        self._stalled: list[int] | None = None
        self._stall_over = fate.stalls_after is None
        self._plain = fate == Fate() and faults.tokens_per_event == 1 and not faults.keepalive_s
        """No fault can happen to its chunks: most requests of most runs, and worth a short cut."""
        self._silence: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Headers out (for a stream, long before the first token) and the job into the engine."""
        if self._ask.stream:
            self._connection.begin_stream()
            if self._service.faults.early_role:
                self._send_role()
            self._keep_alive()
        if self._fate.breaks and self._fate.breaks_after == 0:
            self._timer = self._service.loop.call_at(self._service.clock(), self._break)
            return
        self._service.submit(self._job)

    def drop(self) -> None:
        """The connection is gone."""
        self._service.cancel(self._job)
        for timer in (self._silence, self._timer):
            if timer is not None:
                timer.cancel()

    # -- from the engine

    def _on_tokens(self, tokens: int, last: bool) -> None:
        if not self._ask.stream:
            self._whole(tokens, last)
            return
        self._answer.cached_tokens = self._job.cached_tokens
        if self._stalled is not None:
            self._stalled.append(tokens)
            self._last = last
        elif self._plain and self._role_sent and not last:
            self._connection.chunk(self._answer.text(tokens, False, self._running_usage))
        else:
            self._give(tokens, last)

    def _on_error(self, status: int, message: str) -> None:
        self._over = True
        if self._ask.stream:
            self._end(error_event(status, message), DONE)
        else:
            self._quiet()
            self._connection.respond(status, error_document(status, message))

    # -- to the client

    def _give(self, tokens: int, last: bool) -> None:
        """Send ``tokens`` more, or keep them for the next event; break or stall where fate says."""
        fate, sent = self._fate, self._answer.sent
        ahead = sent + self._pending + tokens
        if fate.breaks and ahead >= fate.breaks_after:
            self._emit(fate.breaks_after - sent, False)
            self._break()
            return
        self._pending += tokens
        if last or sent == 0 or self._pending >= self._service.faults.tokens_per_event:
            self._emit(self._pending, last)
        if not self._stall_over and fate.stalls_after is not None and ahead >= fate.stalls_after and not last:
            self._stall_over, self._stalled = True, []
            self._timer = self._service.loop.call_later(self._service.faults.stall_s, self._resume)

    def _emit(self, tokens: int, last: bool) -> None:
        """One event of ``tokens`` tokens; with the last one all that ends a stream."""
        self._pending = 0
        events = []
        if not self._role_sent:
            self._role_sent = True
            events.append(self._answer.role(self._running_usage))
        if tokens > 0:
            events.append(self._answer.text(tokens, last, self._running_usage))
        if not last:
            self._connection.chunk(*events)
            self._keep_alive()
            return
        if self._usage:
            events.append(self._answer.usage())
        if not self._service.faults.no_done:
            events.append(DONE)
        self._end(*events)

    def _send_role(self) -> None:
        self._role_sent = True
        self._connection.chunk(self._answer.role(self._running_usage))

    def _resume(self) -> None:
        """The stall is over: what was held back comes at once, event by event."""
        held, self._stalled = self._stalled or [], None
        for i, tokens in enumerate(held):
            if not self._over:
                self._give(tokens, self._last and i == len(held) - 1)

    def _whole(self, tokens: int, last: bool) -> None:
        """For a request that does not stream: the document, when all of it exists."""
        self._pending += tokens
        if self._fate.breaks and self._pending >= self._fate.breaks_after:
            self._break()
        elif last:
            self._answer.cached_tokens = self._job.cached_tokens
            self._quiet()
            self._connection.respond(200, self._answer.document())

    def _break(self) -> None:
        """The fault of this request happens now."""
        self._over = True
        self._service.cancel(self._job)
        kind = self._fate.breaks
        if kind == "in_band":
            self._on_error(500, FAULT_WORDS)
        elif kind == "reset":
            self._connection.kill(reset=True)
        elif self._ask.stream:
            event = self._answer.text(1, False, self._running_usage)
            self._connection.tear(b"%x\r\n%b" % (len(event), event[: len(event) // 2]))
        else:
            self._connection.tear(b'HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{"id":')

    def _end(self, *events: bytes) -> None:
        self._quiet()
        self._connection.end_stream(*events)

    def _quiet(self) -> None:
        if self._silence is not None:
            self._silence.cancel()

    def _keep_alive(self) -> None:
        """A comment when the stream has been silent for a while, again and again."""
        period_s = self._service.faults.keepalive_s
        if period_s <= 0:
            return
        self._quiet()
        self._silence = self._service.loop.call_later(period_s, self._comment)

    def _comment(self) -> None:
        self._connection.chunk(KEEPALIVE)
        self._keep_alive()


def _length(exchange: Generation) -> tuple[int, str]:
    """Tokens of the answer and why it ends there."""
    ask, service = exchange._ask, exchange._service
    room = service.profile.max_model_len - len(ask.words)
    limit = min(ask.max_tokens if ask.max_tokens is not None else room, room)
    if ask.ignore_eos and not service.faults.ignores_ignore_eos:
        return limit, "length"
    floor = 1 if service.faults.ignores_ignore_eos else ask.min_tokens
    natural = max(service.natural_tokens(), floor)
    return (natural, "stop") if natural < limit else (limit, "length")


def answer_words(prompt: Sequence[str], tokens: int) -> list[str]:
    """The answer to ``prompt``: that many words."""
    seed = zlib.crc32(" ".join(prompt[-64:]).encode("utf-8", "surrogatepass"))
    stride = 2 * (seed // len(VOCABULARY) % 500) + 1
    return [VOCABULARY[(seed + i * stride) % len(VOCABULARY)] for i in range(tokens)]


def block_hashes(words: Sequence[str], block_tokens: int) -> list[bytes]:
    """One hash for each full block of ``block_tokens`` words, of all words up to the block's end."""
    hashes: list[bytes] = []
    before = b""
    for end in range(block_tokens, len(words) + 1, block_tokens):
        text = " ".join(words[end - block_tokens : end]).encode("utf-8", "surrogatepass")
        before = hashlib.blake2b(before + text, digest_size=8).digest()
        hashes.append(before)
    return hashes
