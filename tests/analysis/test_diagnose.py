"""Each label on an engine that has the trouble, and none on one that has not."""

from dataclasses import replace

import numpy as np
import pytest
from curve_rows import changed
from records_and_rows import H200_RATES, failure, h200, window
from simulated_ramps import codes, found, ladder

from benchmarks.engine_population import Lengths
from loadramp.analysis.curve import fold
from loadramp.analysis.diagnosis.cures import with_cures
from loadramp.analysis.diagnosis.diagnose import diagnose
from loadramp.analysis.error_classes import classes
from loadramp.record.row import Void
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import ClientSample, Record, Sample, Step
from loadramp.report import verdict_sentence
from loadramp.runner.assess import assess
from loadramp.runner.scenarios import load
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.regimes import Stall

KV = Lengths(512, 0.0, 128, 0.0)
SMALL = PROFILES["small"]


def test_an_engine_that_keeps_up_is_healthy_and_nothing_else() -> None:
    run = ladder(SMALL, [2, 4, 8])
    assert codes(run) == ["healthy"]
    assert run.findings[0].steps == (0, 1, 2)
    assert "every step up to 8 req/s kept up, none failed" in run.findings[0].evidence
    assert codes(ladder(SMALL, [2, 4, 8], metrics=False)) == ["healthy"]


def test_a_kv_cache_too_small_is_found_by_the_servers_own_count() -> None:
    run = ladder(PROFILES["kv-limited"], [4, 16, 24, 32], KV)
    assert run.findings[0].code == "kv_eviction"
    assert run.findings[0].confidence == "certain"
    assert run.findings[0].steps == (2, 3)
    assert "preemptions among" in run.findings[0].evidence[0]
    assert "KV cache up to 100 % full there" in run.findings[0].evidence
    assert not {"scheduler_oversubscription", "compute_bound"} & set(codes(run))


def test_a_kv_cache_too_small_is_found_without_metrics_by_streams_that_freeze_alone() -> None:
    run = ladder(PROFILES["kv-limited"], [4, 16, 24, 32], KV, metrics=False)
    assert run.findings[0].code == "kv_eviction"
    assert run.findings[0].confidence == "likely"
    assert "while the others went on" in run.findings[0].evidence[0]


def test_pooled_p99_itl_that_stays_flat_does_not_hide_the_kv_cache() -> None:
    """As on a real H200 with 2,400 blocks: one preemption is one gap in an answer of 128 tokens or more."""
    profile = replace(PROFILES["kv-limited"], token_budget=1024)
    lengths = Lengths(512, 0.3, 300, 0.3, prompt_max=900)
    for metrics in (True, False):
        run = ladder(profile, [4, 8, 16], lengths, metrics=metrics, measure_s=40.0)
        quiet, worst = run.rows[0], run.rows[-1]
        assert worst.of("itl").p99.value < 1.5 * quiet.of("itl").p99.value
        assert run.findings[0].code == "kv_eviction"
        assert any("pooled p99 ITL hides it" in words for words in run.findings[0].evidence)


@pytest.mark.parametrize(("preemptions", "code", "confidence"), [
    (29.0, "kv_eviction", "possible"), (173.0, "kv_eviction", "possible"), (174.0, "kv_eviction", "certain"),
])  # fmt: skip
def test_preemptions_of_few_requests_are_never_what_gives_way(preemptions: float, code: str, confidence: str) -> None:
    """A real vLLM counted 29 among 8,692 requests, and its ceiling was of the GPU's time."""
    run = ladder(SMALL, [8])
    run.rows[0] = changed(run.rows[0], preemptions=preemptions, requests=8692)
    told = diagnose(run)
    assert (found(replace(run, findings=told), code).confidence) == confidence
    assert told[0].code == ("kv_eviction" if confidence == "certain" else "healthy")
    assert f"{preemptions:.0f} preemptions among 8,692 requests" in told[-1].evidence[0]
    few = "up to 2 % of the requests they are too few to hold up the others"
    assert (few in told[-1].evidence) == (confidence == "possible")
    run.rows[0] = changed(run.rows[0], preemptions=4.0)
    assert [one.code for one in diagnose(run)] == ["healthy"]


