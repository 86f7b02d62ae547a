"""Comparing engines that are slow at times: blocks that follow one another, the step time, what ``plan`` expects."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from math import log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from canary_in_memory import SHORT, compared
from msgspec import convert, to_builtins
from run_in_memory import scenario_of
from scipy.special import stdtrit

from benchmarks.offline_engine import simulate
from loadramp.analysis.proportions import Proportion
from loadramp.comparison import launch, noise
from loadramp.comparison.block_spread import Noise, blocks_for, pass_probability, spread, variance_inflation
from loadramp.comparison.blocks import Block, measure
from loadramp.comparison.decide import Decision
from loadramp.comparison.info import COMPARISON, ComparisonInfo, KeptNoise, Round
from loadramp.comparison.judge import asked_about, asked_of, read, weigh
from loadramp.comparison.noninferior import Looks
from loadramp.comparison.pairs import Comparison, Pair
from loadramp.comparison.preview import canary_parts
from loadramp.comparison.table import PRIMARY, Canary, canary_of
from loadramp.record.run_directory import RunDirError
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.runner.scenarios import load
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.regimes import REGIMES, RegimePath

CANARY = Canary(rates=[16.0])
TEN_PERCENT = log(1.1)


def ar1(rng: np.random.Generator, n: int, rho: float) -> np.ndarray:
    out = rng.standard_normal(n)
    for t in range(1, n):
        out[t] = rho * out[t - 1] + sqrt(1.0 - rho**2) * out[t]
    return out


def pairs(d: np.ndarray, step_time: np.ndarray | None = None, base: np.ndarray | None = None) -> list[Pair]:
    """Blocks whose primary latencies differ by ``d`` (logarithms), and whose step times do by ``step_time``; ``base``:
    logarithms of the baseline's own."""
    out = []
    for k, more in enumerate(d.tolist()):
        own = 0.0 if base is None else float(base[k])
        sides: list[dict[str, float | None]] = []
        for level, step in ((own, 0.0), (own + more, 0.0 if step_time is None else float(step_time[k]))):
            values: dict[str, float | None] = {name: float(np.exp(level)) for name in PRIMARY}
            values["output_tokens_per_s"] = float(np.exp(-level))
            if step_time is not None:
                values["step_time"] = 0.015 * float(np.exp(step))
            sides.append(values)
        both = [Block(values, failures=Proportion(0, 960)) for values in sides]
        out.append(Pair(Round(k, 16.0, k, k), both[0], both[1]))
    return out


def test_blocks_that_follow_one_another_alike_widen_the_interval_and_others_do_not() -> None:
    alternating = [0.1, -0.1] * 10
    found = spread(alternating)
    assert found is not None
    assert found.inflation == 1.0
    assert found.df == 19.0
    slow = spread([0.1] * 10 + [-0.1] * 10)
    assert slow is not None
    assert slow.inflation > 5.0
    assert slow.se > 2.0 * found.se
    assert slow.df == 3.0


def test_few_blocks_say_nothing_of_what_follows() -> None:
    assert variance_inflation([np.array([1.0, 1.0, -1.0, -1.0])]) == 1.0
    assert variance_inflation([np.zeros(20)]) == 1.0


@pytest.mark.parametrize(("rho", "most"), [(0.0, 0.03), (0.4, 0.065), (0.6, 0.085)])
def test_an_interval_of_alike_blocks_misses_about_as_seldom_as_it_says(rho: float, most: float) -> None:
    """Nominal 0.025 on the one side; taken as independent, 0.09 and 0.17 of the intervals at 0.4 and 0.6 missed."""
    rng = np.random.default_rng(1)
    missed = 0
    for _ in range(1500):
        found = spread(ar1(rng, 20, rho).tolist())
        assert found is not None
        missed += found.mean - float(stdtrit(found.df, 0.975)) * found.se > 0.0
    assert missed / 1500 <= most


def test_equal_versions_on_engines_with_regimes_do_not_fail_and_say_what_it_takes() -> None:
    rng = np.random.default_rng(2)
    verdicts = []
    for _ in range(200):
        base, other = 0.134 * rng.standard_normal((2, 20))  # together 0.19
        found = pairs(other - base, 0.02 * rng.standard_normal(20), base)
        verdicts.append(weigh(asked_of(CANARY), found, final=True)[2])
    assert sum(one.verdict == "fail" for one in verdicts) <= 6  # 3 %
    wanted = blocks_for(0.19, TEN_PERCENT)
    asked = [20 + one.more_blocks for one in verdicts if one.verdict == "inconclusive" and one.more_blocks]
    assert len(asked) > 60
    assert wanted / 1.25 < np.median(asked) < wanted * 1.25
    assert np.mean([wanted / 1.5 < n < wanted * 1.5 for n in asked]) > 0.6


