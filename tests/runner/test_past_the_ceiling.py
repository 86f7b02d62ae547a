"""Ramps that double far past the ceiling, in worlds that answer, refuse or limit in their own ways: what they conclude.

The engine has 32 seats and serves 6.9 req/s, however many requests wait.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from middleboxes import NO_FILES, World, balanced, most_connections, rate_limit, seats
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.record.table import Run
from loadramp.report.verdict_text import verdict, verdict_sentence
from loadramp.simulator.faults import Faults

CEILING_RPS = 6.9
ENGINE = seats(CEILING_RPS, 32, tokens=4)
TEXT = """
seed = 5
[prompts]
kind = "fixed"
input_tokens = 20
output_tokens = 4
[arrivals]
kind = "{arrivals}"
[ramp]
start_rps = {start}
measure_s = 60
soak_s = {soak}
settle_s = 5
settle_requests = 0
{more}
"""


def ramp(
    tmp_path: Path, world: World | None = None, *, start: float = 2, soak: float = 60, arrivals: str = "poisson",
    more: str = "", **options: Any,
) -> Run:  # fmt: skip
    text = TEXT.format(start=start, soak=soak, arrivals=arrivals, more=more)
    return ramp_in_memory(scenario_of(text), tmp_path, options.pop("profile", ENGINE), world=world, **options)


def offered(run: Run) -> list[tuple[str, float]]:
    return [(row.role, round(row.rate_rps or 0.0, 2)) for row in run.rows]


@pytest.mark.long
def test_the_first_step_whose_queue_grows_and_that_serves_clearly_less_ends_the_doubling(tmp_path: Path) -> None:
    """8 req/s are due and 6.9 served, 0.86 of them: that no more than 0.85 were missing let the ramp go on to 16."""
    run = ramp(tmp_path, arrivals="constant")
    assert offered(run)[:3] == [("step", 2), ("step", 4), ("step", 8)]
    assert run.rows[2].throughput_rps / run.rows[2].arrival_rps > 0.85
    assert run.rows[2].deficit
    assert [row.role for row in run.rows[3:]] == ["soak"]
    found = run.estimates["ceiling"]
    assert found.status == "found"
    assert found.rate_rps == pytest.approx(CEILING_RPS, rel=0.05)
    assert found.sustained_rps == pytest.approx(0.85 * CEILING_RPS, rel=0.05)
    assert verdict(run) == "pass"
    assert (
        "Sustains 5.89 req/s (soaked 60 s); ceiling 6.93 (6.17-7.79), where the queue grows without end"
        in verdict_sentence(run)
    )


@pytest.mark.long
def test_connections_refused_far_above_the_ceiling_do_not_take_it_away(tmp_path: Path) -> None:
    """The step at 14 req/s opens more connections than the server takes, and goes on to serve as much as at 7."""
    run = ramp(tmp_path, most_connections(250), start=1.75)
    assert run.rows[3].errors["connect"] > 100
    assert run.rows[3].overloaded
    assert run.estimates["ceiling"].status == "found"
    assert run.estimates["ceiling"].rate_rps == pytest.approx(CEILING_RPS, rel=0.05)
    assert offered(run)[4][0] == "soak"
    assert verdict(run) == "pass"
    said = verdict_sentence(run)
    assert "Sustains" in said
    assert "of the requests fail" in said
    assert "broke down" not in said


@pytest.mark.long
def test_a_client_without_descriptors_is_void_and_not_the_servers_ceiling(tmp_path: Path) -> None:
    """Its first error came when 14 streams were open: at 2 req/s, a third of what the server can do."""
    run = ramp(tmp_path, most_connections(14, "client", NO_FILES), start=1)
    assert [bool(row.void) for row in run.rows] == [False, True, True]
    assert run.estimates["ceiling"].status == "not_found_up_to"
    assert run.estimates["ceiling"].rate_rps == 1.0
    assert "raise max_in_flight, or where it is not set the limit on open files (ulimit -n)" in verdict_sentence(run)


@pytest.mark.long
def test_between_an_alarm_and_a_rate_that_the_client_cannot_deliver_one_more_rate_is_tried(tmp_path: Path) -> None:
    run = ramp(tmp_path, start=1.75, more="max_in_flight = 400")
    assert offered(run)[:6] == [
        ("step", 1.75), ("step", 3.5), ("step", 7), ("step", 14), ("step", 14), ("step", 9.9),
    ]  # fmt: skip
    assert [bool(row.void) for row in run.rows[:6]] == [False, False, False, True, True, False]
    assert run.estimates["ceiling"].status == "found"
    assert run.estimates["ceiling"].rate_rps == pytest.approx(CEILING_RPS, rel=0.05)


@pytest.mark.long
def test_a_limiter_that_lets_bursts_pass_does_not_leave_the_burst_as_the_ceiling(tmp_path: Path) -> None:
    """4 req/s pass, and 200 at once before that: the step at 8 req/s is served by the burst, the soaks are not."""
    run = ramp(tmp_path, rate_limit(4.0, 200), soak=120, faults=Faults(error_status=429))
    assert run.rows[2].throughput_rps > 6
    found = run.estimates["ceiling"]
    assert found.rate_rps == pytest.approx(4.0, rel=0.1)
    assert found.sustained_rps is not None
    assert 3.0 < found.sustained_rps < 4.0
    assert "of the requests fail in a soak at" in verdict_sentence(run)


def test_a_full_queue_that_refuses_is_the_ceiling_with_what_it_refuses(tmp_path: Path) -> None:
    run = ramp(tmp_path, profile=replace(ENGINE, max_queue=20))
    assert offered(run)[-2] == ("step", 8)
    assert run.estimates["ceiling"].rate_rps == pytest.approx(CEILING_RPS, rel=0.05)
    said = verdict_sentence(run)
    assert "without end" not in said  # it holds twenty
    assert "where the ramp ended because 2" in said


def test_a_dead_replica_is_no_ceiling_below_the_lowest_rate(tmp_path: Path) -> None:
    """Every second request is answered 502, whatever the load: nothing tells at what rate the other replica is full."""
    run = ramp(tmp_path, balanced(None), metrics=False)
    assert offered(run) == [("step", 2)]
    assert (run.estimates["ceiling"].status, verdict(run)) == ("inconclusive", "inconclusive")
    said = verdict_sentence(run)
    assert "50 % of the requests fail at the lowest rate already, and no queue grows" in said
    assert "Start lower" not in said


@pytest.mark.long
def test_a_replica_that_joins_in_mid_step_raises_the_ceiling(tmp_path: Path) -> None:
    """From the middle of the step at 8 req/s on there are two: its queue is worked off, and 16 overload both."""
    run = ramp(tmp_path, balanced(ENGINE, from_s=180.0), metrics=False, soak=0)
    assert offered(run)[-1] == ("step", 16)
    assert run.estimates["ceiling"].rate_rps == pytest.approx(2 * CEILING_RPS, rel=0.05)


def test_an_endpoint_that_is_gone_before_a_step_is_measured_ends_the_ramp(tmp_path: Path) -> None:
    """After 20 failures in the warm-up the step has no measured part to make a row of."""
    run = ramp(tmp_path, most_connections(0), start=10, more="warmup_s = 30\ngive_up_s = 10")
    assert (run.info.stop_cause, run.info.state, run.rows) == ("gone", "stopped", [])
    assert run.info.ending == "the endpoint stopped answering"
    assert (run.steps[-1].measure_s, run.steps[-1].partial) == (0.0, True)
