"""Intervals on a real engine whose step time has regimes: 15 ms, then 30 ms for seconds."""

from collections import Counter
from math import log

import numpy as np
import pytest
from ladder import captured, scenario

from loadramp.assess import assess
from loadramp.judge import latency
from loadramp.judge.quantiles import quantile
from loadramp.record.table import Run

FAMILIES = ("itl", "gap", "tpot", "ttft", "e2e")
STATISTICS = {"mean": None, "p50": 0.5, "p90": 0.9, "p95": 0.95}


@pytest.fixture(scope="module")
def run() -> Run:
    return assess(captured(), scenario())


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
    assert printed.total() >= 190
    assert 0.9 <= held.total() / printed.total() <= 0.99
    assert all(held[stem] >= 0.8 * n for stem, n in printed.items())


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
