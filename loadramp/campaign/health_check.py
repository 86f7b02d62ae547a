"""Checks once a second whether the endpoint is there, from a thread of the conducting process, which sends no load."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

import msgspec

from loadramp.campaign.recovery import HealthSample
from loadramp.client.http.connect import tls_context
from loadramp.metrics.fetch import Fetcher, FetchFailed
from loadramp.metrics.scrape_process import next_due_s
from loadramp.record.codec import decode_each
from loadramp.record.sanitize import clean

LIMIT_S = 1.0
"""A check that takes longer has failed: what Kubernetes' probes allow by default."""


@dataclass(slots=True)
class Pulse:
    """Checks one address between ``start`` and ``stop``; each check is a line of ``path``."""

    url: str
    """Any GET address that answers 200 while the endpoint is well."""
    path: Path
    """Lines are appended to it."""
    _: KW_ONLY
    t0_s: float
    """CLOCK_MONOTONIC at which the run began."""
    period_s: float = 1.0
    """Seconds between two checks."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Sent along; never written anywhere."""
    ca_file: str = ""
    insecure: bool = False
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True, name="pulse")
        self._thread.start()

    def stop(self) -> None:
        """Stop checking, within about a second."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2.0 * LIMIT_S)

    def _watch(self) -> None:
        context = tls_context(self.ca_file, self.insecure) if self.url.startswith("https") else None
        # a disk that is full ends the run itself, by the records
        with (
            contextlib.suppress(FetchFailed, OSError),
            self.path.open("ab", buffering=0) as file,
            asyncio.Runner() as loop,
        ):
            fetcher = Fetcher(self.headers, context)
            due_s = time.monotonic()
            while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
                file.write(msgspec.json.encode(loop.run(self._check(fetcher))) + b"\n")
                due_s = next_due_s(due_s, time.monotonic(), self.period_s, 0)
            loop.run(fetcher.close())

    async def _check(self, fetcher: Fetcher) -> HealthSample:
        begin_s = time.monotonic()
        error = None
        try:
            await fetcher.get(self.url, LIMIT_S)
        except FetchFailed as failure:
            error = clean(str(failure))
        took_s = round(time.monotonic() - begin_s, 6)
        return HealthSample(round(begin_s - self.t0_s, 6), error is None, took_s, error)


def read_health(path: Path) -> list[HealthSample]:
    """The checks in a run's ``health.jsonl``; none where there is no such file, torn lines left out."""
    return decode_each(path.read_bytes().splitlines(), HealthSample)[0] if path.is_file() else []
