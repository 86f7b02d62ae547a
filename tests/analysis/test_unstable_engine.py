"""An engine whose pace comes and goes is called that, and is no change of capacity."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from records_and_rows import H200, answer
from run_in_memory import ramp_in_memory, scenario_of
from simulated_ramps import codes, found, ladder

from benchmarks.engine_population import Lengths
from loadramp.analysis.diagnosis.capacity_shifts import replica_moves
from loadramp.analysis.diagnosis.gap_causes import attribute
from loadramp.analysis.latency import window_view
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Record, Sample, Step
from loadramp.runner.assess import assess
from loadramp.runner.scenarios import load
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.regimes import CAPTURED, REGIMES, Regimes, Slow

SMALL = PROFILES["small"]
DOUBLING = Regimes((Slow(every_s=20.0, lasts_s=5.0, factor=2.0),))
STEPS = [Step(1, rate_rps=8.0, begin_s=7.04, warmup_s=12.0, measure_s=45.0),
         Step(2, rate_rps=16.0, begin_s=64.15, warmup_s=12.0, measure_s=45.0)]  # fmt: skip


def captured_ramp(metrics: bool = True) -> Run:
    """The first two steps of a ramp on vLLM 0.25.1 with one H200 (every token, 0.1 ms): it came back from a slow
    stretch 32 s into the run, and had others."""
    records: list[Record] = []
    with gzip.open(H200 / "regimes_ramp.jsonl.gz", "rt") as lines:
        for line in lines:
            due, step, prompt, output, gaps, *tokens = json.loads(line)
            due_s = due / 1e4
            more = {"event_tokens": tokens[0]} if tokens else {}
            more |= {"step": step, "prompt_tokens": prompt, "asked_output_tokens": output}
            after_s = [gap / 1e4 for gap in gaps]
            records.append(answer(len(records), due_s, due_s + after_s[0], after_s[1:], **more))
    with gzip.open(H200 / "regimes_ramp_server.jsonl.gz", "rt") as lines:
        samples = [Sample(t_s, "http://a", values) for t_s, values in map(json.loads, lines)]
    run = Run(RunInfo(), load(""), STEPS, Table.of(records), samples if metrics else [])
    return assess(run)


def test_the_captured_engine_came_back_from_a_slow_stretch_and_did_not_change_its_capacity() -> None:
    run = captured_ramp()
    assert "autoscaler_moved" not in [one.code for one in run.findings]
    finding = found(run, "engine_unstable")
    assert finding.confidence == "certain"
    assert finding.evidence[0] == "the engine's step time is unstable: 14.8 ms and 28.4 ms at 8 req/s"
    assert "slow stretches of median" in finding.evidence[1]
    assert "the longest lasted 13 s, from 19 s into the run on" in finding.evidence[1]
    assert "this makes the mean ITL of a step" in finding.evidence[2]
    assert finding.evidence[3].startswith("the server's own mean inter-token latency at 8 req/s is 2")
    cures = " ".join(cure.action + cure.when for cure in finding.cures)
    assert all(words in cures for words in ("CPU of the server's host", "CUDA graphs", "--enforce-eager", "clocks",
                                            "neighbours"))  # fmt: skip


def test_without_its_metrics_it_is_likely() -> None:
    run = captured_ramp(metrics=False)
    assert found(run, "engine_unstable").confidence == "likely"
    assert "autoscaler_moved" not in [one.code for one in run.findings]


@pytest.mark.long
@pytest.mark.parametrize("regimes", [CAPTURED, DOUBLING], ids=["captured", "doubling"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_simulated_engines_with_slow_stretches_are_unstable(regimes: Regimes, seed: int) -> None:
    run = ladder(replace(SMALL, regimes=regimes), [2, 4, 6], measure_s=60.0, seed=seed)
    assert codes(run)[0] == "engine_unstable"
    assert set(codes(run)) <= {"engine_unstable", "prefill_contention"}  # slow prompts may make the p99, too
    assert found(run, "engine_unstable").confidence == "certain"  # the server's histogram says so, too
    assert "autoscaler_moved" not in [one.code for one in run.findings]


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rates"),
    [("small", [2, 6, 10]), ("h200-8b", [4, 16, 32]), ("h100-8b", [4, 16, 30]), ("weak-draft", [2, 4])],
)
def test_engines_that_keep_their_pace_are_not(name: str, rates: list[float]) -> None:
    for lengths in (Lengths(200, 0.5, 100, 0.5, prompt_max=1000, output_max=600), Lengths(700, 0.9, 100, 0.6)):
        run = ladder(PROFILES[name], rates, lengths)
        assert "engine_unstable" not in [one.code for one in run.findings]


@pytest.mark.parametrize("name", ["periodic_stalls", "none"])
def test_short_stalls_are_not_slow_stretches(name: str) -> None:
    run = ladder(replace(SMALL, regimes=REGIMES[name]), [2, 4, 6])
    assert "engine_unstable" not in [one.code for one in run.findings]


def test_steps_that_take_as_much_longer_by_themselves_do_not_make_the_gpu_the_limit(tmp_path: Path) -> None:
    """The machine is throttled to half its pace in the quiet step before the one that overloads it."""
    text = """
