"""A run as it goes on: sends one step after the other, takes in what comes of them, folds rows, and keeps run.json.

Which step comes next is for others to say: ``Conductor`` asks a ramp, a canary tells both of its arms.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol, TypeVar

import numpy as np

from loadramp.analysis import lengthen, steady_state
from loadramp.analysis.error_classes import WORDS, class_of
from loadramp.analysis.latency import window_view
from loadramp.client.fleet import Fleet
from loadramp.client.sender import HOLD_S
from loadramp.record.row import Row
from loadramp.record.run_directory import RecordTail, RunDir
from loadramp.record.run_info import RunInfo, WorkerDeath
from loadramp.record.table import Floats, Run, Table
from loadramp.record.types import GONE, REFUSED, ClientSample, Record, Sample, Step, Stop
from loadramp.registry import CannotMeasure, error_message
from loadramp.report.progress import LATEST, Progress, Watch
from loadramp.runner.assess import ended_at, row_of, with_ceiling, with_deaths
from loadramp.scenario.scenario import Scenario
from loadramp.workload.preview import settle_s
from loadramp.workload.schedule import plan_step, rows_of, turns_of

EPSILON_S = 1e-6
"""Less than this is no time: sums of floats do not meet exactly."""
DRAIN_LIMIT_S = 120.0
STOP_WAIT_S = 0.1
"""After an interruption, answers that are about to end may do so; whoever interrupts waits for the report."""
DEAD_REQUESTS = 20
"""So many requests in a row without a success, over at least ``[ramp] give_up_s``: nobody is answering any more."""
HISTORY_S = 40
T = TypeVar("T")


class Scrapes(Protocol):
    """Reads the server's metrics beside a run."""

    def read(self) -> list[Sample]:
        """The samples since the last call."""

    async def stop(self, limit_s: float) -> None:
        """Take a last one and end, within about ``limit_s``."""


