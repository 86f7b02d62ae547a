"""Judges a run: rows, the three numbers, checks, findings. The same functions while it goes on and from its files."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from loadramp.analysis import long_run, regimes
from loadramp.analysis.checks import unfinished
from loadramp.analysis.checks.run_checks import run_checks
from loadramp.analysis.checks.validity import RESTART, SENT_RATIO
from loadramp.analysis.curve import counts, fold
from loadramp.analysis.diagnosis.cures import with_cures
from loadramp.analysis.diagnosis.diagnose import diagnose
from loadramp.analysis.itl_knee import completed, estimate
from loadramp.analysis.latency import WindowView, window_view
from loadramp.analysis.load_errors import fails_too_often
from loadramp.analysis.repeats import by_repeat, not_enough, pooled_estimates, pooled_rows
from loadramp.record.row import NO_RECORD, Measure, Row, Void
from loadramp.record.run_info import WorkerDeath
from loadramp.record.table import Run, Table
from loadramp.record.types import Check, ClientSample, Estimate, Sample, Step
from loadramp.scenario.scenario import Scenario
from loadramp.workload.schedule import offer_of

Ramps = list[list[Row]]
Numbers = list[dict[str, Estimate]]
"""The three numbers of each ramp."""
SAMPLING_S = 1.5
"""The client tells of itself once a second: a step whose last word is older than this ended early."""


def assess(run: Run) -> Run:
    """Judge a run anew from what is on disk: rows, the three numbers, checks, and why it gives way.

    ``run`` is filled in and returned.
    """
    ramps, each = _measured(run)
    run.checks = run_checks(run)
    first = replace(run, rows=ramps[0] if ramps else [])  # why it gives way is asked of one whole ramp
    run.findings = with_cures(diagnose(first), first)
    _pool(run, ramps, each)
    if len(ramps) > 1 and (scatter := not_enough(each)):
        run.checks.append(Check("repeats_scatter", "note", scatter, "trust the interval over the repeats"))
    return run


def measured(run: Run) -> Run:
    """``assess`` without the checks and why it gives way: what rules on steps ask for."""
    _pool(run, *_measured(run))
    return run


def _measured(run: Run) -> tuple[Ramps, Numbers]:
    """The rows and the three numbers of each ramp; those of all and of the first are filled in."""
    scenario = run.scenario
    ramps = [completed(rows) for rows in by_repeat(_rows(run))]
    each = [three_numbers(scenario, rows) for rows in ramps] or [three_numbers(scenario, [])]
    each = [_spoken_of(estimates, rows) for estimates, rows in zip(each, ramps or [[]], strict=True)]
    run.rows = [row for rows in ramps for row in rows]
    run.estimates = {name: _ended_early(run, estimate) for name, estimate in each[0].items()}
    return ramps, each


def _pool(run: Run, ramps: Ramps, each: Numbers) -> None:
    """Several ramps together."""
    if len(ramps) > 1:
        every, run.rows, run.repeats = run.rows, pooled_rows(ramps), each
        run.estimates = _spoken_of(pooled_estimates(each), every)


def _spoken_of(estimates: Mapping[str, Estimate], rows: Sequence[Row]) -> dict[str, Estimate]:
    """The estimates of these rows, with what their intervals speak of."""
    of = long_run.interval_of(rows)
    return {
        name: replace(
            estimate, interval_of=(estimate.interval_of or of) if estimate.low_rps and estimate.high_rps else None
        )
        for name, estimate in estimates.items()
    }


def _ended_early(run: Run, estimate: Estimate) -> Estimate:
    """With why nothing higher was tried, where that is not because of the ramp's own end."""
    if estimate.status != "not_found_up_to" or run.info.state != "stopped" or not run.info.ending:
        return estimate
    return replace(estimate, reason=f"{estimate.reason}; stopped early: {run.info.ending}")


def _rows(run: Run) -> list[Row]:
    """The rows of all ramps of the run, each with the estimate of its own ramp up to it."""
    scenario = run.scenario
    ramps: dict[int, list[Row]] = {}
    measured: list[Step] = []
    run.steps = as_it_went(run)
    shortfalls = [] if unfinished.how_it_ended(run) else unfinished.shortfalls(run)

    def alive(step: Step) -> Table:
        return run.table.alive(step.begin_s, step.end_s)

    for step in run.steps:
        if step.measured and step.measure_s:
            before = ramps.get(step.repeat, [])
            row = row_of(scenario, step, alive(step), before, run.samples, run.client)
            row = with_deaths(row, run.info.dead_workers)
            gone = unfinished.without_record(shortfalls, row.window_begin_s, row.window_end_s)
            ramps[step.repeat] = with_ceiling(scenario, before, with_missing(row, gone, run.info.dead_workers))
            measured.append(step)
    rows = [row for ramp in ramps.values() for row in ramp]

    def look_at(i: int) -> WindowView:
        return window_view(alive(measured[i]), rows[i].window_s)

    return regimes.widen(rows, look_at, scenario.slo.quantile)


