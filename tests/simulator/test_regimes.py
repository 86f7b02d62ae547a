"""Engines whose pace changes by itself: what a path of regimes looks like, and that it is like the captured one."""

import csv
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from benchmarks.engine_population import Lengths, capacity_rps, mean_speed
from benchmarks.offline_engine import simulate
from loadramp.analysis.latency import families, window_view
from loadramp.analysis.quantiles import quantile
from loadramp.analysis.step_time import StepTimes, pace_of, stretches
from loadramp.record.table import Table
from loadramp.registry import ScenarioError
from loadramp.simulator.faults import RegimeName
from loadramp.simulator.practise import faults_of, listing
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.regimes import CAPTURED, REGIMES, RegimePath, Regimes, Slow, SlowDrift, Stall

CSV = Path(__file__).parents[2] / "benchmarks" / "captured_pace.csv"
HOST = PROFILES["h200-8b-regimes"]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def path(regimes: Regimes, seconds: float = 20_000.0, seed: int = 0, step_s: float = 0.25) -> np.ndarray:
    one = RegimePath(regimes, rng(seed))
    return np.array([one.factor(t_s) for t_s in np.arange(0.0, seconds, step_s).tolist()])


def load_24_rps(profile: EngineProfile, seed: int, seconds: float, engine: int = 0) -> Table:
    """512 in, 128 out, both 50 % to 150 %; the same requests for every ``engine``."""
    chance = rng(seed)
    due_s = np.sort(chance.uniform(0.0, seconds, chance.poisson(24.0 * seconds)))
    prompt, output = chance.integers(256, 769, len(due_s)), chance.integers(64, 193, len(due_s))
    engine_rng = np.random.default_rng([seed, engine])
    return simulate(profile, due_s, prompt, output, engine_rng, until_s=seconds, sample_period_s=0.0)[0]


loaded = cache(load_24_rps)
"""For tests that look at the same tables."""


def captured() -> StepTimes:
    with CSV.open() as file:
        ms = [float(row["median_ms"] or "nan") for row in csv.DictReader(file)]
    values = np.array(ms) / 1e3
    known = ~np.isnan(values)
    at = np.arange(len(values), dtype=np.float64)
    return StepTimes(5.0, 0.25, np.interp(at, at[known], values[known]), known)


def slow_share(pace: StepTimes) -> float:
    slow_s = sum(one.lasts_s for one in stretches(pace) if one.slow)
    return slow_s / (len(pace.median_s) * pace.width_s)


def test_slow_stretches_take_their_share_of_the_time_and_have_their_factor() -> None:
    factors = path(Regimes((Slow(every_s=42.0, lasts_s=12.0, factor=2.0),)))
    assert set(factors.tolist()) == {1.0, 2.0}
    assert np.mean(factors == 2.0) == pytest.approx(12.0 / 54.0, abs=0.03)
    assert np.count_nonzero(np.diff(factors) > 0) == pytest.approx(20_000.0 / 54.0, rel=0.12)


def test_periodic_stretches_come_and_last_to_the_second() -> None:
    factors = path(Regimes((Slow(every_s=50.0, lasts_s=10.0, factor=1.5, periodic=True),)), 600.0)
    begins_s = np.flatnonzero(np.diff(factors) > 0) * 0.25
    assert np.diff(begins_s).tolist() == pytest.approx([60.0] * (len(begins_s) - 1), abs=0.25)


def test_each_stretch_has_a_factor_of_its_own_and_the_larger_counts_where_two_overlap() -> None:
    spread = path(Regimes((Slow(20.0, 5.0, 1.8, spread=0.2),)))
    levels = np.unique(spread[spread != 1.0])
    assert np.median(levels) == pytest.approx(1.8, rel=0.03)
    assert np.log(levels).std() == pytest.approx(0.2, rel=0.15)
    both = path(Regimes((Slow(20.0, 20.0, 1.5), Slow(20.0, 20.0, 2.0))))
    assert set(both.tolist()) == {1.0, 1.5, 2.0}  # never 3


def test_a_drift_wanders_as_far_and_as_slowly_as_it_says() -> None:
    level = np.log(path(Regimes(drift=SlowDrift(sd=0.1, over_s=120.0)), 100_000.0))
    assert level.std() == pytest.approx(0.1, rel=0.1)
    lag = round(120.0 / 0.25)
    assert np.corrcoef(level[:-lag], level[lag:])[0, 1] == pytest.approx(np.exp(-1.0), abs=0.1)


