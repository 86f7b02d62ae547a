import json
import tracemalloc

import numpy as np
import pytest
from curve_rows import columns_of
from records_and_rows import answer, failure, one_server, unfinished, window

from loadramp.analysis.curve import fold, mean_output_tokens
from loadramp.record.row import void_words
from loadramp.record.table import Table
from loadramp.record.types import ClientSample, Sample
from loadramp.scenario.scenario import Slo

CONTRACT = """
    step role rate_rps users begin_s window_begin_s window_end_s requests ok pending errors error_ratio
    sent_rps done_rps throughput_rps lag_p50_s lag_p99_s all_ttft_p99_s all_e2e_p99_s stalled_ratio
    longest_gap_p99_s input_tokens_per_s output_tokens_per_s peak_output_tokens_per_s good_ratio good_rps
    in_flight_begin in_flight_end in_flight_mean in_flight_max queue_first_third queue_last_third
    waiting_max kv_used_ratio_max preemptions server_restarted saturated deficit signals stationary
    p99_itl_elasticity p99_itl_elasticity_se void reasons
"""
FAMILY_COLUMNS = [
    f"{family}_{stat}_s"
    for family in ("ttft", "sent_ttft", "itl", "gap", "tpot", "e2e")
    for stat in ("mean", "p50", "p90", "p95", "p99", "p99_low", "p99_high")
]


def steady_answers(n: int = 600, rate: float = 10.0) -> list:
    rng = np.random.default_rng(0)
    return [
        answer(i, i / rate, i / rate + 0.1 * float(rng.lognormal(0, 0.2)), list(0.02 * rng.lognormal(0, 0.2, 20)),
               prompt_tokens=50, asked_output_tokens=21)
        for i in range(n)
    ]  # fmt: skip


def test_a_row_carries_every_column_of_the_contract_and_is_strict_json() -> None:
    for records in (steady_answers(), [], [answer(0, 1.0, 1.5, [0.1])], [failure(i, i * 0.1) for i in range(100)]):
        row = fold(window(60.0, 10.0), Table.of(records))
        columns = columns_of(row)
        assert [name for name in CONTRACT.split() + FAMILY_COLUMNS if name not in columns] == []
        json.dumps(columns, allow_nan=False)
        assert all(columns.get(name) is not None or name for name in row.reasons)


def test_a_plain_step_gives_plain_numbers() -> None:
    row = fold(window(60.0, 10.0), Table.of(steady_answers()))
    assert (row.requests, row.ok, row.pending, row.errors) == (600, 600, 0, {})
    assert row.sent_rps == pytest.approx(10.0)
    assert row.done_rps == pytest.approx(9.9, abs=0.1)
    assert row.of("ttft").p50.value == pytest.approx(0.1, rel=0.05)
    assert row.of("itl").p99.value == pytest.approx(0.02 * np.exp(0.2 * 2.326), rel=0.05)
    assert row.of("itl").p99.low < row.of("itl").p99.value < row.of("itl").p99.high
    assert row.input_tokens_per_s == pytest.approx(500.0)
    assert row.output_tokens_per_s == pytest.approx(209.0, abs=2.0)
    assert row.throughput_rps == pytest.approx(9.95, abs=0.1)
    assert not row.saturated
    assert row.stationary
    assert row.error_ratio == 0.0
    assert row.token_source == "usage"


def test_er09_st10_a_step_of_failures_has_counts_and_no_latencies() -> None:
    row = fold(window(60.0, 2.0), Table.of([failure(i, i * 0.5) for i in range(100)]))
    assert (row.requests, row.ok, row.error_ratio) == (100, 0, 1.0)
    assert row.errors == {"http_5xx": 100}
    assert row.of("ttft").p50.value is None
    assert row.reasons["ttft_p50_s"] == "nothing to measure in this window"
    assert row.of("all_ttft").p50.value is None
    assert row.reasons["all_ttft_p50_s"] == "100 % of the requests failed"
    assert row.throughput_rps == 0.0
    assert row.deficit
    assert row.good_ratio == 0.0


