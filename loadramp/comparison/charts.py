"""Pictures of a comparison: ratios with intervals, block by block, curves of both, quantile shifts. Pure.

The baseline is always the dashed line with hollow points, the candidate the solid one.
"""

import math
from collections.abc import Sequence

from loadramp.comparison.blocks import MEASURES
from loadramp.comparison.noninferior import Effect
from loadramp.comparison.pairs import Comparison, Pair, QuantileShift
from loadramp.record.row import LONG_NAMES, SHORT_NAMES, Row
from loadramp.record.table import Run
from loadramp.report import charts as c
from loadramp.report import rows as r
from loadramp.report.charts import Figure, Json, Key
from loadramp.report.curves import floored
from loadramp.report.json_data import rounded
from loadramp.units import latency, multiple, plural, sig

BASE = Key("baseline", "--p50", dash="dash", symbol="circle", hollow=True)
CANDIDATE = Key("candidate", "--p99", symbol="circle")
ALLOWED = Key("allowed", "--slo", "line", dash="dot")
STATUS_KEYS = {
    "within": Key("within the limit", "--slo", "dot", symbol="circle"),
    "beyond": Key("beyond the limit", "--p99", "dot", symbol="diamond"),
    "worse": Key("worse, limit open", "--p95", "dot", symbol="square"),
    "open": Key("open", "--quiet", "dot", symbol="circle", hollow=True),
    "no_data": Key("no data", "--quiet", "dot", symbol="x-thin"),
}
BLOCK_METRICS = ("itl_p99", "itl_p50", "ttft_p50", "ttft_p95")
ROW_HEIGHT = 30


def forest(effects: Sequence[Effect], title: str) -> Figure | None:
    """Ratio with interval of each measure; the limit as a tick on its line."""
    shown = [effect for effect in effects if effect.mean is not None and not effect.vague]
    if not shown:
        return None
    values = [
        v
        for effect in shown
        for v in (effect.ratio(), effect.ratio("low"), effect.ratio("high"), effect.allowed_ratio)
        if v
    ]
    n = len(shown)
    traces = [_whiskered(effect, n - 1 - i) for i, effect in enumerate(shown)]
    limits = [_tick(effect.allowed_ratio, n - 1 - i) for i, effect in enumerate(shown)]
    return Figure(
        title=title,
        data=traces,
        layout={
            "xaxis": _ratio_axis(values, "candidate / baseline (log scale)"),
            "yaxis": {
                "range": [-0.6, n - 0.4],
                "tickvals": list(range(n)),
                "ticktext": [_label(effect, effects) for effect in shown[::-1]],
                "showgrid": False,
            },
            "shapes": [c.upright(1.0, "var(--quiet)", "solid", 1.2), *limits],
            "margin": {"l": 118},
        },
        words="Points are the ratio, whiskers its 95 % interval, upright ticks how far it may go. A whisker across the "
        "tick leaves the question open.",
        height=64 + ROW_HEIGHT * n,
        key=[*dict.fromkeys(STATUS_KEYS[effect.status] for effect in shown), ALLOWED],
    )


def _whiskered(effect: Effect, y: float) -> Json:
    key = STATUS_KEYS[effect.status]
    ratio = effect.ratio()
    trace = c.series(key, [ratio], [y], text=[_hover(effect)])
    reach = c.whiskers([ratio], [effect.ratio("low")], [effect.ratio("high")], key.colour)
    trace["error_x"] = reach | {"width": 5, "thickness": 1.6}
    trace["marker"] |= {"size": 9}
    return trace


def _tick(x: float, y: float) -> Json:
    line = {"color": "var(--slo)", "width": 2, "dash": "dot"}
    return {"type": "line", "xref": "x", "yref": "y", "x0": x, "x1": x, "y0": y - 0.34, "y1": y + 0.34, "line": line}


