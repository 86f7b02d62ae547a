"""A campaign in words, Markdown, JSON and HTML: the verdict first, everything linked, nothing from outside trusted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from campaign_results import HOSTILE, told
from msgspec.structs import replace as changed
from test_report_browser import FRAME, MEASURE, POLICY, asked_urls, open_page
from test_scorecard import ITEMS

from loadramp.analysis.diagnosis.cures import cures_of
from loadramp.campaign.page import build_campaign_html
from loadramp.campaign.scorecard import ItemAnswer
from loadramp.campaign.state import CampaignState, PhaseState
from loadramp.campaign.table import PHASES
from loadramp.campaign.text import campaign_document, campaign_markdown, campaign_text, headline, scorecard_markdown
from loadramp.record.types import Finding

YES = {item.id: ItemAnswer("yes") for item in ITEMS}
MEMORY = {"memory": ItemAnswer("waived", f"restarts every night {HOSTILE}")}

RECOVERY = {
    name: ItemAnswer("waived", "the queue is limited from next week on") for name in ("overload_recovery", "metrics")
}
PAGES: dict[str, dict[str, ItemAnswer]] = {"go": {**YES, **MEMORY, **RECOVERY}, "no-go": {**YES, **MEMORY}}


def sentence(answers: dict[str, ItemAnswer] | None = None) -> str:
    return " ".join(phrase.text for phrase in headline(told(answers)))


def test_the_verdict_opens_everything() -> None:
    assert sentence().startswith("No go: the sustained and the overload phase failed.")
    gone = told(PAGES["go"])
    assert gone.verdict == "go"
    assert headline(gone)[0].text == "Go: all 17 critical items are settled, 1 of them waived."
    left = dict(YES)
    del left["rollback"]
    opened = told({**left, **MEMORY, **RECOVERY})
    assert opened.verdict == "open"
    assert headline(opened)[0].text == "Not decided yet: 1 critical item open."


def test_what_was_measured_follows_in_a_sentence_a_phase() -> None:
    said = sentence()
    assert "Ceiling: 6.1 req/s (5.8 to 6.4), 5.2 soaked." in said
    assert "4 req/s for 20 min: 0 of 4,800 requests failed." in said
    assert "After the overload it was well again after 39 s." in said
    assert "After a worker went away it was well again after 23 s." in said


def test_a_failed_phase_that_nobody_waived_is_no_go_whatever_the_answers() -> None:
    waived = told({**YES, **MEMORY, "metrics": ItemAnswer("waived", "x")})
    assert waived.phase_verdict("overload") == "fail"
    assert waived.verdict == "no-go"


def test_a_phase_that_is_missing_leaves_it_open() -> None:
    everything = {**YES, **MEMORY, "overload_recovery": ItemAnswer("waived", "x"), "metrics": ItemAnswer("waived", "x")}
    one = told(everything)
    phases = {**one.state.phases, "chaos": PhaseState(state="skipped", reason="no command")}
    seen = {phase: view for phase, view in one.measured.items() if phase != "chaos"}
    one = replace(one, state=changed(one.state, phases=phases), measured=seen)
    assert one.missing == ["chaos"]
    assert one.verdict == "open"
    assert "the chaos phase not finished" in headline(one)[0].text


def test_the_document_is_strict_json_and_complete() -> None:
    document = json.loads(json.dumps(campaign_document(told()), allow_nan=False))
    assert document["verdict"] == "no-go"
    assert [phase["phase"] for phase in document["phases"]] == list(PHASES)
    assert all(
        one["status"] in {"pass", "fail", "inconclusive"} for phase in document["phases"] for one in phase["criteria"]
    )
    assert len(document["scorecard"]["items"]) == 29
    assert document["target_rps"] == 4.0


def test_markdown_and_terminal_name_every_criterion_and_item_and_link_the_runs() -> None:
    answers = {**YES, **MEMORY}
    for text in (campaign_markdown(told(answers)), campaign_text(told(answers))):
        assert all(item.text.split(":")[0].split("(")[0].strip() in text.replace("\\", "") for item in ITEMS)
        assert "p99 ITL" in text
    markdown = campaign_markdown(told(answers))
    assert "([report](20260102-030405-chat-chaos/report.html))" in markdown
    assert "<script>" not in markdown
    assert "[y](http://z)" not in markdown
    assert "| additional | The server's memory does not grow under sustained load | waived |" in scorecard_markdown(
        told(answers)
    )


def test_the_page_is_offline_small_and_escapes_what_it_was_told() -> None:
    page = build_campaign_html(told({**YES, **MEMORY}))
    assert len(page.encode()) < 2_000_000
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    body = page.partition("<main>")[2].partition("</main>")[0]
    links = set(re.findall(r'href="([^"]+)"', body))
    assert {link for link in links if not link.startswith("#")} == {
        f"20260102-030405-chat-{p}/report.html" for p in PHASES
    }
    anchors = set(re.findall(r'id="([^"]+)"', body))
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    assert "Runbook: out of memory" in body  # memory grows
    assert "Runbook: high latency" in body  # slow to recover
    for name in ("scorecard", "phases", "why", "overload", "chaos", "soak", "conditions"):
        assert f'<section id="{name}">' in body


def test_findings_of_the_phases_are_told_once_and_lead_to_the_run_that_has_them() -> None:
    one = told()
    finding = Finding(
        "scheduler_oversubscription",
        "certain",
        ("64 running, 30 waiting",),
        (),
        cures_of("scheduler_oversubscription", "vllm", {}),
    )
    for phase in ("ramp", "overload"):
        one.measured[phase].run.findings = [finding]
    page = build_campaign_html(one)
    assert page.count("The batch is at its limit") == 1
    assert 'href="20260102-030405-chat-ramp/report.html#why"' in page


def test_a_campaign_that_has_not_begun_still_makes_a_page() -> None:
    empty = replace(told(), measured={}, criteria={}, state=CampaignState(name="chat"))
    page = build_campaign_html(empty)
    assert "not run" in page
    assert '<section id="soak">' not in page
    assert campaign_document(empty)["phases"][0]["verdict"] == "not run"


@pytest.mark.browser
@pytest.mark.parametrize("verdict", ["go", "no-go"])
def test_all_charts_are_drawn_without_an_error_or_a_request(tmp_path: Path, verdict: str) -> None:
    page, log = tmp_path / "report.html", tmp_path / "net.json"
    shown = told(PAGES[verdict])
    assert shown.verdict == verdict
    page.write_text(build_campaign_html(shown))
    seen = open_page(page, tmp_path, f"--log-net-log={log}", "--dump-dom", "--window-size=1400,3000")
    assert [line for line in seen.stderr.splitlines() if "CONSOLE" in line] == []
    assert asked_urls(log) == []
    assert seen.stdout.count('class="plot js-plotly-plot"') == page.read_text().count('class="plot"') == 7


@pytest.mark.browser
@pytest.mark.parametrize("verdict", ["go", "no-go"])
@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_sticks_out_or_overlaps(tmp_path: Path, width: int, verdict: str) -> None:
    text = POLICY.sub("", build_campaign_html(told(PAGES[verdict]))).replace("</body>", MEASURE + "</body>")
    (tmp_path / "measured.html").write_text(text)
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME % width)
    seen = open_page(frame, tmp_path, "--dump-dom", "--window-size=1500,2100")
    (found,) = re.findall(r'data-measured="([^"]*)"', seen.stdout)
    measured = json.loads(found.replace("&quot;", '"'))
    assert measured["inner"] == width
    assert measured["scroll"] <= width
    assert measured["wide"] == []
    assert measured["cut"] == []
    assert measured["overlaps"] == [0] * 7


def test_an_interruption_a_rehearsal_and_a_lone_baseline_decide_nothing() -> None:
    one = told({**YES, "on_call": ItemAnswer("no")})
    assert one.verdict == "no-go"
    cut = {**one.state.phases, "chaos": PhaseState(state="stopped", reason="interrupted")}
    assert replace(one, state=changed(one.state, phases=cut)).verdict == "open"
    assert replace(one, measured={"baseline": one.measured["baseline"]}).verdict == "open"
    rehearsal = replace(one, state=changed(one.state, rehearsal=True))
    assert rehearsal.verdict == "open"
    assert headline(rehearsal)[0].text == "Not decided: this was a rehearsal, too short to prove anything."
