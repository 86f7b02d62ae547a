"""A tuning in words: sentence, table, JSON document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from shlex import quote
from typing import Any

from rich.table import Table as RichTable

from loadramp.record.codec import plain_data
from loadramp.tune.effects import FlagEffect, alone, reasons
from loadramp.tune.flags import FLAGS, PORT, apart, command_of
from loadramp.tune.noise import ObjectiveLevel, better, drift_of
from loadramp.tune.race import RaceRules
from loadramp.tune.score import TOKENS, UNITS
from loadramp.tune.state import TuneState
from loadramp.tune.verdict import TuneVerdict
from loadramp.tune.visit import Visit
from loadramp.units import NOTHING, latency, percent, sig, signed, span, span_of

SCHEMA = "loadramp.tune/1"
FLAG_WIDTH = 26
"""Columns of a terminal for flags: one is seldom broken, and the other columns have room."""
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
    found: TuneVerdict
    server: str = ""

    @property
    def unit(self) -> str:
        return UNITS[self.state.objective]

    @property
    def command(self) -> str:
        """The command line of the best configuration; its flags alone where others start the server."""
        best = self.found.best
        if best is None:
            return ""
        if not self.server:
            return best
        return " ".join(_quoted(word) for word in command_of(self.server, best, SHOWN_PORT))

    @property
    def effects(self) -> list[FlagEffect]:
        """What each flag did on its own."""
        return alone(self.rules.baseline, self.found.now.levels, self.state.visits)

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """(flag of the best configuration, why it is there)."""
        best, levels = self.found.best, self.found.now.levels
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
        return next((one for one in reversed(self.visits) if one.state == "measured"), self.visits[-1])


def lines_of(tuning: JudgedTuning) -> list[Line]:
    """All configurations: measured ones by rank, then those without a number."""
    found = []
    for flags in dict.fromkeys(one.flags for one in tuning.state.visits):
        own = [one for one in tuning.state.visits if one.flags == flags]
        failed = next((one for one in own if one.failed), None)
        out = tuning.found.now.out.get(flags, "")
        state = failed.state if failed else "out" if out else "measured"
        reason = failed.reason if failed else out or ("" if flags in tuning.found.now.levels else own[-1].reason)
        found.append(Line(flags, state, reason, tuning.found.now.levels.get(flags), own))
    return sorted(found, key=lambda line: (line.level is None, -line.level.mean if line.level else 0.0))


def sentence(tuning: JudgedTuning) -> str:
    """The answer in a sentence or two."""
    found = tuning.found
    if found.word == "not_measurable":
        return f"The baseline could not be measured: {found.why or 'no number was found'}."
    best, level = _name(tuning, found.best), found.level
    shown = f"{OBJECTIVES[tuning.state.objective]} {_value(tuning, level)}" if level else ""
    if found.word == "undecided":
        more = f", {_by_how_much(tuning)}" if found.over_baseline else ""
        return f"Undecided ({found.why}). So far the best is {best}: {shown}{more}, not confirmed."
    early = f" It ended early: {found.why}." if found.why else ""
    if found.word == "no_difference":
        between = f"between {best} and {_name(tuning, found.rival)}"
        return f"No difference shown larger than {percent(found.tie, 2)} {between}.{early}"
    if found.over_baseline is None:
        return f"No candidate is better than the baseline: {shown}.{early}"
    close = close_ones(tuning)
    named = [*close[:NAMED], f"{len(close) - NAMED} more"] if len(close) > NAMED else close
    also = f" Not told apart from it by the race: {', '.join(named)}." if close else ""
    if found.tie is None or found.rival is None:
        return f"The best is {best}: {shown}, {_by_how_much(tuning)}.{also}{early}"
    other = f"{found.rival} is not shown to differ from it (at most {percent(found.tie, 2)})"
    return f"{best}: {shown}, {_by_how_much(tuning)}. {other}.{also}{early}"


def close_ones(tuning: JudgedTuning) -> list[str]:
    """What the race has not shown to be below the best, the best and its rival left out."""
    now, two = tuning.found.now, {tuning.found.best, tuning.found.rival}
    best = now.levels.get(tuning.found.best or "")
    others = [flags for flags in now.alive if flags not in two]
    return [flags for flags in others if best is not None and not better(best, now.levels[flags])]


def _by_how_much(tuning: JudgedTuning) -> str:
    ratio = tuning.found.over_baseline
    assert ratio is not None
    sign = tuning.rules.sign
    mean, ends = exp(sign * ratio.mean), sorted((exp(sign * ratio.low), exp(sign * ratio.high)))
    how = "" if tuning.found.confirmed else ", by the race alone"
    return f"{sig(mean)} times the baseline's ({sig(ends[0])} to {sig(ends[1])}{how})"


def _name(tuning: JudgedTuning, flags: str | None) -> str:
    if flags is None:
        return "nothing"
    return "the baseline" if flags == tuning.rules.baseline else flags


def _value(tuning: JudgedTuning, level: ObjectiveLevel | None) -> str:
    if level is None:
        return NOTHING
    value, low, high = level.values(tuning.rules.sign)
    return f"{sig(value)} {tuning.unit} ({span_of(low, high)})"


def of_run_words(state: TuneState, value: float | None) -> str:
    """That the baseline, which has ``value``, is not what the run of ``--from`` measured; empty where it may be."""
    told = state.of_run_value
    if told is None or value is None or 1.0 / OTHER <= value / told <= OTHER:
        return ""
    return (
        f"The {OBJECTIVES[state.objective]} of the baseline is {sig(value)} {UNITS[state.objective]}, that of "
        f"{state.of_run} {sig(told)}: other flags, another load or another machine. Its cures may not fit; --baseline "
        "takes the flags that its server ran with."
    )


def cautions(tuning: JudgedTuning) -> list[str]:
    """What to know beside the answer."""
    own = next((one.value for one in tuning.state.visits if one.flags == tuning.rules.baseline), None)
    return [words for words in (of_run_words(tuning.state, own), drift_words(tuning)) if words]


def drift_words(tuning: JudgedTuning) -> str:
    """What the returns to the baseline show of the host; empty where it stayed as it was."""
    found = drift_of(tuning.state.visits, tuning.rules.baseline)
    if found is None:
        return ""
    first, last = found
    change = signed(last / first - 1.0, 2)
    return (
        f"The baseline moved from {sig(first)} to {sig(last)} {tuning.unit} ({change}) between its first and its last "
        "measurement: the host drifts, or one start of the server differs from another. The intervals count this as "
        "scatter."
    )


def tuning_document(tuning: JudgedTuning) -> dict[str, Any]:
    """What ``--json`` prints."""
    found = tuning.found
    ratio, sign = found.over_baseline, tuning.rules.sign
    over = {}
    if ratio is not None:
        ends = sorted((exp(sign * ratio.low), exp(sign * ratio.high)))
        over = {"ratio": exp(sign * ratio.mean), "ratio_low": ends[0], "ratio_high": ends[1],
                "confirmed": found.confirmed}  # fmt: skip
    document = {
        "schema": SCHEMA,
        "tune_dir": tuning.path,
        "verdict": found.word,
        "sentence": sentence(tuning),
        "objective": tuning.state.objective,
        "unit": tuning.unit,
        "best": None if found.best is None else {**_objective(tuning, found.best, found.level), **over},
        "baseline": _objective(tuning, tuning.rules.baseline, found.baseline),
        "no_difference_above_ratio": found.tie,
        "not_told_apart": close_ones(tuning),
        "candidates": [candidate_of(tuning, line) for line in lines_of(tuning) if line.flags != tuning.rules.baseline],
        "not_tried": [{"flags": flags, "reason": why} for flags, why in found.now.descent.left],
        "flags_alone": [{"flags": one.flag, "effect": one.words(sign)} for one in tuning.effects],
        "command": tuning.command,
        "reasons": [{"flags": flag, "reason": why} for flag, why in tuning.reasons],
        "reason": found.why,
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
        "visits": len(line.visits), "start_s": _start_s(line), "exit_code": last.exit_code,
        "log_tail": list(last.log_tail), **{f"{name}": value for name, value in last.facts.items()},
    }  # fmt: skip


def _start_s(line: Line) -> float | None:
    starts = [one.start_s for one in line.visits if one.start_s is not None]
    return sum(starts) / len(starts) if starts else None


HEADS = ("Flags", "Rank", "Objective", "Ceiling", "p99 ITL knee", "SLO capacity", "TTFT p99", "ITL p99", "KV cache",
         "Preemptions", "Start", "Cost of 1M", "Measured", "State")  # fmt: skip


def table_of(tuning: JudgedTuning) -> list[list[str]]:
    """The configurations' table, a line each, in the order of HEADS."""
    rows = []
    for rank, line in enumerate(lines_of(tuning), 1):
        facts = line.last.facts
        shown = apart(tuning.rules.baseline, line.flags) if line.flags != tuning.rules.baseline else "baseline"
        rows.append([
            shown, str(rank) if line.level else NOTHING, _value(tuning, line.level),
            *(sig(facts.get(name)) or NOTHING for name in ("ceiling_rps", "p99_itl_knee_rps", "slo_capacity_rps")),
            latency(facts.get("ttft_p99_s")) or NOTHING, latency(facts.get("itl_p99_s")) or NOTHING,
            percent(facts.get("kv_used_ratio_max"), 2) or NOTHING, sig(facts.get("preemptions")) or NOTHING,
            span(_start_s(line)) or NOTHING, sig(_cost(tuning, line)) or NOTHING, str(len(line.visits)),
            _state_words(tuning, line),
        ])  # fmt: skip
    return rows


