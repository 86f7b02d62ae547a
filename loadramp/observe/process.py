"""The scraper's own process: ``python -m loadramp.observe.process``. Orders on stdin, samples to server.jsonl, and on
stdout which dialect each address turned out to speak.

It goes on until stdin says ``stop`` (one last scrape, then the end) or the parent is gone. It leads its own session, so
the terminal's signals do not reach it, and whatever a page does to it does not touch the load.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from loadramp.observe.canonical import read, why_not
from loadramp.observe.fetch import Fetcher, FetchFailed, tls_context

STOP = b"stop\n"
BACK_OFF_S = 10.0
_PATIENCE = 3
"""Failures in a row after which a page is asked only every BACK_OFF_S."""


def timeout_s(period_s: float) -> float:
    """How long one scrape may take: shorter than its period, and never above a second."""
    return min(1.0, 0.8 * period_s)


def next_due_s(due_s: float, now_s: float, period_s: float, failures: int) -> float:
    """When to scrape next: on the grid of ``period_s``, a beat that was missed is left out.

    Args:
        due_s: when the last scrape was due.
        now_s: the present.
        period_s: seconds between scrapes.
        failures: failed scrapes in a row, the last one included.
    """
    step_s = max(BACK_OFF_S, period_s) if failures >= _PATIENCE else period_s
    return due_s + step_s * max(1, -((due_s - now_s) // step_s))


def sibling(url: str) -> str | None:
    """Where TensorRT-LLM keeps the page, given the address at which it keeps JSON that reading drains."""
    base, slash, rest = url.partition("?")
    trimmed = base.rstrip("/")
    if not trimmed.endswith("/metrics") or trimmed.endswith("/prometheus/metrics"):
        return None
    return trimmed.removesuffix("/metrics") + "/prometheus/metrics" + slash + rest


@dataclass(slots=True)
class Watched:
    """One address: how its samples call it, and what is known of it so far."""

    url: str
    label: str
    fetcher: Fetcher
    dialect: str | None = None
    failures: int = 0


@dataclass(slots=True)
class Journal:
    """The file that samples are appended to, a line each, by several threads."""

    descriptor: int
    t0_s: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: threading.Event = field(default_factory=threading.Event)

    def write(self, watched: Watched, begin_s: float, values: Mapping[str, float], error: str | None) -> None:
        """Append one sample, stamped with the instant at which its page had arrived."""
        now_s = time.monotonic()
        line = {
            "t_s": round(now_s - self.t0_s, 6),
            "url": watched.label,
            "values": values,
            "cost_s": round(now_s - begin_s, 6),
            "error": error,
        }
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self.lock:
            try:
                whole = os.write(self.descriptor, text) == len(text)
            except OSError:
                whole = False
            if not whole:
                self.broken.set()


def scrape(watched: Watched, limit_s: float) -> tuple[dict[str, float], str | None]:
    """The values of one page, or none and the reason. Learns the dialect, and TensorRT-LLM's other address."""
    try:
        body = watched.fetcher.get(limit_s)
        dialect, values = read(body, watched.dialect)
        if not values and watched.dialect is not None:  # another server behind the same address
            dialect, values = read(body)
        if not values:
            other = sibling(watched.url) if body.lstrip().startswith("[") else None
            if other is not None:
                watched.fetcher.point(other)
                watched.url = other
                dialect, values = read(watched.fetcher.get(limit_s))
    except FetchFailed as error:
        return {}, str(error)
    if not values:
        return {}, why_not(body)
    watched.dialect = dialect
    return values, None


def tell(watched: Watched) -> None:
    """A line of JSON for the parent: the address as its samples call it, and its dialect."""
    with contextlib.suppress(OSError):  # the parent is gone; the main thread will see that
        os.write(sys.stdout.fileno(), json.dumps([watched.label, watched.dialect]).encode() + b"\n")


def watch(watched: Watched, journal: Journal, period_s: float, stopping: threading.Event) -> None:
    """Scrape one address on its grid until told to stop, then once more."""
    due_s, told = time.monotonic(), watched.dialect
    while True:
        last = stopping.wait(max(0.0, due_s - time.monotonic()))
        begin_s = time.monotonic()
        values, error = scrape(watched, timeout_s(period_s))
        if watched.dialect != told:
            told = watched.dialect
            tell(watched)  # before the sample: whoever has that knows this
        journal.write(watched, begin_s, values, error)
        if last:
            return
        watched.failures = 0 if error is None else watched.failures + 1
        due_s = next_due_s(due_s, time.monotonic(), period_s, watched.failures)


def obey(orders: Mapping[str, Any], parent: int) -> int:
    """Watch every address until stdin says stop or the parent is gone; returns the exit code.

    Args:
        orders: ``pages`` (each url, label, headers, dialect), ``path``, ``t0_s`` (CLOCK_MONOTONIC at which the run
            began), ``period_s``, ``ca_file``, ``insecure``.
        parent: process id that this process is to outlive for a second at most.
    """
    context = None
    if any(page["url"].startswith("https") for page in orders["pages"]):
        context = tls_context(orders["ca_file"], orders["insecure"])
    descriptor = os.open(orders["path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    journal, stopping = Journal(descriptor, orders["t0_s"]), threading.Event()
    threads = []
    for page in orders["pages"]:
        fetcher = Fetcher(page["url"], page["headers"], context)
        watched = Watched(page["url"], page["label"], fetcher, page["dialect"])
        threads.append(
            threading.Thread(target=watch, args=(watched, journal, orders["period_s"], stopping), daemon=True)
        )
        threads[-1].start()
    told = _wait(parent, journal.broken)
    stopping.set()
    end_s = time.monotonic() + 2.0
    for thread in threads:
        thread.join(max(0.0, end_s - time.monotonic()) if told else 0.0)
    return 1 if journal.broken.is_set() else 0


def _wait(parent: int, broken: threading.Event) -> bool:
    """Until stdin says stop (True), or it ends, the parent is gone or the journal cannot be written (False)."""
    while not broken.is_set() and os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin.buffer], [], [], 0.5)
        if readable:
            return os.read(sys.stdin.fileno(), len(STOP)) == STOP
    return False


def main() -> int:
    """Read the orders (one line of JSON) and follow them."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(sys.stdin.fileno(), 1)  # by the byte: a buffered reader would swallow what select waits for
        if not part:
            return 2
        line += part
    orders = json.loads(line)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this ends
    os.nice(5)  # the client that measures comes first
    return obey(orders, orders["parent"])


if __name__ == "__main__":
    sys.exit(main())
