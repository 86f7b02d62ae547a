"""Latency over the rate: four panels with intervals, the three numbers and the service level. Pure."""

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from loadramp.analysis.quantiles import quantile_name
from loadramp.record.row import LONG_NAMES, SHORT_NAMES, Row
from loadramp.record.table import Run
from loadramp.report import charts as c
from loadramp.report import rows as r
from loadramp.report.charts import Figure, Json, Key, term
from loadramp.units import count, counted, latency

P50 = Key("p50: half wait longer", "--p50", symbol="circle")
P95 = Key("p95: 1 in 20 waits longer", "--p95", dash="dash", symbol="square")
P99 = Key("p99: 1 in 100 waits longer", "--p99", dash="dot", symbol="diamond")
QUANTILES = (("p50", P50), ("p95", P95), ("p99", P99))
HOLLOW = Key("hollow: overloaded or not settled", "--quiet", "dot", symbol="circle", hollow=True)
VOID = Key("cross: void, not used", "--quiet", "dot", symbol="x-thin")
SOAK = Key("star: soak", "--quiet", "dot", symbol="star")
DOWN = Key("triangle: on the way down", "--quiet", "dot", symbol="triangle-down")
FLOOR_S = 1e-5


def latency_section(run: Run) -> str | None:
    """p50, p95, p99 of the four latencies against the rate, with intervals, the three numbers and the SLO."""
    steps = r.rising_rows(run)
    if not steps:
        return None
    _, band_keys, _ = c.bands(run)
    limits = run.scenario.slo.limits
    panels = [panel for metric in SHORT_NAMES if (panel := latency_figure(run, metric))]
    if not panels:
        return c.section("latency", "Latency against load", words="No step has a latency to show.")
    key = [key for _, key in QUANTILES]
    key += [HOLLOW] if any(r.hollow(row) and not row.void for row in steps) else []
    key += [VOID] if any(row.void for row in steps) else []
    key += [SOAK] if r.of_role(run, "soak") else []
    key += [DOWN] if r.of_role(run, "down") else []
    quantile = quantile_name(run.scenario.slo.quantile)
    key += [Key(f"SLO limit on {quantile}", "--slo", dash="dash")] if limits else []
    words = Markup(
        "Each point is one step of load. Whiskers on the dotted line are the 95 % {} of p99: the truth is expected "
        "between them. Upright bands are the three numbers with their intervals."
    ).format(term("interval", "interval"))
    return c.section("latency", "Latency against load", c.figures(*panels, key=[*key, *band_keys]), words=words)


def latency_figure(run: Run, metric: str) -> Figure | None:
    """One of the four latencies against the rate; None where no step has it."""
    short, long = SHORT_NAMES[metric], LONG_NAMES[metric]
    shapes, _, at = c.bands(run)
    limit_s = run.scenario.slo.limits.get(metric)
    steps = r.rising_rows(run)
    extra = [*r.of_role(run, "soak"), *r.of_role(run, "down")]
    if all(row.number(f"{metric}_{q}_s") is None for row in (*steps, *extra) for q, _ in QUANTILES):
        return None
    data: list[Json] = []
    for q, key in QUANTILES:
        data += _quantile_traces(steps, metric, q, key)
        for role, symbol in (("soak", "star"), ("down", "triangle-down")):
            data += _marks(r.of_role(run, role), metric, q, key, symbol)
    columns = [f"{metric}_{c_}_s" for c_ in ("p50", "p95", "p99", "p99_low", "p99_high")]
    shown = [row.number(column) for row in (*steps, *extra) for column in columns]
    marks = [c.level_line(limit_s, "var(--slo)")] if limit_s else []
    return Figure(
        title=f"{short}: {long}",
        data=data,
        layout={
            "xaxis": c.load_axis(steps, [*at, *(row.axis_load for row in extra)]),
            "yaxis": c.value_axis([*floored(shown), limit_s]),
            "shapes": [*shapes, *marks],
        },
        words=Markup("{} {}").format(r.WORDS["latencies"][metric], _growth(run, metric, short)),
    )


def _quantile_traces(steps: Sequence[Row], metric: str, q: str, key: Key) -> list[Json]:
    used, void = [row for row in steps if not row.void], [row for row in steps if row.void]
    column = f"{metric}_{q}_s"
    y = floored(row.number(column) for row in used)
    trace = c.series(
        key, [row.axis_load for row in used], y, text=[hover(row, metric, q) for row in used], connectgaps=True
    )
    c.hollow_markers(trace, [r.hollow(row) for row in used])
    if q == "p99":
        low = [row.number(f"{metric}_p99_low_s") for row in used]
        high = [row.number(f"{metric}_p99_high_s") for row in used]
        trace["error_y"] = c.whiskers(y, low, high, key.colour)
    return [trace, *_marks(void, metric, q, key, "x-thin")]


def _marks(rows: Sequence[Row], metric: str, q: str, key: Key, symbol: str) -> list[Json]:
    """Points that are not part of the line: void, soak, down."""
    rows = [row for row in rows if row.number(f"{metric}_{q}_s") is not None]
    if not rows:
        return []
    look = Key(key.name, key.colour, "dot", symbol=symbol)
    y = floored(row.number(f"{metric}_{q}_s") for row in rows)
    trace = c.series(look, [row.axis_load for row in rows], y, text=[hover(row, metric, q) for row in rows])
    trace["marker"] |= {"size": 10}
    return [trace]


def hover(row: Row, metric: str, q: str) -> str:
    low, high = row.number(f"{metric}_{q}_low_s"), row.number(f"{metric}_{q}_high_s")
    between = f" ({latency(low)} to {latency(high) or 'unknown'})" if low is not None else ""
    n = row.number(f"{metric}_n")
    source = f"<br>from {counted(count(n), 'value')}" if n else ""
    return (
        f"{r.label(row)}, {r.state_words(row)}<br>{q} {SHORT_NAMES[metric]} "
        f"{latency(row.number(f'{metric}_{q}_s'))}{between}{source}"
    )


def _growth(run: Run, metric: str, short: str) -> str:
    """One sentence with the panel's own numbers."""
    steps = [row for row in r.kept_up(run) if row.number(f"{metric}_p99_s") is not None]
    if not steps:
        return f"No step that kept up has enough requests for a p99 of {short}."
    first, last = steps[0], steps[-1]
    begin, end = (latency(row.number(f"{metric}_p99_s")) for row in (first, last))
    if first is last:
        return f"p99 {short} is {begin} at {r.label(first)}."
    over = r.broke(run)
    worst = latency(over.number(f"{metric}_p99_s")) if over else ""
    tail = f", and {worst} at {r.label(over)} (overloaded)" if over and worst else ""
    return f"p99 {short} goes from {begin} at {r.label(first)} to {end} at {r.label(last)}{tail}."


def floored(values: Iterable[float | None]) -> list[float | None]:
    """A zero (two tokens in one read) cannot stand on a log axis; it is drawn at 10 µs."""
    return [None if v is None else max(v, FLOOR_S) for v in values]