@pytest.mark.long
@pytest.mark.parametrize("kind", ["captured", "neighbour", "slow_drift"])
def test_identical_engines_that_are_slow_at_times_do_not_fail_each_other(kind: str) -> None:
    """A neighbour that comes for a minute fills whole blocks of one arm; the real engine's stretches fill parts."""
    at_s = np.arange(0.0, 1200.0, 1.0)
    paths = [RegimePath(REGIMES[kind], np.random.default_rng([14, k])) for k in range(16)]
    levels = [np.log([path.factor(t_s) for t_s in at_s.tolist()]).reshape(20, 60) for path in paths]
    slow = [np.median(one, axis=1) for one in levels]
    steady = [np.quantile(one, 0.25, axis=1) for one in levels]
    failed = 0
    for i in range(16):
        for j in [(i + 1) % 16, (i + 5) % 16, (i + 9) % 16]:
            d = pairs(slow[j] - slow[i], steady[j] - steady[i], slow[i])
            looks = [weigh(asked_of(CANARY), d[:k], final=k == 20)[2].verdict for k in CANARY.look_at]
            failed += next((one for one in looks if one != "inconclusive"), "") == "fail"
    assert failed <= 1  # of 48; 3 % are let be


def test_arms_with_nothing_in_common_are_known_no_better_than_either_is() -> None:
    """Each arm scatters by 0.1; by chance their differences of these ten blocks scatter by half of what is theirs."""
    own = np.array([1, -1, -1, 1, 1, -1, 1, -1, -1, 1]) * 0.1
    base, candidate = own, own * np.array([1, 1, 1, 1, 1, 1, -1, -1, -1, -1])
    d = pairs(candidate - base, base=base)
    effects = weigh(asked_of(replace(CANARY, blocks=10, looks=())), d, final=True)[0]
    found = next(one for one in effects if one.metric == "itl_p50")
    alone = spread((candidate - base).tolist())
    assert alone is not None and found.noise is not None
    assert found.high is not None and found.mean is not None
    half = float(stdtrit(alone.df, 0.975)) * max(alone.se, found.noise / sqrt(10))
    assert found.noise / sqrt(10) > alone.se
    assert found.high - found.mean == pytest.approx(half, rel=1e-3)


def test_a_step_time_outside_slow_stretches_that_is_worse_is_found_where_the_rest_is_open() -> None:
    rng = np.random.default_rng(3)
    found = [
        weigh(asked_of(CANARY), pairs(TEN_PERCENT + 0.19 * rng.standard_normal(20),
                                      TEN_PERCENT + 0.03 * rng.standard_normal(20)), final=True)[2]
        for _ in range(40)
    ]  # fmt: skip
    assert sum(one.verdict == "fail" for one in found) >= 38
    assert any("step time outside slow stretches at 16 req/s is 1.1" in one.reasons[0] for one in found)


def test_a_step_time_never_fails_what_the_primary_measures_pass_nor_before_the_end() -> None:
    quiet = 0.001 * np.random.default_rng(4).standard_normal(20)
    worse = TEN_PERCENT + 0.02 * np.random.default_rng(5).standard_normal(20)
    assert weigh(asked_of(CANARY), pairs(quiet, worse), final=True)[2].verdict == "pass"
    noisy = 0.3 * np.random.default_rng(6).standard_normal(10)
    assert weigh(asked_of(CANARY), pairs(noisy, worse[:10]), final=False)[2].verdict == "inconclusive"


def test_the_step_time_of_a_block_does_not_depend_on_how_much_of_it_was_slow() -> None:
    profile = replace(PROFILES["h200-8b-regimes"], regimes=REGIMES["doubling"])
    rng = np.random.default_rng(7)
    due_s = np.sort(rng.uniform(0.0, 620.0, 4960))
    table, _ = simulate(profile, due_s, 512, 128, np.random.default_rng(8), until_s=620.0, sample_period_s=0.0)
    blocks = [measure(table, (10.0 + 60.0 * k, 70.0 + 60.0 * k), shift=False).values for k in range(10)]
    assert np.ptp([one["itl_mean"] or np.nan for one in blocks]) > 0.003
    assert [one["step_time"] for one in blocks] == pytest.approx([0.0149] * 10, rel=0.02)


