"""Judges a run: rows, the three numbers, checks, findings. The same functions while it goes on and from its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadramp.advise.cures import with_cures
from loadramp.judge.checks import run_checks
from loadramp.judge.curve import fold
from loadramp.judge.diagnose import diagnose
from loadramp.judge.knee import estimate
from loadramp.plan.scenario import Scenario
from loadramp.record.table import Run, Table
from loadramp.record.types import ClientSample, Estimate, Row, Sample, Step


def assess(run: Run, scenario: Scenario) -> Run:
    """Judge a run anew from what is on disk: rows, the three numbers, checks, and why it gives way.

    ``run`` is filled in and returned.
    """
    run.rows = []
    done_s = run.table.done_s
    for step in run.steps:
        if step.measured and step.measure_s:
            alive = run.table.select(done_s >= step.begin_s)
            run.rows.append(row_of(scenario, step, alive, run.rows, run.samples, run.client))
            mark_dead(run.rows[-1], run.info.get("dead_workers", []))
            run.rows[-1]["ceiling_rps"] = three_numbers(scenario, run.rows)["ceiling"].rate_rps
    run.estimates = three_numbers(scenario, run.rows)
    run.checks = run_checks(run)
    run.findings = diagnose(run)
    run.findings = with_cures(run)
    return run


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
        base_ttft_p50_s=before[0].get("ttft_p50_s") if before else None,
        now_s=now_s,
    )
    ratio = row["error_ratio"]
    row["overloaded"] = ratio is not None and ratio > scenario.pace.max_error_ratio
    return row


def mark_dead(row: Row, deaths: Sequence[dict[str, Any]]) -> None:
    """A step in which a worker was gone did not get its load: void. ``deaths`` hold ``t_s`` and ``reason``."""
    reasons = [death["reason"] for death in deaths if death["t_s"] <= row["window_end_s"]]
    if reasons:
        known = row["reasons"].get("void")
        row["void"] = True
        row["reasons"]["void"] = "; ".join([*([known] if known else []), *reasons])


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
