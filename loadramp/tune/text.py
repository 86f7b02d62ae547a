"""A tuning in words: sentence, JSON document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from shlex import quote
from typing import Any

from loadramp.record.codec import plain_data
from loadramp.tune.effects import FlagEffect, alone, reasons
from loadramp.tune.flags import FLAGS, PORT, command_of
from loadramp.tune.noise import ObjectiveLevel, better, drift_of
from loadramp.tune.race import RaceRules
from loadramp.tune.score import UNITS
from loadramp.tune.state import TuneState
from loadramp.tune.verdict import EXIT_CODES, TuneVerdict
from loadramp.tune.visit import Visit
from loadramp.units import NOTHING, percent, sig, signed, span_of

SCHEMA = "loadramp.tune/1"
OTHER = 1.5
"""A baseline that lies so many times above or below the run of ``--from`` is not what that measured."""
NAMED = 2
"""Configurations that a sentence names; the table has the others."""
SHOWN_PORT = 8000
OBJECTIVES = {
    "slo_capacity": "SLO capacity", "ceiling": "ceiling", "goodput": "goodput",
    "cost": "cost",
}  # fmt: skip


@dataclass(slots=True, frozen=True)
class JudgedTuning:
    """A tuning with its answer."""

    path: str
    state: TuneState
    rules: RaceRules
    verdict: TuneVerdict
    server: str = ""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict.word]

    @property
    def unit(self) -> str:
        return UNITS[self.state.objective]

    @property
    def command(self) -> str:
        """The command line of the best configuration; its flags alone where others start the server."""
        best = self.verdict.best
        if best is None:
            return ""
        if not self.server:
            return best
        return " ".join(_quoted(word) for word in command_of(self.server, best, SHOWN_PORT))

    @property
    def effects(self) -> list[FlagEffect]:
        """What each flag did on its own."""
        return alone(self.rules.baseline, self.verdict.now.levels, self.state.visits)

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """(flag of the best configuration, why it is there)."""
        best, levels = self.verdict.best, self.verdict.now.levels
        if best is None:
            return []
        return reasons(best, self.rules.baseline, levels, self.state.visits, self.state.cures, self.rules.sign)


@dataclass(slots=True, frozen=True)
class Line:
    """One configuration of the table, the best first."""

    flags: str
    state: str
    reason: str
    level: ObjectiveLevel | None
    visits: Sequence[Visit]

    @property
    def last(self) -> Visit:
        """The visit whose facts are shown: the last one that was measured, else the last."""
        return next((visit for visit in reversed(self.visits) if visit.state == "measured"), self.visits[-1])


def lines_of(tuning: JudgedTuning) -> list[Line]:
    """All configurations: measured ones by rank, then those without a number."""
    lines = []
    for flags in dict.fromkeys(visit.flags for visit in tuning.state.visits):
        visits = [visit for visit in tuning.state.visits if visit.flags == flags]
        failed = next((visit for visit in visits if visit.failed), None)
        out = tuning.verdict.now.out.get(flags, "")
        state = failed.state if failed else "out" if out else "measured"
        reason = failed.reason if failed else out or ("" if flags in tuning.verdict.now.levels else visits[-1].reason)
        lines.append(Line(flags, state, reason, tuning.verdict.now.levels.get(flags), visits))
    return sorted(lines, key=lambda line: (line.level is None, -line.level.mean if line.level else 0.0))


def sentence(tuning: JudgedTuning) -> str:
    """The answer in a sentence or two."""
    verdict = tuning.verdict
    if verdict.word == "not_measurable":
        return f"The baseline could not be measured: {verdict.why or 'no number was found'}."
    best, level = _name(tuning, verdict.best), verdict.level
    shown = f"{OBJECTIVES[tuning.state.objective]} {value_words(tuning, level)}" if level else ""
    if verdict.word == "undecided":
        more = f", {_by_how_much(tuning)}" if verdict.over_baseline else ""
        return f"Undecided ({verdict.why}). So far the best is {best}: {shown}{more}, not confirmed."
    now = verdict.now
    unknown = dict.fromkeys(visit.flags for visit in tuning.state.visits if visit.flags not in {*now.levels, *now.out})
    early = f" No number was found of {_some(list(unknown))}." if unknown else ""
    early += f" It ended early: {verdict.why}." if verdict.why else ""
    if verdict.word == "no_difference":
        between = f"between {best} and {_name(tuning, verdict.rival)}"
        return f"No difference shown larger than {percent(verdict.tie, 2)} {between}.{early}"
    if verdict.over_baseline is None:
        return f"No candidate is better than the baseline: {shown}.{early}"
    close = close_ones(tuning)
    also = f" Not told apart from it by the race: {_some(close)}." if close else ""
    if verdict.tie is None or verdict.rival is None:
        return f"The best is {best}: {shown}, {_by_how_much(tuning)}.{also}{early}"
    other = f"{verdict.rival} is not shown to differ from it (at most {percent(verdict.tie, 2)})"
    return f"{best}: {shown}, {_by_how_much(tuning)}. {other}.{also}{early}"


def _some(flags: Sequence[str]) -> str:
    """The first NAMED of them, and how many more."""
    named = [*flags[:NAMED], f"{len(flags) - NAMED} more"] if len(flags) > NAMED else flags
    return ", ".join(named)


def close_ones(tuning: JudgedTuning) -> list[str]:
    """What the race has not shown to be below the best, the best and its rival left out."""
    now, two = tuning.verdict.now, {tuning.verdict.best, tuning.verdict.rival}
    best = now.levels.get(tuning.verdict.best or "")
    others = [flags for flags in now.alive if flags not in two]
    return [flags for flags in others if best is not None and not better(best, now.levels[flags])]


def _by_how_much(tuning: JudgedTuning) -> str:
    ratio = tuning.verdict.over_baseline
    assert ratio is not None
    sign = tuning.rules.sign
    mean, ends = exp(sign * ratio.mean), sorted((exp(sign * ratio.low), exp(sign * ratio.high)))
    how = "" if tuning.verdict.confirmed else ", by the race alone"
    return f"{sig(mean)} times the baseline's ({sig(ends[0])} to {sig(ends[1])}{how})"


def _name(tuning: JudgedTuning, flags: str | None) -> str:
    if flags is None:
        return "nothing"
    return "the baseline" if flags == tuning.rules.baseline else flags


def value_words(tuning: JudgedTuning, level: ObjectiveLevel | None) -> str:
    """A level with its unit and interval."""
    if level is None:
        return NOTHING
    value, low, high = level.values(tuning.rules.sign)
    return f"{sig(value)} {tuning.unit} ({span_of(low, high)})"


def of_run_words(state: TuneState, value: float | None) -> str:
    """That the baseline, which has ``value``, is not what the run of ``--from`` measured; empty where it may be."""
    earlier = state.of_run_value
    if earlier is None or value is None or 1.0 / OTHER <= value / earlier <= OTHER:
        return ""
    return (
        f"The {OBJECTIVES[state.objective]} of the baseline is {sig(value)} {UNITS[state.objective]}, that of "
        f"{state.of_run} {sig(earlier)}: other flags, another load or another machine. Its cures may not fit; "
        "--baseline takes the flags that its server ran with."
    )


def cautions(tuning: JudgedTuning) -> list[str]:
    """What to know beside the answer."""
    baseline = next((visit.value for visit in tuning.state.visits if visit.flags == tuning.rules.baseline), None)
    return [words for words in (of_run_words(tuning.state, baseline), drift_words(tuning)) if words]


def drift_words(tuning: JudgedTuning) -> str:
    """What the returns to the baseline show of the host; empty where it stayed as it was."""
    drift = drift_of(tuning.state.visits, tuning.rules.baseline)
    if drift is None:
        return ""
    first, last = drift
    change = signed(last / first - 1.0, 2)
    return (
        f"The baseline moved from {sig(first)} to {sig(last)} {tuning.unit} ({change}) between its first and its last "
        "measurement: the host drifts, or one start of the server differs from another. The intervals count this as "
        "scatter."
    )


def tuning_document(tuning: JudgedTuning) -> dict[str, Any]:
    """What ``--json`` prints."""
    verdict = tuning.verdict
    ratio, sign = verdict.over_baseline, tuning.rules.sign
    over = {}
    if ratio is not None:
        ends = sorted((exp(sign * ratio.low), exp(sign * ratio.high)))
        over = {"ratio": exp(sign * ratio.mean), "ratio_low": ends[0], "ratio_high": ends[1],
                "confirmed": verdict.confirmed}  # fmt: skip
    document = {
        "schema": SCHEMA,
        "tune_dir": tuning.path,
        "verdict": verdict.word,
        "sentence": sentence(tuning),
        "objective": tuning.state.objective,
        "unit": tuning.unit,
        "best": None if verdict.best is None else {**_objective(tuning, verdict.best, verdict.level), **over},
        "baseline": _objective(tuning, tuning.rules.baseline, verdict.baseline),
        "no_difference_above_ratio": verdict.tie,
        "not_told_apart": close_ones(tuning),
        "candidates": [candidate_of(tuning, line) for line in lines_of(tuning) if line.flags != tuning.rules.baseline],
        "not_tried": [{"flags": flags, "reason": why} for flags, why in verdict.now.descent.left],
        "flags_alone": [{"flags": effect.flag, "effect": effect.words(sign)} for effect in tuning.effects],
        "command": tuning.command,
        "reasons": [{"flags": flag, "reason": why} for flag, why in tuning.reasons],
        "reason": verdict.why,
        "drift": drift_words(tuning),
        "spent_s": tuning.state.spent_s,
    }
    plained: dict[str, Any] = plain_data(document)
    return plained


def _objective(tuning: JudgedTuning, flags: str, level: ObjectiveLevel | None) -> dict[str, Any]:
    value, low, high = level.values(tuning.rules.sign) if level else (None, None, None)
    return {"flags": flags, "objective": value, "low": low, "high": high}


def candidate_of(tuning: JudgedTuning, line: Line) -> dict[str, Any]:
    """One configuration as JSON and CSV have it."""
    last = line.last
    run_dir = f"{tuning.path}/{last.run}" if last.run else None
    return {
        **_objective(tuning, line.flags, line.level), "state": line.state, "reason": line.reason, "run_dir": run_dir,
        "visits": len(line.visits), "start_s": start_s_of(line), "exit_code": last.exit_code,
        "log_tail": list(last.log_tail), **{f"{name}": value for name, value in last.facts.items()},
    }  # fmt: skip


def start_s_of(line: Line) -> float | None:
    """Mean time that a start of the server took."""
    starts = [visit.start_s for visit in line.visits if visit.start_s is not None]
    return sum(starts) / len(starts) if starts else None


def _quoted(word: str) -> str:
    return word if word in {PORT, FLAGS} else quote(word)
