"""The sentence that opens every form of the report: one test for each thing it may have to say."""

from dataclasses import replace
from typing import Any

import pytest
from curve_rows import changed
from report_runs import SCENARIO, estimates, latencies, row, served, served_rows

from loadramp.record.run_info import MetricsInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import Check, Estimate, Record
from loadramp.report import verdict, verdict_sentence
from loadramp.report.verdict_text import Phrase, headline, slo
from loadramp.runner.scenarios import load

SLO = " The service level (p99 TTFT ≤ 1 s, p99 ITL ≤ 60 ms) holds up to 12.4 req/s (11-13.9); TTFT gives way first."


def without_slo(**more: Any) -> Run:
    return served(**({"scenario": 'name = "chat"'} | more))


def ceiling(status: Any, *args: Any, **more: Any) -> dict[str, Estimate]:
    return estimates(ceiling=Estimate(status, *args, **more))


def test_found_and_soaked() -> None:
    assert verdict_sentence(served()) == (
        "Sustains 13.6 req/s (soaked 5 min); ceiling 15.9 (15.2-16.7), where the queue grows without end; "
        "p99 ITL stays at 48.4 ms, so the batch limit, not the GPU's step time, is what gives way." + SLO
    )


def test_found_without_a_soak_says_so() -> None:
    run = without_slo(rows=served_rows()[:-1], estimates=ceiling("found", 15.9, 15.2, 16.7))
    assert verdict_sentence(run).startswith("Ceiling 15.9 req/s (15.2-16.7), not confirmed by a soak, where the queue")


def test_a_kv_cache_that_is_full_is_named() -> None:
    rows = served_rows()
    rows[4] = changed(rows[4], preemptions=82.0, kv_used_ratio_max=0.998)
    assert "p99 ITL stays at 48.4 ms while the KV cache is full (82 preemptions): memory" in verdict_sentence(
        without_slo(rows=rows)
    )


def test_p99_itl_that_grows_is_told_with_its_numbers() -> None:
    rows = served_rows()
    rows[4] = changed(rows[4], **latencies(351, 833, 52.9, 216.6))
    assert "p99 ITL grows from 40.6 ms to 217 ms on the way there." in verdict_sentence(without_slo(rows=rows))


def test_bursts_say_nothing_about_the_batch() -> None:
    bursts = Check("burst_delivery", "warn", "events came together", "")
    sentence = verdict_sentence(without_slo(checks=[bursts]))
    assert sentence.endswith("ceiling 15.9 (15.2-16.7), where the queue grows without end.")


def test_prefills_that_lift_p99_itl_do_not_hide_a_full_kv_cache() -> None:
    rows = served_rows()
    rows[4] = changed(rows[4], preemptions=82.0, kv_used_ratio_max=0.998)
    mixing = Estimate("found", 4.0, 2.0, 8.0, cause="prefill_mixing")
    assert "which is no limit of capacity; the KV cache is full (82 preemptions)." in verdict_sentence(
        without_slo(rows=rows, estimates={**served().estimates, "p99_itl_knee": mixing})
    )


def test_p99_itl_that_grew_long_before_the_ceiling_has_not_stayed() -> None:
    rows = served_rows()
    rows[0] = changed(rows[0], **latencies(50, 60, 6.9, 8.0))
    rows[3] = changed(rows[3], **latencies(69, 296, 10.1, 206))
    rows[4] = changed(rows[4], **latencies(11200, 25100, 29.3, 297))
    assert "p99 ITL grows from 8 ms to 297 ms on the way there." in verdict_sentence(without_slo(rows=rows))


def test_a_knee_below_the_ceiling_is_told_with_its_cause() -> None:
    knee = Estimate("found", 4.0, 2.0, 8.0, cause="capacity")
    assert "p99 ITL turns steeply upward from 4 req/s, so each step of the engine gets slower." in verdict_sentence(
        without_slo(estimates=estimates(p99_itl_knee=knee))
    )
    mixing = Estimate("found", 4.0, 2.0, 8.0, cause="prefill_mixing")
    assert "because prompts are processed between tokens, which is no limit of capacity." in verdict_sentence(
        without_slo(estimates=estimates(p99_itl_knee=mixing))
    )