def test_an_empty_step_has_no_numbers() -> None:
    row = fold(window(60.0), Table.of([]))
    assert (row.requests, row.error_ratio, row.good_ratio, row.deficit) == (0, None, None, False)


def test_st11_requests_belong_to_the_window_they_were_due_in_and_are_followed_past_it() -> None:
    burst = [answer(i, 0.5, 3.0) for i in range(50)]  # a start burst within the warm-up
    inside = [answer(50 + i, 2.0 + i * 0.1, 2.2 + i * 0.1) for i in range(180)]
    tail = answer(230, 19.95, 40.0)
    row = fold(window(18.0, 10.0, warmup_s=2.0), Table.of([*burst, *inside, tail]))
    assert row.requests == 181
    assert row.of("ttft").n == 181
    assert row.of("ttft").p50.value == pytest.approx(0.2)
    assert row.in_flight_begin == 51.0  # the burst and the first one inside
    assert row.in_flight_end == 2.0


def test_a_row_made_while_requests_are_in_flight_says_how_many() -> None:
    records = [*steady_answers(300), *[unfinished(300 + i, 30.0 + i * 0.1) for i in range(300)]]
    row = fold(window(60.0, 10.0), Table.of(records), now_s=60.0)
    assert (row.ok, row.pending) == (300, 300)
    assert row.saturated
    assert set(row.signals) >= {"queue", "backlog"}
    assert row.deficit
    assert row.of("ttft").p50.value == pytest.approx(0.2, rel=0.1)  # a half has no first token yet (Kaplan-Meier)
    assert row.of("ttft").p90.value is None
    assert "longer than the longest wait seen so far" in row.reasons["ttft_p90_s"]
    assert row.reasons["stationary"].startswith("not stationary: no interval")
    assert row.of("itl").p99.low is None


def test_a_step_cut_short_is_measured_up_to_the_cut() -> None:
    row = fold(window(60.0, 10.0), Table.of(steady_answers(200)), now_s=20.0)
    assert row.window_end_s == 20.0
    assert row.requests == 200
    assert row.sent_rps == pytest.approx(10.0)


def test_md13_latencies_count_from_due_and_from_sent_side_by_side() -> None:
    records = [answer(i, i * 0.1, i * 0.5 + 0.5, [], sent_s=i * 0.5) for i in range(8)]
    row = fold(window(0.8, 10.0), Table.of(records))
    assert row.of("sent_ttft").p50.value == pytest.approx(0.5)
    assert row.of("ttft").p50.value == pytest.approx(1.9)
    assert row.of("ttft").mean.value == pytest.approx(1.9)
    assert row.void


def test_md19_answers_without_usage_name_their_token_source() -> None:
    row = fold(
        window(10.0), Table.of([answer(i, i * 1.0, i + 0.1, [0.01] * 4, token_source="events") for i in range(9)])
    )
    assert row.token_source == "events"


def test_st05_an_overloaded_single_server_is_saturated_and_in_deficit() -> None:
    due_s = np.cumsum(np.random.default_rng(0).exponential(1 / 30.0, 1800))
    row = fold(window(60.0, 30.0), Table.of(one_server(due_s.tolist(), 0.05)), base_ttft_p50_s=0.005, now_s=60.0)
    assert row.saturated
    assert row.deficit
    assert row.throughput_rps == pytest.approx(20.0, abs=0.3)
    assert row.throughput_blocks == pytest.approx([20.0] * 10, rel=0.1)


