"""A tuning in words: sentence, table, JSON document, Markdown, CSV. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

from rich.table import Table as RichTable

from loadramp.record.codec import plain_data
from loadramp.report.document import csv_text
from loadramp.tune.effects import FlagEffect, alone, reasons
from loadramp.tune.flags import FLAGS, PORT, apart, command_of
from loadramp.tune.noise import ObjectiveLevel, drift_of
from loadramp.tune.race import RaceRules
from loadramp.tune.score import TOKENS, UNITS
from loadramp.tune.state import TuneState
from loadramp.tune.verdict import TuneVerdict
from loadramp.tune.visit import Visit
from loadramp.units import NOTHING, latency, percent, plural, sig, signed, span, span_of

SCHEMA = "loadramp.tune/1"
SHOWN_PORT = 8000
OBJECTIVES = {
    "slo_capacity": "SLO capacity", "ceiling": "ceiling", "goodput": "goodput",
    "cost": "cost",
}  # fmt: skip


@dataclass(slots=True, frozen=True)
class ToldTuning:
    """A tuning as it is told."""

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


def lines_of(told: ToldTuning) -> list[Line]:
    """All configurations: measured ones by rank, then those without a number."""
    found = []
    for flags in dict.fromkeys(one.flags for one in told.state.visits):
        own = [one for one in told.state.visits if one.flags == flags]
        failed = next((one for one in own if one.failed), None)
        out = told.found.now.out.get(flags, "")
        state = failed.state if failed else "out" if out else "measured"
        reason = failed.reason if failed else out or ("" if flags in told.found.now.levels else own[-1].reason)
        found.append(Line(flags, state, reason, told.found.now.levels.get(flags), own))
    return sorted(found, key=lambda line: (line.level is None, -line.level.mean if line.level else 0.0))


def sentence(told: ToldTuning) -> str:
    """The answer in a sentence or two."""
    found = told.found
    if found.word == "not_measurable":
        return f"The baseline could not be measured: {found.why or 'no number was found'}."
    best, level = _name(told, found.best), found.level
    shown = f"{OBJECTIVES[told.state.objective]} {_value(told, level)}" if level else ""
    if found.word == "undecided":
        more = f", {_by_how_much(told)}" if found.over_baseline else ""
        return f"Undecided ({found.why}). So far the best is {best}: {shown}{more}, not confirmed."
    early = f" It ended early: {found.why}." if found.why else ""
    if found.word == "no_difference":
        between = f"between {best} and {_name(told, found.rival)}"
        return f"No difference shown larger than {percent(found.tie, 2)} {between}.{early}"
    if found.over_baseline is None:
        return f"No candidate is better than the baseline: {shown}.{early}"
    if found.tie is None or found.rival is None:
        return f"The best is {best}: {shown}, {_by_how_much(told)}.{early}"
    other = f"{found.rival} is not shown to differ from it (at most {percent(found.tie, 2)})"
    return f"{best}: {shown}, {_by_how_much(told)}. {other}.{early}"


def _by_how_much(told: ToldTuning) -> str:
    ratio = told.found.over_baseline
    assert ratio is not None
    sign = told.rules.sign
    mean, ends = exp(sign * ratio.mean), sorted((exp(sign * ratio.low), exp(sign * ratio.high)))
    how = "" if told.found.confirmed else ", by the race alone"
    return f"{sig(mean)} times the baseline's ({sig(ends[0])} to {sig(ends[1])}{how})"


def _name(told: ToldTuning, flags: str | None) -> str:
    if flags is None:
        return "nothing"
    return "the baseline" if flags == told.rules.baseline else flags


def _value(told: ToldTuning, level: ObjectiveLevel | None) -> str:
    if level is None:
        return NOTHING
    value, low, high = level.values(told.rules.sign)
    return f"{sig(value)} {told.unit} ({span_of(low, high)})"


def drift_words(told: ToldTuning) -> str:
    """What the returns to the baseline show of the host; empty where it stayed as it was."""
    found = drift_of(told.state.visits, told.rules.baseline)
    if found is None:
        return ""
    first, last = found
    change = signed(last / first - 1.0, 2)
    return (
        f"The baseline moved from {sig(first)} to {sig(last)} {told.unit} ({change}) between its first and its last "
        "measurement: the host drifts. The intervals count this as scatter."
    )


def tuning_document(told: ToldTuning) -> dict[str, Any]:
    """What ``--json`` prints."""
    found = told.found
    ratio, sign = found.over_baseline, told.rules.sign
    over = {}
    if ratio is not None:
        ends = sorted((exp(sign * ratio.low), exp(sign * ratio.high)))
        over = {"ratio": exp(sign * ratio.mean), "ratio_low": ends[0], "ratio_high": ends[1],
                "confirmed": found.confirmed}  # fmt: skip
    document = {
        "schema": SCHEMA,
        "tune_dir": told.path,
        "verdict": found.word,
        "sentence": sentence(told),
        "objective": told.state.objective,
        "unit": told.unit,
        "best": None if found.best is None else {**_objective(told, found.best, found.level), **over},
        "baseline": _objective(told, told.rules.baseline, found.baseline),
        "no_difference_above_ratio": found.tie,
        "candidates": [_candidate(told, line) for line in lines_of(told) if line.flags != told.rules.baseline],
        "not_tried": [{"flags": flags, "reason": why} for flags, why in found.now.descent.left],
        "flags_alone": [{"flags": one.flag, "effect": one.words(sign)} for one in told.effects],
        "command": told.command,
        "reasons": [{"flags": flag, "reason": why} for flag, why in told.reasons],
        "reason": found.why,
        "drift": drift_words(told),
        "spent_s": told.state.spent_s,
    }
    plained: dict[str, Any] = plain_data(document)
    return plained


def _objective(told: ToldTuning, flags: str, level: ObjectiveLevel | None) -> dict[str, Any]:
    value, low, high = level.values(told.rules.sign) if level else (None, None, None)
    return {"flags": flags, "objective": value, "low": low, "high": high}


def _candidate(told: ToldTuning, line: Line) -> dict[str, Any]:
    last = line.last
    run_dir = f"{told.path}/{last.run}" if last.run else None
    return {
        **_objective(told, line.flags, line.level), "state": line.state, "reason": line.reason, "run_dir": run_dir,
        "visits": len(line.visits), "start_s": _start_s(line), "exit_code": last.exit_code,
        "log_tail": list(last.log_tail), **{f"{name}": value for name, value in last.facts.items()},
    }  # fmt: skip


def _start_s(line: Line) -> float | None:
    starts = [one.start_s for one in line.visits if one.start_s is not None]
    return sum(starts) / len(starts) if starts else None


HEADS = ("Flags", "Rank", "Objective", "Ceiling", "p99 ITL knee", "SLO capacity", "TTFT p99", "ITL p99", "KV cache",
         "Preemptions", "Start", "Cost of 1M", "Measured", "State")  # fmt: skip


def table_of(told: ToldTuning) -> list[list[str]]:
    """The configurations' table, a line each, in the order of HEADS."""
    rows = []
    for rank, line in enumerate(lines_of(told), 1):
        facts = line.last.facts
        shown = apart(told.rules.baseline, line.flags) if line.flags != told.rules.baseline else "baseline"
        rows.append([
            shown, str(rank) if line.level else NOTHING, _value(told, line.level),
            *(sig(facts.get(name)) or NOTHING for name in ("ceiling_rps", "p99_itl_knee_rps", "slo_capacity_rps")),
            latency(facts.get("ttft_p99_s")) or NOTHING, latency(facts.get("itl_p99_s")) or NOTHING,
            percent(facts.get("kv_used_ratio_max"), 2) or NOTHING, sig(facts.get("preemptions")) or NOTHING,
            span(_start_s(line)) or NOTHING, sig(_cost(told, line)) or NOTHING, str(len(line.visits)),
            _state_words(line),
        ])  # fmt: skip
    return rows


