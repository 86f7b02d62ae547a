"""The [canary] table: what it takes, and that its words are those of the judge."""

from typing import get_args

import pytest
from run_in_memory import scenario_of

from loadramp.comparison.blocks import MEASURES
from loadramp.comparison.table import PRIMARY, Canary, Metric, canary_of
from loadramp.registry import ScenarioError


def test_the_metrics_of_the_table_are_those_that_blocks_measure() -> None:
    assert set(get_args(Metric)) == set(MEASURES)
    assert set(PRIMARY) <= set(MEASURES)


def test_the_defaults_are_those_of_the_method() -> None:
    canary = canary_of(scenario_of(""))
    assert canary == Canary()
    assert (canary.design, canary.blocks, canary.look_at, canary.block_s) == ("mirrored", 20, (5, 10, 15, 20), 60.0)
    assert (canary.latency_margin, canary.error_ratio, canary.ceiling_margin) == (0.1, 0.001, 0.1)
    assert (canary.rollback_error_ratio, canary.rollback_slo_factor) == (0.01, 2.0)


@pytest.mark.parametrize(
    ("text", "looks"),
    [("blocks = 6", (5, 6)), ("blocks = 4", (4,)), ("looks = [1, 2, 9]\nblocks = 9", (2, 9)), ("looks = []", (20,))],
)
def test_the_last_block_is_always_a_look(text: str, looks: tuple[int, ...]) -> None:
    assert canary_of(scenario_of(f"[canary]\n{text}\n")).look_at == looks


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("design = 'b_then_a'", r"\[canary\] design"),
        ("primary = ['itl_p98']", r"\[canary\] primary"),
        ("primary = []", r"\[canary\] primary"),
        ("blocks = 1", r"\[canary\] blocks"),
        ("latency_margin = 10", r"\[canary\] latency_margin"),
        ("margin = 0.1", r"\[canary\] margin: unknown key"),
    ],
)
def test_a_wrong_key_is_named(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        scenario_of(f"[canary]\n{text}\n")
