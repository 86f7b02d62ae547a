"""The scraper's own process: ``python -m loadramp.metrics.scrape_process``. It reads its orders from stdin, appends
samples to server.jsonl, and writes to stdout which dialect each address speaks and which models count there.

It runs until stdin says ``stop`` (one last scrape, then the end) or the parent is gone. It leads its own session, so
the terminal's signals do not reach it, and no page can disturb the load.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from loadramp.metrics.canonical import PageReading, read_for, why_not
from loadramp.metrics.fetch import Fetcher, FetchFailed
from loadramp.metrics.model_series import ModelChoice, ModelSelection
from loadramp.record.sanitize import clean
from loadramp.record.types import Sample

STOP = b"stop\n"
CANNOT_WRITE = 3
"""The exit code when a sample could not be written; 1 is that of a Python that fails."""
BACK_OFF_S = 10.0
_PATIENCE = 3
"""After so many failures in a row a page is fetched only every BACK_OFF_S."""
_FIRST_LOOK_S = 1.5
"""How long the first sample of a page waits for the first look at the others."""

Fetch = Callable[[str, float], Awaitable[str]]
"""Takes a URL and a time limit in seconds; returns the page or raises FetchFailed."""


def timeout_s(period_s: float) -> float:
    """How long one scrape may take: shorter than its period, and never above a second."""
    return min(1.0, 0.8 * period_s)


def next_due_s(due_s: float, now_s: float, period_s: float, failures: int) -> float:
    """When to scrape next: on the grid of ``period_s``, without the beats that were missed.

    Args:
        due_s: when the last scrape was due.
        now_s: the present.
        period_s: seconds between scrapes.
        failures: failed scrapes in a row, the last one included.
    """
    step_s = max(BACK_OFF_S, period_s) if failures >= _PATIENCE else period_s
    return due_s + step_s * max(1, -((due_s - now_s) // step_s))


def sibling(url: str) -> str | None:
    """Where TensorRT-LLM keeps its page, given the address at which it keeps JSON that reading drains."""
    base, slash, rest = url.partition("?")
    trimmed = base.rstrip("/")
    if not trimmed.endswith("/metrics") or trimmed.endswith("/prometheus/metrics"):
        return None
    return trimmed.removesuffix("/metrics") + "/prometheus/metrics" + slash + rest


@dataclass(slots=True, frozen=True)
class PageOrder:
    """An address to scrape. ``dialect``: where it is known."""

    url: str
    label: str
    headers: Mapping[str, str]
    dialect: str | None


@dataclass(slots=True, frozen=True)
class ScrapeOrders:
    """What the process is told, in a line of JSON."""

    pages: Sequence[PageOrder]
    asked: ModelSelection
    path: str
    t0_s: float
    """CLOCK_MONOTONIC at which the run began."""
    period_s: float
    ca_file: str
    insecure: bool
    parent: int
    """The id of the process that this one outlives by a second at most."""


@dataclass(slots=True, frozen=True)
class PageNews:
    """What the process has learned of a page, in a line of JSON: its dialect, and which models count there."""

    label: str
    dialect: str | None
    left_out: Sequence[str]
    unasked: Sequence[str]


@dataclass(slots=True)
class WatchedPage:
    """One address: what its samples call it, and what is known of it so far."""

    url: str
    label: str
    fetch: Fetch
    dialect: str | None = None
    choice: ModelChoice | None = None
    """Which models' series counted at the last scrape."""


@dataclass(slots=True)
class PageSet:
    """The pages of one run: whether any of them names a requested model decides which series of the others count."""

    asked: ModelSelection = field(default_factory=ModelSelection)
    pages: int = 1
    read: set[str] = field(default_factory=set)
    naming: set[str] = field(default_factory=set)
    """Labels of the pages that name a requested model."""
    all_read: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, page: WatchedPage, choice: ModelChoice) -> None:
        """``page`` was read, or could not be."""
        self.read.add(page.label)
        if choice.known:
            self.naming.add(page.label)
        if len(self.read) >= self.pages:
            self.all_read.set()

    async def await_others(self, page: WatchedPage, body: str) -> None:
        """At the first scrape: wait until every page was looked at once, at most ``_FIRST_LOOK_S``."""
        if self.pages > 1 and self.asked.names and page.label not in self.read:
            self.note(page, read_for(self.asked, body, page.dialect).choice)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.all_read.wait(), _FIRST_LOOK_S)


async def scrape(page: WatchedPage, limit_s: float, pages: PageSet, now_s: Callable[[], float]) -> Sample:
    """The values of one page, or the reason why there are none. Learns the dialect, and TensorRT-LLM's other address.

    Args:
        page: what to fetch.
        limit_s: how long that may take.
        pages: all pages of the run.
        now_s: seconds since the run began; the sample's ``t_s`` is the instant at which the page had arrived.
    """
    begin_s = now_s()
    try:
        body = await page.fetch(page.url, limit_s)
        other = sibling(page.url) if body.lstrip().startswith("[") else None
        if other is not None:
            page.url = other
            body = await page.fetch(other, limit_s)
    except FetchFailed as error:
        pages.note(page, ModelChoice())
        return Sample(now_s(), page.label, cost_s=now_s() - begin_s, error=clean(str(error)))
    end_s = now_s()
    await pages.await_others(page, body)
    reading = _read(page, body, pages)
    sample = Sample(end_s, page.label, reading.values, end_s - begin_s)
    if not reading.values:
        why = "only models that nobody asked for" if reading.choice.left_out else why_not(body)
        page.choice = reading.choice if reading.choice.left_out else page.choice
        sample = replace(sample, error=clean(why))
    else:
        page.dialect, page.choice = reading.dialect, reading.choice
        pages.note(page, reading.choice)
    return sample


