"""campaign.json: how far a campaign has come, by one definition for writer, reader and tests.

It is written after every phase. What is not known holds its default, and is not written.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadramp.campaign.table import Phase
from loadramp.record import state_file
from loadramp.record.preparation import Rollback
from loadramp.record.run_directory import RunDir, safe_name
from loadramp.record.state_file import check_same, write_state
from loadramp.registry import ScenarioError

CAMPAIGN = "campaign.json"


class PhaseState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """How far one phase has come."""

    state: Literal["", "running", "done", "stopped", "skipped"] = ""
    """Empty: it has not begun."""
    reason: str = ""
    """Why it ended, or was left out."""
    target_rps: float | None = None
    began_at: str | None = None
    ended_at: str | None = None
    run: str = ""
    """The directory of its run, below the campaign's."""
    attempts: list[str] = []
    """The runs of attempts before that were interrupted."""


class CampaignState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What campaign.json holds beside its schema."""

    name: str = ""
    began_at: str = ""
    loadramp: str = ""
    argv: list[str] = []
    overrides: list[str] = []
    endpoint: str = ""
    """Its address, and the model that was asked for by name."""
    model_max_context: int | None = None
    """Longest context of the model itself."""
    rehearsal: bool = False
    """Every phase was shortened."""
    rollback: Rollback | None = None
    """What a canary showed of switches back."""
    phases: dict[Phase, PhaseState] = {}
    state: Literal["running", "stopped", "complete"] = "running"
    target_rps: float | None = None
    """What the ramp has shown."""
    target_reason: str = ""

    def phase(self, phase: str) -> PhaseState:
        """What is known of a phase; a fresh one where it has not begun."""
        return next((entry for name, entry in self.phases.items() if name == phase), PhaseState())

    def document(self) -> dict[str, Any]:
        """As JSON data; phases and state are always in it."""
        return {**msgspec.to_builtins(self), "phases": msgspec.to_builtins(self.phases), "state": self.state}


def begin(out: Path, state: CampaignState, source: str) -> Path:
    """A fresh directory for a campaign.

    Args:
        out: where reports are put.
        state: what is known of it, without secrets.
        source: the scenario's text, without secrets.
    """
    began_at = datetime.now(UTC)
    path = RunDir.create(out, f"{safe_name(state.name)}-campaign", source, began_at).path
    state.began_at = began_at.isoformat(timespec="seconds")
    save_state(path, state)
    return path


def save_state(path: Path, state: CampaignState) -> None:
    """Replace campaign.json in ``path``."""
    write_state(path, CAMPAIGN, state.document())


def resume(path: Path, source: str, overrides: Sequence[str], endpoint: str = "") -> CampaignState:
    """The state of the campaign in ``path``.

    Raises:
        ScenarioError: it is none, or its scenario or endpoint was another one.
    """
    state = read_state(path)
    check_same(path, source, overrides, state.overrides)
    if state.endpoint and endpoint != state.endpoint:
        raise ScenarioError(
            f"{path}: was begun against {state.endpoint}; got {endpoint}: phases of two endpoints make no scorecard"
        )
    return state


def read_state(path: Path) -> CampaignState:
    """campaign.json.

    Raises:
        RunDirError: there is none, or it is of another schema.
    """
    return state_file.read_state(path, CAMPAIGN, CampaignState, "campaign")
