"""Throughput over the rate: what it costs in latency, what was delivered of what was asked, what was good, what failed.

Pure: a run in, HTML out.
"""

from collections.abc import Sequence

from markupsafe import Markup

from loadramp.record.row import SHORT_NAMES, Row
from loadramp.record.table import Run
from loadramp.report import charts as c
from loadramp.report import rows as r
from loadramp.report.charts import Figure, Json, Key, term
from loadramp.report.curves import P50, P99, floored, hover
from loadramp.report.json_data import rounded
from loadramp.units import NOTHING, latency, percent, plural, sig

Place = tuple[float, float]
KINDS = ("--p99", "--p50", "--p95", "--slo", "--knee", "--sky", "--ceiling")


def throughput_section(run: Run) -> str | None:
    """Latency against throughput, achieved against asked, goodput."""
    steps = _delivered(run)
    if not steps:
        return None
    panels = (_tradeoff(steps, "ttft"), _tradeoff(steps, "itl"), achieved_figure(run), good_figure(run))
    missing = "" if any(row.good_ratio is not None for row in steps) and run.scenario.slo.limits else (
        "No service level was set, so there is no goodput to show."
    )  # fmt: skip
    return c.chart_section("throughput", "Throughput and goodput", panels, words=missing)


def _delivered(run: Run) -> list[Row]:
    """The steps of the way up that the client delivered."""
    return [row for row in r.rising_rows(run) if not row.void]


def _tradeoff(steps: Sequence[Row], metric: str) -> Figure | None:
    """The latency-throughput curve: past the ceiling it turns back or straight up."""
    have = [row for row in steps if row.output_tokens_per_s and row.number(f"{metric}_p50_s") is not None]
    if not have:
        return None
    x = [row.output_tokens_per_s for row in have]
    lines = {q: floored(row.number(f"{metric}_{q}_s") for row in have) for q in ("p50", "p99")}
    data = []
    for q, key in (("p50", P50), ("p99", P99)):
        trace = c.series(key, x, lines[q], text=[hover(row, metric, q) for row in have], connectgaps=True)
        data.append(c.hollow_markers(trace, [r.hollow(row) for row in have]))
    x_axis = c.value_axis(x, sig, log=False, title="output tokens/s")
    axis = c.value_axis([*lines["p50"], *lines["p99"]])
    axis["range"] = [axis["range"][0], axis["range"][1] + (0.12 if axis.get("type") else axis["range"][1] * 0.08)]
    top = [high or low for low, high in zip(lines["p50"], lines["p99"], strict=True)]
    points = [(c.place(x_axis, a), c.place(axis, b)) for line in lines.values() for a, b in zip(x, line, strict=True)]
    sides = _label_sides([(c.place(x_axis, a), c.place(axis, b)) for a, b in zip(x, top, strict=True)], points)
    data.append(
        {"type": "scatter", "mode": "markers+text", "x": rounded(x), "y": rounded(top),
         "hoverinfo": "skip", "cliponaxis": False, "marker": {"size": 13, "opacity": 0},
         "text": [sig(row.load) if side else "" for row, side in zip(have, sides, strict=True)],
         "textposition": [side or "top center" for side in sides],
         "textfont": {"size": 11, "color": "var(--quiet)"}}
    )  # fmt: skip
    short = SHORT_NAMES[metric]
    return Figure(
        title=f"{short} against throughput",
        data=data,
        layout={"xaxis": x_axis, "yaxis": axis},
        words=f"Each point is a step, labelled with its {r.load_unit(steps)}. Flat to the right is good; where "
        "the line turns straight up or back, more load buys waiting instead of tokens.",
        key=(P50, P99),
    )


SIDES = (
    ("top center", 0.0, 0.09),
    ("bottom center", 0.0, -0.09),
    ("middle left", -0.06, 0.0),
    ("middle right", 0.06, 0.0),
)
"""Where a label may stand beside its point, in shares of the chart's width and height, the best place first."""


def _label_sides(labels: Sequence[Place], points: Sequence[Place]) -> list[str]:
    """The first side of each point where its label hits no other point or label; empty where there is none."""
    taken: list[Place] = []
    sides = []
    for at in labels:
        others = [p for p in points if p != at]
        free = (
            (side, (at[0] + dx, at[1] + dy))
            for side, dx, dy in SIDES
            if at[1] + dy > 0.04
            and all(abs(at[0] + dx - p[0]) > 0.05 or abs(at[1] + dy - p[1]) > 0.065 for p in (*others, *taken))
        )
        side, spot = next(free, ("", at))
        sides.append(side)
        taken += [spot] if side else []
    return sides


def achieved_figure(run: Run) -> Figure | None:
    """What came out against what was asked; None without a step."""
    steps = _delivered(run)
    delivered = Key("delivered (output tokens)", "--p50", symbol="circle")
    finished = Key("finished", "--sky", dash="dash", symbol="square")
    good = Key("good (within the SLO)", "--slo", dash="dot", symbol="diamond")
    sent = Key("sent by the client", "--quiet", "dot", symbol="cross-thin")
    columns = (("throughput_rps", delivered), ("done_rps", finished), ("good_rps", good), ("sent_rps", sent))
    x = [row.axis_load for row in steps]
    data, key = [], []
    for column, look in columns:
        y = [row.number(column) for row in steps]
        if all(v is None for v in y) or (column == "good_rps" and not run.scenario.slo.limits):
            continue
        data.append(c.over_load(look, steps, y, [f"{look.name} {sig(v)} req/s" for v in y]))
        key.append(look)
    if not data:
        return None
    top = max((v or 0.0) for v in x)
    values = [row.number(column) for row in steps for column, _ in columns]
    shapes, _, at = c.bands(run)
    axis = c.load_axis(steps, at, log=False)
    closed = r.closed_loop(steps)
    offered = [v for v in x if v]
    if offered and not closed:
        asked = Key("all that was asked", "--quiet", dash="dash")
        ends = [min(offered), top]
        data.insert(0, c.series(asked, ends, ends, hoverinfo="skip"))
        key.append(asked)
        values += ends
    return Figure(
        title="Asked and achieved",
        data=data,
        layout={"xaxis": axis, "yaxis": c.value_axis(values, sig, log=False, title="req/s"),
                "shapes": shapes},
        words="Where the line levels off, more users only wait longer." if closed else Markup(
            "As long as the server keeps up, {} lies on the dashed line; past the {} it stays behind, and the "
            "difference waits in the queue."
        ).format(term("delivered", "what is delivered"), term("ceiling", "ceiling")),
        key=key,
    )  # fmt: skip


