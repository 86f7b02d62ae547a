"""The core stands without its features: each folder deleted in a copy, with its lines, and the core used."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from loadramp import registry

ROOT = Path(__file__).parent.parent
FEATURES = {
    "comparison": ("canary", "compare", "serve"),
    "nightly": ("nightly", "trend", "accept"),
    "campaign": ("campaign",),
    "advise": ("advise", "alerts"),
    "tune": ("tune",),
    "importers": ("import",),
}
"""Feature to its commands."""
SHORT = ("--set", "ramp.start_rps=1", "--set", "ramp.max_rps=2", "--set", "ramp.measure_s=10")
"""A plan of few prompts."""


def without(features: tuple[str, ...], tmp_path: Path) -> dict[str, str]:
    """A copy of the package (and its bytecode) without these folders and their lines; the environment that uses it."""
    shutil.copytree(ROOT / "loadramp", tmp_path / "loadramp")
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    listing = tmp_path / "loadramp" / "features.py"
    lines = listing.read_text().splitlines()
    for feature in features:
        shutil.rmtree(tmp_path / "loadramp" / feature)
        lines = [line for line in lines if not line.startswith(f'FEATURES["{feature}"]')]
        lines = [line for line in lines if not line.startswith(f"from loadramp.{feature} import")]
    gone = {table for feature in features for table in registry.FEATURES[feature].tables}
    for scenario in (tmp_path / "scenarios").glob("*.toml"):  # one that asks for a feature goes with it
        if gone & set(tomllib.loads(scenario.read_text())):
            scenario.unlink()
    listing.write_text("\n".join(lines) + "\n")
    return os.environ | {"PYTHONPATH": str(tmp_path)}


def run(env: dict[str, str], *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "loadramp", *arguments], env=env, cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("feature", FEATURES)
def test_without_a_feature_its_commands_are_gone_and_the_others_stay(feature: str, tmp_path: Path) -> None:
    env = without((feature,), tmp_path)
    shown = {line.split()[0] for line in run(env, "--help", cwd=tmp_path).splitlines() if line.startswith("  ")}
    assert {name for names in FEATURES.values() for name in names} - shown == set(FEATURES[feature])
    assert "steps" in run(env, "plan", "chat", *SHORT, cwd=tmp_path)


def test_the_core_alone_plans_and_judges(tmp_path: Path) -> None:
    env = without(tuple(FEATURES), tmp_path)
    assert "steps" in run(env, "plan", "chat", *SHORT, cwd=tmp_path)
    shutil.copytree(ROOT / "reports" / "example", tmp_path / "example")
    assert "Sustains 23.8 req/s" in run(env, "report", "example", cwd=tmp_path)


def run_in_copy(env: dict[str, str], tmp_path: Path, *paths: str) -> None:
    """These tests pass with the package of the copy."""
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__", *FEATURES))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    options = ("-q", "-x", "--assert=plain", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/{path}" for path in paths)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.long
def test_quick_tests_of_the_core_pass_without_any_feature(tmp_path: Path) -> None:
    quick = ("record", "analysis/test_ceiling.py", "report/test_report_downsample.py")
    run_in_copy(without(tuple(FEATURES), tmp_path), tmp_path, *quick)


@pytest.mark.slow
@pytest.mark.parametrize("feature", FEATURES)
def test_the_tests_of_the_core_pass_without_a_feature(feature: str, tmp_path: Path) -> None:
    run_in_copy(without((feature,), tmp_path), tmp_path, "scenario", "record", "workload", "metrics")
