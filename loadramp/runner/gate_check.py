"""Thresholds before and after a run: whether they can be judged at all, and a stored run judged by them.

Nothing here writes.
"""

from collections.abc import Sequence
from pathlib import Path

from loadramp.analysis.threshold_rules import parse
from loadramp.analysis.thresholds import Unsure, judge_gates
from loadramp.record.table import Run
from loadramp.registry import FEATURES, ScenarioError, reach
from loadramp.report.thresholds import with_gates
from loadramp.report.verdict_text import verdict
from loadramp.runner.assess import assess
from loadramp.runner.scenarios import read_run
from loadramp.scenario.scenario import Scenario

NEEDS_A_STREAM = frozenset({
    "ttft_s", "sent_ttft_s", "itl_s", "gap_s", "tpot_s", "all_ttft_s", "stalled_ratio", "knee_rps",
})  # fmt: skip
"""What thresholds may name and only a stream can tell."""


def check_rules(scenario: Scenario) -> None:
    """Find out before a run that every threshold can be judged after it, by detectors from outside too.

    Raises:
        ScenarioError: one is no rule, or names what does not exist.
    """
    scenario.knee([])
    if not scenario.target.stream:
        _need_no_stream(scenario)
    rules = [parse(text) for text in scenario.gates.rules]
    if scenario.gates.abort and not any(rule.place for rule in rules):
        raise ScenarioError("[gates] abort: no rule is on a step (@ rate = 8), so none can be missed before the end")
    for feature in FEATURES.values():
        if feature.check:
            reach(feature.check)(scenario)


def _need_no_stream(scenario: Scenario) -> None:
    """Answers that come whole have one instant: no limit on what only a stream can tell."""
    why = "needs a stream, and [target] stream = false; limit e2e_s, or set stream = true"
    for name in ("ttft_s", "itl_s", "tpot_s"):
        if getattr(scenario.slo, name) is not None:
            raise ScenarioError(f"[slo] {name}: {why}")
    for text in scenario.gates.rules:
        if parse(text).name in NEEDS_A_STREAM:
            raise ScenarioError(f"[gates] rules: {text!r} {why}")


def judged_run(path: Path, rules: Sequence[str] = (), when_unsure: Unsure | None = None) -> Run:
    """The run in ``path``, judged anew, by ``rules`` or (without any) by the thresholds of its scenario.

    ``info.verdict`` is what all of it comes to.

    Raises:
        ScenarioError: it is no run, or a rule is none.
    """
    for rule in rules:
        parse(rule)
    run, _ = read_run(path)
    run.info.verdict = None
    assess(run)
    gates = run.scenario.gates
    run.gates = judge_gates(run, rules or gates.rules, when_unsure or gates.when_unsure)
    run.info.verdict = with_gates(verdict(run), run)
    return run
