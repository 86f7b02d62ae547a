"""Intervals on a real engine whose step time has regimes: 15 ms, then 30 ms for seconds."""

from collections import Counter
from dataclasses import replace
from math import log
from typing import Any

import numpy as np
import pytest
from curve_rows import changed, row_of
from real_ladder import captured

from loadramp.analysis import latency, lengthen, regimes
from loadramp.analysis.ceiling import read
from loadramp.analysis.long_run import Track, Wander, interval_of, track_of, wander
from loadramp.analysis.quantiles import independent, pool, quantile
from loadramp.analysis.slowness import Following, met, slow_times_factor, slowness_of, usual_responses
from loadramp.analysis.step_time import StepTimes, slow_times, stretches
from loadramp.record.row import Row
from loadramp.record.table import Floats, Run
from loadramp.runner.assess import assess

FAMILIES = ("itl", "gap", "tpot", "ttft", "e2e")
STATISTICS = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95}


@pytest.fixture(scope="module")
def run() -> Run:
    return assess(captured())


@pytest.fixture(scope="module")
def truth(run: Run) -> dict[str, float]:
    """Of all eleven windows together."""
    seen = [latency.families(latency.window_view(run.table, step.window_s)) for step in run.steps]
    out = {}
    for family in FAMILIES:
        values = np.sort(np.concatenate([one[family].values for one in seen]))
        for name, q in STATISTICS.items():
            out[f"{family}_{name}"] = float(values.mean()) if q is None else quantile(values, q)
    return out


@pytest.mark.long
def test_the_capture_is_what_it_was(run: Run, truth: dict[str, float]) -> None:
    assert len(run.table) == 12_816
    assert 1000 * truth["itl_p50"] == pytest.approx(16.5, abs=0.1)
    assert 1000 * truth["ttft_p50"] == pytest.approx(58.8, abs=0.3)
    assert all(row.stationary for row in run.rows)


def test_the_printed_intervals_of_single_steps_hold_what_nine_minutes_say(run: Run, truth: dict[str, float]) -> None:
    held, printed = Counter[str](), Counter[str]()
    for row in run.rows:
        for stem, true in truth.items():
            low, high = row.statistic(stem).low, row.statistic(stem).high
            if low is not None and high is not None:
                printed[stem] += 1
                held[stem] += low <= true <= high
    assert printed.total() >= 210
    assert printed["tpot_p95"] >= 9
    assert all(held[stem] >= 0.9 * n for stem, n in printed.items())


def test_they_are_no_wider_than_half_as_much_again_as_what_the_steps_scatter(run: Run, truth: dict[str, float]) -> None:
    ratios = []
    for stem in truth:
        scatter = float(
            np.std([log(row.statistic(stem).value) for row in run.rows if row.statistic(stem).value], ddof=1)
        )
        halves = [
            log(row.statistic(stem).high / row.statistic(stem).low) / 2
            for row in run.rows
            if row.statistic(stem).low and row.statistic(stem).high
        ]
        ratios.append(float(np.median(halves)) / (1.96 * scatter))
    assert np.median(ratios) < 1.3
    assert max(ratios) < 1.6


def test_the_interval_of_the_window_itself_stands_beside_that_of_the_long_run(run: Run) -> None:
    for row in run.rows:
        low, high = row.window_intervals["itl_p50"]
        assert row.of("itl").p50.low < low < row.of("itl").p50.value < high < row.of("itl").p50.high
    assert run.rows[0].pace_log_sd == pytest.approx(0.12, abs=0.02)


def test_wide_intervals_are_printed(run: Run) -> None:
    """p99 of gaps: with a limit of 2, four of eleven would have none, those of which little is known."""
    found = [row.of("gap").p99 for row in run.rows]
    reach = [max(one.high / one.value, one.value / one.low) for one in found if one.value and one.low and one.high]
    assert (len(reach), sum(one > 2.0 for one in reach)) == (11, 4)
    assert max(reach) < 4.0


