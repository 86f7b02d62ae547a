"""The whole report as one HTML file that needs no network: a policy forbids it any. Pure."""

import base64
import functools
import hashlib
from collections.abc import Sequence
from importlib import resources

from markupsafe import Markup

from loadramp.record.table import Run
from loadramp.report import charts as c
from loadramp.report.json_data import packed
from loadramp.report.sections import SECTIONS
from loadramp.report.verdict_text import verdict_sentence

MOST_BYTES = 3_000_000
"""Whatever a run holds; a ramp of a dozen steps takes less than two million."""


def build_html(run: Run) -> str:
    """The report: below ``MOST_BYTES`` whatever the run holds, as every series is thinned to what a screen shows."""
    made = [text for make in SECTIONS if (text := make(run))]
    return page(f"loadramp: {run.info.name or 'report'}", verdict_sentence(run), made)


def page(title: str, description: str, made: Sequence[str]) -> str:
    """One offline page of sections that templates have made; the first one is its head."""
    plotly, plotly_packed = _plotly()
    script, style = (
        resources.files("loadramp.report").joinpath(name).read_text("utf-8") for name in ("page.js", "page.css")
    )
    return str(
        c.render(
            "page.html.j2",
            title=title,
            description=description,
            policy=policy(plotly, script),
            style=Markup(style),  # noqa: S704  # our own file
            plotly=Markup(plotly_packed),  # noqa: S704  # no character of markup
            script=Markup(script),  # noqa: S704  # our own file
            sections=[Markup(text) for text in made],  # noqa: S704  # made by templates that escape
        )
    )


@functools.cache
def _plotly() -> tuple[str, str]:
    """Plotly's own script as the browser will run it, and packed."""
    text = resources.files("plotly").joinpath("package_data/plotly.min.js").read_text("utf-8")
    return text, packed(text)


def policy(*scripts: str) -> str:
    """A content security policy that runs exactly ``scripts`` and reaches nothing."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )


@functools.lru_cache(4)
def _hash(script: str) -> str:
    """Once for the pages of a process: plotly's script is 5 MB long."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