def good_figure(run: Run) -> Figure | None:
    """The share of requests that were good, or that succeeded at all; None without a step."""
    steps = _delivered(run)
    looks = (
        ("good_ratio", Key("good: within every SLO limit", "--slo", symbol="circle")),
        ("ok", Key("succeeded", "--p50", dash="dash", symbol="square")),
    )
    data, key = [], []
    for column, look in looks:
        if column == "good_ratio" and not run.scenario.slo.limits:
            continue
        y = [_share(row) if column == "ok" else row.number(column) for row in steps]
        if all(v is None for v in y):
            continue
        data.append(c.over_load(look, steps, y, [f"{look.name} {percent(v)}" for v in y]))
        key.append(look)
    if not data:
        return None
    shapes, _, at = c.bands(run)
    return Figure(
        title="Share of good answers" if key[0].colour == "--slo" else "Share of requests that succeeded",
        data=data,
        layout={"xaxis": c.load_axis(steps, at), "shapes": shapes, "yaxis": c.share_axis(-0.03, 1.06, 0.25)},
        words=Markup("Of all requests due in the step, failed ones included. A request is {} when it succeeds within "
                     "every limit of the service level.").format(term("good", "good")),
        key=key,
    )  # fmt: skip


def _share(row: Row) -> float | None:
    ended = row.ended
    return row.ok / ended if ended > 0 else None


def errors_section(run: Run) -> str | None:
    """Failed requests by kind and step."""
    if not run.rows:
        return None
    by_row = [(row, row.errors) for row in run.rows]
    kinds = sorted(
        {kind for _, errors in by_row for kind in errors}, key=lambda k: (-sum(f.get(k, 0) for _, f in by_row), k)
    )
    if not kinds:
        total = sum(row.requests for row in run.rows)
        return c.section(
            "errors", "Errors", words=f"No request failed ({plural(total, 'request')} in the measured windows)."
        )
    names = [f"{r.label(row)} ({row.step})" for row, _ in by_row]
    data: list[Json] = []
    key = []
    for i, kind in enumerate(kinds):
        look = Key(r.ERROR_WORDS.get(kind, kind), KINDS[i % len(KINDS)], "band")
        y = [errors.get(kind, 0) for _, errors in by_row]
        text = [f"{name}<br>{look.name}: {plural(n, 'request')}" for name, n in zip(names, y, strict=True)]
        marks = {"shape": ("", "/", "x", "-", "|", "+", ".")[i % 7], "size": 6, "solidity": 0.35}
        data.append({"type": "bar", "name": look.name, "x": names, "y": y, "text": text, "hoverinfo": "text",
                     "textposition": "none", "width": 0.5,
                     "marker": {"color": f"var({look.colour})", "pattern": marks}})  # fmt: skip
        key.append(look)
    figure = Figure(
        title="Failed requests by kind",
        data=data,
        layout={"barmode": "stack", "xaxis": {"type": "category", "ticktext": [sig(row.load) for row, _ in by_row],
                                              "tickvals": names, "title": {"text": f"step, {r.load_unit(run.rows)}"}},
                "yaxis": {"title": {"text": "requests"}, "rangemode": "tozero"}},
        words=f"{_most_failed(run)} Latencies elsewhere in this report are those of successful requests, so a step "
        "with many failures looks faster than it is.",
        key=key,
    )  # fmt: skip
    return c.section("errors", "Errors", c.figures(figure, columns=1), _with_failures([row for row, f in by_row if f]))


def _most_failed(run: Run) -> str:
    """Where most failed, of the steps that count."""
    worst = max(r.delivered(run), key=lambda row: row.failed)
    n, of = worst.failed, worst.requests
    most = f"Most failed at {r.label(worst)}: {n:,} of {of:,}." if n else "Only requests of void steps failed."
    if any(row.void and row.errors for row in run.rows):
        most += " Void steps are drawn, but counted nowhere: what failed there may be the client's doing."
    return most


def _with_failures(rows: Sequence[Row]) -> Markup:
    """p99 of the successes beside p99 with failures counted as endless waits."""
    heads = ["Load", "Failed", "Share"]
    heads += [
        f"p99 {SHORT_NAMES[m]} of {who}" for m in ("ttft", "e2e") for who in ("successes", "all, failures endless")
    ]
    lines = []
    for row in rows:
        failed = row.failed
        texts = [r.label(row), f"{failed:,}", percent(row.error_ratio) or NOTHING]
        for metric in ("ttft", "e2e"):
            columns = (f"{metric}_p99_s", f"all_{metric}_p99_s")
            texts += [latency(row.number(column)) or row.reason(column) for column in columns]
        lines.append(texts)
    return c.grid(heads, lines)
