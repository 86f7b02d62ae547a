"""Connections that are refused or break: overload while the server goes on, or a server that went down."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_in_memory import ramp_in_memory, scenario_of
from simulated_ramps import codes, found, ladder

from loadramp.analysis.diagnosis.cures import with_cures
from loadramp.record.table import Run, Table
from loadramp.record.types import ErrorKind, Record, Sample
from loadramp.runner.assess import assess
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES

SMALL = PROFILES["small"]
OVERLOADED = replace(SMALL, max_num_seqs=16)


def refused(run: Run, kind: ErrorKind = "connect", every: int = 20, step: int | None = -1, after_s: float = 8.0) -> Run:
    """Every so manieth request of one step (None: of all) gets no connection, or loses it, before any answer."""
    table = run.table
    steps = sorted({int(one) for one in table.step})
    own = table.due_s > (run.steps[step].begin_s + after_s if step is not None else 0.0)
    if step is not None:
        own &= table.step == steps[step]
    away = np.flatnonzero(own)[::every]
    lost = [
        Record(seq=int(table.seq[i]), step=int(table.step[i]), due_s=float(table.due_s[i]),
               sent_s=float(table.due_s[i]), stream_end_s=float(table.due_s[i]) + 0.01, status="error", error=kind)
        for i in away
    ]  # fmt: skip
    keep = np.ones(len(table), dtype=np.bool_)
    keep[away] = False
    return assess(replace(run, table=Table.concat([table.select(keep), Table.of(lost)])))


def without_pages(run: Run) -> Run:
    return assess(replace(run, samples=[]))


def silenced(run: Run, from_s: float, error: str = "refused") -> list[Sample]:
    return [s if s.t_s < from_s else Sample(s.t_s, s.url, {}, error=error) for s in run.samples]


def crashed(tmp_path: Path, restart_s: float = 4.0) -> Run:
    text = """
seed = 5
prompts = { kind = "fixed", input_tokens = 50, output_tokens = 30 }
ramp = { kind = "ladder", rates = [4, 24], warmup_s = 3, measure_s = 20, settle_s = 2, settle_requests = 0, tail_s = 1, max_error_ratio = 1.0 }
"""  # noqa: E501
    faults = Faults(crash_running=14, crash_kind="process", restart_s=restart_s)
    return ramp_in_memory(scenario_of(text), tmp_path, SMALL, faults)


@pytest.mark.parametrize("kind", ["connect", "reset"])
@pytest.mark.parametrize("pages", [True, False])
def test_connections_refused_in_overload_are_no_server_that_went_down(kind: ErrorKind, pages: bool) -> None:
    """A real vLLM at 8,200 open streams refused 402, and its page went on answering."""
    run = refused(ladder(OVERLOADED, [4, 48]), kind)
    run = run if pages else without_pages(run)
    assert codes(run) == ["connections_refused", "scheduler_oversubscription"]
    assert "server_down" not in [one.code for one in run.findings]
    finding = found(run, "connections_refused")
    assert (finding.confidence, finding.steps) == ("likely", (1,))
    assert "were refused a connection, or lost it before any answer (5" in finding.evidence[0]
    assert any("of the streams under way at those moments went on" in words for words in finding.evidence)
    assert ("its metrics page answered after that, and its counters did not begin again: the server did not go down"
            in finding.evidence) == pages  # fmt: skip
    assert finding.evidence[-1].startswith("it comes with load: a full listen backlog")
    assert with_cures(run.findings, run)[0].cures[0].name == "more_connections"


def test_what_limits_at_a_lower_load_comes_before_connections_that_are_refused_above_it() -> None:
    run = refused(ladder(OVERLOADED, [4, 24, 48]))
    assert codes(run) == ["scheduler_oversubscription", "connections_refused"]


def test_connections_refused_at_any_load_do_not_come_with_it() -> None:
    run = refused(ladder(SMALL, [4, 8]), step=None)
    finding = found(run, "connections_refused")
    assert finding.evidence[-1] == "as many at 4 req/s, the lowest load: not a matter of load"


def test_a_page_that_goes_on_while_nothing_is_answered_shows_no_limit_on_connections(tmp_path: Path) -> None:
    text = """
seed = 5
prompts = { kind = "fixed", input_tokens = 50, output_tokens = 30 }
ramp = { kind = "ladder", rates = [4, 16], warmup_s = 3, measure_s = 20, settle_s = 2, settle_requests = 0, tail_s = 1 }
"""
    faults = Faults(crash_at_s=26.0, crash_kind="engine")  # between the measured parts; its page is still read here
    run = ramp_in_memory(scenario_of(text), tmp_path, SMALL, faults)
    assert [(row.rate_rps, row.ok > 0) for row in run.rows] == [(4.0, True), (16.0, False)]
    assert [one.code for one in run.findings] == ["server_down"]
    assert run.findings[0].evidence[-1].startswith("against it: its metrics page answered after that")


def test_a_few_connections_refused_are_no_finding() -> None:
    run = refused(ladder(OVERLOADED, [4, 48]), every=200)
    assert "connections_refused" not in [one.code for one in run.findings]


def test_a_process_that_dies_is_down_for_certain_by_its_counters_and_likely_by_what_broke(tmp_path: Path) -> None:
    run = crashed(tmp_path)
    assert found(run, "server_down").confidence == "certain"
    assert "connections_refused" not in [one.code for one in run.findings]
    blind = without_pages(run)
    finding = found(blind, "server_down")
    assert finding.confidence == "likely"
    assert any("of the streams under way at those moments broke" in words for words in finding.evidence)
    assert "connections_refused" not in [one.code for one in blind.findings]


def test_a_page_that_falls_silent_while_streams_break_is_likely_a_server_that_went_down(tmp_path: Path) -> None:
    run = crashed(tmp_path, restart_s=300.0)
    fell_silent = [
        Sample(run.samples[-1].t_s + after_s, run.samples[-1].url, {}, error="refused") for after_s in (1, 2)
    ]
    told = assess(replace(run, samples=[*run.samples, *fell_silent]))
    finding = found(told, "server_down")
    assert finding.confidence == "likely"
    assert "its metrics page did not answer any more at the end" in finding.evidence


def test_a_page_that_falls_silent_while_the_streams_go_on_is_no_sign_of_a_server_that_went_down() -> None:
    run = refused(ladder(OVERLOADED, [4, 48]))
    told = assess(replace(run, samples=silenced(run, 60.0)))
    assert codes(told)[0] == "connections_refused"
    assert "server_down" not in codes(told)


def test_streams_that_break_while_the_counters_go_on_are_only_possibly_a_server_that_went_down(tmp_path: Path) -> None:
    """A proxy that died, say: the same failures, and a page that never stopped counting."""
    run = crashed(tmp_path)
    counted = [Sample(float(t), "a", {"requests_done": 4.0 * t, "output_tokens": 120.0 * t}) for t in range(60)]
    finding = found(assess(replace(run, samples=counted)), "server_down")
    assert finding.confidence == "possible"
    assert finding.evidence[-1] == (
        "against it: its metrics page answered after that, and its counters did not begin again"
    )


def test_a_gateway_without_a_server_is_possible_only_in_the_overload_of_one_that_went_on() -> None:
    run = ladder(OVERLOADED, [4, 48])
    rows = np.flatnonzero(run.table.step == 1)[::10]
    for name, value in {"status": "error", "error": "http_5xx", "http_status": 502.0}.items():
        getattr(run.table, name)[rows] = value
    assert found(assess(run), "server_down").confidence == "possible"
    assert found(without_pages(run), "server_down").confidence == "likely"
