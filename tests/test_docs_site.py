"""`make docs`: the documents as a site, built without a warning."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytest.importorskip("mkdocs", reason="the site needs the extra [dev]")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(where)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return where


def test_every_page_is_on_the_site_and_can_be_reached(site: Path) -> None:
    pages = {page.with_suffix(".html").name for page in (ROOT / "docs").glob("*.md")} - {"README.html"}
    linked = set(
        re.findall(r'class="md-nav__link" href="([^"]+)"|href="([\w-]+\.html)"', (site / "index.html").read_text())
    )
    assert pages | {"index.html"} == {page.name for page in site.glob("*.html")} - {"404.html"}
    assert pages <= {name for pair in linked for name in pair}
    decisions = (site / "decisions" / "index.html").read_text()
    assert all(f'href="{page.stem}.html"' in decisions for page in (ROOT / "docs/decisions").glob("0*.md"))


def test_the_search_finds_a_question(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert "faq.html#what-is-coordinated-omission" in {entry["location"] for entry in found}


def test_the_site_takes_nothing_from_other_hosts(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?://[^"]+)"', page.read_text())
        assert loaded == [], page.name


def test_what_pages_link_to_beside_the_documents_is_there(site: Path) -> None:
    assert (site / "repository" / "deploy" / "argo" / "web.yaml").read_bytes() == (
        ROOT / "deploy/argo/web.yaml"
    ).read_bytes()
    assert "decisions/0005" in (site / "repository" / "CONTRIBUTING.html").read_text()
