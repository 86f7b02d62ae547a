"""Plain data for charts and JSON."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loadramp.record.codec import plain_data
from loadramp.report.json_data import rounded


def test_chart_numbers_have_four_digits_and_no_infinity() -> None:
    assert rounded([0.123456, 12345.6, 0.0, None, math.nan, math.inf]) == [0.1235, 12350, 0, None, None, None]


@given(st.floats(1e-9, 1e12))
def test_rounding_to_four_digits_is_off_by_at_most_half_a_unit(value: float) -> None:
    (short,) = rounded([value])
    assert short is not None
    assert abs(short - value) <= 0.5001e-3 * value


def test_strict_data_holds_only_what_json_can() -> None:
    odd = {
        "a": np.float64(1.5),
        "b": np.nan,
        "c": [math.inf, np.int64(3)],
        "d": np.array([1.0, np.nan]),
        "e": {"x": {1}},
    }
    assert plain_data(odd) == {"a": 1.5, "b": None, "c": [None, 3], "d": [1.0, None], "e": {"x": [1]}}
    assert plain_data(np.bool_(True)) is True
