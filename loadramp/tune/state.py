"""tune.json: what was asked and every visit so far, replaced whole after each, so that nothing is lost but the visit
that an interruption falls into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from loadramp import __version__
from loadramp.record.codec import plain_data
from loadramp.record.run_directory import RunDir, safe_name
from loadramp.record.state_file import check_same, read_state, write_state
from loadramp.scenario.scenario import Scenario
from loadramp.tune.candidates import Search
from loadramp.tune.race import RaceRules
from loadramp.tune.table import Objective, objective_of, tune_of
from loadramp.tune.visit import Proposal, Visit

TUNE = "tune.json"
RUNNING = "it still runs, or was killed"


@dataclass(slots=True)
class TuneState:
    """tune.json. ``began_at`` is ISO 8601; ``spent_s`` counts every call's seconds."""

    name: str
    began_at: str
    objective: Objective
    server: str = ""
    switch_command: str = ""
    tries: Sequence[str] = ()
    grid: bool = False
    cures: Sequence[Proposal] = ()
    """Of the run that ``--from`` names."""
    of_run: str = ""
    of_run_value: float | None = None
    """What that run says of the objective; None: not known."""
    price_per_hour: float | None = None
    argv: Sequence[str] = ()
    overrides: Sequence[str] = ()
    loadramp: str = __version__
    visits: list[Visit] = field(default_factory=list)
    spent_s: float = 0.0
    state: str = "running"
    ended: str = ""
    """Why it ended before the race was over."""

    def rules(self, scenario: Scenario) -> RaceRules:
        """What the race is judged by: the table of ``scenario``, and what the command line asked for."""
        table = tune_of(scenario)
        search = Search(table.baseline, tuple(self.tries or table.candidates), self.grid, table.skip,
                        table.most_candidates, tuple(self.cures))  # fmt: skip
        return RaceRules(search, len(table.step_s), table.return_every, table.confirmations, table.same_ratio,
                     table.visit_sd, -1 if self.objective == "cost" else 1)  # fmt: skip


def begin(out: Path, scenario: Scenario, source: str, state: TuneState) -> Path:
    """A fresh directory for a tuning; ``source`` is the scenario's text without secrets."""
    path = RunDir.create(out, f"{safe_name(scenario.name)}-tune", source, datetime.now(UTC)).path
    save(path, state)
    return path


def fresh(scenario: Scenario, **more: Any) -> TuneState:
    """The state of a tuning that begins now."""
    return TuneState(
        name=scenario.name, began_at=datetime.now(UTC).isoformat(timespec="seconds"), objective=objective_of(scenario),
        price_per_hour=tune_of(scenario).price_per_hour, **more,
    )  # fmt: skip


def save(path: Path, state: TuneState, answer: Mapping[str, Any] | None = None) -> None:
    """Replace tune.json in ``path``; ``answer``: the document that ``--json`` prints.

    Raises:
        OSError: the disk; names the file.
    """
    extra = {"answer": answer} if answer is not None else {}
    write_state(path, TUNE, plain_data(state) | extra)


def load_state(path: Path) -> TuneState:
    """The state of the tuning in ``path``.

    Raises:
        RunDirError: there is none, or it is of another schema.
    """
    return read_state(path, TUNE, TuneState, "tuning")


def resumed(path: Path, source: str, overrides: Sequence[str]) -> TuneState:
    """The state of the tuning in ``path``, to go on with.

    Raises:
        ScenarioError: it is none, or was begun with another scenario or other overrides.
    """
    state = load_state(path)
    check_same(path, source, overrides, state.overrides, "tune.max_hours")
    if not any(visit.state == "measured" for visit in state.visits):
        state.visits.clear()  # only the baseline was tried, in vain: what kept it may be gone
    return state