def _state_words(line: Line) -> str:
    """``out: shown to be below the best``; what failed says so itself."""
    if line.state == "measured" or not line.reason:
        return line.state
    return f"out: {line.reason}" if line.state == "out" else line.reason


def _cost(told: ToldTuning, line: Line) -> float | None:
    """Of a million output tokens at what the configuration sustains; None without a price."""
    rate_rps = line.last.facts.get("slo_capacity_rps") or line.last.facts.get("ceiling_rps")
    tokens = line.last.facts.get("output_tokens_mean")
    if told.state.price_per_hour is None or not rate_rps or not tokens:
        return None
    return told.state.price_per_hour / 3600.0 / (rate_rps * tokens) * TOKENS


def tuning_table(told: ToldTuning) -> RichTable:
    """The table for a terminal."""
    table = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for head in ("Flags", "Rank", "Objective", "Measured", "State"):
        table.add_column(head, overflow="fold")
    for row in table_of(told):
        table.add_row(row[0], row[1], row[2], row[12], row[13])
    return table


def tuning_markdown(told: ToldTuning) -> str:
    """summary.md."""

    def cells(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"

    drift = [drift_words(told), ""] if drift_words(told) else []
    out = [f"# Tuning of {told.state.name}", "", sentence(told), "", *drift, cells(HEADS), "|" + "---|" * len(HEADS)]
    out += [cells(row) for row in table_of(told)]
    if told.effects:
        out += ["", "What each flag did on its own:", ""]
        out += [f"- `{one.flag}`: {one.words(told.rules.sign)}" for one in told.effects]
    if told.command:
        out += ["", "```", told.command, "```", "", *(f"- `{flag}`: {why}" for flag, why in told.reasons)]
    if told.found.now.descent.left:
        out += ["", "Not tried:", "", *(f"- `{flags}`: {why}" for flags, why in told.found.now.descent.left)]
    return "\n".join([*out, "", f"{plural(len(told.state.visits), 'measurement')}, {span(told.state.spent_s)}.", ""])


def configurations_csv(told: ToldTuning) -> str:
    """configurations.csv: one line a configuration, the best first."""
    rows = [_candidate(told, line) for line in lines_of(told)]
    heads = list(dict.fromkeys(name for row in rows for name in row if name != "log_tail"))
    return csv_text(heads, [[row.get(name) for name in heads] for row in rows])


def tuning_csv(told: ToldTuning) -> str:
    """tune.csv: every visit, in order."""
    names = list(dict.fromkeys(name for one in told.state.visits for name in one.facts))
    heads = ["flags", "purpose", "round", "state", "value", "low", "high", "begin_s", "took_s", "start_s", "exit_code",
             "run", "reason"]  # fmt: skip
    rows = [[*(getattr(one, head) for head in heads), *(one.facts.get(name) for name in names)]
            for one in told.state.visits]  # fmt: skip
    return csv_text([*heads, *names], rows)


def _quoted(word: str) -> str:
    from shlex import quote

    return word if word in {PORT, FLAGS} else quote(word)
