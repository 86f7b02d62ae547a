"""When the endpoint changes under the ramp: jumps of the pace, replicas that come and go."""

from dataclasses import replace

import pytest
from simulated_ramps import CHAT, found, ladder

from benchmarks.engine_population import Lengths
from loadramp.analysis.diagnosis.capacity_shifts import replica_moves
from loadramp.analysis.diagnosis.symptoms import case_of
from loadramp.record.types import Sample
from loadramp.runner.assess import assess
from loadramp.simulator.profiles import PROFILES

SMALL = PROFILES["small"]


def scrapes(url: str, times: range, **values: float) -> list[Sample]:
    return [Sample(float(t), url, values) for t in times]


@pytest.mark.parametrize("factor", [0.5, 0.7, 1.6, 2.5])
def test_a_jump_is_dated_and_measured(factor: float) -> None:
    run = ladder(replace(SMALL, speeds=((24.0, factor),)), [3])
    jump = case_of(run).steps[0].jump
    assert jump is not None
    assert jump.t_s == pytest.approx(24.0, abs=1.5)
    assert jump.before_s / jump.after_s == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("rates", [[3], [12], [40]])
def test_no_jump_in_an_engine_that_stays_as_it_is(rates: list[float]) -> None:
    assert case_of(ladder(SMALL, rates)).steps[0].jump is None


def test_a_slow_patch_that_passes_is_no_change_of_capacity() -> None:
    run = ladder(replace(SMALL, speeds=((24.0, 0.4), (27.0, 1.0))), [3])
    assert case_of(run).steps[0].jump is None


def test_a_batch_that_fills_up_and_slows_down_is_no_change_of_capacity() -> None:
    profile = replace(PROFILES["h100-8b"], decode_s=150e-6)
    run = ladder(profile, [8, 48], Lengths(200, 0.3, 150, 0.3))
    assert [one.jump for one in case_of(run).steps] == [None, None]


def test_a_step_too_short_for_two_levels_has_none() -> None:
    assert case_of(ladder(SMALL, [3], CHAT, measure_s=8.0)).steps[0].jump is None


def test_replicas_that_come_and_go_are_told_by_number() -> None:
    first = scrapes("http://a:1/metrics?key=secret", range(100), running=1.0)
    late = [Sample(float(t), "b", error="no answer") for t in range(40)] + scrapes("b", range(40, 100), running=1.0)
    gone = scrapes("c", range(60), running=1.0) + [Sample(float(t), "c", error="no answer") for t in range(60, 100)]
    words = [one.words for one in replica_moves([*first, *late, *gone])]
    assert words == ["replica 2 appeared 40 s into the run", "replica 3 fell silent 59 s into the run"]
    assert replica_moves(first) == []


def test_a_page_refused_in_overload_is_only_possibly_a_replica_that_went() -> None:
    run = ladder(replace(SMALL, max_num_seqs=16), [4, 48])
    refused = scrapes("b", range(60), running=1.0) + [Sample(float(t), "b", error="refused") for t in range(60, 76)]
    finding = found(assess(replace(run, samples=[*run.samples, *refused])), "autoscaler_moved")
    assert finding.confidence == "possible"
    assert "replica 2 fell silent 59 s into the run" in finding.evidence
    assert finding.evidence[-1] == "in overload, and no stream broke: it may be the page alone that was refused"
    quiet = ladder(SMALL, [2, 4])
    told = assess(replace(quiet, samples=[*quiet.samples, *refused]))
    assert found(told, "autoscaler_moved").confidence == "likely"


def test_a_single_server_whose_page_falls_silent_is_no_autoscaler() -> None:
    assert replica_moves([*scrapes("a", range(60), running=1.0), Sample(80.0, "a", error="timeout")]) == []


def test_capacity_that_the_server_says_changed() -> None:
    samples = scrapes("a", range(50), kv_blocks=1000.0) + scrapes("a", range(50, 99), kv_blocks=2000.0)
    assert [one.words for one in replica_moves(samples)] == ["the KV blocks of replica 1 changed from 1000 to 2000"]
