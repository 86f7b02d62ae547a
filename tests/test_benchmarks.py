"""Benchmarks run too seldom to notice by themselves that a name of the package has changed."""

import ast
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
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


@pytest.fixture
def climb(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    return importlib.import_module("highest_rate")


def test_a_rate_is_right_when_all_came_and_each_p99_is_within_a_tenth_or_a_millisecond(climb):
    load = climb.Load(rate=1000, streams=100, lasts_s=2.0, seconds=6.0)
    assert (load.per_s, load.requests, load.itl_us, load.tokens) == (50.0, 300, 100_000, 20)
    true = climb.Figures(300, 6000, 50.0, 5.0, 100.0)
    assert climb.wrong(climb.Figures(300, 6000, 54.9, 5.9, 109.0), true, 960.0, load) == []
    assert climb.wrong(climb.Figures(300, 6000, 54.9, None, 109.0), true, 960.0, load) == []
    assert climb.wrong(climb.Figures(299, 5990, 55.1, 6.1, float("nan")), true, 940.0, load) == [
        "940 tokens/s sent",
        "299 of 300 requests, 5990 tokens",
        "p99 TTFT 55.1 instead of 50.0 ms",
        "p99 ITL 6.1 instead of 5.0 ms",
        "p99 TPOT nan instead of 100.0 ms",
    ]


@pytest.mark.parametrize(
    ("wrong_from", "found", "asked"),
    [(9, "4 | ", [2, 3, 4]), (3, "2 | 3: bad", [2, 3]), (2, "1 | 2: bad", [2, 1]), (0, "none | 1: bad", [2, 1])],
)
def test_the_highest_rate_is_found_by_bisection(climb, wrong_from, found, asked):
    seen = []

    def faults(load):
        seen.append(load.rate)
        return ["bad"] if load.rate >= wrong_from else []

    assert climb.climbed([climb.Load(rate, 1, 1.0, 1.0) for rate in (1, 2, 3, 4)], faults) == found
    assert seen == asked


def test_the_truth_is_of_the_requests_that_were_asked_for(climb):
    stage = importlib.import_module("stage")
    load = climb.Load(rate=20, streams=1, lasts_s=0.1, seconds=0.2)  # two requests of two tokens, 50 ms apart
    sent = [
        (7, 0, 2, 60, 1),
        (0, 0, 2, 1050, 1000),
        (1, 0, 2, 1150, 1100),
        (0, 1, 2, 1110, 1000),
        (1, 1, 2, 1200, 1100),
    ]
    rows = [(request, index, n, send * 10**6, begun * 10**6) for request, index, n, send, begun in sent]
    true, per_s = climb.truth(np.array(rows, dtype=stage.SENT), load)
    assert true[:3] == pytest.approx((2, 4, 50.0))
    assert true[3:] == pytest.approx((59.9, 59.9))
    assert per_s == pytest.approx(20 * 0.25 / 0.2)


@pytest.mark.parametrize(
    ("name", "file", "told", "figures"),
    [
        ("vllm", "a.json", {"completed": 9, "total_output_tokens": 90, "p99_ttft_ms": 1, "p99_itl_ms": 2,
                            "p99_tpot_ms": 3}, (9, 90, 1, 2, 3)),
        ("aiperf", "profile_export_aiperf.json", {"request_count": {"avg": 9.0}, "total_output_tokens": {"avg": 90.0},
                                                  "time_to_first_token": {"p99": 1}, "inter_chunk_latency": {"p99": 2},
                                                  "inter_token_latency": {"p99": 3}}, (9, 90, 1, 2, 3)),
        ("guidellm", "r.json", {"benchmarks": [{"metrics": {
            "request_totals": {"successful": 9}, "output_token_count": {"successful": {"total_sum": 90.0}},
            "time_to_first_token_ms": {"successful": {"percentiles": {"p99": 1}}},
            "inter_token_latency_ms": {"successful": {"percentiles": {"p99": 3}}}}}]}, (9, 90, 1, None, 3)),
    ],
)  # fmt: skip
def test_the_results_of_other_tools_are_read(climb, tmp_path, name, file, told, figures):
    (tmp_path / file).write_text(json.dumps(told))
    assert climb.READERS[name](tmp_path) == figures
