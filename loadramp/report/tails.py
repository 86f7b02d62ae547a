"""The tails: how many waited longer than t, step by step, and where the slowest requests lost their time. Pure."""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from loadramp.record.event_columns import taken
from loadramp.record.row import LONG_NAMES, SHORT_NAMES, Row
from loadramp.record.table import Floats, Ints, Run, Table, within
from loadramp.record.types import Step
from loadramp.report import charts as c
from loadramp.report import downsample as d
from loadramp.report import rows as r
from loadramp.report.charts import Figure, Json, Key, term
from loadramp.report.json_data import rounded
from loadramp.units import count, latency, percent

MOST_STEPS = 10
SLOWEST = 6
MIDDLE = 2
MARKS = 260
"""Tokens drawn side by side over the width of a waterfall; closer ones are one mark."""
STALL_FACTOR = 10.0
STALL_S = 0.25
COLOURS = ("--sky", "--p50", "--slo", "--p95", "--p99", "--knee")
DASHES = ("solid", "dash")


def tails_section(run: Run) -> str | None:
    """CCDF of TTFT and ITL, one line a step."""
    chosen = _steps_to_draw(run)
    if not chosen:
        return None
    ttft, itl = first_token_counts(run.table, chosen), token_counts(run.table, chosen)
    key = [_step_key(i, row) for i, (_, row) in enumerate(chosen)]
    panels = (_tail_panel("ttft", ttft, key), _tail_panel("itl", itl, key))
    words = Markup(
        "How to read this: at a time on the x axis, the height of the line is the share of {} that took longer. p99 is "
        "where a line crosses 1 %. Successful requests of the measured windows."
    ).format(term("ccdf", "first tokens, or tokens,"))
    return c.chart_section("tails", "Tails", panels, words=words, key=key)


