"""Arrivals, prompts and plans: rates, order, dispersion, sharding, and the same bytes in every process."""

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadramp.record.types import Calibration, Step
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario
from loadramp.workload.arrivals import ARRIVALS, constant, gamma, poisson
from loadramp.workload.prompts.vocabulary import render
from loadramp.workload.schedule import plan_step

DRAWN = sorted(set(ARRIVALS) - {"replay"})
"""Arrival processes that need no trace."""
STEP = Step(2, rate_rps=40.0, begin_s=100.0, warmup_s=5.0, measure_s=25.0)


def scenario(text: str = "") -> Scenario:
    return load(f'seed = 42\n[knee]\nkind = "test_schedule:_no_knee"\n{text}')


def _no_knee(rows: object) -> None:
    return None


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def dispersion(due_s: np.ndarray, seconds: int) -> float:
    """Variance over mean of counts in one-second bins: 1 for Poisson, 0 for even spacing."""
    counts = np.bincount(due_s.astype(int), minlength=seconds)[:seconds]
    return float(counts.var(ddof=1) / counts.mean())


@given(
    kind=st.sampled_from(DRAWN),
    rate_rps=st.floats(0.2, 300),
    duration_s=st.floats(0.5, 60),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=80)
def test_due_times_ascend_and_stay_within_the_step(kind: str, rate_rps: float, duration_s: float, seed: int) -> None:
    due_s = ARRIVALS[kind](rate_rps, duration_s, rng(seed))
    assert due_s.dtype == np.float64
    assert np.all(np.diff(due_s) >= 0)
    assert np.all((due_s >= 0) & (due_s < duration_s))


@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [("constant", 0.001), ("poisson", 0.02), ("gamma", 0.04), ("diurnal", 0.2), ("spike", 0.03)],
)
def test_the_rate_is_the_rate_that_was_asked(kind: str, tolerance: float) -> None:
    assert len(ARRIVALS[kind](50.0, 400.0, rng())) == pytest.approx(20_000, rel=tolerance)


def test_one_second_counts_disperse_as_the_process_says() -> None:
    seconds = 2000
    assert dispersion(constant(20.0, seconds, rng()), seconds) == pytest.approx(0.0, abs=0.001)
    assert dispersion(poisson(20.0, seconds, rng()), seconds) == pytest.approx(1.0, abs=0.12)
    assert dispersion(gamma(20.0, seconds, rng(), cv=1.0), seconds) == pytest.approx(1.0, abs=0.12)
    assert dispersion(gamma(200.0, seconds, rng(), cv=3.0), seconds) == pytest.approx(9.0, rel=0.15)


def test_gamma_gaps_have_the_coefficient_of_variation_that_was_asked() -> None:
    gaps_s = np.diff(gamma(100.0, 1000.0, rng(), cv=2.5))
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(2.5, rel=0.03)


def test_a_longer_step_begins_with_the_same_arrivals() -> None:
    for process in (ARRIVALS[kind] for kind in DRAWN):
        short, long = process(30.0, 20.0, rng(7)), process(30.0, 60.0, rng(7))
        assert np.array_equal(short, long[: len(short)])


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_shares_of_workers_are_exactly_the_plan(workers: int) -> None:
    whole = list(plan_step(scenario(), STEP, first_seq=500, salt=9))
    shares = [list(plan_step(scenario(), STEP, first_seq=500, salt=9)[i::workers]) for i in range(workers)]
    assert sorted((a for share in shares for a in share), key=lambda a: a.seq) == whole
    assert [a.seq for a in whole] == list(range(500, 500 + len(whole)))
    assert whole[0].due_s >= 100.0
    assert whole[-1].due_s < 130.0


def test_held_over_arrivals_continue_the_same_plan() -> None:
    plain, held = plan_step(scenario(), STEP), plan_step(scenario(), STEP, hold_s=10.0)
    assert list(held[: len(plain)]) == list(plain)
    assert 130.0 <= held.due_s[len(plain)] < held.due_s[-1] < 140.0


def test_arrivals_lengths_and_texts_have_seeds_of_their_own() -> None:
    a = list(plan_step(scenario(), STEP, salt=1))
    other_salt = list(plan_step(scenario(), STEP, salt=2))
    other_arrivals = list(plan_step(scenario('[arrivals]\nkind = "constant"'), STEP, salt=1))
    assert [x.due_s for x in a] == [x.due_s for x in other_salt]
    assert [x.prompt.input_tokens for x in a] == [x.prompt.input_tokens for x in other_salt]
    assert not {x.prompt.segments for x in a} & {x.prompt.segments for x in other_salt}
    n = min(len(a), len(other_arrivals))
    assert [x.prompt for x in a[:n]] == [x.prompt for x in other_arrivals[:n]]


