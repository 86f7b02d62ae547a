"""What several files of tests begin with."""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: its threads wait busily, on the cores of the other workers

import gc
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import QUICK
from hypothesis import settings

from loadramp.client.http import c_reader
from loadramp.simulator.practise import simulator

# The same examples on every machine, however slow it is; `make fuzz` looks for new ones.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")
# Kept bytecode spares each of the many interpreters that the tests start from compiling the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever started the tests may ignore it, and so would what they start
LONGEST = (
    "test_canary", "test_campaign", "test_cli_runs", "test_past_the_ceiling", "test_load_errors", "test_conductor",
    "test_features", "test_wheel", "test_diagnose", "test_cases_runs", "test_canary_regimes", "test_scenario_runs",
    "test_library_page", "test_regimes", "test_comparecli", "test_report_html", "test_workers",
    "test_unstable_engine", "test_fuzz", "test_cases_spellings", "test_nightly", "test_lengthen", "test_campaign_cli",
    "test_diagnose_wire", "test_long_run", "test_cases_framing", "test_trend", "test_shown", "test_scraper",
    "test_selfcheck", "test_stored_runs", "test_sessions", "test_thresholds", "test_example", "test_cases_users",
    "test_launch", "test_alerts", "test_offered", "test_report_compare", "test_docs_blocks", "test_abort",
    "test_sender", "test_limits", "test_cases_cuts", "test_lost_connections", "test_cli", "test_sources",
    "test_canary_preview", "test_linear", "test_layers",
)  # fmt: skip
"""Files that take seconds, longest first: begun last, one would keep a single core busy at the end (`make unit`)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector need not go through thousands of tests and modules again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # as in the workers


@pytest.fixture(scope="session")
def sim() -> Iterator[str]:
    with simulator() as url:
        yield url


@pytest.fixture(params=["in C", "in Python"])
def read_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to read sockets."""
    if request.param == "in Python":
        monkeypatch.setattr(c_reader, "LOADED", None)
    elif c_reader.LOADED is None:
        pytest.skip("the reader in C was not built")
    return str(request.param)


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(QUICK)
    return path
