"""Judges a run: rows, the three numbers, checks, findings. The same functions while it goes on and from its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadramp.advise.cures import with_cures
from loadramp.judge.checks import run_checks
from loadramp.judge.curve import fold
from loadramp.judge.diagnose import diagnose
from loadramp.judge.knee import estimate
from loadramp.judge.repeats import by_repeat, not_enough, pooled_estimates, pooled_rows
from loadramp.judge.validity import RESTART
from loadramp.plan.scenario import Scenario
from loadramp.record.table import Run, Table
from loadramp.record.types import Check, ClientSample, Estimate, Row, Sample, Step


def assess(run: Run, scenario: Scenario) -> Run:
    """Judge a run anew from what is on disk: rows, the three numbers, checks, and why it gives way.

    ``run`` is filled in and returned.
    """
    ramps = by_repeat(_rows(run, scenario))
    each = [three_numbers(scenario, rows) for rows in ramps] or [three_numbers(scenario, [])]
    run.rows = [row for rows in ramps for row in rows]
    run.estimates = each[0]
    run.checks = run_checks(run)
    run.rows = ramps[0] if ramps else []  # why it gives way is asked of one whole ramp
    run.findings = diagnose(run)
    run.findings = with_cures(run)
    if len(ramps) > 1:
        run.rows, run.repeats = pooled_rows(ramps), each
        run.estimates = pooled_estimates(each)
        scatter = not_enough(each)
        if scatter:
            run.checks.append(Check("repeats_scatter", "note", scatter, "trust the interval over the repeats"))
    return run


def _rows(run: Run, scenario: Scenario) -> list[Row]:
    """The rows of all ramps of the run, each with the estimate of its own ramp up to it."""
    rows: list[Row] = []
    done_s = run.table.done_s
    for step in run.steps:
        if step.measured and step.measure_s:
            before = [row for row in rows if row["repeat"] == step.repeat]
            alive = run.table.select(done_s >= step.begin_s)
            row = row_of(scenario, step, alive, before, run.samples, run.client)
            mark_dead(row, run.info.get("dead_workers", []))
            row["ceiling_rps"] = three_numbers(scenario, [*before, row])["ceiling"].rate_rps
            rows.append(row)
    return rows


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
    row = fold(
        step,
        table,
        samples=samples,
        client=client,
        limits=scenario.slo.limits,
        quantile=scenario.slo.quantile,
        base_ttft_p50_s=next((one.get("ttft_p50_s") for one in before if not one["void"]), None),
        now_s=now_s,
    )
    ratio = row["error_ratio"]
    row["repeat"] = step.repeat
    row["overloaded"] = ratio is not None and ratio > scenario.pace.max_error_ratio
    return row


def mark_dead(row: Row, deaths: Sequence[dict[str, Any]]) -> None:
    """A step in which a worker was gone did not get its load: void. ``deaths`` hold ``t_s`` and ``reason``."""
    reasons = [death["reason"] for death in deaths if death["t_s"] <= row["window_end_s"]]
    if reasons:
        known = row["reasons"].get("void")
        row["void"] = True
        row["reasons"]["void"] = "; ".join([*reasons, known or RESTART])


def three_numbers(scenario: Scenario, rows: Sequence[Row]) -> dict[str, Estimate]:
    """``ceiling``, ``p99_itl_knee`` and ``slo_capacity`` as the scenario asks for them."""
    slo = scenario.slo
    return estimate(
        rows,
        knee=scenario.knee,
        limits=slo.limits,
        quantile=slo.quantile,
        error_ratio=slo.error_ratio,
        good_ratio=slo.good_ratio,
    )
