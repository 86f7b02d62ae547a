"""Who may import whom (CONTRIBUTING: the house). Parsed, not imported."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "loadramp"


def house() -> list[tuple[str, str, str]]:
    """The rows of CONTRIBUTING's table of folders: module or folder, kind, what is pure."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `([\w/.]+)` \| [^|]+ \| (shared|core|feature|top) \| ([^|]+) \|$", text, re.MULTILINE)
    return [(name.removesuffix("/").removesuffix(".py"), kind, pure) for name, kind, pure in rows]


def of_kind(kind: str) -> tuple[str, ...]:
    return tuple(name for name, its, _ in house() if its == kind)


CORE = of_kind("core")
"""The rooms of the core, from the bottom: each may import those before it and itself."""
FEATURES = of_kind("feature")
"""They may import the core and the command line's options, and not one another."""
SHARED = of_kind("shared")
"""What everybody may import; they import nobody."""
TOP = of_kind("top")
PURE = tuple(
    part
    for name, _, pure in house()
    for part in ((name,) if pure == "all" else [f"{name}.{module}" for module in re.findall(r"`(\w+)`", pure)])
)
DEFINITION = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FORBIDDEN = {"asyncio", "socket", "time", "random", "os", "click", "httpx", "openai", "subprocess", "multiprocessing"}


def modules() -> dict[str, Path]:
    return {
        ".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): p
        for p in PACKAGE.rglob("*.py")
        if p != PACKAGE / "__init__.py"
    }


@cache
def statements_of(path: Path) -> list[ast.AST]:
    """All statements of a module, those inside others included; no expressions, which are most of a tree."""
    found: list[ast.AST] = [ast.parse(path.read_text())]
    for node in found:
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            found += getattr(node, part, [])
    return found


@cache
def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in statements_of(path):
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


def test_what_the_table_calls_pure_is_there() -> None:
    assert {name for name in PURE if not any(within(module, (name,)) for module in modules())} == set()
    assert {"scenario", "workload", "analysis", "report", "client.stream", "record.types"} <= set(PURE)


def test_the_walks_of_contributing_name_what_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    walks = text[text.index("### One token") : text.index("## Habits")]
    steps = re.findall(r"`([\w/]+\.py): ([\w.]+)`", walks)
    assert len(steps) > 10
    gone = []
    for path, name in steps:
        body: list[ast.stmt] = ast.parse((PACKAGE / path).read_text()).body
        for part in name.split("."):
            found = [node for node in body if isinstance(node, DEFINITION) and node.name == part]
            body = [inner for node in found for inner in node.body]
        if not body:
            gone.append(f"{path}: {name}")
    assert gone == []


def test_every_registry_that_contributing_names_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("## How to add") :]
    named = re.findall(r"`(\w+(?:/\w+)*)(\.py)?: (\w+)`", table)
    assert len(named) > 10
    for path, suffix, name in named:
        file = PACKAGE / f"{path}.py" if suffix else PACKAGE / path / "__init__.py"
        assert re.search(rf"^(class )?{name}\b", file.read_text(), re.MULTILINE), f"{path}: {name}"


def test_no_class_name_is_in_two_modules() -> None:
    where: dict[str, list[str]] = {}
    for name, path in modules().items():
        for node in statements_of(path):
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(name)
    assert {name: places for name, places in where.items() if len(places) > 1} == {}


def test_tests_of_the_core_use_no_feature() -> None:
    known = [
        f"{path.relative_to(ROOT)} imports {name}"
        for room in (*CORE, "commands")
        for path in (ROOT / "tests" / room).glob("*.py")
        for name in sorted(imports_of(path))
        if within(name, tuple(f"loadramp.{feature}" for feature in FEATURES))
    ]
    assert known == []
