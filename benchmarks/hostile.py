"""What replies without bounds cost: peak resident memory and CPU time of whole ``loadramp probe`` and ``run`` commands.

python benchmarks/hostile.py [WORDS OF THE ROWS WANTED]

The server is a process of its own on a loopback address. Of a run, memory is that of the largest of its processes and
CPU time that of all of them.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
OPEN, CHUNKED = HEAD + b"\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
REFUSED = b"HTTP/1.1 503 Busy\r\nConnection: close\r\n\r\n"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
MB = 1_000_000
HOSTILE_TOKENS = 24
"""A run asks for so many tokens; the requests before it ask for other numbers and are answered well."""
SCENARIO = f"""
name = "hostile"
seed = 1
[prompts]
kind = "fixed"
input_tokens = 20
output_tokens = {HOSTILE_TOKENS}
[ramp]
kind = "ladder"
rates = [5]
warmup_s = 0
measure_s = 4
settle_s = 0
settle_requests = 0
tail_s = 0
give_up_s = 60
"""
Reply = Callable[[], Iterator[bytes]]


def much(begin: bytes, unit: bytes, mb: float, end: bytes = b"") -> Iterator[bytes]:
    yield begin
    block = unit * (65_536 // len(unit) + 1)
    yield from repeat(block, int(mb * MB) // len(block) + 1)
    yield end


def bomb(coding: bytes, wbits: int, unit: bytes, head: bytes = HEAD) -> Iterator[bytes]:
    """1 GB when unpacked."""
    yield head + b"Content-Encoding: " + coding + b"\r\n\r\n"
    packer = zlib.compressobj(9, zlib.DEFLATED, wbits)
    block = unit * (MB // len(unit))
    for _ in range(1000):
        yield packer.compress(block)
    yield packer.flush()


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def whole(body: bytes, status: bytes = b"200 OK") -> Iterator[bytes]:
    yield b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (status, len(body), body)


def in_event(unit: bytes, mb: float) -> Iterator[bytes]:
    """One event whose JSON is a list of as many ``unit`` as go into ``mb``."""
    return much(OPEN + b'data: {"detail":[', unit + b",", mb, unit + b"]}\n\n")


ANSWERS: dict[str, Reply] = {
    "an ordinary answer": lambda: iter([OPEN + EVENT * 16 + END]),
    "200 MB without a line end": lambda: much(OPEN, b"data: {" + b"x" * 1017, 200),
    "200 MB of JSON that does not end": lambda: much(OPEN + b'{"a":"', b"x" * 1024, 200),
    "200 MB of lines of one event": lambda: much(OPEN, b"data: x\n", 200),
    "200 MB of comments": lambda: much(OPEN, b": x\n", 200),
    "an event of 4 MB of empty lists": lambda: in_event(b"[]", 3.9),
    "an event of 4 MB of short texts": lambda: in_event(b'"ab"', 3.9),
    "gzip bomb, 1 GB, no line end": lambda: bomb(b"gzip", 31, b" "),
    "gzip bomb, 1 GB of line ends": lambda: bomb(b"gzip", 31, b"\n"),
    "gzip bomb, 1 GB of events": lambda: bomb(b"gzip", 31, EVENT),
    "deflate bomb, 1 GB of zeros": lambda: bomb(b"deflate", 15, b"\0"),
    "gzip bomb, 1 GB, in a refusal": lambda: bomb(b"gzip", 31, b" ", REFUSED[:-2]),
    "one header of 100 MB": lambda: much(HEAD + b"X: ", b"x" * 1024, 100),
    "100 MB of headers": lambda: much(HEAD, b"X-A: b\r\n", 100),
    "100 MB of 1xx replies": lambda: much(b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n", 100),
    "100 MB of chunk extension": lambda: much(CHUNKED + b"1;", b"x" * 1024, 100),
    "100 MB of trailers": lambda: much(CHUNKED + chunked(EVENT) + b"0\r\n", b"X-A: b\r\n", 100),
    "4 million events, 16 asked": lambda: much(OPEN, EVENT, 4 * len(EVENT)),
    "4 million events, each a chunk": lambda: much(CHUNKED, chunked(EVENT), 4 * len(chunked(EVENT))),
    "a refusal of 200 MB": lambda: much(REFUSED, b"x" * 1024, 200),
}
PAGES: dict[str, tuple[str, Reply]] = {
    "/v1/models of 200 MB": ("/v1/models", lambda: much(OPEN, b"x" * 1024, 200)),
    "/v1/models, gzip bomb": ("/v1/models", lambda: bomb(b"gzip", 31, b" ")),
    "/v1/models of 1.3 million models": ("/v1/models", lambda: whole(b'{"data":[' + b"{}," * 1_300_000 + b"{}]}")),
    "/v1/models, 100 MB of headers": ("/v1/models", lambda: much(HEAD, b"X-A: b\r\n", 100)),
    "/health of 200 MB": ("/health", lambda: much(OPEN, b"x" * 1024, 200)),
    "/metrics of 200 MB": ("/metrics", lambda: much(OPEN, b"vllm:num_requests_running 1\n", 200)),
    "/metrics of 8 MB of series": (
        "/metrics",
        lambda: whole(b"".join(b'vllm:num_requests_running{model_name="m%d"} 1\n' % i for i in range(170_000))),
    ),
    "/metrics, gzip bomb": ("/metrics", lambda: bomb(b"gzip", 31, b"a 1\n")),
}
RUNS = ("an ordinary answer", "200 MB without a line end", "gzip bomb, 1 GB of events", "4 million events, 16 asked")


@dataclass(frozen=True)
class Server:
    """Answers ``path`` with a reply without bounds (``/v1/chat/completions``: where HOSTILE_TOKENS are asked for, or
    always), all else well."""

    path: str
    reply: Reply
    always: bool = False

    def serve(self, listening: socket.socket) -> None:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            request = connection.recv(65_536)
            if not request:
                return
            try:
                for block in self._reply_to(request):
                    connection.sendall(block)
            except OSError:
                return

    def _reply_to(self, request: bytes) -> Iterator[bytes]:
        path = request.split(b" ")[1].decode().partition("?")[0]
        asked = re.search(rb'"max_tokens": ?(\d+)', request)
        meant = self.always or path != "/v1/chat/completions" or (asked and int(asked[1]) == HOSTILE_TOKENS)
        if path == self.path and meant:
            return self.reply()
        if path == "/v1/chat/completions":
            return ANSWERS["an ordinary answer"]()
        if path == "/v1/models":
            return whole(b'{"object":"list","data":[{"id":"m"}]}')
        return whole(b"", b"200 OK" if path == "/health" else b"404 Not Found")


def measured(server: Server, command: list[str]) -> tuple[float, float, str]:
    """Peak MB, CPU seconds and standard output of ``loadramp`` with ``command`` and the server's address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = multiprocessing.get_context("fork").Process(target=server.serve, args=(listening,), daemon=True)
        serving.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        words = [sys.executable, "-m", "loadramp", *command, "--base-url", url, "--json"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            said = process.stdout.read().decode()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        serving.kill()
        serving.join()
    return used.ru_maxrss * 1024 / MB, used.ru_utime + used.ru_stime, said


def probed(name: str, server: Server, *more: str) -> None:
    peak_mb, cpu_s, said = measured(server, ["probe", "--max-tokens", "16", *more])
    document = json.loads(said) if said.startswith("{") else {}
    row(f"probe: {name}", peak_mb, cpu_s, document.get("error_detail") or document.get("status") or "no answer")


def ran(name: str, server: Server, folder: Path) -> None:
    (folder / "hostile.toml").write_text(SCENARIO)
    peak_mb, cpu_s, said = measured(server, ["run", str(folder / "hostile.toml"), "--out", str(folder / "out")])
    steps = json.loads(said)["steps"] if said.startswith("{") else []
    done = ", ".join(f"{step['ok']} ok of {step['requests']}" for step in steps)
    row(f"run: {name}", peak_mb, cpu_s, done or "ended before the first step")


def row(name: str, peak_mb: float, cpu_s: float, said: str) -> None:
    print(f"| {name} | {peak_mb:.0f} | {cpu_s:.2f} | {said} |", flush=True)


def main(wanted: str) -> None:
    print("| command: reply | peak MB | CPU s | what came of it |\n|---|---|---|---|")
    chat = "/v1/chat/completions"
    for name, reply in ANSWERS.items():
        if wanted in f"probe: {name}":
            probed(name, Server(chat, reply, always=True), "--model", "m")
    with tempfile.TemporaryDirectory() as folder:
        for name, (path, page) in PAGES.items():
            if path == "/v1/models" and wanted in f"probe: {name}":
                probed(name, Server(path, page))
            elif path != "/v1/models" and wanted in f"run: {name}":
                ran(name, Server(path, page), Path(folder))
        for name in RUNS:
            if wanted in f"run: {name}":
                ran(name, Server(chat, ANSWERS[name]), Path(folder))


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]))