def test_ds06_prompts_are_unique_within_a_step_and_between_steps() -> None:
    first = {x.prompt.segments for x in plan_step(scenario(), STEP)}
    second = {x.prompt.segments for x in plan_step(scenario(), replace(STEP, index=3))}
    assert len(first) == len(list(plan_step(scenario(), STEP)))
    assert not first & second


@pytest.mark.long
def test_dx03_every_process_plans_the_same_bytes() -> None:
    code = (
        "import hashlib, test_schedule as t\n"
        "plan = list(t.plan_step(t.scenario(), t.STEP, salt=5))\n"
        "text = ''.join(t.render(a.prompt.segments, t.Calibration(1.3, 4)) for a in plan)\n"
        "print(hashlib.sha256((repr(plan) + text).encode()).hexdigest())\n"
    )
    digests = set()
    for hash_seed in ("1", "2"):
        env = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join(map(str, Path(__file__).parents[:2])),
        }
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        digests.add(out.stdout.strip())
    plan = list(plan_step(scenario(), STEP, salt=5))
    text = "".join(render(a.prompt.segments, Calibration(1.3, 4)) for a in plan)
    assert digests == {hashlib.sha256((repr(plan) + text).encode()).hexdigest()}


def test_text_is_frozen_for_all_time() -> None:
    """A change of this text would change every corpus; it must be a decision, not an accident."""
    assert render(((7, 6),), Calibration()) == "see bird paper kind two music"


def test_text_has_the_calibrated_number_of_words() -> None:
    assert len(render(((1, 100),), Calibration()).split()) == 100
    assert len(render(((1, 100),), Calibration(tokens_per_word=1.25, overhead_tokens=10)).split()) == 72


def test_ds03_a_prompt_of_one_token_is_one_word_whatever_the_template_adds() -> None:
    assert len(render(((1, 1),), Calibration()).split()) == 1
    assert len(render(((1, 1),), Calibration(overhead_tokens=30)).split()) == 1
    assert len(render(((1, 1),), Calibration(tokens_per_word=3.0)).split()) == 1


@given(st.integers(0, 2**63 - 1), st.integers(1, 400), st.integers(1, 400))
@settings(max_examples=50)
def test_equal_leading_segments_are_a_shared_prefix(seed: int, shared: int, own: int) -> None:
    one = render(((seed, shared), (1, own)), Calibration())
    two = render(((seed, shared), (2, own)), Calibration())
    assert one.split()[:shared] == two.split()[:shared]
    assert len(one.split()) == shared + own


def test_lengths_follow_their_distribution() -> None:
    text = '[prompts]\nkind = "lognormal"\ninput_tokens = 200\noutput_tokens = 80\ninput_cv = 0.5\noutput_cv = 0.9'
    plan = list(plan_step(scenario(text), replace(STEP, rate_rps=400.0)))
    inputs = np.array([a.prompt.input_tokens for a in plan])
    outputs = np.array([a.prompt.output_tokens for a in plan])
    assert np.median(inputs) == pytest.approx(200, rel=0.03)
    assert np.median(outputs) == pytest.approx(80, rel=0.03)
    assert outputs.std() / outputs.mean() == pytest.approx(0.9, rel=0.08)
    fixed = list(plan_step(scenario('[prompts]\nkind = "fixed"\ninput_tokens = 1\noutput_tokens = 3'), STEP))
    assert {(a.prompt.input_tokens, a.prompt.output_tokens) for a in fixed} == {(1, 3)}
    spread = list(plan_step(scenario('[prompts]\nkind = "uniform"\ninput_tokens = 100\nspread = 0.5'), STEP))
    assert {min(50, p) for p in (a.prompt.input_tokens for a in spread)} == {50}
    assert max(a.prompt.input_tokens for a in spread) <= 150


def test_a_step_without_a_rate_plans_nothing() -> None:
    assert len(plan_step(scenario(), replace(STEP, rate_rps=None, users=4))) == 0
    assert len(plan_step(scenario(), replace(STEP, rate_rps=0.0))) == 0


def test_a_step_of_more_requests_than_a_process_can_hold_is_refused() -> None:
    with pytest.raises(ScenarioError, match="more than 100,000,000 requests"):
        plan_step(scenario(), Step(1, rate_rps=1e6, warmup_s=0.0, measure_s=101.0))
