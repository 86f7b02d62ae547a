from typing import Any

import numpy as np
import pytest
from records_and_rows import answer, failure, window

from loadramp.analysis.checks.validity import anderson_darling, lag_by_s, loop_lag_p99_s, void_reasons, workers_needed
from loadramp.record.row import void_lines
from loadramp.record.table import Table
from loadramp.record.types import ClientSample, Record, Step, no_room, says_no_room


def why_void(*args: Any, **more: Any) -> list[str]:
    return void_lines(void_reasons(*args, **more))


def table(lag_s: float = 0.0, n: int = 200, **more: object) -> Table:
    records = [answer(i, i * 0.3, i * 0.3 + 0.2, [0.02] * 5) for i in range(n)]
    for record in records:
        record.sent_s = record.due_s + lag_s
        for name, value in more.items():
            setattr(record, name, value)
    return Table.of(records)


def healthy(**more: float) -> list[ClientSample]:
    return [ClientSample(t_s=float(t), tokens=100, **more) for t in range(60)]  # type: ignore[arg-type]


def test_a_client_on_time_voids_nothing() -> None:
    assert why_void(window(60.0), table(), healthy(loop_lag_s=0.001, cpu_ratio=0.2)) == []
    assert why_void(window(60.0), Table.of([]), []) == []


def test_requests_that_leave_late_void_the_step_with_cause_and_cure() -> None:
    (reason,) = why_void(window(60.0), table(lag_s=0.030), healthy())
    assert "p99 of the lag 30 ms (allowed 20 ms)" in reason
    assert "so the machine was probably busy with something else: use a quieter machine" in reason
    assert "workers" not in reason


def test_the_allowance_for_lag_is_10_ms_or_a_tenth_of_the_median_ttft() -> None:
    assert why_void(window(60.0), table(lag_s=0.019), []) == []
    assert why_void(window(60.0), table(lag_s=0.021), []) != []
    assert why_void(window(60.0), table(lag_s=0.009), [], ttft_p50_s=0.02) == []
    assert why_void(window(60.0), table(lag_s=0.011), [], ttft_p50_s=0.02) != []


def test_time_spent_on_connecting_is_not_the_clients_lateness() -> None:
    assert why_void(window(60.0), table(lag_s=0.100, connect_s=0.095), []) == []


def test_md13_a_cap_on_requests_in_flight_voids_the_step() -> None:
    # 10 req/s, 8 requests of 500 ms, one at a time: each leaves when the one before has ended
    records = [answer(i, i * 0.1, i * 0.5 + 0.5) for i in range(8)]
    for i, record in enumerate(records):
        record.sent_s = i * 0.5
    found = Table.of(records)
    assert np.allclose(found.sent_ttft_s, 0.5)
    assert np.allclose(found.ttft_s, [0.5, 0.9, 1.3, 1.7, 2.1, 2.5, 2.9, 3.3])
    assert found.lag_s.mean() == pytest.approx(1.4)
    assert any("left late" in reason for reason in why_void(window(0.8, 10.0), found, []))


def test_rt02_a_send_rate_below_98_percent_voids_the_step() -> None:
    records = [answer(i, i * 0.3, i * 0.3 + 0.2) for i in range(200)]
    for record in records[194:]:
        record.sent_s = 61.0
    reasons = why_void(window(60.0), Table.of(records), [])
    assert any("6 of 200 planned requests were not sent within the step" in reason for reason in reasons)


def test_a_refused_connection_is_the_servers_doing() -> None:
    records = [failure(i, i * 0.3, kind="connect") for i in range(200)]
    for record in records:
        record.sent_s = None
    assert why_void(window(60.0), Table.of(records), []) == []


BUSY = {"loop_lag_s": 0.2, "cpu_ratio": 0.95}


@pytest.mark.parametrize("kind", ["connect", "reset", "http_5xx", "http_4xx", "truncated"])
def test_a_step_of_which_the_server_failed_every_request_is_no_fault_of_a_slow_client(kind: str) -> None:
    every = [failure(i, i * 0.3, 0.1, kind=kind) for i in range(200)]
    assert why_void(window(60.0), Table.of(every), healthy(**BUSY)) == []
    one_answered = [answer(0, 0.0, 0.2, [0.02] * 5), *every[1:]]
    assert why_void(window(60.0), Table.of(one_answered), healthy(**BUSY)) != []


def test_failures_that_a_slow_client_can_make_void_the_step_even_where_nothing_succeeded() -> None:
    client = [failure(i, i * 0.3, 0.1, kind="client") for i in range(200)]
    assert why_void(window(60.0), Table.of(client), healthy(**BUSY)) != []
    soon = [failure(i, i * 0.25, 1.9, kind="timeout_first") for i in range(200)]  # the loop lagged for up to 0.2 s
    assert why_void(window(60.0), Table.of(soon), healthy(**BUSY)) != []
    late = [failure(i, i * 0.25, 2.1, kind="timeout_first") for i in range(200)]
    assert why_void(window(60.0), Table.of(late), healthy(**BUSY)) == []


