"""``plan`` names the thresholds that a run cannot pass as its scenario is, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadramp.runner.preview import of_scenario

COMMON = '[prompts]\nkind = "fixed"\ninput_tokens = 50\noutput_tokens = 10\n'
LADDER = '[ramp]\nkind = "ladder"\nrates = [1, 8]\nwarmup_s = 10\nmeasure_s = 60\nsettle_s = 0\nsettle_requests = 0\n'
CEILING = '[ramp]\nkind = "ceiling"\nmax_rps = 8\nwarmup_s = 10\nmeasure_s = 60\nsettle_s = 0\nsettle_requests = 0\n'


def told(ramp: str, rule: str, tmp_path: Path, more: str = "") -> str:
    """What ``plan`` says of the rule; the notes of ``--json`` and the text say the same."""
    path = tmp_path / "own.toml"
    path.write_text(f'{COMMON}{ramp}{more}[gates]\nrules = ["{rule}"]\n')
    document, words = of_scenario(path)
    found = [note for note in document["notes"] if " cannot pass: " in note]
    assert all(note in words.splitlines() for note in found)
    return found[0] if found else ""


@pytest.mark.parametrize(("rule", "why"), [
    ("p99(ttft_s) < 1 @ rate = 4", "no step is offered there; the steps are 1, 8 req/s"),
    ("p99(ttft_s) < 1 @ users = 4", "no step is offered there"),
    ("p99(ttft_s) < 1 @ rate <= 8", "a p99 takes 299 requests, and the step at 1 req/s has about"),
    ("p95(e2e_s) < 1 @ rate = 1", "a p95 takes 59 requests, and the step at 1 req/s has about"),
    ("p99(itl_s) < 1 @ soak", "there is no soak"),
    ("error_ratio < 0.001", "it takes 2,995 requests without a failure, and all steps have about"),
    ("error_ratio < 0.01 @ rate <= 8", "it takes 299 requests without a failure, and the step at 1 req/s has about"),
])  # fmt: skip
def test_a_rule_that_cannot_pass_is_named_with_the_reason(rule: str, why: str, tmp_path: Path) -> None:
    assert told(LADDER, rule, tmp_path).startswith(f"{rule} cannot pass: {why}")


@pytest.mark.parametrize("rule", [
    "p99(ttft_s) < 1 @ rate = 8", "p99(itl_s) < 1 @ rate <= 8", "p50(ttft_s) < 1 @ rate = 1", "p99(ttft_s) < 1",
    "mean(e2e_s) < 1 @ step 0", "error_ratio < 0.01", "ceiling_rps >= 4", "preemptions <= 0 @ rate <= 8",
    "good_ratio > 0.9",
])  # fmt: skip
def test_a_rule_that_can_pass_is_not_named(rule: str, tmp_path: Path) -> None:
    assert told(LADDER, rule, tmp_path) == ""


def test_the_reference_rate_of_a_nightly_is_offered(tmp_path: Path) -> None:
    rule = "p50(ttft_s) < 1 @ rate = 4"
    assert told(LADDER, rule, tmp_path, "[nightly]\nreference_rps = 4\n") == ""
    assert "no step is offered there" in told(LADDER, rule, tmp_path, "[nightly]\nreference_rps = 5\n")


@pytest.mark.parametrize(("rule", "ramp", "why"), [
    ("p99(itl_s) < 0.5 @ soak", CEILING, ""),
    ("p50(ttft_s) < 5 @ soak", CEILING, ""),
    ("error_ratio < 0.01 @ soak", CEILING, ""),
    ("p99(ttft_s) < 5 @ soak", CEILING, ""),  # far below its limit it needs no interval
    ("p99(ttft_s) > 5 @ soak", CEILING, "a soak of 300 s at 0.85 of the ceiling gives no interval of it"),
    ("p99(all_ttft_s) < 5 @ soak", CEILING, "a soak of 300 s at 0.85 of the ceiling gives no interval of it"),
    ("p99(ttft_s) < 5 @ soak", f"{CEILING}soak_ratio = 0.95\n", "a soak of 300 s at 0.95 of the ceiling"),
    ("mean(itl_s) < 5 @ soak", CEILING, "a soak of 300 s at 0.85 of the ceiling gives no interval of it"),
    ("p99(itl_s) > 5 @ soak", f"{CEILING}soak_s = 120\n", "a soak of 120 s at 0.85 of the ceiling"),
    ("p99(itl_s) < 5 @ soak", f"{CEILING}soak_ratio = 0.95\n", ""),
    ("p99(ttft_s) < 5 @ soak", f"{CEILING}soak_ratio = 0.5\n", ""),
    ("p99(itl_s) < 5 @ soak", f"{CEILING}soak_s = 0\n", "there is no soak"),
])  # fmt: skip
def test_a_soak_says_which_quantiles_it_carries(rule: str, ramp: str, why: str, tmp_path: Path) -> None:
    found = told(ramp, rule, tmp_path)
    assert found.startswith(f"{rule} cannot pass: {why}") if why else found == ""


def test_a_latency_of_all_steps_of_a_ramp_into_overload_cannot_pass(tmp_path: Path) -> None:
    assert "no upper limit; name the rates" in told(CEILING, "p50(ttft_s) < 1", tmp_path)
    assert told(CEILING, "p50(ttft_s) > 0.001", tmp_path) == ""
    assert told(CEILING, "p50(ttft_s) < 1 @ rate <= 8", tmp_path) == ""
