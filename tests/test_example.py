"""The example in the repository is what the simulator makes today, and a run like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from example import DERIVED, EXAMPLE, RAW, make

from loadramp.runner.finish import judge

ROOT = Path(__file__).parent.parent


def test_the_example_is_made_anew_the_same(tmp_path: Path) -> None:
    made = make(tmp_path)
    for name in RAW:
        assert (made / name).read_bytes() == (EXAMPLE / name).read_bytes(), f"{name}: python tests/example.py"
    again, kept = (_leaves(json.loads((path / "verdict.json").read_text())) for path in (made, EXAMPLE))
    assert again.keys() == kept.keys()
    assert {at: value for at, value in again.items() if not _same(value, kept[at])} == {}
    assert {name for name in DERIVED if not (EXAMPLE / name).is_file()} == set()


CAPACITY_RPS = 28.3
"""Completions a second of this engine and workload while a queue never empties, from a long run."""


def test_the_example_finds_the_capacity_of_the_simulated_engine() -> None:
    run = judge(EXAMPLE).run
    ceiling = run.estimates["ceiling"]
    assert ceiling.status == "found"
    assert ceiling.rate_rps == pytest.approx(CAPACITY_RPS, rel=0.1)
    assert ceiling.low_rps is not None and ceiling.high_rps is not None
    assert ceiling.low_rps <= CAPACITY_RPS <= ceiling.high_rps


def test_the_front_page_quotes_the_example() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    quoted = " ".join(line.removeprefix("> ") for line in lines if line.startswith("> "))
    assert quoted == (EXAMPLE / "summary.md").read_text().splitlines()[2]


def _same(one: Any, other: Any) -> bool:
    """Equal, but for the last digits that a mathematical library may differ in."""
    return one == (pytest.approx(other, rel=1e-6) if isinstance(other, float) else other)


def _leaves(document: Any) -> dict[str, Any]:
    """Leaves by their place; paths left out."""
    flat: dict[str, Any] = {}

    def walk(at: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{at}.{key}", inner)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                walk(f"{at}.{index}", inner)
        elif not at.endswith("run_dir"):
            flat[at] = value

    walk("", document)
    return flat
