"""summary.md: the report for a pull request or a chat. Pure; text from outside cannot become a table, link or tag."""

import re
from collections.abc import Iterable, Sequence

from loadramp.record.table import Run
from loadramp.report import diagnosis, steptable
from loadramp.report.redact import redact
from loadramp.report.sections import CARDS, checks_by_code, flat, subtitle
from loadramp.report.thresholds import gate_line
from loadramp.report.verdict_text import headline, interval_words, verdict
from loadramp.units import NOTHING, sig

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")
MOST_ROWS = 60


def summary_markdown(run: Run) -> str:
    """Sentence, three numbers, causes, checks, steps and conditions in GitHub's Markdown."""
    parts = [
        "# loadramp",
        *_opening(run),
        *_numbers(run),
        *_gates(run),
        *_diagnosis(run),
        *_checks(run),
        *_steps(run),
        *_conditions(run),
    ]
    return "\n".join(parts).rstrip() + "\n"


def escaped(text: str) -> str:
    """``text`` so that it means nothing to Markdown, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table. Its cells are Markdown: what comes from outside is ``escaped`` before."""
    rows = ["".join(f"| {cell} " if cell else "| " for cell in row) + "|" for row in (heads, *lines)]
    return [rows[0], "|" + "---|" * len(heads), *rows[1:]]


def _opening(run: Run) -> list[str]:
    bold = [f"**{escaped(p.text)}**" if p.tone != "plain" else escaped(p.text) for p in headline(run)]
    facts = " · ".join(escaped(fact) for fact in subtitle(run))
    return ["", " ".join(bold), "", f"Verdict: **{verdict(run)}**" + (f" · {facts}" if facts else "")]


def _numbers(run: Run) -> list[str]:
    lines = []
    for name, title, _ in CARDS:
        estimate = run.estimate(name)
        low, high = sig(estimate.low_rps), sig(estimate.high_rps)
        between = f"{low or '?'} to {high or '?'}{interval_words(run, estimate)}" if low or high else NOTHING
        rate = sig(estimate.rate_rps) or NOTHING
        if estimate.sustained_rps is not None:
            rate += f" (sustained {sig(estimate.sustained_rps)})"
        status = estimate.status.replace("_", " ")
        lines.append([title, rate, between, status, escaped(estimate.reason)])
    return ["", *table(["", "req/s", "95 % interval", "status", "why"], lines)]


def _diagnosis(run: Run) -> list[str]:
    lines = [f"- **{escaped(what)}** {escaped(why)}" for what, why in diagnosis.lines(run)]
    return ["", "## Why it gives way", "", *lines] if lines else []


def _gates(run: Run) -> list[str]:
    lines = [f"- {escaped(gate_line(gate))}" for gate in run.gates]
    return ["", "## Thresholds", "", *lines] if lines else []


def _checks(run: Run) -> list[str]:
    groups = [group for group in checks_by_code(run) if group.level != "note"]
    if not groups:
        return []
    lines = [f"- **{group.level}** `{group.code}` {group.words(escaped)}" for group in groups[:MOST_ROWS]]
    return ["", "## Checks", "", *lines]


def _steps(run: Run) -> list[str]:
    if not run.rows:
        return []
    shown = steptable.sheet(run.rows[:MOST_ROWS], steptable.columns_of(run.rows, good=bool(run.scenario.slo.limits)))
    texts = [
        [("~" if cell.rough else "") + escaped(cell.text) + (f" ({cell.note})" if cell.note else "") for cell in cells]
        for _, cells in shown.lines
    ]
    lines = ["", "## Steps", "", *table([column.label for column in shown.columns], texts)]
    notes = [f"({i}) {escaped(note)}" for i, note in enumerate(shown.notes, start=1)]
    if shown.rough:
        notes.append(f"~: {steptable.ROUGH_WORDS}")
    return [*lines, *(["", "; ".join(notes)] if notes else [])]


def _conditions(run: Run) -> list[str]:
    wanted = ("seed", "argv", "versions", "host")
    document = run.info.document()
    shown = {key: document[key] for key in wanted if document.get(key)}
    lines = [f"- {escaped(key)}: {escaped(redact(text))}" for key, text in flat("", shown)]
    return ["", "## Conditions", "", *lines] if lines else []
