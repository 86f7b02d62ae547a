"""The small parts of the report: what is masked, how the server's samples become series, where axes put their ticks."""

import math

import pytest
from curve_rows import changed
from hypothesis import given
from hypothesis import strategies as st
from report_runs import row, served, served_rows

from loadramp.analysis.server_window import gauge_series, growth_series
from loadramp.record.types import Sample
from loadramp.report import charts, rows, throughput
from loadramp.report.redact import redact


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://user:pw@host:8000/v1", "http://***@host:8000/v1"),
        ("X-Api-Key=abc", "X-Api-Key=***"),
        ('headers = { "X-Api-Key" = "a b c" }', 'headers = { "X-Api-Key" = *** }'),
        ("Authorization: Bearer abcdefgh", "Authorization: *** ***"),
        ("?access_token=abc&x=1", "?access_token=***&x=1"),
        ("password = 'p w'", "password = ***"),
        ("sk-abcdef123456", "***"),
        ('api_key_env = "OPENAI_API_KEY"', 'api_key_env = "OPENAI_API_KEY"'),
        ("input_tokens = 512", "input_tokens = 512"),
        ("max_tokens=128 first_token = 3", "max_tokens=128 first_token = 3"),
        ("a plain sentence about tokens: 5", "a plain sentence about tokens: 5"),
    ],
)
def test_secrets_are_masked_and_the_rest_stays(text: str, masked: str) -> None:
    assert redact(text) == masked


def test_gauges_of_replicas_add_up_and_the_fullest_cache_counts() -> None:
    samples = [
        Sample(0.0, "a", {"running": 3.0, "kv_used_ratio": 0.2}),
        Sample(0.5, "b", {"running": 4.0}),
        Sample(1.0, "a", {"running": 5.0, "kv_used_ratio": 0.1}),
        Sample(1.5, "b", {"kv_used_ratio": 0.9}),
    ]
    at_s, running = gauge_series(samples, "running")
    assert (at_s.tolist(), running.tolist()) == ([0.0, 0.5, 1.0], [3.0, 7.0, 9.0])
    assert gauge_series(samples, "kv_used_ratio")[1].tolist() == [0.2, 0.1, 0.9]
    assert gauge_series(samples, "waiting")[0].tolist() == []


def test_counters_grow_and_a_restart_is_no_negative_growth() -> None:
    samples = [Sample(float(t), values={"preemptions": n}) for t, n in enumerate((5.0, 7.0, 1.0, 4.0))]
    at_s, grown = growth_series(samples, "preemptions")
    assert (at_s.tolist(), grown.tolist()) == ([1.0, 2.0, 3.0], [2.0, 0.0, 3.0])


@given(st.floats(1e-5, 1e3), st.floats(1.05, 1e6))
def test_ticks_lie_within_their_axis_and_are_few(low: float, factor: float) -> None:
    ticks = charts.log_ticks(low, low * factor)
    assert 2 <= len(ticks) <= 14
    assert all(low <= tick <= low * factor * (1 + 1e-12) for tick in ticks)
    assert ticks == sorted(ticks)


def test_a_narrow_range_starts_at_zero_and_a_wide_one_is_logarithmic() -> None:
    narrow, wide = charts.value_axis([0.03, 0.05]), charts.value_axis([0.03, 3.0])
    assert "type" not in narrow
    assert narrow["range"][0] == 0
    assert narrow["ticktext"] == ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]
    assert wide["type"] == "log"
    assert wide["ticktext"] == ["50 ms", "100 ms", "200 ms", "500 ms", "1 s", "2 s"]


def test_every_step_of_a_geometric_ramp_has_its_tick() -> None:
    axis = charts.load_axis([row(i, 2.0**i) for i in range(8)])
    assert axis["ticktext"] == ["1", "2", "4", "8", "16", "32", "64", "128"]
    assert axis["range"][0] < 0 < math.log10(128) < axis["range"][1]


def test_ticks_of_many_steps_keep_their_distance_and_the_busiest_one() -> None:
    axis = charts.load_axis([row(i, 10.0 + i) for i in range(50)], log=False)
    assert axis["ticktext"][-1] == "59"
    assert len(axis["ticktext"]) <= 12


def test_labels_give_way_to_points_and_to_each_other() -> None:
    assert throughput._label_sides([(0.5, 0.5)], [(0.5, 0.5)]) == ["top center"]
    assert throughput._label_sides([(0.5, 0.5)], [(0.5, 0.5), (0.5, 0.58)]) == ["bottom center"]
    assert throughput._label_sides([(0.5, 0.5), (0.52, 0.5)], [(0.5, 0.5), (0.52, 0.5)]) == [
        "top center",
        "bottom center",
    ]
    crowd = [(0.5 + dx, 0.5 + dy) for dx in (-0.06, 0.0, 0.06) for dy in (-0.09, 0.0, 0.09)]
    assert throughput._label_sides([(0.5, 0.5)], crowd) == [""]


def test_columns_that_are_no_numbers_are_no_numbers() -> None:
    odd = row(0, None, settled=True, arrival_rps=math.nan, users=3)
    names = ("role", "settled", "arrival_rps", "rate_rps", "users", "unheard_of")
    assert [odd.number(name) for name in names] == [None, None, None, None, 3.0, None]


def test_a_step_says_what_it_showed() -> None:
    assert rows.state_words(row(0, 1.0)) == "keeps up"
    assert rows.state_words(row(0, 1.0, settled=False)) == "not settled"
    assert rows.state_words(row(0, 1.0, saturated=True)) == "alarm, still delivers"
    assert rows.state_words(row(0, 1.0, deficit=True)) == "delivers too little"
    assert rows.state_words(row(0, 1.0, overloaded=True, ok=300)) == "too many errors"
    assert rows.state_words(row(0, 1.0, void=True)) == "void"
    assert rows.state_words(row(0, 1.0, ok=0, errors={"reset": 400})) == "all failed"
    assert rows.state_words(row(0, 1.0, ok=0)) == "nothing finished"


def test_the_climb_ends_above_the_highest_step_that_kept_up() -> None:
    made = served_rows()
    made[1] = changed(made[1], saturated=True)
    run = served(rows=made)
    assert [r.load for r in rows.kept_up(run)] == [2.0, 8.0, 12.0]
    over = rows.broke(run)
    assert over is not None
    assert over.load == 28.0
