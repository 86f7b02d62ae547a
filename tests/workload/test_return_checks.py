"""Functions named in a scenario that fail or return nonsense: one clear error that names file, table and key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadramp.cli import main
from loadramp.client import input_files
from loadramp.record.types import Estimate, Prompt, Step, Stop
from loadramp.registry import ScenarioError
from loadramp.runner.gate_check import check_rules
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import Scenario
from loadramp.workload.schedule import plan_step, samples_of

TABLES = ("prompts", "arrivals", "ramp", "knee")


def nonsense(*args: Any) -> int:
    return len(args)


def breaks(*args: Any) -> None:
    raise KeyError(f"{len(args)} arguments")


def two_levels(rows: list[Any], *, low_rps: float = 2.0) -> Step | Stop:
    return Step(len(rows), rate_rps=low_rps * (1 + len(rows))) if len(rows) < 2 else Stop("both were offered")


def stands_still(rows: list[Any]) -> Step:
    return Step(len(rows), rate_rps=0.0)


def backwards(rate_rps: float, duration_s: float, rng: np.random.Generator) -> Any:
    return np.array([2.0, 1.0])


def regular(rate_rps: float, duration_s: float, rng: np.random.Generator) -> Any:
    return np.arange(0.0, duration_s, 1.0 / rate_rps)


def one_prompt(draw: Any) -> list[Prompt]:
    return [Prompt(input_tokens=5, output_tokens=5, text="again")]


def same_prompt(draw: Any) -> list[Prompt]:
    return one_prompt(draw) * draw.n


def no_idea(rows: list[Any]) -> Estimate:
    return Estimate("inconclusive", reason="no idea")


def used(table: str, kind: str) -> Scenario:
    """A scenario with that kind, each of its functions called once."""
    scenario = load(f'[{table}]\nkind = "{kind}"\n', "own.toml")
    scenario = input_files.ready(scenario)
    check_rules(scenario)
    samples_of(scenario)
    scenario.ramp([])
    plan_step(scenario, Step(0, rate_rps=5.0, warmup_s=0.0, measure_s=10.0))
    return scenario


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("os:system", "failed: TypeError: "),
        ("sys:exit", "failed: "),
        ("test_return_checks:breaks", r"failed: KeyError: '\d arguments'"),
        ("test_return_checks:nonsense", r"returned \d; expected a"),
        ("test_return_checks:absent", "cannot reach 'test_return_checks:absent': AttributeError"),
        ("no.such.module:f", "cannot reach 'no.such.module:f': ModuleNotFoundError"),
        ("test_return_checks:", "cannot reach"),
        (":f", "cannot reach"),
        ("test_return_checks:TABLES", "is not a function"),
        ("builtins:dict", "."),
    ],
)
def test_a_function_that_is_none_of_ours_and_does_not_fit_is_one_error_with_its_place(
    table: str, kind: str, said: str
) -> None:
    with pytest.raises(ScenarioError, match=rf"^own\.toml: \[{table}\] kind: .*{said}"):
        used(table, kind)


@pytest.mark.parametrize(
    ("table", "name", "said"),
    [
        ("ramp", "stands_still", "expected a Step with a load above 0"),
        ("arrivals", "backwards", r"expected a numpy array of ascending seconds in \[0, 10\)"),
        ("prompts", "one_prompt", r"expected a list of \d+ Prompts"),
    ],
)
def test_what_looks_right_and_cannot_be_used_is_said(table: str, name: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=rf"\[{table}\] kind: 'test_return_checks:{name}' returned .*; {said}$"):
        used(table, f"test_return_checks:{name}")


@pytest.mark.parametrize(
    ("table", "name"),
    [("ramp", "two_levels"), ("arrivals", "regular"), ("prompts", "same_prompt"), ("knee", "no_idea")],
)
def test_a_function_of_one_s_own_that_fits_is_used(table: str, name: str) -> None:
    assert getattr(used(table, f"test_return_checks:{name}"), table).kind == f"test_return_checks:{name}"


def test_a_source_of_a_mixture_is_named_by_its_number() -> None:
    text = '[prompts]\nkind = "mix"\nsources = [{kind = "fixed"}, {kind = "os:getcwd"}]\n'
    scenario = load(text, "own.toml")
    with pytest.raises(ScenarioError, match=r"^own.toml: \[prompts\] sources 2 kind: 'os:getcwd' failed: TypeError"):
        samples_of(scenario)


@pytest.mark.parametrize("table", TABLES)
def test_plan_says_it_in_one_line_and_exits_with_2(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f'[{table}]\nkind = "os:system"\n')
    with pytest.raises(SystemExit) as left:
        main(["plan", str(path)])
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"loadramp: {path}: [{table}] kind: 'os:system' failed: TypeError: ")
