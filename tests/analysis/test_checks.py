from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from curve_rows import changed
from records_and_rows import answer, failure, one_server, overload, row, window

from loadramp.analysis.checks.run_checks import CHECKS, run_checks
from loadramp.analysis.checks.validity import void_reasons
from loadramp.analysis.curve import fold
from loadramp.analysis.diagnosis.diagnose import diagnose
from loadramp.analysis.itl_knee import completed, estimate
from loadramp.record.row import Row, Void
from loadramp.record.run_info import MetricsInfo, RunInfo, WorkerDeath
from loadramp.record.table import Run, Table
from loadramp.record.types import Calibration, Check, ClientSample, Record, Sample, Step
from loadramp.runner.assess import with_deaths
from loadramp.runner.scenarios import load


def run_of(records: Sequence[Record] = (), rows: Sequence[Row] | None = None, **more: Any) -> Run:
    """A run of one step of a minute, or of literal rows."""
    table = Table.of(records)
    step = window(60.0, 10.0)
    own = [fold(step, table, samples=more.get("samples", ()), client=more.get("client", ()))] if rows is None else rows
    own = completed(own)
    return Run(info=RunInfo(), scenario=load(""), steps=[step], table=table, rows=own, estimates=estimate(own), **more)


def codes(run: Run) -> set[str]:
    return {check.code for check in run_checks(run)}


def found(run: Run, code: str) -> Check:
    return next(check for check in run_checks(run) if check.code == code)


def good(n: int = 600, **more: Any) -> list[Record]:
    return [answer(i, i * 0.1, i * 0.1 + 0.2, [0.02 + 0.001 * (i % 7)] * 10, **more) for i in range(n)]


def test_a_good_run_is_only_told_what_it_lacks() -> None:
    run = run_of(good(), samples=[Sample(float(t), "a", {"waiting": 0.0, "running": 3.0}) for t in range(60)])
    assert {check.level for check in run_checks(run)} <= {"note"}
    assert codes(run) <= {"knee_at_last_step", "few_samples", "no_warmup"}


def test_checks_are_ordered_by_gravity_and_each_has_words() -> None:
    late = good()
    for record in late:
        record.sent_s = record.due_s + 0.1
    checks = run_checks(run_of(late))
    assert [check.level for check in checks] == sorted((c.level for c in checks), key=["void", "warn", "note"].index)
    assert all(check.message for check in checks)
    assert checks[0].code == "client_limited"
    assert checks[0].step == 0
    assert "use 2 workers" in checks[0].advice


def test_an_empty_run_has_no_findings_and_no_crash() -> None:
    empty = Run(info=RunInfo(), scenario=load(""), steps=[], table=Table.of([]))
    assert run_checks(empty) == []
    assert set(CHECKS) >= {"client_limited", "errors", "knee_at_edge", "metrics_missing"}
    assert void_reasons(window(1.0), Table.of([]), []) == []


def test_st10_a_step_in_which_every_request_failed() -> None:
    check = found(run_of([failure(i, i * 0.1) for i in range(100)]), "all_failed")
    assert "every request failed (100 http_5xx)" in check.message


def test_errors_are_counted_by_kind_and_fast_ones_are_said_to_flatter() -> None:
    records = good(540) + [failure(600 + i, i * 0.9, 0.001, "http_429") for i in range(60)]
    run = run_of(records)
    assert "10 % of the requests failed (60 http_429)" in found(run, "errors").message
    assert "fast_failures" in codes(run)
    slow = good(540) + [failure(600 + i, i * 0.9, 5.0, "timeout_idle") for i in range(60)]
    assert "fast_failures" not in codes(run_of(slow))


def test_few_samples_say_how_many_more_are_needed() -> None:
    check = found(run_of(good(100)), "few_samples")
    assert "100 requests cannot carry a p99: needs about 268 more" in check.message


def test_a_busy_client_is_warned_about_before_it_is_too_busy() -> None:
    client = [ClientSample(float(t), cpu_ratio=0.6) for t in range(60)]
    assert found(run_of(good(), client=client), "client_busy").level == "warn"


def test_events_that_come_in_bursts() -> None:
    bursts = [answer(i, i * 0.1, i * 0.1 + 0.2, [0.0, 0.0, 0.1] * 3) for i in range(100)]
    assert "66.7 % of the output events came together" in found(run_of(bursts), "burst_delivery").message
    assert "burst_delivery" not in codes(run_of(good()))


