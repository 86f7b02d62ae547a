"""The run over time: load, requests in flight, token times as a heat map, the server's KV cache, the client. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadramp.analysis.server_window import gauge_series, growth_series
from loadramp.record.table import Floats, Ints, Run, Table
from loadramp.record.types import Sample
from loadramp.report import charts as c
from loadramp.report import downsample as d
from loadramp.report.charts import Figure, Json, Key
from loadramp.report.json_data import rounded
from loadramp.units import counted, plural, sig

BUCKETS = 300
HEAT_COLUMNS = 240
HEAT_ROWS = 36
LONG_PROMPT_TOKENS = 1024
MOST_MARKS = 400


@dataclass(slots=True)
class Lane:
    """One strip of the timeline: its title, its traces and its y axis."""

    title: str
    key: list[Key]
    data: list[Json] = field(default_factory=list)
    axis: Json = field(default_factory=dict)
    weight: float = 1.0


def timeline_section(run: Run) -> str | None:
    """The strips of ``timeline_figure``."""
    return c.chart_section("timeline", "Over time", [timeline_figure(run)], columns=1)


def timeline_figure(run: Run) -> Figure | None:
    """All strips on one time axis, so that cause and effect stand above each other; None without requests."""
    if len(run.table) == 0:
        return None
    end_s = _end_s(run)
    lanes = [lane for make in LANES if (lane := make(run, end_s))]
    layout: Json = {"xaxis": {"range": [0, end_s], "title": {"text": "seconds since the run began"}, "anchor": "y"}}
    data: list[Json] = []
    total, top, gap = sum(lane.weight for lane in lanes), 1.0, 0.055
    for i, lane in enumerate(lanes):
        name = "" if i == 0 else str(i + 1)
        height = (1.0 - gap * (len(lanes) - 1)) * lane.weight / total
        layout[f"yaxis{name}"] = {**lane.axis, "domain": [max(0.0, top - height), top]}
        data += [{**trace, "yaxis": f"y{name}", "xaxis": "x"} for trace in lane.data]
        layout.setdefault("annotations", []).append(_lane_title(lane.title, top))
        top -= height + gap
    layout["xaxis"]["anchor"] = f"y{len(lanes) if len(lanes) > 1 else ''}"
    layout["shapes"] = _step_shapes(run)
    layout["margin"] = {"t": 44}
    layout["annotations"] += _step_labels(run, end_s)
    no_server = "" if any(s.values for s in run.samples) else " " + _why_no_server(run.samples)
    return Figure(
        title="Timeline",
        data=data,
        layout=layout,
        height=int(150 * total) + 60,
        words="Grey stretches are the measured windows, with what was asked above. Requests in flight that climb all "
        "through a stretch: more came in than went out. In the heat map a dark cell holds many tokens; a second dark "
        f"band high above the main one is what makes the tail.{no_server}",
        lanes=[(lane.title, lane.key) for lane in lanes],
    )


def _lane_title(text: str, top: float) -> Json:
    return {"text": text, "xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left", "yanchor": "bottom",
            "showarrow": False, "font": {"size": 12, "color": "var(--quiet)"}}  # fmt: skip


def _end_s(run: Run) -> float:
    """The last instant of which anything is known."""
    table = run.table
    ends = [float(np.max(table.due_s)), *(step.end_s for step in run.steps)]
    done = table.done_s[np.isfinite(table.done_s)]
    ends += [float(done.max())] if len(done) else []
    ends += [float(table.event_s.max())] if len(table.event_s) else []
    return max(ends) or 1.0


def _step_labels(run: Run, end_s: float) -> list[Json]:
    """What each measured window asked, above it; left out where there is no room."""
    out: list[Json] = []
    last = -1.0
    for step in run.steps:
        begin, end = step.window_s
        at = (begin + end) / 2 / end_s
        if not step.measured or not step.measure_s or at - last < 1 / 22:
            continue
        last = at
        asked = sig(step.rate_rps) if step.users is None else f"{step.users}"
        out.append({"text": asked if step.role == "step" else f"{asked} {step.role}", "xref": "x", "yref": "paper",
                    "x": round(at * end_s, 2), "y": 1, "yanchor": "bottom", "yshift": 17, "showarrow": False,
                    "font": {"size": 12, "color": "var(--ink)"}})  # fmt: skip
    return out


def _step_shapes(run: Run) -> list[Json]:
    """The measured windows as grey stretches."""
    windows = [step.window_s for step in run.steps if step.measured and step.measure_s]
    return [
        {"type": "rect", "xref": "x", "yref": "paper", "x0": begin_s, "x1": end_s, "y0": 0, "y1": 1, "layer": "below",
         "fillcolor": "var(--window)", "line": {"width": 0}}
        for begin_s, end_s in windows[:200]
    ]  # fmt: skip


def line(key: Key, t_s: Floats, y: Floats, *, hv: bool = False) -> Json:
    """A line over time with no more points than pixels, extremes kept."""
    keep = d.extremes(t_s, y, BUCKETS)
    trace = c.series(key, np.round(t_s[keep], 2), y[keep], connectgaps=False, hovertemplate="%{x} s: %{y}")
    trace["line"] |= {"width": 1.4} | ({"shape": "hv"} if hv else {})
    return trace


def _load_lane(run: Run, end_s: float) -> Lane:
    asked = Key("asked", "--quiet", dash="dash")
    came = Key("due", "--sky")
    done = Key("finished", "--p50")
    edges = np.linspace(0.0, end_s, min(BUCKETS, max(10, int(end_s))) + 1)
    middle = (edges[:-1] + edges[1:]) / 2
    finished_s = run.table.done_s[run.table.ok]
    rates = {key: np.histogram(at, edges)[0] / (edges[1] - edges[0]) for key, at in
             ((came, run.table.due_s), (done, finished_s))}  # fmt: skip
    lane = Lane("Load, requests/s", [asked, came, done])
    lane.data = [line(key, middle, rate) for key, rate in rates.items()]
    steps = [step for step in run.steps if step.rate_rps is not None]
    if steps:
        x = np.array([at for step in steps for at in (step.begin_s, step.end_s)])
        y = np.array([step.rate_rps or 0.0 for step in steps for _ in range(2)])
        lane.data.append(line(asked, x, y))
    else:
        lane.key.remove(asked)
    lane.axis = c.value_axis(
        [*(v for rate in rates.values() for v in rate), *(s.rate_rps for s in steps)], sig, log=False
    )
    return lane


def _flight_lane(run: Run, end_s: float) -> Lane:
    table = run.table
    flight = Key("in flight (client)", "--p50")
    waiting = Key("waiting for first token (client)", "--p95", dash="dash")
    running = Key("running (server)", "--sky", dash="dot")
    queued = Key("waiting (server)", "--p99", dash="dot")
    none_s = np.where(np.isnan(table.first_s), table.done_s, table.first_s)
    lane = Lane("Requests in flight and waiting", [flight, waiting], weight=1.2)
    highest = [1.0]
    for key, ends_s in ((flight, table.done_s), (waiting, none_s)):
        t_s, n = d.level(table.due_s, ends_s)
        lane.data.append(line(key, t_s, n.astype(np.float64), hv=True))
        highest.append(float(n.max(initial=0)))
    for key, name in ((running, "running"), (queued, "waiting")):
        t_s, values = gauge_series(run.samples, name)
        if len(t_s):
            lane.data.append(line(key, t_s, values))
            lane.key.append(key)
            highest.append(float(values.max()))
    lane.axis = c.value_axis(highest, sig, log=False)
    return lane


def _ttft_lane(run: Run, end_s: float) -> Lane | None:
    """Time to first token by when the request was due: the middle and the worst of each stretch."""
    table = run.table
    have = ~np.isnan(table.first_s)
    if not have.any():
        return None
    edges = np.linspace(0.0, end_s, HEAT_COLUMNS + 1)
    column = np.clip(np.searchsorted(edges, table.due_s[have], side="right") - 1, 0, HEAT_COLUMNS - 1)
    ttft_s = np.maximum(table.ttft_s[have], d.LOW_S)
    order = np.lexsort((ttft_s, column))
    column, ttft_s = column[order], ttft_s[order]
    first = np.flatnonzero(np.concatenate(([True], np.diff(column) > 0)))
    size = np.diff(np.concatenate((first, [len(column)])))
    half, most = np.full((2, HEAT_COLUMNS), np.nan)  # NaN where nothing was due: the line breaks there
    half[column[first]], most[column[first]] = ttft_s[first + size // 2], ttft_s[first + size - 1]
    x = (edges[:-1] + edges[1:]) / 2
    middle, worst = Key("TTFT, median", "--p50"), Key("TTFT, longest", "--p99", dash="dot")
    lane = Lane("Time to first token", [middle, worst])
    lane.data = [line(middle, x, half), line(worst, x, most)]
    lane.axis = c.value_axis([ttft_s.min(), ttft_s.max()])
    return lane


def _token_lane(run: Run, end_s: float) -> Lane | None:
    """Heat map of the time between tokens with p50 and p99 of each column, and where long prompts came in."""
    counts = token_counts(run.table, end_s)
    if not counts.any():
        return None
    edges = np.linspace(0.0, end_s, HEAT_COLUMNS + 1)
    middle = (edges[:-1] + edges[1:]) / 2
    p50, p99 = Key("ITL, median", "--heat-line"), Key("ITL, p99", "--p99", dash="dot")
    lane = Lane("Time between tokens (ITL)", [p50, p99], weight=2.0)
    used = np.flatnonzero(counts.any(axis=0))
    per_bin = max(1, -(-int(used[-1] - used[0] + 1) // HEAT_ROWS))
    coarse = counts[:, : d.BINS - d.BINS % per_bin].reshape(HEAT_COLUMNS, -1, per_bin).sum(axis=2)
    filled = np.flatnonzero(coarse.sum(axis=0))
    low, high = int(filled[0]), int(filled[-1])
    cells = coarse[:, low : high + 1].T
    y_edges = d.bin_edge_s(np.arange(low, high + 2) * per_bin)
    with np.errstate(divide="ignore"):
        heat = np.where(cells > 0, np.log10(cells), np.nan)
    lane.data = [
        {"type": "heatmap", "x": np.round(edges, 2).tolist(), "y": rounded(y_edges),
         "z": [rounded(row, 2) for row in heat], "zmin": -0.3, "zsmooth": False,
         "showscale": False, "hoverinfo": "skip",
         "colorscale": [[0, "var(--heat-low)"], [0.5, "var(--heat-mid)"], [1, "var(--heat-high)"]]},
        line(p50, middle, d.quantile_of_bins(counts, 0.5)),
        line(p99, middle, d.quantile_of_bins(counts, 0.99)),
    ]  # fmt: skip
    lane.axis = c.value_axis([float(y_edges[0]), float(y_edges[-1])])
    rug = _long_prompts(run.table, float(y_edges[-1]))
    if rug:
        lane.data.append(rug[0])
        lane.key.append(rug[1])
    return lane


def token_counts(table: Table, end_s: float) -> Ints:
    """Tokens by time and latency, shape (HEAT_COLUMNS, BINS); all requests, read in slices."""
    counts = np.zeros(HEAT_COLUMNS * d.BINS, dtype=np.int64)
    for part in d.tokens(table):
        at = np.clip(part.end_s * (HEAT_COLUMNS / end_s), 0, HEAT_COLUMNS - 1).astype(np.int64) * d.BINS
        first = int(at.min(initial=len(counts)))  # requests of one time: they fill few columns
        at += d.bin_of(part.itl_s) - first
        here = d.counted(at, part.weight, 0)
        counts[first : first + len(here)] += here
    return counts.reshape(HEAT_COLUMNS, d.BINS)


def _long_prompts(table: Table, y: float) -> tuple[Json, Key] | None:
    """Marks where prompts of 1,024 tokens and more, among the longest tenth, got their first token."""
    size = table.input_tokens
    known = size[~np.isnan(size)]
    if len(known) < 20 or known.max() < LONG_PROMPT_TOKENS or known.max() < 2 * np.median(known):
        return None
    limit = max(float(LONG_PROMPT_TOKENS), float(np.quantile(known, 0.9)))
    at_s = np.sort(table.first_s[(size >= limit) & ~np.isnan(table.first_s)])
    if not len(at_s):
        return None
    at_s = at_s[np.unique(np.linspace(0, len(at_s) - 1, MOST_MARKS).astype(np.int64))]
    key = Key(f"first token of a prompt of {counted(sig(limit), 'token')} or more", "--knee", "dot", symbol="line-ns")
    trace = c.series(key, np.round(at_s, 2), np.full(len(at_s), y * 0.93), hoverinfo="skip")
    trace["marker"] |= {"size": 8}
    return trace, key


def _server_lane(run: Run, end_s: float) -> Lane | None:
    t_s, used = gauge_series(run.samples, "kv_used_ratio")
    at_s, preempted = growth_series(run.samples, "preemptions")
    if not len(t_s) and not preempted.any():
        return None
    lane = Lane("KV cache in use; preemptions", [])
    if len(t_s):
        key = Key("KV cache in use (server)", "--slo")
        lane.data.append(line(key, t_s, used))
        lane.key.append(key)
    if preempted.any():
        key = Key("preemptions since the scrape before (server)", "--p99", "dot", symbol="triangle-up")
        hit = np.flatnonzero(preempted)
        hit = hit[d.extremes(at_s[hit], preempted[hit], MOST_MARKS // 2)]
        text = [
            f"{sig(float(t))} s: {plural(int(n), 'preemption')}" for t, n in zip(at_s[hit], preempted[hit], strict=True)
        ]
        lane.data.append(c.series(key, np.round(at_s[hit], 1), np.full(len(hit), 1.06), text=text))
        lane.key.append(key)
    lane.axis = c.share_axis(0, 1.15)
    return lane


def _why_no_server(samples: Sequence[Sample]) -> str:
    """Why there is nothing of the server's own to show."""
    errors = [s.error for s in samples if s.error]
    if errors:
        return (
            f"The server's metrics could not be read ({errors[-1]}), so queue, KV cache and preemptions are not shown."
        )
    return "No metrics of the server were read, so its own queue, KV cache and preemptions are not shown."


LANES: tuple[Callable[[Run, float], Lane | None], ...] = (
    _load_lane,
    _flight_lane,
    _ttft_lane,
    _token_lane,
    _server_lane,
)
