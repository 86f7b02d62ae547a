import numpy as np
import pytest
from records_and_rows import answer, one_server, unfinished

from loadramp.analysis import saturation
from loadramp.analysis.saturation import (
    Occupancy,
    backlog,
    deficit,
    occupancy,
    queue,
    rising,
    server_queue,
    trend,
    ttft_trend,
)
from loadramp.record.table import Table
from loadramp.record.types import Sample

WINDOW = (0.0, 60.0)


def load(in_flight: list[float], queued: list[float]) -> Occupancy:
    t_s = (np.arange(len(in_flight)) + 0.5) * 60.0 / len(in_flight)
    return Occupancy(t_s, np.array(in_flight, dtype=float), np.array(queued, dtype=float))


def test_in_flight_and_queued_are_counted_at_instants() -> None:
    table = Table.of([answer(0, 0.0, 2.0, [1.0]), answer(1, 1.0, 1.5, [0.2]), unfinished(2, 2.5)])
    at_s = np.array([0.5, 1.2, 1.6, 2.6, 5.0])
    assert saturation.in_flight_at(table, at_s).tolist() == [1, 2, 2, 2, 1]
    assert saturation.queued_at(table, at_s).tolist() == [1, 2, 1, 1, 1]


def test_a_queue_that_grows_past_five_a_tenth_of_the_batch_and_four_base_waits_is_saturation() -> None:
    growing = [0.0] * 20 + [5.0] * 20 + [12.0] * 20
    assert queue(load([30 + q for q in growing], growing), 10.0, 0.05).fired
    assert not queue(load([30 + q for q in growing], growing), 10.0, 0.5).fired  # 4 * 10 * 0.5 = 20 wait anyway
    assert not queue(load([230 + q for q in growing], growing), 10.0, 0.05).fired  # a tenth of 230 may
    assert not queue(load([40.0] * 60, [12.0] * 60), 10.0, 0.05).fired  # high but not growing


def test_requests_in_flight_that_climb_are_saturation_and_noise_is_not() -> None:
    rng = np.random.default_rng(1)
    climbing = [10 + 4 * k / 1.0 + rng.normal() for k in range(60)]
    assert backlog(load(climbing, [0.0] * 60), 10.0, 600).fired
    level = [40 + rng.normal(0, 6) for _ in range(60)]
    assert not backlog(load(level, [0.0] * 60), 10.0, 600).fired
    slight = [40 + 0.1 * k for k in range(60)]  # significant, but 6 of 600 arrivals are nothing
    assert not backlog(load(slight, [0.0] * 60), 10.0, 600).fired


def test_waits_are_followed_by_the_instant_of_the_first_token() -> None:
    overloaded = Table.of(one_server(np.arange(0.0, 60.0, 0.1).tolist(), 0.2))
    assert ttft_trend(overloaded, WINDOW).fired
    steady = Table.of(one_server(np.arange(0.0, 60.0, 0.3).tolist(), 0.2))
    assert not ttft_trend(steady, WINDOW).fired
    few = Table.of(one_server(np.arange(0.0, 60.0, 3.0).tolist(), 5.0))
    assert ttft_trend(few, WINDOW).figures == {}


def test_the_servers_own_queue_during_the_real_step_of_20_on_64_sequences_is_saturation() -> None:
    # running and waiting of vLLM with max_num_seqs 64 at 20 req/s, scraped every two seconds (one H200)
    seen = [(79.9, 16, 0), (82.1, 46, 0), (84.2, 64, 2), (86.4, 63, 13), (88.5, 64, 26), (90.7, 64, 56), (92.9, 63, 60),
            (95.1, 64, 58), (97.2, 64, 50), (99.4, 64, 54)]  # fmt: skip
    samples = [Sample(t_s, "a", {"running": running, "waiting": waiting}) for t_s, running, waiting in seen]
    assert server_queue(samples, (79.0, 99.5), 54.0).fired
    # ... and at 12 req/s it is not
    seen = [(30.4, 26, 0), (32.6, 50, 0), (34.7, 35, 0), (36.9, 40, 0), (39.0, 37, 0), (41.2, 54, 0), (43.3, 64, 3)]
    samples = [Sample(t_s, "a", {"running": running, "waiting": waiting}) for t_s, running, waiting in seen]
    assert not server_queue(samples, (28.0, 45.0), 3.0).fired
    assert server_queue([], (0.0, 60.0), 9.0).figures == {}


