"""Why it gives way: findings with their evidence, how sure they are, and what to do about them. Pure.

The same words serve HTML, Markdown, the terminal and JSON. Text from a server is not in them; numbers are.
"""

from typing import Any

from loadramp.analysis.diagnosis.remedies import runbook_of
from loadramp.record.table import Run
from loadramp.record.types import Finding
from loadramp.report import charts as c
from loadramp.report import rows as r

TITLES: dict[str, str] = r.WORDS["causes"]
TONES = {"certain": "bad", "likely": "warn", "possible": "plain"}
MOST_CURES = 3
"""Cures of a finding that are shown at once; the others are folded away."""


def title(finding: Finding) -> str:
    return TITLES.get(finding.code, finding.code.replace("_", " "))


def diagnosis_section(run: Run) -> str | None:
    """Findings, the first cause first, each with evidence and cures; None where the run was not diagnosed."""
    if not run.findings:
        return None
    shown = [_shown(run, finding) for finding in run.findings]
    books = dict.fromkeys(book for finding in run.findings if (book := runbook_of(finding.code)))
    body = c.render("diagnosis.html.j2", findings=shown, runbooks=list(books))
    return c.section("why", "Why it gives way", body)


def _shown(run: Run, finding: Finding) -> dict[str, Any]:
    tone = "pass" if finding.code == "healthy" else TONES[finding.confidence]
    return {
        "title": title(finding), "code": finding.code, "confidence": finding.confidence, "tone": tone,
        "where": where(run, finding), "evidence": finding.evidence,
        "cures": finding.cures[:MOST_CURES], "more": finding.cures[MOST_CURES:],
        "proof": finding.cures[0].proof if finding.cures else "",
    }  # fmt: skip


def where(run: Run, finding: Finding) -> str:
    """The steps of a finding, as loads: ``seen at 16, 24, 32 req/s``; nothing where it was all of them."""
    rows = [row for row in run.rows if row.step in finding.steps]
    if not rows or len(rows) == len(run.rows):
        return "seen in every step" if rows and len(run.rows) > 1 else ""
    return f"seen at {r.labels(rows)}"


def lines(run: Run, *, short: bool = False) -> list[tuple[str, str]]:
    """One line a finding for terminals and Markdown: what it is and how sure; the first evidence and the first cure.

    ``short`` leaves out what is merely possible, unless there is nothing else.
    """
    sure = [finding for finding in run.findings if finding.confidence != "possible"]
    out = []
    for finding in (sure or run.findings) if short else run.findings:
        first = finding.evidence[0] if finding.evidence else ""
        cure = finding.cures[0] if finding.cures else None
        change = f" [{cure.change}]" if cure and cure.change else ""
        do = f" Try first: {cure.action.rstrip('.')}{change}." if cure else ""
        out.append((f"{title(finding)} ({finding.confidence})", f"{first}.{do}" if first else do.strip()))
    return out


def diagnosis_document(run: Run) -> list[dict[str, Any]]:
    """The findings as JSON data."""
    return [
        {
            "code": finding.code,
            "title": title(finding),
            "confidence": finding.confidence,
            "evidence": list(finding.evidence),
            "steps": list(finding.steps),
            "cures": [
                {"name": cure.name, "action": cure.action, "when": cure.when, "change": cure.change or None,
                 "proof": cure.proof}
                for cure in finding.cures
            ],
        }
        for finding in run.findings
    ]  # fmt: skip
