"""A history of nights in other programs' formats, opened by the program or by its own schema."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from history_samples import LEVELS, failed, live, measured
from junitparser import JUnitXml

from loadramp.nightly.export import HISTORY_EXPORTERS, night_annotations, night_junit
from loadramp.nightly.history import History
from loadramp.nightly.trend import judge_night
from loadramp.registry import ScenarioError
from loadramp.report.exporters import EXPORTERS
from loadramp.runner.export import exported, listing


def nights() -> list[Any]:
    """Sixty nights, slower by a fifth from the fortieth on."""

    def level(i: int, metric: str) -> float:
        slower = 0.8 if metric == "ceiling_rps" else 1.25
        return LEVELS[metric] * (slower if i >= 40 else 1.0)

    return live(60, lambda i: failed(i) if i == 20 else measured(i, level))[0]


def test_a_history_as_csv_has_a_line_a_line() -> None:
    entries = nights()
    lines = list(csv.DictReader(io.StringIO(str(HISTORY_EXPORTERS["csv"](entries)["history.csv"]))))
    assert len(lines) == len(entries)
    assert {line["kind"] for line in lines} == {"measured", "failed", "alarm"}
    assert lines[0]["gpu"] == "H100"
    assert lines[0]["scenario"] == entries[0].scenario
    assert lines[0]["fingerprint_scenario"] == str(entries[0].fingerprint["scenario"])
    assert float(lines[0]["value"]) == entries[0].value


def lacking() -> list[Any]:
    """Those nights, some without a p99 ITL, and the first of them with a knee."""
    kept = [e for e in nights() if not (e.metric == "ref_itl_p99_s" and e.night[8:10] in {"05", "17"})]
    knees = [measured(i, lambda _, m: 9.0, metrics=("knee_rps",)) for i in range(2)]
    return [*(line for lines in knees for line in lines), *kept]


def test_otava_gets_one_series_a_metric_without_a_gap() -> None:
    files = HISTORY_EXPORTERS["otava"](lacking())
    config = yaml.safe_load(str(files["otava.yaml"]))
    names = ["ceiling_rps", "knee_rps", "ref_ttft_p50_s", "ref_itl_p50_s", "ref_itl_p99_s"]
    assert config["test_groups"] == {"loadramp": names}
    lengths = {}
    for name, test in config["tests"].items():
        lines = list(csv.DictReader(io.StringIO(str(files[test["file"]]))))
        (metric,) = test["metrics"].values()
        assert {metric["column"], *test["attributes"], test["time_column"]} == set(lines[0])
        assert metric["direction"] == (1 if name.endswith("rps") else -1)
        assert all(math.isfinite(float(line[name])) for line in lines)
        lengths[name] = len(lines)
    assert lengths == dict(zip(names, (59, 2, 59, 59, 55), strict=True))  # a night without a value is none


def test_otava_itself_reads_a_history_with_gaps_and_finds_the_change(tmp_path: Path) -> None:
    """Needs an environment of its own (its numpy is pinned); runs where ``otava`` is on the path."""
    otava = shutil.which("otava")
    if otava is None:
        pytest.skip("no otava on the path: it pins numpy, so it is not among the development dependencies")
    for name, content in HISTORY_EXPORTERS["otava"](lacking()).items():
        (tmp_path / name).write_text(str(content))
    options = ["--config-file", "otava.yaml", "--since", "2026-01-01", "--until", "2026-12-31", "--output", "json"]
    command = [otava, "analyze", "loadramp", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    decoder, left, told = json.JSONDecoder(), done.stdout.strip(), {}
    while left:  # one document a series
        document, end = decoder.raw_decode(left)
        told |= document
        left = left[end:].strip()
    assert set(told) == {*LEVELS, "knee_rps"}
    large = {
        (name, point["time"])
        for name, points in told.items()
        for point in points
        for change in point["changes"]
        if abs(float(change["forward_change_percent"])) > 5
    }
    assert {name for name, _ in large} == set(LEVELS)
    assert len(large) == len(LEVELS)


def test_a_night_is_junit_and_annotations_too() -> None:
    bad = [
        e
        for i in (60, 61)
        for e in measured(i, lambda _, m: LEVELS[m] * (0.5 if m == "ceiling_rps" else 1.25), sd=0.001)
    ]
    outcome = judge_night([*nights(), *bad], floors=["ceiling_rps >= 1", "knee_rps >= 1"])
    parsed = JUnitXml.fromstring(night_junit(outcome, "nightly").encode())
    assert (parsed.tests, parsed.failures, parsed.errors) == (6, 1, 1)
    lines = night_annotations(outcome, "nightly").splitlines()
    assert lines[0].startswith("::error title=nightly::Ceiling is worse since 2026-03-02 03:00: -38 %")


def test_a_format_that_does_not_exist_is_a_usage_error_with_the_list(tmp_path: Path) -> None:
    History(tmp_path).append(measured(0, lambda _, m: LEVELS[m]))
    with pytest.raises(ScenarioError, match="no such format of a history; there are csv, otava"):
        exported(tmp_path, "junit")
    with pytest.raises(ScenarioError, match="no such format of a run; there are bencher, csv"):
        exported(tmp_path / "nothing", "xml")
    lines = listing().splitlines()
    of_run, of_history = lines.index("of a run:"), lines.index("of a history:")
    assert [line.strip() for line in lines[of_run + 1 : of_run + 1 + len(EXPORTERS)]] == sorted(EXPORTERS)
    assert [line.strip() for line in lines[of_history + 1 : of_history + 1 + len(HISTORY_EXPORTERS)]] == [
        "csv",
        "otava",
    ]
    assert "otava-ceiling_rps.csv" in exported(tmp_path, "otava")
    with pytest.raises(ScenarioError, match="--slo: a history has no thresholds to judge"):
        exported(tmp_path, "csv", ["ceiling_rps >= 12"])
