"""The page of nights: what it says, that it is one safe offline file, and (with a browser) that it draws."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from history_samples import FINGERPRINT, LEVELS, failed, live, measured, night_of, steady
from report_runs import unpacked
from test_report_browser import FRAME, MEASURE, POLICY, asked_urls, open_page

from loadramp.nightly.alarms import Rules
from loadramp.nightly.charts import change_points
from loadramp.nightly.history import Entry
from loadramp.nightly.page import build_trend_html, trend_view
from loadramp.nightly.text import headline, night_document, night_markdown, terminal_lines
from loadramp.nightly.trend import NightOutcome, judge_night


@cache
def history(nights: int = 60) -> list[Entry]:
    """Two nights down, a release on night 30 that costs 15 % of the ceiling, then accepted."""

    def level(i: int, metric: str) -> float:
        return steady(i, metric) * (0.85 if i >= 30 and metric == "ceiling_rps" else 1.0)

    def make(i: int) -> list[Entry]:
        version = FINGERPRINT | ({"version": "0.11.0"} if i >= 30 else {})
        return failed(i) if i in (10, 11) else measured(i, level, fingerprint=version)

    return live(nights, make)[0]


def test_the_page_opens_with_the_sentence_and_shows_every_metric() -> None:
    page = build_trend_html(history())
    assert '<span class="warn">Nothing new. Worse than accepted, as told before: ceiling.</span>' in page
    for words in ("Ceiling", "p50 ITL at the reference rate", "p50 TTFT at the reference rate"):
        assert f"<figcaption>{words}</figcaption>" in page
    assert "58 nights measured" in page and "2 nights without a measurement" in page
    assert "version 0.10.0 → 0.11.0" in page and "worse, open" in page
    assert len(page.encode()) < 2_000_000


def test_charts_mark_the_change_the_release_and_the_nights_without_a_measurement() -> None:
    page = build_trend_html(history())
    packed = re.findall(r'<script type="text/plain">(.*?)</script>', page)
    figures = [json.loads(unpacked(text)) for text in packed]
    ceiling = figures[0]
    (line,) = ceiling["layout"]["shapes"]
    assert (line["x0"], line["line"]["color"]) == (night_of(30), "var(--p99)")
    traces = {trace["name"]: trace for trace in ceiling["data"]}
    assert traces["the endpoint or the client changed"]["x"] == [night_of(30)]
    assert traces["the endpoint or the client changed"]["text"] == ["0.11.0"]
    assert traces["nothing was measured"]["x"] == [night_of(10), night_of(11)]
    assert len(traces["median of the night"]["x"]) == 58
    assert len(traces["one run"]["x"]) == 174
    levels = [trace["y"] for trace in ceiling["data"] if trace["name"] == "level between changes"]
    assert [level[0] for level in levels] == [pytest.approx(16.0, rel=0.02), pytest.approx(13.6, rel=0.02)]
    assert [figure["layout"]["shapes"] for figure in figures[1:4]] == [[], [], []]


def test_looking_back_finds_changes_that_no_rule_was_asked_about() -> None:
    """Metrics that are not judged raise no alarm; the page still shows where they changed."""
    shown = trend_view([e for e in history() if e.kind != "alarm"])
    assert change_points(shown.nights["ceiling_rps"], Rules()) == [28]  # the 29th measured night
    assert change_points(shown.nights["ref_itl_p50_s"], Rules()) == []


def test_words_from_outside_cannot_break_the_page_or_leak() -> None:
    secret = "Authorization: Bearer sk-canary-12345678"
    nasty = FINGERPRINT | {"version": "</script><script>alert(1)</script>", "note": secret}
    entries = [*measured(0, steady), *measured(1, steady, fingerprint=nasty), *failed(2, "</script><b>x"),
               Entry(night_of(1), "nightly", "accepted", reason="<img src=x>")]  # fmt: skip
    page = build_trend_html(entries)
    assert "<script>alert" not in page and "<b>x" not in page and "<img src=x>" not in page
    assert "sk-canary" not in page


def test_an_empty_history_is_a_page_too() -> None:
    page = build_trend_html([])
    assert "No night has been measured yet." in page
    assert "Nothing was measured yet." in page


def test_a_page_of_ten_years_is_not_larger_than_a_page_of_four() -> None:
    many = []
    for i in range(3650):
        night, value = f"{2000 + i // 365}-01-01T{i % 365:06d}", LEVELS["ceiling_rps"] * (1 + 0.01 * (i % 7))
        many.append(Entry(night, "nightly", metric="ceiling_rps", value=value, fingerprint=FINGERPRINT))
    assert len(trend_view(many).nights["ceiling_rps"]) == 1500
    assert len(build_trend_html(many).encode()) < 6_000_000


# -- words --------------------------------------------------------------------------------------------------------


def worse() -> NightOutcome:
    """Two nights on which tokens take a third longer."""

    def level(_: int, metric: str) -> float:
        factor = 1.3 if metric.startswith("ref_itl") else 0.85 if metric == "ceiling_rps" else 1.0
        return LEVELS[metric] * factor

    bad = [e for i in (60, 61) for e in measured(i, level, fingerprint=FINGERPRINT | {"version": "0.11.0"})]
    return judge_night([*history(), *bad])


def test_metrics_that_changed_together_are_told_together() -> None:
    sentence, tone = headline(worse())
    assert tone == "bad"
    assert sentence.startswith("Worse since 2026-03-02 03:00: p50 ITL at the reference rate +")
    assert "; p99 ITL at the reference rate +" in sentence
    assert sentence.count("since") == 1
    assert "Nothing that is known of the endpoint changed that night." in sentence


QUIET = [entry for i in range(20) for entry in measured(i, steady)]


@pytest.mark.parametrize(("entries", "words", "tone"), [
    ([], "No night has been measured yet.", "warn"),
    (measured(0, steady), "1 night under these conditions: too few to tell a change. Floors are judged.", "warn"),
    (QUIET, "No change: every judged metric is within", "plain"),
    ([*QUIET, *failed(20)], "Not measured this night (http://host", "warn"),
])  # fmt: skip
def test_every_kind_of_night_has_its_sentence(entries: list[Entry], words: str, tone: str) -> None:
    sentence, told = headline(judge_night(entries))
    assert sentence.startswith(words)
    assert told == tone


def test_the_terminal_says_what_is_open() -> None:
    lines = terminal_lines(judge_night(history()))
    assert lines[0].startswith("Nothing new.")
    assert any(line.startswith("  ceiling_rps") and "steady" in line for line in lines)
    assert any("open: Ceiling is worse since 2026-01-31 03:00: -" in line for line in lines)


def test_markdown_is_a_table_whatever_the_words_are() -> None:
    text = night_markdown(judge_night(history(), floors=["ceiling_rps >= 20"]), "a|b `c`")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {7}
    assert text.startswith("# a\\|b \\`c\\`: night of 2026-03-01 03:00")
    assert "✗ floor" in text


def test_the_document_is_strict_json_with_a_schema() -> None:
    document = night_document(worse(), 99, ["r/1"], "nightly")
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["schema"], document["verdict"], document["runs"]) == ("loadramp.night/1", "fail", ["r/1"])
    alarm = document["alarms"][0]
    assert set(alarm) >= {"metric", "rule", "since", "raised", "change_ratio", "low_ratio", "high_ratio", "words"}


# -- in a browser -------------------------------------------------------------------------------------------------


@pytest.mark.browser
def test_the_page_draws_without_an_error_or_a_request(tmp_path: Path) -> None:
    page, log = tmp_path / "trend.html", tmp_path / "net.json"
    page.write_text(build_trend_html(history()))
    seen = open_page(page, tmp_path, f"--log-net-log={log}", "--dump-dom", "--window-size=1400,3000")
    assert [line for line in seen.stderr.splitlines() if "CONSOLE" in line] == []
    assert asked_urls(log) == []
    assert 'data-charts="4"' in seen.stdout


@pytest.mark.browser
@pytest.mark.parametrize("width", [1400, 400])
def test_the_page_fits(tmp_path: Path, width: int) -> None:
    text = POLICY.sub("", build_trend_html(history())).replace("</body>", MEASURE + "</body>")
    (tmp_path / "measured.html").write_text(text)
    (tmp_path / "frame.html").write_text(FRAME % width)
    seen = open_page(tmp_path / "frame.html", tmp_path, "--dump-dom", "--window-size=1500,2100")
    (told,) = re.findall(r'data-measured="([^"]*)"', seen.stdout)
    found = json.loads(told.replace("&quot;", '"'))
    assert found["inner"] == width
    assert found["scroll"] <= width
    assert found["wide"] == []
    assert found["overlaps"] == [0] * len(found["overlaps"])
