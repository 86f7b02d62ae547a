"""A metrics page to canonical values. Pure: text in, numbers out; absent is absent, never zero.

Of a quantity's names the first one on the page counts, so an old and a new name together are never doubled. Series of
several engines, ranks and GPUs become one number as the quantity says; NaN and infinity are no number.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

from loadramp.metrics.dialects import (
    CANONICAL,
    COMMON,
    COPIES,
    DIALECTS,
    DialectSeries,
    Source,
    candidates,
    fold,
    names_of,
    prefixed,
    wanted,
)
from loadramp.metrics.model_series import OF_THE_ENGINE, ModelChoice, ModelSelection, choose, names_in, select
from loadramp.metrics.prometheus_text import MetricPoint, names, parse

_Readable = tuple[str, Source, tuple[tuple[str, ...], ...]]

_ByName = Mapping[str, Sequence[tuple[dict[str, str], float]]]


QUERY_PATH = "/api/v1/query"


@dataclass(slots=True, frozen=True)
class PageReading:
    """What was read of one page: whose it is, its canonical values, and which models' series are in them."""

    dialect: str | None = None
    values: Mapping[str, float] = field(default_factory=dict)
    choice: ModelChoice = field(default_factory=ModelChoice)


def read_for(
    asked: ModelSelection,
    page: str,
    dialect: str | None = None,
    before: ModelChoice | None = None,
    elsewhere: bool = False,
) -> PageReading:
    """The canonical values of a metrics page, of the models that are ``asked`` where it names them.

    Args:
        asked: what requests ask for; nothing: all models count.
        page: Prometheus or OpenMetrics text, the JSON answer of a Prometheus query, or anything at all. Of several
            engines on it, the one that serves an asked model is taken.
        dialect: a key of DIALECTS when it is known; None looks for itself.
        before: what counted at the last scrape of this page.
        elsewhere: another page of the run names an asked model.

    Returns:
        an empty reading when the page is no known engine's.
    """
    queried = points_of_query(page)
    likely = [dialect] if dialect else candidates(names(page) if queried is None else {point.name for point in queried})
    readings = [
        _read_as(name, asked, page, queried, before, elsewhere) for name in (likely if asked.names else likely[:1])
    ]
    best = next((reading for reading in readings if reading.choice.known), readings[0] if readings else PageReading())
    strangers = [
        name for reading in readings if reading is not best and best.choice.known for name in reading.choice.unasked
    ]
    left_out = tuple(dict.fromkeys((*best.choice.left_out, *strangers)))
    return replace(best, choice=replace(best.choice, left_out=left_out))


def _read_as(
    dialect: str,
    asked: ModelSelection,
    page: str,
    queried: list[MetricPoint] | None,
    before: ModelChoice | None,
    elsewhere: bool,
) -> PageReading:
    points = parse(page, _wanted(dialect)) if queried is None else queried
    if not asked.names or dialect == "dcgm":  # a GPU serves whom it serves
        return PageReading(dialect, values_of(points, dialect))
    of_engine = [point for point in points if point.name in _wanted(dialect)]
    around: list[MetricPoint] = []
    if not any(names_in(point.labels) for point in of_engine):  # a router may name models with its own counters only
        every = parse(page) if queried is None else queried
        around = [point for point in every if prefixed(point.name, dialect) and names_in(point.labels)]
    choice = choose([*of_engine, *around], asked, before, elsewhere)
    counted, base = select(of_engine, choice, around)
    values = values_of(counted, dialect)
    if base:
        whole = values_of(base, dialect)
        values |= {name: whole[name] for name in OF_THE_ENGINE & whole.keys() if name not in values}
    return PageReading(dialect, values, choice)