def test_closed_loop_rows_take_no_number_in_flight_for_a_backlog() -> None:
    records = [answer(i, (i // 8) * 1.0, (i // 8) * 1.0 + 0.2, [0.1] * 7) for i in range(480)]
    row = fold(window(60.0, rate_rps=None, users=8), Table.of(records))
    assert row.users == 8
    assert row.rate_rps is None
    assert row.signals == []
    assert "backlog" not in row.evidence


def test_limits_give_slo_columns_at_the_quantile_asked_for() -> None:
    row = fold(window(60.0, 10.0), Table.of(steady_answers()), slo=Slo(ttft_s=0.13, itl_s=0.05, quantile=0.9))
    assert row.statistic("slo_ttft").value == row.of("ttft").p90.value
    assert row.statistic("slo_itl").value == row.of("itl").p90.value
    assert 0.05 < row.slo["ttft"].over_ratio < 0.15
    assert row.good_ratio == pytest.approx(1 - row.slo["ttft"].over_ratio, abs=0.01)
    assert row.good_rps == pytest.approx(10 * row.good_ratio)
    refused = fold(window(60.0, 10.0), Table.of(steady_answers(100)), slo=Slo(ttft_s=0.13, quantile=0.999))
    assert refused.statistic("slo_ttft").value is None
    assert "cannot carry a p99.9" in refused.reasons["slo_ttft_s"]


def test_mean_answer_is_that_of_the_requests_due_not_of_those_that_finished_first() -> None:
    short = [answer(i, i * 0.1, i * 0.1 + 0.1, [0.01] * 9, asked_output_tokens=10) for i in range(50)]
    long = [unfinished(50 + i, i * 0.1) for i in range(50)]
    for record in long:
        record.asked_output_tokens = 1000
    assert mean_output_tokens(Table.of(short + long), 0.0, 10.0)[0] == pytest.approx(505.0)


def test_answers_shorter_than_asked_scale_the_mean_answer() -> None:
    records = [answer(i, i * 0.1, i * 0.1 + 0.1, [0.01] * 4, asked_output_tokens=10) for i in range(50)]
    assert mean_output_tokens(Table.of(records), 0.0, 10.0)[0] == pytest.approx(5.0)
    assert mean_output_tokens(Table.of([]), 0.0, 10.0)[0] is None


def test_prefills_that_end_with_the_slow_gaps_explain_them() -> None:
    steady = answer(0, 0.0, 0.1, [0.02] * 2000)
    slow, records = [0.02] * 2000, []
    for k in range(40):
        slow[k * 50 + 10] = 0.2
    ends = 0.1 + np.cumsum(slow)
    records.extend(answer(2 + k, float(ends[k * 50 + 10]) - 0.3, float(ends[k * 50 + 10]), [0.02]) for k in range(40))
    other = answer(1, 0.0, 0.1, slow)
    row = fold(window(60.0), Table.of([steady, other, *records]))
    assert row.prefill_share > 0.9
    assert fold(window(60.0), Table.of([steady, other])).prefill_share == 0.0


def test_the_servers_numbers_are_null_without_metrics_and_never_zero() -> None:
    row = fold(window(60.0, 10.0), Table.of(steady_answers()))
    assert (row.waiting_max, row.kv_used_ratio_max, row.preemptions, row.server_restarted) == (None,) * 4


def test_the_servers_numbers_are_those_of_the_window() -> None:
    samples = [
        Sample(
            float(t), "a", {"waiting": float(t % 7), "running": 9.0, "kv_used_ratio": t / 100, "preemptions": 5.0 * t}
        )
        for t in range(80)
    ]
    row = fold(window(60.0, 10.0), Table.of(steady_answers()), samples=samples)
    assert row.waiting_max == 6.0
    assert row.kv_used_ratio_max == pytest.approx(0.59)
    assert row.preemptions == pytest.approx(300.0)
    assert row.server_restarted is False


def test_a_void_step_says_why() -> None:
    late = steady_answers()
    for record in late:
        record.sent_s = record.due_s + 0.05
    row = fold(window(60.0, 10.0), Table.of(late), client=[ClientSample(1.0)])
    assert row.void
    assert "left late" in void_words(row.void)


def test_a_step_takes_less_than_100_bytes_of_memory_for_each_token() -> None:
    """Bytes are counted, not time: the largest step decides how large a run can be judged."""
    answers = [answer(i, i * 0.2, i * 0.2 + 0.1, [0.018 + 1e-4 * (k % 7) for k in range(1000)]) for i in range(100)]
    table = Table.of(answers)
    tracemalloc.start()
    fold(window(60.0, 5.0), table, slo=Slo(itl_s=0.1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * len(table.event_s)
