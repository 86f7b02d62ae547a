"""What ``loadramp plan`` answers: the steps and the shape of a scenario's load, or the shape of what a run sent.

Rule: steps are chosen by the functions that the commands themselves use.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

from loadramp.analysis.offered_load import load_rps, pairs, way_out
from loadramp.client import input_files
from loadramp.registry import FEATURES, reach
from loadramp.report.preview import (
    parts_document,
    parts_table,
    preview_document,
    preview_table,
    profile_document,
    profile_lines,
    ramp_notes,
)
from loadramp.runner.gate_check import check_rules, unpassable
from loadramp.runner.input_check import check_input, doubts
from loadramp.runner.model_lengths import asked_lengths, lengths
from loadramp.runner.scenarios import Options, read_run, read_scenario, with_target
from loadramp.scenario.scenario import Scenario
from loadramp.units import plural
from loadramp.workload.preview import PreviewPart, PreviewStep, longer_steps_note, offered_rates, preview_steps
from loadramp.workload.profile import LengthOf, overlong, profile_of_plan, profile_of_run
from loadramp.workload.schedule import offer_of, turns_of

Answer = tuple[dict[str, Any], str]
"""For programs and for people."""


def of_scenario(path: Path, overrides: Sequence[str] = (), length_of: LengthOf | None = None) -> Answer:
    """The preview of the scenario at ``path``: of ``run``, and of each command that it has a table for.

    ``length_of``: how long a request each model takes, where an endpoint was asked; None: as the labels say.

    Raises:
        ScenarioError: it, or a file that it names, cannot be read; or a threshold that cannot be judged.
    """
    scenario = read_scenario(path, overrides)
    check_rules(scenario)
    check_input(scenario)
    document, words, notes = _of_ramp(scenario, length_of)
    full = input_files.ready(scenario)
    parts = {
        table: reach(preview)(full, lambda more: read_scenario(path, [*overrides, *more]))
        for feature in FEATURES.values()
        for table, preview in feature.previews.items()
        if table in scenario.tables
    }
    if not parts:
        return document, words
    steps = next((part.steps for chosen in parts.values() for part in chosen if part.steps), ())
    profile = profile_of_plan(full, [planned.step for planned in steps])
    words = "\n".join([parts_table(full, parts, document, profile, _files(full)), *notes])
    return document | {name: parts_document(chosen) for name, chosen in parts.items()}, words


def of_endpoint(path: Path, overrides: Sequence[str], base_url: str, model: str | None) -> Answer:
    """The same with what the list of models at ``base_url`` tells of how long a request may be.

    Raises:
        CannotMeasure: it does not list any.
        ScenarioError: as above; or it lists several models, and none is named.
    """
    scenario = with_target(read_scenario(path, overrides), Options(base_url=base_url, model=model))
    return of_scenario(path, overrides, asyncio.run(asked_lengths(scenario)))


def foreseen(scenario: Scenario) -> Answer:
    """The preview of a run of a scenario that was read."""
    document, words, _ = _of_ramp(scenario)
    return document, words


def _of_ramp(scenario: Scenario, length_of: LengthOf | None = None) -> tuple[dict[str, Any], str, list[str]]:
    """The same, and what it says of thresholds that cannot pass."""
    full = input_files.ready(scenario)
    steps = planned_steps(full)
    profile = profile_of_plan(full, [planned.step for planned in steps])
    files = _files(full)
    document = preview_document(full, steps, profile, files)
    too_long = overlong(full, length_of or lengths(full))
    asked = [feature for feature in FEATURES.values() if feature.rates and feature.tables.keys() & full.asked.keys()]
    beside = [rate for feature in asked for rate in reach(feature.rates)(full)]
    notes = [
        *(f"warning: {doubt}" for doubt in doubts(full)),
        *longer_steps_note(full),
        *offered_notes(full, steps),
        *unpassable(full, steps, beside),
    ]
    if too_long is not None:
        document["over_length"] = {
            "ratio": too_long.longer / too_long.requests,
            "requests": too_long.requests,
            "longer": too_long.longer,
            "max_model_len": too_long.max_model_len,
        }
        notes += [too_long.words()] if too_long.longer else []
    document["notes"] += notes
    return document, "\n".join([preview_table(full, steps, profile, files), *notes]), notes


def _files(scenario: Scenario) -> list[str]:
    """What became of the rows of its files: counts, the first bad rows, and what rows say and the run does not do."""
    return [
        *input_files.skipped_rows(scenario),
        *input_files.bad_rows(scenario),
        *input_files.not_followed(scenario, scenario.target.model),
    ]


def planned_steps(scenario: Scenario) -> list[PreviewStep]:
    """The steps of a scenario with its files read."""
    return with_offered(scenario, list(preview_steps(scenario)))


def ramp_part(title: str, scenario: Scenario, *after: str, before: Sequence[str] = (), runs: int = 1) -> PreviewPart:
    """The steps of a scenario with its files read, and what is to be said of them, after and before other notes."""
    steps = planned_steps(scenario)
    notes = [*ramp_notes(scenario), *longer_steps_note(scenario), *offered_notes(scenario, steps)]
    return PreviewPart(title, tuple(steps), (*before, *notes, *after), runs)


def with_offered(scenario: Scenario, steps: Sequence[PreviewStep]) -> list[PreviewStep]:
    """The steps with what they would offer in their measured part."""
    rates = offered_rates(scenario, [planned.step for planned in steps])
    return [replace(planned, offered_rps=rate) for planned, rate in zip(steps, rates, strict=True)]


def offered_notes(scenario: Scenario, steps: Sequence[PreviewStep]) -> list[str]:
    """A line for the steps that would offer clearly less than they ask for, and one for those that would offer more."""
    turns = turns_of(scenario)
    times: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for planned in steps:
        step = planned.step
        if not step.measured or not step.rate_rps or not step.measure_s or planned.offered_rps is None:
            continue
        offer = offer_of(scenario, step)
        gap_cv = sqrt(turns) * (1.0 if offer.gap_cv is None else offer.gap_cv)  # sessions bring all their turns
        due = round(planned.offered_rps * step.measure_s)
        claim_rps = load_rps(step.rate_rps, due, step.measure_s, share=offer.share, gap_cv=gap_cv)
        if claim_rps != step.rate_rps:
            times[claim_rps < step.rate_rps].append((step.rate_rps, claim_rps))
    cure = way_out(scenario.arrivals.kind, turns > 1.0)
    return [
        f"{pairs(list(dict.fromkeys(apart)))}: such a step speaks for what is offered, not for what is asked. To offer "
        f"what is asked, {cure}."
        for apart in times.values()
        if apart
    ]


def of_run(path: Path) -> Answer:
    """The shape of the load that the run in ``path`` sent.

    Raises:
        RunDirError: it is no run.
    """
    run, skipped = read_run(path)
    profile = profile_of_run(run)
    document = {"name": run.info.name or "", "run_dir": str(path), "profile": profile_document(profile)}
    torn = [f"{plural(skipped, 'torn line', 'were')} skipped"] if skipped else []
    return document, "\n".join([f"{run.info.name or ''}: what was sent", "", *profile_lines(profile), *torn])