def test_few_failures_or_such_as_come_after_the_step_do_not_speak_for_the_client() -> None:
    four = [failure(i, i * 0.3, 0.1) for i in range(4)]
    assert why_void(window(60.0), Table.of(four), healthy(**BUSY)) != []
    assert why_void(window(60.0), Table.of([*four, failure(4, 1.2, 0.1)]), healthy(**BUSY)) == []
    after = [failure(i, i * 0.3, 61.0) for i in range(200)]
    assert why_void(window(60.0), Table.of(after), healthy(**BUSY)) != []


def test_rt06_the_loop_lag_allowed_is_5_ms_or_a_quarter_of_the_median_itl() -> None:
    assert why_void(window(60.0), table(), healthy(loop_lag_s=0.0051)) != []
    assert why_void(window(60.0), table(), healthy(loop_lag_s=0.0049)) == []
    assert why_void(window(60.0), table(), healthy(loop_lag_s=0.0051), itl_p50_s=0.04) == []


def test_one_bad_second_in_a_minute_is_below_p99_of_the_ticks() -> None:
    samples = healthy(loop_lag_s=0.001)
    samples[30].loop_lag_s = 0.2
    assert loop_lag_p99_s(samples) == pytest.approx(0.001)
    assert why_void(window(60.0), table(), samples) == []


def test_a_busy_process_voids_the_step_even_if_another_is_idle() -> None:
    samples = healthy(cpu_ratio=0.1) + [ClientSample(float(t), worker=1, cpu_ratio=0.8) for t in range(60)]
    (reason,) = why_void(window(60.0), table(), samples)
    assert "80 % of a core" in reason


def test_requests_held_back_void_the_step() -> None:
    samples = healthy()
    samples[10].held = 3
    (reason,) = why_void(window(60.0), table(), samples)
    assert reason.startswith("3 requests were held back by max_rps or max_in_flight")


def test_late_reads_void_the_step() -> None:
    samples = healthy()
    for sample in samples:
        sample.late_reads = 2
    (reason,) = why_void(window(60.0), table(), samples)
    assert "120 reads came more than 5 ms after the data" in reason


def test_dx05_a_worker_that_falls_silent_voids_the_step() -> None:
    samples = healthy() + [ClientSample(float(t), worker=1) for t in range(40)]
    (reason,) = why_void(window(60.0), table(), samples)
    assert reason.startswith("worker 1 fell silent")


def test_sends_in_bunches_of_a_random_plan_void_the_step() -> None:
    random_s, even_s = np.cumsum(np.random.default_rng(2).exponential(0.01, 5000)), np.arange(5000) * 0.01
    for due_s, void in ((random_s, True), (even_s, False)):
        records = [answer(i, float(t), float(t) + 1.0) for i, t in enumerate(due_s)]
        for record in records:
            record.sent_s = float(np.ceil(record.due_s / 0.09) * 0.09)
        reasons = why_void(window(60.0), Table.of(records), [], ttft_p50_s=1.0)
        assert any("bunches" in reason for reason in reasons) is void


def test_a_jitter_of_a_millisecond_at_a_high_rate_is_no_bunch() -> None:
    rng = np.random.default_rng(2)
    due_s = np.cumsum(rng.exponential(0.002, 20_000))
    records = [answer(i, float(t), float(t) + 0.1) for i, t in enumerate(due_s)]
    for record in records:
        record.sent_s = record.due_s + float(rng.exponential(0.0003))
    assert why_void(window(40.0), Table.of(records), []) == []


def test_anderson_darling_raises_a_false_alarm_in_a_thousandth_of_poisson_samples() -> None:
    rng = np.random.default_rng(0)
    found = [anderson_darling(rng.exponential(3.0, 200)) for _ in range(4000)]
    assert np.mean(np.array(found) > 1.341) == pytest.approx(0.05, abs=0.012)
    assert np.mean(np.array(found) > 2.98) < 0.003
    assert anderson_darling(np.full(200, 3.0) + rng.normal(0, 0.1, 200)) > 30


def test_the_workers_needed_carry_the_load_at_half_a_core_each() -> None:
    def busy(ratio: float, workers: int) -> list[ClientSample]:
        return [ClientSample(t_s=30.0, worker=w, cpu_ratio=ratio) for w in range(workers)]

    assert workers_needed([]) == 2
    assert workers_needed(busy(0.3, 1)) == 2
    assert workers_needed(busy(0.9, 2)) == 4
    (reason,) = why_void(window(60.0), Table.of([]), busy(0.95, 3))
    assert "used 95 % of a core" in reason
    assert "use 6 workers" in reason


