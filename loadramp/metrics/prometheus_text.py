"""Reads Prometheus and OpenMetrics text. Pure, and never raises: lines that cannot be read are left out.

Only the names asked for are parsed: of a vLLM page's 500 lines a scraper wants 60. Why prometheus_client's parser does
not do it: docs/decisions/0020-our-own-parser-of-metrics-pages.md.
"""

import re
from collections.abc import Collection
from typing import NamedTuple


class MetricPoint(NamedTuple):
    """One line of a page. ``name`` carries its suffix (``_total``, ``_sum``, ``_bucket``)."""

    name: str
    labels: dict[str, str]
    value: float


_HEAD = re.compile(r"[ \t]*([^\s{#][^\s{]*)")
_QUOTED = r'"((?:[^"\\]|\\.)*+)"'
_LINE = re.compile(
    r"[ \t]*(?P<name>[a-zA-Z_:][a-zA-Z0-9_:.]*)?[ \t]*"
    r'(?:\{(?P<labels>(?:[^"{}]|"(?:[^"\\]|\\.)*+")*+)\})?'
    r"[ \t]*(?P<value>[^\s#{]+)[ \t]*(?P<stamp>[-+0-9.eE]+)?[ \t]*(?:#.*)?"
)
_LABEL = re.compile(rf"\s*(?:(?P<name>[a-zA-Z_][a-zA-Z0-9_.:]*)|{_QUOTED})\s*=\s*{_QUOTED}\s*(?:,|\Z)")
_QUOTED_NAME = re.compile(rf"\s*{_QUOTED}\s*(?:,|\Z)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}


def parse(page: str, wanted: Collection[str] | None = None) -> list[MetricPoint]:
    """The points of ``page`` in its order; with ``wanted`` only those names.

    Takes time stamps, exemplars, escapes, quoted names, CRLF, a torn last line and any garbage. Time stamps and
    exemplars are dropped. A NaN or infinite value is kept: it is the reader's to judge.
    """
    points: list[MetricPoint] = []
    for line in page.split("\n"):
        head = _HEAD.match(line)
        if head is None:
            if not line.lstrip(" \t").startswith("{"):
                continue  # blank or comment
        elif wanted is not None and head[1] not in wanted:
            continue
        point = _point(line.rstrip("\r"))
        if point is not None and (wanted is None or point.name in wanted):
            points.append(point)
    return points


def names(page: str) -> set[str]:
    """The sample names on ``page``, unread otherwise: enough to tell whose page it is."""
    return {head[1] for line in page.split("\n") if (head := _HEAD.match(line)) is not None}


def _point(line: str) -> MetricPoint | None:
    matched = _LINE.fullmatch(line)
    if matched is None:
        return None
    name, text = matched["name"], matched["labels"] or ""
    if name is None:  # {"quoted.name", label="x"}: the form for names outside the classic alphabet
        quoted = _QUOTED_NAME.match(text)
        if quoted is None:
            return None
        name, text = _plain(quoted[1]), text[quoted.end() :]
    labels = _labels(text)
    try:
        return None if labels is None or "_" in matched["value"] else MetricPoint(name, labels, float(matched["value"]))
    except ValueError:
        return None


def _labels(text: str) -> dict[str, str] | None:
    labels: dict[str, str] = {}
    at, end = 0, len(text.rstrip())
    while at < end:
        label = _LABEL.match(text, at)
        if label is None:
            return None
        labels[label["name"] or _plain(label[2] or "")] = _plain(label[3])
        at = label.end()
    return labels


def _plain(escaped: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[0]), escaped) if "\\" in escaped else escaped
