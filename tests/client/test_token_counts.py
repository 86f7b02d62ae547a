"""How many tokens each event brought: running counts, the final count, its share, or one each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadramp.client.stream.token_counts import UNKNOWN, pro_rata, tokens_of


def test_running_counts_give_the_tokens_of_each_event() -> None:
    assert tokens_of([1, 5, 1], [1, 4, 5], [0, 0, 0], 5)[:2] == ([1, 3, 1], "continuous")


def test_tokens_of_events_without_text_go_to_the_next_output_event_and_those_at_the_end_to_none() -> None:
    assert tokens_of([2, 3], [1, 4], [0, 0], 6)[:2] == ([1, 3], "continuous")


def test_a_lone_event_with_its_own_count_is_continuous() -> None:
    assert tokens_of([9], [4], [0], 4)[:2] == ([4], "continuous")


def test_running_counts_of_each_choice_are_kept_apart() -> None:
    assert tokens_of([1] * 4, [1, 1, 2, 3], [0, 1, 0, 1], 5)[:2] == ([1, 1, 1, 2], "continuous")


def test_a_running_count_over_all_choices_is_seen_as_one() -> None:
    assert tokens_of([1] * 4, [1, 2, 3, 4], [0, 1, 0, 1], 4)[:2] == ([1, 1, 1, 1], "continuous")


@pytest.mark.parametrize(
    "running",
    [[UNKNOWN, 2, UNKNOWN], [3, 3, 3], [0, 0, 0], [2, 1, 3], []],
    ids=["one", "total", "zero", "back", "none"],
)
def test_counts_that_do_not_run_in_every_event_are_not_running_counts(running: list[int]) -> None:
    n = len(running)
    assert tokens_of([1] * n, running, [0] * n, n or None).source == ("usage" if n else "events")


def test_a_final_count_equal_to_the_events_is_one_token_each() -> None:
    assert tokens_of([3, 1], [UNKNOWN] * 2, [0, 0], 2)[:2] == ([1, 1], "usage")


def test_another_final_count_is_spread_by_length_of_text() -> None:
    assert tokens_of([1, 7, 2], [UNKNOWN] * 3, [0] * 3, 10)[:2] == ([1, 7, 2], "pro_rata")


@pytest.mark.parametrize("total", [None, 0])
def test_without_a_usable_count_every_event_is_one_token(total: int | None) -> None:
    assert tokens_of([3, 1], [UNKNOWN] * 2, [0, 0], total)[:2] == ([1, 1], "events")


def test_running_counts_beyond_the_final_count_are_not_believed() -> None:
    assert tokens_of([1, 1], [5, 9], [0, 0], 4)[:2] == ([2, 2], "pro_rata")


@given(st.lists(st.integers(1, 500), min_size=1, max_size=60), st.integers(1, 5000))
def test_shares_sum_to_the_count_and_the_first_event_has_at_least_one(sizes: list[int], total: int) -> None:
    shares = pro_rata(sizes, total)
    assert sum(shares) == total
    assert shares[0] >= 1
    assert min(shares) >= 0
