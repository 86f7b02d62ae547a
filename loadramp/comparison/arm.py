"""One of two endpoints that are compared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from loadramp.analysis import steady_state
from loadramp.comparison.table import asked_warmup_s
from loadramp.record.row import Row
from loadramp.record.table import Run, Table
from loadramp.record.types import Record, Step, Stop
from loadramp.runner.run_session import RunSession


@dataclass(slots=True)
class Arm(RunSession):
    """One of the two endpoints: a run of its own, whose steps are told to it instead of found by a ramp."""

    async def settle(self, rate_rps: float, begin_s: float) -> None:
        """Load that is not measured, at the first rate."""
        step = self.settle_step(Step(0, rate_rps=rate_rps))
        if step.measure_s:
            await self.send(replace(step, index=len(self.steps), begin_s=begin_s))

    async def offer(self, step: Step) -> Row | None:
        """Send a step whose times are filled in; its row when it is one that is measured."""
        snapshot = await self.send(replace(step, index=len(self.steps)))
        step = self.steps[-1]
        if not step.measured:
            return None
        self.rows.append(self.row_of(step, snapshot, self._before(step)))
        self.save("running")
        return self.rows[-1]

    async def end(self, ending: Stop) -> None:
        """Let requests finish, and close the run."""
        try:
            await self.finish()
        finally:
            self.save("complete" if ending.complete else "stopped", ending)

    def requests(self, snapshot: Sequence[Record] = (), since_s: float = 0.0) -> Table:
        """Requests alive after ``since_s``, those in flight included when a snapshot is given."""
        self.collect()
        return self.table(snapshot, since_s)

    async def so_far(self) -> Run:
        """This arm as a run, requests in flight included, for the judge."""
        table = self.requests(await self.fleet.snapshot())
        return Run(self.info, self.scenario, list(self.steps), table, rows=list(self.rows))

    def tail_s(self) -> float:
        """How long its requests take to end."""
        return steady_state.tail_s(self.e2e_s())

    @property
    def fails(self) -> bool:
        """Nobody answers any more."""
        return self.no_success() is not None

    def warmup_s(self, measure_s: float) -> float:
        """Warm-up of a block after a change: as asked, else from the requests seen so far."""
        asked = asked_warmup_s(self.scenario)
        return steady_state.warmup_s(self.e2e_s(), measure_s) if asked is None else asked

    def _before(self, step: Step) -> list[Row]:
        """Earlier rows of the same rate: what a block's queue signal is scaled with."""
        return [row for row in self.rows if row.rate_rps == step.rate_rps][:1]
