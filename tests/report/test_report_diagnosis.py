"""Why it gives way, as people and programs read it."""

import json

from report_runs import row, served
from test_report_text import printed

from loadramp.record.table import Run
from loadramp.record.types import Cure, Finding
from loadramp.report import build_html, summary_markdown, verdict_document
from loadramp.report.diagnosis import diagnosis_section, lines, where

CURE = Cure("fp8_kv_cache", "Store the KV cache in 8 bits.", "when it is full", "--kv-cache-dtype fp8", "run it again")
KV = Finding("kv_eviction", "certain", ("103 preemptions among 800 requests at 28 req/s",), (4,), (CURE,) * 5)
TAIL = Finding("prefill_contention", "possible", ("p99 ITL 40 ms",), (0, 1, 2, 3, 4, 6))


def diagnosed(*findings: Finding) -> Run:
    return served(findings=list(findings) or [KV, TAIL])


def test_the_section_stands_between_the_numbers_and_the_checks() -> None:
    text = build_html(diagnosed())
    places = [text.index(f'<section id="{name}">') for name in ("numbers", "why", "checks")]
    assert places == sorted(places)


def test_evidence_confidence_steps_cures_and_proof_are_shown() -> None:
    text = diagnosis_section(diagnosed())
    assert text is not None
    for words in ("103 preemptions among 800 requests at 28 req/s", "certain", "seen at 28 req/s",
                  "<code>--kv-cache-dtype fp8</code>", "Matters when it is full.", "2 more", "run it again.",
                  "Runbook: high latency", "seen in every step"):  # fmt: skip
        assert words in text
    assert text.index("103 preemptions") < text.index("p99 ITL 40 ms")


def test_a_run_that_was_not_diagnosed_has_no_section() -> None:
    assert diagnosis_section(served()) is None
    assert "## Why it gives way" not in summary_markdown(served())


def test_text_in_a_finding_cannot_become_a_tag_or_markdown() -> None:
    evil = Finding("<b>x</b>", "likely", ("<script>alert(1)</script> `x` | y",), (4,))
    assert "<script>alert" not in build_html(diagnosed(evil))
    assert "\\<script\\>alert(1)" in summary_markdown(diagnosed(evil))


def test_one_line_a_finding_for_terminal_and_markdown() -> None:
    told = lines(diagnosed())
    assert told[0] == (
        "The KV cache overflows: running requests are thrown out and computed again (certain)",
        "103 preemptions among 800 requests at 28 req/s. "
        "Try first: Store the KV cache in 8 bits [--kv-cache-dtype fp8].",
    )
    assert told[1] == ("Prompts hold up the tokens of others (possible)", "p99 ITL 40 ms.")
    text = printed(diagnosed())
    assert "why The KV cache overflows" in text
    assert "Prompts hold up" not in text
    assert "Prompts hold up" in printed(diagnosed(TAIL))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "- **The KV cache overflows" in summary_markdown(diagnosed())


def test_programs_get_codes_evidence_steps_and_cures() -> None:
    document = json.loads(json.dumps(verdict_document(diagnosed()), allow_nan=False))["diagnosis"]
    assert [one["code"] for one in document] == ["kv_eviction", "prefill_contention"]
    assert set(document[0]) == {"code", "title", "confidence", "evidence", "steps", "cures"}
    assert document[0]["cures"][0] == {
        "name": "fp8_kv_cache", "action": "Store the KV cache in 8 bits.", "when": "when it is full",
        "change": "--kv-cache-dtype fp8", "proof": "run it again",
    }  # fmt: skip
    assert verdict_document(served())["diagnosis"] == []


def test_steps_are_named_by_their_loads() -> None:
    run = served(rows=[row(0, 2.0), row(1, 4.0), row(2, 8.0), row(3, 3.4, role="soak")])
    assert where(run, Finding("x", "likely", (), (1, 2))) == "seen at 4, 8 req/s"
    assert where(run, Finding("x", "likely", (), (2, 3))) == "seen at 8 req/s, 3.4 req/s soak"
    assert where(run, Finding("x", "likely", (), (0, 2, 3))) == "seen at 2, 8 req/s, 3.4 req/s soak"
    assert where(run, Finding("x", "likely", (), (9,))) == ""
    assert where(run, Finding("x", "likely", (), (0, 1, 2, 3))) == "seen in every step"
