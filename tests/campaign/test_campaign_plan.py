"""The [campaign] table, and the scenarios that its phases are."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from loadramp.campaign.table import PHASES, Campaign, campaign_of, in_order, longest_s, overrides_of, strike_after_s
from loadramp.record.types import Step
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario

BASE = 'name = "it\\"s"\n[ramp]\nkind = "ceiling"\nstart_rps = 2\nsettle_s = 3\nsettle_requests = 7\ntail_s = 1\n'


def phase(name: str, text: str = BASE, target_rps: float | None = 8.0) -> Scenario:
    base = load(text, "t.toml")
    return load(text, "t.toml", overrides_of(name, campaign_of(base), base.pace, base.name, target_rps))  # type: ignore[arg-type]  # a phase


def test_the_defaults_are_an_hour_twice_the_load_and_all_five_phases() -> None:
    campaign = campaign_of(load("", "t.toml"))
    assert in_order(campaign) == list(PHASES)
    assert (campaign.sustained.measure_s, campaign.sustained.error_ratio) == (3600, 0.001)
    assert (campaign.overload.factor, campaign.overload.check_factor, campaign.overload.recovery_s) == (2, 1.2, 30)
    assert (campaign.baseline.measure_s, campaign.overload.measure_s, campaign.chaos.measure_s) == (300, 900, 600)
    assert campaign.chaos.recovery_s == 60


def test_a_phase_is_the_scenario_with_another_ramp_and_the_same_way_to_settle() -> None:
    baseline = phase("baseline")
    assert baseline.name == 'it"s-baseline'
    assert baseline.ramp([]) == Step(0, users=1)
    assert (baseline.pace.warmup_s, baseline.pace.measure_s) == (10, 300)
    assert (baseline.pace.settle_s, baseline.pace.settle_requests, baseline.pace.tail_s) == (3, 7, 1)
    sustained = phase("sustained")
    assert sustained.ramp([]) == Step(0, rate_rps=8.0)
    assert (sustained.pace.measure_s, sustained.pace.warmup_s, sustained.pace.max_error_ratio) == (3600, 0, 1.0)
    assert (sustained.pace.settle_s, sustained.pace.settle_requests) == (3, 7)
    assert phase("ramp").ramp.kind == "ceiling"
    assert phase("ramp").name == 'it"s-ramp'


def test_a_day_is_soaked_in_parts_of_an_hour_without_a_gap() -> None:
    day = phase("sustained", BASE + "[campaign.sustained]\nmeasure_s = 86400\nwarmup_s = 60\n")
    assert day.ramp.options["rates"] == [8.0] * 24
    assert (day.pace.measure_s, day.pace.warmup_s, day.pace.settle_s, day.pace.settle_requests) == (3600, 0, 60, 0)
    part = phase("sustained", BASE + "[campaign.sustained]\nmeasure_s = 5000\n")
    assert (len(part.ramp.options["rates"]), part.pace.measure_s) == (2, 2500)


def test_overload_goes_up_in_two_stages_and_back_and_waits_for_a_server_that_is_gone() -> None:
    overload = phase("overload")
    assert overload.ramp.options["rates"] == pytest.approx([8.0, 9.6, 16.0, 8.0])
    assert overload.ramp.options["lengths"] == [120, 120, 900, 120]
    assert overload.pace.give_up_s == 150
    assert phase("chaos").pace.give_up_s == 780


def test_at_low_rates_the_phases_last_until_what_is_usual_and_the_recovery_can_be_seen() -> None:
    """0.1 req/s: 30 requests take 300 s, and ten of them, the least that shows a recovery, 100 s."""
    overload = phase("overload", target_rps=0.1)
    assert overload.ramp.options["lengths"] == [300, 300, 900, 300]
    chaos = campaign_of(load(BASE, "t.toml")).chaos
    assert (strike_after_s(chaos, 8.0), strike_after_s(chaos, 0.1)) == (30, 300)
    assert (phase("chaos").pace.measure_s, phase("chaos", target_rps=0.1).pace.measure_s) == (600, 600)
    assert phase("chaos", target_rps=0.05).pace.measure_s == 600 + 60 + 200
    slow = campaign_of(load(BASE + "[campaign]\ntarget_rps = 0.05\n", "t.toml"))
    assert longest_s(slow) == 310 + 3600 + (4 * 10 + 3 * 600 + 900) + (10 + 860)


def test_thresholds_of_the_scenario_are_judged_in_the_ramp_only() -> None:
    text = BASE + '[gates]\nrules = ["ceiling_rps >= 5"]\n'
    assert phase("ramp", text).gates.rules == ["ceiling_rps >= 5"]
    assert phase("chaos", text).gates.rules == ()


def test_phases_come_in_the_order_that_makes_sense() -> None:
    assert in_order(Campaign(phases=("chaos", "ramp"))) == ["ramp", "chaos"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[campaign]\nphases = ["soak"]\n', r"\[campaign\] phases: Invalid enum value 'soak'"),
        ("[campaign]\nphases = []\n", "expected at least one of baseline, ramp"),
        ('[campaign]\nphases = ["chaos"]\n', "target_rps: needed where the ramp is left out"),
        ("[campaign]\nsustain = 1\n", "sustain: unknown key .did you mean 'sustained'"),
        ("[campaign]\nchaos = 1\n", r"\[campaign.chaos\]: expected a table; got 1"),
        ("[campaign.sustained]\nmeasure_s = 90000\n", r"\[campaign.sustained\] measure_s: .*<= 86400"),
        ("[campaign.overload]\ncheck_factor = 3\n", "check_factor: must be below factor = 2"),
        ("[campaign.overload]\nstage_s = 20\n", "the stage after must last 40 s"),
        ("[campaign.chaos]\nmeasure_s = 90\n", "must be at least 100 to see recovery_s"),
        ("[campaign.chaos]\nkill = true\n", r"\[campaign.chaos\] kill: unknown key"),
    ],
)
def test_what_cannot_be_asked_is_named(text: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        load(text, "t.toml")


def test_the_document_shows_every_key_with_its_default() -> None:
    page = (Path(__file__).parents[2] / "docs" / "campaign.md").read_text()
    text = page.partition("## The table\n```toml\n")[2].partition("```")[0]
    shown = tomllib.loads(text)["campaign"]
    examples = {"target_rps": 8, "model_config": "config.json"}
    defaults = flat(asdict(Campaign()))
    assert set(flat(shown)) == {key for key in defaults if key != "sustained.warmup_s"}
    for key, value in flat(shown).items():
        assert value == (examples[key] if key in examples else defaults[key]), key


def flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in table.items():
        out |= flat(value, f"{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in out.items()}


def test_the_shipped_scenario_is_a_campaign_with_the_defaults() -> None:
    path = Path(__file__).parents[2] / "scenarios" / "campaign.toml"
    assert campaign_of(load(path.read_text(), "campaign.toml")) == Campaign()
