"""What the client itself cut off is unfinished: no failure, no success, in no threshold; and it is counted."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.analysis.checks import unfinished as cutoff
from loadramp.analysis.thresholds import judge_gates
from loadramp.record.codec import decode, encode
from loadramp.record.run_info import RunInfo, WorkerDeath
from loadramp.record.table import Run, Table
from loadramp.record.types import ClientSample, Record, Step
from loadramp.report.verdict_text import verdict_sentence
from loadramp.runner.finish import judge_run
from loadramp.runner.launch import signals
from loadramp.runner.scenarios import load
from loadramp.simulator.faults import Faults

LONG = """
name = "long"
seed = 2
[slo]
ttft_s = 5
[prompts]
kind = "fixed"
input_tokens = 30
output_tokens = 400
[ramp]
kind = "ladder"
rates = [4, 8]
warmup_s = 1
measure_s = 20
settle_s = 0.2
settle_requests = 0
"""


def unfinished(seq: int, due_s: float, **more: Any) -> Record:
    return Record(seq, 0, due_s, sent_s=due_s, stream_end_s=due_s + 3.0, status="unfinished", **more)


def test_a_record_of_what_was_cut_off_is_written_and_read_as_such() -> None:
    record = unfinished(1, 1.0, error_detail="cut off by the client, after 2 output events", event_s=[1.5, 1.75])
    read = decode(encode(record))
    assert (read.status, read.error, read.event_s, read.done_s) == ("unfinished", None, [1.5, 1.75], None)


def test_what_was_cut_off_is_neither_a_success_nor_a_failure() -> None:
    table = Table.of(
        [
            Record(0, 0, 0.0, stream_end_s=1.0, status="ok"),
            Record(1, 0, 0.0, stream_end_s=1.0, status="error", error="reset"),
            unfinished(2, 0.0),
        ]
    )
    assert table.failed.tolist() == [False, True, False]
    assert table.in_flight.tolist() == [False, False, True]
    assert table.unfinished.tolist() == [False, False, True]


def test_an_interrupted_run_counts_no_failure_and_says_how_many_were_cut_off(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(LONG), tmp_path, stop_at_s=12.0)
    n = int(run.table.unfinished.sum())
    assert n > 5
    assert not run.table.failed.any()
    assert [row.errors for row in run.rows] == [{}]
    assert run.rows[0].error_ratio in (0.0, None)
    assert run.rows[0].pending == int((run.table.unfinished & (run.table.due_s >= run.rows[0].window_begin_s)).sum())
    assert f"{n} requests cut off before the answer had ended" in verdict_sentence(run)
    (check,) = [check for check in run.checks if check.code == "cut_off"]
    assert check.level == "note"
    assert check.message.startswith(f"{n} requests had not been answered to the end when the client ended the run")


@pytest.mark.parametrize(("stop_at_s", "rows"), [(10.0, 0), (60.0, 1)])
def test_a_step_that_is_interrupted_in_its_warm_up_has_no_row(tmp_path: Path, stop_at_s: float, rows: int) -> None:
    run = ramp_in_memory(scenario_of(LONG.replace("warmup_s = 1", "warmup_s = 30")), tmp_path, stop_at_s=stop_at_s)
    assert (run.info.state, run.info.ending, len(run.rows)) == ("stopped", "interrupted", rows)
    assert (run.steps[-1].measure_s, run.steps[-1].partial) == (0.0, True)


def test_no_threshold_fails_on_what_was_cut_off(tmp_path: Path) -> None:
    thresholds = '[gates]\nrules = ["error_ratio < 0.001", "good_ratio > 0.9"]\n'
    scenario = scenario_of(LONG + thresholds)
    run = ramp_in_memory(scenario, tmp_path, stop_at_s=12.0)
    results = judge_gates(run, scenario.gates.rules, scenario.gates.when_unsure)
    assert run.table.unfinished.any()
    assert [result.status for result in results].count("fail") == 0


def test_failures_before_the_interruption_stay_failures(tmp_path: Path) -> None:
    run = ramp_in_memory(scenario_of(LONG), tmp_path, faults=Faults(error_ratio=0.3), stop_at_s=12.0)
    assert run.table.failed.any()
    assert set(run.table.error[run.table.failed].tolist()) == {"http_5xx"}
    assert run.rows[0].errors == {
        "http_5xx": int((run.table.failed & (run.table.due_s >= run.rows[0].window_begin_s)).sum())
    }
    assert run.rows[0].ok + run.rows[0].pending + run.rows[0].errors["http_5xx"] == run.rows[0].requests


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 2), (signal.SIGTERM, 15), (signal.SIGHUP, 15)], ids=["INT", "TERM", "HUP"]
)
def test_each_signal_stops_a_run_and_a_hang_up_is_meant_like_sigterm(number: signal.Signals, code: int) -> None:
    async def main() -> tuple[list[int], list[str]]:
        said: list[str] = []
        stop = asyncio.Event()
        with signals(stop, said.append) as caught:
            os.kill(os.getpid(), number)
            await asyncio.wait_for(stop.wait(), 10.0)
        return caught, said

    caught, said = asyncio.run(main())
    assert caught == [code]
    assert said == ["interrupted: no new requests; saving what was measured (once more to leave at once)"]


def test_a_run_under_nohup_goes_on_when_its_terminal_is_gone() -> None:
    async def main() -> bool:
        stop = asyncio.Event()
        with signals(stop, print):
            os.kill(os.getpid(), signal.SIGHUP)
            await asyncio.sleep(0.02)
        return stop.is_set()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert not asyncio.run(main())
    finally:
        signal.signal(signal.SIGHUP, before)


def killed_run(**more: Any) -> Run:
    """Worker 0 said at 1 s and 2 s that it had sent 5 and 4; worker 1 at 2 s that it had sent 3."""
    client = [
        ClientSample(1.0, 0, sent=5),
        ClientSample(2.0, 0, sent=4),
        ClientSample(2.0, 1, sent=3),
    ]
    ended = [Record(i, 0, 0.1 * i, worker=0, sent_s=0.1 * i, stream_end_s=1.5, status="ok") for i in range(4)]
    ended += [Record(10, 0, 2.5, worker=0, sent_s=2.5, stream_end_s=2.6, status="ok")]  # after its last word
    ended += [Record(11, 0, 1.0, worker=1, sent_s=1.0, stream_end_s=1.2, status="ok")]
    return Run(RunInfo(state="running", **more), load(""), [], Table.of(ended), client=client)


def test_of_a_run_that_was_killed_the_requests_without_a_record_are_counted() -> None:
    run = killed_run(killed=True)
    assert cutoff.lost(run) == 5 + 2  # 9 sent, 4 known; 3 sent, 1 known
    assert cutoff.words(run) == "at least 7 requests in flight lost"
    assert [check.code for check in cutoff.check(run)] == ["killed"]


def test_of_a_run_that_may_go_on_nothing_is_lost() -> None:
    assert cutoff.lost(killed_run()) == 0
    assert cutoff.how_it_ended(killed_run()) == "killed, or still going on"
    assert cutoff.how_it_ended(replace(killed_run(), info=RunInfo(state="complete"))) == ""


def whole_run(known: int, **more: Any) -> Run:
    """A step of 10 s in which 100 requests were sent, as the client said each second, and ``known`` left a record."""
    client = [ClientSample(1.0 + i, 0, sent=10) for i in range(10)]
    ended = [
        Record(i, 0, 0.1 * i, worker=0, sent_s=0.1 * i, stream_end_s=0.1 * i + 0.5, status="ok") for i in range(known)
    ]
    step = Step(0, rate_rps=10.0, begin_s=0.0, warmup_s=0.0, measure_s=10.0)
    info = RunInfo(state="complete", steps=[step], **more)
    return Run(info, load(""), [step], Table.of(ended), client=client)


def test_a_step_whose_records_are_not_all_there_is_void_and_not_the_clients_limit() -> None:
    run = judge_run(whole_run(60)).run
    assert run.rows[0].void_what == "at least 40 of the requests that were sent have no record"
    assert run.info.verdict == "void"
    assert verdict_sentence(run).startswith("No verdict: the run's files are not whole (at least 40 of the requests")
    assert [check.code for check in run.checks if check.level == "void"] == ["records_missing"]
    assert "client_limited" not in [finding.code for finding in run.findings]
    assert run.estimate("ceiling").reason == "no step has all its records"


def test_a_run_with_all_its_records_and_one_of_which_a_line_was_torn() -> None:
    assert not judge_run(whole_run(100)).run.rows[0].void
    run = judge_run(whole_run(99), skipped=1).run
    assert not run.rows[0].void  # one of a hundred does not bend a step
    warnings = {check.code: check.message for check in run.checks if check.level == "warn"}
    assert warnings["records_missing"] == "1 request that the client sent has no record"
    assert warnings["unread_lines"] == "1 line of the run's files could not be read and was left out"


def test_records_that_a_dead_worker_or_a_killed_client_left_behind_are_said_once() -> None:
    dead = judge_run(whole_run(60, dead_workers=[WorkerDeath(6.0, "worker 0 ended")])).run
    assert dead.rows[0].void[0].what == "worker 0 ended"
    assert not [check for check in dead.checks if check.code == "records_missing"]
    later = judge_run(whole_run(90, dead_workers=[WorkerDeath(11.0, "worker 0 ended")])).run
    lost = "at least 10 of the requests that were sent have no record: worker 0 ended"
    assert later.rows[0].void_what == lost
    assert not later.rows[0].no_record
