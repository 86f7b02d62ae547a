"""A judged night for CI servers: JUnit XML and GitHub annotations. Pure."""

from typing import Literal

from loadramp.nightly.alarms import Change
from loadramp.nightly.series import METRICS
from loadramp.nightly.text import (
    alarm_words,
    baseline_words,
    change_words,
    floor_words,
    headline,
    number,
    standing_words,
)
from loadramp.nightly.trend import NightOutcome, Standing
from loadramp.report.exporters.ci import TestCase, commands, suite


def night_junit(outcome: NightOutcome, scenario: str) -> str:
    """One case a judged metric and one a floor. A new change for the worse fails, what was not measured is an error.

    A metric that joins a change which an earlier night has told passes, as that night has failed.
    """
    found = [_case(one, outcome) for one in outcome.standings]
    status: dict[str, Literal["pass", "fail", "error"]] = {"pass": "pass", "fail": "fail", "inconclusive": "error"}
    found += [TestCase(f"floor {floor.rule}", status[floor.status], floor_words(floor)) for floor in outcome.floors]
    return suite(scenario, found, {"scenario": scenario, "began_at": outcome.night}, 0.0, headline(outcome)[0])


def night_annotations(outcome: NightOutcome, scenario: str) -> str:
    """Workflow commands: new changes for the worse and broken floors as errors, the rest as warnings or a notice."""
    errors = [_told(change) for change in outcome.changes if change.fails]
    errors += [f"floor {floor_words(floor)}" for floor in outcome.floors if floor.status == "fail"]
    warnings = [
        f"{METRICS[one.metric].words}: {standing_words(one)}"
        for one in outcome.standings
        if one.state in {"missing", "suspect"}
    ]
    warnings += [_told(change) for change in outcome.changes if change.direction == "worse" and change.told]
    notices = [] if errors or warnings else [headline(outcome)[0]]
    lines = [
        *commands("error", scenario, errors),
        *commands("warning", scenario, warnings),
        *commands("notice", scenario, notices),
    ]
    return "".join(f"{line}\n" for line in lines)


def _told(change: Change) -> str:
    """One line a change: of a single metric its alarm."""
    return alarm_words(change.alarms[0]) if len(change.alarms) == 1 else change_words(change)


def _case(one: Standing, outcome: NightOutcome) -> TestCase:
    told = [alarm_words(alarm) for alarm in outcome.alarms if alarm.metric == one.metric]
    words = " ".join(told) or f"{number(one.metric, one.value)} against {baseline_words(one)}: {standing_words(one)}"
    fails = any(alarm.metric == one.metric for change in outcome.changes if change.fails for alarm in change.alarms)
    failed: Literal["pass", "fail", "error"] = "fail" if fails else "pass"
    return TestCase(one.metric, "error" if one.state == "missing" else failed, words)
