"""Whole runs in memory on the jumping clock: the real conductor, fleet, client and parser against the simulator."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.record.row import Row, void_words
from loadramp.record.table import Run
from loadramp.record.types import Arrival, Record
from loadramp.report.progress import Progress
from loadramp.runner.assess import assess
from loadramp.runner.conductor import Conductor
from loadramp.runner.scenarios import read_run
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.service import Service

SHORT = """
seed = 5
[prompts]
kind = "fixed"
input_tokens = 50
output_tokens = 12
[arrivals]
kind = "poisson"
[ramp]
warmup_s = 3
measure_s = 20
settle_s = 2
settle_requests = 0
tail_s = 1
"""


def test_a_ceiling_ramp_climbs_drains_soaks_and_finds_the_capacity(tmp_path: Path) -> None:
    text = SHORT.replace("output_tokens = 12", "output_tokens = 60") + "start_rps = 4\nsoak_s = 40\n"
    run = ramp_in_memory(scenario_of(text), tmp_path, replace(PROFILES["small"], max_num_seqs=12))
    assert run.info.state == "complete"
    roles = [step.role for step in run.steps]
    assert roles[0] == "settle"
    assert roles[-3:] == ["drain", "soak", "tail"]
    ceiling = run.estimates["ceiling"]
    assert ceiling.status == "found"
    assert ceiling.rate_rps is not None
    assert ceiling.sustained_rps == pytest.approx(0.85 * ceiling.rate_rps, rel=0.05)
    # what this simulated engine does under overload, counted from the records: completions a second in the last step
    last = [step for step in run.steps if step.role == "step"][-1]
    begin_s, end_s = last.window_s
    done = run.table.ok & (run.table.stream_end_s >= begin_s) & (run.table.stream_end_s < end_s)
    assert ceiling.rate_rps == pytest.approx(float(np.count_nonzero(done)) / (end_s - begin_s), rel=0.1)
    assert [row.void for row in run.rows] == [()] * len(run.rows)


def test_the_same_seed_gives_the_same_run_to_the_bit(tmp_path: Path) -> None:
    text = SHORT + "kind = 'ladder'\nrates = [3, 6]\n"
    first, second = (ramp_in_memory(scenario_of(text), tmp_path / name) for name in "ab")
    files = [sorted(Path(run.path).glob("records-*.jsonl"))[0].read_bytes() for run in (first, second)]
    assert files[0] == files[1]
    assert len(first.table) > 200


@pytest.mark.long
def test_load_is_carried_from_step_to_step_and_requests_belong_to_the_step_they_were_due_in(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT + "kind = 'ladder'\nrates = [10, 10, 10]\n"), tmp_path)
    measured = [step for step in run.steps if step.measured]
    assert [b.begin_s - a.end_s for a, b in pairwise(measured)] == pytest.approx([0.05, 0.05], abs=0.02)
    for step, row in zip(measured, run.rows, strict=True):
        begin_s, end_s = step.window_s
        due = (run.table.due_s >= begin_s) & (run.table.due_s < end_s)
        assert set(run.table.step[due]) == {step.index}
        assert row.requests == np.count_nonzero(due) == row.ok
        assert row.pending == 0
    gaps_s = np.diff(np.sort(run.table.due_s))
    assert gaps_s.max() < 1.5  # no hole between steps


def test_a_closed_loop_ladder_offers_its_users(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT + "kind = 'users'\nusers = [1, 4]\n"), tmp_path)
    assert [row.users for row in run.rows] == [1, 4]
    assert [round(row.in_flight_mean) for row in run.rows] == [1, 4]
    assert [row.in_flight_max for row in run.rows] == [1, 4]
    assert run.rows[1].done_rps > 2 * run.rows[0].done_rps


def test_an_interrupted_run_keeps_what_it_measured(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT + "kind = 'ladder'\nrates = [4, 4, 4]\n"), tmp_path, stop_at_s=40.0)
    assert run.info.state == "stopped"
    assert run.info.ending == "interrupted"
    assert len(run.rows) == 2
    assert run.rows[0].requests == pytest.approx(80, abs=30)
    assert run.table.due_s.max() <= 40.0
    assert run.steps[-1].end_s == pytest.approx(40.0, abs=0.1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("cap", "ending"),
    [("max_requests = 300", "max_requests = 300"), ("max_minutes = 1", "max_minutes = 1")],
)
def test_caps_end_a_ramp_before_the_step_that_would_exceed_them(tmp_path: Path, cap: str, ending: str) -> None:
    run = ramp_in_memory(scenario_of(SHORT + f"kind = 'ladder'\nrates = [4, 4, 4, 4, 4]\n{cap}\n"), tmp_path)
    assert run.info.state == "stopped"
    assert ending in run.info.ending
    assert 1 <= len(run.rows) <= 3
    assert len(run.table) <= 310


def test_a_cap_on_requests_in_flight_makes_the_step_void(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT + "kind = 'ladder'\nrates = [40]\nmax_in_flight = 3\n"), tmp_path)
    assert run.rows[0].void
    assert "max_in_flight" in void_words(run.rows[0].void) or "held" in void_words(run.rows[0].void)
    assert run.estimates["ceiling"].status != "found"


def test_too_many_errors_end_the_ramp(tmp_path: Path) -> None:
    text = SHORT + "kind = 'ladder'\nrates = [5, 5, 5]\n"
    run = ramp_in_memory(scenario_of(text), tmp_path, faults=Faults(error_ratio=0.2))
    assert len(run.rows) == 1
    assert run.rows[0].overloaded
    assert run.rows[0].errors == {"http_5xx": pytest.approx(20, abs=15)}
    assert run.info.state == "stopped"


@pytest.mark.long
def test_a_server_that_dies_in_mid_ramp_ends_it_early_and_keeps_the_steps_before(tmp_path: Path) -> None:
    text = SHORT.replace("measure_s = 20", "measure_s = 100") + "kind = 'ladder'\nrates = [8, 8]\n"

    async def kill(ramping: Conductor, service: Service) -> None:
        await asyncio.sleep(130.0)
        service.crash()

    run = ramp_in_memory(scenario_of(text), tmp_path, meddle=kill)
    assert run.info.ending == "the endpoint stopped answering"
    assert len(run.rows) == 2
    assert run.rows[0].ok == run.rows[0].requests > 600
    assert run.steps[-1].end_s < 150.0
    assert run.rows[1].overloaded


def test_st10_every_request_failing_is_reported_not_raised(tmp_path: Path) -> None:
    """ST-10: a report is made, counts are there, latency is not."""
    run = ramp_in_memory(scenario_of(SHORT), tmp_path, faults=Faults(error_ratio=1.0))
    assert run.rows[0].ok == 0
    assert run.rows[0].of("ttft").p50.value is None
    assert run.rows[0].error_ratio == 1.0


def test_progress_is_shown_once_a_second(tmp_path: Path) -> None:
    seen: list[Progress] = []
    ramp_in_memory(scenario_of(SHORT + "kind = 'ladder'\nrates = [5]\n"), tmp_path, watch=seen.append)
    assert len(seen) == pytest.approx(27, abs=3)
    assert seen[-1].sent >= seen[-1].finished > 80
    assert {p.step.role for p in seen} == {"settle", "step", "tail"}


def test_a_run_is_valid_on_disk_after_every_step(tmp_path: Path) -> None:
    states: list[tuple[int, str]] = []

    def look(progress: Progress) -> None:
        info = json.loads(next(tmp_path.glob("*/run.json")).read_text())
        states.append((len(info["steps"]), info["state"]))

    run = ramp_in_memory(scenario_of(SHORT + "kind = 'ladder'\nrates = [5, 5]\n"), tmp_path, watch=look)
    assert {state for _, state in states} == {"running"}
    assert max(steps for steps, _ in states) >= 2
    again, skipped = read_run(Path(run.path))
    assert skipped == 0
    assert assess(again).rows == run.rows


def test_the_server_s_own_numbers_stand_beside_the_client_s(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(SHORT + "kind = 'ladder'\nrates = [5]\n"), tmp_path)
    assert run.rows[0].kv_used_ratio_max > 0
    assert run.rows[0].preemptions == 0
    assert run.rows[0].server_restarted is False
    assert len(run.samples) == pytest.approx(27, abs=4)


class SlowToLeave:
    """A client whose requests leave late: it keeps each for a while before it takes it up."""

    def __init__(self, client: Any, late_s: float) -> None:
        self.client, self.late_s = client, late_s

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def start(self, *_: object, patient: bool) -> None:
        """Not without a task."""

    def meanwhile(self, call: object) -> None:
        """Nothing takes long."""

    async def send(self, arrival: Arrival, request: bytes) -> Record:
        await asyncio.sleep(self.late_s)
        record: Record = await self.client.send(arrival, request)
        return record


def ramp_with_slow_leaving(text: str, tmp_path: Path, late_s: float) -> tuple[Run, list[Row]]:
    """The run as judged from its files, and the rows as they were while it went on."""
    seen: list[Conductor] = []

    async def meddle(ramping: Conductor) -> None:
        seen.append(ramping)
        await asyncio.sleep(0.01)
        share = ramping.fleet._worker.share
        share.client = SlowToLeave(share.client, late_s)

    run = ramp_in_memory(scenario_of(text), tmp_path, meddle=lambda ramping, _: meddle(ramping))
    return run, seen[0].rows


@pytest.mark.long
@pytest.mark.parametrize("late_s", [0.005, 0.09, 0.15, 0.9])
def test_a_step_of_five_seconds_is_void_while_the_run_goes_on_as_it_is_in_the_report(
    tmp_path: Path, late_s: float
) -> None:
    text = SHORT.replace("measure_s = 20", "measure_s = 5") + "kind = 'ladder'\nrates = [20, 50, 20]\n"
    run, early = ramp_with_slow_leaving(text, tmp_path, late_s)
    assert [void_words(row.void) for row in run.rows] == [void_words(row.void) for row in early]
    assert [bool(row.void) for row in early] == [late_s > 0.01] * 3
    assert [row.requests for row in run.rows] == [row.requests for row in early]


def test_requests_that_no_worker_has_come_to_are_of_the_step_they_are_due_in(tmp_path: Path) -> None:
    text = SHORT.replace("measure_s = 20", "measure_s = 5") + "kind = 'ladder'\nrates = [20]\n"
    run, (early,) = ramp_with_slow_leaving(text, tmp_path, 3.0)
    (late,) = run.rows
    assert early.requests == late.requests > 80
    assert early.pending > 50
    assert late.pending == 0
    assert "planned requests were not sent within the step" in void_words(early.void)
    assert void_words(late.void) == void_words(early.void)
