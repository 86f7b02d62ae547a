"""What every rule of the diagnosis looks at: the usable steps by load, each with its long gaps and who ran and waited.

Rule: a step that the client could not deliver is never looked at.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from math import log

import numpy as np

from loadramp.analysis import latency, saturation
from loadramp.analysis.checks.answer_checks import BURST_SHARE, burst_share
from loadramp.analysis.diagnosis import gap_causes
from loadramp.analysis.diagnosis.gap_causes import Attribution, Mixing
from loadramp.analysis.error_classes import classes
from loadramp.analysis.latency import WindowView
from loadramp.analysis.offered_load import at, load_of
from loadramp.analysis.overload import alarmed, counts, failing, highest, shows_overload
from loadramp.analysis.step_time import StepTimes, decoding, pace_of
from loadramp.analysis.step_time_jumps import Jump, jump_of
from loadramp.record.row import Row
from loadramp.record.table import Floats, Run, Table
from loadramp.record.types import ClientSample
from loadramp.units import plural

BLOCK_S = 0.5
FLAT_ELASTICITY = 0.5
"""ITL that grows by less than the square root of the batch leaves room in the engine's step."""
FLAT_RATIO = 1.2
PLATEAU = 0.1
"""A batch that varies by less than this share of itself stands at a limit."""


