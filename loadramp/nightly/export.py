"""A history of nights, or one judged night, in formats of other programs: CSV, Apache Otava, JUnit, annotations."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import yaml

from loadramp.nightly.alarms import Change
from loadramp.nightly.history import FILE, Entry, History, is_history
from loadramp.nightly.series import METRICS, Night, all_series, of_series
from loadramp.nightly.text import (
    alarm_words,
    baseline_words,
    change_words,
    headline,
    minimum_words,
    number,
    standing_words,
)
from loadramp.nightly.trend import NightOutcome, Standing
from loadramp.registry import ScenarioError
from loadramp.report.document import csv_text
from loadramp.report.exporters.ci import TestCase, commands, suite
from loadramp.report.exporters.points import Files
from loadramp.runner.export import no_format

if TYPE_CHECKING:
    import pandas as pd

ATTRIBUTES = ("version", "client", "gpu", "driver")
NIGHT_COLUMNS = ("night", "scenario", "kind", "metric", "value", "low", "high", "repeat", "rerun", "run", "exit_code",
                 "reason")  # fmt: skip


def exported_history(source: Path | None, form: str) -> Files | None:
    """The files that ``form`` makes of the history in ``source``; None where it is no history.

    Without a source: an empty file for each name that there is.

    Raises:
        ScenarioError: no such format.
    """
    if source is None:
        return dict.fromkeys(HISTORY_EXPORTERS, "")
    if not is_history(source):
        return None
    if form not in HISTORY_EXPORTERS:
        raise no_format(form, "a history", HISTORY_EXPORTERS)
    entries, _ = History(source).read()
    return HISTORY_EXPORTERS[form](entries)


def csv_nights(entries: Sequence[Entry]) -> Files:
    """``history.csv``: one line a line of the history; the fingerprint's keys are columns.

    One that a line has itself is called ``fingerprint_KEY``: two columns of a name are one to most readers.
    """
    keys = list(dict.fromkeys(key for entry in entries for key in entry.fingerprint))
    heads = [*NIGHT_COLUMNS, *(f"fingerprint_{key}" if key in NIGHT_COLUMNS else key for key in keys)]
    lines = (
        [*(getattr(entry, name) for name in NIGHT_COLUMNS), *(entry.fingerprint.get(key) for key in keys)]
        for entry in entries
    )
    return {"history.csv": csv_text(heads, lines)}


def history(path: str | Path) -> pd.DataFrame:
    """``loadramp.history``: the lines of the history in the directory ``path``, oldest first: one a run and metric.

    Columns: ``night`` (UTC time stamp), ``scenario``, ``kind`` (measured, failed, accepted, alarm), ``metric``,
    ``value`` with ``low`` and ``high`` (95 % interval, in the unit that the metric's name ends in), ``repeat``,
    ``rerun``, ``run``, ``exit_code``, ``reason``, and a column for each key of the fingerprint.

    Raises:
        ScenarioError: there is no history.
        OSError: it cannot be read.
    """
    import pandas as pd

    folder = Path(path)
    if not is_history(folder):
        raise ScenarioError(f"{folder}: no {FILE} here; expected the directory that `loadramp nightly --history` names")
    entries, _ = History(folder).read()
    return pd.read_csv(io.StringIO(str(csv_nights(entries)["history.csv"])), parse_dates=["night"])


def otava(entries: Sequence[Entry]) -> Files:
    """A file a metric, with a line a night, and ``otava.yaml``: ``otava analyze loadramp --config-file otava.yaml``.

    One series a metric: Otava takes no empty cell, and a night may lack one metric and have another. It pins its own
    numpy and scipy, so it needs an environment of its own.
    """
    every = all_series(of_series(entries))
    metrics = [metric for metric in METRICS if metric in every]
    files: Files = {f"otava-{metric}.csv": _table(metric, every[metric]) for metric in metrics}
    return files | {"otava.yaml": _config(metrics)}


def _table(metric: str, nights: Sequence[Night]) -> str:
    lines = [[night.night, *(night.fingerprint.get(name, "-") for name in ATTRIBUTES), night.value] for night in nights]
    return csv_text(["time", *ATTRIBUTES, metric], lines)


def _config(metrics: Sequence[str]) -> str:
    tests = {
        metric: {
            "type": "csv",
            "file": f"otava-{metric}.csv",
            "time_column": "time",
            "attributes": list(ATTRIBUTES),
            "metrics": {
                metric: {
                    "column": metric, "direction": 1 if METRICS[metric].better == "higher" else -1, "scale": 1.0
                }
            },
        }
        for metric in metrics
    }  # fmt: skip
    how = "# otava analyze loadramp --config-file otava.yaml   (from the directory of these files)\n"
    return how + yaml.safe_dump({"tests": tests, "test_groups": {"loadramp": list(metrics)}}, sort_keys=False)


def night_junit(outcome: NightOutcome, scenario: str) -> str:
    """One case a judged metric and one a floor. A new change for the worse fails, what was not measured is an error.

    A metric that joins a change which an earlier night has told passes, as that night has failed.
    """
    cases = [_case(standing, outcome) for standing in outcome.standings]
    status: dict[str, Literal["pass", "fail", "error"]] = {"pass": "pass", "fail": "fail", "inconclusive": "error"}
    cases += [TestCase(f"floor {floor.rule}", status[floor.status], minimum_words(floor)) for floor in outcome.floors]
    return suite(scenario, cases, {"scenario": scenario, "began_at": outcome.night}, 0.0, headline(outcome)[0])


def night_annotations(outcome: NightOutcome, scenario: str) -> str:
    """Workflow commands: new changes for the worse and broken floors as errors, the rest as warnings or a notice."""
    errors = [_change_line(change) for change in outcome.changes if change.fails]
    errors += [f"floor {minimum_words(floor)}" for floor in outcome.floors if floor.status == "fail"]
    warnings = [
        f"{METRICS[standing.metric].words}: {standing_words(standing)}"
        for standing in outcome.standings
        if standing.state in {"missing", "suspect"}
    ]
    warnings += [
        _change_line(change) for change in outcome.changes if change.direction == "worse" and change.known_before
    ]
    notices = [] if errors or warnings else [headline(outcome)[0]]
    lines = [
        *commands("error", scenario, errors),
        *commands("warning", scenario, warnings),
        *commands("notice", scenario, notices),
    ]
    return "".join(f"{line}\n" for line in lines)


def _change_line(change: Change) -> str:
    """One line a change: of a single metric its alarm."""
    return alarm_words(change.alarms[0]) if len(change.alarms) == 1 else change_words(change)


def _case(standing: Standing, outcome: NightOutcome) -> TestCase:
    changes = [alarm_words(alarm) for alarm in outcome.alarms if alarm.metric == standing.metric]
    words = (
        " ".join(changes)
        or f"{number(standing.metric, standing.value)} against {baseline_words(standing)}: {standing_words(standing)}"
    )
    fails = any(
        alarm.metric == standing.metric for change in outcome.changes if change.fails for alarm in change.alarms
    )
    failed: Literal["pass", "fail", "error"] = "fail" if fails else "pass"
    return TestCase(standing.metric, "error" if standing.state == "missing" else failed, words)


HISTORY_EXPORTERS: dict[str, Callable[[Sequence[Entry]], Files]] = {
    "csv": csv_nights,
    "otava": otava,
}