QUICK_GAPS_S = {
    "even": [0.0001] * 63,
    "some of a millisecond": ([0.0001] * 19 + [0.001]) * 3,
    "a pause": [0.0001] * 40 + [0.030] + [0.0001] * 40,
    "several in a read": [0.0, 0.0, 0.0003] * 20,
}


@pytest.mark.parametrize("gaps_s", QUICK_GAPS_S.values(), ids=QUICK_GAPS_S.keys())
def test_a_tiny_model_that_makes_a_token_each_tenth_of_a_millisecond_is_no_proxy(gaps_s: list[float]) -> None:
    run = run_of([answer(i, i * 0.1, i * 0.1 + 0.02, gaps_s) for i in range(100)])
    assert "burst_delivery" not in codes(run)
    assert "proxy_buffering" not in {finding.code for finding in diagnose(run)}


HELD_GAPS_S = {
    "one read": [0.0, 0.0, 0.0, 0.04] * 5,
    "writes of their own": [0.00008] * 7 + [0.05, 0.00008] + [0.00008] * 6,
    "the whole answer": [0.0] * 30,
    "two by two": [0.0, 0.01] * 10,
}


@pytest.mark.parametrize("gaps_s", HELD_GAPS_S.values(), ids=HELD_GAPS_S.keys())
def test_events_that_are_held_back_are_a_proxy_however_they_are_let_go(gaps_s: list[float]) -> None:
    run = run_of([answer(i, i * 0.1, i * 0.1 + 0.4, gaps_s) for i in range(100)])
    assert found(run, "burst_delivery").level == "warn"
    assert "proxy_buffering" in {finding.code for finding in diagnose(run)}


def test_several_tokens_an_event() -> None:
    coarse = [answer(i, i * 0.1, i * 0.1 + 0.2, [0.08] * 3, event_tokens=[4] * 4) for i in range(100)]
    assert "4 tokens an event" in found(run_of(coarse), "tokens_per_event").message


def test_ds07_answers_shorter_than_asked() -> None:
    records = good(asked_output_tokens=60)
    assert "18.3 % of the output tokens asked for" in found(run_of(records), "output_length").message
    assert "output_length" not in codes(run_of(good(asked_output_tokens=11)))
    # events of several tokens each, whose number the server does not tell
    assert "output_length" not in codes(run_of(good(asked_output_tokens=60, token_source="events")))


def test_ds02_prompts_that_are_not_as_long_as_planned() -> None:
    records = good(prompt_tokens=500, asked_input_tokens=100)
    assert "prompts had 500 % of the tokens planned" in found(run_of(records), "prompt_length").message
    assert "prompt_length" not in codes(run_of(good(prompt_tokens=105, asked_input_tokens=100)))


@pytest.mark.parametrize(("source", "words"), [("pro_rata", "spread over events"), ("events", "sends no usage")])
def test_md19_token_counts_that_are_not_the_servers(source: str, words: str) -> None:
    assert words in found(run_of(good(token_source=source)), "token_source").message


def test_counts_of_the_server_that_cannot_be_right_are_warned_of() -> None:
    records = good(token_source="events", warnings=["late_reads", "implausible_usage"])
    check = found(run_of(records[:150] + good()[150:]), "implausible_usage")
    assert check.level == "warn"
    assert check.message.startswith("25 % of the answers: the server's token count cannot be right")
    assert "token_source" not in codes(run_of(records))
    assert "implausible_usage" not in codes(run_of(good()))


def test_ds06_prefix_hits_with_prompts_that_should_be_new() -> None:
    records = good(prompt_tokens=100, cached_tokens=64)
    assert "64 % of the prompt tokens came from the prefix cache" in found(run_of(records), "prefix_hits").message
    shared = run_of(records)
    shared.scenario = load('[prompts]\nkind = "shared_prefix"\n')
    assert "prefix_hits" not in codes(shared)
    assert "prefix_hits" not in codes(run_of(good(prompt_tokens=100, cached_tokens=0)))
    scraped = [
        Sample(float(t), "a", {"prefix_queries": 100.0 * t, "prefix_hits": 5.0 * t, "waiting": 0.0}) for t in range(62)
    ]
    assert found(run_of(good(), samples=scraped), "prefix_hits").message.startswith("5 % of")


