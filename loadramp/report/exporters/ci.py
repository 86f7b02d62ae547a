"""What CI servers show of a run: JUnit XML, and GitHub's step summary and annotations. Pure.

A failed threshold is a failure; what could not be told is an error of the measurement, never a pass.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from loadramp.record.table import Run
from loadramp.report.exporters.points import Files, identity
from loadramp.report.markdown import summary_markdown
from loadramp.report.redact import redact
from loadramp.report.sections import checks_by_code
from loadramp.report.thresholds import gate_line
from loadramp.report.verdict_text import verdict, verdict_sentence

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MOST_BYTES = 1024 * 1024 - 4096
"""Of a step summary, which GitHub refuses as a whole above 1 MiB."""
MOST_ANNOTATIONS = 10
"""Of each kind and step; GitHub drops the rest, so the last one says how many more there are."""
CUT = "\n\n(Cut here: a step summary may not exceed 1 MiB. summary.md holds all of it.)\n"


@dataclass(slots=True, frozen=True)
class TestCase:
    """One test case. ``words`` explain it; they are its failure's message where it did not pass."""

    name: str
    status: Literal["pass", "fail", "error", "note"]
    words: str = ""


def junit(run: Run) -> Files:
    """The run as one suite: the verdict, the thresholds, and what speaks against the measurement."""
    facts = identity(run)
    took_s = max((step.end_s for step in run.steps), default=0.0)
    return {"junit.xml": suite(facts.get("scenario", "loadramp"), _cases(run), facts, took_s, verdict_sentence(run))}


def _cases(run: Run) -> list[TestCase]:
    word = verdict(run)
    status: dict[str, Literal["pass", "fail", "error"]] = {"pass": "pass", "fail": "fail"}
    asked = [TestCase(gate.rule, status.get(gate.status, "error"), gate_line(gate)) for gate in run.gates]
    status_ = "pass" if asked and word != "void" else status.get(word, "error")
    cases = [
        TestCase(f"check {code}", "error" if level == "void" else "note", words)
        for code, level, words in _findings(run)
    ]
    return [TestCase("measured", status_, verdict_sentence(run)), *asked, *cases]


def _findings(run: Run) -> list[tuple[str, str, str]]:
    """(code, level, words) of every kind of check that is more than a note."""
    return [
        (group.code, group.level, " ".join([*(message for message, _ in group.messages), group.advice]))
        for group in checks_by_code(run)
        if group.level != "note"
    ]


def suite(name: str, cases: Sequence[TestCase], properties: dict[str, str], took_s: float, output: str) -> str:
    """The XML text of one suite."""
    failures, errors = (sum(case.status == status for case in cases) for status in ("fail", "error"))
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": str(errors)}
    time = {"time": f"{took_s:.3f}"}
    began = {"timestamp": properties["began_at"][:19]} if "began_at" in properties else {}
    root = ET.Element("testsuites", {"name": "loadramp", **counts, **time})
    group = ET.SubElement(root, "testsuite", {"name": clean(name), **counts, "skipped": "0", **time, **began})
    known = ET.SubElement(group, "properties")
    for key, value in properties.items():
        ET.SubElement(known, "property", {"name": key, "value": clean(value)})
    for case in cases:
        made = ET.SubElement(group, "testcase", {"classname": clean(name), "name": clean(case.name), "time": "0"})
        if case.status in {"fail", "error"}:
            kind = "failure" if case.status == "fail" else "error"
            ET.SubElement(made, kind, {"message": clean(case.words)[:500], "type": kind}).text = clean(case.words)
        elif case.words:
            ET.SubElement(made, "system-out").text = clean(case.words)
    ET.SubElement(group, "system-out").text = clean(output)
    ET.indent(root, " ")
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def clean(text: str) -> str:
    """``text`` without secrets and without what XML 1.0 cannot hold."""
    return _NOT_XML.sub("\ufffd", redact(text))


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
    word, sentence = verdict(run), verdict_sentence(run)
    if word in {"fail", "void"} and not failed:
        failed.append(sentence)
    elif word == "inconclusive" and not unsure:
        unsure.append(sentence)
    notices = [] if failed or unsure else [sentence]
    warnings = [*unsure, *(words for _, _, words in _findings(run))]
    title = run.info.name or "loadramp"
    lines = [
        line
        for kind, messages in (("error", failed), ("warning", warnings), ("notice", notices))
        for line in commands(kind, title, messages)
    ]
    return {"annotations.txt": "".join(f"{line}\n" for line in lines)}


def commands(kind: str, title: str, messages: Sequence[str]) -> Iterable[str]:
    """``::error title=...::...`` for each message; the last of too many tells how many more there are."""
    shown = list(messages[:MOST_ANNOTATIONS])
    if len(messages) > MOST_ANNOTATIONS:
        shown[-1] = f"{len(messages) - MOST_ANNOTATIONS + 1} more; the report holds them all"
    name = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return [f"::{kind} title={name}::{_escaped(redact(message))}" for message in shown]


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