def _step_key(place: int, row: Row) -> Key:
    """Colour and dash of a step's line; overloaded steps are dotted."""
    over = not r.quiet_row(row)
    dash = "dot" if over else DASHES[place // len(COLOURS) % len(DASHES)]
    return Key(
        f"{r.label(row)} ({r.state_words(row)})" if over else r.label(row), COLOURS[place % len(COLOURS)], dash=dash
    )


def _steps_to_draw(run: Run) -> list[tuple[Step, Row]]:
    """Steps of the ramp up that are not void, at most ten: all around the ceiling, every other one far below it."""
    by_index = {step.index: step for step in run.steps if step.measure_s}
    steps = [(by_index[row.step], row) for row in r.rising_rows(run) if not row.void and row.step in by_index]
    while len(steps) > MOST_STEPS:
        steps = steps[: -MOST_STEPS // 2][::2] + steps[-MOST_STEPS // 2 :]
    return steps


def first_token_counts(table: Table, chosen: Sequence[tuple[Step, Row]]) -> Ints:
    """TTFT of successes by step of their due time, shape (steps, BINS)."""
    counts = np.zeros((len(chosen), d.BINS), dtype=np.int64)
    ttft_s, ok = table.ttft_s, table.ok & ~np.isnan(table.first_s)
    for i, (step, _) in enumerate(chosen):
        inside = ok & within(table.due_s, step.window_s)
        counts[i] = np.bincount(d.bin_of(ttft_s[inside]), minlength=d.BINS)
    return counts


def token_counts(table: Table, chosen: Sequence[tuple[Step, Row]]) -> Ints:
    """ITL of successes by the window in which the token arrived, shape (steps, BINS)."""
    counts = np.zeros((len(chosen), d.BINS), dtype=np.int64)
    for part in d.tokens(table, ok_only=True):
        first_s, last_s = part.end_s.min(initial=np.inf), part.end_s.max(initial=-np.inf)
        for i, (step, _) in enumerate(chosen):
            begin_s, end_s = step.window_s
            if first_s < end_s and last_s >= begin_s:
                inside = within(part.end_s, step.window_s)
                counts[i] += d.counted(d.bin_of(part.itl_s[inside]), taken(part.weight, inside), d.BINS)
    return counts


def _tail_panel(metric: str, counts: Ints, keys: Sequence[Key]) -> Figure | None:
    data: list[Json] = []
    values: list[float] = []
    lowest = 1e-2
    for row, key in zip(counts, keys, strict=True):
        x, share = d.tail(row)
        if len(x) < 2:
            continue
        shown = f"{key.name}: %{{y:.3~g}} % took longer than %{{x:.4g}} s"
        trace = c.series(key, x, 100.0 * share, hovertemplate=shown)
        trace["line"] |= {"width": 1.8}
        data.append(trace)
        values += [float(x[0]), float(x[-1])]
        lowest = min(lowest, float(share[-1]))
    if not data:
        return None
    short, long = SHORT_NAMES[metric], LONG_NAMES[metric]
    shares = [s for s in (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6) if s >= lowest / 1.5]
    x_axis = c.value_axis(values)
    x_axis["title"] = {"text": f"{short} longer than"}
    if x_axis.get("type") == "log" and len(x_axis["tickvals"]) > 6:
        ticks = c.log_ticks(10 ** x_axis["range"][0], 10 ** x_axis["range"][1], most=5)
        x_axis |= {"tickvals": ticks, "ticktext": [latency(t) for t in ticks]}
    return Figure(
        title=f"{short}: {long}",
        data=data,
        layout={
            "xaxis": x_axis,
            "yaxis": {"type": "log", "range": [np.log10(max(lowest, 1e-7)) + 1.85, 2.08],
                      "tickvals": [100.0 * s for s in shares], "ticktext": [percent(s) for s in shares]},
            "shapes": [c.level_line(1.0, "var(--quiet)", "dot")],
        },
        words="The dotted level is p99 (log scale). Lines that fan out to the right: a tail that grows with the rate.",
    )  # fmt: skip


def waterfall_section(run: Run) -> str | None:
    """The slowest requests and two ordinary ones, token by token."""
    shown = [(row, "highest step that kept up") for row in r.kept_up(run)[-1:]]
    shown += [(row, "overloaded step") for row in (r.broke(run),) if row is not None]
    by_index = {step.index: step for step in run.steps}
    panels = [
        _waterfall(run.table, by_index[row.step], f"{r.label(row)}, {what}")
        for row, what in shown
        if row.step in by_index
    ]
    words = Markup(
        "One line a request, from the moment it was due. Orange: waiting for the first token. Ticks: tokens. Red: {}: "
        "no token for much longer than usual. The two lowest lines are ordinary requests, for comparison."
    ).format(term("stall", "stalls"))
    key = [
        Key("waiting for the first token", "--p95", "line"),
        Key("token", "--p50", "dot", symbol="line-ns"),
        Key("stall", "--p99", "line"),
    ]
    return c.chart_section("slowest", "Slowest requests", panels, words=words, key=key)


def _waterfall(table: Table, step: Step, title: str) -> Figure | None:
    inside = np.flatnonzero(table.ok & within(table.due_s, step.window_s) & (table.events >= 2))
    if len(inside) < SLOWEST + MIDDLE:
        return None
    ranked = inside[np.argsort(-table.e2e_s[inside], kind="stable")]
    half = len(ranked) // 2
    lines = [*ranked[:SLOWEST], *ranked[half : half + MIDDLE]]
    data, names = _traces(table, lines, float(table.e2e_s[ranked[0]]))
    slowest, ordinary = table.e2e_s[ranked[0]], table.e2e_s[ranked[half]]
    first = table.ttft_s[ranked[0]]
    ticks = [float(len(lines) - place) for place in range(len(lines))]
    return Figure(
        title=title,
        data=data,
        layout={"xaxis": {"title": {"text": "seconds since due"}, "rangemode": "tozero"},
                "yaxis": {"tickvals": ticks, "ticktext": names, "range": [0.4, len(lines) + 0.6], "showgrid": False}},
        words=f"The slowest took {latency(float(slowest))}, {percent(float(first / slowest), 2)} of it before the "
        f"first token; an ordinary one took {latency(float(ordinary))}.",
        height=70 + 26 * len(lines),
    )  # fmt: skip


def _traces(table: Table, lines: Sequence[int], width_s: float) -> tuple[list[Json], list[str]]:
    """Waits, stalls and tokens of the requests ``lines`` from the top down, and what to call each."""
    waits: tuple[list[float | None], list[float | None]] = ([], [])
    stalls: tuple[list[float | None], list[float | None]] = ([], [])
    marks: tuple[list[float], list[float]] = ([], [])
    names = []
    for place, i in enumerate(lines):
        y = float(len(lines) - place)
        at_s = table.event_s[table.begin[i] : table.begin[i + 1]] - table.due_s[i]
        waits[0].extend((0.0, float(at_s[0]), None))
        waits[1].extend((y, y, None))
        for from_s, to_s in _stalls(at_s):
            stalls[0].extend((from_s, to_s, None))
            stalls[1].extend((y, y, None))
        kept = _thin(at_s, width_s)
        marks[0].extend(kept.tolist())
        marks[1].extend([y] * len(kept))
        names.append(f"#{int(table.seq[i])} · {count(_size(table, int(i)))} tok")
    data: list[Json] = [
        {"type": "scatter", "mode": "lines", "x": rounded(waits[0]), "y": waits[1],
         "hoverinfo": "skip", "name": "waiting for the first token", "line": {"color": "var(--p95)", "width": 7}},
        {"type": "scatter", "mode": "lines", "x": rounded(stalls[0]), "y": stalls[1],
         "hoverinfo": "skip", "name": "stall", "line": {"color": "var(--p99)", "width": 3}},
        {"type": "scatter", "mode": "markers", "x": rounded(marks[0]), "y": marks[1], "name": "token",
         "hovertemplate": "%{x} s",
         "marker": {"symbol": "line-ns", "size": 9, "line": {"width": 1, "color": "var(--p50)"}}},
    ]  # fmt: skip
    return data, names


def _size(table: Table, i: int) -> float:
    """Output tokens of a request, as told or as counted."""
    tokens = float(table.output_tokens[i])
    return tokens if np.isfinite(tokens) else float(table.event_tokens[table.begin[i] : table.begin[i + 1]].sum())


def _stalls(at_s: Floats) -> list[tuple[float, float]]:
    """Gaps above max(10 medians, 250 ms), as (from, to) since due."""
    gap_s = np.diff(at_s)
    long = np.flatnonzero(gap_s > max(STALL_FACTOR * float(np.median(gap_s)), STALL_S))
    return [(float(at_s[i]), float(at_s[i + 1])) for i in long]


def _thin(at_s: Floats, width_s: float) -> Floats:
    """The first token of each of MARKS equal stretches of the chart's width."""
    _, first = np.unique((at_s * (MARKS / max(width_s, 1e-6))).astype(np.int64), return_index=True)
    return at_s[first]