def test_a_gpu_at_its_limit_that_preempts_a_few_is_bound_by_compute_and_cured_as_such() -> None:
    profile = replace(PROFILES["h100-8b"], decode_s=120e-6, kv_blocks=60_000)
    run = ladder(profile, [8, 16, 48], Lengths(200, 0.3, 150, 0.3))
    run.rows[2] = changed(run.rows[2], preemptions=0.0033 * run.rows[2].requests + 2.0)
    run.findings = diagnose(run)
    first = with_cures(run.findings, run)[0]
    assert (first.code, first.confidence, first.steps) == ("compute_bound", "likely", (2,))
    assert first.cures[0].name == "quantized_weights"
    assert found(run, "kv_eviction").confidence == "possible"
    assert "KV cache" not in verdict_sentence(run)


def test_streams_that_freeze_are_only_possible_evictions_where_the_server_counted_few() -> None:
    run = ladder(PROFILES["kv-limited"], [4, 16, 24, 32], KV)
    run.rows = [changed(row, preemptions=min(row.preemptions or 0.0, 0.01 * row.requests)) for row in run.rows]
    told = diagnose(run)
    assert next(one for one in told if one.code == "kv_eviction").confidence == "possible"
    assert told[0].code != "kv_eviction"
    assert "stream_stall" not in [one.code for one in told]


def test_the_limit_that_shows_at_the_lowest_load_comes_first() -> None:
    """The GPU at 48 req/s, the cache at 96: the ceiling is the GPU's."""
    profile = replace(PROFILES["h100-8b"], decode_s=120e-6, kv_blocks=60_000)
    run = ladder(profile, [8, 16, 48, 96], Lengths(200, 0.3, 150, 0.3))
    run.rows[3] = changed(run.rows[3], preemptions=0.1 * run.rows[3].requests)
    assert codes_of(run) == ["compute_bound", "kv_eviction"]
    run.rows[2] = changed(run.rows[2], preemptions=0.1 * run.rows[2].requests)
    assert codes_of(run) == ["kv_eviction"]


def test_a_batch_limit_is_told_from_a_full_kv_cache_and_from_a_busy_gpu() -> None:
    run = ladder(PROFILES["h200-8b-seqs64"], [4, 8, 32], Lengths(512, 0.3, 128, 0.3))
    assert codes(run) == ["scheduler_oversubscription"]
    first = run.findings[0]
    assert first.confidence == "certain"
    assert any("the batch stands at 64 requests" in words for words in first.evidence)
    assert any("the KV cache has room" in words for words in first.evidence)
    blind = ladder(PROFILES["h200-8b-seqs64"], [4, 8, 32], Lengths(512, 0.3, 128, 0.3), metrics=False)
    assert (blind.findings[0].code, blind.findings[0].confidence) == ("scheduler_oversubscription", "likely")


def test_a_large_batch_that_slows_every_step_down_is_bound_by_compute() -> None:
    profile = replace(PROFILES["h100-8b"], decode_s=120e-6, kv_blocks=60_000)
    run = ladder(profile, [8, 16, 48], Lengths(200, 0.3, 150, 0.3))
    assert run.findings[0].code == "compute_bound"
    assert run.findings[0].evidence[0].startswith("median ITL")


def test_a_real_h200_with_default_limits_is_bound_by_compute() -> None:
    """Every token of vLLM 0.25 at 4 to 96 req/s, 20 s each, laid one after the other; no metrics."""
    records = [record for k, rate in enumerate(H200_RATES) for record in h200(rate, 100.0 * k, k, 10_000 * k)]
    steps = [Step(k, rate_rps=float(rate), begin_s=100.0 * k, warmup_s=0.0, measure_s=20.0)
             for k, rate in enumerate(H200_RATES)]  # fmt: skip
    run = assess(Run(RunInfo(), load(""), steps, Table.of(records)))
    assert run.findings[0].code == "compute_bound"
    assert run.findings[0].steps == (5, 6)
    assert not {"kv_eviction", "engine_stall", "stream_stall"} & set(codes(run))


def test_a_kv_cache_that_makes_requests_wait_without_throwing_them_out_is_full() -> None:
    run = ladder(PROFILES["h200-8b-seqs64"], [4, 8, 32], Lengths(512, 0.3, 128, 0.3))
    run.rows[2] = changed(run.rows[2], kv_used_ratio_max=0.99, running_mean=50.0)
    assert codes_of(run) == ["kv_full"]


