"""The scraper as the conductor sees it: a process of its own that is started, read from and stopped.

The load's event loop does no more for it than read a file.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from loadramp.client.http.connect import tls_context
from loadramp.metrics.canonical import query_url, read_for
from loadramp.metrics.dialects import METRICS_PATHS
from loadramp.metrics.fetch import FetchFailed, address_of, fetch_once
from loadramp.metrics.model_series import ModelSelection
from loadramp.metrics.scrape_process import CANNOT_WRITE, STOP, PageNews, PageOrder, ScrapeOrders
from loadramp.one_thread import one_thread
from loadramp.record.codec import decode_each
from loadramp.record.run_info import MetricsInfo
from loadramp.record.sanitize import clean_all
from loadramp.record.types import Sample
from loadramp.units import left_out_words, unasked_words

LAST_SCRAPE_S = 3.0
LOOK_LIMIT_S = 2.0
"""The longest wait for one answer while the page is looked for."""
_PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


class Scraper:
    """Scrapes several addresses once a period, outside this process, and hands over the samples as they come.

    The samples are on disk before they are here: ``out_path`` is the run's ``server.jsonl``. ``info`` is what run.json
    says of it, as soon as read() has learned it.
    """

    __slots__ = ("_child", "_dialects", "_news", "_offset", "_orders", "_out_path", "_partial", "_say", "_told", "info")

    def __init__(
        self,
        urls: Sequence[str],
        out_path: Path,
        *,
        t0_s: float,
        period_s: float = 1.0,
        headers: Mapping[str, str] | None = None,
        headers_host: str | None = None,
        dialects: Mapping[str, str] | None = None,
        ca_file: str = "",
        insecure: bool = False,
        asked: ModelSelection = ModelSelection(),  # noqa: B008 (frozen)
        say: Callable[[str], None] = lambda words: None,
    ):
        """Nothing happens before start().

        Args:
            urls: metrics pages, DCGM exporters, Prometheus query addresses; see full_url.
            out_path: samples are appended to it.
            t0_s: CLOCK_MONOTONIC at which the run began.
            period_s: seconds between two scrapes of one address.
            headers: sent with every scrape (a key, perhaps); never written anywhere.
            headers_host: send ``headers`` to this host only; None: to every address.
            dialects: what is known already, url to dialect.
            ca_file, insecure: a PEM file of authorities ("": the system's); do not check certificates.
            asked: the models that requests ask for; of a page that names them only their series count.
            say: called with a note of which models' series do not count, or count although nobody asked for them, and
                with why the process has ended, if it has done so by itself.

        Raises:
            FetchFailed: one of ``urls`` is no http address.
        """
        labels = labels_of([full_url(url) for url in urls])
        self._dialects = {label: (dialects or {}).get(url) for url, label in zip(urls, labels, strict=True)}
        self.info = MetricsInfo()
        self._say = say
        self._news: dict[str, PageNews] = {}
        pages = []
        for url, label in zip(urls, labels, strict=True):
            sent = headers if headers_host in {None, address_of(url).host} else None
            pages.append(PageOrder(full_url(url), label, sent or {}, self._dialects[label]))
        path, parent = str(out_path), os.getpid()
        self._orders = ScrapeOrders(pages, asked, path, t0_s, period_s, ca_file, insecure, parent)
        self._out_path = out_path
        self._offset = 0
        self._partial = b""
        self._child: subprocess.Popen[bytes] | None = None
        self._told = False
        self._note()

    def start(self) -> None:
        """Start the process; its first scrape comes some 0.3 s later. Orders go by pipe: no key in its arguments."""
        self._offset = self._out_path.stat().st_size if self._out_path.exists() else 0
        path = os.pathsep.join(filter(None, (_PACKAGE_PARENT, os.environ.get("PYTHONPATH", ""))))
        with one_thread():
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", "loadramp.metrics.scrape_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C in the terminal is the conductor's to handle
            )
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self._send(msgspec.json.encode(self._orders) + b"\n")

    def read(self) -> list[Sample]:
        """The samples that came since the last call, oldest first. Costs a few microseconds; never waits."""
        self._notice()
        try:
            with self._out_path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        self._read_news()
        return decode_each(whole.splitlines(), Sample)[0]

    async def stop(self, limit_s: float = LAST_SCRAPE_S) -> None:
        """Make a last scrape and end the process, within about ``limit_s``. read() then has the rest."""
        if self._child is None:
            return
        self._notice()
        self._told = True
        self._send(STOP)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._child.wait, limit_s)
        self.kill()

    def kill(self) -> None:
        """End the process now, if it still lives."""
        if self._child is None:
            return
        self._told = True
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        self._read_news()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _notice(self) -> None:
        """Say and note, once, that the process has ended although nobody told it to."""
        code = None if self._child is None or self._told else self._child.poll()
        if code is None or self.info.problem is not None:
            return
        self.info.problem = f"the process that reads the server's metrics {_how_ended(code)}"
        self._say(f"warning: {self.info.problem}; the run goes on without the server's own numbers")

    def _read_news(self) -> None:
        """Learn which dialect each address speaks, and which models count. Never waits."""
        pipe = self._child.stdout if self._child is not None else None
        if pipe is None or pipe.closed:
            return
        try:
            self._partial += os.read(pipe.fileno(), 65536)
        except OSError:  # nothing new (BlockingIOError)
            return
        *lines, self._partial = self._partial.split(b"\n")
        for line in lines:
            news = msgspec.convert(clean_all(msgspec.json.decode(line)), PageNews)
            self._dialects[news.label], self._news[news.label] = news.dialect, news
        if lines:
            self._note()

    def _note(self) -> None:
        """Bring ``info`` up to date. The engine is that of the first address that shows one; a GPU exporter is none."""
        engines = [dialect for dialect in self._dialects.values() if dialect and dialect != "dcgm"]
        if engines:
            self.info.dialect = engines[0]
        for name in ("left_out", "unasked"):
            models = list(dict.fromkeys(model for news in self._news.values() for model in getattr(news, name)))
            if models != (getattr(self.info, name) or []):
                setattr(self.info, name, models)
                if models:
                    self._say("note: metrics: " + {"left_out": left_out_words, "unasked": unasked_words}[name](models))

    def _send(self, line: bytes) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):  # the process is gone, which ``_notice`` says
                self._child.stdin.write(line)
                self._child.stdin.flush()


def _how_ended(code: int) -> str:
    if code < 0:
        return f"was killed (signal {-code})"
    return "could not write server.jsonl" if code == CANNOT_WRITE else f"ended by itself (exit code {code})"


def full_url(url: str) -> str:
    """The address that is scraped: ``/metrics`` where only a host was given, the GPU query where none was."""
    parts = urlsplit(url)
    return query_url(urlunsplit(parts._replace(path="/metrics")) if parts.path in {"", "/"} else url)


def labels_of(urls: Sequence[str]) -> list[str]:
    """What samples call their addresses: without user, password and query; alike ones are numbered (``#2``)."""
    classes: Counter[str] = Counter()
    labels = []
    for url in urls:
        parts = urlsplit(url)
        plain = urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
        classes[plain] += 1
        labels.append(plain if classes[plain] == 1 else f"{plain}#{classes[plain]}")
    return labels


async def find_metrics(
    base_url: str,
    headers: Mapping[str, str] | None = None,
    *,
    asked: ModelSelection = ModelSelection(),  # noqa: B008 (frozen)
    ca_file: str = "",
    insecure: bool = False,
) -> tuple[str, str] | None:
    """Look for the target's own metrics page: (url, dialect), or None.

    Args:
        base_url: the endpoint, with or without ``/v1``.
        headers: sent along.
        asked: the models that requests ask for: a page that serves several engines is known by theirs, and a router
            that shows one model at a time (llama.cpp) is asked for the first.
        ca_file: the authorities to trust, a PEM file.
        insecure: do not check certificates.
    """
    parts = urlsplit(base_url)
    root = parts.path.rstrip("/").removesuffix("/v1")
    context = tls_context(ca_file, insecure) if parts.scheme == "https" else None
    looks = [(path, parts.query) for path in METRICS_PATHS]
    if asked.names:
        looks.insert(1, ("/metrics", "&".join(filter(None, (parts.query, f"model={quote(asked.names[0], safe='')}")))))
    for path, query in looks:
        url = urlunsplit(parts._replace(path=root + path, query=query))
        try:
            reading = read_for(asked, await fetch_once(url, headers or {}, context, LOOK_LIMIT_S))
        except FetchFailed:
            continue
        except Exception:  # noqa: S112  # any page may be at that address: one that cannot be read is not the one
            continue
        if reading.dialect is not None and reading.values:
            return url, reading.dialect
    return None
