"""Boundaries for several looks, and exact limits of shares, against known numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadramp.analysis.group_sequential import boundary, crossing, holm, look_p, look_z, t_of, times_of, z_of
from loadramp.analysis.proportions import Proportion, difference, fisher, needed

QUARTERS = times_of((5, 10, 15), 20)


@pytest.mark.parametrize(
    ("alpha", "looks", "total", "c"),
    [
        (0.05, (), 20, 1.6449),  # no look before the end: the normal quantile
        (0.025, (), 20, 1.9600),
        (0.05, (5, 10, 15), 20, 1.733),
        (0.025, (5, 10, 15), 20, 2.024),  # 2.024 in the tables of Jennison and Turnbull
        (0.05, (10,), 20, 1.678),
        (0.025, (10,), 20, 1.977),
        (0.05, tuple(range(5, 20)), 20, 1.842),
        (0.025, tuple(range(5, 20)), 20, 2.126),
    ],
)
def test_boundaries_are_those_of_the_literature(alpha: float, looks: tuple[int, ...], total: int, c: float) -> None:
    assert boundary(alpha, times_of(looks, total)) == pytest.approx(c, abs=1e-3)


def test_the_boundary_keeps_its_promise_on_random_walks() -> None:
    walk = np.cumsum(np.random.default_rng(1).standard_normal((40_000, 20)), axis=1) / np.sqrt(20)
    above = (walk[:, [4, 9, 14, 19]] > boundary(0.05, QUARTERS)).any(axis=1).mean()
    assert above == pytest.approx(0.05, abs=0.004)
    naive = (walk[:, [4, 9, 14, 19]] / np.sqrt(QUARTERS) > 1.645).any(axis=1).mean()
    assert naive > 0.1


def test_an_early_look_needs_far_stronger_evidence() -> None:
    assert [round(look_z(0.05, QUARTERS, now), 2) for now in QUARTERS] == [3.47, 2.45, 2.0, 1.73]


def test_a_p_value_that_knows_of_the_looks() -> None:
    assert look_p(1.645, (1.0,), 1.0) == pytest.approx(0.05, abs=1e-4)
    assert look_p(1.7331, QUARTERS, 1.0) == pytest.approx(0.05, abs=1e-4)
    assert look_p(2 * 1.7331, QUARTERS, 0.25) == pytest.approx(0.05, abs=1e-4)
    assert look_p(0.0, QUARTERS, 1.0) == look_p(-3.0, QUARTERS, 0.5) == 1.0
    assert look_p(float("inf"), QUARTERS, 0.25) == 0.0


@pytest.mark.parametrize(
    ("t", "df", "z"), [(2.0, 4.0, 1.5713), (-2.0, 4.0, -1.5713), (1.0, 1e9, 1.0), (50.0, 4.0, 4.9)]
)
def test_t_and_z_of_the_same_tail(t: float, df: float, z: float) -> None:
    assert z_of(t, df) == pytest.approx(z, abs=1e-3)
    assert t_of(z_of(t, df), df) == pytest.approx(t, rel=1e-6)


def test_an_infinite_t_is_an_infinite_z() -> None:
    assert z_of(float("inf"), 4.0) == float("inf")
    assert z_of(float("-inf"), 4.0) == float("-inf")


def test_holm_adjusts_in_steps_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_a_p_value_and_never_turns_the_order(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(one >= raw for one, raw in zip(adjusted, p, strict=True))
    assert all(adjusted[i] <= adjusted[j] for i in range(len(p)) for j in range(len(p)) if p[i] < p[j])


@given(st.floats(-3, 3), st.integers(1, 6))
def test_crossing_falls_as_the_limit_rises(limit: float, n: int) -> None:
    times = times_of(range(1, n), n)
    assert 0.0 <= crossing(limit + 0.2, times) < crossing(limit, times) <= 1.0


@pytest.mark.parametrize(("failed", "n"), [(0, 2995), (1, 4742), (2, 6294), (3, 7752), (4, 9151), (5, 10_511)])
def test_requests_that_show_an_error_rate_below_a_thousandth(failed: int, n: int) -> None:
    assert needed(failed, 0.001) == n
    assert Proportion(failed, n).upper() < 0.001 <= Proportion(failed, n - 1).upper()


def test_requests_for_another_confidence() -> None:
    assert [needed(k, 0.001, 0.01) for k in range(3)] == [4603, 6636, 8403]


def test_no_error_in_the_baseline_divides_nothing() -> None:
    none, one, three = Proportion(0, 1000), Proportion(1, 1000), Proportion(3, 1000)
    assert fisher(none, three) == pytest.approx(0.1248, abs=1e-4)  # C(1000, 3) / C(2000, 3)
    assert fisher(none, one) == pytest.approx(0.5)
    apart = difference(none, three)
    assert apart is not None
    assert apart == pytest.approx((0.003, -0.00131, 0.00878), abs=1e-5)
    assert fisher(none, none) == 1.0
    assert fisher(none, Proportion(20, 1000)) < 1e-5


def test_no_requests_show_nothing() -> None:
    nothing = Proportion()
    assert nothing.ratio is None
    assert (nothing.lower(), nothing.upper()) == (0.0, 1.0)
    assert difference(nothing, Proportion(0, 10)) is None
    assert fisher(nothing, Proportion(5, 10)) == 1.0
    assert Proportion(5, 5).upper() == 1.0


@given(st.integers(0, 50), st.integers(1, 500))
def test_limits_hold_the_share(failed: int, more: int) -> None:
    seen = Proportion(failed, failed + more)
    assert seen.ratio is not None
    assert seen.lower() <= seen.ratio <= seen.upper()
    assert seen + Proportion(1, 2) == Proportion(failed + 1, failed + more + 2)
