"""The scenarios that ship, each run on the simulator, only shorter. And what workloads do to the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from run_in_memory import ramp_in_memory, scenario_of

from loadramp.record.table import Run
from loadramp.runner import scenarios
from loadramp.scenario.scenario import Scenario
from loadramp.simulator.profiles import PROFILES

ROOT = Path(__file__).parents[2]
SHORT = (
    "ramp.warmup_s=2",
    "ramp.measure_s=8",
    "ramp.settle_s=1",
    "ramp.settle_requests=0",
    "ramp.tail_s=1",
)
OPEN, USERS = ("ramp.max_rps=4",), ("ramp.users=[4]",)


def shipped(name: str, *overrides: str) -> Scenario:
    return scenarios.read_scenario(ROOT / "scenarios" / f"{name}.toml", [*SHORT, *overrides])


def labels(run: Run, kind: str) -> set[str]:
    return {name for row in run.rows for name in (row.classes or {}).get(kind, {})}


@pytest.mark.parametrize(
    ("name", "profile", "overrides"),
    [
        ("demo", "small", OPEN),
        ("chat", "small", OPEN),
        ("rag-long-prompt", "h100-8b", OPEN),
        ("shared-prefix-agent", "h100-8b", OPEN),
        ("code", "h100-8b", OPEN),
        ("batch-summarise", "h100-8b", USERS),
        ("burst", "small", OPEN),
        ("multi-turn", "small", OPEN),
        ("trace-replay", "small", OPEN),
        ("lora-mix", "lora", OPEN),
        ("users", "small", USERS),
        ("soak", "small", ("ramp.rates=[4]",)),
    ],
)
def test_every_scenario_that_ships_runs_on_the_simulator(
    name: str, profile: str, overrides: tuple[str, ...], tmp_path: Path
) -> None:
    run = ramp_in_memory(shipped(name, *overrides), tmp_path, profile)
    assert run.info.state == "complete"
    assert len(run.rows) >= 1
    assert len(run.table) > 10
    assert set(run.table.status) == {"ok"}
    assert not any(row.void for row in run.rows)
    counted, asked = run.table.prompt_tokens, run.table.asked_input_tokens
    known = ~np.isnan(asked)
    assert counted[known].sum() == pytest.approx(asked[known].sum(), rel=0.01)
    told, wanted = run.table.output_tokens.sum(), np.nansum(run.table.asked_output_tokens)
    if name == "batch-summarise":  # answers in a form of their own end when the form is complete
        assert 0.3 * wanted < told < wanted
    else:
        assert told == pytest.approx(wanted, rel=1e-6)


def test_all_scenarios_that_ship_for_run_are_run_here() -> None:
    marks = test_every_scenario_that_ships_runs_on_the_simulator.pytestmark  # type: ignore[attr-defined]  # pytest's
    paths = list((ROOT / "scenarios").glob("*.toml"))
    others = {path.stem for path in paths if f"loadramp {path.stem}" in path.read_text()}  # with a command of their own
    assert {case[0] for case in marks[0].args[1]} == {path.stem for path in paths} - (others - {"demo"})


def test_the_replayed_trace_keeps_its_bursts_and_prefixes(tmp_path: Path) -> None:
    run = ramp_in_memory(shipped("trace-replay", "ramp.max_rps=2", "ramp.measure_s=60"), tmp_path)
    first, second = (run.table.select(run.table.step == step.index) for step in run.steps if step.measured)
    gaps_s = np.diff(np.sort(first.due_s))
    assert np.diff(np.sort(second.due_s))[: len(gaps_s) // 2] == pytest.approx(gaps_s[: len(gaps_s) // 2] / 2, abs=2e-6)
    assert gaps_s.std() / gaps_s.mean() > 1.2
    assert float(np.nansum(first.cached_tokens) / np.nansum(first.prompt_tokens)) > 0.4
    assert run.rows[1].rate_rps == pytest.approx(2 * run.rows[0].rate_rps)


def test_adapters_get_rows_of_their_own_and_their_loading_stops_everybody(tmp_path: Path) -> None:
    text = """
    seed = 2
    [prompts]
    kind = "fixed"
    input_tokens = 100
    output_tokens = 30
    models = { a = 1, b = 1, c = 1 }
    [ramp]
    kind = "ladder"
    rates = [4]
    warmup_s = 2
    measure_s = 30
    settle_s = 0
    settle_requests = 0
    tail_s = 1
    """
    profile = PROFILES["lora"]
    few = ramp_in_memory(scenario_of(text), tmp_path / "few", profile)
    enough = ramp_in_memory(scenario_of(text), tmp_path / "enough", replace(profile, max_adapters=3))
    assert labels(few, "model") == {"a", "b", "c"}
    for name in "abc":
        slow, quick = (run.rows[0].classes["model"][name].latency["ttft_p50_s"] for run in (few, enough))
        assert slow > quick + 0.2
    assert few.rows[0].of("itl").p99.value > 10 * enough.rows[0].of("itl").p99.value


CEILING = """
seed = 11
[slo]
ttft_s = 1.0
quantile = 0.95
[prompts]
kind = "shared_prefix"
groups = 4
reuse_ratio = {reuse}
input_tokens = 1500
input_cv = 0
output_tokens = 30
output_cv = 0
{arrivals}
[ramp]
kind = "{ramp}"
{more}
warmup_s = 10
measure_s = 40
settle_s = 5
settle_requests = 0
tail_s = 2
"""


@pytest.mark.slow
def test_reuse_of_prefixes_raises_the_ceiling_as_much_as_prefill_weighed(tmp_path: Path) -> None:
    """Prompts of 1500 tokens at 40 us each: 60 ms of prefill, of which 80 % go when four fifths are in the cache."""
    found = {}
    for reuse in (0.0, 0.8):
        text = CEILING.format(reuse=reuse, arrivals="", ramp="ceiling", more="start_rps = 4\nsoak_s = 0")
        run = ramp_in_memory(scenario_of(text), tmp_path / str(reuse))
        found[reuse] = run.estimates["ceiling"].rate_rps or 0.0
        hits = [row.prefix_hit_ratio for row in run.rows]
        assert hits[-1] == pytest.approx(reuse, abs=0.03)
    assert found[0.8] > 1.8 * found[0.0] > 0.0


@pytest.mark.slow
def test_bursts_lower_what_meets_an_slo_but_not_the_ceiling(tmp_path: Path) -> None:
    ceilings, capacities = [], []
    for cv in (1.0, 3.0):
        arrivals = f'[arrivals]\nkind = "gamma"\ncv = {cv}'
        more = "rates = [4, 6, 8, 10, 12, 14, 20, 28]"
        text = CEILING.format(reuse=0.0, arrivals=arrivals, ramp="ladder", more=more).replace(
            "measure_s = 40", "measure_s = 120"
        )
        run = ramp_in_memory(scenario_of(text), tmp_path / str(cv))
        ceilings.append(run.estimates["ceiling"].rate_rps or 0.0)
        capacities.append(run.estimates["slo_capacity"].rate_rps or 0.0)
    assert ceilings[1] == pytest.approx(ceilings[0], rel=0.1)
    assert capacities[1] < 0.8 * capacities[0]
