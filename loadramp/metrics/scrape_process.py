"""The scraper's own process: ``python -m loadramp.metrics.scrape_process``. Orders on stdin, samples to
server.jsonl, and on stdout which dialect each address turned out to speak.

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

from loadramp.metrics.canonical import PageReading, read_for, why_not
from loadramp.metrics.fetch import Fetcher, FetchFailed, tls_context
from loadramp.metrics.model_series import ModelChoice, ModelSelection
from loadramp.record.sanitize import clean

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
    choice: ModelChoice | None = None
    """Which models' series counted at the last scrape."""


@dataclass(slots=True)
class Board:
    """What the threads of one run know of each other's pages: whether any of them names a model that is asked."""

    asked: ModelSelection = field(default_factory=ModelSelection)
    pages: int = 1
    seen: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note(self, watched: Watched, choice: ModelChoice) -> None:
        """A page was read, or could not be."""
        with self.changed:
            self.seen.add(watched.label)
            if choice.known:
                self.named.add(watched.label)
            self.changed.notify_all()

    def elsewhere(self, watched: Watched) -> bool:
        """Another page than this one names an asked model."""
        return bool(self.named - {watched.label})

    def wait(self, limit_s: float) -> None:
        """Until every page was looked at once, at most ``limit_s``: which series of one count depends on the others."""
        with self.changed:
            self.changed.wait_for(lambda: len(self.seen) >= self.pages, limit_s)


@dataclass(slots=True)
class Journal:
    """The file that samples are appended to, a line each, by several threads."""

    descriptor: int
    t0_s: float
    lock: threading.Lock = field(default_factory=threading.Lock)
    broken: threading.Event = field(default_factory=threading.Event)

    def write(self, watched: Watched, scraped: Scraped) -> None:
        """Append one sample, stamped with the instant at which its page had arrived."""
        line = {
            "t_s": round(scraped.end_s - self.t0_s, 6),
            "url": watched.label,
            "values": scraped.values,
            "cost_s": round(scraped.end_s - scraped.begin_s, 6),
            "error": scraped.error,
            **({"unasked": True} if watched.choice is not None and watched.choice.unasked else {}),
        }
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        with self.lock:
            try:
                whole = os.write(self.descriptor, text) == len(text)
            except OSError:
                whole = False
            if not whole:
                self.broken.set()


@dataclass(slots=True, frozen=True)
class Scraped:
    """One scrape: when it began and its page had arrived (CLOCK_MONOTONIC), the values, or why there are none."""

    begin_s: float
    end_s: float
    values: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None


def scrape(watched: Watched, limit_s: float, board: Board | None = None) -> Scraped:
    """The values of one page, or none and the reason. Learns the dialect, and TensorRT-LLM's other address."""
    board = board or Board()
    begin_s = time.monotonic()
    first = board.pages > 1 and bool(board.asked.names) and watched.label not in board.seen
    try:
        body = watched.fetcher.get(limit_s)
        other = sibling(watched.url) if body.lstrip().startswith("[") else None
        if other is not None:
            watched.fetcher.point(other)
            watched.url = other
            body = watched.fetcher.get(limit_s)
    except FetchFailed as error:
        board.note(watched, ModelChoice())
        return Scraped(begin_s, time.monotonic(), error=clean(str(error)))
    end_s = time.monotonic()
    if first:
        board.note(watched, read_for(board.asked, body, watched.dialect).choice)
        board.wait(1.5)
    found = _read(watched, body, board)
    if not found.values:
        foreign = "only models that nobody asked for" if found.choice.left_out else why_not(body)
        watched.choice = found.choice if found.choice.left_out else watched.choice
        return Scraped(begin_s, end_s, error=clean(foreign))
    watched.dialect, watched.choice = found.dialect, found.choice
    board.note(watched, found.choice)
    return Scraped(begin_s, end_s, found.values)


def _read(watched: Watched, body: str, board: Board) -> PageReading:
    elsewhere = board.elsewhere(watched)
    found = read_for(board.asked, body, watched.dialect, watched.choice, elsewhere)
    if not found.values and watched.dialect is not None:  # another server behind the same address
        found = read_for(board.asked, body, None, watched.choice, elsewhere)
    return found


def tell(watched: Watched) -> None:
    """A line of JSON for the parent: the address as its samples call it, its dialect, and whose series count."""
    choice = watched.choice or ModelChoice()
    news = [watched.label, watched.dialect, choice.left_out, choice.unasked]
    with contextlib.suppress(OSError):  # the parent is gone; the main thread will see that
        os.write(sys.stdout.fileno(), json.dumps(news).encode() + b"\n")


def watch(watched: Watched, journal: Journal, period_s: float, stopping: threading.Event, board: Board) -> None:
    """Scrape one address on its grid until told to stop, then once more."""
    due_s, told = time.monotonic(), (watched.dialect, ModelChoice())
    while True:
        last = stopping.wait(max(0.0, due_s - time.monotonic()))
        began_s = time.monotonic()
        try:
            scraped = scrape(watched, timeout_s(period_s), board)
        except Exception as error:  # a page may hold anything: one that cannot be read is a failed scrape, no more
            scraped = Scraped(began_s, time.monotonic(), error=f"unreadable page ({type(error).__name__})")
            board.note(watched, ModelChoice())
        if (news := (watched.dialect, watched.choice or ModelChoice())) != told:
            told = news
            tell(watched)  # before the sample: whoever has that knows this
        journal.write(watched, scraped)
        if last:
            return
        watched.failures = 0 if scraped.error is None else watched.failures + 1
        due_s = next_due_s(due_s, time.monotonic(), period_s, watched.failures)


def obey(orders: Mapping[str, Any], parent: int) -> int:
    """Watch every address until stdin says stop or the parent is gone; returns the exit code.

    Args:
        orders: ``pages`` (each url, label, headers, dialect), ``asked`` (the fields of Asked), ``path``, ``t0_s``
            (CLOCK_MONOTONIC at which the run began), ``period_s``, ``ca_file``, ``insecure``.
        parent: process id that this process is to outlive for a second at most.
    """
    context = None
    if any(page["url"].startswith("https") for page in orders["pages"]):
        context = tls_context(orders["ca_file"], orders["insecure"])
    descriptor = os.open(orders["path"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    journal, stopping = Journal(descriptor, orders["t0_s"]), threading.Event()
    board = Board(ModelSelection(**orders["asked"]), len(orders["pages"]))
    threads = []
    for page in orders["pages"]:
        fetcher = Fetcher(page["url"], page["headers"], context)
        watched = Watched(page["url"], page["label"], fetcher, page["dialect"])
        threads.append(
            threading.Thread(target=watch, args=(watched, journal, orders["period_s"], stopping, board), daemon=True)
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
