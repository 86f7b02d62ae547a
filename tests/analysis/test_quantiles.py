import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadramp.analysis.quantiles import (
    Values,
    blocks_of,
    carry_over,
    estimate,
    freedom,
    independent,
    kaplan_meier,
    mean,
    needed,
    pool,
    quantile,
    quantile_name,
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
    assert figure.reason.startswith("6,000 tokens are worth about 79 independent ones: a p99 needs about ")


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
    assert [quantile_name(q) for q in (0.5, 0.99, 0.999)] == ["p50", "p99", "p99.9"]


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


def test_few_heavy_episodes_leave_a_block_variance_few_degrees_of_freedom() -> None:
    assert freedom(12, 1.0) == pytest.approx(11.0)
    assert freedom(12, 1.3) == pytest.approx(11 / 1.3)
    assert freedom(12, 1.0, 1 / 12) == pytest.approx(1 / (1 / 11 + 1 / 6))  # a dozen independent values beyond
    assert freedom(12, 1.0, 1.0) < 1.0


def test_a_mean_that_one_value_makes_has_an_interval_of_one_degree_of_freedom() -> None:
    figure = mean(spread([1.0] * 600 + [101.0] + [1.0] * 599))
    assert figure.value == pytest.approx(1 + 100 / 1200)
    assert figure.low == pytest.approx(1 + 100 / 1200 - 12.706 / 12, abs=0.002)  # standard error 1 / 12
    assert figure.high == pytest.approx(1 + 100 / 1200 + 12.706 / 12, abs=0.002)


def test_slow_gaps_in_a_single_burst_have_a_p90_that_may_be_that_of_the_fast_ones() -> None:
    values = np.random.default_rng(9).normal(0.020, 0.0005, 6000)
    at_s = np.linspace(0.0, 59.99, 6000)
    even, burst = values.copy(), values.copy()
    even[::8] += 0.1  # one in eight, all the time
    burst[(at_s >= 20.0) & (at_s < 27.5)] += 0.1  # one in eight, all at once
    apart, together = (estimate(pool(v, at_s, WINDOW, "gaps", 60), 0.9) for v in (even, burst))
    assert apart.low is not None
    assert apart.low > 0.119
    assert together.value == pytest.approx(apart.value, abs=0.001)
    assert together.low == pytest.approx(0.0194, abs=0.0005)
    assert together.high == pytest.approx(0.1217, abs=0.0005)


def test_two_bursts_beyond_a_p90_leave_it_a_far_wider_interval_than_twelve() -> None:
    at_s = np.linspace(0.0, 59.99, 6000)
    values = np.random.default_rng(9).lognormal(-4.0, 0.3, 6000)
    often, seldom = (values * (1.0 + 0.6 * ((at_s % every_s) < every_s / 12)) for every_s in (5.0, 30.0))
    twelve, two = (estimate(pool(v, at_s, WINDOW, "gaps", 60), 0.9) for v in (often, seldom))
    assert two.value == pytest.approx(twelve.value, rel=0.03)
    assert two.high - two.low > 2.0 * (twelve.high - twelve.low)  # type: ignore[operator]  # both have limits


def test_requests_that_cluster_have_a_wide_interval_of_p90_rather_than_none() -> None:
    rng = np.random.default_rng(12)
    waits = np.repeat(rng.lognormal(0.0, 0.4, 12), 25) * rng.lognormal(0.0, 0.2, 300)  # half of it goes by blocks
    data = spread(list(waits))
    assert 10 < independent(data, quantile(data.ordered, 0.9), 0.9) < needed(0.9)
    figure = estimate(data, 0.9)
    assert figure.low is not None
    assert figure.high is not None
    assert figure.high > figure.value > figure.low  # type: ignore[operator]  # not None, or there were no limits


def in_flight_gaps(rng: np.random.Generator, windows: int) -> tuple[list[Values], np.ndarray]:
    """Gaps that grow with the requests in flight: M/M/inf, 4 of a second each, ten steps a second."""
    seconds = 60.0 * windows
    due_s = np.sort(rng.uniform(-30.0, seconds, rng.poisson((seconds + 30.0) * 4.0)))
    end_s = due_s + rng.exponential(1.0, len(due_s))
    t_s = np.arange(0.0, seconds, 0.1) + 0.05
    n = np.searchsorted(due_s, t_s) - np.searchsorted(np.sort(end_s), t_s)
    at_s, values = np.repeat(t_s, n), np.repeat(0.01 + 0.001 * n + rng.normal(0.0, 0.0002, len(n)), n)
    cuts = np.searchsorted(at_s, 60.0 * np.arange(windows + 1))
    out = []
    for k in range(windows):
        part, window = slice(cuts[k], cuts[k + 1]), (60.0 * k, 60.0 * (k + 1))
        carry = carry_over((end_s - due_s)[(due_s >= window[0]) & (due_s < window[1])], window)
        out.append(pool(values[part], at_s[part], window, "gaps", 240, carry=carry))
    return out, np.sort(values)


@pytest.mark.parametrize("q", [0.9, 0.95])
def test_intervals_hold_where_few_requests_in_flight_make_the_gaps(q: float) -> None:
    windows, pooled = in_flight_gaps(np.random.default_rng(21), 400)
    figures = [estimate(one, q) for one in windows]
    known = [(f.low, f.high) for f in figures if f.low is not None and f.high is not None]
    held = [low <= quantile(pooled, q) <= high for low, high in known]
    assert len(held) > 300
    assert 0.92 <= np.mean(held) <= 0.99  # t with 11 degrees, refused under 36 or 72 independent values: 0.85, 0.60
