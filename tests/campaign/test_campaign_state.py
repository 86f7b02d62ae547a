"""campaign.json: files of earlier versions are read, and what does not fit is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadramp.campaign.state import CAMPAIGN, CampaignState, PhaseState, read_state, save_state
from loadramp.record.preparation import Rollback
from loadramp.registry import ScenarioError

WITH_NULLS: dict[str, Any] = {
    "schema": 1, "name": "chat", "began_at": "2026-01-02T03:04:05+00:00", "loadramp": "0.1.0", "argv": ["campaign"],
    "overrides": ["seed=3"], "model_max_context": None, "rehearsal": False, "state": "stopped", "target_rps": 4,
    "target_reason": "70 % of 5.7 req/s, the low end",
    "rollback": {"name": "c", "took_s": [3.5], "command_s": [], "unanswered": 0, "measured_s": 60, "requests": 9,
                 "failed": 0},
    "phases": {
        "baseline": {"state": "done", "target_rps": None, "began_at": "x", "run": "r", "reason": "", "ended_at": "y"},
        "chaos": {"state": "skipped", "reason": "no command was given (--chaos CMD)"},
    },
}  # fmt: skip
"""As it was written when what is not known was null."""


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / CAMPAIGN).write_text(json.dumps(WITH_NULLS))
    state = read_state(tmp_path)
    assert (state.name, state.overrides, state.model_max_context, state.target_rps) == ("chat", ["seed=3"], None, 4.0)
    assert state.phase("baseline") == PhaseState(state="done", began_at="x", ended_at="y", run="r")
    assert state.phase("chaos").reason == "no command was given (--chaos CMD)"
    assert state.phase("sustained") == PhaseState()
    assert state.rollback == Rollback("c", [3.5], [], measured_s=60.0, requests=9)


def test_what_was_written_is_read_again_and_what_is_not_known_is_not_written(tmp_path: Path) -> None:
    state = CampaignState(name="chat", phases={"ramp": PhaseState(state="running", attempts=["a"])})
    save_state(tmp_path, state)
    assert read_state(tmp_path) == state
    assert json.loads((tmp_path / CAMPAIGN).read_text()) == {
        "schema": 1, "name": "chat", "phases": {"ramp": {"state": "running", "attempts": ["a"]}}, "state": "running",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"phases": {"warmup": {}}}, "Invalid enum value 'warmup'"),
        ({"phases": {"ramp": {"state": "over"}}}, "Invalid enum value 'over'"),
        ({"overrides": None}, r"Expected `array`.*\$\.overrides"),
        ({"schema": 2}, "schema 2; this version reads 1"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    (tmp_path / CAMPAIGN).write_text(json.dumps(WITH_NULLS | change))
    with pytest.raises(ScenarioError, match=words):
        read_state(tmp_path)