def _read(page: WatchedPage, body: str, pages: PageSet) -> PageReading:
    elsewhere = bool(pages.naming - {page.label})
    reading = read_for(pages.asked, body, page.dialect, page.choice, elsewhere)
    if not reading.values and page.dialect is not None:  # another server behind the same address
        reading = read_for(pages.asked, body, None, page.choice, elsewhere)
    return reading


async def follow(
    page: WatchedPage,
    pages: PageSet,
    period_s: float,
    now_s: Callable[[], float],
    stopping: asyncio.Event,
    sink: Callable[[Sample], None],
    changed: Callable[[WatchedPage], None] = lambda page: None,
) -> None:
    """Scrape one page on its grid until ``stopping`` is set, then once more.

    Args:
        page, pages, now_s: as for ``scrape``.
        period_s: seconds between scrapes.
        stopping: set it for one last scrape and the end.
        sink: gets each sample.
        changed: called before a sample that shows another dialect or other models than the one before.
    """
    due_s, failures, known = now_s(), 0, (page.dialect, ModelChoice())
    while True:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), max(0.0, due_s - now_s()))
        last = stopping.is_set()
        begin_s = now_s()
        try:
            sample = await scrape(page, timeout_s(period_s), pages, now_s)
        except Exception as error:  # a page may hold anything: one that cannot be read is only a failed scrape
            reason = f"unreadable page ({type(error).__name__})"
            sample = Sample(now_s(), page.label, cost_s=now_s() - begin_s, error=reason)
            pages.note(page, ModelChoice())
        if (news := (page.dialect, page.choice or ModelChoice())) != known:
            known = news
            changed(page)
        sink(replace(sample, unasked=True) if page.choice is not None and page.choice.unasked else sample)
        if last:
            return
        failures = 0 if sample.error is None else failures + 1
        due_s = next_due_s(due_s, now_s(), period_s, failures)


def _report(page: WatchedPage) -> None:
    """Tell the parent."""
    choice = page.choice or ModelChoice()
    news = PageNews(page.label, page.dialect, choice.left_out, choice.unasked)
    with contextlib.suppress(OSError):  # the parent is gone, which ``_stop_ordered`` will notice
        os.write(sys.stdout.fileno(), msgspec.json.encode(news) + b"\n")


def _append(descriptor: int, broken: asyncio.Event, sample: Sample) -> None:
    """Append ``sample`` as one line; where that fails, set ``broken``."""
    rounded = replace(sample, t_s=round(sample.t_s, 6), cost_s=round(sample.cost_s, 6))
    line = msgspec.json.encode(rounded) + b"\n"
    try:
        whole = os.write(descriptor, line) == len(line)
    except OSError:
        whole = False
    if not whole:
        broken.set()


async def obey(orders: ScrapeOrders) -> int:
    """Watch every address until stdin says stop or the parent is gone; returns the exit code."""
    context = None
    if any(page.url.startswith("https") for page in orders.pages):
        from loadramp.client.http.connect import tls_context  # with numpy, which nothing else here needs

        context = tls_context(orders.ca_file, orders.insecure)
    broken, stopping = asyncio.Event(), asyncio.Event()
    append = partial(_append, os.open(orders.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), broken)
    pages = PageSet(orders.asked, len(orders.pages))
    followers = [
        asyncio.create_task(
            follow(
                WatchedPage(order.url, order.label, Fetcher(order.headers, context).get, order.dialect),
                pages, orders.period_s, lambda: time.monotonic() - orders.t0_s, stopping, append, _report,
            )
        )
        for order in orders.pages
    ]  # fmt: skip
    stopped = await _stop_ordered(orders.parent, broken)
    stopping.set()
    if followers:
        await asyncio.wait(followers, timeout=2.0 if stopped else 0.0)
    return CANNOT_WRITE if broken.is_set() else 0


async def _stop_ordered(parent: int, broken: asyncio.Event) -> bool:
    """Wait until stdin says stop (True), or it ends, the parent is gone or the file cannot be written (False)."""
    descriptor, inbox = sys.stdin.fileno(), asyncio.Queue[bytes]()
    asyncio.get_running_loop().add_reader(descriptor, lambda: inbox.put_nowait(os.read(descriptor, len(STOP))))
    while not broken.is_set() and os.getppid() == parent:
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(inbox.get(), 0.5) == STOP
    return False


def main() -> None:
    """Read the orders (one line of JSON) and follow them."""
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as orders:  # a buffer would swallow "stop"
        line = orders.readline()
    if not line.endswith(b"\n"):
        sys.exit(2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when this ends
    os.nice(5)  # the client that measures comes first
    code = asyncio.new_event_loop().run_until_complete(obey(msgspec.json.decode(line, type=ScrapeOrders)))
    os._exit(code)  # without waiting for a name that is still being resolved


if __name__ == "__main__":
    main()
