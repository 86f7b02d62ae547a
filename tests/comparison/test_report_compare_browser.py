"""Pages of comparisons in headless Chromium: drawn without complaint, nothing fetched, nothing sticks out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_report_browser import FRAME, MEASURE, POLICY, asked_urls, open_page
from test_report_compare import configurations, found  # noqa: F401  # fixtures

from loadramp.comparison.configuration_table import tiers_html
from loadramp.comparison.configurations import tiers
from loadramp.comparison.decide import Decision
from loadramp.comparison.environment import Difference
from loadramp.comparison.page import comparison_html
from loadramp.comparison.pairs import Comparison
from loadramp.comparison.stored_runs import Side

pytestmark = pytest.mark.browser


def table_of(sides: list[Side]) -> str:
    made = tiers(sides, 0.05)
    made.environment = [[Difference("gpu", "condition", "H100", "L4"), FLAGS] if i else [] for i in range(len(sides))]
    return tiers_html(made)


FLAGS = Difference("flags", "subject", "unknown", "--enforce-eager --max-num-seqs 64 --enable-prefix-caching")
"""As long as they are in the field."""


def passed(one: Comparison) -> Comparison:
    reasons = (
        "no primary measure is worse by 10 %: the least certain, p99 ITL, is at most 1.03 times",
        "0 of 9 failed",
    )
    return replace(one, decision=Decision("pass", reasons), environment=[FLAGS])


@pytest.fixture(params=["fail", "pass", "configurations"])
def page(request: pytest.FixtureRequest, found: Comparison, configurations: list[Side], tmp_path: Path) -> Path:  # noqa: F811
    path = tmp_path / "report.html"
    made = {
        "fail": lambda: comparison_html(found),
        "pass": lambda: comparison_html(passed(found)),
        "configurations": lambda: table_of(configurations),
    }
    path.write_text(made[request.param]())
    return path


def test_all_charts_are_drawn_without_an_error_or_a_request(page: Path, tmp_path: Path) -> None:
    log = tmp_path / "net.json"
    seen = open_page(page, tmp_path, f"--log-net-log={log}", "--dump-dom", "--window-size=1400,3000")
    assert [line for line in seen.stderr.splitlines() if "CONSOLE" in line] == []
    assert asked_urls(log) == []
    charts = page.read_text().count('class="plot"')
    assert charts >= 2
    assert f'data-charts="{charts}"' in seen.stdout


@pytest.mark.parametrize("width", [1400, 400])
def test_nothing_sticks_out_or_overlaps(page: Path, tmp_path: Path, width: int) -> None:
    text = POLICY.sub("", page.read_text()).replace("</body>", MEASURE + "</body>")
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
    assert measured["overlaps"] == [0] * len(measured["overlaps"])
