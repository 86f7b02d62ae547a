"""A tuning in tables: for a terminal, as summary.md, as CSV. Pure."""

from __future__ import annotations

from rich.table import Table as RichTable

from loadramp.report.document import csv_text
from loadramp.report.markdown import escaped, table
from loadramp.tune.flags import apart
from loadramp.tune.score import TOKENS
from loadramp.tune.text import (
    JudgedTuning,
    Line,
    candidate_of,
    cautions,
    close_ones,
    lines_of,
    sentence,
    start_s_of,
    value_words,
)
from loadramp.units import NOTHING, latency, percent, plural, sig, span

FLAG_WIDTH = 26
"""Columns of a terminal for flags: one is seldom broken, and the other columns have room."""
HEADS = ("Flags", "Rank", "Objective", "Ceiling", "p99 ITL knee", "SLO capacity", "TTFT p99", "ITL p99", "KV cache",
         "Preemptions", "Start", "Cost of 1M", "Measured", "State")  # fmt: skip


def table_of(tuning: JudgedTuning) -> list[list[str]]:
    """The configurations' table, a line each, in the order of HEADS."""
    rows = []
    for rank, line in enumerate(lines_of(tuning), 1):
        facts = line.last.facts
        shown = apart(tuning.rules.baseline, line.flags) if line.flags != tuning.rules.baseline else "baseline"
        rows.append([
            shown, str(rank) if line.level else NOTHING, value_words(tuning, line.level),
            *(sig(facts.get(name)) or NOTHING for name in ("ceiling_rps", "p99_itl_knee_rps", "slo_capacity_rps")),
            latency(facts.get("ttft_p99_s")) or NOTHING, latency(facts.get("itl_p99_s")) or NOTHING,
            percent(facts.get("kv_used_ratio_max"), 2) or NOTHING, sig(facts.get("preemptions")) or NOTHING,
            span(start_s_of(line)) or NOTHING, sig(_cost(tuning, line)) or NOTHING, str(len(line.visits)),
            _state_words(tuning, line),
        ])  # fmt: skip
    return rows


def _state_words(tuning: JudgedTuning, line: Line) -> str:
    """``best``, ``out: shown to be below the best``; what failed says so itself."""
    verdict = tuning.verdict
    if verdict.word == "best" and line.flags == verdict.best:
        return "best"
    tied = verdict.rival if verdict.tie is not None else None
    if verdict.word == "best" and line.flags in {tied, *close_ones(tuning)}:
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
    drawn = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    rows = table_of(tuning)
    widest = max((len(row[0]) for row in rows), default=0)
    for head in ("Flags", "Rank", "Objective", "Measured", "State"):
        drawn.add_column(head, overflow="fold", width=min(widest, FLAG_WIDTH) if head == "Flags" else None)
    for row in rows:
        drawn.add_row(row[0], row[1], row[2], row[12], row[13])
    return drawn


def tuning_markdown(tuning: JudgedTuning) -> str:
    """summary.md."""
    out = [f"# Tuning of {tuning.state.name}", "", sentence(tuning), ""]
    out += [line for words in cautions(tuning) for line in (words, "")]
    out += table(HEADS, [[escaped(cell) for cell in row] for row in table_of(tuning)])
    if tuning.effects:
        out += ["", "What each flag did on its own:", ""]
        out += [f"- `{effect.flag}`: {effect.words(tuning.rules.sign)}" for effect in tuning.effects]
    if tuning.command:
        out += ["", "```", tuning.command, "```", "", *(f"- `{flag}`: {why}" for flag, why in tuning.reasons)]
    if left := tuning.verdict.now.descent.left:
        out += ["", "Not tried:", "", *(f"- `{flags}`: {why}" for flags, why in left)]
    took = f"{plural(len(tuning.state.visits), 'measurement')}, {span(tuning.state.spent_s)}."
    return "\n".join([*out, "", took, ""])


def configurations_csv(tuning: JudgedTuning) -> str:
    """configurations.csv: one line a configuration, the best first."""
    rows = [candidate_of(tuning, line) for line in lines_of(tuning)]
    heads = list(dict.fromkeys(name for row in rows for name in row if name != "log_tail"))
    return csv_text(heads, [[row.get(name) for name in heads] for row in rows])


def tuning_csv(tuning: JudgedTuning) -> str:
    """tune.csv: every visit, in order."""
    names = list(dict.fromkeys(name for visit in tuning.state.visits for name in visit.facts))
    heads = ["flags", "purpose", "round", "state", "value", "low", "high", "begin_s", "took_s", "start_s", "exit_code",
             "run", "reason"]  # fmt: skip
    rows = [[*(getattr(visit, head) for head in heads), *(visit.facts.get(name) for name in names)]
            for visit in tuning.state.visits]  # fmt: skip
    return csv_text([*heads, *names], rows)