def test_a_path_is_a_function_of_time_alone() -> None:
    one, other = (RegimePath(CAPTURED, rng(3), start_s=100.0) for _ in range(2))
    late = other.factor(400.0)
    assert [one.factor(t) for t in (100.0, 137.5, 250.0, 400.0)] == [
        *(other.factor(t) for t in (100.0, 137.5, 250.0)), late,
    ]  # fmt: skip


def test_two_engines_with_the_same_requests_are_slow_at_different_times() -> None:
    window = (5.0, 305.0)
    paces = [pace_of(window_view(loaded(HOST, 11, 320.0, engine), window), 1.0) for engine in (0, 1)]
    levels = [np.log(pace.median_s) for pace in paces if pace is not None]
    assert len(levels) == 2
    assert abs(np.corrcoef(levels[0], levels[1])[0, 1]) < 0.3


def test_the_long_run_capacity_counts_the_slow_stretches() -> None:
    slow = Regimes((Slow(every_s=42.0, lasts_s=12.0, factor=2.0),))
    assert mean_speed(slow, rng()) == pytest.approx(1.0 - 0.5 * 12.0 / 54.0, abs=0.01)
    engine, lengths = EngineProfile(max_num_seqs=32), Lengths(300, 0.6, 200, 0.6)
    quiet = capacity_rps(engine, lengths, rng(1), 2000)
    assert capacity_rps(replace(engine, regimes=slow), lengths, rng(1), 2000) == pytest.approx(0.89 * quiet, rel=0.02)
    stalls = Regimes(stalls=(Stall(every_s=1.0, duration_s=0.5, periodic=True),))
    assert capacity_rps(replace(engine, regimes=stalls), lengths, rng(1), 2000) == pytest.approx(0.5 * quiet, rel=0.03)


def test_regimes_that_are_off_change_no_bit() -> None:
    plain, off = (load_24_rps(PROFILES["h200-8b"], 7, 20.0) for _ in range(2))
    switched = load_24_rps(replace(PROFILES["h200-8b"], regimes=Regimes()), 7, 20.0)
    assert plain.event_s.tolist() == off.event_s.tolist() == switched.event_s.tolist()


@pytest.mark.long
def test_the_captured_engine_was_slow_a_third_of_the_time_and_so_is_the_simulated_one() -> None:
    assert slow_share(captured()) == pytest.approx(0.345, abs=0.005)
    shares, levels = [], []
    for seed in (1, 2, 3):
        pace = pace_of(window_view(load_24_rps(HOST, seed, 535.0), (5.0, 535.0)), 0.25)
        assert pace is not None
        shares.append(slow_share(pace))
        levels.append(np.median(np.log(pace.median_s).reshape(-1, 53 * 2), axis=1).std(ddof=1))
    assert np.mean(shares) == pytest.approx(0.345, abs=0.06)
    real = np.median(np.log(captured().median_s).reshape(-1, 53 * 2), axis=1).std(ddof=1)
    assert np.mean(levels) == pytest.approx(real, rel=0.35)  # blocks of 26.5 s


@pytest.mark.long
def test_mirrored_pairs_scatter_as_much_as_two_real_engines_did() -> None:
    d = []
    for seed in (11, 12):
        both = [loaded(HOST, seed, 320.0, engine) for engine in (0, 1)]
        for k in range(15):
            window = (5.0 + 20.0 * k, 25.0 + 20.0 * k)
            base, other = (quantile(families(window_view(table, window))["itl"].ordered, 0.5) for table in both)
            d.append(np.log(other / base))
    assert 0.18 < np.std(d) < 0.38  # captured: 0.28; without regimes 0.002


@pytest.mark.parametrize("name", get_args(RegimeName))
def test_every_name_of_regimes_is_a_fault(name: str) -> None:
    assert faults_of([f"regimes={name}"]).regimes == name
    assert name in REGIMES


def test_an_unknown_name_of_regimes_is_refused_with_those_there_are() -> None:
    with pytest.raises(ScenarioError, match=r"regimes.*captured"):
        faults_of(["regimes=stormy"])
    assert "regimes = 'none'" in listing()
    assert "h200-8b-regimes" in listing()