def test_what_a_chat_template_puts_before_every_prompt_is_no_cache_hit() -> None:
    """llama.cpp counts it: six of 55 prompt tokens, ``user: ``, where the template adds 18."""
    template = RunInfo(calibration=Calibration(tokens_per_word=1.9, overhead_tokens=18.0))
    run = run_of(good(prompt_tokens=55, cached_tokens=6))
    assert "10.9 % of the prompt tokens" in found(run, "prefix_hits").message
    run.info = template
    assert "prefix_hits" not in codes(run)
    warm = run_of(good(prompt_tokens=55, cached_tokens=35))
    warm.info = template
    assert "63.6 % of the prompt tokens" in found(warm, "prefix_hits").message
    scraped = [
        Sample(float(t), "a", {"prefix_queries": 55.0 * t, "prefix_hits": 6.0 * t, "waiting": 0.0}) for t in range(62)
    ]
    seen = run_of(good(prompt_tokens=55), samples=scraped)
    assert "prefix_cache_accidental" in {finding.code for finding in diagnose(seen)}
    seen.info = template
    assert "prefix_hits" not in codes(seen)
    assert "prefix_cache_accidental" not in {finding.code for finding in diagnose(seen)}


def test_stamps_taken_by_the_program() -> None:
    assert "100 % of the answers were stamped when the program read them" in (
        found(run_of(good(stamps="user")), "user_stamps").message
    )


def test_a_ceiling_at_the_edge_of_what_was_measured() -> None:
    assert found(run_of(rows=[overload(8.0, 4.0)]), "knee_at_first_step").level == "warn"
    assert "only one step" in found(run_of(rows=[row(4.0), overload(8.0, 5.0)]), "knee_at_first_step").message
    assert "ended at 4 req/s" in found(run_of(rows=[row(2.0), row(4.0)]), "knee_at_last_step").message
    inside = run_of(rows=[row(2.0), row(4.0), overload(8.0, 5.0)])
    assert not codes(inside) & {"knee_at_first_step", "knee_at_last_step"}


def test_st09_hiccups_are_listed() -> None:
    run = run_of(rows=[row(2.0), row(4.0, saturated=True, signals=["queue"]), row(8.0)])
    assert "the step at 4 req/s: the queue grows, not confirmed" in found(run, "lone_alarm").message


def test_steps_that_began_with_a_queue_or_had_not_settled() -> None:
    rows = [row(2.0, began_with_backlog=True), row(4.0, settled=False)]
    assert {"began_with_backlog", "not_settled"} <= codes(run_of(rows=rows))
    users = [changed(row(2.0, began_with_backlog=True), rate_rps=None, users=8)]
    assert "began_with_backlog" not in codes(run_of(rows=users))


def test_a_soak_that_did_not_hold() -> None:
    rows = [row(2.0), row(3.0, role="soak", saturated=True, signals=["backlog"])]
    assert found(run_of(rows=rows), "soak_failed").message == "the soak at 3 req/s: requests in flight pile up"


def test_a_closed_loop_is_remarked() -> None:
    users = changed(row(5.0), rate_rps=None, users=8)
    assert found(run_of(rows=[users]), "closed_loop").level == "note"


def test_a_server_that_restarted_and_one_without_metrics() -> None:
    assert "server_restarted" in codes(run_of(rows=[row(2.0, server_restarted=True)]))
    assert "no_server_metrics" in codes(run_of(good()))


def test_metrics_that_ended_before_the_ramp_did() -> None:
    values = {"waiting": 0.0}
    pages = {"http://a/metrics": 54.0, "http://b/metrics": 20.0}
    samples = [Sample(t_s, url, values) for url, end_s in pages.items() for t_s in (1.0, end_s)]
    late = Sample(60.0, "http://b/metrics", error="timeout")
    check = found(run_of(rows=[row(2.0, window_end_s=60.0)], samples=[*samples, late]), "metrics_ended")
    assert check.level == "warn"
    assert check.message == ("the metrics page http://b/metrics was last read at 20 s, 40 s before the last step ended")
    quick = run_of(rows=[row(2.0, window_end_s=35.0)], samples=samples)
    assert "metrics_ended" not in codes(quick)
    rare = run_of(rows=[row(2.0, window_end_s=60.0)], samples=samples)
    rare.scenario = load("[metrics]\nperiod_s = 10.0")
    assert "metrics_ended" not in codes(rare)


