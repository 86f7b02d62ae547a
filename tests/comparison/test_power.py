"""What a comparison can show at best, from the requests and gaps that a block is offered."""

from loadramp.comparison.decide import DecisionRules
from loadramp.comparison.power import Offered, prospects


def test_the_look_that_has_enough_requests_is_named_unless_it_is_the_first() -> None:
    asked = DecisionRules(primary=("ttft_p50",), looks=(5, 10, 20), blocks=20)
    assert prospects(asked, [Offered(10.0, 600.0)]) == []  # 3,000 after five blocks
    (late,) = prospects(asked, [Offered(4.0, 240.0)])  # 2,400 after ten
    assert late.startswith("It can pass after 20 blocks at the earliest: ")
    (never,) = prospects(asked, [Offered(2.0, 120.0)])
    assert "20 blocks have about 2,400 of each version; it would take 25 blocks" in never


def test_a_measure_is_held_against_the_rate_that_gives_it_fewest_values() -> None:
    asked = DecisionRules(primary=("e2e_p95", "e2e_mean"), error_ratio=0.5, blocks=5)
    (few,) = prospects(asked, [Offered(8.0, 80.0), Offered(1.0, 10.0)])
    assert few.startswith("It cannot be expected to pass: p95 E2E is primary and needs 20 requests in a block")
    assert "about 10 at 1 req/s" in few
    assert prospects(asked, [Offered(8.0, 80.0), Offered(2.0, 20.0)]) == []


def test_gaps_are_judged_where_the_length_of_answers_is_known() -> None:
    asked = DecisionRules(primary=("itl_p99",), error_ratio=0.5, blocks=5)
    assert prospects(asked, [Offered(1.0, 10.0)]) == []
    assert prospects(asked, [Offered(1.0, 10.0, 100.0)]) == []
    assert len(prospects(asked, [Offered(1.0, 10.0, 99.0)])) == 1


def test_output_tokens_need_no_number_of_values() -> None:
    assert prospects(DecisionRules(primary=("output_tokens_per_s",), error_ratio=0.5), [Offered(0.1, 1.0)]) == []
