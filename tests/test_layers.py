"""Who may import whom (CONTRIBUTING: the house). Parsed, not imported."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "loadramp"
CORE = ("scenario", "record", "workload", "client", "metrics", "analysis", "report", "simulator", "runner", "library")
"""The rooms of the core, from the bottom: each may import those before it and itself."""
FEATURES = ("comparison", "nightly", "campaign", "advise", "importers")
"""They may import the core and the command line's options, and not one another."""
SHARED = ("registry", "units")
"""What everybody may import; they import nobody."""
TOP = ("cli", "commands", "features", "__main__")
PURE = (
    "workload", "analysis", "report", "registry", "units", "scenario", "metrics.dialects", "metrics.model_series",
    "metrics.prometheus_text", "metrics.canonical", "metrics.gpu", "simulator.engine", "simulator.profiles",
    "simulator.regimes", "client.stream", "client.request_body", "record.types", "record.table",
    "record.prompt_facts", "record.codec", "record.sanitize", "record.preparation",
)  # fmt: skip
FORBIDDEN = {"asyncio", "socket", "time", "random", "os", "click", "httpx", "openai", "subprocess", "multiprocessing"}


def modules() -> dict[str, Path]:
    return {
        ".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): p
        for p in PACKAGE.rglob("*.py")
        if p != PACKAGE / "__init__.py"
    }


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rooms_of(path: Path) -> set[str]:
    """The rooms that a module imports from."""
    inside = {name.removeprefix("loadramp.") for name in imports_of(path) if name.startswith("loadramp.")}
    return {name.partition(".")[0] for name in inside} & {*CORE, *FEATURES, *SHARED, *TOP}


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def may_import(room: str) -> set[str]:
    if room in SHARED:
        return set()
    if room in FEATURES:
        return {*CORE, *SHARED, "commands", room}
    if room == "commands":
        return {*CORE, *SHARED, room}
    return {*CORE[: CORE.index(room) + 1], *SHARED}


def test_every_module_is_in_a_room() -> None:
    assert {name.partition(".")[0] for name in modules()} == {*CORE, *FEATURES, *SHARED, *TOP}


def test_pure_modules_import_no_clock_no_chance_and_no_outside_world() -> None:
    bad = {
        name: sorted({i.split(".")[0] for i in imports_of(path)} & FORBIDDEN)
        for name, path in modules().items()
        if within(name, PURE) and {i.split(".")[0] for i in imports_of(path)} & FORBIDDEN
    }
    assert bad == {}


def test_each_room_imports_only_the_rooms_that_it_may() -> None:
    bad = [
        f"{name} imports {other}"
        for name, path in modules().items()
        if (room := name.partition(".")[0]) not in {"cli", "features", "__main__"}
        for other in sorted(rooms_of(path) - may_import(room))
    ]
    assert bad == []


def test_only_the_list_of_features_knows_them() -> None:
    known = {name for name, path in modules().items() if rooms_of(path) & set(FEATURES)}
    assert {name for name in known if not within(name, FEATURES)} == {"features"}


@pytest.mark.parametrize("room", [*CORE, *FEATURES])
def test_the_map_of_contributing_names_the_room(room: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert f"| `{room}/` |" in text


def test_no_class_name_is_in_two_modules() -> None:
    where: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(name)
    assert {name: places for name, places in where.items() if len(places) > 1} == {}