def test_stalls_of_the_whole_engine_are_found_at_the_lowest_load() -> None:
    run = ladder(PROFILES["tp-stalls"], [1, 2, 4])
    assert codes(run) == ["engine_stall"]
    assert "at the lowest load already, so it is not a matter of load" in run.findings[0].evidence
    assert 0 in run.findings[0].steps


def test_a_rare_hiccup_is_no_stalling_engine() -> None:
    assert codes(ladder(replace(SMALL, stalls=(Stall(20.0, 0.15),)), [2, 4, 8])) == ["healthy"]


def test_prompts_computed_whole_hold_up_the_tokens_of_others() -> None:
    run = ladder(PROFILES["no-chunked-prefill"], [1, 2, 4], Lengths(1000, 1.0, 200, 0.5))
    assert codes(run) == ["prefill_contention"]
    assert any("more than 1,000 times as likely" in words for words in run.findings[0].evidence)


def test_spikes_that_nobody_notices_are_only_possible_contention_unless_the_slo_says_otherwise() -> None:
    profile, lengths = PROFILES["h100-8b"], Lengths(600, 0.3, 150, 0.3)
    run = ladder(profile, [2, 6], lengths)
    assert codes(run) == ["healthy"]
    assert found(run, "prefill_contention").confidence == "possible"
    strict = ladder(profile, [2, 6], lengths, scenario="[slo]\nitl_s = 0.015\n")
    assert codes(strict) == ["prefill_contention"]


def test_few_accepted_drafts_are_told_with_the_servers_count() -> None:
    run = ladder(PROFILES["weak-draft"], [2, 4])
    assert codes(run) == ["speculation_weak"]
    assert "of the proposed tokens were accepted" in run.findings[0].evidence[0]


def test_prompts_that_should_be_new_and_were_cached() -> None:
    def warm(n: int) -> list[list[int]]:
        return [list(range(60)) if i % 6 == 0 else [] for i in range(n)]

    run = ladder(SMALL, [2, 4], blocks=warm)
    assert codes(run) == ["prefix_cache_accidental"]
    shared = 'prompts = { kind = "conversations", file = "talks.json" }'
    assert codes(ladder(SMALL, [2, 4], blocks=warm, scenario=shared)) == ["healthy", "prefix_cache_idle"]


def test_a_change_of_speed_that_stays_is_seen_and_a_change_of_capacity_only_possible() -> None:
    for factor in (0.5, 2.0):
        run = ladder(replace(SMALL, speeds=((65.0, factor),)), [2, 4, 6])
        assert codes(run)[0] == "engine_unstable"
        assert run.findings[0].steps == (1,)
        assert run.findings[0].evidence[0].startswith("65 s into the run") or "64 s" in run.findings[0].evidence[0]
        assert found(run, "autoscaler_moved").confidence == "possible"


def test_refusals_that_the_server_counts_are_found_whatever_it_says() -> None:
    run = ladder(replace(SMALL, max_queue=10), [4, 8, 48])
    assert run.findings[0].code == "admission_failure"
    assert any("rejections" in words for words in run.findings[0].evidence)


def test_a_client_that_delivered_no_step_is_all_that_is_told() -> None:
    run = ladder(PROFILES["tp-stalls"], [1, 2])
    lagged = (Void("the client's event loop lagged: p99 80 ms", "more workers"),)
    run.rows = [changed(row, void=lagged) for row in run.rows]
    assert [(one.code, one.steps) for one in diagnose(run)] == [("client_limited", (0, 1))]


def test_a_void_step_is_told_first_and_the_others_are_still_judged() -> None:
    run = ladder(PROFILES["tp-stalls"], [1, 2, 4])
    run.rows[2] = changed(run.rows[2], void=True, reasons={"void": "requests left late"})
    assert codes_of(run) == ["client_limited", "engine_stall"]
    assert diagnose(run)[0].evidence == ("1 of 3 steps is void: requests left late",)