@pytest.mark.long
def test_no_interval_is_too_wide_to_be_printed(run: Run) -> None:
    """Withheld ones would leave the steps whose scatter is underestimated. Every other step eight times as slow."""
    rows = [
        replace(row, pace_s=[8.0 ** (k % 2) * pace_s for pace_s in row.pace_s or ()]) for k, row in enumerate(run.rows)
    ]
    views = [latency.window_view(run.table, step.window_s) for step in run.steps]
    found = [row.of("itl").p50 for row in regimes.widen(rows, views.__getitem__, 0.99)]
    assert min(min(one.high / one.value, one.value / one.low) for one in found) > 4.0
    assert len(found) == 11


def test_a_step_that_seems_not_to_follow_the_pace_gets_the_response_of_the_others() -> None:
    steps = [{"itl_p95": 0.1, "itl_p50": 1.0}, {"itl_p95": 0.7, "itl_p50": 1.0}, {"itl_p95": 0.7}]
    assert usual_responses(steps) == pytest.approx({"itl_p95": 0.574456, "itl_p50": 1.0})


def test_a_check_says_that_the_intervals_are_of_the_long_run(run: Run) -> None:
    (check,) = [check for check in run.checks if check.code == "pace_regimes"]
    assert check.level == "note"
    assert "scatters by 12.1 % from the long run" in check.message
    assert "--until-sure 0.1" in check.advice


def test_a_step_that_cannot_know_has_no_interval_and_says_why(run: Run) -> None:
    refused = [row for row in run.rows if row.of("tpot").p95.high is None]
    assert len(refused) == 2
    for row in refused:
        assert row.of("tpot").p95.low is None
        assert row.of("tpot").p95.value > row.of("tpot").p90.value
        assert "independent values: no interval without about" in row.reasons["tpot_p95_high_s"]


def test_the_tail_of_gaps_follows_the_pace_less_than_the_middle_on_a_real_engine(run: Run) -> None:
    known = [track for row in run.rows if (track := track_of(row)) is not None]
    slowness, following = slowness_of(known), Following()
    found = [
        met(latency.window_view(run.table, step.window_s), slowness.over(k, step.window_s[0]))
        for k, step in enumerate(run.steps)
    ]
    for one in found:
        following.add(one)
    of = {name: following.of(name, *found[0][name]).of for name in ("gap", "ttft", "tpot")}
    assert of["gap"][2] == pytest.approx(0.96, abs=0.02)  # p50
    assert of["gap"][7] == pytest.approx(0.48, abs=0.03)  # p99: a prefill takes its time at any pace
    assert of["ttft"][7] < 0.7 * of["ttft"][2]
    assert of["tpot"].min() > 0.7


def gaps(rng: np.random.Generator) -> tuple[Floats, Floats]:
    """20,000 gaps of about 15 ms, a tenth of them 45 ms whatever the pace; slow by half for a third of the time."""
    slow = np.where(np.arange(20_000) % 3_000 < 1_000, log(1.5), 0.0)
    noise = rng.normal(0.0, 0.02, 20_000)
    return np.where(rng.random(20_000) < 0.1, 0.045 * np.exp(noise), 0.015 * np.exp(slow + noise)), slow


def test_an_elasticity_is_learnt_for_each_level_and_taken_out_again() -> None:
    values, slow = gaps(np.random.default_rng(1))
    following = Following()
    following.add({"gap": (values, slow)})
    elastic = following.of("gap", values, slow)
    assert elastic.of[:4].tolist() == pytest.approx([1.0] * 4, abs=0.05)
    assert elastic.of[5:].tolist() == pytest.approx([0.0] * 3, abs=0.05)
    calm = np.exp(elastic.calm(np.log(values), slow))
    assert np.median(calm[slow > 0.0]) == pytest.approx(0.015, rel=0.01)
    assert np.quantile(calm[slow > 0.0], 0.97) == pytest.approx(0.045, rel=0.02)


