"""Ratios in words: what shows no difference is not called a multiple, and equal runs have no winner."""

from __future__ import annotations

import pytest

from loadramp.comparison.configuration_table import _as_high
from loadramp.comparison.configurations import ConfigurationFigure
from loadramp.units import times_of


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.0, "equals the baseline's"),
        (1.0004, "equals the baseline's"),
        (0.9996, "equals the baseline's"),
        (1.234567, "is 1.23 times the baseline's"),
        (0.5, "is 0.5 times the baseline's"),
    ],
)
def test_a_ratio_of_one_equals(ratio: float, words: str) -> None:
    assert times_of(ratio, "the baseline's") == words


@pytest.mark.parametrize(
    ("figure", "as_high"),
    [
        (ConfigurationFigure(20.0, ratio=0.97, low=0.9, high=1.05), True),
        (ConfigurationFigure(20.0, ratio=0.8, low=0.7, high=0.9), False),
        (ConfigurationFigure(20.0, ratio=1.0), True),
        (ConfigurationFigure(20.0, ratio=0.8), False),
    ],
)
def test_a_ceiling_whose_interval_reaches_the_first_s_is_not_lower(figure: ConfigurationFigure, as_high: bool) -> None:
    assert _as_high(figure) is as_high
