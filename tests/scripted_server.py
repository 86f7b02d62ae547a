"""A scripted server: plays given bytes at given times, in memory on a clock that jumps, or on a real socket.

Times are milliseconds from the moment a request is fully received. On the jumping clock nothing waits and instants are
exact.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from simulated_time import run as jump

from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.pool import ActiveRequest
from loadramp.client.http.response import ResponseReader
from loadramp.client.http.sockets import OnBytes, OnClose
from loadramp.client.measuring_client import MeasuringClient
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.types import Arrival, Prompt, Record
from loadramp.scenario.scenario import Target

Act = tuple[float, bytes | Literal["close", "reset"]]
"""(milliseconds, what): bytes to send, the end of the connection, or its reset."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
LAST = b"0\r\n\r\n"
DONE = b"data: [DONE]\n\n"
BASE_URL = "http://127.0.0.1:8000"


# -- events in the notation of the cases


def event(data: Any) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def chunk(*choices: dict[str, Any], **more: Any) -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return event({**head, "choices": list(choices), **more})


def delta(index: int = 0, finish_reason: str | None = None, usage: Any = None, **parts: Any) -> bytes:
    more = {} if usage is None else {"usage": usage}
    return chunk({"index": index, "delta": parts, "finish_reason": finish_reason}, **more)


