"""How much load can THIS machine send and time? The measuring client against the null server, level by level.

Three answers: how late requests leave (pacing), what a token costs, and the highest rate of tokens at which one worker
(or several) still pass the rules that make a step void. The last result of one is kept for the machine and goes into
run.json.
"""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np

from loadramp import __version__
from loadramp.analysis.checks.validity import cpu_ratio, loop_lag_p99_s, pacing_lag_s, void_reasons
from loadramp.analysis.quantiles import quantile
from loadramp.client.endpoint import endpoint_of
from loadramp.client.fleet import Orders, raise_file_limit, worker_count
from loadramp.client.http import c_reader
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.client.workers import LocalFleet
from loadramp.record.codec import decode_lines
from loadramp.record.kept import Kept
from loadramp.record.row import Void, void_lines
from loadramp.record.run_directory import host
from loadramp.record.run_info import HostInfo, SelfcheckInfo
from loadramp.record.table import Table
from loadramp.record.types import Calibration, ClientSample, Step
from loadramp.runner.scenarios import load
from loadramp.units import percent, plural

PACING_RPS = (10.0, 100.0, 1000.0)
SLOPE_TOKENS = (5, 105)
"""Two lengths of answer: the difference of their cost is that of the tokens alone."""
SLOPE_RPS = 50.0
LEVEL_TOKENS = 50
LEVELS_PER_S = (2_500.0, 5_000.0, 10_000.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0)
"""Rates of tokens to try for each worker, one after the other, until one is void."""
WARMUP_S = 1.2

Say = Callable[[str], None]


@dataclass(slots=True, frozen=True)
class LoadLevel:
    """One rate as the workers delivered it: seconds, shares of a core, tokens a second."""

    step: Step
    due: Table
    """Records of the window."""
    samples: tuple[ClientSample, ...]
    void: tuple[Void, ...]

    @property
    def tokens_per_s(self) -> float:
        workers = len({s.worker for s in self.samples})
        return workers * sum(s.tokens for s in self.samples) / max(len(self.samples), 1)

    @property
    def streams(self) -> int:
        """The most that were open at once."""
        most: dict[int, int] = {}
        for s in self.samples:
            most[s.worker] = max(most.get(s.worker, 0), s.in_flight)
        return sum(most.values())


@dataclass(slots=True, frozen=True)
class PacingLevel:
    """How late requests left at one rate, seconds; None: none left."""

    rate_rps: float
    requests: int
    lag_p50_s: float | None = None
    lag_p99_s: float | None = None
    lag_max_s: float | None = None


@dataclass(slots=True, frozen=True)
class TokenLevel:
    """What the workers did at one rate of tokens, and why that is void; empty: it held."""

    tokens_per_s: float
    streams: int
    cpu_ratio: float
    """Of the busiest worker."""
    loop_lag_p99_s: float
    void: Sequence[str] = ()


@dataclass(slots=True, frozen=True)
class ClientCapacity:
    """What this machine can send and time: the document of ``loadramp selfcheck --json``."""

    measured_at: str
    loadramp: str
    host: HostInfo
    seconds: float
    pacing: Sequence[PacingLevel]
    cpu_per_token_s: float
    reader: Literal["c", "python"]
    levels: Sequence[TokenLevel]
    most_tokens_per_s: float | None
    """None: not even the lowest level held."""
    most_streams: int | None
    limit: str | None
    """Why the level after the last that held did not; None: no limit was met."""
    open_files: int
    workers: int = 1
    """Of ``levels``, ``most_tokens_per_s`` and ``most_streams``; all else is of one."""

    def words(self) -> str:
        """The result in a sentence or two."""
        cost = f"{self.cpu_per_token_s * 1e6:.1f} us of CPU a token"
        if self.most_tokens_per_s is None:
            return f"not even {LEVELS_PER_S[0]:.0f} tokens/s could be timed here ({cost}): {self.limit}"
        streams = plural(self.most_streams or 0, "stream")
        who = "One worker here times" if self.workers == 1 else f"{plural(self.workers, 'worker')} here time"
        most = f"{who} {self.most_tokens_per_s:.0f} tokens/s in {streams}; {cost}."
        return f"{most} Beyond that: {self.limit}" if self.limit else f"{most} No limit was met."


@dataclass(slots=True)
class Bench:
    """One worker that offers step after step and is looked at after each."""

    fleet: LocalFleet
    folder: Path
    seconds: float
    _steps: int = 0
    _first: int = 0
    _samples: list[ClientSample] = field(default_factory=list)

    async def level(self, rate_rps: float) -> LoadLevel:
        """Offer ``rate_rps`` for the seconds asked and look at what became of it."""
        now_s = time.monotonic() - self.fleet.orders.t0_s
        step = Step(self._steps, rate_rps=rate_rps, begin_s=now_s + 0.2, warmup_s=WARMUP_S, measure_s=self.seconds)
        await self.fleet.begin(step, self._first)
        await asyncio.sleep(step.end_s + 0.3 - now_s)
        self._samples += self.fleet.samples()
        await self.fleet.finish(step.end_s + 5.0)
        self._steps += 1
        self._first += 10_000_000
        begin_s, end_s = step.window_s
        lines = [line for path in self.folder.glob("records-*") for line in path.read_bytes().splitlines()]
        table = Table.of(decode_lines(lines).records)
        due = table.due_in(step.window_s)
        inside = tuple(s for s in self._samples if begin_s + 1.0 <= s.t_s <= end_s + 0.3)
        return LoadLevel(step, due, inside, tuple(void_reasons(step, table, self._samples)))


