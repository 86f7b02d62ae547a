"""What the benchmarks of the client share: the C server, the clients under test, the machine they ran on."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from loadramp.client.client import CLIENTS
from loadramp.client.endpoint import endpoint_of
from loadramp.client.workers import calm_collector
from loadramp.record.codec import encode
from loadramp.record.types import Arrival, Prompt, Record
from loadramp.scenario.scenario import Target

SENT = np.dtype([("request", "<u8"), ("index", "<u4"), ("tokens", "<u4"), ("send_ns", "<i8"), ("request_ns", "<i8")])
"""One token as the server sent it."""
Send = Callable[[int, int], Awaitable[Record]]
"""(number of the request, tokens) to its record."""


@dataclass(slots=True)
class Metronome:
    url: str
    sent: Any = None
    """Every token that was sent (``SENT``), once the server has stopped."""


@contextmanager
def metronome(ttft_us: int, itl_us: int, tick_us: int = 0, log: bool = False) -> Iterator[Metronome]:
    """The C server, compiled and started on the last core."""
    with tempfile.TemporaryDirectory() as where:
        binary, log_path = Path(where, "metronome"), Path(where, "sent")
        source = Path(__file__).with_name("metronome.c")
        subprocess.run(["cc", "-O2", "-o", binary, source], check=True)
        command = [binary, "0", str(ttft_us), str(itl_us), str(tick_us), *([log_path] if log else [])]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            os.sched_setaffinity(server.pid, {max(os.sched_getaffinity(0))})
            made = Metronome(f"http://127.0.0.1:{port}")
            yield made
        finally:
            server.terminate()
            server.wait()
        if log:
            made.sent = np.fromfile(log_path, dtype=SENT)


def by_request(sent: Any, name: str = "request") -> dict[int, Any]:
    """The tokens of each request (by ``name``: its number, or when it came), in the order in which they were sent."""
    ordered = sent[np.lexsort((sent["index"], sent[name]))]
    each, first = np.unique(ordered[name], return_index=True)
    return dict(zip(each.tolist(), np.split(ordered, first[1:]), strict=False))  # nothing sent is one part of none


def machine() -> str:
    """One line: what this ran on and how busy it was."""
    found = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = found[0].partition(":")[2].strip() if found else platform.machine()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, load {load}"
    )


def sender(via: str, url: str, out: Any, connect: Any = None) -> tuple[Send, Callable[[], Awaitable[None]], float]:
    """A way to send one request through ``via`` and write its record, how to close it, and the run's begin."""
    if via == "aiohttp":
        return _aiohttp(url, out)
    target = Target(base_url=url, via="direct" if via.startswith("direct") else via)  # type: ignore[arg-type]
    t0_s = time.monotonic()
    client = CLIENTS[target.via](
        target, endpoint_of(target, {}), "metronome", connect=connect, clock=time.monotonic, t0_s=t0_s
    )

    async def send(number: int, tokens: int) -> Record:
        asked = Arrival(number, 0, client.now_s(), Prompt(output_tokens=tokens))
        record = await client.send(asked, client.prepare(asked, "Say something."))
        out.write(encode(record))
        return record

    return send, client.close, t0_s


def _aiohttp(url: str, out: Any) -> tuple[Send, Callable[[], Awaitable[None]], float]:
    """The loop that most tools have: lines from aiohttp, JSON from each, a stamp when it is there."""
    import aiohttp  # no other client's process needs it

    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    t0_s = time.monotonic()

    async def send(number: int, tokens: int) -> Record:
        record = Record(number, 0, time.monotonic() - t0_s)
        body = {"model": "metronome", "messages": [], "max_tokens": tokens, "stream": True,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True}}  # fmt: skip
        head = {"X-Request-Id": f"bench-{number}"}
        async with session.post(f"{url}/v1/chat/completions", json=body, headers=head) as reply:
            async for line in reply.content:
                if line.startswith(b"data: {"):
                    stamp_s = time.monotonic() - t0_s
                    choices = json.loads(line[6:])["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        record.event_s.append(stamp_s)
        record.status = "ok"
        record.output_tokens = len(record.event_s)
        out.write(encode(record))
        return record

    return send, session.close, t0_s


def run(main: Callable[[], Awaitable[Any]], core: int = 0) -> Any:
    """On uvloop, pinned to one core (the server has the last), the collector set as in a worker."""
    gc.collect()
    calm_collector()
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {sorted(before)[core % len(before)]})
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())  # type: ignore[arg-type]
    finally:
        os.sched_setaffinity(0, before)


async def together(send: Send, streams: int, tokens: int, spread_s: float, first: int = 0) -> list[Record]:
    """``streams`` requests side by side, begun evenly over ``spread_s``."""

    async def one(i: int) -> Record:
        await asyncio.sleep(spread_s * i / streams)
        return await send(first + i, tokens)

    return list(await asyncio.gather(*(one(i) for i in range(streams))))
