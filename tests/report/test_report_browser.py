"""The report in headless Chromium: every chart is drawn, nothing complains, nothing is fetched, a phone shows it."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from curve_rows import changed
from report_runs import estimates, row, served, served_rows

from loadramp.analysis.diagnosis.cures import cures_of
from loadramp.record.types import Check, Estimate, Finding
from loadramp.report import build_html

pytestmark = pytest.mark.browser

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr", "--virtual-time-budget=10000",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
)  # fmt: skip
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
MEASURE = """
<script>
addEventListener("load", () => setTimeout(() => {
  const wide = [...document.querySelectorAll("main *")].filter((e) =>
    e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll, pre, svg"));
  const texts = [...document.querySelectorAll(".plot")].map((plot) =>
    [...plot.querySelectorAll(".xtick text, .ytick text, .annotation-text")].map((t) => t.getBoundingClientRect())
      .filter((box) => box.width > 0));
  const hit = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const overlaps = texts.map((boxes) => boxes.filter((a, i) => boxes.some((b, k) => k > i && hit(a, b))).length);
  parent.postMessage(JSON.stringify({
    cut: [...document.querySelectorAll(".cards-when-narrow")].filter((t) =>
      t.scrollWidth > t.parentElement.clientWidth + 1).map((t) => t.className),
    inner: innerWidth, scroll: document.documentElement.scrollWidth, overlaps,
    wide: wide.map((e) => `${e.tagName}.${e.className}`).slice(0, 5),
  }), "*");
}, 2000));
</script>
"""


FRAME = """<body style="margin:0"><iframe src="measured.html" style="border:0;width:%dpx;height:2000px"></iframe>
<script>addEventListener("message", (event) => { document.body.dataset.measured = event.data; });</script>"""


def open_page(page: Path, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    if BROWSER is None:
        pytest.skip("no Chromium here")
    profile = tmp_path / f"profile-{len(list(tmp_path.iterdir()))}"
    return subprocess.run(
        [BROWSER, *QUIET, "--virtual-time-budget=20000", f"--user-data-dir={profile}", *options, page.as_uri()],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip


def busy_run() -> Any:
    """A run that shows everything at once: errors, void, knee, stalls, long words."""
    rows = served_rows()
    rows[1] = changed(rows[1], errors={"http_5xx": 30, "reset": 4}, ok=366)
    rows[2] = changed(rows[2], void=True, reasons={"void": "requests left the client 40 ms late"})
    rows[0] = changed(
        rows[0], ttft_p99_s=None, reasons={"ttft_p99_s": "60 requests cannot carry a p99: needs about 308 more"}
    )
    checks = [Check("c" * 80, "void", "m" * 200, "a" * 200, 2), Check("w", "warn", "late", "Cure.", 1)]
    knee = Estimate("found", 6.0, 5.0, 7.5, cause="prefill_mixing")
    cures = cures_of("kv_eviction", "vllm", {"longest": 4000, "context": 4400, "fewer": 51, "more": 128})
    findings = [Finding("kv_eviction", "certain", ("e" * 200, "103 preemptions"), (4,), cures),
                Finding("w" * 90, "possible", ("p99 ITL 40 ms",))]  # fmt: skip
    return served(rows=rows, checks=checks, estimates=estimates(p99_itl_knee=knee), path="p" * 300, findings=findings)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    page = tmp_path / "report.html"
    page.write_text(build_html(busy_run()))
    return page


def asked_urls(net_log: Path) -> list[str]:
    """Addresses that the page asked for, from the browser's log; what the browser asks for itself has no origin."""
    events = json.loads(net_log.read_text())["events"]
    asked = [params for event in events if "initiator" in (params := event.get("params", {}))]
    return [
        params["url"]
        for params in asked
        if params["initiator"] != "not an origin" and re.match(r"(https?|wss?|ftp):", params.get("url", ""))
    ]


def test_all_charts_are_drawn_without_an_error_or_a_request(report: Path, tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    seen = open_page(report, tmp_path, f"--log-net-log={log}", "--dump-dom", "--window-size=1400,3000")
    assert [line for line in seen.stderr.splitlines() if "CONSOLE" in line] == []
    assert asked_urls(log) == []
    charts = report.read_text().count('class="plot"')
    assert f'data-charts="{charts}"' in seen.stdout
    assert seen.stdout.count('class="plot js-plotly-plot"') == charts
    assert 'id="chart-trouble" hidden' in seen.stdout


def test_the_checks_above_would_see_trouble(report: Path, tmp_path: Path) -> None:
    """A foreign script and an image are refused by the policy, aloud; without the policy the request is seen."""
    bad, open_ = tmp_path / "bad.html", tmp_path / "open.html"
    bad.write_text(report.read_text().replace("</body>", '<script>1</script><img src="http://127.0.0.1:9/x"></body>'))
    log = tmp_path / "bad.json"
    seen = open_page(bad, tmp_path, f"--log-net-log={log}", "--dump-dom")
    said = [line for line in seen.stderr.splitlines() if "CONSOLE" in line]
    assert any("script-src" in line for line in said)
    assert any("img-src" in line for line in said)
    assert asked_urls(log) == []
    open_.write_text(POLICY.sub("", bad.read_text()))
    open_page(open_, tmp_path, f"--log-net-log={log}", "--dump-dom")
    assert asked_urls(log) == ["http://127.0.0.1:9/x"]


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_sticks_out_or_overlaps(report: Path, tmp_path: Path, width: int) -> None:
    text = POLICY.sub("", report.read_text()).replace("</body>", MEASURE + "</body>")
    (tmp_path / "measured.html").write_text(text)
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME % width)
    seen = open_page(frame, tmp_path, "--dump-dom", "--window-size=1500,2100")
    (told,) = re.findall(r'data-measured="([^"]*)"', seen.stdout)
    measured = json.loads(told.replace("&quot;", '"'))
    assert measured["inner"] == width
    assert measured["scroll"] <= width
    assert measured["wide"] == []
    assert measured["cut"] == []
    assert len(measured["overlaps"]) >= 12
    assert measured["overlaps"] == [0] * len(measured["overlaps"])


def test_rows_that_show_nothing_still_draw(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(build_html(served(rows=[row(0, 1.0)], estimates={}, samples=[], client=[])))
    seen = open_page(page, tmp_path, "--dump-dom")
    assert [line for line in seen.stderr.splitlines() if "CONSOLE" in line] == []
    assert "data-charts=" in seen.stdout