def test_too_few_tokens_have_no_step_time_and_a_reason() -> None:
    block = measure(Table.of([]), (0.0, 60.0))
    assert block.values["step_time"] is None
    assert block.reasons["step_time"] == "too few tokens to tell the engine's pace"


# -- what plan expects ---------------------------------------------------------------------------------------------


def kept(sd: float = 0.19, block_s: float = 60.0, blocks: int = 20) -> KeptNoise:
    both = {"itl_p50": sd, "itl_p99": min(sd, 0.05)}
    rows = [Noise(name, 16.0, own, blocks) for name, own in both.items()]
    return KeptNoise("2026-11-28T12:00:00+00:00", block_s, tuple(rows))


def test_plan_expects_the_blocks_that_the_noise_asks_for() -> None:
    words = noise.expected(CANARY, kept(0.1))
    assert words == (
        "At noise like that of the last comparison of the same version (2026-11-28: p50 ITL at 16 req/s scatters by "
        "11 % from block to block) equal versions are expected to pass after 15 blocks, 15 min (15 to 21, as 20 blocks "
        "tell their noise)."
    )
    assert noise.expected(CANARY, kept(0.1, blocks=80)).endswith("are expected to pass after 15 blocks, 15 min.")


@pytest.mark.long
@pytest.mark.parametrize("sd", [0.05, 0.08, 0.15])
def test_equal_versions_pass_by_then_as_often_as_is_expected(sd: float) -> None:
    """An early look needs far stronger evidence: at 5 % not one of 40 passed after the 5 blocks once foretold."""
    foretold = noise.passes_after(CANARY, sd)
    assert foretold is not None
    canary = replace(CANARY, blocks=max(foretold, 20))
    rng = np.random.default_rng(11)
    passed = 0
    for _ in range(60):
        d = pairs(sd * rng.standard_normal(foretold))
        looks = [weigh(asked_of(canary), d[:k], final=k == canary.blocks)[2] for k in canary.look_at if k <= foretold]
        passed += any(one.verdict == "pass" for one in looks)
    assert 0.65 <= passed / 60 <= 1.0
    before = max((k for k in canary.look_at if k < foretold), default=2)
    assert pass_probability(before, sd, TEN_PERCENT, Looks.at(before, canary.look_at, canary.blocks).z) < 0.8


def test_an_early_look_of_many_blocks_is_told_without_a_number_that_overflows() -> None:
    d = 0.25 * np.random.default_rng(12).standard_normal(5)
    canary = replace(CANARY, blocks=200)
    effects, _, decision = weigh(asked_of(canary), pairs(d), final=False)
    assert decision.verdict == "inconclusive"
    assert effects[0].high is not None
    assert effects[0].high > 700.0
    assert effects[0].ratio("high") is None
    assert "(from 5 blocks: no interval)" in decision.reasons[0]


def test_plan_says_how_many_blocks_a_noisy_pair_takes_beyond_those_there_are() -> None:
    words = noise.expected(CANARY, kept())
    assert words.endswith(
        "equal versions take about 35 blocks, 35 min (20 to 65, as 20 blocks tell their noise), to pass; this scenario "
        "has 20: --set canary.blocks=35."
    )
    assert "cannot be expected to pass: it would take more than 200 blocks" in noise.expected(CANARY, kept(0.9))


def test_longer_blocks_scatter_less_and_the_error_rate_takes_its_requests() -> None:
    assert "after 10 blocks, 40 min" in noise.expected(replace(CANARY, block_s=240.0), kept(0.07))
    assert "after 15 blocks, 15 min" in noise.expected(CANARY, kept(0.07))
    assert "after 10 blocks" in noise.expected(Canary(rates=[8.0]), kept(0.01))  # 2,995 requests
    assert noise.expected(replace(CANARY, primary=["ttft_p50"]), kept()) == ""


def test_what_a_comparison_of_the_same_version_showed_is_kept_for_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = asked_of(CANARY, same_version=True)
    d = 0.1 * np.random.default_rng(9).standard_normal(20)
    effects = weigh(asked, pairs(d), final=True)[0]
    run = Run(RunInfo(), load(""), [], Table.of([]), [])
    told = noise.noise_of(
        Comparison(ComparisonInfo(), run, run, asked, Decision("pass", ()), effects), datetime.now(UTC), 60.0
    )
    assert told is not None
    assert {row.metric for row in told.noise} == set(PRIMARY)
    assert told.noise[0].sd == pytest.approx(np.std(d, ddof=1), rel=0.3)
    noise.LAST.keep(told)
    scenario = load("[canary]\nrates = [16]\n", "x.toml")
    (part,) = canary_parts(scenario, lambda _: scenario)
    assert any(note.startswith("At noise like that of the last") for note in part.notes)
    versions = Comparison(ComparisonInfo(), run, run, asked_of(CANARY), Decision("pass", ()), effects)
    assert noise.noise_of(versions, datetime.now(UTC), 60.0) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"noise": 3, "block_s": 60}', json.dumps(to_builtins(kept(block_s=0)))]
)
def test_what_was_kept_and_cannot_be_read_is_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert noise.LAST.read() is None
    noise.LAST.path.parent.mkdir()
    noise.LAST.path.write_text(text)
    assert noise.LAST.read() is None


