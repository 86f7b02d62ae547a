"""Who may import whom (DESIGN: the rooms). Parsed, not imported."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "loadramp"
PURE = ("plan", "judge", "advise", "report", "record.types", "record.table", "record.workload", "record.codec",
        "record.untrusted", "record.preparation",
        "registry", "wording", "observe.dialects", "observe.models", "observe.text", "observe.canonical",
        "observe.gpu", "sim.engine",
        "sim.profiles", "sim.regimes", "drive.sse", "drive.wire")  # fmt: skip
FORBIDDEN = {"asyncio", "socket", "time", "random", "os", "click", "httpx", "openai", "subprocess", "multiprocessing"}
SHARED = (
    "record.types", "record.table", "record.workload", "record.untrusted", "record.preparation", "registry", "wording",
)  # fmt: skip
MAY_KNOW = {
    "record.types": (),
    "registry": (),
    "wording": (),
    "record": ("record", *SHARED),
    "plan": ("plan", *SHARED),
    "judge": ("judge", *SHARED),
    "advise": ("advise", *SHARED),
    "report": ("report", "judge", "advise", *SHARED),
    "observe.dialects": SHARED,
    "sim.engine": ("sim.engine", "sim.profiles", "sim.regimes", *SHARED),
    "observe": ("observe", "record", *SHARED),
    "drive": ("drive", "plan", "record", *SHARED),
    "sim": ("sim", "observe", *SHARED),
}


def modules() -> dict[str, Path]:
    return {
        ".".join(p.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): p
        for p in PACKAGE.rglob("*.py")
    }


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def within(name: str, rooms: tuple[str, ...]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def test_pure_modules_import_no_clock_no_chance_and_no_outside_world() -> None:
    bad = {
        name: sorted({i.split(".")[0] for i in imports_of(path)} & FORBIDDEN)
        for name, path in modules().items()
        if within(name, PURE) and {i.split(".")[0] for i in imports_of(path)} & FORBIDDEN
    }
    assert bad == {}


def test_each_room_knows_only_the_rooms_it_may_know() -> None:
    known = set(modules())
    bad = []
    for name, path in modules().items():
        room = next((r for r in (name, name.split(".")[0]) if r in MAY_KNOW), None)
        if room is None:
            continue  # conduct, jobs, commands and cli know every room
        for imported in imports_of(path):
            inside = imported.removeprefix("loadramp.")
            if imported.startswith("loadramp.") and inside in known and not within(inside, (*MAY_KNOW[room], name)):
                bad.append(f"{name} imports {inside}")
    assert bad == []


def test_only_the_command_line_knows_the_command_line() -> None:
    assert [n for n, p in modules().items() if "loadramp.cli" in imports_of(p) and n != "__main__"] == []
    outside = [n for n in modules() if not within(n, ("cli", "commands"))]
    assert [n for n in outside if any(i.startswith("loadramp.commands") for i in imports_of(modules()[n]))] == []


def test_the_loop_knows_no_job() -> None:
    below = [n for n in modules() if not within(n, ("cli", "commands", "jobs", "__main__"))]
    assert [n for n in below if any(i.startswith("loadramp.jobs") for i in imports_of(modules()[n]))] == []
