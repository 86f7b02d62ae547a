"""Definitions for the end of a page: glossary.toml."""

from collections.abc import Sequence

from loadramp.registry import data_of
from loadramp.report import charts as c

GLOSSARY = data_of(__package__, "glossary.toml")
"""Anchor (pages link to ``#g-anchor``) to words and text."""


def glossary(anchors: Sequence[str] = (), more: dict[str, dict[str, str]] | None = None) -> str:
    """The section of definitions: ``more``, then those of ``anchors``; without anchors all of them."""
    terms = (more or {}) | {name: GLOSSARY[name] for name in GLOSSARY if name in anchors or not anchors}
    return c.section("glossary", "Glossary", c.render("glossary.html.j2", glossary=terms))
