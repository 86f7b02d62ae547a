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
    "test_campaign", "test_canary", "test_cli_runs", "test_load_errors", "test_conductor", "test_features",
    "test_cases_runs", "test_wheel", "test_library_page", "test_report_html", "test_canary_regimes",
    "test_scenario_runs", "test_regimes", "test_diagnose", "test_trend", "test_comparecli", "test_fuzz",
    "test_cases_framing", "test_cases_spellings", "test_stored_runs", "test_diagnose_wire", "test_offered",
    "test_sessions", "test_workers", "test_cases_users", "test_unstable_engine", "test_alerts", "test_nightly",
    "test_thresholds", "test_report_compare", "test_lengthen", "test_selfcheck", "test_campaign_cli",
    "test_advise_sizing", "test_long_run", "test_example",
)  # fmt: skip
"""Files that take seconds, longest first: begun last, one would keep a single core busy at the end (`make unit`)."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


def pytest_collection_finish() -> None:
    """What is loaded by now stays: the collector need not go through thousands of tests and modules again and again."""
    gc.collect()
    gc.freeze()


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
