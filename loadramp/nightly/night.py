"""One night: some short runs, their numbers in the history, and a verdict on whether the level moved.

Rule: what could not be measured is written down and judged as nothing; only measured nights can be worse.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from loadramp.analysis.thresholds import Status
from loadramp.nightly.alarms import Rules
from loadramp.nightly.conditions import digest_of, fingerprint_of
from loadramp.nightly.export import night_annotations, night_junit
from loadramp.nightly.history import Alarm, Entry, History, skipped_words
from loadramp.nightly.page import build_trend_html
from loadramp.nightly.series import latest_night, readings
from loadramp.nightly.table import nightly_of
from loadramp.nightly.text import night_document, night_markdown
from loadramp.nightly.trend import NightOutcome, judge_night
from loadramp.record.row import Row
from loadramp.record.run_directory import check_place
from loadramp.record.table import Run
from loadramp.record.types import Step, Stop
from loadramp.registry import CannotMeasure, Choice, ScenarioError
from loadramp.report.exporters.ci import shortened
from loadramp.report.progress import Watch
from loadramp.runner.finish import COULD_NOT_MEASURE, EXIT, Finished
from loadramp.runner.gate_check import check_rules
from loadramp.runner.launch import Say, ramp
from loadramp.runner.scenarios import Options
from loadramp.scenario.scenario import Scenario

INTERRUPTED = 128
Ramp = Callable[..., Awaitable[Finished]]


@dataclass(slots=True, frozen=True)
class NightFinished:
    """A night that was judged, its runs, and the exit code it comes to."""

    outcome: NightOutcome
    exit_code: int
    document: dict[str, Any]
    runs: Sequence[str] = ()


@dataclass(slots=True)
class Measuring:
    """One night as it goes on. ``ramp`` makes one run: ``launch.ramp``, or its like in a test."""

    scenario: Scenario
    options: Options
    history: History
    say: Say
    watch: Watch = lambda _: None
    argv: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    ramp: Ramp = ramp
    night: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    entries: list[Entry] = field(default_factory=list)
    """The whole history, this night's lines included."""
    runs: list[Finished] = field(default_factory=list)
    interrupted: int = 0
    """The exit code of an interrupted run."""

    async def measure(self) -> NightFinished:
        """Run, write down, judge, measure again where asked, report.

        Raises:
            ScenarioError: the scenario, the history or a clock is wrong; nothing was sent.
            OSError: the history cannot be written.
        """
        check_rules(self.scenario)
        check_place(self.history.path, "--history")
        if self.scenario.pace.unit != "rps":
            raise ScenarioError(
                "a nightly scenario needs [ramp] unit = 'rps': its reference rate is in requests a second"
            )
        self.entries, skipped = self.history.read()
        if skipped:
            self.say(skipped_words(self.history.file, skipped))
        last = latest_night(entry for entry in self.entries if entry.scenario == self.scenario.name)
        if last >= self.night:
            raise ScenarioError(
                f"{self.history.file}: holds a night of {last}, and this one begins at {self.night}: nights are judged "
                "in order of time; put the clock right, or take the lines of the wrong night out"
            )
        await self._repeats(rerun=False)
        outcome = self.judge()
        if nightly_of(self.scenario).rerun and outcome.suspects and not self.interrupted:
            self.say(f"{', '.join(outcome.suspects)} looks worse: measuring once more")
            await self._repeats(rerun=True)
            outcome = self.judge()
        self._note([self._alarm_entry(alarm) for alarm in outcome.alarms])
        return self._finish(outcome)

    def judge(self) -> NightOutcome:
        """This night against those before it."""
        settings = nightly_of(self.scenario)
        return judge_night(
            self.entries,
            scenario=self.scenario.name,
            metrics=settings.metrics,
            floors=settings.floors,
            rules=Rules(change_ratio=settings.change_ratio),
        )

    async def _repeats(self, *, rerun: bool) -> None:
        for repeat in range(nightly_of(self.scenario).repeats):
            try:
                finished = await self.ramp(self._prepared(), self.options, self.say, self.watch, argv=self.argv)
            except CannotMeasure as error:
                self.say(f"could not measure: {error}")
                self._note([self._failed(repeat, rerun, str(error), COULD_NOT_MEASURE)])
                return  # an endpoint that is not there will not be there in a second
            self.runs.append(finished)
            self._note(self._lines(finished, repeat, rerun))
            if finished.exit_code >= INTERRUPTED:
                self.interrupted = finished.exit_code
                return

    def _prepared(self) -> Scenario:
        """The scenario, with a step at the reference rate before its own, once that rate is known."""
        reference_rps = self._reference_rps()
        return self.scenario if reference_rps is None else with_reference(self.scenario, reference_rps)

    def _reference_rps(self) -> float | None:
        """As the scenario says, else what the history's latest night of this scenario was measured at."""
        settings = nightly_of(self.scenario)
        if settings.reference_rps is not None:
            return settings.reference_rps
        digest = self._digest()
        for entry in reversed(self.entries):
            known = entry.fingerprint.get("reference_rps")
            if entry.kind == "measured" and known and entry.fingerprint.get("scenario") == digest:
                return float(known)
        return None

    def _digest(self) -> str:
        return digest_of(self.scenario.source, self.scenario.overrides)

    def _lines(self, finished: Finished, repeat: int, rerun: bool) -> list[Entry]:
        run, code = finished.run, finished.exit_code
        if code == COULD_NOT_MEASURE or code >= INTERRUPTED or run.info.verdict == "void":
            return [self._failed(repeat, rerun, _why(run, code), code, run.path)]
        known_rps = self._reference_rps()
        reference_rps = known_rps or _half(run, nightly_of(self.scenario).reference_ratio)
        labels = {**self.scenario.target.labels, **nightly_of(self.scenario).labels, **self.labels}
        fingerprint = fingerprint_of(run, self._digest(), labels, reference_rps)
        return [
            Entry(
                self.night, self.scenario.name, "measured", metric, reading.value, reading.low, reading.high, repeat,
                rerun, run.path, code, reading.reason, fingerprint, sets_reference=reading.sets_reference,
            )
            for metric, reading in readings(run, reference_rps, set_now=known_rps is None).items()
        ]  # fmt: skip

    def _failed(self, repeat: int, rerun: bool, reason: str, code: int, path: str = "") -> Entry:
        return Entry(
            self.night,
            self.scenario.name,
            "failed",
            repeat=repeat,
            rerun=rerun,
            run=path,
            exit_code=code,
            reason=reason,
        )

    def _alarm_entry(self, alarm: Alarm) -> Entry:
        fingerprint = next((e.fingerprint for e in reversed(self.entries) if e.kind == "measured"), {})
        return Entry(
            self.night, self.scenario.name, "alarm", alarm.metric, alarm.after, fingerprint=fingerprint,
            alarm=alarm,
        )  # fmt: skip

    def _note(self, entries: list[Entry]) -> None:
        if entries:
            self.history.append(entries)
            self.entries += entries

    def _finish(self, outcome: NightOutcome) -> NightFinished:
        code = self.interrupted or exit_code(outcome, self.runs)
        runs = [finished.run.path for finished in self.runs]
        document = night_document(outcome, code, runs, self.scenario.name)
        self.history.write("trend.html", build_trend_html(self.entries, self.scenario.name, outcome))
        self.history.write("night.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
        self.history.write("night.md", shortened(night_markdown(outcome, self.scenario.name)))
        self.history.write("junit.xml", night_junit(outcome, self.scenario.name))
        self.history.write("annotations.txt", night_annotations(outcome, self.scenario.name))
        return NightFinished(outcome, code, document, runs)


def with_reference(scenario: Scenario, reference_rps: float) -> Scenario:
    """``scenario`` as a night ramps it: the step at the reference rate first."""
    options = {"ramp": scenario.ramp, "rate_rps": reference_rps, "measure_s": nightly_of(scenario).reference_s}
    return replace(scenario, ramp=Choice(scenario.ramp.kind, reference_first, options))


def reference_first(
    rows: Sequence[Row], *, ramp: Choice, rate_rps: float, measure_s: float | None = None
) -> Step | Stop:
    """A ramp: one step at the reference rate (a void one is offered once more), then what ``ramp`` proposes.

    ``ramp`` does not see these steps.
    """
    reference_steps = 2 if rows and rows[0].void else 1
    if len(rows) < reference_steps:
        return Step(len(rows), rate_rps=rate_rps, measure_s=measure_s)
    proposed: Step | Stop = ramp(rows[reference_steps:])
    return proposed


def exit_code(outcome: NightOutcome, runs: Sequence[Finished]) -> int:
    """99 for a new change for the worse, a broken floor or a failed threshold; 1 when nothing was measured; 3 when a
    judged metric was not; else 0. A change that an earlier night has told, by any metric, is no failure of this one."""
    verdicts = [finished.run.info.verdict for finished in runs]
    codes = [finished.exit_code for finished in runs]
    if not runs or all(code == COULD_NOT_MEASURE for code in codes):
        return COULD_NOT_MEASURE
    asked = [overall_of(finished) for finished in runs]
    broken = any(floor.status == "fail" for floor in outcome.floors)
    if broken or middle(asked) == "fail" or any(change.fails for change in outcome.changes):
        return EXIT["fail"]
    missing = any(standing.state == "missing" for standing in outcome.standings)
    unknown = any(floor.status == "inconclusive" for floor in outcome.floors)
    if missing or unknown or middle(asked) == "inconclusive" or all(word == "void" for word in verdicts):
        return EXIT["inconclusive"]
    return 0


def overall_of(finished: Finished) -> Status:
    """What a run's own thresholds and SLO came to; a run that asked nothing passes."""
    if finished.exit_code == EXIT["fail"]:
        return "fail"
    return "inconclusive" if finished.run.gates and finished.exit_code == EXIT["inconclusive"] else "pass"


def middle(words: Sequence[Status]) -> Status:
    """The median of the runs' verdicts: one bad run of three is not a bad night."""
    order: list[Status] = ["pass", "inconclusive", "fail"]
    return sorted(words, key=order.index)[len(words) // 2]


def _half(run: Run, ratio: float) -> float | None:
    """The reference rate that a ceiling found leads to, at three digits."""
    ceiling = run.estimates.get("ceiling")
    if ceiling is None or ceiling.status != "found" or not ceiling.rate_rps:
        return None
    return float(f"{ratio * ceiling.rate_rps:.3g}")


def _why(run: Run, code: int) -> str:
    if code >= INTERRUPTED:
        return "interrupted"
    if code == COULD_NOT_MEASURE:
        return run.info.ending or "could not measure"
    return f"void: {next((row.void[0].what for row in run.rows if row.void), '')}"