def test_what_happens_after_the_end_of_a_step_has_no_say() -> None:
    records = [answer(i, i * 0.05, i * 0.05 + 0.02) for i in range(100)]
    step = window(5.0, 20.0)
    assert why_void(step, Table.of(records), []) == []
    after = [ClientSample(5.5, loop_lag_s=0.5, cpu_ratio=1.0, held=9, late_reads=99, tokens=100)]
    assert why_void(step, Table.of(records), after) == []
    for late, unsent in zip(records[-2:], (5.02, None), strict=True):
        late.sent_s = unsent  # due 5 and 10 hundredths before the end: not known to be late by then
    assert why_void(step, Table.of(records), []) == why_void(step, Table.of(records), after) == []


def test_a_request_not_sent_by_the_end_is_as_late_as_it_was_by_then() -> None:
    sent = [answer(i, i * 0.05, i * 0.05 + 0.02) for i in range(96)]
    open_ = [Record(i, 0, i * 0.05) for i in range(96, 100)]
    gone = [answer(i, i * 0.05, 7.0, sent_s=6.0) for i in range(96, 100)]
    dropped = [failure(i, i * 0.05, 2.0, "client") for i in range(96, 100)]
    for record in dropped:
        record.sent_s = None
    for last in (open_, gone, dropped):
        table = Table.of([*sent, *last])
        assert lag_by_s(table, 5.0)[-4:] == pytest.approx([0.2, 0.15, 0.1, 0.05])
        reason = why_void(window(5.0, 20.0), table, [], ttft_p50_s=0.02)[0]
        assert reason.startswith("requests left late: p99 of the lag 150 ms (allowed 10 ms)")


def test_a_cure_stands_once_behind_all_that_it_is_for() -> None:
    samples = healthy(loop_lag_s=0.05, cpu_ratio=0.9)
    samples[10].held = 3
    reasons = why_void(window(60.0), table(lag_s=0.030), samples)
    assert reasons == [
        "requests left late: p99 of the lag 30 ms (allowed 20 ms)",
        "the client's event loop lagged: p99 50 ms (allowed 5 ms), so latencies include it",
        "a client process used 90 % of a core (allowed 70 %)",
        "3 requests were held back by max_rps or max_in_flight; the client is too slow for this rate: use 2 workers "
        "(--set fleet.workers=2) or a quieter machine, and raise the cap or end the ramp earlier",
    ]


def test_requests_that_found_no_room_are_not_cured_by_workers() -> None:
    """A thousand requests due, of which half found no file to open: a client twice as fast would have none either."""
    detail = "not sent: 936 requests in flight (max_in_flight, or the limit on open files)"
    step = Step(0, rate_rps=100.0, begin_s=0.0, warmup_s=0.0, measure_s=10.0)
    records = [
        Record(i, 0, i / 100.0, sent_s=i / 100.0, status="ok", event_s=[i / 100.0 + 0.1], stream_end_s=i / 100.0 + 0.2)
        if i % 2
        else Record(i, 0, i / 100.0, status="error", error="client", error_detail=detail, stream_end_s=i / 100.0)
        for i in range(1000)
    ]
    words = " ".join(why_void(step, Table.of(records), []))
    assert "planned requests were not sent" in words
    assert "raise max_in_flight, or where it is not set the limit on open files (ulimit -n)" in words
    assert "workers" not in words


def test_what_the_client_writes_where_it_has_no_room_is_read_as_that() -> None:
    assert no_room(936) == "not sent: 936 requests in flight (max_in_flight, or the limit on open files)"
    assert no_room(1) == "not sent: 1 request in flight (max_in_flight, or the limit on open files)"
    assert says_no_room(no_room(936)) and says_no_room(no_room(1))
    assert says_no_room("OSError: [Errno 24] Too many open files")
    assert not says_no_room("not sent: the client was 31.0 s late")


def test_one_request_held_back_is_said_in_the_singular() -> None:
    samples = healthy(cpu_ratio=0.2)
    samples[10].held = 1
    (reason,) = why_void(window(60.0), table(), samples)
    assert reason.startswith("1 request was held back by max_rps or max_in_flight; ")


def test_a_client_that_used_little_cpu_is_not_told_to_use_more_workers() -> None:
    for used, cure in ((0.69, "used only 69 % of a core"), (0.71, "use 2 workers")):
        reason = why_void(window(60.0), table(lag_s=0.030), healthy(cpu_ratio=used))[-1]
        assert cure in reason
