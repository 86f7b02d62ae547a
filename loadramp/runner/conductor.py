"""The loop of a ramp: it proposes the next step, which is sent and folded into a row of the curve, until it ends.

What is decided while the run goes on is decided here, from rows; all of it is decided again from the files by
``assess`` when a report is made.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadramp.analysis import lengthen, steady_state
from loadramp.analysis.thresholds import missed_for_good
from loadramp.record.row import Row
from loadramp.record.table import Floats
from loadramp.record.types import Record, Step, Stop
from loadramp.runner.assess import count_again, measured
from loadramp.runner.run_session import RunSession
from loadramp.workload.preview import ahead_s, longest_s, most_extra_s, over_a_cap, times
from loadramp.workload.schedule import session_sample, turns_of

CONTINUED = 1000
"""The k-th part by which a step goes on is planned as a step whose index is so much higher times k."""


@dataclass(slots=True)
class Conductor(RunSession):
    """A run whose steps a ramp proposes."""

    _further_s: float = 0.0
    """By how much steps of this ramp may still go on."""

    async def run(self) -> Stop:
        """Ramp to the end; why it ended.

        Raises:
            FleetError: the load could not be sent any more.
        """
        proposal = self.scenario.ramp([])
        if isinstance(proposal, Step) and self.scenario.pace.settle_s + self.scenario.pace.settle_requests > 0:
            self.ahead_s = self._left_s([])
            await self.send(self._timed(self.settle_step(proposal)))
        endings: list[Stop] = []
        for repeat in range(self.repeats):
            if repeat:
                await self.drain()
            endings.append(await self._ramp(repeat))
            if self.stop.is_set() or endings[-1].cause:
                break
        return next((stop for stop in endings if not stop.complete), endings[-1])

    async def _ramp(self, repeat: int) -> Stop:
        """One ramp from its first step to its end."""
        self._further_s = most_extra_s(self.scenario)
        while not self.stop.is_set():
            rows = [row for row in self.rows if row.repeat == repeat]
            proposal = self.scenario.ramp(rows)
            ending = proposal if isinstance(proposal, Stop) else self._over_a_cap(proposal)
            if ending is not None:
                return ending
            if self.steps and self._starts_afresh(proposal, rows):
                await self.drain()
            self.ahead_s = self._left_s(rows, repeat, proposal)
            snapshot = await self.send(replace(self._timed(proposal), repeat=repeat), rows)
            self._count_again(snapshot)
            rows = [row for row in self.rows if row.repeat == repeat]
            row = self.row_of(self.steps[-1], snapshot, rows)
            self.rows.append(await self._go_on(row, snapshot, rows) if self._further_s else row)
            given_up = self.no_success(self.rows[-1])
            if given_up:
                return given_up
            if missed := self._missed(snapshot):
                return missed
            self.save("running")
        return Stop("interrupted", complete=False)

    def _left_s(self, rows: Sequence[Row], repeat: int = 0, begun: Step | None = None) -> tuple[float, float] | None:
        """Least and most seconds of load to come after ``rows``, less those of the step that is ``begun``."""
        this, other = ahead_s(self.scenario, rows), ahead_s(self.scenario, [])
        if this is None or other is None:
            return None
        begun_s = sum(times(self.scenario, begun)) if begun else 0.0
        further, limit_min = self.repeats - repeat - 1, self.scenario.pace.max_minutes
        cap_s = float("inf") if limit_min is None else max(0.0, limit_min * 60 - self.now_s)
        least_s, most_s = (
            min(end_s - begun_s + further * each, cap_s) for end_s, each in zip(this, other, strict=True)
        )
        return least_s, most_s

    def _starts_afresh(self, step: Step, rows: Sequence[Row]) -> bool:
        """Whether nothing may be left over for ``step``: a soak, a way down, or a lower rate after one that the client
        could not deliver, whose queue would keep it busy."""
        last = self.steps[-1]
        lower = bool(rows) and bool(rows[-1].void) and (step.rate_rps or 0.0) < (last.rate_rps or 0.0)
        return last.role == "step" and (step.role != "step" or lower)

    async def _go_on(self, row: Row, snapshot: Sequence[Record], before: Sequence[Row]) -> Row:
        """Offer more of the step that has just ended, as long as it is too short for an engine whose step time has
        regimes. Returns its row as it is then."""
        usual_s, regimes, k = self.steps[-1].measure_s or 0.0, False, 0
        while (more_s := self._more_s(row, snapshot, usual_s)) and not lengthen.is_long_enough([*before, row]):
            regimes = regimes or lengthen.has_regimes(self.so_far(snapshot, [*before, row]))
            k, step = k + 1, self.steps[-1]
            part = replace(step, index=step.index + CONTINUED * k, begin_s=self.free_s, warmup_s=0.0,
                           measure_s=more_s)  # fmt: skip
            if not regimes or self._over_a_cap(part) or self.no_success(row) or self.stop.is_set():
                break
            try:
                snapshot = await self.send(part)
            finally:  # one step, whatever ends it
                part = self.steps.pop()
                self.steps[-1] = replace(step, measure_s=part.end_s - step.window_s[0])
            self._further_s -= more_s
            self.info.lengthened[step.index] = usual_s
            row = self.row_of(self.steps[-1], snapshot, before)
        return row

    def _more_s(self, row: Row, snapshot: Sequence[Record], usual_s: float) -> float:
        """By how much the last step may go on; 0: it does not."""
        measured_s, most_s = row.length_s, longest_s(self.scenario.pace, usual_s)
        more_s = min(lengthen.further_s(measured_s, most_s), self._further_s)
        if more_s < 1.0 or not lengthen.concerns(row):
            return 0.0
        waiting_s = max((self.now_s - record.due_s for record in snapshot if record.answer_s is None), default=0.0)
        limit_s, most = self.scenario.target.first_timeout_s, self.scenario.pace.max_in_flight
        endured = lengthen.endured(waiting_s, measured_s, more_s, limit_s)
        return more_s if endured and lengthen.endured(len(snapshot), measured_s, more_s, most) else 0.0

    def _missed(self, snapshot: Sequence[Record]) -> Stop | None:
        """Why the ramp ends where a threshold is missed beyond doubt, judged as the report will judge it."""
        gates = self.scenario.gates
        if not gates.abort:
            return None
        missed = missed_for_good(measured(self.so_far(snapshot)), gates.rules)
        rules = " and ".join(result.rule for result in missed)
        return Stop(f"missed beyond doubt: {rules}", complete=False, cause="missed") if missed else None

    def _over_a_cap(self, step: Step) -> Stop | None:
        timed = self._timed(step)
        why = over_a_cap(self.scenario, timed, self.planned, self.next_number(timed))
        return Stop(why, complete=False) if why else None

    def _timed(self, step: Step) -> Step:
        """The step with its index and the times that the ramp left open."""
        pace = self.scenario.pace
        measure_s = step.measure_s or pace.length_s(step.rate_rps)
        warmup_s = step.warmup_s if step.warmup_s is not None else pace.warmup_s
        if warmup_s is None:
            warmup_s = steady_state.warmup_s(self._lives_s(), measure_s)
        measure_s = step.measure_s or pace.limit_s(step.rate_rps)
        return replace(step, index=len(self.steps), begin_s=self.free_s, warmup_s=warmup_s, measure_s=measure_s)

    def _lives_s(self) -> Floats:
        """How long what arrives stays: requests, or whole sessions with their pauses."""
        e2e_s = self.e2e_s()
        if turns_of(self.scenario) <= 1 or not len(e2e_s):
            return e2e_s
        typical_s = float(np.median(e2e_s))
        sample = session_sample(self.scenario)
        pauses_s = [
            sum(turn.think_s for turn in (prompt, *prompt.following[:-1]) if prompt.following) for prompt in sample
        ]
        return np.array(pauses_s) + typical_s * np.array([1 + len(prompt.following) for prompt in sample])

    def _count_again(self, snapshot: Sequence[Record]) -> None:
        """Let the rows so far tell what has become of the requests that were in flight at their ends."""
        for i, row in enumerate(self.rows):
            if row.pending:
                table = self.table(snapshot, since_s=row.window_begin_s)
                self.rows[i] = count_again(self.scenario, row, table)