def test_queues_of_several_servers_add_up() -> None:
    samples = [Sample(t, url, {"running": 10.0, "waiting": 4.0}) for t in range(60) for url in ("a", "b")]
    assert saturation.totals(samples, WINDOW)[:, 1].tolist() == [8.0] * 59
    assert server_queue(samples, WINDOW, 8.0).fired  # 8 > 5, though neither alone is


def test_st05_steps_above_capacity_are_flagged_and_those_well_below_are_not() -> None:
    rng = np.random.default_rng(7)
    fired = {}
    for rate in (5, 10, 15, 25, 30):
        due_s = np.cumsum(rng.exponential(1.0 / rate, 60 * rate))
        table = Table.of(one_server(due_s[due_s < 60.0].tolist(), 0.05))
        seen = occupancy(table, WINDOW)
        fired[rate] = (
            queue(seen, rate, 0.03).fired or backlog(seen, rate, 60 * rate).fired or (ttft_trend(table, WINDOW).fired)
        )
    assert fired == {5: False, 10: False, 15: False, 25: True, 30: True}


def test_a_deficit_is_more_than_a_burst_at_the_end() -> None:
    assert deficit(8.0, 10.0, 60.0)
    assert not deficit(9.0, 10.0, 60.0)
    assert not deficit(1.2, 1.45, 60.0)  # 15 of 87 requests: a burst explains it
    assert deficit(0.7, 1.45, 60.0)
    assert not deficit(8.0, 10.0, 60.0, gap_cv=3.0)  # 120 of 600, and bursts of cv 3 make 147
    assert saturation.variation(np.arange(100.0)) == 0.0
    assert saturation.variation(np.arange(3.0)) == 1.0


def test_slope_and_its_p_value_are_those_of_the_textbook() -> None:
    x, y = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 4, 5, 4, 5])
    slope, p = trend(x, y)
    assert slope == pytest.approx(0.6)
    assert p == pytest.approx(0.0620, abs=1e-3)  # t = 2.12 with 3 degrees, one-sided
    assert trend(x, -y)[1] == pytest.approx(0.9380, abs=1e-3)
    assert trend(x, 2 * x) == (2.0, 0.0)
    assert trend(x, np.ones(5)) == (0.0, 1.0)


def test_kendalls_p_value_is_exact() -> None:
    assert rising(np.arange(4.0)) == pytest.approx(1 / 24)
    assert rising(np.array([1.0, 0.0, 2.0])) == pytest.approx(3 / 6)
    assert rising(np.arange(10.0)[::-1]) == 1.0
    assert rising(np.ones(10)) == 1.0


def test_what_was_looked_at_for_no_time_shows_no_trend() -> None:
    assert trend(np.full(10, 15.1), np.arange(10.0)) == (0.0, 1.0)
    assert trend(np.arange(10.0), np.arange(10.0)) == (1.0, 0.0)


def test_a_servers_queue_in_which_none_of_the_clients_own_requests_wait_is_not_theirs() -> None:
    # the metrics page of another server: 50 wait there all the time, while each of ours has its first token in 40 ms
    samples = [Sample(float(t_s), "a", {"running": 3.0, "waiting": 50.0}) for t_s in range(60)]
    quick = Table.of(one_server(np.arange(0.0, 60.0, 0.23).tolist(), 0.04))
    own = saturation.occupancy(quick, WINDOW).third(2)
    assert own < 0.5
    assert not server_queue(samples, WINDOW, own).fired
    assert server_queue(samples, WINDOW, 50.0).fired
