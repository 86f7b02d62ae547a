import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadramp.judge.quantiles import (
    Values,
    blocks_of,
    carry_over,
    estimate,
    independent,
    kaplan_meier,
    mean,
    needed,
    pool,
    quantile,
    words,
)

WINDOW = (0.0, 60.0)


def spread(values: list[float], unit: str = "requests", censored: list[bool] | None = None) -> Values:
    """The values at even instants over a minute."""
    at_s = np.linspace(0.0, 59.9, len(values))
    cut = None if censored is None else np.array(censored)
    return pool(np.array(values), at_s, WINDOW, unit, censored=cut)  # type: ignore[arg-type]  # literal unit


def test_quantile_is_linear_between_order_statistics() -> None:
    assert quantile(np.array([1.0, 2.0, 3.0, 4.0]), 0.5) == 2.5
    assert quantile(np.array([10.0, 20.0, 30.0]), 0.9) == pytest.approx(28.0)
    assert quantile(np.array([7.0]), 0.99) == 7.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.floats(0, 1))
def test_quantile_agrees_with_numpy_type_7(values: list[float], q: float) -> None:
    ordered = np.sort(np.array(values))
    assert quantile(ordered, q) == pytest.approx(float(np.quantile(ordered, q)), rel=1e-9, abs=1e-9)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60))
def test_st01_percentiles_never_exceed_the_maximum(values: list[float]) -> None:
    ordered = np.sort(np.array(values))
    p50, p90, p99 = (quantile(ordered, q) for q in (0.5, 0.9, 0.99))
    assert p50 <= p90 <= p99 <= ordered[-1]


def test_st01_fifty_values_with_maximum_596() -> None:
    ordered = np.sort(np.array([*range(100, 149), 596], dtype=float))
    assert quantile(ordered, 0.99) == pytest.approx(148 + 0.51 * (596 - 148))
    assert quantile(ordered, 1.0) == 596.0


def test_st03_ten_requests_carry_no_p99_and_the_reason_says_how_many_more() -> None:
    data = spread([30.0] * 9 + [33_000.0])
    figure = estimate(data, 0.99)
    assert figure.value is None
    assert figure.reason == "10 requests cannot carry a p99: needs about 358 more"
    assert estimate(data, 0.5).value == 30.0


def test_a_quantile_needs_368_for_p99_72_for_p95_36_for_p90() -> None:
    assert [needed(q) for q in (0.9, 0.95, 0.99, 0.999)] == [36, 72, 368, 3688]
    assert needed(0.99, 0.05) == 299


def test_between_299_and_368_requests_a_p99_has_no_upper_limit() -> None:
    rng = np.random.default_rng(3)
    figure = estimate(spread(list(rng.exponential(1.0, 320))), 0.99)
    assert figure.value is not None
    assert figure.high is None
    assert "upper" in figure.interval_reason or "independent" in figure.interval_reason
    assert estimate(spread(list(rng.exponential(1.0, 298))), 0.99).value is None


def test_independent_values_get_an_interval_that_holds_the_truth() -> None:
    rng = np.random.default_rng(11)
    held = 0
    for _ in range(200):
        figure = estimate(spread(list(rng.exponential(1.0, 2000))), 0.95)
        assert figure.low is not None
        assert figure.high is not None
        held += figure.low <= np.log(20.0) <= figure.high
    assert 184 <= held <= 200  # 95 % of 200, less 3 standard errors


def test_gaps_shared_by_many_streams_are_worth_no_more_than_the_engine_steps_they_came_from() -> None:
    rng = np.random.default_rng(5)
    steps_s = rng.lognormal(0.0, 0.5, 600)  # 10 steps a second, each seen by 50 streams
    data = pool(np.repeat(steps_s, 50), np.repeat(np.arange(600) / 10.0, 50), WINDOW, "tokens", 100)
    n_eff = independent(data, quantile(data.ordered, 0.9), 0.9)
    assert len(data) == 30_000
    assert 150 < n_eff < 1500


def test_tokens_worth_fewer_than_100_independent_ones_carry_no_p99() -> None:
    values = np.full(6000, 0.02)
    at_s = np.linspace(0.0, 59.9, 6000)
    values[(at_s >= 5.0) & (at_s < 10.0)] = 0.2  # all that is slow happened in one stretch
    figure = estimate(pool(values, at_s, WINDOW, "tokens", 60), 0.99)
    assert figure.value is None
    assert figure.reason.startswith("6000 tokens are worth about 79 independent ones: a p99 needs about ")


def test_a_window_that_is_not_stationary_has_a_value_and_no_interval() -> None:
    rng = np.random.default_rng(2)
    figure = estimate(spread(list(rng.exponential(1.0, 1000))), 0.99, stationary=False)
    assert figure.value is not None
    assert (figure.low, figure.high) == (None, None)
    assert figure.interval_reason == "not stationary: no interval"
    assert figure.log_se is not None


def test_equal_values_have_an_interval_of_no_width() -> None:
    figure = estimate(spread([0.01] * 1000, "tokens"), 0.99)
    assert (figure.value, figure.low, figure.high) == (0.01, 0.01, 0.01)


