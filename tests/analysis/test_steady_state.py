import numpy as np
import pytest
from records_and_rows import answer, one_server, row, unfinished, window

from loadramp.analysis import steady_state
from loadramp.analysis.curve import fold
from loadramp.analysis.saturation import occupancy
from loadramp.record.table import Table


def test_fill_up_time_of_equal_requests_is_95_percent_of_their_length() -> None:
    assert steady_state.fill_up_s(np.full(100, 8.0)) == pytest.approx(7.6)


def test_fill_up_time_of_exponential_lengths_is_three_means() -> None:
    ordered = -np.log(1 - (np.arange(20_000) + 0.5) / 20_000) * 5.0
    assert steady_state.fill_up_s(ordered) == pytest.approx(15.0, rel=0.01)  # 1 - exp(-t / 5) = 0.95


def test_fill_up_time_is_the_smallest_that_holds_the_definition() -> None:
    s = np.random.default_rng(0).lognormal(1.0, 0.8, 500)
    t = steady_state.fill_up_s(s)
    assert np.minimum(s, t).mean() / s.mean() == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("e2e_s", "measure", "expected"),
    [
        ([8.0] * 50, 60.0, 15.2),  # 2 * 7.6
        ([1.0] * 50, 60.0, 10.0),  # never under 10 s
        ([60.0] * 50, 60.0, 40.0),  # never above 0.4 of the whole step
        ([], 60.0, 10.0),
        ([8.0] * 50, 6.0, 4.0),  # a short step keeps its 0.4
    ],
)
def test_warm_up(e2e_s: list[float], measure: float, expected: float) -> None:
    assert steady_state.warmup_s(np.array(e2e_s), measure) == pytest.approx(expected)


def test_the_tail_is_p99_of_the_end_to_end_times_at_most_a_minute() -> None:
    assert steady_state.tail_s(np.array([5.0] * 100)) == 5.0
    assert steady_state.tail_s(np.array([500.0] * 100)) == 60.0
    assert steady_state.tail_s(np.empty(0)) == 60.0
    assert steady_state.tail_s(np.array([np.nan, 3.0])) == 3.0


def test_a_window_that_began_before_the_load_had_filled_up_has_not_settled() -> None:
    records = [answer(i, i * 0.1, i * 0.1 + 0.1, [0.1] * 299) for i in range(600)]  # 30 s each
    table = Table.of(records)
    e2e_s = table.e2e_s
    assert not steady_state.settled(occupancy(table, (0.0, 60.0)), e2e_s, 0.0)
    assert steady_state.settled(occupancy(table, (31.0, 60.0)), e2e_s, 31.0)
    short = Table.of([answer(i, i * 0.1, i * 0.1 + 0.1, [0.13]) for i in range(600)])
    assert steady_state.settled(occupancy(short, (0.0, 60.0)), short.e2e_s, 0.0)  # level from the first second


def test_a_step_that_inherits_a_queue_began_with_a_backlog() -> None:
    table = Table.of([answer(0, 0.0, 1.0)] + [unfinished(1 + i, 5.0) for i in range(6)])
    assert steady_state.began_with_backlog(table, 10.0)
    assert not steady_state.began_with_backlog(table, 4.0)
    assert fold(window(10.0, begin_s=10.0), table).began_with_backlog
    whole = fold(window(10.0, begin_s=10.0), table, streamed=False)  # answers under way have no first token either
    assert not whole.began_with_backlog


def test_recovery_is_when_the_load_is_back_to_what_it_was_on_the_way_up() -> None:
    due_s = [*np.arange(0.0, 10.0, 0.1), *np.arange(10.0, 120.0, 1.0)]  # 10 req/s on a server of 2, then 1 req/s
    table = Table.of(one_server([float(t) for t in due_s], 0.5))
    found = steady_state.recovery_s(table, 10.0, 120.0, level=1.0)
    assert found == pytest.approx(80.0, abs=3.0)  # 80 left over, cleared at one a second
    assert steady_state.recovery_s(table, 10.0, 40.0, level=1.0) is None


def test_hysteresis_is_the_way_down_over_the_way_up_at_the_same_rate() -> None:
    rows = [row(4.0, itl_p99_s=0.02), row(8.0, itl_p99_s=0.03), row(4.0, role="down", itl_p99_s=0.05)]
    assert steady_state.hysteresis(rows) == [(4.0, pytest.approx(2.5))]
    assert steady_state.hysteresis([row(4.0), row(4.0, role="down", void=True)]) == []
