"""What replies without bounds cost the client: peak resident memory and CPU time of one process for each of them.

python benchmarks/hostile.py

The server is a process of its own on a loopback address; each reply is read by a fresh client process.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import socket
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from loadramp.drive.client import Client
from loadramp.drive.endpoint import endpoint_of
from loadramp.drive.ready import call, control_client
from loadramp.plan.scenario import Target
from loadramp.record.types import Arrival, Prompt

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
OPEN, CHUNKED = HEAD + b"\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
MB = 1_000_000
Reply = Callable[[], Iterator[bytes]]


def much(begin: bytes, unit: bytes, mb: int) -> Iterator[bytes]:
    yield begin
    block = unit * (65_536 // len(unit) + 1)
    yield from repeat(block, mb * MB // len(block) + 1)


def bomb(coding: bytes, wbits: int, unit: bytes) -> Iterator[bytes]:
    """1 GB when unpacked."""
    yield HEAD + b"Content-Encoding: " + coding + b"\r\n\r\n"
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    block = unit * (MB // len(unit))
    for _ in range(1000):
        yield packer.compress(block)
    yield packer.flush()


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


REPLIES: dict[str, Reply] = {
    "an ordinary answer": lambda: much(OPEN, EVENT, 0),
    "200 MB without a line end": lambda: much(OPEN, b"data: {" + b"x" * 1017, 200),
    "200 MB of JSON that does not end": lambda: much(OPEN + b'{"a":"', b"x" * 1024, 200),
    "200 MB of lines of one event": lambda: much(OPEN, b"data: x\n", 200),
    "200 MB of comments": lambda: much(OPEN, b": x\n", 200),
    "gzip bomb, 1 GB, no line end": lambda: bomb(b"gzip", 31, b" "),
    "gzip bomb, 1 GB of events": lambda: bomb(b"gzip", 31, EVENT),
    "deflate bomb, 1 GB of zeros": lambda: bomb(b"deflate", 15, b"\0"),
    "one header of 100 MB": lambda: much(HEAD + b"X: ", b"x" * 1024, 100),
    "100 MB of headers": lambda: much(HEAD, b"X-A: b\r\n", 100),
    "100 MB of 1xx replies": lambda: much(b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 100),
    "100 MB of chunk extension": lambda: much(CHUNKED + b"1;", b"x" * 1024, 100),
    "100 MB of trailers": lambda: much(CHUNKED + chunked(EVENT) + b"0\r\n", b"X-A: b\r\n", 100),
    "4 million events, 16 asked": lambda: much(OPEN, EVENT, 4 * len(EVENT)),
    "4 million events, each a chunk": lambda: much(CHUNKED, chunked(EVENT), 4 * len(chunked(EVENT))),
    "list of models of 200 MB": lambda: much(OPEN, b"x" * 1024, 200),
    "list of models, gzip bomb": lambda: bomb(b"gzip", 31, b" "),
}


def serve(listening: socket.socket, reply: str) -> None:
    """Play ``reply`` to one connection until the client closes it."""
    connection, _ = listening.accept()
    with connection:
        connection.recv(65_536)
        try:
            for block in REPLIES[reply]():
                connection.sendall(block)
        except OSError:
            return


def ask(port: int, reply: str, results: Any) -> None:
    async def asked() -> str:
        target = Target(base_url=f"http://127.0.0.1:{port}", idle_timeout_s=20.0)
        endpoint = endpoint_of(target, {})
        if reply.startswith("list"):
            async with control_client(target, endpoint) as http:
                return (await call(http, endpoint.address("models"))).fault
        client = Client(target, endpoint, "m", connect=None, clock=time.monotonic, t0_s=time.monotonic())
        arrival = Arrival(0, 0, 0.0, Prompt(output_tokens=16))
        record = await client.send(arrival, client.prepare(arrival, "hi"))
        await client.close()
        return record.error_detail or record.status

    said = asyncio.run(asked())
    used = resource.getrusage(resource.RUSAGE_SELF)
    results.put((used.ru_maxrss * 1024 / 1e6, used.ru_utime + used.ru_stime, said))


def main() -> None:
    processes = multiprocessing.get_context("spawn")
    print("| reply | peak MB | CPU s | what the record says |\n|---|---|---|---|")
    for reply in REPLIES:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            results = processes.SimpleQueue()
            server = processes.Process(target=serve, args=(listening, reply), daemon=True)
            client = processes.Process(target=ask, args=(listening.getsockname()[1], reply, results), daemon=True)
            server.start()
            client.start()
            client.join(60)
            told = results.get() if client.exitcode == 0 else (float("nan"), float("nan"), "no end within 60 s")
            for process in (client, server):
                process.kill()
                process.join()
        print(f"| {reply} | {told[0]:.0f} | {told[1]:.2f} | {told[2]} |", flush=True)


if __name__ == "__main__":
    main()