def test_what_the_slowness_explains_of_the_share_beyond_a_quantile_is_no_chance() -> None:
    """All slow gaps lie beyond the p75: the blocks differ by nothing but how much of them was slow."""
    rng = np.random.default_rng(2)
    slow = np.where((np.arange(6_000) // 500) % 3 == 0, log(1.5), 0.0)
    values = 0.015 * np.exp(slow + rng.normal(0.0, 0.02, 6_000))
    following = Following()
    following.add({"gap": (values, slow)})
    elastic = following.of("gap", values, slow)
    chances = elastic.chances(elastic.calm(np.log(values), slow), slow)
    assert chances(0.019)[slow > 0.0].min() > 0.99
    assert chances(0.019)[slow == 0.0].max() < 0.01
    data = pool(values, np.linspace(0.0, 60.0, 6_000, endpoint=False), (0.0, 60.0), "gaps")
    assert independent(data, 0.019, 0.67) < 10
    assert independent(replace(data, chances=chances), 0.019, 0.67) > 1_000


def paced(slow_s: tuple[tuple[float, float], ...], rate_rps: float = 1.0, **columns: Any) -> Row:
    """A step of 60 s at 10 ms, 20 ms in the given stretches, with the throughput of ten equal tenths."""
    at = np.arange(0.0, 60.0, 0.5)
    slow = np.any([(a <= at) & (at < b) for a, b in slow_s] or [at < 0.0], axis=0)
    return row_of(
        pace_s=np.where(slow, 0.02, 0.01).tolist(), slow_times_s=[(100.0 + a, 100.0 + b) for a, b in slow_s],
        window_begin_s=100.0, window_end_s=160.0, rate_rps=rate_rps,
        throughput_blocks=[4.0] * 10, output_tokens_mean=100.0, output_tokens_sd=0.0, output_tokens_n=200, **columns,
    )  # fmt: skip


def test_intervals_speak_of_the_long_run_where_several_slow_stretches_came_and_went() -> None:
    often = paced(((5.0, 10.0), (20.0, 24.0), (40.0, 46.0)))
    assert interval_of([often]) == "long_run"
    assert interval_of([paced(((5.0, 10.0), (20.0, 24.0))), paced(((0.0, 30.0),))]) == "long_run"
    assert interval_of([paced(((20.0, 50.0),))]) == "these_minutes"
    assert interval_of([often, paced(((10.0, 50.0),))]) == "long_run"
    assert interval_of([often, paced(((10.0, 56.0),))]) == "these_minutes"  # 46 s
    assert interval_of([paced(())] * 4) == "these_minutes"
    assert interval_of([changed(often, slow_times_s=[])]) == "these_minutes"  # the number of streams explains them
    assert interval_of([changed(often, saturated=True)]) == "these_minutes"  # it fills up, which is no regime


def test_what_is_usual_is_the_lower_quartile_of_the_blocks_around() -> None:
    blocks = StepTimes(0.0, 1.0, np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.ones(5, dtype=np.bool_))
    assert blocks.usual_s(2.0).tolist() == [1.5, 1.75, 2.0, 2.75, 3.5]
    assert blocks.usual_s(5.0).tolist() == [2.0] * 5


def pace(seconds: float, *slow_s: tuple[float, float]) -> StepTimes:
    at = np.arange(0.0, seconds, 0.5)
    slow = np.any([(a <= at) & (at < b) for a, b in slow_s], axis=0)
    return StepTimes(0.0, 0.5, np.where(slow, 0.02, 0.01), np.ones(len(at), dtype=np.bool_))


def test_a_slow_minute_counts_once_and_short_returns_do_not_end_it() -> None:
    found = slow_times(pace(60.0, (5.0, 5.5), (10.0, 14.0), (15.0, 20.0), (30.0, 34.0), (37.0, 40.0)))
    assert found == [(10.0, 20.0), (30.0, 34.0), (37.0, 40.0)]
    minute = pace(180.0, (60.0, 120.0))
    assert slow_times(minute) == [(60.0, 120.0)]
    assert sum(part.slow for part in stretches(minute)) == 2  # beside what is usual 20 s around, it begins and it ends


def test_long_steps_tell_of_slower_changes_than_short_ones() -> None:
    """The pace turns once a minute: seen within 180 s as a process of 45 s, within 60 s of one of 15 s at most."""
    turns = np.where(np.arange(360) % 240 < 120, 0.0, 0.4)
    long, short = (wander([Track(logs, 0.5, 1.0), Track(logs, 0.5, 4.0)]) for logs in (turns, turns[60:180]))
    assert long is not None
    assert short is not None
    assert long.parts[-1] > 0.02
    assert short.parts[-1] == 0.0


def test_the_most_that_the_steps_leave_open_of_the_scatter() -> None:
    """The 10 % points of chi2 are 3.894 with 8.6 degrees and 0.2107 with 2."""
    for degrees, times in ((8.6, (8.6 / 3.894) ** 0.5), (2.0, (2.0 / 0.2107) ** 0.5)):
        known = Wander(np.array([0.0, 0.0, 0.01, 0.0, 0.0]), degrees)
        assert known.most_log_sd(60.0) == pytest.approx(times * known.log_sd(60.0), rel=1e-3)


def test_loads_that_differ_by_a_tenth_are_one_another_s_repeats() -> None:
    """Means of -4.5 and -4.7: sd 0.2 / sqrt(2) = 0.1414."""
    loads = ((-4.5, 8.0), (-4.7, 8.7), (-4.7, 9.0))
    low, like, other = (Track(np.full(120, level), 0.5, load) for level, load in loads)
    found = wander([low, like])
    assert found is not None
    assert found.scatter == pytest.approx(0.1414, abs=1e-4)
    alone = wander([low, other])
    assert alone is not None
    assert (alone.scatter, alone.alike_s) == (0.0, 0.0)


def test_two_steps_that_agree_by_chance_do_not_decide_how_the_pace_scatters() -> None:
    """Slow for 15, 12, 10 and 12 of 120 half seconds in stretches of seconds; the last two offered the same load, and
    their means of 0.10 and 0.12 differ by far less than a minute's do."""
    stretches_s = (((5, 10), (30, 35), (50, 55)), ((0, 2), (20, 30)), ((40, 50),), ((3, 8), (25, 32)))
    logs = [np.log(np.array(paced(slow_s).pace_s) / 0.01) * 0.6 / log(2.0) for slow_s in stretches_s]
    for loads, log_sd in (((1.0, 2.0, 4.0, 8.0), 0.1192), ((1.0, 2.0, 4.0, 4.0), 0.0919)):
        known = wander([Track(log_pace, 0.5, load) for log_pace, load in zip(logs, loads, strict=True)])
        assert known is not None
        assert known.log_sd(60.0) == pytest.approx(log_sd, abs=2e-4)


def test_what_an_engine_serves_in_its_slow_times() -> None:
    """At half speed in two stretches of 10 s of two minutes: in the long run 1 - 20 / 120 / 2 = 0.917 of what it does
    when fast."""
    rows = [paced(((5.0, 15.0),)), paced(((35.0, 45.0),), 2.0)]
    assert slow_times_factor(rows) == pytest.approx(2.0 * 0.917, abs=0.01)
    assert slow_times_factor([paced(()), paced((), 2.0)]) == 1.0


def test_the_throughput_is_no_surer_than_the_pace_with_its_own_degrees() -> None:
    """Ten equal tenths and no answer's chance: t(.975, 4) = 2.776 times 0.1."""
    row = paced((), pace_log_sd=0.1, pace_degrees=4.0)
    assert read(row, None).log_half == pytest.approx(0.2776, abs=1e-4)
    assert read(changed(row, pace_log_sd=None, pace_degrees=None), None).log_half == 0.0


def test_a_step_is_too_short_while_the_pace_may_scatter_more_than_it_seems_to() -> None:
    """By the estimate, +-1.96 x 0.030 would do (6 %); few slow stretches leave twice as much open."""
    quiet = [paced(((5.0, 7.0), (31.0, 32.0))), paced(((40.0, 42.0),), 2.0)]
    last = paced((), 4.0, saturated=True)
    known = wander([track for row in quiet if (track := track_of(row)) is not None])
    assert known is not None
    assert known.degrees == pytest.approx(3.8)
    assert 1.96 * known.log_sd(60.0) < log(1.1) < 1.96 * known.most_log_sd(60.0)
    assert not lengthen.is_long_enough([*quiet, last])