def test_not_found_names_the_highest_quiet_rate() -> None:
    run = without_slo(rows=served_rows()[:4], estimates=ceiling("not_found_up_to", 12.0))
    assert verdict_sentence(run) == (
        "No ceiling found up to 12 req/s: the server kept up with every step, so its limit lies higher. "
        "p99 ITL is 48.4 ms there."
    )
    assert verdict(run) == "pass"


def test_a_ramp_that_the_client_could_not_carry_on_does_not_pass() -> None:
    rows = [*served_rows()[:3], changed(served_rows()[3], void=True)]
    run = without_slo(rows=rows, estimates=ceiling("not_found_up_to", 8.0))
    assert verdict_sentence(run).startswith(
        "No ceiling found up to 8 req/s: the server kept up with every step that the client could deliver"
    )
    assert verdict(run) == "inconclusive"
    assert verdict(without_slo(rows=rows[:3], estimates=ceiling("not_found_up_to", 8.0))) == "pass"


def test_below_range_names_the_lowest_rate() -> None:
    run = without_slo(rows=served_rows()[4:5], estimates=ceiling("below_range", 15.9))
    assert verdict_sentence(run) == (
        "Already overloaded at the lowest rate tried, 28 req/s: the ceiling lies below it; its throughput there "
        "suggests about 15.9. Start lower."
    )
    assert verdict(run) == "inconclusive"


def test_inconclusive_gives_the_reason_and_the_bracket() -> None:
    run = without_slo(estimates=ceiling("inconclusive", None, 12.0, 28.0, reason="the alarms contradict each other."))
    assert verdict_sentence(run) == (
        "Inconclusive: the alarms contradict each other. The ceiling lies in 12-28 req/s if anywhere. "
        "At 28 req/s, 15.9 req/s were served."
    )
    assert verdict(run) == "inconclusive"


def test_not_measurable_gives_the_reason() -> None:
    run = without_slo(estimates=ceiling("not_measurable", reason="too few requests"))
    assert verdict_sentence(run) == "The ceiling could not be measured: too few requests."
    assert verdict(run) == "inconclusive"


def test_void_in_every_step_blames_the_client() -> None:
    rows = [changed(r, void=True, reasons={"void": "requests left 40 ms late"}) for r in served_rows()]
    run = served(rows=rows, estimates=ceiling("not_measurable", reason="no usable step"))
    assert verdict_sentence(run).startswith(
        "No verdict: the client, not the server, was the limit in every step (requests left 40 ms late)."
    )
    assert verdict(run) == "void"


def test_a_run_that_was_stopped_says_what_it_rests_on() -> None:
    info = {"state": "stopped", "ending": "interrupted"}
    run = without_slo(info=info, rows=served_rows()[:2], estimates=ceiling("not_found_up_to", 4.0))
    assert verdict_sentence(run).endswith("Stopped early (interrupted): this rests on 2 finished steps.")


def test_a_run_without_a_finished_step_measured_nothing() -> None:
    run = served(info={"state": "stopped", "ending": "interrupted"}, rows=[], table=Table.of([]), estimates={})
    assert verdict_sentence(run) == (
        "No step was finished, so nothing was measured. Stopped early (interrupted): this rests on 0 finished steps."
    )
    assert verdict(run) == "inconclusive"


def test_rp07_all_failed_is_the_headline_in_red() -> None:
    rows = [row(0, 4.0, requests=100, ok=0, errors={"http_5xx": 90, "reset": 10})]
    run = served(rows=rows, estimates=ceiling("not_measurable", reason="no success"))
    assert headline(run) == [
        Phrase("All 100 requests failed (HTTP 5xx 90, connection reset 10): there is nothing to judge.", "bad")
    ]
    assert verdict(run) == "fail"


