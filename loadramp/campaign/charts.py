"""Charts of a campaign: the soak's block p99s and memory, and what callers met around an overload and a kill. Pure."""

from collections.abc import Sequence
from math import exp, log

import numpy as np

from loadramp.analysis.quantiles import quantile
from loadramp.campaign.criteria import PhaseView
from loadramp.campaign.drift import Drift, trend
from loadramp.campaign.recovery import availability
from loadramp.record.table import Floats
from loadramp.report import charts as c
from loadramp.report.charts import Figure, Json, Key
from loadramp.units import latency, sentence, sig

BINS = 150
ANSWERED = Key("answered", "--p50", "band")
FAILED = Key("failed", "--p99", "band")
DOWN = Key("health check failing", "--bad", "band")
TYPICAL = Key("median", "--p50")
SLOW = Key("p95", "--p95", dash="dash")
MEASURED = Key("measured", "--p50", symbol="circle")
LINE = Key("trend", "--p99", dash="dash")


def drift_figures(phase: PhaseView) -> list[Figure]:
    """Each quantity of the soak over its blocks, with the line that was tested."""
    row = phase.rows[0] if phase.rows else None
    if row is None:
        return []
    return [figure for drift in phase.drifts if (figure := _drift(drift, row.window_begin_s)) is not None]


def _drift(drift: Drift, begin_s: float) -> Figure | None:
    known = [(k, value) for k, value in enumerate(drift.values) if value is not None]
    if len(known) < 5 or drift.block_s is None:
        return None
    memory = drift.metric.endswith("_bytes")
    minutes = np.array([(begin_s + (k + 0.5) * drift.block_s) / 60.0 for k, _ in known])
    values = np.array([value / (1e9 if memory else 1.0) for _, value in known])
    text = sig if memory else latency
    hover = [f"minute {at:.3g}<br>{text(value)}" for at, value in zip(minutes, values, strict=True)]
    data = [c.series(MEASURED, minutes, values, text=hover, mode="markers"), _line(minutes, values)]
    top = float(values.max())
    axis = c.value_axis([0.0, top], text, log=False, title="GB" if memory else "")
    return Figure(
        title=drift.words if memory else f"{drift.words} of each {drift.block_s:.0f} s",
        data=data,
        layout={"xaxis": {"title": {"text": "minutes since the run began"}, "rangemode": "tozero"}, "yaxis": axis},
        words=sentence(drift.reason),
        key=(MEASURED, LINE),
    )


def _line(minutes: Floats, values: Floats) -> Json:
    """The Theil-Sen line of the logarithms, through their medians."""
    logs = np.array([log(max(value, 1e-9)) for value in values])
    slope, middle = trend(logs).slope, float(np.median(np.arange(len(logs))))
    ends = [exp(float(np.median(logs)) + slope * (k - middle)) for k in (0, len(logs) - 1)]
    return c.series(LINE, [float(minutes[0]), float(minutes[-1])], ends, hoverinfo="skip")


def event_figures(phase: PhaseView, marks: Sequence[tuple[float, str]], words: str) -> list[Figure]:
    """Around an event: requests by what became of them, and waits for the first token, over time.

    Args:
        phase: as it was measured.
        marks: (instant in s, what happened) to draw as upright lines.
        words: what the reader is to look at.
    """
    table = phase.run.table
    if len(table) == 0 or not phase.rows:
        return []
    begin_s, end_s = phase.rows[0].begin_s, phase.rows[-1].window_end_s
    width_s = max(1.0, (end_s - begin_s) / BINS)
    edges = np.arange(begin_s, end_s + width_s, width_s)
    middle = (edges[:-1] + edges[1:]) / 2.0
    layout: Json = {"shapes": _shapes(phase, begin_s, end_s, marks), "annotations": _notes(marks)}
    x_axis = {"range": [begin_s, end_s], "title": {"text": "seconds since the run began"}}
    return [
        _fates(phase, edges, middle, width_s, layout, x_axis, words),
        _waits(phase, edges, middle, layout, x_axis),
    ]


def _fates(
    phase: PhaseView, edges: Floats, middle: Floats, width_s: float, layout: Json, x_axis: Json, words: str
) -> Figure:
    table = phase.run.table
    counts = [np.histogram(table.due_s[flags], edges)[0] / width_s for flags in (table.ok, table.failed)]
    data = [
        {"type": "bar", "name": key.name, "x": np.round(middle, 2).tolist(), "y": np.round(y, 3).tolist(),
         "width": width_s, "marker": {"color": f"var({key.colour})", "line": {"width": 0}},
         "hovertemplate": f"%{{x}} s: %{{y}} req/s {key.name}<extra></extra>"}
        for key, y in zip((ANSWERED, FAILED), counts, strict=True)
    ]  # fmt: skip
    top = float((counts[0] + counts[1]).max()) or 1.0
    return Figure(
        title="Requests by when they were due",
        data=data,
        layout={**layout, "barmode": "stack", "bargap": 0, "xaxis": x_axis, "margin": {"t": 26},
                "yaxis": c.value_axis([0.0, top], sig, log=False, title="req/s")},
        words=words,
        key=(ANSWERED, FAILED, DOWN),
    )  # fmt: skip


def _waits(phase: PhaseView, edges: Floats, middle: Floats, layout: Json, x_axis: Json) -> Figure:
    table = phase.run.table
    fine = table.ok & ~np.isnan(table.ttft_s)
    at = np.digitize(table.due_s[fine], edges) - 1
    ttft_s = table.ttft_s[fine]
    typical: list[float | None] = []
    slow: list[float | None] = []
    for k in range(len(middle)):
        inside = np.sort(ttft_s[at == k])
        typical.append(quantile(inside, 0.5) if len(inside) else None)
        slow.append(quantile(inside, 0.95) if len(inside) >= 5 else None)
    axis = c.value_axis([*typical, *slow])
    return Figure(
        title="Time to first token of those answered",
        data=[
            c.series(SLOW, middle, slow, connectgaps=False, hovertemplate="%{x} s: %{y} s"),
            c.series(TYPICAL, middle, typical, connectgaps=False, hovertemplate="%{x} s: %{y} s"),
        ],
        layout={**layout, "xaxis": x_axis, "yaxis": axis, "margin": {"t": 26}},
        words="By when they were due. A gap: nobody was answered.",
        key=(TYPICAL, SLOW, DOWN),
    )


def _shapes(phase: PhaseView, begin_s: float, end_s: float, marks: Sequence[tuple[float, str]]) -> list[Json]:
    there = availability(phase.health, begin_s, end_s)
    bands: list[Json] = [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": outage.begin_s, "x1": outage.end_s, "y0": 0, "y1": 1,
         "layer": "below", "fillcolor": "var(--bad-fill)", "line": {"width": 0}}
        for outage in there.outages[:100]
    ]  # fmt: skip
    return [*bands, *(c.upright(at_s, "var(--ink)", "dash", 1.2) for at_s, _ in marks)]


def _notes(marks: Sequence[tuple[float, str]]) -> list[Json]:
    return [
        {"text": words, "xref": "x", "yref": "paper", "x": at_s, "y": 1, "yanchor": "bottom", "xanchor": "left",
         "showarrow": False, "font": {"size": 11.5, "color": "var(--ink)"}}
        for at_s, words in marks
    ]  # fmt: skip
