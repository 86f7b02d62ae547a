import math

import numpy as np
import pytest
from records_and_rows import answer, failure, unfinished, window

from loadramp.analysis.curve import fold
from loadramp.analysis.latency import everyone, families, good, stalls, statistics, window_view
from loadramp.record.row import Row
from loadramp.record.table import Table
from loadramp.record.types import Step
from loadramp.scenario.scenario import Slo


def test_md01_the_first_token_is_no_inter_token_latency() -> None:
    seen = window_view(Table.of([answer(0, 0.0, 0.5, [0.02, 0.02])]), (0.0, 1.0))
    found = families(seen)
    assert found["ttft"].values.tolist() == [0.5]
    assert found["itl"].values == pytest.approx([0.02, 0.02])


def test_md02_an_event_of_three_tokens_is_three_latencies_and_one_gap() -> None:
    one = answer(0, 0.0, 0.1, [0.06, 0.02], event_tokens=[1, 3, 1])
    found = families(window_view(Table.of([one]), (0.0, 1.0)))
    assert found["itl"].values == pytest.approx([0.02] * 4)
    assert found["gap"].values == pytest.approx([0.06, 0.02])
    assert found["tpot"].values == pytest.approx([0.02])


def test_md04_tpot_leaves_out_the_tokens_of_the_first_event() -> None:
    # cases.md asks for one policy everywhere; ours (DESIGN) is (last - first) / (tokens - tokens of the first event)
    one = answer(0, 0.0, 0.2, [0.03, 0.03, 0.03], event_tokens=[4, 1, 1, 1])
    assert families(window_view(Table.of([one]), (0.0, 1.0)))["tpot"].values == pytest.approx([0.03])


def test_md05_one_token_answers_have_no_tpot_and_do_not_drag_the_mean_down() -> None:
    short = [answer(i, i * 0.1, i * 0.1 + 0.1) for i in range(50)]
    long = [answer(50 + i, i * 0.1, i * 0.1 + 0.1, [0.02] * 10) for i in range(50)]
    seen = window_view(Table.of(short + long), (0.0, 10.0))
    tpot, _ = statistics("tpot", families(seen)["tpot"], stationary=True)
    assert tpot.n == 50
    assert tpot.mean.value == pytest.approx(0.02)
    assert len(families(seen)["ttft"]) == 100


def test_md11_one_long_gap_is_seen_in_the_longest_gaps_and_not_in_pooled_p99() -> None:
    records = [answer(i, i * 0.5, i * 0.5 + 0.1, [0.01] * 100) for i in range(100)]
    records[7] = answer(7, 3.5, 3.6, [0.01] * 50 + [2.0] + [0.01] * 49)
    seen = window_view(Table.of(records), (0.0, 60.0))
    found, _ = stalls(Row(), seen, families(seen)["gap"])
    pooled = families(seen)["itl"]
    assert len(pooled) == 10_000
    assert float(pooled.ordered[-1]) == pytest.approx(2.0)
    assert float(np.quantile(pooled.values, 0.99)) == pytest.approx(0.01)
    assert found.longest_gap_max_s == pytest.approx(2.0)
    assert found.stalled_ratio == pytest.approx(0.01)
    per_request = families(seen)["tpot"].ordered
    assert float(per_request[-1]) == pytest.approx(0.0299)


def test_md15_the_peak_counts_tokens_and_is_never_below_the_mean() -> None:
    one = answer(0, 0.0, 0.05, [0.1] * 29, event_tokens=[4] * 30)
    row = fold(Step(0, rate_rps=1.0, measure_s=5.0), Table.of([one]))
    assert row.peak_output_tokens_per_s == pytest.approx(40.0)
    assert row.output_tokens_per_s == pytest.approx(24.0)
    short = fold(Step(0, rate_rps=1.0, measure_s=0.5), Table.of([answer(0, 0.0, 0.05, [0.1] * 3)]))
    assert short.peak_output_tokens_per_s == short.output_tokens_per_s == pytest.approx(8.0)


