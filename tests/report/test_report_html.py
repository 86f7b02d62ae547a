"""The HTML report: what is in it, what is left out, what can never be in it."""

import base64
import hashlib
import html.parser
import json
import re
from functools import cache
from html import escape, unescape
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from curve_rows import changed, columns_of, row_of
from report_runs import SCENARIO, estimates, row, served, served_rows, served_table, unpacked

from loadramp.record.run_info import RunInfo, TargetInfo, read_info
from loadramp.record.table import Run, Table
from loadramp.record.types import Check, Estimate, Record, Sample
from loadramp.report import build_html
from loadramp.report.html import MOST_BYTES
from loadramp.report.json_data import packed
from loadramp.report.sections import SECTIONS
from loadramp.runner.scenarios import load

PACKED = re.compile(r'<script type="text/plain">(.*?)</script>', re.DOTALL)


def without_plotly(text: str) -> str:
    """The page without plotly's own script, and with what the charts are made of in plain text."""
    begin = text.index('<script type="text/plain" id="plotly">')
    page = text[:begin] + text[text.index("</script>", begin) + len("</script>") :]
    return PACKED.sub(lambda found: f'<script type="text/plain">{escape(unpacked(found[1]))}</script>', page)


def page(**more: Any) -> str:
    return without_plotly(build_html(served(**more))) if more else _plain_page()


@cache
def _plain_page() -> str:
    return without_plotly(build_html(served()))


def figures(text: str) -> list[dict[str, Any]]:
    found = PACKED.findall(text)
    plain = [unescape(one) if one.startswith("{") else unpacked(one) for one in found]
    return [json.loads(one, parse_constant=lambda word: pytest.fail(word)) for one in plain]