def test_rp07_ninety_nine_of_a_hundred_failed_comes_before_the_numbers_in_red() -> None:
    rows = [row(0, 4.0, requests=100, ok=1, errors={"http_5xx": 99}, **latencies(10, 20, 5, 6))]
    run = without_slo(rows=rows, estimates=ceiling("not_found_up_to", 4.0))
    first = headline(run)[0]
    assert first == Phrase("99 of 100 requests failed, 99 % (HTTP 5xx 99).", "bad")


def test_a_few_failures_are_told_after_the_numbers() -> None:
    rows = served_rows()
    rows[1] = changed(rows[1], errors={"reset": 2}, ok=398)
    parts = headline(without_slo(rows=rows))
    assert parts[1] == Phrase("2 of 2,400 requests failed, 0.0833 % (connection reset 2).", "warn")


def test_failures_of_void_steps_are_in_neither_the_count_nor_the_total() -> None:
    rows = served_rows()
    rows[1] = changed(rows[1], errors={"reset": 2}, ok=398)
    rows[-1] = changed(rows[-1], errors={"client": 300}, ok=100, void=True, reasons={"void": "requests left late"})
    sentence = verdict_sentence(without_slo(rows=rows))
    assert "2 of 2,000 requests failed, 0.1 % (connection reset 2), without 1 void step." in sentence
    every = [changed(one, void=True, reasons={"void": "late"}) for one in rows]
    assert "302 of 2,400 requests failed" in verdict_sentence(without_slo(rows=every))


def test_without_rows_the_failures_come_from_the_records() -> None:
    records = [Record(i, 0, float(i), status="error", error="connect", stream_end_s=float(i)) for i in range(3)]
    run = served(info={"state": "stopped"}, rows=[], table=Table.of(records), estimates={})
    assert "All 3 requests failed (no connection 3): there is nothing to judge." in verdict_sentence(run)


def test_a_closed_loop_speaks_of_users() -> None:
    ladder = ((1, 0.5), (8, 3.9), (32, 3.6))
    rows = [row(i, None, users=n, done_rps=rps, **latencies(80, 200, 25, 48)) for i, (n, rps) in enumerate(ladder)]
    run = without_slo(rows=rows, estimates=ceiling("not_measurable", reason="closed loop"))
    assert verdict_sentence(run).startswith(
        "Throughput peaks at 3.9 req/s with 8 users, p99 TTFT 200 ms and p99 ITL 48 ms there. Users wait"
    )
    assert verdict(run) == "pass"
    rising = replace(run, estimates=ceiling("not_found_up_to", 3.9, 3.9, None))
    assert verdict_sentence(rising).startswith(
        "Throughput rises up to 3.9 req/s with 8 users, the most tried, p99 TTFT"
    )
    failing = replace(run, rows=[changed(one, overloaded=True) for one in rows])
    assert verdict(failing) == "inconclusive"


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate("not_found_up_to", 12.0), "held at every rate up to 12 req/s."),
        (Estimate("not_found_up_to", 12.0, 8.0), "held at every rate up to 12 req/s, beyond doubt up to 8."),
        (Estimate("not_found_up_to", 12.0, 0.0), "held at every rate up to 12 req/s, beyond doubt at none of them."),
        (Estimate("below_range", 2.0, limit="itl_s"), "is missed already at the lowest rate; ITL gives way first."),
        (Estimate("inconclusive", reason="too few requests"), "is open: too few requests."),
        (Estimate("not_measurable", reason="no p99"), "is open: no p99."),
    ],
)
def test_each_status_of_the_service_level_has_its_words(estimate: Estimate, text: str) -> None:
    phrase = next(p for p in headline(served(estimates=estimates(slo_capacity=estimate))) if "service level" in p.text)
    assert phrase.text == f"The service level (p99 TTFT ≤ 1 s, p99 ITL ≤ 60 ms) {text}" or phrase.text.endswith(text)


