"""Prometheus and OpenMetrics text to points and back. Pure, and never raises: what cannot be read is counted.

Only the names asked for are parsed: of a vLLM page's 500 lines a scraper wants 60.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class MetricPoint(NamedTuple):
    """One line of a page. ``name`` carries its suffix (``_total``, ``_sum``, ``_bucket``)."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(slots=True)
class Page:
    """What could be read of a page, in its order, and how many lines could not."""

    points: list[MetricPoint] = field(default_factory=list)
    bad_lines: int = 0


@dataclass(slots=True, frozen=True)
class Family:
    """A metric to be written: points under one HELP and TYPE."""

    name: str
    kind: str
    help: str
    points: Sequence[MetricPoint]


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


def parse(page: str, wanted: Collection[str] | None = None) -> Page:
    """The points of ``page``; with ``wanted`` only those names, and only their bad lines are counted.

    Takes time stamps, exemplars, escapes, quoted names, CRLF, a torn last line and any garbage. Time stamps and
    exemplars are dropped. A NaN or infinite value is kept: it is the reader's to judge.
    """
    out = Page()
    for line in page.split("\n"):
        head = _HEAD.match(line)
        if head is None:
            if not line.lstrip(" \t").startswith("{"):
                continue  # blank or comment
        elif wanted is not None and head[1] not in wanted:
            continue
        point = _point(line.rstrip("\r"))
        if point is None:
            out.bad_lines += 1
        elif wanted is None or point.name in wanted:
            out.points.append(point)
    return out


def names(page: str) -> set[str]:
    """The sample names on ``page``, unread otherwise: enough to tell whose page it is."""
    return {head[1] for line in page.split("\n") if (head := _HEAD.match(line)) is not None}


def _point(line: str) -> MetricPoint | None:
    matched = _LINE.fullmatch(line)
    if matched is None:
        return None
    value, name, text = _number(matched["value"]), matched["name"], matched["labels"] or ""
    if name is None:  # {"quoted.name", label="x"}: the form for names outside the classic alphabet
        quoted = _QUOTED_NAME.match(text)
        if quoted is None:
            return None
        name, text = _plain(quoted[1]), text[quoted.end() :]
    labels = _labels(text)
    return None if value is None or labels is None else MetricPoint(name, labels, value)


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
    if "\\" not in escaped:
        return escaped
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[0]), escaped)


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def expose(families: Iterable[Family]) -> str:
    """A page in the classic text format, as python's prometheus_client writes it (numbers as floats)."""
    lines: list[str] = []
    for family in families:
        lines.append(
            f"# HELP {family.name} {family.help.replace(chr(92), chr(92) * 2).replace(chr(10), chr(92) + 'n')}"
        )
        lines.append(f"# TYPE {family.name} {family.kind}")
        lines += [_written(point) for point in family.points]
    return "\n".join(lines) + "\n"


def histogram(
    name: str, bounds: Sequence[float], counts: Sequence[int], total: float, labels: Mapping[str, str]
) -> list[MetricPoint]:
    """The points of one histogram.

    Args:
        name: the family's name, without suffix.
        bounds: k finite upper bounds, ascending.
        counts: k + 1 observations by bucket, not cumulated; the last is above every bound.
        total: sum of all observations.
        labels: of every point.
    """
    points, seen = [], 0
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        seen += count
        points.append(MetricPoint(f"{name}_bucket", {**labels, "le": _text_of(bound)}, float(seen)))
    return [
        *points,
        MetricPoint(f"{name}_count", dict(labels), float(seen)),
        MetricPoint(f"{name}_sum", dict(labels), total),
    ]


def _written(point: MetricPoint) -> str:
    pairs = ",".join(f'{name}="{_escaped(value)}"' for name, value in point.labels.items())
    return f"{point.name}{{{pairs}}} {_text_of(point.value)}" if pairs else f"{point.name} {_text_of(point.value)}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _text_of(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
