"""Change points on series whose changes are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadramp.nightly.change_points import compare, divide, hampel, shifts


def test_a_clean_step_is_found_where_it_is() -> None:
    values = np.array([0.0, 0.1] * 8 + [1.0, 1.1] * 5)
    (found,) = shifts(values)
    assert found.at == 16
    assert found.step == pytest.approx(1.0)
    assert found.low < 1.0 < found.high
    assert found.p < 1e-10


def test_two_steps_are_found_even_when_the_second_takes_the_first_back() -> None:
    noise = np.tile([0.0, 0.02, -0.02, 0.01, -0.01], 12)
    values = noise + np.repeat([0.0, 0.5, 0.0], 20)
    assert [shift.at for shift in shifts(values)] == [20, 40]


def test_noise_has_no_change_point() -> None:
    rng = np.random.default_rng(1)
    found = [len(shifts(rng.normal(0.0, 0.04, 200), least=math.log(1.05))) for _ in range(5)]
    assert found == [0, 0, 0, 0, 0]


def test_a_step_below_the_least_is_passed_over() -> None:
    values = np.array([0.0, 0.001] * 10 + [0.03, 0.031] * 10)
    assert [shift.at for shift in shifts(values)] == [20]
    assert shifts(values, least=0.05) == []


def test_long_series_are_searched_in_windows() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0.0, 0.02, 600)
    values[310:] += 0.2
    values[500:] -= 0.3
    assert [abs(shift.at - at) <= 1 for shift, at in zip(shifts(values), (310, 500), strict=True)] == [True, True]


def test_three_values_are_no_side() -> None:
    assert divide(np.arange(5.0)) is None
    assert divide(np.array([0.0, 0.0, 0.0, 9.0, 9.0, 9.0])) == 3
    assert shifts(np.array([])) == []


def test_the_energy_split_is_the_one_of_the_definition() -> None:
    """Every pair summed one by one, as the paper writes it."""
    values = np.random.default_rng(3).normal(0.0, 1.0, 14)

    def score(tau: int, kappa: int) -> float:
        a, b = values[:tau], values[tau:kappa]
        across = np.mean([abs(x - y) for x in a for y in b])
        inner = [np.mean([abs(x - y) for i, x in enumerate(s) for y in s[:i]]) for s in (a, b)]
        return float(len(a) * len(b) / (len(a) + len(b)) * (2 * across - inner[0] - inner[1]))

    pairs = [(tau, kappa) for tau in range(3, 12) for kappa in range(tau + 3, 15)]
    assert divide(values) == max(pairs, key=lambda pair: score(*pair))[0]


def test_students_t_against_a_table() -> None:
    found = compare(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
    assert found.step == 3.0
    assert found.p == pytest.approx(0.0213, abs=1e-4)  # t = 3.674, 4 degrees of freedom
    assert (found.low, found.high) == (pytest.approx(0.733, abs=1e-3), pytest.approx(5.267, abs=1e-3))


def test_hampel_clips_a_spike_and_leaves_the_rest() -> None:
    values = np.array([1.0, 1.1, 0.9, 1.0, 9.0, 1.1, 1.0, 0.9, 1.0])
    clipped = hampel(values)
    assert clipped[4] == pytest.approx(1.0 + 3 * 1.4826 * 0.1, abs=0.01)
    assert [i for i in range(9) if clipped[i] != values[i]] == [4]


@given(st.lists(st.floats(-100, 100), max_size=60))
def test_hampel_is_what_a_loop_over_nights_gives(values: list[float]) -> None:
    found = hampel(np.array(values))
    for i, value in enumerate(values):
        near = np.array(values[max(0, i - 7) : i + 8])
        middle = float(np.median(near))
        reach = 3 * 1.4826 * float(np.median(np.abs(near - middle)))
        expected = min(max(value, middle - reach), middle + reach) if reach > 0 else value
        assert found[i] == pytest.approx(expected, abs=1e-9)


OTAVA = [[], [68, 110], [], [], [], [60, 129], [87], [79, 117], [], [38, 45, 101], [], [25, 124]]
"""What Apache Otava 0.8.0 finds in these series (``analyze -P 0.0001 -M 0.05``), for comparison with other code."""


def test_other_code_finds_the_same_changes() -> None:
    rng = np.random.default_rng(5)
    found = []
    for _ in range(12):
        values = rng.normal(0.0, 0.03, 150)
        for at in sorted(rng.choice(np.arange(20, 130), rng.integers(0, 4), replace=False)):
            values[at:] += rng.choice([-1, 1]) * rng.uniform(0.08, 0.25)
        found.append([shift.at for shift in shifts(values, least=math.log(1.05))])
    assert found == OTAVA
