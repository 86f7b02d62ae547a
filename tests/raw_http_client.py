"""A plain HTTP client for the simulator's tests: it keeps every byte and the instant at which it came."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httptools
import simulated_time as clock
from memory_pipe import Connect, connect_in_memory

from loadramp.simulator.profiles import EngineProfile
from loadramp.simulator.service import Service


@dataclass
class Reply:
    """One response. ``events`` are (instant, data of one SSE event or a comment with its colon)."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    headers_s: float = 0.0
    body: bytes = b""
    events: list[tuple[float, str]] = field(default_factory=list)
    complete: bool = False
    closed: str | None = None
    """``end`` or ``reset``, when the connection ended before the response did or right after it."""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def chunks(self) -> list[tuple[float, Any]]:
        """The JSON events with their instants."""
        return [(t, json.loads(data)) for t, data in self.events if data.startswith("{")]

    @property
    def token_s(self) -> list[float]:
        """Instants of the events that carry text."""
        return [t for t, chunk in self.chunks if text_of(chunk)]


def text_of(chunk: Any) -> str:
    """Text of one streamed chunk, chat or completions."""
    choice = (chunk.get("choices") or [{}])[0]
    return str(choice.get("text") or choice.get("delta", {}).get("content") or "")


class Wire:
    """One connection; requests go one after the other, or at once when they are not awaited."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.pipe: Any = None
        self._done: list[asyncio.Future[Reply]] = []
        self._now_s = 0.0
        self._text = b""
        self._at = 0
        self._parser = httptools.HttpResponseParser(self)
        self.closed: str | None = None

    @staticmethod
    async def open(connect: Connect) -> Wire:
        wire = Wire()
        wire.pipe = await connect(wire._bytes, wire._close)
        return wire

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> asyncio.Future[Reply]:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "host: sim", f"content-length: {len(data)}"]
        lines += ["content-type: application/json"] if data else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.replies.append(Reply())
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._done.append(future)
        self.pipe.write("\r\n".join(lines).encode() + b"\r\n\r\n" + data)
        return future

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.send("GET", path, **headers)

    async def post(self, path: str, body: Any, **headers: str) -> Reply:
        return await self.send("POST", path, body, **headers)

    @property
    def _reply(self) -> Reply:
        return self.replies[self._at]

    def _bytes(self, data: bytes, t_s: float) -> None:
        self._now_s = t_s
        self._parser.feed_data(data)

    def _close(self, kind: str | None, detail: str) -> None:
        self.closed = kind or "end"
        for reply, future in zip(self.replies, self._done, strict=True):
            reply.closed = self.closed
            if not future.done():
                future.set_result(reply)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._reply.headers[name.decode().lower()] = value.decode()

    def on_headers_complete(self) -> None:
        self._reply.status = self._parser.get_status_code()
        self._reply.headers_s = self._now_s

    def on_body(self, data: bytes) -> None:
        self._reply.body += data
        self._text += data
        while b"\n\n" in self._text:
            event, self._text = self._text.split(b"\n\n", 1)
            self._reply.events.append((self._now_s, event.decode().removeprefix("data: ")))

    def on_message_complete(self) -> None:
        reply, self._text = self._reply, b""
        reply.complete = True
        self._at += 1
        if not self._done[self._at - 1].done():
            self._done[self._at - 1].set_result(reply)


def chat(prompt: str = "one two three", tokens: int = 8, **extra: Any) -> dict[str, Any]:
    """A streaming chat request of forced length with usage."""
    return {
        "model": "sim",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **extra,
    }


CHAT = "/v1/chat/completions"
QUICK = EngineProfile(
    name="quick", t0_s=0.010, decode_s=0.001, context_s=0.0, prefill_s=0.0001, noise_ratio=0.0,
    max_num_seqs=4, token_budget=64, kv_blocks=64, max_model_len=512,
)  # fmt: skip


def on_simulator(
    talk: Callable[[Service, Connect], Awaitable[Any]], profile: EngineProfile = QUICK, **options: Any
) -> Any:
    """The result of ``talk`` with a service in simulated time."""

    async def main() -> Any:
        service = Service(profile, **options)
        return await talk(service, connect_in_memory(service))

    return clock.run(main())
