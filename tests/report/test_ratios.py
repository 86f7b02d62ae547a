"""Ratios in words: what shows no difference is not called a multiple, and equal runs have no winner."""

from __future__ import annotations

import pytest

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
