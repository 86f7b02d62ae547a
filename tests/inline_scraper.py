"""The scraper as a task of the very loop that sends the load: for simulated time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from loadramp.metrics.fetch import FetchFailed
from loadramp.metrics.scrape_process import PageSet, WatchedPage, follow
from loadramp.metrics.scraper import labels_of
from loadramp.record.run_directory import RunDir
from loadramp.record.types import Sample


@dataclass(slots=True)
class InlineScraper:
    """What ``scrape_inline`` scraped: on disk, and for the run to take."""

    rundir: RunDir
    samples: list[Sample] = field(default_factory=list)

    def note(self, sample: Sample) -> None:
        with self.rundir.server_path.open("ab") as file:
            file.write(msgspec.json.encode(sample) + b"\n")
        self.samples.append(sample)

    def read(self) -> list[Sample]:
        taken, self.samples = self.samples, []
        return taken

    async def stop(self, limit_s: float) -> None:
        """Its task is cancelled."""


async def scrape_inline(
    fetch: Callable[[str], Awaitable[str]],
    urls: Sequence[str],
    period_s: float,
    clock: Callable[[], float],
    t0_s: float,
    sink: Callable[[Sample], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Scrape until cancelled.

    Args:
        fetch: url -> page; raises OSError, ValueError or FetchFailed when there is none.
        urls: pages, all scraped at once.
        period_s: seconds between scrapes.
        clock: the loop's time, seconds.
        t0_s: the clock when the run began.
        sink: is handed each sample.
        stop: set it for one last scrape and the end; without it, cancel the task.
    """
    pages = PageSet(pages=len(urls))
    async with asyncio.TaskGroup() as group:
        for url, label in zip(urls, labels_of(urls), strict=True):
            page = WatchedPage(url, label, partial(_fetch_within, fetch))
            group.create_task(follow(page, pages, period_s, lambda: clock() - t0_s, stop or asyncio.Event(), sink))


async def _fetch_within(fetch: Callable[[str], Awaitable[str]], url: str, limit_s: float) -> str:
    try:
        async with asyncio.timeout(limit_s):
            return await fetch(url)
    except TimeoutError:
        raise FetchFailed("timeout") from None
    except (OSError, ValueError) as error:
        raise FetchFailed(type(error).__name__) from None