def test_metrics_that_were_on_and_left_nothing_are_lost() -> None:
    run = run_of(good())
    run.info.metrics = MetricsInfo("vllm")
    check = found(run, "metrics_lost")
    assert (check.level, check.message) == (
        "warn", "the server's own numbers are lost: server.jsonl is missing or empty",
    )  # fmt: skip
    assert check.advice == (
        "the ceiling, the knee and every cause rest on what the client saw alone; "
        "take a whole copy of the run directory"
    )
    assert "no_server_metrics" not in codes(run)
    run.info.metrics.problem = "the process that reads the server's metrics was killed (signal 9)"
    assert found(run, "metrics_lost").message.endswith(
        "lost: the process that reads the server's metrics was killed (signal 9)"
    )


def test_a_page_that_could_not_be_read_at_any_time_is_named_with_the_reason() -> None:
    samples = [Sample(float(t), "http://a/metrics", error="HTTP 404") for t in range(3)]
    check = found(run_of(good(), samples=samples), "no_server_metrics")
    assert check.level == "warn"
    assert check.message == "the server's metrics could not be read at any time (http://a/metrics: HTTP 404)"


def test_metrics_that_nobody_read_any_more_are_not_blamed_on_the_page() -> None:
    samples = [Sample(t_s, "http://a/metrics", {"waiting": 0.0}) for t_s in (1.0, 20.0)]
    run = run_of(rows=[row(2.0, window_end_s=60.0)], samples=samples)
    run.info.metrics = MetricsInfo("vllm", problem="the process that reads the server's metrics was killed (signal 9)")
    assert found(run, "metrics_ended").message == (
        "the server's metrics were last read at 20 s of 60 s: the process that reads the server's metrics was killed "
        "(signal 9)"
    )
    assert "it is gone" not in found(run, "metrics_ended").advice


def test_an_endpoint_slower_on_the_way_down() -> None:
    run = run_of(rows=[row(4.0, itl_p99_s=0.02), row(4.0, role="down", itl_p99_s=0.05)])
    assert "2.5 times what it was on the way up" in found(run, "hysteresis").message


@pytest.mark.parametrize(
    ("lasting_s", "level", "words"),
    [
        (30.0, "note", "after 64 req/s it took 20 s until the requests in flight were as few as at 16 req/s"),
        (500.0, "warn", "after 64 req/s more requests stayed in flight than on the way up"),
    ],
)
def test_how_long_recovery_took_on_the_way_down(lasting_s: float, level: str, words: str) -> None:
    # 40 requests due at 90 s, ten seconds before the top step's end, and 2 in flight on the way up
    records = [answer(i, 90.0, 90.0 + lasting_s) for i in range(40)]
    steps = [
        Step(0, rate_rps=16.0, begin_s=0.0, warmup_s=0.0, measure_s=50.0),
        Step(1, rate_rps=64.0, begin_s=50.0, warmup_s=0.0, measure_s=50.0),
        Step(2, role="drain", rate_rps=0.0, begin_s=100.0, warmup_s=0.0, measure_s=50.0),
        Step(3, role="down", rate_rps=16.0, begin_s=150.0, warmup_s=0.0, measure_s=50.0),
    ]
    rows = [row(16.0, in_flight_mean=2.0), row(64.0, in_flight_mean=40.0), row(16.0, role="down", in_flight_mean=2.0)]
    run = replace(run_of(records, rows=rows), steps=steps)
    check = found(run, "recovery")
    assert (check.level, check.step) == (level, 3)
    assert check.message.startswith(words)


def test_a_real_fold_of_an_overloaded_server_passes_through_every_check() -> None:
    records = one_server([i * 0.05 for i in range(1200)], 0.1)
    run = run_of(records)
    assert run.rows[0].saturated
    assert found(run, "knee_at_first_step").message.startswith("the lowest rate, 20 req/s (10 asked)")


def test_a_void_step_says_what_happened_and_then_once_what_to_do() -> None:
    death = WorkerDeath(10.0, "worker 1 ended with code -9")
    alone, both = row(8.0), row(8.0, void=(Void("requests left late", "use 2 workers"),))
    rows = [with_deaths(one, [death]) for one in (alone, both)]
    first, second = CHECKS["client_limited"](run_of(rows=rows))
    assert (first.message, first.advice) == (
        "the step at 8 req/s is void: worker 1 ended with code -9",
        "see the worker's log, start the run again",
    )
    assert (second.message, second.advice) == (
        "the step at 8 req/s is void: worker 1 ended with code -9; requests left late",
        "use 2 workers",
    )