@dataclass(slots=True)
class RunSession:
    """One run as it goes on. ``info`` becomes run.json; ``stop`` is set to end it early."""

    scenario: Scenario
    rundir: RunDir
    fleet: Fleet
    clock: Callable[[], float]
    t0_s: float
    info: RunInfo
    scraper: Scrapes | None = None
    """None: the server's metrics are not known."""
    watch: Watch = lambda _: None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    repeats: int = 1
    """How many whole ramps, one after the other."""
    steps: list[Step] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    ahead_s: tuple[float, float] | None = None
    """Least and most seconds of load after the step that is under way. None: not known."""
    _tail: RecordTail = field(init=False)
    _tables: list[Table] = field(default_factory=list)
    _server: list[Sample] = field(default_factory=list)
    _client: list[ClientSample] = field(default_factory=list)
    _deaths: list[WorkerDeath] = field(default_factory=list)
    _next_seq: int = 0
    _held_s: Floats = field(default_factory=lambda: np.empty(0))
    """Due times of the last open-loop step, those past its end included."""
    planned: int = 0
    """Requests of the open-loop steps so far, with all turns of their sessions."""
    _finished: int = 0
    _failed: int = 0
    _unlike_load: Counter[str] = field(default_factory=Counter)
    """Failures since the last success that do not depend on load, by class."""
    _fails_in_a_row: int = 0
    """The other failures since the last success."""
    _last_good_s: float | None = None
    _errors: Counter[str] = field(default_factory=Counter)
    _latest: Table = field(default_factory=lambda: Table.of([]))
    _history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY_S))

    def __post_init__(self) -> None:
        self._tail = RecordTail(self.rundir)

    def so_far(self, snapshot: Sequence[Record] = (), rows: Sequence[Row] = ()) -> Run:
        """What was measured until now, from memory: as a report would see it, with the requests of ``snapshot``."""
        table = self.table(snapshot)
        return Run(
            info=replace(self.info),
            scenario=self.scenario,
            steps=list(self.steps),
            table=table.select_rows(table.due_s.argsort(kind="stable")),
            rows=list(rows),
            samples=list(self._server),
            client=list(self._client),
            path=str(self.rundir.path),
        )

    def end(self, ending: Stop) -> None:
        """Close the run; a step that an error has ended was cut short."""
        if self.steps and self.now_s < self.steps[-1].end_s - EPSILON_S:
            self.steps[-1] = ended_at(self.steps[-1], self.now_s)
        self.save("stopped" if self.stop.is_set() or not ending.complete else "complete", ending)

    async def finish(self) -> None:
        """Keep offering the last rate while the last step's requests finish, then let go."""
        now_s = self.now_s
        longest_s = self.scenario.target.timeout_s
        if self.stop.is_set():
            await self.fleet.finish(now_s + min(STOP_WAIT_S, longest_s))
        else:
            last, tail_s = self.steps[-1], self.tail_s()
            self.ahead_s = self.ahead_s and (0.0, 0.0)
            if tail_s > 0 and last.measured and not self.no_success():
                await self.send(replace(last, index=len(self.steps), role="tail", begin_s=self.free_s,
                                          warmup_s=0.0, measure_s=tail_s))  # fmt: skip
            await self.fleet.finish(self.now_s + min(DRAIN_LIMIT_S, longest_s))
        self.collect()

    async def send(self, step: Step, before: Sequence[Row] | None = None) -> list[Record]:
        """Send one step and wait for its end. Returns the requests then in flight; the step may have been cut short.

        ``before``: the rows of the same ramp, for a step that may end once it is sure.
        """
        look_s = self._first_look_s(step) if before is not None else float("inf")
        self.steps.append(step)
        first_seq = self._next_seq = self.next_number(step)
        self._held_s = np.empty(0)
        if step.users is None:
            due_s = self._held_s = plan_step(self.scenario, step, first_seq, hold_s=HOLD_S).due_s
            self._next_seq += len(due_s)
            self.planned += round(np.count_nonzero(due_s < step.end_s) * turns_of(self.scenario))
        else:
            self._next_seq += 10_000_000  # a closed loop sends as many as it can
        await self.fleet.begin(step, first_seq)
        while (left_s := step.end_s - self.now_s) > EPSILON_S and not self.stop.is_set():
            await self._pause(min(1.0, left_s))
            self.collect()
            self._show(step)
            if self.no_success():
                break
            if look_s <= self.now_s < step.end_s - EPSILON_S:
                if await self._sure(step, before or []):
                    step = self._shortened(step)
                    break
                begin_s = step.window_s[0]
                look_s = begin_s + lengthen.next_look_s(self.now_s - begin_s)
        if self.now_s < step.end_s - EPSILON_S:
            step = self.steps[-1] = ended_at(step, self.now_s)
        return await self.snapshot()

    async def offer(self, step: Step) -> Row | None:
        """Send a step whose times are filled in; its row where it is one that is measured."""
        snapshot = await self.send(replace(step, index=len(self.steps)))
        step = self.steps[-1]
        if not step.measured:
            return None
        before = [row for row in self.rows if row.rate_rps == step.rate_rps][:1]  # what its queue is scaled with
        self.rows.append(self.row_of(step, snapshot, before))
        self.save("running")
        return self.rows[-1]

    def _first_look_s(self, step: Step) -> float:
        """When a step may first be found sure: at its usual length. Never where nothing is asked, and no soak."""
        pace = self.scenario.pace
        if pace.until_sure is None or step.role == "soak":
            return float("inf")
        return step.window_s[0] + pace.length_s(step.rate_rps)

    async def _sure(self, step: Step, before: Sequence[Row]) -> bool:
        """Whether the interval that was asked for is narrow enough by now."""
        snapshot, pace = await self.snapshot(), self.scenario.pace
        row, now_s = self.row_of(step, snapshot, before), self.now_s
        window = window_view(self.table(snapshot, since_s=step.begin_s), (step.window_s[0], now_s), now_s)
        ratio, quantile = pace.until_sure or 0.0, self.scenario.slo.quantile
        return lengthen.is_sure([*before, row], window, quantile, pace.sure_of, ratio)

    def _shortened(self, step: Step) -> Step:
        """The step as it is when it ends now because it is sure: whole, not cut short."""
        begin_s, end_s = step.window_s[0], self.now_s
        self.planned -= int(np.count_nonzero((self._held_s >= end_s) & (self._held_s < step.end_s)))
        step = self.steps[-1] = replace(step, measure_s=end_s - begin_s)
        return step

    def next_number(self, step: Step) -> int:
        """Number of the first request of ``step``. Where a file is to be gone through once, the held-over arrivals that
        the step's begin cuts off give theirs back."""
        if rows_of(self.scenario) is None:
            return self._next_seq
        return self._next_seq - int(np.count_nonzero(self._held_s >= step.begin_s))

    async def drain(self) -> None:
        """Offer nothing until what the overload left behind is worked off, for at most DRAIN_LIMIT_S."""
        step = Step(len(self.steps), role="drain", rate_rps=0.0, begin_s=self.free_s, warmup_s=0.0,
                    measure_s=DRAIN_LIMIT_S)  # fmt: skip
        self.steps.append(step)
        self.ahead_s = None
        self._next_seq, self._held_s = self.next_number(step), np.empty(0)
        await self.fleet.begin(step, self._next_seq)
        while self.now_s < step.end_s - EPSILON_S and not self.stop.is_set():
            await self._pause(0.5)
            if self.now_s > step.begin_s and not await self.fleet.in_flight():
                break
            self.collect()
            self._show(step)
        self.steps[-1] = replace(step, measure_s=self.now_s - step.begin_s)
        self.collect()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)

    def settle_step(self, first: Step) -> Step:
        """Load at the first rate that is not measured; its times are still to be filled in."""
        return replace(first, role="settle", warmup_s=0.0, measure_s=settle_s(self.scenario, first.rate_rps))

    @property
    def free_s(self) -> float:
        """The earliest begin of a next step."""
        earliest_s = self.now_s + self.fleet.lead_s
        return max(earliest_s, self.steps[-1].end_s) if self.steps and self.steps[-1].role != "drain" else earliest_s

    def row_of(self, step: Step, snapshot: Sequence[Record], before: Sequence[Row]) -> Row:
        """The row of a step that has just ended, with what is known now; ``before`` are those of the same ramp."""
        table = self.table(snapshot, since_s=step.begin_s)
        table = Table.concat([table, self._not_begun(step, table)])
        row = row_of(self.scenario, step, table, before, self._server, self._client, self.now_s)
        return with_ceiling(self.scenario, before, with_deaths(row, self._deaths))[-1]

    def _not_begun(self, step: Step, known: Table) -> Table:
        """The requests planned for ``step`` that are not ``known``: no worker tells of those it has not come to yet."""
        first_seq = self._next_seq - len(self._held_s)
        due_s = self._held_s[self._held_s < step.end_s]
        left = np.flatnonzero(~np.isin(first_seq + np.arange(len(due_s)), known.seq))
        return Table.of([Record(first_seq + int(i), step.index, float(due_s[i])) for i in left])

    def table(self, snapshot: Sequence[Record] = (), since_s: float = 0.0) -> Table:
        """Finished requests that were alive after ``since_s``, and the snapshot's."""
        whole = Table.concat(self._tables)
        self._tables = [whole]
        recent = whole.select(whole.done_s >= since_s)
        known = set(recent.seq.tolist())
        return Table.concat([recent, Table.of([record for record in snapshot if record.seq not in known])])

    async def snapshot(self) -> list[Record]:
        """The requests in flight, with what has ended by then taken in."""
        in_flight = await self.fleet.snapshot()
        self.collect()
        return in_flight

    def collect(self) -> None:
        """Take in what the workers and the scraper have written since the last look."""
        ended = self._tail.read()
        if len(ended):
            self._count(ended)
        fresh = self.fleet.samples()
        self._client += fresh
        if fresh:
            self.rundir.append_client(fresh)
        self._server += self.scraper.read() if self.scraper else []
        self._deaths += self.fleet.dead[len(self._deaths) :]

    def _count(self, ended: Table) -> None:
        """Take in requests that have ended, in the order in which they did."""
        self._tables.append(ended)
        self._finished += len(ended)
        latest = Table.concat([self._latest, ended])
        self._latest = latest.select_rows(np.arange(max(0, len(latest) - LATEST), len(latest)))
        status, end_s = ended.failure_status, np.nan_to_num(ended.stream_end_s).tolist()
        for i in np.flatnonzero(ended.status != "unfinished").tolist():
            if ended.status[i] == "ok":
                self._fails_in_a_row, self._last_good_s = 0, end_s[i]
                self._unlike_load.clear()
                continue
            self._failed += 1
            error = ended.error[i] or "incomplete"
            self._errors[error] += 1
            name, of_load = class_of(error, ended.error_detail[i], None if np.isnan(status[i]) else int(status[i]))
            self._fails_in_a_row += of_load
            self._unlike_load[name] += not of_load

    def no_success(self, row: Row | None = None) -> Stop | None:
        """Why to go on is no use, after many failures in a row: nobody answers, or every request fails whatever the
        load. The latter must have been so from the first request on, or through all of a step, which is ``row``."""
        if self.now_s - (self._last_good_s or 0.0) <= self.scenario.pace.give_up_s:
            return None
        if self._fails_in_a_row >= DEAD_REQUESTS:
            return Stop(GONE, complete=False, cause="gone")
        never = self._last_good_s is None or (row is not None and not row.ok)
        if never and self._unlike_load.total() >= DEAD_REQUESTS:
            kinds = ", ".join(f"{n:,} {WORDS[name]}" for name, n in self._unlike_load.most_common(3) if n)
            return Stop(f"{REFUSED} ({kinds})", complete=False, cause="refused")
        return None

    def e2e_s(self) -> Floats:
        """End-to-end times of the latest successes."""
        table = Table.concat(self._tables[-50:]) if self._tables else Table.of([])
        self._tables = [Table.concat(self._tables)] if self._tables else []
        latest = table.e2e_s[table.ok]
        return latest[-500:]

    def tail_s(self) -> float:
        """How long the last rate goes on while requests end: as asked, else for as long as they take."""
        asked = self.scenario.pace.tail_s
        return steady_state.tail_s(self.e2e_s()) if asked is None else asked

    def _show(self, step: Step) -> None:
        latest = list({sample.worker: sample for sample in self._client[-64:]}.values())
        tokens_per_s = float(sum(sample.tokens for sample in latest))
        self._history.append(tokens_per_s)
        self.watch(
            Progress(
                t_s=self.now_s,
                step=step,
                steps=len(self.rows) + 1,
                sent=sum(sample.sent for sample in self._client),
                finished=self._finished,
                failed=self._failed,
                in_flight=sum(sample.in_flight for sample in latest),
                waiting=sum(sample.waiting for sample in latest),
                tokens_per_s=tokens_per_s,
                rows=self.rows,
                errors=dict(self._errors),
                latest=self._latest,
                client=latest,
                history=tuple(self._history),
                left_s=self._left_of_run_s(step),
            )
        )

    def _left_of_run_s(self, step: Step) -> tuple[float, float] | None:
        if self.ahead_s is None:
            return None
        left_s = max(step.end_s - self.now_s, 0.0)
        return self.ahead_s[0] + left_s, self.ahead_s[1] + left_s

    def save(self, state: str, ending: Stop | None = None) -> None:
        """Replace run.json."""
        info = self.info
        info.state, info.ending, info.repeats = state, ending.reason if ending else None, self.repeats
        info.stop_cause = ending.cause if ending else None
        info.ended_at = None if state == "running" else datetime.now(UTC).isoformat(timespec="seconds")
        info.steps, info.dead_workers = self.steps, self._deaths
        info.workers, info.clocks = self.fleet.workers, list(self.fleet.clocks) or None
        self.rundir.save_info(info)

    @property
    def now_s(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.t0_s


async def conclude(sessions: Sequence[RunSession], run: Callable[[], Awaitable[Stop]]) -> None:
    """Await ``run``, which sends for all ``sessions`` and says why it ended, then their last requests. What was
    measured is on disk whatever ends this.

    Raises:
        FleetError: the load could not be sent any more.
        CannotMeasure: ``run`` could not go on.
    """
    for session in sessions:
        session.save("running")
    ending = Stop("interrupted", complete=False)
    try:
        ending = await run()
        await together(session.finish() for session in sessions)
    except (CannotMeasure, OSError) as error:
        ending = Stop(error_message(error), complete=False)
        raise
    finally:
        for session in sessions:
            session.end(ending)


async def together(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all of it at once; the first error is raised when all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
