"""Intervals on a real engine whose step time has regimes: 15 ms, then 30 ms for seconds."""

from collections import Counter
from dataclasses import replace
from math import log

import numpy as np
import pytest
from ladder import captured

from loadramp.analysis import latency
from loadramp.analysis.long_run import track_of
from loadramp.analysis.quantiles import independent, pool, quantile
from loadramp.analysis.slowness import Following, met, slowness_of
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
    seen = [latency.families(latency.look(run.table, step.window_s)) for step in run.steps]
    out = {}
    for family in FAMILIES:
        values = np.sort(np.concatenate([one[family].values for one in seen]))
        for name, q in STATISTICS.items():
            out[f"{family}_{name}"] = float(values.mean()) if q is None else quantile(values, q)
    return out


def test_the_capture_is_what_it_was(run: Run, truth: dict[str, float]) -> None:
    assert len(run.table) == 12_816
    assert 1000 * truth["itl_p50"] == pytest.approx(16.5, abs=0.1)
    assert 1000 * truth["ttft_p50"] == pytest.approx(58.8, abs=0.3)
    assert all(row["stationary"] for row in run.rows)


def test_the_printed_intervals_of_single_steps_hold_what_nine_minutes_say(run: Run, truth: dict[str, float]) -> None:
    held, printed = Counter[str](), Counter[str]()
    for row in run.rows:
        for stem, true in truth.items():
            low, high = row[f"{stem}_low_s"], row[f"{stem}_high_s"]
            if low is not None and high is not None:
                printed[stem] += 1
                held[stem] += low <= true <= high
    assert printed.total() >= 210
    assert printed["tpot_p95"] >= 9
    assert all(held[stem] >= 0.9 * n for stem, n in printed.items())


def test_they_are_no_wider_than_half_as_much_again_as_what_the_steps_scatter(run: Run, truth: dict[str, float]) -> None:
    ratios = []
    for stem in truth:
        scatter = float(np.std([log(row[f"{stem}_s"]) for row in run.rows if row[f"{stem}_s"]], ddof=1))
        halves = [
            log(row[f"{stem}_high_s"] / row[f"{stem}_low_s"]) / 2
            for row in run.rows
            if row[f"{stem}_low_s"] and row[f"{stem}_high_s"]
        ]
        ratios.append(float(np.median(halves)) / (1.96 * scatter))
    assert np.median(ratios) < 1.3
    assert max(ratios) < 1.6


def test_the_interval_of_the_window_itself_stands_beside_that_of_the_long_run(run: Run) -> None:
    for row in run.rows:
        low, high = row["window_intervals"]["itl_p50"]
        assert row["itl_p50_low_s"] < low < row["itl_p50_s"] < high < row["itl_p50_high_s"]
    assert run.rows[0]["pace_log_sd"] == pytest.approx(0.12, abs=0.02)


def test_a_check_says_that_the_intervals_are_of_the_long_run(run: Run) -> None:
    (check,) = [check for check in run.checks if check.code == "pace_regimes"]
    assert check.level == "note"
    assert "scatters by 11.8 % from the long run" in check.message
    assert "--until-sure 0.1" in check.advice


def test_a_step_that_cannot_know_has_no_interval_and_says_why(run: Run) -> None:
    refused = [row for row in run.rows if row["tpot_p95_high_s"] is None]
    assert len(refused) == 2
    for row in refused:
        assert row["tpot_p95_low_s"] is None
        assert row["tpot_p95_s"] > row["tpot_p90_s"]
        assert "independent values: no interval without about" in row["reasons"]["tpot_p95_high_s"]


def test_the_tail_of_gaps_follows_the_pace_less_than_the_middle_on_a_real_engine(run: Run) -> None:
    known = [track for row in run.rows if (track := track_of(row)) is not None]
    slowness, following = slowness_of(known), Following()
    found = [
        met(latency.look(run.table, step.window_s), slowness.over(k, step.window_s[0]))
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
