"""The client's counts beside the server's: agreement, mismatch, and what passes outside the server."""

from dataclasses import replace
from typing import Any

import pytest
from records_and_rows import answer, failure, row
from simulated_ramps import ladder

from benchmarks.engine_population import Lengths
from loadramp.analysis.checks.crosscheck import compare, outside_s, server_counts, ttft_outside
from loadramp.analysis.checks.run_checks import run_checks
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Sample
from loadramp.runner.scenarios import load
from loadramp.simulator.profiles import PROFILES


def requests(n: int = 600, gap_s: float = 0.1) -> Table:
    """One every 100 ms: 50 prompt tokens, 10 output tokens, done after 0.29 s."""
    return Table.of([answer(i, i * gap_s, i * gap_s + 0.2, [0.01] * 9, prompt_tokens=50) for i in range(n)])


def page(t_s: float, factor: float = 1.0, url: str = "a", **more: float) -> Sample:
    """What a server that did all of it would have counted by ``t_s`` (10 requests a second)."""
    counts = {"requests_done": 10.0 * t_s, "prompt_tokens": 500.0 * t_s, "output_tokens": 100.0 * t_s}
    return Sample(t_s, url, {name: factor * n for name, n in counts.items()} | more, 0.01)


def window(**columns: Any) -> dict[str, Any]:
    more = {"sent_ttft_mean_s": 0.2, "server_ttft_mean_s": None, "stationary": True, "window_begin_s": 10.0,
            "window_end_s": 50.0}  # fmt: skip
    return row(10.0, **{**more, **columns})


def test_a_server_that_counted_the_same_agrees_in_all_three() -> None:
    found = compare(window(), requests(), [page(t / 1.0) for t in range(70)])
    assert [one.name for one in found] == ["requests", "prompt_tokens", "output_tokens"]
    assert all(one.agrees for one in found)
    assert [one.server for one in found] == [400.0, 20_000.0, 4_000.0]
    assert found[0].low == pytest.approx(400.0, abs=1.0)


def test_scrapes_that_do_not_meet_the_window_are_compared_between_themselves() -> None:
    found = compare(window(), requests(), [page(0.7 + 1.0 * t) for t in range(70)])
    assert all(one.agrees for one in found)
    assert found[0].server == pytest.approx(400.0)


@pytest.mark.parametrize(("factor", "agrees"), [(1.03, True), (1.10, False), (0.97, True), (0.90, False)])
def test_the_tolerance_is_a_few_per_cent(factor: float, agrees: bool) -> None:
    found = compare(window(), requests(), [page(float(t), factor) for t in range(70)])
    assert {one.agrees for one in found} == {agrees}


def test_a_mismatch_names_both_numbers_the_tolerance_and_what_to_do() -> None:
    run = Run(RunInfo(), load(""), [], requests(), [page(float(t), 1.2) for t in range(70)], rows=[window()])
    checks = server_counts(run)
    assert [check.code for check in checks] == ["server_counts"] * 3
    assert checks[0].message == "the server counted 480 finished requests, the client 400 (tolerance 16)"
    assert "others use this server too" in checks[0].advice
    fewer = Run(RunInfo(), load(""), [], requests(), [page(float(t), 0.5) for t in range(70)], rows=[window()])
    assert "not every replica is scraped" in server_counts(fewer)[0].advice


def test_tokens_that_only_the_server_counts_are_compared_with_nothing() -> None:
    events = [window(token_source="events")]
    run = Run(RunInfo(), load(""), [], requests(), [page(float(t), 1.2) for t in range(70)], rows=events)
    assert [check.message.split(", ")[0] for check in server_counts(run)] == [
        "the server counted 480 finished requests"
    ]


def test_requests_that_the_client_gave_up_are_nobody_elses() -> None:
    """The server has computed the prompts of 100 requests that timed out, and 300 tokens for them."""
    late = [failure(600 + i, 10.0 + 0.3 * i, 5.0, kind="timeout_first") for i in range(100)]
    for record in late:
        record.asked_input_tokens, record.asked_output_tokens = 50, 10
    table = Table.concat([requests(), Table.of(late)])
    more = {"requests_done": 2.5, "prompt_tokens": 125.0, "output_tokens": 7.5}  # a second
    samples = [
        replace(one, values={name: one.values[name] + n * one.t_s for name, n in more.items()})
        for one in (page(float(t)) for t in range(70))
    ]
    assert all(one.agrees for one in compare(window(), table, samples))
    assert not any(one.agrees for one in compare(window(), requests(), samples) if one.name != "output_tokens")


def test_two_replicas_are_added_up() -> None:
    samples = [page(float(t), 0.5, url) for t in range(70) for url in "ab"]
    assert all(one.agrees for one in compare(window(), requests(), samples))
    assert not any(one.agrees for one in compare(window(), requests(), [s for s in samples if s.url == "a"]))


def test_a_server_may_count_tokens_when_a_request_ends() -> None:
    long = Table.of([answer(i, i * 1.0, i + 0.2, [1.0] * 19, prompt_tokens=50) for i in range(60)])
    ended = [Sample(float(t), "a", {"output_tokens": 20.0 * max(0, t - 20)}) for t in range(70)]
    (found,) = compare(window(window_begin_s=5.0, window_end_s=25.0), long, ended)
    assert found.agrees
    assert found.low < found.high


def test_nothing_is_compared_without_scrapes_after_a_restart_or_between_two_close_ones() -> None:
    table, fresh = requests(), [page(float(t)) for t in range(70)]
    assert compare(window(), table, []) == []
    assert compare(window(), table, [Sample(20.0, "a", error="404")]) == []
    assert compare(window(), table, [page(20.0), page(22.0)]) == []
    again = [page(s.t_s, 1.0) if s.t_s < 30 else page(s.t_s - 30.0) for s in fresh]
    restarted = [replace(s, t_s=fresh[i].t_s) for i, s in enumerate(again)]
    assert compare(window(), table, restarted) == []
    rows = [window(void=True), window(server_restarted=True)]
    assert server_counts(Run(RunInfo(), load(""), [], table, [page(float(t), 3.0) for t in range(70)], rows=rows)) == []


def test_ttft_outside_the_server_is_the_difference_of_the_means_where_the_step_was_stationary() -> None:
    assert outside_s(window(server_ttft_mean_s=0.15)) == pytest.approx(0.05)
    assert outside_s(window(server_ttft_mean_s=0.15, stationary=False)) is None
    assert outside_s(window()) is None
    rows = [window(server_ttft_mean_s=0.1), window(server_ttft_mean_s=0.19), window(server_ttft_mean_s=0.1, void=True)]
    checks = ttft_outside(Run(RunInfo(), load(""), [], requests(), rows=rows))
    assert [check.message for check in checks] == [
        "100 ms of a mean TTFT of 200 ms pass outside the server (its own mean: 100 ms)"
    ]


@pytest.mark.parametrize("name", ["small", "kv-limited", "h200-8b-seqs64"])
def test_simulated_servers_and_the_client_agree_at_any_load(name: str) -> None:
    run = ladder(PROFILES[name], [4, 12, 30], Lengths(300, 0.4, 80, 0.4))
    assert [check for check in run_checks(run) if check.code == "server_counts"] == []
    assert all(len(compare(one, run.table, run.samples)) == 3 for one in run.rows)
