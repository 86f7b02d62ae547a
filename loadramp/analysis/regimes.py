"""Intervals of a step that hold in the long run although the engine's pace has regimes. Pure.

A latency is a time without regimes, times how slow the engine was meanwhile. The first varies as the blocks of the
window show; the second as the pace does over the whole run (docs/method.md, "Regimes").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, hypot, log
from typing import Any

import numpy as np

from loadramp.analysis.latency import QUANTILES, WindowView, families
from loadramp.analysis.long_run import Wander, interval_of, learn, track_of
from loadramp.analysis.quantiles import NOT_STATIONARY, QuantileEstimate, Values, estimate, mean, words
from loadramp.analysis.slowness import FLOOR_S, Following, Slowness, met, responses, slowness_of
from loadramp.record.table import Floats, Run
from loadramp.record.types import Check, Row
from loadramp.units import percent, span

TOO_WIDE = log(2.0)
"""An interval that reaches to less than half or more than twice the value is none."""
NARROW = 0.1
TOO_SLOW = "no interval: the engine's pace changes for longer than this step can tell; longer steps or repeats would do"


def widen(
    rows: Sequence[Row], look_at: Callable[[int], WindowView], slo_quantile: float, only: int | None = None
) -> list[Row]:
    """The rows with the intervals of the long run; as they are where the pace is steady.

    ``window_intervals`` of a row gets those of the window itself: what others saw of the same minute.

    Args:
        rows: of all steps and repeats of one run.
        look_at: the records of the window of ``rows[i]``.
        slo_quantile: the quantile of the columns ``slo_*``.
        only: change this row alone, from its own records and the pace of all.
    """
    known = learn(rows)
    if known is None:
        return list(rows)
    tracks = {i: track for i, row in enumerate(rows) if (track := track_of(row)) is not None and track.load is not None}
    slowness, following = slowness_of(list(tracks.values())), Following()
    chosen = [(k, i) for k, i in enumerate(tracks) if only in {None, i}]
    for k, i in chosen:
        following.add(met(look_at(i), slowness.over(k, rows[i]["window_begin_s"])))
    widened = {i: _widen(rows[i], look_at(i), k, slowness, following, known, slo_quantile) for k, i in chosen}
    return [widened.get(i, row) for i, row in enumerate(rows)]


def check(run: Run) -> list[Check]:
    """Whether the intervals are those of the long run, and how long a step would have to be for a narrow one."""
    rows = [row for row in run.rows if row.get("window_intervals") and row.get("pace_log_sd")]
    if not rows:
        return []
    row = max(rows, key=lambda one: float(one["pace_log_sd"]))
    length_s, log_sd = row["window_end_s"] - row["window_begin_s"], float(row["pace_log_sd"])
    longer_s = length_s * (1.96 * log_sd / log(1.0 + NARROW)) ** 2
    message = (
        f"the engine's pace has regimes: its mean over {span(length_s)} scatters by {percent(log_sd)} from the long "
        "run, so intervals say what holds in the long run and are wider than what the step alone would give"
    )
    if interval_of(run.rows) == "these_minutes":
        message = (
            f"the engine's pace changed: its mean over {span(length_s)} scatters by {percent(log_sd)}, so intervals "
            "are wider than what the step alone would give; too few slow stretches came and went in the steps to know "
            "the long run: intervals speak of these minutes"
        )
    advice = (
        f"{percent(NARROW)} either way takes steps of about {span(longer_s)} (--until-sure {NARROW:g}); --repeats 3 "
        "shows what changes over minutes"
    )
    return [Check("pace_regimes", "note", message, advice, row["step"])]


def _widen(
    row: Row, seen: WindowView, k: int, slowness: Slowness, following: Following, known: Wander, slo_quantile: float
) -> Row:
    """One row; the window is number ``k`` of ``slowness``."""
    row = {**row, "reasons": dict(row["reasons"])}
    if "classes" in row:
        row["classes"] = {kind: {name: dict(figures) for name, figures in names.items()}
                          for kind, names in row["classes"].items()}  # fmt: skip
    log_sd, stationary = known.log_sd(seen.length_s), bool(row["stationary"])
    plain = families(seen)
    lasts_s = float(np.mean(plain["e2e"].values)) if len(plain["e2e"]) else 0.0
    own: dict[str, list[float]] = {}
    for name, (values, slow) in met(seen, slowness.over(k, row["window_begin_s"])).items():
        elastic = following.of(name, values, slow)
        calm_logs = elastic.calm(np.log(np.maximum(values, FLOOR_S)), slow)
        given = replace(plain[name], chances=elastic.chances(calm_logs, slow))
        span_s = lasts_s if name in {"tpot", "e2e"} else 0.0
        stems = {f"{name}_{words(q)}": q for q in QUANTILES}
        if f"slo_{name}_s" in row:
            stems[f"slo_{name}"] = slo_quantile
        of_mean, varies = responses(calm_logs, slowness, elastic, span_s, seen.length_s, list(stems.values()))
        figure = _mean(plain[name], np.exp(calm_logs), stationary)
        _put(row, own, f"{name}_mean", figure, of_mean * log_sd, known.times)
        for (stem, q), response in zip(stems.items(), varies, strict=True):
            _put(row, own, stem, estimate(given, q, stationary), response * log_sd, known.times)
            for columns, other in _beside(row, stem):
                _stretch(columns, other, response * log_sd * known.times)
    return {**row, "window_intervals": own}


def _mean(data: Values, calm: Floats, stationary: bool) -> QuantileEstimate:
    """The mean, as uncertain as that of the values without regimes is in proportion."""
    value, still = float(data.values.mean()), mean(replace(data, values=calm, ordered=np.sort(calm)), stationary)
    if not still.value or still.low is None or still.high is None:
        return replace(still, value=value)
    return replace(still, value=value, low=value * still.low / still.value, high=value * still.high / still.value)


def _put(
    row: Row, own: dict[str, list[float]], stem: str, figure: QuantileEstimate, log_sd: float, times: float
) -> None:
    """The interval of one statistic: what varies without regimes and what they add, logarithms in quadrature.

    Where the first is not known there is none: that of the step alone would say nothing of the long run.
    """
    if row.get(f"{stem}_log_se") is not None:
        row[f"{stem}_log_se"] = hypot(row[f"{stem}_log_se"] if figure.log_se is None else figure.log_se, log_sd)
    value, low, high = figure.value, figure.low, figure.high
    if value is not None:
        row[f"{stem}_s"] = value
        row["reasons"].pop(f"{stem}_s", None)
    if value == 0.0 or low == 0.0:  # no logarithm, and nothing that could follow the pace
        return
    row[f"{stem}_low_s"] = row[f"{stem}_high_s"] = None
    if value is None or low is None:
        _explain(row, stem, figure.interval_reason or figure.reason)
        return
    if high is not None:
        own[stem] = [low, high]
    reach, down, up = times * log_sd, log(value / low), log(high / value) if high is not None else 0.0
    if max(hypot(down, reach), hypot(up, reach)) > TOO_WIDE:
        _explain(row, stem, TOO_SLOW)
        return
    row[f"{stem}_low_s"] = value * exp(-hypot(down, reach))
    row[f"{stem}_high_s"] = value * exp(hypot(up, reach)) if high is not None else None
    _explain(row, stem, "" if high is not None else figure.interval_reason)


def _explain(row: Row, stem: str, reason: str) -> None:
    """Why a limit is missing; nothing where the value itself is, or what is said once for the row."""
    row["reasons"].pop(f"{stem}_high_s", None)
    if reason and reason != NOT_STATIONARY and row.get(f"{stem}_s") is not None:
        row["reasons"][f"{stem}_high_s"] = reason


def _beside(row: Row, stem: str) -> list[tuple[dict[str, Any], str]]:
    """Columns that follow the pace like ``stem`` and keep intervals of their own: of everyone, classes, stalls."""
    others = [*(["longest_gap_p99"] if stem == "gap_p99" else []), f"all_{stem}"]
    of_classes = [figures for names in row.get("classes", {}).values() for figures in names.values()]
    return [(row, other) for other in others] + [(figures, stem) for figures in of_classes]


def _stretch(columns: dict[str, Any], stem: str, reach: float) -> None:
    """Add what regimes add to an interval that is there."""
    value, low, high = (columns.get(f"{stem}{end}_s") for end in ("", "_low", "_high"))
    if value and low:
        columns[f"{stem}_low_s"] = value * exp(-hypot(log(value / low), reach))
    if value and high:
        columns[f"{stem}_high_s"] = value * exp(hypot(log(high / value), reach))
