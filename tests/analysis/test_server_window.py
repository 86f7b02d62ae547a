"""What the server counted between two instants: literal scrapes in, growth, restarts and gauges out."""

import pytest

from loadramp.analysis.server_window import Gauge, deltas, gauges, with_server
from loadramp.record.row import Row
from loadramp.record.types import Sample


def scrapes(url: str, *at: tuple[float, dict[str, float] | str]) -> list[Sample]:
    return [
        Sample(t_s, url, {}, 0.01, values) if isinstance(values, str) else Sample(t_s, url, values, 0.01)
        for t_s, values in at
    ]


ONE = scrapes(
    "a",
    (0.0, {"output_tokens": 100.0, "ttft_s_sum": 1.0, "ttft_s_count": 10.0}),
    (10.1, {"output_tokens": 350.0, "ttft_s_sum": 4.0, "ttft_s_count": 20.0}),
    (20.2, {"output_tokens": 900.0, "ttft_s_sum": 9.0, "ttft_s_count": 30.0}),
)


def test_growth_is_between_the_scrapes_nearest_to_both_ends() -> None:
    assert deltas(ONE, 9.0, 21.0).get("output_tokens") == 550.0
    assert deltas(ONE, 0.0, 10.0).get("output_tokens") == 250.0


def test_neighbouring_windows_share_no_count_and_lose_none() -> None:
    first, second = deltas(ONE, 0.0, 10.0), deltas(ONE, 10.0, 20.0)
    assert (first.get("output_tokens"), second.get("output_tokens")) == (250.0, 550.0)


def test_a_mean_is_the_growth_of_a_sum_over_the_growth_of_its_count() -> None:
    assert deltas(ONE, 0.0, 20.0).ratio("ttft_s_sum", "ttft_s_count") == pytest.approx(0.4)
    assert deltas(ONE, 0.0, 20.0).ratio("prefix_hits", "prefix_queries") is None


def test_a_ratio_over_no_growth_is_unknown() -> None:
    still = scrapes(
        "a", (0.0, {"prefix_hits": 5.0, "prefix_queries": 9.0}), (9.0, {"prefix_hits": 5.0, "prefix_queries": 9.0})
    )
    assert deltas(still, 0.0, 9.0).get("prefix_hits") == 0.0
    assert deltas(still, 0.0, 9.0).ratio("prefix_hits", "prefix_queries") is None


def test_a_counter_that_no_server_shows_is_not_there() -> None:
    found = deltas(ONE, 0.0, 20.0)
    assert "preemptions" not in found.values
    assert found.get("preemptions") is None


def test_a_counter_that_went_down_is_a_restart_and_all_counts_are_unknown() -> None:
    samples = scrapes(
        "a",
        (0.0, {"output_tokens": 100.0, "preemptions": 0.0}),
        (1.0, {"output_tokens": 180.0, "preemptions": 0.0}),
        (2.0, {"output_tokens": 5.0, "preemptions": 0.0}),
        (3.0, {"output_tokens": 400.0, "preemptions": 1.0}),
    )
    found = deltas(samples, 0.0, 3.0)
    assert found.restarted
    assert found.values == {"output_tokens": None, "preemptions": None}
    assert deltas(samples, 2.0, 3.0).values == {"output_tokens": 395.0, "preemptions": 1.0}
    assert not deltas(samples, 0.0, 1.0).restarted


def test_a_restart_shows_in_the_start_time_even_when_counters_grew() -> None:
    samples = scrapes(
        "a",
        (0.0, {"output_tokens": 10.0, "process_start_s": 1795813499.58}),
        (1.0, "connection refused"),
        (60.0, {"output_tokens": 500.0, "process_start_s": 1795813555.0}),
    )
    found = deltas(samples, 0.0, 60.0)
    assert (found.restarted, found.get("output_tokens")) == (True, None)


def test_replicas_are_added_up() -> None:
    samples = [
        *scrapes("a", (0.0, {"output_tokens": 100.0}), (10.0, {"output_tokens": 150.0})),
        *scrapes("b", (0.1, {"output_tokens": 7.0}), (10.1, {"output_tokens": 27.0})),
    ]
    assert deltas(samples, 0.0, 10.0).get("output_tokens") == 70.0


def test_one_restarted_or_silent_replica_makes_the_sum_unknown() -> None:
    good = scrapes("a", (0.0, {"output_tokens": 100.0}), (60.0, {"output_tokens": 150.0}))
    restarted = scrapes("b", (0.0, {"output_tokens": 90.0}), (60.0, {"output_tokens": 3.0}))
    silent = scrapes("c", (0.0, {"output_tokens": 90.0}), (1.0, {"output_tokens": 91.0}), (60.0, "timeout"))
    assert deltas([*good, *restarted], 0.0, 60.0).values == {"output_tokens": None}
    assert deltas([*good, *restarted], 0.0, 60.0).restarted
    assert deltas([*good, *silent], 0.0, 60.0).values == {"output_tokens": None}
    assert not deltas([*good, *silent], 0.0, 60.0).restarted


