"""Benchmarks run too seldom to notice by themselves that a name of the package has changed."""

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "benchmarks").glob("*.py"))


def missing_names(source: str) -> list[str]:
    """What ``source`` takes from the package by name, or as an attribute of one of its modules, and is not there."""
    tree = ast.parse(source)
    modules: dict[str, ModuleType] = {}
    missing = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "loadramp":
            found = importlib.import_module(str(node.module))
            for name in node.names:
                value = getattr(found, name.name, None)
                if value is None:
                    try:
                        value = importlib.import_module(f"{node.module}.{name.name}")
                    except ImportError:
                        missing.append(f"{node.module}.{name.name}")
                if isinstance(value, ModuleType):
                    modules[name.asname or name.name] = value
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id not in stored:
            module = modules.get(node.value.id)
            if module is not None and not hasattr(module, node.attr):
                missing.append(f"{module.__name__}.{node.attr}")
    return missing


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_benchmark_uses_only_names_that_the_package_has(path):
    assert missing_names(path.read_text()) == []


def test_a_name_that_is_gone_is_found():
    source = "from loadramp.analysis import latency\nfrom loadramp.units import none_such\nlatency.look(1)\n"
    assert missing_names(source) == ["loadramp.units.none_such", "loadramp.analysis.latency.look"]