def test_prompts_too_long_for_the_model_are_named_as_such() -> None:
    told = ("This model's maximum context length is 4096 tokens.", "the request exceeds the available context size")
    records = [Record(seq=i, step=0, due_s=0.1 * i, status="error", error="http_4xx", error_detail=words)
               for i, words in enumerate(told)]  # fmt: skip
    assert classes(Table.of(records)) == {"long": 2}


def test_void_steps_are_counted_together_though_their_figures_and_units_differ() -> None:
    run = ladder(PROFILES["tp-stalls"], [1, 2, 4])
    lagged = (("lagged: p99 810 ms", "loop_lag"), ("9 late reads", "late_reads"), ("lagged: p99 1.2 s", "loop_lag"))
    voids = [(Void(what, rule=rule),) for what, rule in lagged]
    run.rows = [changed(row, void=void) for row, void in zip(run.rows, voids, strict=True)]
    assert diagnose(run)[0].evidence == ("3 of 3 steps are void: lagged: p99 810 ms", "1 of them: 9 late reads")


@pytest.mark.parametrize(
    ("kind", "rule", "code"),
    [
        ("connect", "cpu", "errors"),
        ("timeout_first", "late", "errors"),
        ("timeout_first", "cpu", "client_limited"),  # a client without CPU may let a time limit run out
        ("client", "late", "client_limited"),
    ],
)
def test_void_steps_without_one_answer_are_told_by_their_failures(kind: str, rule: str, code: str) -> None:
    records = [failure(i, i * 0.1, 61.0, kind=kind) for i in range(600)]
    step = window(60.0, 10.0)
    rows = [replace(fold(step, Table.of(records)), void=(Void("the client was busy", rule=rule),))]
    run = Run(info=RunInfo(), scenario=load(""), steps=[step], table=Table.of(records), rows=rows)
    assert [finding.code for finding in diagnose(run)] == [code]


def test_a_void_step_that_was_delivered_when_it_was_offered_again_is_no_limit() -> None:
    run = ladder(SMALL, [2, 4, 4])
    run.rows[1] = changed(run.rows[1], void=True, reasons={"void": "requests left late"})
    assert codes_of(run) == ["healthy"]


def test_gaps_that_the_clients_own_loop_made_are_not_the_servers() -> None:
    run = ladder(PROFILES["tp-stalls"], [1, 2])
    run.client = [ClientSample(float(t), loop_lag_s=0.5) for t in range(80)]
    assert codes_of(run) == ["client_limited"]


def test_bursts_silence_every_rule_about_gaps() -> None:
    run = ladder(PROFILES["tp-stalls"], [1, 2])
    quantum = 0.1
    run.table = replace(run.table, event_s=np.ceil(run.table.event_s / quantum) * quantum)
    assert codes_of(run) == ["proxy_buffering"]
    assert "the bursts are 100 ms apart" in diagnose(run)[0].evidence


def test_an_xid_error_that_appears_is_certain_and_one_that_was_there_is_possible() -> None:
    run = ladder(SMALL, [2, 4], metrics=False)
    run.samples = [Sample(float(t), "gpu", {"gpu_xid_errors": 79.0 if t > 30 else 0.0}) for t in range(70)]
    first = diagnose(run)[0]
    assert (first.code, first.confidence) == ("hardware_fault", "certain")
    assert first.evidence == ("Xid 79 reported by the GPU driver during the run",)
    run.samples = [Sample(float(t), "gpu", {"gpu_xid_errors": 31.0}) for t in range(70)]
    assert [(one.code, one.confidence) for one in diagnose(run)] == [
        ("healthy", "likely"), ("hardware_fault", "possible"),
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "status", "said", "code"),
    [
        ("http_5xx", 500, "CUDA out of memory. Tried to allocate 2.00 GiB (InternalServerError, 500)", "out_of_memory"),
        ("http_5xx", 500, "NCCL error: unhandled system error", "hardware_fault"),
        ("in_band", 200, "EngineCore encountered an issue. See stack trace", "server_down"),
        ("http_429", 429, "Model is overloaded", "admission_failure"),
        ("http_5xx", 503, "", "admission_failure"),
        ("http_5xx", 502, "", "server_down"),
        ("http_5xx", 500, "there is no room in this zoo", "errors"),
        ("http_4xx", 400, "maximum context length is 2048 tokens", "errors"),
        ("timeout_total", None, "", "errors"),
    ],
)
def test_failures_are_sorted_by_what_the_server_says(kind: str, status: int | None, said: str, code: str) -> None:
    run = ladder(SMALL, [4, 8])
    failed = np.flatnonzero(run.table.step == 1)[::10]
    columns = {
        "status": "error",
        "error": kind,
        "error_detail": said,
        "http_status": np.nan if status is None else status,
    }
    for name, value in columns.items():
        getattr(run.table, name)[failed] = value
    assert codes_of(assess(run)) == [code]
    assert said == "" or not any(said in words for finding in run.findings for words in finding.evidence)


