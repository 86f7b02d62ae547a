"""docs/scenario.md names every table, kind and key, with its default. What is added must be described there."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from loadramp.analysis.itl_knee import KNEES
from loadramp.comparison.table import Canary
from loadramp.nightly.table import Nightly
from loadramp.registry import options_of
from loadramp.runner.scenarios import load
from loadramp.scenario import scenario
from loadramp.scenario.scenario import PromptOptions, RampOptions
from loadramp.tune.table import Tune
from loadramp.workload.arrivals import ARRIVALS
from loadramp.workload.prompts import PROMPTS
from loadramp.workload.ramps import RAMPS

DOCS = Path(__file__).parent.parent / "docs"
KINDS: dict[str, Mapping[str, Callable[..., Any]]] = {
    "prompts": PROMPTS,
    "arrivals": ARRIVALS,
    "ramp": RAMPS,
    "knee": KNEES,
}
TABLES = {**scenario._TABLES, "canary": Canary, "nightly": Nightly, "tune": Tune}
EVERY_KIND = {"prompts": PromptOptions, "ramp": RampOptions}


def described() -> dict[str, dict[str, str]]:
    """Section (``target``, ``prompts.fixed``, ``ramp.every kind``) to key to the default that stands beside it."""
    found: dict[str, dict[str, str]] = {}
    table = section = ""
    for line in (DOCS / "scenario.md").read_text().splitlines():
        if heading := re.fullmatch(r"## \[(\w+)\]", line):
            table = section = heading[1]
        elif heading := re.match(r'### (?:`kind = "(\w+)"`|(every kind))', line):
            section = f"{table}.{heading[1] or heading[2]}"
        elif row := re.match(r"\| `(\w+)` \| (.*?) \| .*? \| (.+) \|$", line):
            found.setdefault(section, {})[row[1]] = row[2]
        if section:
            found.setdefault(section, {})
    return found


def shown(default: Any) -> str:
    """A default as the page writes it."""
    if default is inspect.Parameter.empty:
        return "required"
    if default is None:
        return "–"
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    if isinstance(default, list | tuple):
        return "[" + ", ".join(shown(one) for one in default) + "]"
    return f'"{default}"' if isinstance(default, str) else str(default)


def defaults(function: Any) -> dict[str, str]:
    if not is_dataclass(function):
        return {name: shown(default) for name, (_, default) in options_of(function).items()}
    made = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(function)}  # type: ignore[arg-type]  # a class
    return {name: shown(value) for name, value in made.items()}


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_key_of_a_table_is_described_with_its_default(table: str) -> None:
    page = described()
    assert table in page, f"docs/scenario.md has no section [{table}]"
    if page[table]:
        assert page[table] == defaults(TABLES[table])
        return
    text = (DOCS / "scenario.md").read_text().partition(f"## [{table}]\n")[2].partition("\n## ")[0]
    (elsewhere,) = re.findall(r"\((\w+\.md)\)", text)
    keys = set(defaults(TABLES[table]))
    assert {key for key in keys if f"`{key}`" not in (DOCS / elsewhere).read_text()} == set()


@pytest.mark.parametrize(("table", "kind"), [(table, kind) for table, kinds in KINDS.items() for kind in kinds])
def test_every_key_of_a_kind_is_described_with_its_default(table: str, kind: str) -> None:
    assert described()[f"{table}.{kind}"] == defaults(KINDS[table][kind])


@pytest.mark.parametrize("table", sorted(EVERY_KIND))
def test_the_keys_that_every_kind_takes_are_described(table: str) -> None:
    assert described()[f"{table}.every kind"] == defaults(EVERY_KIND[table])


def test_nothing_is_described_that_is_not_there() -> None:
    known = set(TABLES) | set(KINDS) | {f"{table}.every kind" for table in EVERY_KIND}
    known |= {f"{table}.{kind}" for table, kinds in KINDS.items() for kind in kinds}
    assert set(described()) == known


def test_the_prompts_of_a_mixture_are_written_as_the_page_says() -> None:
    text = "[prompts]\nkind = 'mix'\n[[prompts.sources]]\nweight = 2\n[[prompts.sources]]\nkind = 'fixed'\n"
    assert [part.weight for part in load(text).prompts.options["sources"]] == [2.0, 1.0]
