"""What ``loadramp plan`` answers: the steps and the shape of a scenario's load, or the shape of what a run sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadramp.drive import corpus
from loadramp.jobs.scenarios import read_scenario
from loadramp.jobs.verdicts import check_rules
from loadramp.plan.preview import foresee
from loadramp.plan.profile import profile_of_plan, profile_of_run
from loadramp.plan.scenario import Scenario
from loadramp.record import rundir
from loadramp.report.preview import preview_document, preview_table, profile_document, profile_lines

Answer = tuple[dict[str, Any], str]
"""For programs and for people."""


def of_scenario(path: Path, overrides: Sequence[str] = ()) -> Answer:
    """The preview of the scenario at ``path``.

    Raises:
        ScenarioError: it, or a file that it names, cannot be read; or a threshold that cannot be judged.
    """
    scenario = read_scenario(path, overrides)
    check_rules(scenario)
    return foreseen(scenario)


def foreseen(scenario: Scenario) -> Answer:
    """The preview of a scenario that was read."""
    full = corpus.ready(scenario)
    steps = list(foresee(full))
    profile = profile_of_plan(full, [seen.step for seen in steps])
    files = corpus.told(full)
    return preview_document(full, steps, profile, files), preview_table(full, steps, profile, files)


def of_run(path: Path) -> Answer:
    """The shape of the load that the run in ``path`` sent.

    Raises:
        RunDirError: it is no run.
    """
    run, skipped = rundir.read(path)
    profile = profile_of_run(run)
    document = {"name": run.info.get("name", ""), "run_dir": str(path), "profile": profile_document(profile)}
    torn = [f"{skipped} torn lines were skipped"] if skipped else []
    return document, "\n".join([f"{run.info.get('name', '')}: what was sent", "", *profile_lines(profile), *torn])