def test_md17_gaps_are_between_events_of_the_same_choice() -> None:
    one = answer(0, 0.0, 0.100, [0.001, 0.019, 0.005], event_choice=[0, 1, 0, 1])
    found = families(window_view(Table.of([one]), (0.0, 1.0)))
    assert sorted(found["itl"].values.tolist()) == pytest.approx([0.020, 0.024])
    assert found["ttft"].values.tolist() == pytest.approx([0.1])


def test_gaps_count_where_they_end_and_requests_where_they_were_due() -> None:
    early = answer(0, 9.0, 9.5, [0.4, 0.4, 0.4])  # gaps end at 9.9, 10.3, 10.7
    late = answer(1, 19.5, 20.5, [0.1])
    seen = window_view(Table.of([early, late]), (10.0, 20.0))
    found = families(seen)
    assert sorted(seen.gaps.end_s.tolist()) == pytest.approx([10.3, 10.7])
    assert found["ttft"].values.tolist() == pytest.approx([1.0])  # due inside, followed past the end
    assert len(seen.due) == 1


def test_failed_requests_are_in_no_percentile_of_successes_and_infinite_among_all() -> None:
    records = [answer(i, i * 0.1, i * 0.1 + 0.2) for i in range(80)] + [failure(80 + i, i * 0.1) for i in range(20)]
    seen = window_view(Table.of(records), (0.0, 10.0))
    assert len(families(seen)["ttft"]) == 80
    found, reasons = everyone(seen, stationary=True)
    assert found["all_ttft"].p50.value == pytest.approx(0.2)
    assert found["all_ttft"].p90.value is None
    assert reasons["all_ttft_p90_s"] == "20 % of the requests failed"


def test_requests_in_flight_count_with_their_age() -> None:
    done = [answer(i, i * 0.02, i * 0.02 + 1.0) for i in range(360)]
    waiting = [unfinished(360 + i, 8.0 + i * 0.02) for i in range(40)]
    seen = window_view(Table.of(done + waiting), (0.0, 10.0), now_s=20.0)
    ttft, reasons = statistics("ttft", families(seen)["ttft"], stationary=True)
    assert ttft.n == 400
    assert ttft.p50.value == pytest.approx(1.0)
    assert ttft.p99.value is None
    assert "longest wait seen so far" in reasons["ttft_p99_s"]


def test_a_request_in_flight_whose_first_token_came_counts_with_its_ttft_and_its_gaps() -> None:
    seen = window_view(Table.of([unfinished(0, 1.0, [1.5, 1.6, 1.7])]), (0.0, 10.0), now_s=2.0)
    found = families(seen)
    assert found["ttft"].values.tolist() == pytest.approx([0.5])
    assert found["ttft"].censored is None
    assert found["itl"].values == pytest.approx([0.1, 0.1])
    assert found["e2e"].values.tolist() == pytest.approx([1.0])
    assert found["e2e"].censored is not None


def test_tokens_of_a_request_that_failed_later_make_no_latency_but_count_as_throughput() -> None:
    broken = failure(0, 0.0, 1.0, "reset")
    broken.event_s = [0.1, 0.2, 0.3]
    seen = window_view(Table.of([broken]), (0.0, 1.0))
    assert len(seen.gaps.gap_s) == 0
    assert seen.arrivals(1)[0].tolist() == [3.0]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, 3),
        ({"ttft": 0.25}, 2),
        ({"e2e": 0.55}, 2),
        ({"tpot": 0.02}, 2),
        ({"itl": 0.05}, 2),
        ({"ttft": 0.25, "tpot": 0.02}, 1),
        ({"ttft": 0.05}, 0),
    ],
)
def test_a_good_request_succeeds_within_every_limit(limits: dict[str, float], expected: int) -> None:
    records = [
        answer(0, 0.0, 0.1, [0.01] * 10),
        answer(1, 1.0, 1.3, [0.01] * 10),  # late first token
        answer(2, 2.0, 2.1, [0.01] * 9 + [0.5]),  # one long gap
        failure(3, 3.0),
    ]
    assert good(
        window_view(Table.of(records), (0.0, 10.0)), Slo(**{f"{name}_s": limit for name, limit in limits.items()})
    ) == (expected, 4, 0)


