"""JUnit XML, which every CI server reads: one case a threshold and one a check of the measurement. Pure.

A failed threshold is a failure; what could not be told is an error of the measurement, never a pass.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from loadramp.record.table import Run
from loadramp.report.exporters.points import Files, identity
from loadramp.report.redact import redact
from loadramp.report.sections import checks_by_code
from loadramp.report.thresholds import gate_line
from loadramp.report.verdict_text import verdict, verdict_sentence

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True, frozen=True)
class TestCase:
    """One test case. ``words`` explain it; they are its failure's message where it did not pass."""

    name: str
    status: Literal["pass", "fail", "error", "note"]
    words: str = ""


def junit(run: Run) -> Files:
    """The run as one suite."""
    told = identity(run)
    took_s = max((step.end_s for step in run.steps), default=0.0)
    name = told.get("scenario", "loadramp")
    return {"junit.xml": suite(name, cases(run), told, took_s, verdict_sentence(run))}


def cases(run: Run) -> list[TestCase]:
    """The verdict, the thresholds, and what speaks against the measurement."""
    word = verdict(run)
    status: dict[str, Literal["pass", "fail", "error"]] = {"pass": "pass", "fail": "fail"}
    asked = [TestCase(gate.rule, status.get(gate.status, "error"), gate_line(gate)) for gate in run.gates]
    own = "pass" if asked and word != "void" else status.get(word, "error")
    found = [
        TestCase(
            f"check {group['code']}",
            "error" if group["level"] == "void" else "note",
            " ".join([*(said["message"] for said in group["said"]), group["advice"]]),
        )
        for group in checks_by_code(run)
        if group["level"] != "note"
    ]
    return [TestCase("measured", own, verdict_sentence(run)), *asked, *found]


def suite(name: str, found: Sequence[TestCase], properties: dict[str, str], took_s: float, output: str) -> str:
    """The XML text of one suite."""
    failures = sum(case.status == "fail" for case in found)
    errors = sum(case.status == "error" for case in found)
    counts = {"tests": str(len(found)), "failures": str(failures), "errors": str(errors)}
    root = ET.Element("testsuites", {"name": "loadramp", **counts, "time": f"{took_s:.3f}"})
    began = {"timestamp": properties["began_at"][:19]} if "began_at" in properties else {}
    group = ET.SubElement(
        root, "testsuite", {"name": clean(name), **counts, "skipped": "0", "time": f"{took_s:.3f}", **began}
    )
    known = ET.SubElement(group, "properties")
    for key, value in properties.items():
        ET.SubElement(known, "property", {"name": key, "value": clean(value)})
    for case in found:
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