def _state_words(tuning: JudgedTuning, line: Line) -> str:
    """``best``, ``out: shown to be below the best``; what failed says so itself."""
    found = tuning.found
    if found.word == "best" and line.flags == found.best:
        return "best"
    tied = found.rival if found.tie is not None else None
    if found.word == "best" and line.flags in {tied, *close_ones(tuning)}:
        return "not told apart from the best"
    if line.state == "measured" or not line.reason:
        return line.state if line.level is not None or not line.reason else f"no number: {line.reason}"
    return f"out: {line.reason}" if line.state == "out" else line.reason


def _cost(tuning: JudgedTuning, line: Line) -> float | None:
    """Of a million output tokens at what the configuration sustains; None without a price."""
    rate_rps = line.last.facts.get("slo_capacity_rps") or line.last.facts.get("ceiling_rps")
    tokens = line.last.facts.get("output_tokens_mean")
    if tuning.state.price_per_hour is None or not rate_rps or not tokens:
        return None
    return tuning.state.price_per_hour / 3600.0 / (rate_rps * tokens) * TOKENS


def tuning_table(tuning: JudgedTuning) -> RichTable:
    """The table for a terminal."""
    table = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    rows = table_of(tuning)
    widest = max((len(row[0]) for row in rows), default=0)
    for head in ("Flags", "Rank", "Objective", "Measured", "State"):
        table.add_column(head, overflow="fold", width=min(widest, FLAG_WIDTH) if head == "Flags" else None)
    for row in rows:
        table.add_row(row[0], row[1], row[2], row[12], row[13])
    return table


def _quoted(word: str) -> str:
    return word if word in {PORT, FLAGS} else quote(word)
