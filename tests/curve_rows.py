"""Rows of the curve for tests, from the columns of docs/format.md; what is not named is as in ``Row()``."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any, get_args

from loadramp.record.row import Measure, Quantiles, Row, SloStatistic, Statistic, Void, columns_of

_LATENCY = re.compile(rf"({'|'.join(get_args(Measure))})_(?:(n)|(mean|p50|p90|p95|p99)(_low_s|_high_s|_log_se|_s))")
_SLO = re.compile(r"slo_(ttft|itl|tpot|e2e)(_low_s|_high_s|_log_se|_over_ratio|_s)")
_PARTS = {"_s": "value", "_low_s": "low", "_high_s": "high", "_log_se": "log_se"}
UNDELIVERED = Void("the client could not deliver it")
_PLAIN = {one.name for one in fields(Row)}


def row_of(**columns: Any) -> Row:
    """A row with these columns; raises KeyError for a name that is none."""
    return changed(Row(), **columns)


def changed(row: Row, **columns: Any) -> Row:
    """``row`` with other columns. ``void`` is True or a tuple; ``reasons["void"]`` says what made the step void."""
    for name in sorted(columns, key=lambda name: name == "reasons"):
        row = _with(row, name, columns[name])
    return row


def _with(row: Row, name: str, value: Any) -> Row:
    if name == "void":
        return replace(
            row, void=value if isinstance(value, tuple) else (Void("the client could not deliver it"),) * value
        )
    if name == "reasons":
        void = (Void(value["void"]),) if value.get("void") else row.void
        return replace(row, reasons={key: why for key, why in value.items() if key != "void"}, void=void)
    if name in _PLAIN:
        return replace(row, **{name: value})
    if found := _LATENCY.fullmatch(name):
        measure, n, statistic, part = found.groups()
        old = row.latency.get(measure, Quantiles(None if measure.startswith("all_") else 0))
        new = (
            replace(old, n=value)
            if n
            else replace(old, **{statistic: _statistic(getattr(old, statistic), part, value)})
        )
        return replace(row, latency={**row.latency, measure: new})
    if found := _SLO.fullmatch(name):
        metric, part = found.groups()
        slo = row.slo.get(metric, SloStatistic())
        slo = (
            replace(slo, over_ratio=value)
            if part == "_over_ratio"
            else replace(slo, figure=_statistic(slo.figure, part, value))
        )
        return replace(row, slo={**row.slo, metric: slo})
    if name.startswith("longest_gap_p99"):
        return replace(
            row, longest_gap_p99=_statistic(row.longest_gap_p99, name.removeprefix("longest_gap_p99"), value)
        )
    raise KeyError(name)


def _statistic(old: Statistic, part: str, value: float | None) -> Statistic:
    return replace(old, **{_PARTS[part]: value})


__all__ = ["changed", "columns_of", "row_of"]