def _ratio_axis(values: Sequence[float], title: str) -> Json:
    """A logarithmic axis of ratios around 1, with a little room."""
    low, high = min(0.95, *values), max(1.05, *values)
    room = (math.log10(high) - math.log10(low)) * 0.05
    ticks = _ratio_ticks(low, high)
    return {
        "type": "log",
        "range": [math.log10(low) - room, math.log10(high) + room],
        "tickvals": ticks,
        "ticktext": [sig(t) for t in ticks],
        "title": {"text": title},
    }


def block_by_block(comparison: Comparison) -> list[Figure]:
    """The value of both arms in each block, for a few measures, at each rate."""
    out = []
    for metric in dict.fromkeys([*(m for m in BLOCK_METRICS if m in comparison.asked.primary), *BLOCK_METRICS]):
        for rate in dict.fromkeys(pair.round.rate_rps for pair in comparison.pairs):
            figure = _blocks(metric, rate, [pair for pair in comparison.pairs if pair.round.rate_rps == rate])
            if figure is not None:
                out.append(figure)
    return out[:8]


def _blocks(metric: str, rate: float, pairs: Sequence[Pair]) -> Figure | None:
    sides = [[getattr(pair, arm).values.get(metric) if pair.usable else None for pair in pairs]
             for arm in ("baseline", "candidate")]  # fmt: skip
    known = [v for side in sides for v in side if v is not None]
    if not known:
        return None
    x = [float(i + 1) for i in range(len(pairs))]
    data = [
        c.series(key, x, floored(side), text=[f"block {i + 1}, {key.name}<br>{latency(v)}" for i, v in enumerate(side)])
        for key, side in zip((BASE, CANDIDATE), sides, strict=True)
    ]
    step = max(1, -(-len(x) // 10))
    return Figure(
        title=f"{MEASURES[metric].words} at {sig(rate)} req/s",
        data=data,
        layout={
            "xaxis": {"range": [0.5, len(x) + 0.5], "tickvals": x[::step], "ticktext": [sig(v) for v in x[::step]],
                      "title": {"text": "block"}},
            "yaxis": c.value_axis(known, log=False),
        },
        words="Each pair of points is the same stretch of time and the same requests: what moves both is the "
              "environment, the distance between them is the version.",
        height=240,
        key=(BASE, CANDIDATE),
    )  # fmt: skip


def curves(comparison: Comparison) -> list[Figure]:
    """p50 and p99 of each latency of both arms over the rate, where there is more than one."""
    arms = [(BASE, _steps(comparison.baseline)), (CANDIDATE, _steps(comparison.candidate))]
    rates = {row.load for _, rows in arms for row in rows}
    if len(rates) < 2:
        return []
    return [figure for metric in SHORT_NAMES if (figure := _curve(metric, arms))]


def _steps(run: Run) -> list[Row]:
    """One row a rate: of several blocks at the same one, the middle one by p50 ITL."""
    by_rate: dict[float, list[Row]] = {}
    for row in r.rising_rows(run):
        if not row.void:
            by_rate.setdefault(row.load or 0.0, []).append(row)
    return [sorted(rows, key=lambda row: row.of("itl").p50.value or 0.0)[len(rows) // 2] for rows in by_rate.values()]


def _curve(metric: str, arms: Sequence[tuple[Key, list[Row]]]) -> Figure | None:
    data: list[Json] = []
    values: list[float | None] = []
    for key, rows in arms:
        for q, symbol, width in (("p50", "circle", 1.4), ("p99", "diamond", 2.2)):
            look = Key(f"{key.name} {q}", key.colour, dash=key.dash, symbol=symbol, hollow=key.hollow)
            y = floored(row.number(f"{metric}_{q}_s") for row in rows)
            values += y
            text = [
                f"{key.name}, {r.label(row)}<br>{q} {SHORT_NAMES[metric]} {latency(v)}"
                for row, v in zip(rows, y, strict=True)
            ]
            trace = c.series(look, [row.load for row in rows], y, text=text, connectgaps=True)
            trace["line"]["width"] = width
            if q == "p99":
                low, high = ([row.number(f"{metric}_p99_{side}_s") for row in rows] for side in ("low", "high"))
                trace["error_y"] = c.whiskers(y, low, high, key.colour)
            data.append(trace)
    if all(v is None for v in values):
        return None
    return Figure(
        title=f"{SHORT_NAMES[metric]}: {LONG_NAMES[metric]}",
        data=data,
        layout={"xaxis": c.load_axis([row for _, rows in arms for row in rows]), "yaxis": c.value_axis(values)},
        words="p50 thin with circles, p99 thick with diamonds and its 95 % interval.",
    )


def shifts(comparison: Comparison) -> list[Figure]:
    """Candidate / baseline at each quantile, with the interval over blocks as a band."""
    return [figure for family, points in comparison.shifts.items() if (figure := _shift(family, points))]


def _shift(family: str, points: Sequence[QuantileShift]) -> Figure | None:
    if len(points) < 3:
        return None
    x = [q for q, *_ in points]
    ratio, low, high = ([point[i] for point in points] for i in (1, 2, 3))
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*x, *x[::-1]],
        "y": rounded([*high, *low[::-1]]),
        "fill": "toself",
        "fillcolor": "var(--knee-fill)",
        "line": {"width": 0, "color": "var(--knee-fill)"},
        "hoverinfo": "skip",
    }
    text = [f"p{sig(100 * q)}: {sig(v)} ({sig(a)}-{sig(b)})" for q, v, a, b in points]
    line = c.series(Key("ratio", "--p99", symbol="circle"), x, ratio, text=text)
    return Figure(
        title=f"{SHORT_NAMES[family]}: what happens to each quantile",
        data=[band, line],
        layout={
            "xaxis": {
                "range": [0, 1],
                "tickvals": [0.1, 0.25, 0.5, 0.75, 0.9, 0.99],
                "ticktext": ["p10", "p25", "p50", "p75", "p90", "p99"],
                "title": {"text": "quantile"},
            },
            "yaxis": _ratio_axis([*low, *high], "candidate / baseline"),
            "shapes": [c.level_line(1.0, "var(--quiet)", "solid")],
        },
        words=_shift_words(points),
        height=250,
        key=(Key("candidate / baseline", "--p99", symbol="circle"), Key("95 % interval over blocks", "--knee", "band")),
    )


def _shift_words(points: Sequence[QuantileShift]) -> str:
    """One plain sentence about where the two differ."""
    sure = [(q, v) for q, v, low, high in points if low > 1.0 or high < 1.0]
    if not sure:
        return "No quantile differs beyond its interval: the whole distribution is the same."
    q, v = max(sure, key=lambda point: abs(math.log(point[1])))
    way = "longer" if v > 1 else "shorter"
    share = "in the tail" if min(s for s, _ in sure) >= 0.8 else "in part"
    share = "throughout" if len(sure) > 0.7 * len(points) else share
    return f"Candidate {way} {share}; most at p{sig(100 * q)}, {multiple(v)}."


def _label(effect: Effect, effects: Sequence[Effect]) -> str:
    several = len({other.rate_rps for other in effects if other.rate_rps}) > 1
    words = {"output tokens a second": "tokens/s", "good requests a second": "good req/s"}.get(
        effect.words, effect.words
    )
    return f"{words} @{sig(effect.rate_rps)}" if several and effect.rate_rps else words


def _hover(effect: Effect) -> str:
    low, high = sig(effect.ratio("low")), sig(effect.ratio("high"))
    allowed = f"allowed {sig(effect.allowed_ratio)}, {plural(effect.n, 'block')}"
    return f"{effect.words}: {sig(effect.ratio())} ({low}-{high})<br>{allowed}"


def _ratio_ticks(low: float, high: float) -> list[float]:
    """Round ratios, at most seven."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first <= 6:
            ticks = [round(step * k, 4) for k in range(first, last + 1) if k > 0]
            return ticks if len(ticks) > 1 else sorted({low, 1.0, high})
    return c.log_ticks(low, high)