def values_of(points: Iterable[MetricPoint], dialect: str) -> dict[str, float]:
    """Canonical values of points in ``dialect``; the same series twice counts once, with its last value."""
    series: dict[tuple[str, tuple[tuple[str, str], ...]], MetricPoint] = {
        (point.name, tuple(sorted(point.labels.items()))): point for point in points
    }
    by_name: dict[str, list[tuple[dict[str, str], float]]] = {}
    for point in series.values():
        by_name.setdefault(point.name, []).append((point.labels, point.value))
    values: dict[str, float] = {}
    for canonical, source, alternatives in _readable(dialect):
        if canonical not in values:
            parts = [_first(by_name, spelt, canonical, source, COPIES.get(dialect, ())) for spelt in alternatives]
            present = [part for part in parts if part is not None]
            if len(present) == len(parts):
                values[canonical] = sum(present)
    return values


def why_not(page: str) -> str:
    """In words, for a page of which nothing could be read."""
    start = page.lstrip()[:1]
    if not start:
        return "empty page"
    if start == "<":
        return "HTML, not metrics"
    if start in "[{":
        return "JSON, not metrics"
    return "no known engine's metrics"


@lru_cache(maxsize=32)
def _wanted(dialect: str) -> frozenset[str]:
    return wanted(dialect)


@lru_cache(maxsize=32)
def _readable(dialect: str) -> tuple[_Readable, ...]:
    """(canonical, source, spellings of each name it needs), in the order in which they are tried."""
    return tuple(
        (canonical, source, names_of(source, canonical))
        for canonical, sources in {**DIALECTS[dialect], **COMMON}.items()
        for source in sources
    )


def _first(
    by_name: _ByName, spelt: Sequence[str], canonical: str, source: Source, copies: Sequence[str]
) -> float | None:
    """The value under the first of the spellings that shows a number. None of these quantities is negative."""
    most = 1.0 + 1e-6 if CANONICAL[canonical].unit == "ratio" else math.inf
    for name in spelt:
        numbers: dict[tuple[tuple[str, str], ...], float] = {}
        for labels, value in by_name.get(name, ()):
            number = _number(labels, value, source)
            if number is not None and 0.0 <= number <= most:  # vLLM V0: -1 is "off"; a ratio of 40 is percent
                key = tuple(sorted((k, v) for k, v in labels.items() if k not in copies))
                numbers[key] = max(number, numbers.get(key, number))
        if numbers:
            return fold(canonical, numbers.values())
    return None


def _number(labels: Mapping[str, str], value: float, source: Source) -> float | None:
    """The number of one series, None where its labels or the number rule it out."""
    if isinstance(source, DialectSeries):
        if any(labels.get(label) not in allowed for label, allowed in source.only.items()):
            return None
        if any(labels.get(label) in ruled_out for label, ruled_out in source.skip.items()):
            return None
        if source.label:
            try:
                value = float(labels.get(source.label, ""))
            except ValueError:
                return None
        value *= source.scale
    return value if math.isfinite(value) else None


def query_url(url: str) -> str:
    """``url`` with the GPU query, where it is the address of a Prometheus query without one; else ``url`` itself."""
    parts = urlsplit(url)
    if not parts.path.endswith(QUERY_PATH) or "query" in parse_qs(parts.query):
        return url
    fields = sorted(name for name in wanted("dcgm") if name.startswith("DCGM_"))
    matcher = f'__name__=~"{"|".join(fields)}"'
    asked = f"query={quote('{' + matcher + '}', safe='')}"
    return urlunsplit(parts._replace(query="&".join(filter(None, (parts.query, asked)))))


def points_of_query(body: str) -> list[MetricPoint] | None:
    """The points of an instant query's answer (``resultType`` vector), None when ``body`` is no such answer."""
    if not body.lstrip().startswith("{") or '"resultType"' not in body:
        return None
    try:
        data = json.loads(body)["data"]
        return [_point(series) for series in data["result"]] if data["resultType"] == "vector" else None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None


def _point(series: dict[str, Any]) -> MetricPoint:
    labels = {str(name): str(value) for name, value in series["metric"].items()}
    return MetricPoint(labels.pop("__name__", ""), labels, float(series["value"][1]))