async def selfcheck(seconds: float = 4.0, say: Say = lambda _: None, workers: int = 1) -> ClientCapacity:
    """Measure this machine; takes about ``12 * seconds`` plus 20. ``workers`` share the rates of tokens.

    Raises:
        ScenarioError: so many workers cannot run here.
        CannotMeasure: the null server or a worker did not start.
    """
    from loadramp.simulator.practise import null_server  # `run` reads the last result, and needs no server

    workers = worker_count(workers, "--workers")
    with null_server() as url:
        async with _bench(url, 1, seconds) as bench:
            pacing = [_pacing(await bench.level(rate), say) for rate in PACING_RPS]
        costs = []
        for tokens in SLOPE_TOKENS:
            async with _bench(url, tokens, seconds) as bench:
                costs.append(cpu_ratio((await bench.level(SLOPE_RPS)).samples) / SLOPE_RPS)
        per_token_s = (costs[1] - costs[0]) / (SLOPE_TOKENS[1] - SLOPE_TOKENS[0])
        reader: Literal["c", "python"] = "python" if c_reader.LOADED is None else "c"
        how = "in C" if reader == "c" else "in Python: there was no C compiler at installation"
        say(f"a token costs {per_token_s * 1e6:.1f} us of CPU, all in: receive, parse, record, write (read {how})")
        async with _bench(url, LEVEL_TOKENS, seconds, workers) as bench:
            levels = await _climb(bench, say, workers)
    held = [level for level in levels if not level.void]
    return ClientCapacity(
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        loadramp=__version__,
        host=host(),
        seconds=seconds,
        pacing=pacing,
        cpu_per_token_s=per_token_s,
        reader=reader,
        levels=levels,
        most_tokens_per_s=max((level.tokens_per_s for level in held), default=None),
        most_streams=max((level.streams for level in held), default=None),
        limit=next((reason for level in levels for reason in level.void), None),
        open_files=raise_file_limit(None),
        workers=workers,
    )


LAST = Kept("selfcheck.json", ClientCapacity)


def stored() -> ClientCapacity | None:
    """The last result, when it is of this machine and this version; None otherwise."""
    kept = LAST.read()
    if kept is None:
        return None
    here, there = host(), kept.host
    same = (there.machine, there.cpu, there.cores) == (here.machine, here.cpu, here.cores)
    return kept if same and kept.loadramp == __version__ else None


def noted() -> SelfcheckInfo | None:
    """What run.json says of this machine as a client: the last result in short; None when there is none."""
    known = stored()
    if known is None:
        return None
    lags = {f"lag_p99_s_at_{level.rate_rps:.0f}_rps": level.lag_p99_s for level in known.pacing}
    most, streams = known.most_tokens_per_s, known.most_streams
    return SelfcheckInfo(known.measured_at, known.cpu_per_token_s, known.reader, most, streams, known.limit, **lags)


@asynccontextmanager
async def _bench(url: str, tokens: int, seconds: float, workers: int = 1) -> AsyncIterator[Bench]:
    scenario = load(f'[target]\nbase_url = "{url}"\n[prompts]\nkind = "fixed"\noutput_tokens = {tokens}\n')
    orders = Orders(
        scenario, endpoint_of(scenario.target, {}), "null", OPTIONAL_FIELDS, Calibration(), 0, time.monotonic()
    )
    with tempfile.TemporaryDirectory() as folder:
        fleet = LocalFleet(orders, lambda index: Path(folder, f"records-{index}"), workers)
        await fleet.start()
        try:
            yield Bench(fleet, Path(folder), seconds)
        finally:
            await fleet.close()


def _pacing(level: LoadLevel, say: Say) -> PacingLevel:
    lag_s, rate_rps = np.sort(pacing_lag_s(level.due)), level.step.rate_rps or 0.0
    if not len(lag_s):
        return PacingLevel(rate_rps, len(level.due))
    p50, p99, most = (quantile(lag_s, q) for q in (0.5, 0.99, 1.0))
    late = f"{p50 * 1e3:.3f} ms late (p50), {p99 * 1e3:.3f} ms (p99), {most * 1e3:.3f} ms at most"
    say(f"{rate_rps:5.0f} req/s: requests leave {late}")
    return PacingLevel(rate_rps, len(level.due), p50, p99, most)


async def _climb(bench: Bench, say: Say, workers: int) -> list[TokenLevel]:
    levels: list[TokenLevel] = []
    for asked in LEVELS_PER_S:
        load = await bench.level(workers * asked / LEVEL_TOKENS)
        level = TokenLevel(
            load.tokens_per_s,
            load.streams,
            cpu_ratio(load.samples),
            loop_lag_p99_s(load.samples),
            void_lines(load.void),
        )
        levels.append(level)
        rate = f"{level.tokens_per_s:6.0f} tokens/s in {plural(level.streams, 'stream')}"
        say(f"{rate}, {percent(level.cpu_ratio)} of a core: {'; '.join(level.void) or 'held'}")
        if level.void:
            break
    return levels
