"""Troubles that only exist on the wire, through the real conductor, client and parser in memory."""

from dataclasses import replace
from pathlib import Path

import pytest
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.record.table import Run
from loadramp.report import verdict_document
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES, EngineProfile

SMALL = PROFILES["small"]


def ladder(tmp_path: Path, rates: list[float], profile: EngineProfile = SMALL, faults: Faults | None = None) -> Run:
    text = f"""
seed = 5
[prompts]
kind = "fixed"
input_tokens = 50
output_tokens = 30
[ramp]
kind = "ladder"
rates = {rates}
warmup_s = 3
measure_s = 20
settle_s = 2
settle_requests = 0
tail_s = 1
max_error_ratio = 1.0
"""
    return ramp_in_memory(scenario_of(text), tmp_path, profile, faults)


def first(run: Run) -> tuple[str, str]:
    return run.findings[0].code, run.findings[0].confidence


def test_a_healthy_server_on_the_wire_is_healthy_and_counts_what_the_client_counts(tmp_path: Path) -> None:
    run = ladder(tmp_path, [3, 6])
    assert [finding.code for finding in run.findings] == ["healthy"]
    assert not [check for check in run.checks if check.code == "server_counts"]
    assert verdict_document(run)["diagnosis"][0]["code"] == "healthy"


def test_too_many_requests_in_flight_are_refused_with_429(tmp_path: Path) -> None:
    run = ladder(tmp_path, [4, 20], replace(SMALL, max_in_flight=9))
    assert first(run) == ("admission_failure", "certain")
    assert run.findings[0].steps == (2,)
    assert "with at most 9 in flight" in run.findings[0].evidence[0]


def test_a_full_queue_is_refused_inside_a_stream_of_status_200(tmp_path: Path) -> None:
    run = ladder(tmp_path, [4, 24], replace(SMALL, max_num_seqs=12, max_queue=5))
    assert first(run) == ("admission_failure", "certain")
    assert any("the server itself counted" in words for words in run.findings[0].evidence)


@pytest.mark.parametrize("kind", ["engine", "process"])
def test_a_server_that_dies_under_load_is_down(tmp_path: Path, kind: str) -> None:
    faults = Faults(crash_running=14, crash_kind=kind, restart_s=4.0)  # type: ignore[arg-type]  # a literal by parametrize
    run = ladder(tmp_path, [4, 24], SMALL, faults)
    assert first(run) == ("server_down", "certain")
    assert any("in flight when the first of them failed" in words for words in run.findings[0].evidence)
    assert run.findings[0].cures[0].name == "logs"


def test_a_proxy_that_buffers_is_named_and_gaps_are_not_laid_at_the_engines_door(tmp_path: Path) -> None:
    run = ladder(tmp_path, [3, 6], SMALL, Faults(coalesce_s=0.12))
    assert first(run) == ("proxy_buffering", "likely")
    assert [finding.code for finding in run.findings] == ["proxy_buffering"]


@pytest.mark.long
def test_streams_that_freeze_one_by_one_at_any_load_are_not_the_kv_cache(tmp_path: Path) -> None:
    run = ladder(tmp_path, [4, 6, 8], SMALL, Faults(stall_ratio=0.15, stall_s=0.6))
    assert first(run) == ("stream_stall", "likely")
    assert "the server counted no preemptions" in run.findings[0].evidence


def test_failures_of_any_load_are_errors(tmp_path: Path) -> None:
    run = ladder(tmp_path, [4, 8], SMALL, Faults(error_ratio=0.1))
    assert first(run) == ("errors", "certain")
    assert "healthy" not in {finding.code for finding in run.findings}


def test_flags_are_those_of_the_server_that_was_found(tmp_path: Path) -> None:
    run = ladder(tmp_path, [3, 15], replace(SMALL, max_num_seqs=4))
    assert first(run)[0] == "scheduler_oversubscription"
    assert run.findings[0].cures[0].name == "more_sequences"
    assert run.findings[0].cures[0].change == ""  # this harness asked nobody what the engine is