def test_a_lower_rate_that_missed_the_service_level_is_not_among_those_at_which_it_held() -> None:
    slow = [changed(row, slo_itl_s=0.2, slo_itl_low_s=0.15, slo_itl_high_s=0.3) for row in served().rows[:1]]
    run = served(estimates=estimates(slo_capacity=Estimate("not_found_up_to", 12.0, 12.0)))
    phrase = slo(replace(run, rows=[*slow, *run.rows[1:]]))
    assert phrase is not None
    assert phrase.tone == "warn"
    assert phrase.text.endswith(
        f"held at 12 req/s. It was missed at {slow[0].rate_rps:g} req/s all the same, which the rate does not explain."
    )


def test_missing_the_service_level_at_the_lowest_rate_fails_the_run() -> None:
    assert verdict(served(estimates=estimates(slo_capacity=Estimate("below_range", 2.0)))) == "fail"
    assert verdict(served()) == "pass"


def test_a_void_finding_about_the_whole_run_voids_the_verdict() -> None:
    assert verdict(served(checks=[Check("dead_worker", "void", "a worker died")])) == "void"


def test_a_hiccup_below_a_quiet_step_is_not_the_ceiling() -> None:
    rows = served_rows()
    rows[1] = changed(rows[1], saturated=True, deficit=True, signals=["backlog"], itl_p99_s=0.9)
    assert "p99 ITL stays at 48.4 ms" in verdict_sentence(without_slo(rows=rows))


def test_p99_itl_that_grows_slowly_is_not_said_to_stay() -> None:
    rows = served_rows()
    at = next(i for i, row in enumerate(rows) if row.saturated)
    rows[0], rows[at] = changed(rows[0], itl_p99_s=0.03), changed(rows[at], itl_p99_s=0.06)
    quiet, over = rows[0], rows[at]
    times = over.rate_rps / quiet.rate_rps
    said = verdict_sentence(without_slo(rows=rows))
    assert f"p99 ITL grows only from 30 ms to 60 ms with {times:.0f} times the rate, so the batch limit" in said


def test_the_service_level_follows_an_override() -> None:
    run = served(scenario=load(SCENARIO, overrides=["slo.ttft_s=0.5", "slo.quantile=0.95", "ramp.start_rps=2"]))
    assert "The service level (p95 TTFT ≤ 500 ms, p95 ITL ≤ 60 ms)" in verdict_sentence(run)


def test_metrics_that_are_lost_leave_the_client_alone_and_the_headline_says_so() -> None:
    run = without_slo(samples=[])
    run.info.metrics = MetricsInfo("vllm")
    assert verdict_sentence(run).endswith(
        "The server's own numbers are lost (server.jsonl is missing or empty): the ceiling, the knee and every cause "
        "rest on what the client saw alone."
    )
    run.info.metrics = None
    assert "lost" not in verdict_sentence(run)


def test_a_void_step_without_one_answer_says_nothing_of_a_higher_limit() -> None:
    rows = served_rows()[:4]
    rows[3] = changed(rows[3], void=True, reasons={"void": "requests left late"}, ok=0, errors={"connect": 400})
    found = ceiling("not_found_up_to", 8.0, 8.0, None)
    sentence = verdict_sentence(without_slo(rows=rows, estimates=found))
    assert "kept up with every step that the client could deliver; at 12 req/s nothing was answered." in sentence
    assert "lies higher" not in sentence


@pytest.mark.parametrize(("failed", "tone"), [(1, "warn"), (2, "bad")])
def test_one_failure_in_24_requests_does_not_open_the_headline_in_red(failed: int, tone: str) -> None:
    rows = [changed(served_rows()[0], requests=24, ok=24 - failed, errors={"http_5xx": failed})]
    run = without_slo(rows=rows, estimates=ceiling("not_found_up_to", 2.0, 2.0, None))
    phrases = headline(run)
    (phrase,) = [one for one in phrases if f"{failed} of 24 requests failed" in one.text]
    assert (phrase.tone, phrases.index(phrase)) == (tone, 0 if tone == "bad" else 1)
