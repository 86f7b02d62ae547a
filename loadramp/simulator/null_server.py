"""The null server: answers every request at once and sends tokens on the beat, at as little cost as Python allows.

The client is measured against it (``loadramp selfcheck``), so it must never be what is slow: no model, no queue, the
bytes of each event made once. ``python -m loadramp.simulator.null_server`` serves on a
free port of loopback and prints it.
"""

from __future__ import annotations

import asyncio
import functools
import re
import signal
import sys

BEAT_S = 0.020
"""Between two tokens of an answer."""
SLOTS = 20
"""Answers are spread over so many instants within a beat."""
_BODY = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": *(\d+)')
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@functools.cache
def event(number: int, last: bool) -> bytes:
    """The bytes of token ``number`` (from 1) of an answer, with what ends the answer behind the last one."""
    finish = '"length"' if last else "null"
    usage = f'{{"prompt_tokens":8,"total_tokens":{8 + number},"completion_tokens":{number}}}'
    delta = (
        'data: {"id":"chatcmpl-null","object":"chat.completion.chunk","created":1700000000,"model":"null","choices":'
        f'[{{"index":0,"delta":{{"content":" token"}},"logprobs":null,"finish_reason":{finish}}}],"usage":{usage}}}\n\n'
    ).encode()
    return _chunk(delta) + (_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n" if last else b"")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class TokenBeat:
    """The one timer: at each slot's instant the next token of every answer of that slot leaves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: list[dict[Answering, None]] = [{} for _ in range(SLOTS)]
        self._filled = 0
        self._at_s = loop.time()
        self._now = 0
        self._tick()

    def join(self, answering: Answering) -> None:
        self._filled = (self._filled + 1) % SLOTS
        self._slots[self._filled][answering] = None

    def _tick(self) -> None:
        slot = self._slots[self._now]
        for over in [answering for answering in slot if answering.token()]:
            del slot[over]
        self._now = (self._now + 1) % SLOTS
        self._at_s += BEAT_S / SLOTS
        self._loop.call_at(self._at_s, self._tick)


class Answering(asyncio.Protocol):
    """One connection and the answer it carries."""

    def __init__(self, beat: TokenBeat) -> None:
        self._beat = beat
        self._transport: asyncio.Transport | None = None
        self._got = b""
        self._tokens = self._sent = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's is one without being an instance of it

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, blank, body = self._got.partition(b"\r\n\r\n")
        length = _BODY.search(head)
        if not blank or length is None or len(body) < int(length[1]) or self._transport is None:
            return
        asked = _TOKENS.search(body)
        self._got, self._tokens, self._sent = b"", int(asked[1]) if asked else 16, 0
        self._transport.write(_HEAD)
        if not self.token():
            self._beat.join(self)

    def token(self) -> bool:
        """Send the next token; True when the answer is over."""
        if self._transport is None:
            return True
        self._sent += 1
        over = self._sent >= self._tokens
        self._transport.write(event(self._sent, over))
        return over


async def serve(port: int = 0) -> asyncio.Server:
    """Listen on loopback; the port is that of the first socket."""
    loop = asyncio.get_running_loop()
    beat = TokenBeat(loop)
    return await loop.create_server(lambda: Answering(beat), "127.0.0.1", port, backlog=4096)


async def _main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    server = await serve()
    sys.stdout.write(f"serving http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


if __name__ == "__main__":
    import resource

    import uvloop

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    uvloop.run(_main())