def counted(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def C(text: str, index: int = 0) -> bytes:
    return delta(index, content=text)


def FIN(reason: str, index: int = 0) -> bytes:
    return delta(index, reason)


def USE(prompt: int, completion: int) -> bytes:
    return chunk(usage=counted(prompt, completion))


def CU(text: str, c: int, index: int = 0) -> bytes:
    return delta(index, usage=counted(5, c), content=text)


ROLE = delta(role="assistant", content="")


def framed(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def stream(*acts: Act, end: bool = True, head_ms: float | None = None) -> list[Act]:
    """A chunked event stream: the head with the first bytes (or at ``head_ms``), the last chunk with the last ones."""
    out: list[Act] = [(acts[0][0] if head_ms is None else head_ms, HEAD)] if acts else [(0.0, HEAD)]
    out += [(at_ms, framed(what) if isinstance(what, bytes) else what) for at_ms, what in acts]
    return [*out, (out[-1][0], LAST)] if end else out


def reply(
    body: bytes, status: str = "200 OK", content_type: str = "application/json", at_ms: float = 0.0, **headers: str
) -> list[Act]:
    """A reply with a content length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {content_type}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return [(at_ms, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)]


def cut(data: bytes, *offsets: int, from_ms: float = 0.0, gap_ms: float = 1.0) -> list[Act]:
    """``data`` in reads that end at ``offsets``, ``gap_ms`` apart."""
    bounds = [0, *offsets, len(data)]
    pieces = [data[a:b] for a, b in pairwise(bounds) if a < b]
    return [(from_ms + i * gap_ms, piece) for i, piece in enumerate(pieces)]


# -- the server


@dataclass(slots=True)
class Request:
    at_s: float
    head: str
    body: dict[str, Any]
    connection: int

    @property
    def path(self) -> str:
        return self.head.split(" ")[1]

    @property
    def headers(self) -> dict[str, str]:
        pairs = (line.partition(":") for line in self.head.split("\r\n")[1:] if line)
        return {name.strip().lower(): value.strip() for name, _, value in pairs}


@dataclass(slots=True)
class Scripted:
    """Answers the k-th request with the k-th script, and every later one with the last."""

    scripts: Sequence[Sequence[Act]]
    requests: list[Request] = field(default_factory=list)
    pipes: list[_MemoryPipe] = field(default_factory=list)

    async def connect(self, on_bytes: OnBytes, on_close: OnClose) -> _MemoryPipe:
        """A pipe with no socket (``Connect`` of client.http.sockets)."""
        pipe = _MemoryPipe(self, len(self.pipes), on_bytes, on_close)
        self.pipes.append(pipe)
        return pipe

    def take(self, head: bytes, body: bytes, connection: int) -> Sequence[Act]:
        now_s = asyncio.get_running_loop().time()
        parsed = json.loads(body) if body else {}
        self.requests.append(Request(now_s, head.decode("latin-1"), parsed, connection))
        return self.scripts[min(len(self.requests), len(self.scripts)) - 1]

    async def serve(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> tuple[asyncio.Server, str]:
        """On a real socket. Returns the server and its base URL."""
        server = await asyncio.start_server(self._serve_one, host, 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        return server, f"{'http' if tls is None else 'https'}://{f'[{host}]' if ':' in host else host}:{port}"

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(_length(head))
                begin_s = asyncio.get_running_loop().time()
                for at_ms, what in self.take(head[:-4], body, 0):
                    await asyncio.sleep(begin_s + at_ms / 1000 - asyncio.get_running_loop().time())
                    if isinstance(what, bytes):
                        writer.write(what)
                        await writer.drain()
                    elif what == "reset":
                        linger = struct.pack("ii", 1, 0)  # close() then sends RST
                        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                        return
                    else:
                        return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class _MemoryPipe:
    stamps: Literal["kernel", "user"] = "user"

    def __init__(self, server: Scripted, number: int, on_bytes: OnBytes, on_close: OnClose) -> None:
        self.closed = False
        self._server, self._number = server, number
        self._on_bytes, self._on_close = on_bytes, on_close
        self._got = b""
        self._next: asyncio.TimerHandle | None = None

    def write(self, data: bytes) -> None:
        self._got += data
        head, gap, rest = self._got.partition(b"\r\n\r\n")
        if gap and len(rest) >= _length(head):
            self._got = b""
            self._play(asyncio.get_running_loop().time(), list(self._server.take(head, rest, self._number)))

    def close(self) -> None:
        self.closed = True
        if self._next is not None:
            self._next.cancel()

    def expect(self, on_batch: object, patient: bool) -> None:
        """Nothing is kept back."""

    def parsed(self, sure: bool, like: bytes = b"") -> None:
        pass

    def pull(self) -> None:
        pass

    def _play(self, begin_s: float, acts: list[Act]) -> None:
        """One act at a time, so that those of one instant keep their order."""
        if acts:
            (at_ms, what), *rest = acts
            loop = asyncio.get_running_loop()
            self._next = loop.call_at(begin_s + at_ms / 1000, lambda: (self.act(what), self._play(begin_s, rest)))

    def act(self, what: bytes | Literal["close", "reset"]) -> None:
        if self.closed:
            return
        if isinstance(what, bytes):
            self._on_bytes(what, asyncio.get_running_loop().time())
            return
        self.close()
        self._on_close(None if what == "close" else "reset", "" if what == "close" else "Connection reset by peer")


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


# -- one measured request


def arrival(seq: int = 0, due_s: float = 0.0, output_tokens: int | None = None, **prompt: Any) -> Arrival:
    return Arrival(seq, 0, due_s, Prompt(output_tokens=output_tokens, **prompt))


def client_on(server: Scripted, save_text: bool = True, **options: Any) -> MeasuringClient:
    """A client of ``server`` in memory; call within a running loop. ``options`` are keys of ``[target]``."""
    target = Target(base_url=BASE_URL, **options)
    endpoint = endpoint_of(target, {})
    loop = asyncio.get_running_loop()
    return MeasuringClient(
        target, endpoint, "m", connect=server.connect, clock=loop.time, t0_s=0.0, save_text=save_text
    )


def started_on(
    client: MeasuringClient, asked: Arrival, patient: bool = True
) -> tuple[ActiveRequest | None, asyncio.Future[Record]]:
    """A request that is started, if it can be, and its record to be."""
    done: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
    request = client.prepare(asked, "hi")
    return client.start(asked, request, lambda _, record: done.set_result(record), patient=patient), done


def record_of(script: Sequence[Act], **options: Any) -> Record:
    """What the client makes of one answer, on the jumping clock, asked at 0 s."""

    async def main() -> Record:
        client = client_on(Scripted([script]), **options)
        asked = arrival()
        record = await client.send(asked, client.prepare(asked, "hi"))
        await client.close()
        return record

    return jump(main())


def same_however_cut(body: bytes) -> Record:
    """The record of ``body`` (chunked), after making sure that no cut of it into two or into bytes changes it."""

    def played(pieces: list[bytes]) -> Record:
        exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(save_text=True))
        for piece in [HEAD, *map(framed, pieces), LAST]:
            exchange.feed(piece, 1.0)
        return exchange.finish()

    whole = played([body])
    for offset in range(1, len(body)):
        assert played([body[:offset], body[offset:]]) == whole, body[:offset]
    assert played([body[i : i + 1] for i in range(len(body))]) == whole
    return whole