@dataclass(slots=True, frozen=True)
class StepView:
    """One measured step: its row, its window and what its long gaps come from.

    ``gaps`` is None where there are none, or where they came in bursts and say nothing about the engine.
    """

    row: Row
    window: WindowView
    """Without gaps, of which a long run has more than fit into memory."""
    look: Callable[[], WindowView]
    """The window with its gaps, looked at again."""
    gaps: Attribution | None
    gaps_seen: int
    """How many there are in all."""
    running: Floats
    """Requests that have a first token and no end, once a second."""
    bursty: float
    """Share of output events that came together with the one before."""
    failed: Counter[str]
    """Failed requests by class (``error_classes.WORDS``) or error kind."""
    pace: StepTimes | None
    """In blocks of half a second; None where ``gaps`` is."""
    jump: Jump | None

    @property
    def index(self) -> int:
        return self.row.step

    @property
    def load(self) -> float:
        """Users, or the rate that the step speaks for."""
        return float(self.row.users or 0.0) if self.row.rate_rps is None else load_of(self.row)

    @property
    def at(self) -> str:
        """``at 8 req/s``, ``with 32 users``."""
        return f"with {plural(self.row.users, 'user')}" if self.row.users else f"at {at(self.row)}"

    @property
    def minutes(self) -> float:
        return self.window.length_s / 60.0

    @property
    def running_mean(self) -> float:
        """Requests in the batch: as the server says, else as the client sees streams under way."""
        counted = self.row.running_mean
        return counted if counted is not None else float(self.running.mean())

    @property
    def plateau(self) -> bool:
        """In the window's last two thirds the batch stood still: p90 - p10 of streams under way within a tenth."""
        late = self.running[len(self.running) // 3 :]
        low, middle, high = np.quantile(late, (0.1, 0.5, 0.9))
        return bool(middle >= 4.0 and high - low <= max(PLATEAU * middle, 1.0))

    def mixing(self) -> Mixing:
        """How its gaps follow prefills."""
        return gap_causes.mixing(self.look(), self.gaps) if self.gaps is not None else Mixing(0.0, 0.0)


@dataclass(slots=True, frozen=True)
class Case:
    """A run as the rules see it. ``steps`` are the usable ones by load, ramp up before soaks before the way down.

    ``over``: steps of the ramp up above the highest quiet one that are saturated or fail; ``confirmed``: one of them
    lacks throughput or fails, or two are saturated.
    """

    run: Run
    steps: Sequence[StepView]
    climb: Sequence[StepView]
    """The ramp up: those of role ``step``."""
    void: Sequence[Row]
    """Steps that the client could not deliver, nor a repetition of them."""
    over: Sequence[StepView]
    confirmed: bool
    quiet: StepView | None
    """The highest step that kept up."""

    @property
    def lowest(self) -> StepView | None:
        return self.steps[0] if self.steps else None

    def where(self, test: Callable[[StepView], bool]) -> list[StepView]:
        return [step for step in self.steps if test(step)]


def case_of(run: Run) -> Case:
    """Look at every measured step of a judged run."""
    usable = sorted((row for row in run.rows if not row.void and row.requests), key=_place)
    jitter_s = longest_s = None
    steps: list[StepView] = []
    for row in usable:
        look = partial(_look, run.table, row)
        window = look()
        if not steps:
            longest_s = gap_causes.longest_prefill_s(window.due)
        if jitter_s is None and len(window.gaps.gap_s):
            jitter_s = gap_causes.jitter_s(window.gaps)
        steps.append(_step(row, window, look, run.client, jitter_s or 0.0, longest_s))
        del window  # before there is another one
    climb = [step for step in steps if step.row.role == "step"]
    top = highest(climb, lambda step: not alarmed(step.row) and counts(step.row))
    above = [step for step in climb[top + 1 :] if counts(step.row)]
    over = [step for step in above if step.row.saturated or failing(step.row)]
    settled = any(shows_overload(step.row) for step in over)
    return Case(
        run=run,
        steps=steps,
        climb=climb,
        void=[row for row in run.rows if row.void and not _made_up_for(row, usable)],
        over=over,
        confirmed=settled or len(over) >= 2,
        quiet=climb[top] if top >= 0 else None,
    )


def _step(
    row: Row,
    window: WindowView,
    look: Callable[[], WindowView],
    client: Sequence[ClientSample],
    jitter_s: float,
    longest_s: float | None,
) -> StepView:
    """All that is asked of every gap of the window, which ``look`` gives again."""
    bursty = burst_share(window.gaps, row.of("sent_ttft").p50.value)
    gaps = pace = jump = None
    if bursty <= BURST_SHARE:
        gaps = gap_causes.attribute(window, client, jitter_s=jitter_s, longest_prefill_s=longest_s)
    if gaps is not None:
        plain = decoding(window, gaps.median_s)
        pace, jump = pace_of(window, BLOCK_S, plain=plain), jump_of(window, plain)
    return StepView(
        row=row,
        window=window.ends(),
        look=look,
        gaps=gaps,
        gaps_seen=len(window.gaps.gap_s),
        running=_running(window),
        bursty=bursty,
        failed=classes(window.due),
        pace=pace,
        jump=jump,
    )


def flat(below: StepView, above: StepView, stem: str = "itl_p50") -> bool | None:
    """Whether a latency hardly grew with the batch from one step to another; None when it cannot be said."""
    low, high = below.row.statistic(stem).value, above.row.statistic(stem).value
    if not low or not high:
        return None
    if high <= FLAT_RATIO * low:
        return True
    grown = above.running_mean / max(below.running_mean, 1.0)
    return grown > 1.0 and log(high / low) <= FLAT_ELASTICITY * log(grown)


def indices(steps: Iterable[StepView]) -> tuple[int, ...]:
    return tuple(step.index for step in steps)


def _place(row: Row) -> tuple[int, float]:
    load = float(row.users or 0.0) if row.rate_rps is None else load_of(row)
    return {"step": 0, "soak": 1}.get(row.role, 2), load


def _made_up_for(void: Row, usable: Sequence[Row]) -> bool:
    return any(row.rate_rps == void.rate_rps and row.users == void.users for row in usable)


def _look(table: Table, row: Row) -> WindowView:
    alive = (table.due_s < row.window_end_s) & (table.done_s >= row.window_begin_s)
    return latency.window_view(table.select(alive), row.window_s)


def _running(window: WindowView) -> Floats:
    """Streams under way, at least 30 times in the window."""
    load = saturation.occupancy(window.near, window.window_s)
    return load.in_flight - load.queued