@pytest.mark.long
def test_an_aa_comparison_of_two_servers_tells_its_noise_and_one_of_versions_does_not(tmp_path: Path) -> None:
    slow = replace(PROFILES["small"], regimes=REGIMES["captured"])
    scenario = scenario_of(SHORT.replace("looks = [4]", "looks = []").replace("blocks = 8", "blocks = 5"))
    same = compared(scenario, tmp_path / "same", slow, slow, info={"same_version": True})
    told = noise.noise_of(same, datetime.now(UTC), canary_of(scenario).block_s)
    assert told is not None
    by_name = {row.metric: row.sd for row in told.noise}
    assert set(by_name) == set(PRIMARY)
    assert 0.05 < by_name["itl_p50"] < 0.8
    assert "this scenario has 5" in noise.expected(canary_of(scenario), told)
    versions = replace(same, asked=replace(same.asked, same_version=False))
    assert noise.noise_of(versions, datetime.now(UTC), canary_of(scenario).block_s) is None
    again = read_with(Path(same.path), to_builtins(told))  # a later comparison that found the same
    assert same.decision.more is not None and again.decision.more is not None
    assert again.decision.more.high - again.decision.more.low < same.decision.more.high - same.decision.more.low
    assert any(note.startswith("How many blocks it would take also rests on") for note in again.notes)
    with pytest.raises(RunDirError, match="not a comparison"):
        read_with(Path(same.path), {"block_s": 60.0})


@pytest.mark.long
def test_a_comparison_of_the_same_version_leaves_its_noise_for_plan_and_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "cache" / "loadramp" / "same-version.json"
    scenario = scenario_of(SHORT.replace("looks = [4]", "looks = []").replace("blocks = 8", "blocks = 5"))
    canary = canary_of(scenario)
    said: list[str] = []
    same = compared(scenario, tmp_path / "same", info={"same_version": True})
    launch.keep_noise(replace(same, asked=replace(same.asked, same_version=False)), canary, said.append)
    assert not path.exists()  # two versions tell nothing of the noise of one
    launch.keep_noise(same, canary, said.append)
    told = json.loads(path.read_text())
    assert noise.LAST.read() == convert(told, KeptNoise)
    assert told["block_s"] == 10.0
    assert {row["metric"] for row in told["noise"]} == set(PRIMARY)
    assert {(row["rate_rps"], row["blocks"]) for row in told["noise"]} == {(8.0, 5)}
    assert "http" not in path.read_text()
    assert asked_about(canary, ComparisonInfo(noise=noise.LAST.read())).noise[0].blocks == 5
    (part,) = canary_parts(scenario, lambda _: scenario)
    assert any(note.startswith("At noise like that of the last comparison of the same version") for note in part.notes)
    assert said == []
    path.unlink()
    path.mkdir()  # so that no file can be written there
    launch.keep_noise(same, canary, said.append)
    assert said[0].startswith("note: the noise is not kept for later plans")


def read_with(path: Path, kept_noise: dict[str, Any]) -> Comparison:
    """The comparison in ``path``, begun when ``kept_noise`` was known."""
    info = json.loads((path / COMPARISON).read_text())
    (path / COMPARISON).write_text(json.dumps(info | {"noise": kept_noise}))
    return read(path)


def test_earlier_noise_counts_at_its_own_rate_and_scaled_to_the_length_of_blocks() -> None:
    told = kept(0.2, block_s=60.0)
    found = noise.earlier(Canary(rates=[8.0, 16.0], block_s=15.0), told)
    assert [(one.metric, one.rate_rps, one.sd, one.blocks) for one in found] == [
        ("itl_p50", 16.0, pytest.approx(0.4), 20),
        ("itl_p99", 16.0, pytest.approx(0.1), 20),
    ]
    assert noise.earlier(Canary(rates=[8.0]), told) == []
    assert noise.earlier(CANARY, None) == []
