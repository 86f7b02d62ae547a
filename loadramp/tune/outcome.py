"""A tuning judged from its files, in all its forms: tune.json, summary.md, tune.html, tune.csv."""

from __future__ import annotations

from pathlib import Path

from loadramp.record.run_directory import RunDir
from loadramp.runner.scenarios import load
from loadramp.tune.configurations import tuning_csv, tuning_markdown
from loadramp.tune.page import tuning_html
from loadramp.tune.race import RaceRules
from loadramp.tune.state import TuneState, load_state, save
from loadramp.tune.text import JudgedTuning, tuning_document
from loadramp.tune.verdict import verdict_of


def judge_tuning(path: Path, state: TuneState, rules: RaceRules, server: str | None = None) -> JudgedTuning:
    """The answer of what ``state`` holds; nothing is written. ``server``: the command where it may be shown whole."""
    verdict = verdict_of(rules, state.visits, state.ended)
    return JudgedTuning(str(path), state, rules, verdict, server or state.server)


def read_tuning(path: Path) -> JudgedTuning:
    """The tuning in ``path``, judged anew.

    Raises:
        ScenarioError: it is none.
    """
    state = load_state(path)
    scenario = load((path / "scenario.toml").read_text("utf-8"), str(path / "scenario.toml"), state.overrides)
    return judge_tuning(path, state, state.rules(scenario))


def write_derived(tuning: JudgedTuning) -> None:
    """Write everything derived of a tuning.

    Raises:
        OSError: the files cannot be written.
    """
    rundir = RunDir(Path(tuning.path))
    save(rundir.path, tuning.state, tuning_document(tuning))
    rundir.write("tune.csv", tuning_csv(tuning))
    rundir.write("summary.md", tuning_markdown(tuning))
    rundir.write("tune.html", tuning_html(tuning))


def write_tuning(path: Path, state: TuneState, rules: RaceRules, server: str) -> JudgedTuning:
    """Judge and write. The command in files has no secrets; that in the answer is the one that was given."""
    write_derived(judge_tuning(path, state, rules))
    return judge_tuning(path, state, rules, server)
