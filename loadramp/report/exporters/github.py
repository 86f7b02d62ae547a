"""What GitHub Actions shows of a run: the step summary (refused as a whole above 1 MiB) and annotations. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadramp.record.table import Run
from loadramp.report.exporters.points import Files
from loadramp.report.markdown import summary_markdown
from loadramp.report.redact import redact
from loadramp.report.sections import checks_by_code, name_of
from loadramp.report.thresholds import gate_line
from loadramp.report.verdict_text import verdict, verdict_sentence

MOST_BYTES = 1024 * 1024 - 4096
MOST_ANNOTATIONS = 10
"""Of each kind and step; GitHub drops the rest, so the last one says how many more there are."""
CUT = "\n\n(Cut here: a step summary may not exceed 1 MiB. summary.md holds all of it.)\n"


def step_summary(run: Run) -> Files:
    """Markdown to append to ``$GITHUB_STEP_SUMMARY``."""
    return {"step-summary.md": shortened(summary_markdown(run))}


def shortened(text: str, most_bytes: int = MOST_BYTES) -> str:
    """``text`` cut at the end of a line so that it stays below ``most_bytes``."""
    data = text.encode()
    if len(data) <= most_bytes:
        return text
    kept = data[: most_bytes - len(CUT.encode())]
    return kept[: kept.rfind(b"\n")].decode(errors="ignore") + CUT


def job_annotations(run: Run) -> Files:
    """Workflow commands for stdout: failed thresholds as errors, open ones and findings as warnings."""
    failed = [gate_line(gate) for gate in run.gates if gate.status == "fail"]
    unsure = [gate_line(gate) for gate in run.gates if gate.status == "inconclusive"]
    word = verdict(run)
    if word in {"fail", "void"} and not failed:
        failed.append(verdict_sentence(run))
    elif word == "inconclusive" and not unsure:
        unsure.append(verdict_sentence(run))
    found = [
        " ".join(said["message"] for said in group["said"]) + f" {group['advice']}"
        for group in checks_by_code(run)
        if group["level"] != "note"
    ]
    title = name_of(run) or "loadramp"
    notices = [] if failed or unsure else [verdict_sentence(run)]
    lines = [*commands("error", title, failed), *commands("warning", title, [*unsure, *found])]
    return {"annotations.txt": "".join(f"{line}\n" for line in [*lines, *commands("notice", title, notices)])}


def commands(kind: str, title: str, messages: Sequence[str]) -> Iterable[str]:
    """``::error title=...::...`` for each message; the last of too many tells how many more there are."""
    shown = list(messages[:MOST_ANNOTATIONS])
    if len(messages) > MOST_ANNOTATIONS:
        shown[-1] = f"{len(messages) - MOST_ANNOTATIONS + 1} more; the report holds them all"
    return [f"::{kind} title={_property(title)}::{_message(redact(message))}" for message in shown]


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")
