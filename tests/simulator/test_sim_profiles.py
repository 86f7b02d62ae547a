"""The named engines show the shapes that real ones showed: which limit gives way, and what that looks like."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.engine_population import Lengths, capacity_rps, random_profile
from benchmarks.offline_engine import simulate
from loadramp.record.table import Table
from loadramp.record.types import Sample
from loadramp.registry import ScenarioError
from loadramp.simulator.practise import with_flags
from loadramp.simulator.profiles import PROFILES, EngineProfile


def ramp_step(profile: EngineProfile, rate_rps: float, duration_s: float = 40.0) -> tuple[Table, list[Sample]]:
    """Poisson arrivals of 512 in, 128 out, both 50 % to 150 %."""
    rng = np.random.default_rng(1)
    n = int(rate_rps * duration_s)
    due_s = np.sort(rng.uniform(0.0, duration_s, n))
    return simulate(profile, due_s, rng.integers(256, 769, n), rng.integers(64, 193, n), rng)


def p99(values: np.ndarray) -> float:
    return float(np.quantile(values, 0.99))


def test_a_sequence_limit_keeps_p99_itl_flat_while_ttft_explodes() -> None:
    quiet, _ = ramp_step(PROFILES["h200-8b-seqs64"], 12)
    flooded, samples = ramp_step(PROFILES["h200-8b-seqs64"], 28)
    assert p99(flooded.gaps().gap_s) < 1.2 * p99(quiet.gaps().gap_s)
    assert p99(flooded.ttft_s) > 50 * p99(quiet.ttft_s)
    assert max(s.values["running"] for s in samples) == 64
    assert samples[-1].values["preemptions"] == 0


def test_a_kv_limit_preempts_while_p99_itl_stays_flat_and_single_gaps_grow() -> None:
    quiet, _ = ramp_step(PROFILES["kv-limited"], 12)
    flooded, samples = ramp_step(PROFILES["kv-limited"], 32)
    longest = [np.zeros(len(t)) for t in (quiet, flooded)]
    for out, table in zip(longest, (quiet, flooded), strict=True):
        gaps = table.gaps()
        np.maximum.at(out, gaps.request, gaps.gap_s)
    assert samples[-1].values["preemptions"] > 50
    assert max(s.values["kv_used_ratio"] for s in samples) > 0.99
    assert p99(flooded.gaps().gap_s) < 2 * p99(quiet.gaps().gap_s)
    assert p99(longest[1]) > 2 * p99(longest[0])


def test_a_large_batch_bends_p99_itl_super_linearly_well_before_the_ceiling_of_52() -> None:
    p99_s = {rate: p99(ramp_step(PROFILES["h200-8b"], rate)[0].gaps().gap_s) for rate in (8, 16, 32, 48, 96)}
    assert p99_s[16] < 1.5 * p99_s[8]
    assert np.log(p99_s[48] / p99_s[32]) / np.log(48 / 32) > 1
    assert p99_s[96] > 5 * p99_s[16]


def test_whole_prompts_going_first_make_long_gaps_at_any_load() -> None:
    whole, _ = ramp_step(PROFILES["no-chunked-prefill"], 8)
    chunked, _ = ramp_step(PROFILES["h100-8b"], 8)
    assert p99(whole.gaps().gap_s) > 1.3 * p99(chunked.gaps().gap_s)


@pytest.mark.parametrize(
    ("name", "lengths", "low", "high"),
    [
        ("h200-8b", Lengths(512, 0, 128, 0), 48, 56),
        ("h200-8b-seqs64", Lengths(512, 0, 128, 0), 15, 18.5),
        ("kv-limited", Lengths(512, 0, 128, 0), 19, 24),
        ("small", Lengths(256, 0, 128, 0), 10, 15),
        ("cpu-tiny", Lengths(64, 0, 200, 0), 2, 5),
    ],
)
def test_capacity_is_what_the_real_engine_had(name: str, lengths: Lengths, low: float, high: float) -> None:
    assert low < capacity_rps(PROFILES[name], lengths, np.random.default_rng(0), 2000) < high


def test_capacity_is_the_rate_at_which_an_overloaded_engine_completes() -> None:
    profile, lengths = PROFILES["h200-8b-seqs64"], Lengths(512, 0.5, 128, 0.5)
    c = capacity_rps(profile, lengths, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    due_s = np.sort(rng.uniform(0, 300, int(300 * 1.5 * c)))
    table, _ = simulate(profile, due_s, *lengths.draw(rng, len(due_s)), rng, until_s=300)
    done_rps = np.sum(table.ok & (table.done_s > 60)) / 240
    assert done_rps == pytest.approx(c, rel=0.04)


def test_capacity_of_one_seat_is_one_over_its_service_time() -> None:
    profile = EngineProfile(t0_s=0.01, decode_s=0.0, context_s=0.0, prefill_s=0.0, noise_ratio=0.0, max_num_seqs=1)
    c = capacity_rps(profile, Lengths(10, 0, 20, 0), np.random.default_rng(0), 100)
    assert c == pytest.approx(1 / (20 * 0.01), rel=0.01)


def test_admission_limits_do_not_change_the_capacity() -> None:
    lengths = Lengths(256, 0.3, 128, 0.3)
    limited = replace(PROFILES["small"], max_queue=4, max_in_flight=60)
    assert capacity_rps(limited, lengths, np.random.default_rng(2), 1000) == capacity_rps(
        PROFILES["small"], lengths, np.random.default_rng(2), 1000
    )


def test_the_population_holds_engines_limited_by_seats_and_by_memory() -> None:
    drawn = [random_profile(np.random.default_rng(seed)) for seed in range(40)]
    assert {p.max_num_seqs for p, _ in drawn} >= {32, 128, 1024}
    assert all(2500 <= p.kv_blocks <= 40_000 and 2048 <= p.token_budget <= 16_384 for p, _ in drawn)
    assert all(64 <= n.prompt_median <= 2000 and 60 <= n.output_median <= 500 for _, n in drawn)
    assert random_profile(np.random.default_rng(7)) == random_profile(np.random.default_rng(7))


def test_lengths_have_the_median_they_are_asked_for_and_keep_within_their_bounds() -> None:
    prompt, output = Lengths(300, 0.8, 100, 0.0, prompt_max=900).draw(np.random.default_rng(0), 20_000)
    assert np.median(prompt) == pytest.approx(300, rel=0.03)
    assert (prompt.min(), prompt.max()) >= (1, 900)
    assert set(output.tolist()) == {100}


def test_flags_in_the_spelling_of_vllm_change_a_profile() -> None:
    small = PROFILES["small"]
    changed = with_flags(small, {"max_num_seqs": 64, "max_num_batched_tokens": 4096, "enable_chunked_prefill": False})
    assert (changed.max_num_seqs, changed.token_budget, changed.chunked_prefill) == (64, 4096, False)
    assert with_flags(small, {"kv_cache_dtype": "fp8"}).kv_blocks == 8192
    assert with_flags(small, {"kv_cache_dtype": "fp8", "num_gpu_blocks_override": 300}).kv_blocks == 300
    assert with_flags(small, {"kv_cache_dtype": "auto", "max_num_seqs": None}) == small


def test_flags_that_no_engine_starts_with_are_an_error_of_the_user() -> None:
    with pytest.raises(ScenarioError, match=r"--max-num-seqs 4096: small: token_budget 2048 is below max_num_seqs"):
        with_flags(PROFILES["small"], {"max_num_seqs": 4096})
