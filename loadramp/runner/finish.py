"""From what a run left on disk to its answer: judged anew, everything derived written, the exit code. Raw is truth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from loadramp.analysis.threshold_rules import parse
from loadramp.analysis.thresholds import Unsure, judge_gates
from loadramp.record import run_directory as rundirs
from loadramp.record.run_directory import RunDir
from loadramp.record.table import Run
from loadramp.record.types import Verdict
from loadramp.report import build_html, curve_csv, summary_markdown, verdict_document
from loadramp.report.thresholds import with_gates
from loadramp.report.verdict_text import verdict
from loadramp.runner.assess import assess
from loadramp.runner.scenarios import read_run
from loadramp.scenario.scenario import Scenario

EXIT = {"pass": 0, "fail": 99, "inconclusive": 3, "void": 3}
COULD_NOT_MEASURE = 1


@dataclass(slots=True, frozen=True)
class Finished:
    """A run that was judged, and the exit code it comes to."""

    run: Run
    exit_code: int


def write_report(path: Path, scenario: Scenario | None = None) -> Finished:
    """Judge the run in ``path`` anew and write everything derived.

    Raises:
        RunDirError: it is no run.
        OSError: the files cannot be written.
    """
    finished = judge(path, scenario)
    write(finished.run)
    return finished


def judge(
    path: Path, scenario: Scenario | None = None, rules: Sequence[str] = (), when_unsure: Unsure | None = None
) -> Finished:
    """The answer of the run in ``path``, by ``rules`` or (without any) by the thresholds of its scenario; nothing is
    written.

    Raises:
        ScenarioError: it is no run, or a rule is none.
    """
    for rule in rules:
        parse(rule)
    run, skipped = read_run(path, scenario)
    if run.info.state == "running" and not rundirs.in_use(path):
        run.info.killed = True
    return judge_run(run, skipped, rules, when_unsure)


def judge_run(run: Run, skipped: int = 0, rules: Sequence[str] = (), when_unsure: Unsure | None = None) -> Finished:
    """The answer of ``run``, ``skipped`` lines of whose files could not be read; thresholds as for ``judge``."""
    run.info.verdict, run.info.skipped_lines = None, skipped
    run.info.slo = run.scenario.slo  # the scenario tells the limits; run.json only repeats them
    assess(run)
    gates = run.scenario.gates
    run.gates = judge_gates(run, rules or gates.rules, when_unsure or gates.when_unsure)
    word = with_gates(verdict(run), run)
    run.info.verdict = word
    return Finished(run, exit_code(run, word))


def write(run: Run) -> None:
    """Write everything derived of a run that was judged.

    Raises:
        OSError: the files cannot be written.
    """
    rundir = RunDir(Path(run.path))
    rundir.save_info(replace(run.info, estimates=run.estimates, checks=run.checks))
    rundir.write("curve.csv", curve_csv(run))
    rundir.write_json("verdict.json", verdict_document(run))
    rundir.write("summary.md", summary_markdown(run))
    rundir.write("report.html", build_html(run))


def exit_code(run: Run, word: Verdict) -> int:
    """The contract's exit code. Where nothing succeeded, or the endpoint went away, it could not be measured."""
    answered = any(row.ok for row in run.rows)
    if not answered or run.info.stop_cause in {"gone", "refused"}:
        return COULD_NOT_MEASURE
    return EXIT[word]
