"""SHOWS it: a run in, text out. Pure; the caller writes the files.

The forms: ``build_html`` (the offline report), ``summary_markdown``, ``terminal_table``, ``verdict_document`` (JSON
data), ``curve_csv``, and the ``verdict_sentence`` that opens all of them.
"""

from loadramp.report.document import curve_csv, verdict_document
from loadramp.report.html import build_html
from loadramp.report.markdown import summary_markdown
from loadramp.report.terminal import terminal_table
from loadramp.report.verdict_text import verdict, verdict_sentence

__all__ = [
    "build_html",
    "curve_csv",
    "summary_markdown",
    "terminal_table",
    "verdict",
    "verdict_document",
    "verdict_sentence",
]