class Outline(html.parser.HTMLParser):
    """Tags that are open, ids, links: enough to see that the page is well formed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids += [named["id"] or ""] if "id" in named else []
        self.links += [named["href"] or ""] if "href" in named else []
        self.sources += [named["src"] or ""] if "src" in named else []
        if tag not in {"meta", "link", "br", "img", "rect", "line", "circle", "path"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"rect", "line", "circle", "path"}:
            assert self.open, tag
            assert self.open.pop() == tag


def outline(text: str) -> Outline:
    seen = Outline()
    seen.feed(text)
    return seen


def test_the_page_is_well_formed_and_every_link_leads_somewhere_in_it() -> None:
    seen = outline(page())
    assert seen.open == []
    assert len(seen.ids) == len(set(seen.ids))
    inside = [link[1:] for link in seen.links if link.startswith("#")]
    assert set(inside) <= set(seen.ids)
    assert [link for link in seen.links if not link.startswith("#")] == ["data:,"]
    assert seen.sources == []


def test_the_head_of_the_page_names_the_date_of_the_run() -> None:
    head = page().partition('<section id="numbers"')[0]
    assert "2026-01-02T03:04:05+00:00" in head


def test_the_sections_stand_in_reading_order() -> None:
    wanted = "numbers checks latency throughput errors timeline client tails slowest evidence steps conditions glossary"
    assert re.findall(r'<section id="([\w-]+)"', page()) == wanted.split()


def test_the_sentence_comes_first_and_failures_are_red() -> None:
    rows = served_rows()
    rows[0] = changed(rows[0], ok=100, errors={"http_5xx": 300})
    text = page(rows=rows)
    assert text.index("300 of 2,400 requests failed") < text.index("Sustains 13.6")
    assert '<span class="bad">300 of 2,400 requests failed, 12.5 % (HTTP 5xx 300).</span>' in text


def test_the_policy_allows_exactly_the_two_scripts_of_the_page_and_no_network() -> None:
    text = build_html(served())
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = policy.replace("&#39;", "'")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    (plotly,) = re.findall(r'<script type="text/plain" id="plotly">(.*?)</script>', text, re.DOTALL)
    scripts = [unpacked(plotly), script]
    assert scripts[0].startswith("/**\n* plotly.js")
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "http" not in policy


def test_what_is_packed_closes_no_script_and_comes_back_whole() -> None:
    text = build_html(served())
    assert text.lower().count("</script") == len(figures(text)) + 2
    assert "<!--" not in text
    for one in ("", "a", "</script><!-- \u2028 \x00 \r\n", "token " * 10_000):
        assert unpacked(packed(one)) == one
        assert not set(packed(one)) & set('"<\\')


def test_a_ramp_of_twelve_steps_weighs_less_than_two_megabytes() -> None:
    columns = {
        k: v
        for k, v in columns_of(served_rows()[0]).items()
        if k.endswith("_s") and "window" not in k and k != "begin_s"
    }
    run = big(20_000, steps_n=12)
    run.rows = [changed(one, **columns, reasons={"tpot_p99_s": "why " * 20}) for one in run.rows]
    assert len(run.rows) == 12
    assert len(build_html(run).encode()) < 2_000_000


def test_every_figure_is_one_that_plotly_knows() -> None:
    shown = figures(page())
    assert len(shown) >= 14
    for figure in shown:
        coloured = re.sub(r"var\(--[\w-]+\)", "#123456", json.dumps(figure))
        made = go.Figure(json.loads(coloured))
        assert len(made.data) >= 1


def test_text_from_outside_can_never_become_markup() -> None:
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028"
    rows = served_rows()
    rows[1] = changed(rows[1], errors={evil: 3}, reasons={"tpot_p99_s": evil}, tpot_p99_s=None, signals=[evil])
    run = served(
        rows=rows,
        checks=[Check(evil, "warn", evil, evil, 1)],
        scenario=f'# {evil}\nname = "x"',
        estimates=estimates(ceiling=Estimate("inconclusive", None, 1.0, 2.0, evil, evil)),
        path=evil,
    )
    told = {"name": evil, "argv": [evil], "target": {"base_url": evil, "model": evil}, evil: {evil: evil}}
    run.info = read_info(told)
    text = without_plotly(build_html(run))
    assert "alert(1)</script>" not in text
    assert "<img" not in text
    assert "\u2028" not in "".join(PACKED.findall(build_html(run)))
    assert outline(text).open == []


def test_answer_text_is_never_in_the_report() -> None:
    records = [
        Record(i, 0, i / 4, sent_s=i / 4, event_s=[i / 4 + 0.1, i / 4 + 0.2, i / 4 + 0.3], stream_end_s=i / 4 + 0.3,
               status="ok", output_tokens=3, text="the secret answer", error_detail="the secret detail")
        for i in range(100)
    ]  # fmt: skip
    text = without_plotly(build_html(served(table=Table.of(records))))
    assert "the secret" not in text


def test_rp08_secrets_are_masked() -> None:
    run = served(scenario='[target]\nbase_url = "http://user:pw@host/v1"\nheaders = { X-Api-Key = "abcdef123" }\n'
                 'api_key_env = "OPENAI_API_KEY"\n')  # fmt: skip
    run.info.argv = ["loadramp", "--header", "Authorization: Bearer abc123def", "--proxy", "http://p:q2@proxy"]
    run.info.target = TargetInfo("https://user:pw@host:8000")
    run.info.more = {"headers": {"api-key": "sk-test-123"}}
    text = without_plotly(build_html(run))
    assert not any(secret in text for secret in ("user:pw", "abcdef123", "abc123def", "p:q2", "sk-test-123"))
    assert "OPENAI_API_KEY" in text
    assert "***@host" in text


def test_a_null_shows_its_reason_and_no_number() -> None:
    rows = served_rows()
    rows[0] = changed(
        rows[0], ttft_p99_s=None, reasons={"ttft_p99_s": "60 requests cannot carry a p99: needs about 308 more"}
    )
    text = page(rows=rows)
    assert re.search(r'data-label="TTFT p99">–<sup>1</sup></td>', text)
    assert "<li>60 requests cannot carry a p99: needs about 308 more</li>" in text
    ttft = figures(text)[0]
    p99 = next(t for t in ttft["data"] if t["name"].startswith("p99"))
    assert p99["y"][0] is None


def test_intervals_are_drawn_and_an_unknown_upper_limit_draws_only_downwards() -> None:
    rows = served_rows()
    rows[1] = changed(rows[1], ttft_p99_high_s=None)
    p99 = next(t for t in figures(page(rows=rows))[0]["data"] if t["name"].startswith("p99"))
    assert p99["error_y"]["array"][0] == pytest.approx(0.211 * 0.15, rel=1e-3)
    assert p99["error_y"]["array"][1] is None
    assert p99["error_y"]["arrayminus"][1] == pytest.approx(0.18 * 0.1, rel=1e-3)


def test_overloaded_points_are_hollow_and_void_ones_are_crosses_off_the_line() -> None:
    rows = served_rows()
    rows[2] = changed(rows[2], void=True, reasons={"void": "requests left late"})
    ttft = figures(page(rows=rows))[0]
    line = next(t for t in ttft["data"] if t["name"].startswith("p50") and "lines" in t["mode"])
    assert line["x"] == [2, 4, 12, 28]
    assert [colour == "var(--paper)" for colour in line["marker"]["color"]] == [False, False, False, True]
    crosses = [t for t in ttft["data"] if t["marker"]["symbol"] == "x-thin"]
    assert [t["x"] for t in crosses] == [[8], [8], [8]]


def test_the_three_numbers_and_the_service_level_are_marked() -> None:
    text = page(estimates=estimates(p99_itl_knee=Estimate("found", 6.0, 5.0, 7.0)))
    ttft = figures(text)[0]["layout"]["shapes"]
    assert [(s["x0"], s["x1"]) for s in ttft if s["type"] == "rect"] == [(15.2, 16.7), (5.0, 7.0), (11.0, 13.9)]
    assert [s["x0"] for s in ttft if s["type"] == "line" and s["xref"] == "x"] == [15.9, 13.6, 6.0, 12.4]
    assert [s["y0"] for s in ttft if s["type"] == "line" and s["xref"] == "paper"] == [1.0]
    for words in ("ceiling 15.9 (15.2-16.7)", "p99 ITL knee 6 (5-7)", "SLO capacity 12.4 (11-13.9)", "sustained 13.6"):
        assert words in text


@pytest.mark.parametrize(
    ("estimate", "big", "status"),
    [
        (Estimate("found", 15.9, 15.2, 16.7), "15.9", "found"),
        (Estimate("not_found_up_to", 12.0), "&gt; 12", "not reached"),
        (Estimate("below_range", 1.4), "&lt; 2", "below the lowest step"),
        (Estimate("inconclusive", None, 4.0, 8.0), "–", "inconclusive"),
        (Estimate("not_measurable"), "–", "not measured"),
    ],
)
def test_each_status_has_its_card(estimate: Estimate, big: str, status: str) -> None:
    text = page(estimates=estimates(ceiling=estimate))
    card = text[text.index('<article class="card') :]
    card = card[: card.index("</article>")]
    assert f'<p class="big">{big} ' in card
    assert f'<span class="status">{status}</span>' in card


def test_checks_come_void_first_and_notes_are_folded() -> None:
    checks = [
        Check("a_note", "note", "n"),
        Check("a_warn", "warn", "w", "Do this.", 1),
        Check("a_void", "void", "v", step=2),
    ]
    text = page(checks=checks)
    assert text.index("a_void") < text.index("a_warn") < text.index("<details>") < text.index("a_note")
    assert '<span class="where">4 req/s</span>' in text
    assert "No check found a reason" in page(checks=[])


def test_equal_findings_of_many_steps_are_one_line() -> None:
    text = page(checks=[Check("late", "warn", "late", "Cure.", i) for i in range(4)])
    assert text.count("<code>late</code>") == 1
    assert "2 req/s, 4 req/s, 8 req/s, 12 req/s" in text


def test_a_step_that_the_message_names_is_not_named_again() -> None:
    text = page(checks=[Check("partial_step", "warn", "the step at 4 req/s was late", "more workers", 1)])
    assert "<p>The step at 4 req/s was late.</p>" in text
    assert "</strong> More workers.</p>" in text


def test_the_evidence_table_says_which_signals_fired() -> None:
    rows = served_rows()
    rows[4] = changed(rows[4], evidence={"queue": {"first": 10.0, "last": 80.0, "limit": 12.0}}, arrival_rps=29.0)
    rows[2] = changed(rows[2], p99_itl_elasticity=1.4, p99_itl_elasticity_se=0.1)
    text = page(rows=rows)
    evidence = text[text.index('id="evidence"') : text.index('id="steps"')]
    assert evidence.count("● fired") == 3
    assert "10 to 80, limit 12" in evidence
    assert "54.8 %" in evidence
    assert "1.4 ± 0.2" in evidence


@pytest.mark.parametrize(
    ("more", "gone", "said"),
    [
        ({"samples": []}, "KV cache in use", "No metrics of the server were read"),
        ({"samples": [Sample(0.0, error="HTTP 404")]}, "KV cache in use", "could not be read (HTTP 404)"),
        ({"client": []}, "event loop lag", "Schedule lag"),
        ({"table": Table.of([])}, "Timeline", "Latency against load"),
        ({"rows": [], "estimates": {}}, "Latency against load", "No step was finished"),
        ({"scenario": ""}, "SLO limit", "No service level was set"),
    ],
)
def test_what_has_no_data_is_left_out_or_says_so(more: dict[str, Any], gone: str, said: str) -> None:
    text = page(**more)
    assert gone not in text[text.index("<main>") :].split('id="glossary"')[0]
    assert said in text


def test_the_step_where_most_failed_is_one_that_counts() -> None:
    rows = served_rows()
    rows[2] = changed(rows[2], errors={"client": 300}, ok=100, void=True, reasons={"void": "requests left late"})
    assert "Only requests of void steps failed. Void steps are drawn, but counted nowhere" in page(rows=rows)
    rows[3] = changed(rows[3], errors={"reset": 40}, ok=360)
    assert "Most failed at 12 req/s: 40 of 400. Void steps are drawn, but counted nowhere" in page(rows=rows)


def test_errors_show_their_kinds_or_one_line() -> None:
    assert "No request failed (2,400 requests in the measured windows)." in page()
    rows = served_rows()
    rows[3] = changed(rows[3], errors={"reset": 40, "http_429": 2}, ok=358)
    text = page(rows=rows)
    assert "Most failed at 12 req/s: 42 of 400." in text
    bars = [f for f in figures(text) if f["data"][0]["type"] == "bar"]
    assert [t["y"] for t in bars[0]["data"]] == [[0, 0, 0, 40, 0, 0], [0, 0, 0, 2, 0, 0]]


def test_failures_are_counted_as_endless_waits_beside_the_successes() -> None:
    rows = served_rows()
    why = "10 % of the requests failed"
    rows[3] = changed(rows[3], errors={"reset": 40}, ok=360, error_ratio=0.1, all_ttft_p99_s=None, all_e2e_p99_s=9.5)
    rows[3] = changed(rows[3], reasons={"all_ttft_p99_s": why})
    text = page(rows=rows)
    part = text[text.index('id="errors"') : text.index('id="timeline"')]
    cells = re.findall(r'<td data-label="[^"]*" class="">([^<]*)</td>', part)
    assert cells == ["12 req/s", "40", "10 %", "315 ms", why, "5.32 s", "9.5 s"]


def test_the_waterfall_shows_the_stall() -> None:
    slow = next(f for f in figures(page()) if any(t.get("name") == "stall" for t in f["data"]))
    stall = next(t for t in slow["data"] if t["name"] == "stall")
    lengths = [b - a for a, b in zip(stall["x"][0::3], stall["x"][1::3], strict=True)]
    assert lengths == pytest.approx([0.4] * len(lengths), abs=0.002)
    assert 1 <= len(lengths) <= 2


def test_a_closed_loop_has_users_on_its_axis_and_no_bands() -> None:
    measured = columns_of(served_rows()[0])
    latencies = {name: value for name, value in measured.items() if name.startswith(("ttft", "itl"))}
    rows = [row(i, None, users=n, **latencies) for i, n in enumerate((1, 8, 32))]
    ttft = figures(page(rows=rows, estimates={}))[0]
    assert ttft["layout"]["xaxis"]["title"]["text"] == "users (log scale)"
    assert ttft["data"][0]["x"] == [1, 8, 32]


def test_rows_that_miss_most_columns_still_make_a_report() -> None:
    text = page(rows=[row_of(step=0), row_of(step=1, rate_rps=2.0)], estimates={}, checks=[])
    assert outline(text).open == []
    assert "not measured" in text


def test_every_section_takes_a_run_of_nothing() -> None:
    empty = Run(RunInfo(), load(""), [], Table.of([]))
    assert all(section(empty) is None or isinstance(section(empty), str) for section in SECTIONS)
    assert "nothing was measured" in build_html(empty)


def test_without_scripts_the_page_says_where_the_numbers_are() -> None:
    (said,) = re.findall(r"<noscript>(.*?)</noscript>", page(), re.DOTALL)
    assert "Charts need JavaScript" in said
    assert "all tables work without it" in said


def test_stalls_stand_beside_itl_because_pooled_percentiles_hide_them() -> None:
    rows = served_rows()
    rows[3] = changed(rows[3], stalled_ratio=0.021, longest_gap_p99_s=0.41)
    text = page(rows=rows)
    assert '<td data-label="Stall share">2.1 %</td>' in text
    assert '<td data-label="Stall p99 gap">410 ms</td>' in text


def test_the_scenario_is_shown_and_a_huge_one_is_cut() -> None:
    assert "output_tokens = 128" in page()
    text = page(scenario=SCENARIO + "# x\n" * 100_000)
    assert "Cut here; scenario.toml holds the rest." in text
    assert len(text) < 1_000_000


def big(requests: int, tokens: int = 200, steps_n: int = 10) -> Run:
    """Many requests as columns, without a list of Python objects in between."""
    rng = np.random.default_rng(0)
    seconds = requests / 100.0
    due_s = np.sort(rng.uniform(0, seconds, requests))
    event_s = rng.exponential(0.025, (requests, tokens))
    np.cumsum(event_s, axis=1, out=event_s)
    event_s += due_s[:, None]
    few = served_table(seconds=1.0)
    columns: dict[str, Any] = {}
    named = ("status", "error", "token_source", "warnings", "label", "model")
    for name in ("seq", "step", "worker", *named, "kernel_stamps"):
        columns[name] = np.repeat(getattr(few, name)[:1], requests)
    for name in few.__slots__:
        if name not in columns and not name.startswith("event_") and name != "begin":
            columns[name] = np.repeat(getattr(few, name)[:1], requests)
    columns |= {"seq": np.arange(requests), "due_s": due_s, "sent_s": due_s, "stream_end_s": event_s[:, -1]}
    one, zero = np.int64(1), np.int64(0)
    table = Table(**columns, begin=np.arange(0, requests * tokens + 1, tokens), event_s=event_s.reshape(-1),
                  event_tokens=np.broadcast_to(one, requests * tokens),
                  event_choice=np.broadcast_to(zero, requests * tokens))  # fmt: skip
    run = served(table=table, samples=[Sample(float(t), values={"running": t % 9.0}) for t in range(int(seconds))])
    run.rows = [row(i, 2.0**i, begin_s=i * seconds / steps_n) for i in range(steps_n)]
    return run


def test_rp02_twenty_thousand_requests_of_two_hundred_tokens_stay_below_three_megabytes() -> None:
    assert len(build_html(big(20_000)).encode()) < MOST_BYTES


@pytest.mark.slow
def test_rp02_a_million_requests_of_two_hundred_tokens_stay_below_three_megabytes() -> None:
    assert len(build_html(big(1_000_000)).encode()) < MOST_BYTES


@pytest.mark.long
def test_a_ramp_of_two_hundred_steps_with_thousands_of_findings_stays_below_three_megabytes() -> None:
    columns = {
        k: v
        for k, v in columns_of(served_rows()[0]).items()
        if k.endswith("_s") and "window" not in k and k != "begin_s"
    }
    rows = [row(i, 1.0 + i, **columns, reasons={f"c{j}": "why " * 20 for j in range(40)}) for i in range(200)]
    checks = [Check(f"code_{i}", "warn", "message " * 30, "advice " * 30, i % 200) for i in range(5000)]
    assert len(build_html(served(rows=rows, checks=checks)).encode()) < MOST_BYTES
