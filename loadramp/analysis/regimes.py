"""Intervals of a step that hold in the long run although the engine's pace has regimes. Pure.

A latency is a time without regimes, times how slow the engine was meanwhile. The first varies as the blocks of the
window show; the second as the pace does over the whole run (docs/method.md, "Regimes").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, hypot, log

import numpy as np

from loadramp.analysis.latency import QUANTILES, WindowView, families
from loadramp.analysis.long_run import Wander, interval_of, learn, track_of
from loadramp.analysis.quantiles import NOT_STATIONARY, QuantileEstimate, Values, estimate, mean, quantile_name
from loadramp.analysis.slowness import FLOOR_S, Following, Slowness, met, responses, slowness_of, usual_responses
from loadramp.record.row import UNKNOWN, Row, Statistic
from loadramp.record.table import Floats, Run
from loadramp.record.types import Check
from loadramp.units import percent, span

NARROW = 0.1
Measured = dict[str, tuple[QuantileEstimate, float]]
"""By statistic: as uncertain as it is without regimes, and its response to the slowness of the window."""


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
        following.add(met(look_at(i), slowness.over(k, rows[i].window_begin_s)))
    measured = {i: _measured(rows[i], look_at(i), k, slowness, following, slo_quantile) for k, i in chosen}
    usual = usual_responses([{stem: response for stem, (_, response) in each.items()} for each in measured.values()])
    widened = {i: _widen(rows[i], each, usual, known) for i, each in measured.items()}
    return [widened.get(i, row) for i, row in enumerate(rows)]


def check(run: Run) -> list[Check]:
    """That the intervals are those of the long run, and how long a step would have to be for a narrow one."""
    rows = [row for row in run.rows if row.window_intervals and row.pace_log_sd]
    if not rows:
        return []
    row = max(rows, key=lambda row: row.pace_log_sd or 0.0)
    length_s, log_sd = row.length_s, row.pace_log_sd or 0.0
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
    return [Check("pace_regimes", "note", message, advice, row.step)]


def _measured(
    row: Row, window: WindowView, k: int, slowness: Slowness, following: Following, slo_quantile: float
) -> Measured:
    """What one row measured; the window is number ``k`` of ``slowness``."""
    out: Measured = {}
    plain = families(window)
    lasts_s = float(np.mean(plain["e2e"].values)) if len(plain["e2e"]) else 0.0
    for name, (values, slow) in met(window, slowness.over(k, row.window_begin_s)).items():
        elastic = following.of(name, values, slow)
        calm_logs = elastic.calm(np.log(np.maximum(values, FLOOR_S)), slow)
        given = replace(plain[name], chances=elastic.chances(calm_logs, slow))
        span_s = lasts_s if name in {"tpot", "e2e"} else 0.0
        stems = {f"{name}_{quantile_name(q)}": q for q in QUANTILES}
        if name in row.slo:
            stems[f"slo_{name}"] = slo_quantile
        of_mean, varies = responses(calm_logs, slowness, elastic, span_s, window.length_s, list(stems.values()))
        figures = [_mean(plain[name], np.exp(calm_logs), row.stationary)]
        figures += [estimate(given, q, row.stationary) for q in stems.values()]
        out |= zip([f"{name}_mean", *stems], zip(figures, [of_mean, *varies], strict=True), strict=True)
    return out


def _widen(row: Row, measured: Measured, usual: Mapping[str, float], known: Wander) -> Row:
    """One row, with the larger of its own and the usual response of each statistic."""
    figures, reasons = row.statistics, dict(row.reasons)
    log_sd = known.log_sd(row.length_s)
    intervals: dict[str, tuple[float, float]] = {}
    for stem, (figure, response) in measured.items():
        sd = max(response, usual[stem]) * log_sd
        figures[stem], why = _of_long_run(figures.get(stem, UNKNOWN), figure, sd, known.times)
        _explain(reasons, stem, figure, why if figures[stem].value is not None or not why else "")
        if figure.value and figure.low and figure.high is not None:
            intervals[stem] = figure.low, figure.high
        for other in (f"all_{stem}", "longest_gap_p99" if stem == "gap_p99" else ""):
            if other in figures:
                figures[other] = _stretched(figures[other], sd * known.times)
    return replace(row.with_statistics(figures, reasons), window_intervals=intervals)


def _mean(data: Values, calm: Floats, stationary: bool) -> QuantileEstimate:
    """The mean, as uncertain as that of the values without regimes is in proportion."""
    value, still = float(data.values.mean()), mean(replace(data, values=calm), stationary)
    if not still.value or still.low is None or still.high is None:
        return replace(still, value=value)
    return replace(still, value=value, low=value * still.low / still.value, high=value * still.high / still.value)


def _of_long_run(
    old: Statistic, measured: QuantileEstimate, log_sd: float, times: float
) -> tuple[Statistic, str | None]:
    """One statistic: what varies without regimes and what they add, logarithms in quadrature; and why it has no upper
    limit, None where that stays as it was.

    Where the first is not known there is no interval: that of the step alone would say nothing of the long run.
    """
    own_se = old.log_se if measured.log_se is None else measured.log_se
    log_se = None if old.log_se is None or own_se is None else hypot(own_se, log_sd)
    figure = replace(old, value=old.value if measured.value is None else measured.value, log_se=log_se)
    value, low, high = measured.value, measured.low, measured.high
    if value == 0.0 or low == 0.0:  # no logarithm, and nothing that could follow the pace
        return figure, None
    figure = replace(figure, low=None, high=None)
    if value is None or low is None:
        return figure, measured.interval_reason or measured.reason
    down = hypot(log(value / low), times * log_sd)
    up = hypot(log(high / value) if high is not None else 0.0, times * log_sd)
    if high is None:
        return replace(figure, low=value * exp(-down)), measured.interval_reason
    return replace(figure, low=value * exp(-down), high=value * exp(up)), ""


def _explain(reasons: dict[str, str], stem: str, figure: QuantileEstimate, why: str | None) -> None:
    """Why a limit is missing; nothing where the value itself is, or what is said once for the row."""
    if figure.value is not None:
        reasons.pop(f"{stem}_s", None)
    if why is not None:
        reasons.pop(f"{stem}_high_s", None)
        if why not in {"", NOT_STATIONARY}:
            reasons[f"{stem}_high_s"] = why


def _stretched(figure: Statistic, reach: float) -> Statistic:
    """With what regimes add to an interval that is there."""
    value, low, high = figure.value, figure.low, figure.high
    if value and low:
        figure = replace(figure, low=value * exp(-hypot(log(value / low), reach)))
    return replace(figure, high=value * exp(hypot(log(high / value), reach))) if value and high else figure
