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
    new: dict[str, Any] = {"latency": dict(row.latency), "slo": dict(row.slo)}
    for name in sorted(columns, key=lambda name: name == "reasons"):
        _set(row, new, name, columns[name])
    return replace(row, **new)


def _set(row: Row, new: dict[str, Any], name: str, value: Any) -> None:
    if name == "void":
        new["void"] = value if isinstance(value, tuple) else (Void("the client could not deliver it"),) * value
    elif name == "reasons":
        new["reasons"] = {key: why for key, why in value.items() if key != "void"}
        if value.get("void"):
            new["void"] = (Void(value["void"]),)
    elif name in _PLAIN:
        new[name] = value
    elif found := _LATENCY.fullmatch(name):
        measure, n, statistic, part = found.groups()
        old = new["latency"].get(measure, Quantiles(None if measure.startswith("all_") else 0))
        part_of = {"n": value} if n else {statistic: _statistic(getattr(old, statistic), part, value)}
        new["latency"][measure] = replace(old, **part_of)
    elif found := _SLO.fullmatch(name):
        metric, part = found.groups()
        slo = new["slo"].get(metric, SloStatistic())
        part_of = {"over_ratio": value} if part == "_over_ratio" else {"figure": _statistic(slo.figure, part, value)}
        new["slo"][metric] = replace(slo, **part_of)
    elif name.startswith("longest_gap_p99"):
        old = new.get("longest_gap_p99", row.longest_gap_p99)
        new["longest_gap_p99"] = _statistic(old, name.removeprefix("longest_gap_p99"), value)
    else:
        raise KeyError(name)


def _statistic(old: Statistic, part: str, value: float | None) -> Statistic:
    return replace(old, **{_PARTS[part]: value})


__all__ = ["changed", "columns_of", "row_of"]