def test_one_slow_token_in_two_hundred_is_within_an_itl_limit_at_p99() -> None:
    one = answer(0, 0.0, 0.1, [0.01] * 199 + [0.5])
    seen = window_view(Table.of([one]), (0.0, 10.0))
    assert good(seen, Slo(itl_s=0.05)) == (1, 1, 0)
    assert good(seen, Slo(itl_s=0.05, quantile=0.999)) == (0, 1, 0)


BURSTS = [1.0, *[0.0] * 49] * 4  # a buffer that lets 50 events pass once a second
BATCHED = [0.1] * 200


@pytest.mark.parametrize(
    ("gaps_s", "limit_s", "expected"),
    [
        (BURSTS, 0.1, (0, 1, 1)),  # 9 tokens may have come with the first event of each: 9 of 58 are above 100 ms
        (BURSTS, 1.01, (1, 1, 0)),
        (BATCHED, 0.03, (0, 1, 1)),  # with 5 tokens each 20 ms a token, with 3 tokens each 33 ms
        (BATCHED, 0.101, (1, 1, 0)),
        ([0.01] * 199 + [0.5], 0.05, (0, 1, 1)),  # 9 of 208
        ([0.01] * 900 + [0.5], 0.05, (1, 1, 0)),  # 9 of 909: 0.99 %
        ([0.01] * 199 + [0.09], 0.05, (1, 1, 0)),  # less than two limits: it is one token, or more that are faster
    ],
)
def test_where_events_count_as_tokens_a_request_is_good_only_whatever_they_carry(
    gaps_s: list[float], limit_s: float, expected: tuple[int, int, int]
) -> None:
    one = answer(0, 0.0, 0.1, gaps_s, token_source="events", output_tokens=None)
    seen = window_view(Table.of([one]), (0.0, 60.0))
    assert good(seen, Slo(itl_s=limit_s)) == expected


def test_tpot_by_events_is_at_most_what_it_says() -> None:
    one = answer(0, 0.0, 0.1, [0.1] * 10, token_source="events")
    seen = window_view(Table.of([one]), (0.0, 60.0))
    assert good(seen, Slo(tpot_s=0.11)) == (1, 1, 0)
    assert good(seen, Slo(tpot_s=0.09)) == (0, 1, 1)
    assert good(seen, Slo(tpot_s=0.09, e2e_s=1.0)) == (0, 1, 0)  # too late whatever the tokens


def test_good_requests_are_no_number_where_it_depends_on_what_events_carry() -> None:
    records = [answer(i, i * 0.1, i * 0.1 + 0.1, [0.1] * 10, token_source="events") for i in range(600)]
    found = fold(window(60.0, 10.0), Table.of(records), slo=Slo(itl_s=0.03))
    assert (found.good_ratio, found.good_rps, found.good_n) == (None, None, 600)
    assert found.reasons["good_ratio"] == (
        "the server sends no usage, and an event may carry several tokens: between 0 % and 100 % are good"
    )
    assert found.statistic("slo_itl").value == pytest.approx(0.1 / 3)
    known = fold(window(60.0, 10.0), Table.of(records), slo=Slo(itl_s=0.101))
    assert (known.good_ratio, known.good_rps) == (1.0, 10.0)


def test_a_request_in_flight_is_undecided_until_it_is_too_late() -> None:
    seen = window_view(Table.of([unfinished(0, 0.0), unfinished(1, 9.0)]), (0.0, 10.0), now_s=10.0)
    assert good(seen, Slo(ttft_s=2.0)) == (0, 1, 0)
    assert good(seen, Slo()) == (0, 0, 0)


def test_an_empty_window_has_no_numbers_and_says_so() -> None:
    seen = window_view(Table.of([]), (0.0, 10.0))
    found, reasons = statistics("itl", families(seen)["itl"], stationary=True)
    assert found.p50.value is None
    assert reasons["itl_p50_s"] == "nothing to measure in this window"
    assert stalls(Row(), seen, families(seen)["gap"])[0].stalled_ratio is None
    assert seen.arrivals(1)[0].tolist() == [0.0]
    assert math.isclose(seen.length_s, 10.0)