def test_no_values_are_no_number() -> None:
    assert estimate(spread([]), 0.5).value is None
    assert mean(spread([])).value is None


def test_the_mean_has_an_interval_from_block_sums() -> None:
    figure = mean(spread([1.0, 3.0] * 600))
    assert figure.value == 2.0
    assert figure.low == pytest.approx(2.0, abs=0.01)
    rng = np.random.default_rng(4)
    wide = mean(spread(list(rng.exponential(1.0, 1200))))
    assert wide.low is not None
    assert wide.high is not None
    assert 0.08 < wide.high - wide.low < 0.2  # 2 * 2.2 / sqrt(1200) = 0.127


def test_blocks_are_five_seconds_and_at_least_six() -> None:
    at_s = np.array([0.0, 4.99, 5.0, 59.99])
    assert blocks_of(at_s, (0.0, 60.0))[0].tolist() == [0, 0, 1, 11]
    assert blocks_of(at_s, (0.0, 60.0))[1] == 12
    assert blocks_of(np.array([0.0]), (0.0, 8.0))[1] == 6


def test_kaplan_meier_counts_those_still_waiting() -> None:
    # the textbook case: 6, 6, 6, 6+, 7, 9+, 10, 10+, 11+, 13, 16 ... (survival falls to .753 at 10)
    times = np.array([6.0, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35])
    ended = np.array([1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0], dtype=bool)
    assert kaplan_meier(times, ~ended, 1 - 0.76) == 10.0
    assert kaplan_meier(times, ~ended, 0.5) == 23.0
    assert kaplan_meier(times, ~ended, 0.9) is None


def test_a_quantile_beyond_the_longest_wait_seen_is_no_number() -> None:
    data = spread([1.0] * 300 + [5.0] * 100, censored=[False] * 300 + [True] * 100)
    assert estimate(data, 0.5).value == 1.0
    figure = estimate(data, 0.99)
    assert figure.value is None
    assert figure.reason == "p99 is longer than the longest wait seen so far (5 s)"


def test_infinite_values_make_an_infinite_quantile_and_not_a_nan() -> None:
    ordered = np.array([1.0, 2.0, np.inf, np.inf])
    assert quantile(ordered, 0.2) == pytest.approx(1.6)
    assert quantile(ordered, 0.5) == np.inf
    assert quantile(ordered, 0.9) == np.inf


def test_dx01_percentiles_of_two_workers_are_of_their_pooled_values() -> None:
    pooled = np.sort(np.array([0.010] * 1000 + [1.0] * 10))
    assert quantile(pooled, 0.99) == pytest.approx(0.010)


def test_percentiles_are_named_as_people_say() -> None:
    assert [words(q) for q in (0.5, 0.99, 0.999)] == ["p50", "p99", "p99.9"]


def test_requests_that_live_across_blocks_make_blocks_alike() -> None:
    assert carry_over(np.full(100, 0.01), WINDOW) == pytest.approx(1.0, abs=0.01)  # far shorter than a block
    assert carry_over(np.empty(0), WINDOW) == 1.0
    assert carry_over(np.full(100, 5.0), WINDOW) == pytest.approx(35 / 23)
    assert carry_over(np.full(100, 60.0), WINDOW) > 20.0  # as long as the window: it has seen about one value


def test_carry_over_is_what_simulation_says() -> None:
    rng = np.random.default_rng(0)
    means, naive = [], []
    for _ in range(400):  # number in system of an M/D/inf queue, 5 s each, 10 a second, over 60 s
        due_s = rng.uniform(-5.0, 60.0, rng.poisson(650))
        t_s = np.arange(0.0, 60.0, 0.1) + 0.05
        n = np.searchsorted(np.sort(due_s), t_s) - np.searchsorted(np.sort(due_s + 5.0), t_s)
        blocks = n.reshape(12, 50).mean(axis=1)
        means.append(blocks.mean())
        naive.append(blocks.var(ddof=1) / 12)
    assert np.var(means) / np.mean(naive) == pytest.approx(carry_over(np.full(10, 5.0), WINDOW), rel=0.2)


def test_a_wider_carry_widens_the_interval_and_not_the_standard_error_of_the_blocks() -> None:
    values = list(np.random.default_rng(6).exponential(1.0, 4000))
    at_s = np.linspace(0.0, 59.9, 4000)
    plain = estimate(pool(np.array(values), at_s, WINDOW, "gaps"), 0.95)
    wide = estimate(pool(np.array(values), at_s, WINDOW, "gaps", carry=3.0), 0.95)
    assert plain.low is not None
    assert wide.low is not None
    assert wide.low < plain.low
    assert wide.log_se == plain.log_se


def test_requests_beyond_a_p99_are_taken_to_cluster_as_those_beyond_lower_quantiles_do() -> None:
    rng = np.random.default_rng(8)
    block_level = np.repeat(rng.lognormal(0.0, 1.0, 12), 100)  # waits that go by blocks
    values = block_level * rng.lognormal(0.0, 0.1, 1200)
    figure = estimate(spread(list(values)), 0.99)
    assert figure.high is None
    assert "independent values" in figure.interval_reason