seed = 3
prompts = { kind = "fixed", input_tokens = 100, output_tokens = 30 }
ramp = { kind = "ladder", rates = [4, 8, 16], warmup_s = 3, measure_s = 30, settle_s = 3, settle_requests = 0 }
"""
    run = ramp_in_memory(
        scenario_of(text), tmp_path, replace(PROFILES["small"], max_num_seqs=16), Faults(speeds=((60.0, 0.5),))
    )
    assert found(run, "engine_unstable").confidence == "likely"
    finding = found(run, "compute_bound")
    assert finding.confidence == "possible"
    assert finding.evidence[-1] == "the engine's step time changes as much by itself in this run"


def test_a_delay_that_the_server_does_not_see_is_only_possible() -> None:
    """Tokens come at half the pace for 4 s of every 15, while the server of these requests counts 22 ms a token."""
    records, at_s = [], 0.0
    for seq in range(240):
        at_s += 0.25
        t_s = at_s + 0.1
        gaps: list[float] = []
        for _ in range(60):
            gaps.append(0.044 if t_s % 15.0 < 4.0 else 0.022)
            t_s += gaps[-1]
        records.append(answer(seq, at_s, at_s + 0.1, gaps))
    counts = {"itl_s_sum": 4.4, "itl_s_count": 200.0, "requests_done": 4.0}
    samples = [Sample(float(t), "a", {name: each * t for name, each in counts.items()}) for t in range(65)]
    step = Step(0, rate_rps=4.0, begin_s=0.0, warmup_s=4.0, measure_s=56.0)
    run = assess(Run(RunInfo(), load(""), [step], Table.of(records), samples))
    finding = found(run, "engine_unstable")
    assert finding.confidence == "possible"
    assert finding.evidence[-1] == "so the delay may arise between server and client"


def test_a_replica_that_came_is_a_change_of_capacity_and_a_jump_alone_only_a_possible_one() -> None:
    run = ladder(replace(SMALL, speeds=((65.0, 2.0),)), [2, 4, 6])
    assert found(run, "autoscaler_moved").confidence == "possible"
    second = [Sample(float(t), "b", {}, error="refused") for t in range(65)]
    second += [Sample(float(t), "b", {"running": 1.0}) for t in range(65, 120)]
    told = assess(replace(run, samples=[*run.samples, *second]))
    finding = found(told, "autoscaler_moved")
    assert finding.confidence == "likely"
    assert finding.evidence[0] == "replica 2 appeared 65 s into the run"


def test_a_page_that_times_out_under_load_a_single_late_page_and_a_page_of_gpus_are_no_replicas() -> None:
    steady = [Sample(float(t), "a", {"running": 1.0}) for t in range(100)]
    late = [Sample(float(t), "b", {"running": 1.0} if t < 60 else {}, error="timeout") for t in range(100)]
    gpus = [Sample(float(t), "c", {"gpu_busy_ratio": 0.5} if t > 50 else {}) for t in range(100)]
    assert replica_moves([*steady, *late, *gpus]) == []
    assert (
        replica_moves(gpus[40:] + [Sample(float(t), "a", {"running": 1.0} if t > 30 else {}) for t in range(60)]) == []
    )


def test_two_steps_of_a_slow_engine_in_one_gap_are_no_frozen_stream() -> None:
    """20 streams at 15 ms, all at 35 ms for two seconds; one of them misses an event then and has a gap of 72 ms."""
    records = []
    for seq in range(20):
        at_s = 0.0005 * seq
        gaps: list[float] = []
        while at_s < 20.0:
            gap_s = 0.036 if 8.0 < at_s < 10.0 else 0.015
            if gap_s == 0.036 and seq % 4 == 0 and len(gaps) % 20 == 0:
                gap_s = 0.072
            gaps.append(gap_s)
            at_s += gap_s
        records.append(answer(seq, 0.0, 0.0005 * seq + 0.001, gaps))
    found_ = attribute(window_view(Table.of(records), (1.0, 19.0)))
    assert found_ is not None
    assert not np.any(found_.cause == 1)
