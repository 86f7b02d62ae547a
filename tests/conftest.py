"""What several files of command-line tests begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from terminal import QUICK

from loadramp.jobs.practise import simulator


@pytest.fixture(scope="module")
def sim() -> Iterator[str]:
    with simulator() as url:
        yield url


@pytest.fixture
def quick(tmp_path: Path) -> Path:
    path = tmp_path / "quick.toml"
    path.write_text(QUICK)
    return path