def test_a_few_refusals_are_no_certain_limit() -> None:
    run = ladder(SMALL, [4, 8])
    refused = np.flatnonzero(run.table.step == 1)
    for name, value in {"status": "error", "error": "http_5xx", "error_detail": "", "http_status": 503}.items():
        getattr(run.table, name)[refused[100:103]] = value
    (finding,) = [finding for finding in diagnose(assess(run)) if finding.code == "admission_failure"]
    assert finding.confidence == "possible"
    assert finding.evidence[-1] == "so few refusals do not show that more than 1 % are refused"


def failing(run: Run, steps: tuple[int, ...], every: int) -> Run:
    """The run with every so manieth request of these steps refused as too busy."""
    failed = np.flatnonzero(np.isin(run.table.step, steps))[::every]
    for name, value in {"status": "error", "error": "http_5xx", "error_detail": "", "http_status": 503}.items():
        getattr(run.table, name)[failed] = value
    return assess(run)


def test_refusals_at_the_only_load_do_not_tell_a_quota_from_a_lack_of_room() -> None:
    quota = "the lowest load: a quota rather than a lack of room"
    one = failing(ladder(SMALL, [8]), (0,), 10)
    assert not any(quota in words for words in found(one, "admission_failure").evidence)
    near = failing(ladder(SMALL, [8, 12]), (0, 1), 10)
    assert not any(quota in words for words in found(near, "admission_failure").evidence)
    far = failing(ladder(SMALL, [4, 8]), (0, 1), 10)
    assert found(far, "admission_failure").evidence[1] == f"as many at 4 req/s, {quota}"


def test_what_failed_is_not_hidden_where_nothing_gave_way() -> None:
    run = failing(ladder(SMALL, [4, 8]), (1,), 250)
    assert found(run, "healthy").evidence[0] == "every step up to 8 req/s kept up, 1 of 341 requests failed"


def test_nothing_is_called_healthy_that_missed_the_service_level_at_a_lower_rate() -> None:
    run = ladder(SMALL, [2, 4, 8], scenario="[slo]\nttft_s = 0.5")
    assert codes(run) == ["healthy"]
    slow = run.table.step == 1  # the first of them are then due in the step at 2 req/s
    run.table.due_s[slow] -= 1.0
    run.table.sent_s[slow] -= 1.0
    run = assess(run)
    assert "clearly missed at 2 req/s" in verdict_sentence(run)
    assert "healthy" not in [finding.code for finding in run.findings]


def test_stalls_at_the_only_load_may_come_of_it() -> None:
    run = ladder(PROFILES["tp-stalls"], [4])
    assert "at the only load that was measured" in found(run, "engine_stall").evidence


def test_timeouts_of_an_overloaded_step_are_its_queues() -> None:
    run = ladder(replace(SMALL, max_num_seqs=16), [4, 48])
    late = np.flatnonzero(run.table.step == 1)[::10]
    run.table.status[late], run.table.error[late] = "error", "timeout_first"
    assert "errors" not in codes_of(assess(run))


def test_nothing_measured_nothing_found() -> None:
    assert diagnose(Run(RunInfo(), load(""), [], Table.of([]))) == []


def test_users_that_wait_for_each_other_are_judged_by_their_number() -> None:
    run = ladder(SMALL, [2, 4])
    run.rows = [changed(row, rate_rps=None, users=users) for row, users in zip(run.rows, (4, 8), strict=True)]
    assert diagnose(run)[0].evidence[0] == "every step up to 8 users kept up, none failed"


def codes_of(run: Run) -> list[str]:
    return [finding.code for finding in diagnose(run) if finding.confidence != "possible"]