def test_another_kind_of_page_does_not_make_the_engines_counts_unknown() -> None:
    samples = [*ONE, *scrapes("dcgm", (5.0, {"gpu_util_ratio": 0.9}))]
    assert deltas(samples, 0.0, 20.0).get("output_tokens") == 800.0


def test_a_scrape_too_far_from_an_end_does_not_stand_for_it() -> None:
    samples = scrapes("a", *((float(t), {"output_tokens": 10.0 * t}) for t in range(31)))
    assert deltas(samples, 10.0, 32.0).get("output_tokens") == 200.0
    assert deltas(samples, 10.0, 33.0).get("output_tokens") is None
    assert deltas(samples, 30.0, 30.4).get("output_tokens") is None  # both ends have the same scrape


def test_rare_scrapes_are_given_a_period_and_a_half() -> None:
    samples = scrapes("a", *((10.0 * t, {"output_tokens": 100.0 * t}) for t in range(7)))
    assert deltas(samples, 6.0, 44.0).get("output_tokens") == 300.0


def test_a_counter_made_with_its_first_count_began_at_zero() -> None:
    samples = scrapes("a", (0.0, {"running": 1.0}), (10.0, {"running": 2.0, "preemptions": 3.0}))
    assert deltas(samples, 0.0, 10.0).get("preemptions") == 3.0


def test_failed_scrapes_and_no_scrapes_count_nothing() -> None:
    assert deltas([], 0.0, 10.0).values == {}
    assert deltas(scrapes("a", (0.0, "http 404"), (10.0, "http 404")), 0.0, 10.0).values == {}
    assert gauges([], 0.0, 10.0) == {}


def test_a_gauge_has_its_mean_and_extremes_over_the_window() -> None:
    samples = scrapes("a", *((float(t), {"waiting": float(t), "output_tokens": 1.0}) for t in range(10)))
    assert gauges(samples, 2.0, 6.0) == {"waiting": Gauge(mean=3.5, max=5.0, min=2.0, n=4)}


def test_gauges_of_replicas_join_as_their_meaning_asks() -> None:
    values = {"waiting": 2.0, "kv_used_ratio": 0.5, "gpu_sm_clock_hz": 1.9e9, "gpu_util_ratio": 0.8}
    others = {"waiting": 3.0, "kv_used_ratio": 0.9, "gpu_sm_clock_hz": 1.2e9, "gpu_util_ratio": 0.4}
    found = gauges([*scrapes("a", (1.0, values)), *scrapes("b", (1.1, others))], 0.0, 2.0)
    assert {name: gauge.mean for name, gauge in found.items()} == {
        "waiting": 5.0, "kv_used_ratio": 0.9, "gpu_sm_clock_hz": 1.2e9, "gpu_util_ratio": pytest.approx(0.6),
    }  # fmt: skip


def test_the_largest_sum_is_of_values_that_held_together() -> None:
    samples = [
        *scrapes("a", (0.0, {"waiting": 9.0}), (1.0, {"waiting": 0.0}), (2.0, {"waiting": 0.0})),
        *scrapes("b", (0.1, {"waiting": 0.0}), (1.1, {"waiting": 0.0}), (2.1, {"waiting": 8.0})),
    ]
    assert gauges(samples, 0.0, 3.0)["waiting"].max == 9.0


def test_a_silent_replica_leaves_the_gauge_out() -> None:
    samples = [
        *scrapes("a", (0.0, {"waiting": 1.0}), (5.0, {"waiting": 1.0})),
        *scrapes("b", (0.0, {"waiting": 4.0}), (5.0, "timeout")),
    ]
    assert gauges(samples, 4.0, 6.0) == {}
    assert gauges(samples, 0.0, 6.0)["waiting"].max == 5.0


def test_the_columns_of_a_window_are_gauges_counts_and_ratios() -> None:
    samples = [
        Sample(float(t), "a", {"running": 8.0 + t % 2, "waiting": float(t), "kv_used_ratio": 0.5,
                               "preemptions": 2.0 * t, "spec_draft_tokens": 100.0 * t, "spec_accepted_tokens": 55.0 * t,
                               "ttft_s_sum": 0.3 * t, "ttft_s_count": 3.0 * t, "prefix_hit_ratio": 0.25})
        for t in range(30)
    ]  # fmt: skip
    row = with_server(Row(window_begin_s=10.0, window_end_s=20.0), samples)
    assert (row.running_max, row.running_mean, row.waiting_max) == (9.0, 8.5, 19.0)
    assert (row.preemptions, row.requests_rejected, row.server_restarted) == (20.0, None, False)
    assert row.spec_accept_ratio == pytest.approx(0.55)
    assert row.server_ttft_mean_s == pytest.approx(0.1)
    assert row.server_itl_mean_s is None
    assert row.prefix_hit_ratio == 0.25  # the engine shows a gauge and no counters


def test_the_columns_are_null_where_no_page_was_read() -> None:
    row = Row(window_end_s=10.0)
    assert (row.running_max, row.preemptions, row.server_ttft_mean_s, row.server_restarted) == (None, None, None, None)
    assert with_server(row, []) == row
    assert with_server(row, [Sample(5.0, "a", error="404")]) == row
