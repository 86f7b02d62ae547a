"""Is the endpoint there? Its health check once a second, from a thread of the conducting process: no load goes through
it, and the loops that measure are elsewhere.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from loadramp.metrics.fetch import Fetcher, FetchFailed, tls_context
from loadramp.metrics.scrape_process import next_due_s
from loadramp.record.sanitize import clean
from loadramp.record.types import HealthSample

LIMIT_S = 1.0
"""A check that takes longer has failed: what Kubernetes' probes allow unless told otherwise."""
_decoder = msgspec.json.Decoder(HealthSample)


class Pulse:
    """Checks one address until stopped; each check is a line of ``path``."""

    __slots__ = ("_context", "_headers", "_path", "_period_s", "_stopping", "_t0_s", "_thread", "_url")

    def __init__(
        self,
        url: str,
        path: Path,
        *,
        t0_s: float,
        period_s: float = 1.0,
        headers: Mapping[str, str] | None = None,
        ca_file: str = "",
        insecure: bool = False,
    ) -> None:
        """Nothing happens before start().

        Args:
            url: any GET address that answers 200 while the endpoint is well.
            path: lines are appended to it.
            t0_s: CLOCK_MONOTONIC at which the run began.
            period_s: seconds between two checks.
            headers: sent along; never written anywhere.
            ca_file, insecure: how certificates are checked.
        """
        self._url, self._path, self._t0_s, self._period_s = url, path, t0_s, period_s
        self._headers = dict(headers or {})
        self._context = tls_context(ca_file, insecure) if url.startswith("https") else None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True, name="pulse")
        self._thread.start()

    def stop(self) -> None:
        """End it, within about a second."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2.0 * LIMIT_S)

    def _watch(self) -> None:
        # a disk that is full ends the run itself, by the records
        with contextlib.suppress(FetchFailed, OSError), self._path.open("ab", buffering=0) as file:
            fetcher = Fetcher(self._url, self._headers, self._context)
            due_s = time.monotonic()
            while not self._stopping.wait(max(0.0, due_s - time.monotonic())):
                file.write(msgspec.json.encode(self._check(fetcher)) + b"\n")
                due_s = next_due_s(due_s, time.monotonic(), self._period_s, 0)
            fetcher.close()

    def _check(self, fetcher: Fetcher) -> HealthSample:
        begin_s = time.monotonic()
        error = None
        try:
            fetcher.get(LIMIT_S)
        except FetchFailed as failure:
            error = clean(str(failure))
        took_s = round(time.monotonic() - begin_s, 6)
        return HealthSample(round(begin_s - self._t0_s, 6), error is None, took_s, error)


def read_health(path: Path) -> list[HealthSample]:
    """The checks in a run's ``health.jsonl``; none where there is no such file, torn lines left out."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            found.append(_decoder.decode(line))
    return found