def row_of(
    scenario: Scenario,
    step: Step,
    table: Table,
    before: Sequence[Row],
    samples: Sequence[Sample],
    client: Sequence[ClientSample],
    now_s: float | None = None,
) -> Row:
    """The row of ``step``, with what the scenario has to say about it.

    Args:
        scenario: its SLO and error limit.
        step: which step.
        table: every request that was alive in it.
        before: the rows of the steps before it.
        samples, client: of the whole run.
        now_s: the instant up to which the data reaches; None: all of it is there.
    """
    offer = offer_of(scenario, step)
    streamed = scenario.target.stream
    first: Measure = "ttft" if streamed else "e2e"  # of an answer that comes whole they are the same
    row = fold(
        step,
        table,
        samples=samples,
        client=client,
        slo=scenario.slo,
        base_ttft_p50_s=next((row.of(first).p50.value for row in before if not row.void), None),
        now_s=now_s,
        share=offer.share,
        gap_cv=offer.gap_cv,
        streamed=streamed,
    )
    return replace(row, repeat=step.repeat, overloaded=_overloaded(scenario, table.due_in(row.window_s)))


def with_ceiling(scenario: Scenario, before: Sequence[Row], row: Row) -> list[Row]:
    """The rows of one ramp up to ``row``, completed, the last one with the ceiling as known by then."""
    *earlier, last = completed([*before, row])
    return [*earlier, replace(last, ceiling_rps=three_numbers(scenario, [*earlier, last])["ceiling"].rate_rps)]


def ended_at(step: Step, end_s: float) -> Step:
    """``step`` as it was when it ended at ``end_s``, before its time."""
    return replace(step, measure_s=max(0.0, end_s - step.window_s[0]), partial=True)


def as_it_went(run: Run) -> list[Step]:
    """The steps; the last one as far as the data reaches where nobody wrote down when it ended: a run that was killed,
    or that still goes on."""
    steps = list(run.steps)
    if run.info.state != "running" or not steps:
        return steps
    end_s = last_word_s(run)
    if end_s < steps[-1].end_s - SAMPLING_S:
        steps[-1] = ended_at(steps[-1], end_s)
    return steps


def last_word_s(run: Run) -> float:
    """The last instant of which a run's files tell anything."""
    instants = [
        run.table.due_s,
        run.table.stream_end_s,
        [sample.t_s for sample in run.client],
        [sample.t_s for sample in run.samples],
    ]
    known_s = np.concatenate([np.asarray(times, dtype=np.float64) for times in instants])
    return float(known_s[~np.isnan(known_s)].max(initial=0.0))


def count_again(scenario: Scenario, row: Row, table: Table) -> Row:
    """The row with its counts brought up to what has become of its requests since; ``table`` holds all of them."""
    due = table.due_in(row.window_s)
    return replace(counts(row, due), overloaded=_overloaded(scenario, due))


def _overloaded(scenario: Scenario, due: Table) -> bool:
    return fails_too_often(due, scenario.pace.max_error_ratio)


def with_deaths(row: Row, deaths: Sequence[WorkerDeath]) -> Row:
    """A step in which a worker was gone did not get its load: void."""
    reasons = [death.reason for death in deaths if death.t_s <= row.window_end_s]
    if not reasons:
        return row
    cure = "" if row.void else RESTART
    return replace(row, void=(*(Void(reason, cure) for reason in reasons), *row.void))


def with_missing(row: Row, number: int, deaths: Sequence[WorkerDeath]) -> Row:
    """A step of whose requests ``number`` were sent and have no record: void, but for a few. Where a worker has died
    they may have been under way in it, and the run's files are whole."""
    sent = row.requests + number
    if row.void or number <= max(1.0, (1.0 - SENT_RATIO) * sent):
        return row
    what = f"at least {number:,} of the requests that were sent have no record"
    if deaths:
        return replace(row, void=(Void(f"{what}: {deaths[0].reason}", RESTART),))
    return replace(row, void=(Void(what, unfinished.WHOLE, NO_RECORD),))


def three_numbers(scenario: Scenario, rows: Sequence[Row]) -> dict[str, Estimate]:
    """``ceiling``, ``p99_itl_knee`` and ``slo_capacity`` of completed rows, as the scenario asks for them."""
    return estimate(rows, knee=scenario.knee, slo=scenario.slo)
