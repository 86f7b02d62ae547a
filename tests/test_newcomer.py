"""What a newcomer adds from outside the package, each in one module of at most 15 lines."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import in_process
from metrics_pages import read
from report_runs import served
from simulated_ramps import ladder

from loadramp.analysis.diagnosis.cures import CURES
from loadramp.analysis.diagnosis.diagnose import RULES
from loadramp.analysis.diagnosis.remedies import REMEDIES
from loadramp.metrics.dialects import DIALECTS
from loadramp.report import build_html
from loadramp.report.exporters import EXPORTERS
from loadramp.simulator.profiles import PROFILES

DIALECT = """
from loadramp.metrics.dialects import DIALECTS, DialectSeries

DIALECTS["myengine"] = {
    "running": ("myengine_running",),
    "waiting": (DialectSeries("myengine_requests", only={"state": ("queued",)}),),
    "output_tokens": ("myengine_tokens",),
}
"""
ARRIVALS = """
import numpy as np


def pairs(rate_rps, duration_s, rng, *, apart_s: float = 0.1):
    \"\"\"Two requests at a time, ``apart_s`` apart.\"\"\"
    first_s = np.sort(rng.uniform(0.0, duration_s - apart_s, round(rate_rps * duration_s / 2)))
    return np.sort(np.concatenate((first_s, first_s + apart_s)))
"""
EXPORTER = """
from loadramp.report.exporters import EXPORTERS


def one_line(run):
    found = run.estimates["ceiling"]
    return {"ceiling.txt": f"{run.info.name} {found.status} {found.rate_rps}\\n"}


EXPORTERS["one-line"] = one_line
"""
CAUSE = """
from loadramp.analysis.diagnosis.cures import CURES
from loadramp.analysis.diagnosis.diagnose import RULES
from loadramp.analysis.diagnosis.remedies import REMEDIES, Remedy
from loadramp.record.types import Finding


def long_prompts(case):
    tokens = max(one.row.input_tokens_per_s / one.row.done_rps for one in case.steps)
    return Finding("long_prompts", "likely", (f"{tokens:.0f} prompt tokens a request",)) if tokens > 150 else None


RULES.append(long_prompts)
CURES["long_prompts"] = ("shorter_prompts",)
REMEDIES["shorter_prompts"] = Remedy("Send shorter prompts.", "when they can be")
"""


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of ``tmp_path`` can be imported, and what they register is gone after the test."""
    tables = (DIALECTS, EXPORTERS, CURES, REMEDIES)
    before = [dict(table) for table in tables]
    rules, modules = list(RULES), set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)  # type: ignore[arg-type]  # each is of its own kind
    RULES[:] = rules
    for name in set(sys.modules) - modules:
        if name.startswith("newcomer_"):
            del sys.modules[name]


def put(folder: Path, name: str, text: str) -> None:
    """The module of a newcomer. It has at most 15 lines."""
    assert len([line for line in text.splitlines() if line.strip()]) <= 15
    (folder / f"newcomer_{name}.py").write_text(text)
    importlib.invalidate_caches()


def test_a_metrics_dialect_is_a_table_of_names(tmp_path: Path) -> None:
    page = 'myengine_running 3\nmyengine_requests{state="queued"} 5\nmyengine_requests{state="done"} 9\n'
    assert read(page) == (None, {})
    put(tmp_path, "dialect", DIALECT)
    importlib.import_module("newcomer_dialect")
    assert read(page + "myengine_tokens_total 700\n") == (
        "myengine", {"running": 3.0, "waiting": 5.0, "output_tokens": 700.0})  # fmt: skip


def test_an_arrival_process_is_a_function_that_the_scenario_names(tmp_path: Path) -> None:
    put(tmp_path, "arrivals", ARRIVALS)
    scenario = tmp_path / "pairs.toml"
    scenario.write_text('[arrivals]\nkind = "newcomer_arrivals:pairs"\napart_s = 0.2\n')
    code, out, _ = in_process("plan", str(scenario))
    assert code == 0
    assert "newcomer_arrivals:pairs" in out
    scenario.write_text(scenario.read_text().replace("apart_s", "gap_s"))
    code, _, error = in_process("plan", str(scenario))
    assert code == 2
    assert "gap_s: unknown key (did you mean 'apart_s'?); allowed: apart_s" in error


def test_an_exporter_is_a_function_from_a_run_to_files(tmp_path: Path) -> None:
    put(tmp_path, "exporter", EXPORTER)
    importlib.import_module("newcomer_exporter")
    example = str(Path(__file__).parent.parent / "reports" / "example")
    code, out, _ = in_process("export", example, "--format", "one-line")
    assert code == 0
    assert out.split()[-2] == "found"
    assert EXPORTERS["one-line"](served()) == {"ceiling.txt": "chat found 15.9\n"}


def test_a_cause_is_a_rule_with_its_cure(tmp_path: Path) -> None:
    put(tmp_path, "cause", CAUSE)
    importlib.import_module("newcomer_cause")
    run = ladder(PROFILES["small"], [2, 4])
    (finding,) = [one for one in run.findings if one.code == "long_prompts"]
    assert finding.evidence[0].endswith("prompt tokens a request")
    assert [cure.action for cure in finding.cures] == ["Send shorter prompts."]
    assert "Send shorter prompts." in build_html(run)
