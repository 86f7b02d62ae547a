"""What every chart is made of: figures as plain Plotly JSON, axes, keys and the three numbers as bands. Pure.

Colours are named ``var(--p99)`` and resolved by the page, so that one figure serves light, dark and paper. Colour is
never the only cue: dash and marker repeat it.
"""

import functools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from loadramp.analysis import offered_load
from loadramp.record.codec import plain_data
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.report import rows as r
from loadramp.report.json_data import packed, rounded
from loadramp.units import finite, latency, percent, sig, span_of

if TYPE_CHECKING:
    from loadramp.report.verdict_text import Phrase

Json = dict[str, Any]
AXIS_WIDTH = 11
"""Labels that fit beside each other on the narrowest chart."""


@dataclass(slots=True, frozen=True)
class Key:
    """One line of a chart's key. ``shape``: line, band, dot (marker only)."""

    name: str
    colour: str
    shape: str = "line"
    dash: str = "solid"
    symbol: str = ""
    hollow: bool = False


@dataclass(slots=True, frozen=True)
class Figure:
    """A chart with its title, a line of plain words under it, and its height in pixels."""

    title: str
    data: list[Json]
    layout: Json
    words: str | Markup = ""
    height: int = 290
    key: Sequence[Key] = field(default_factory=tuple)
    lanes: Sequence[tuple[str, Sequence[Key]]] = field(default_factory=tuple)
    """A key in lines, each with its title, for charts of several strips."""


@functools.cache
def environment() -> jinja2.Environment:
    """The templates; everything that is put into them is escaped unless it says it is markup."""
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template(name: str) -> str:
    """The text of a template: of this package, or of that which stands before a colon."""
    package, _, file = name.rpartition(":")
    return resources.files(package or "loadramp.report").joinpath("templates", file).read_text("utf-8")


def render(template: str, **values: Any) -> Markup:
    """The template's text; a feature's own is written ``package:file``. What it was given is escaped in it."""
    return Markup(environment().get_template(template).render(**values))  # noqa: S704  # autoescape is on


def opening(
    subtitle: Sequence[str], phrases: Sequence["Phrase"], verdict: str, *, tone: str = "", what: str = ""
) -> str:
    """The head of a page.

    Args:
        subtitle: short facts.
        phrases: what was found, a ``Phrase`` each.
        verdict: in a word; ``tone`` is the class of its colour where that is another word.
        what: stands beside the name of the program.
    """
    facts = [fact for fact in subtitle if fact]
    html = render("opening.html.j2", subtitle=facts, phrases=phrases, verdict=verdict, tone=tone or verdict, what=what)
    return str(html)


def section(name: str, title: str, *body: str | Markup, words: str | Markup = "") -> str:
    """A section of the page with an anchor."""
    return str(render("section.html.j2", name=name, title=title, words=words, body=Markup("\n").join(body)))


def figures(*shown: Figure, key: Sequence[Key] = (), columns: int = 2) -> Markup:
    """A grid of charts under one key."""
    return render("figures.html.j2", figures=shown, key=key, columns=columns, embed=embed)


def chart_section(
    name: str,
    title: str,
    shown: Iterable[Figure | None],
    *,
    words: str | Markup = "",
    key: Sequence[Key] = (),
    columns: int = 2,
) -> str | None:
    """A section of those charts that there are; None without any."""
    known = [figure for figure in shown if figure is not None]
    return section(name, title, figures(*known, key=key, columns=columns), words=words) if known else None


def embed(value: Any) -> Markup:
    """Strict JSON, packed: nothing in it can break out of a script element."""
    return Markup(packed(json.dumps(plain_data(value), allow_nan=False, separators=(",", ":"))))  # noqa: S704  # no markup


@dataclass(slots=True, frozen=True)
class Cell:
    """A cell of a table, with the class of its colour and smaller text under it."""

    text: str
    tone: str = ""
    small: str = ""


Line = Sequence[str | Cell]


def grid(heads: Sequence[str], lines: Iterable[Line], *, chips: bool = False) -> Markup:
    """A table. ``chips`` shows a tone as a chip around the text instead of a colour of the cell."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in line] for line in lines]
    return render("compare_grid.html.j2" if chips else "grid.html.j2", heads=heads, lines=cells)


def term(anchor: str, text: str) -> Markup:
    """A word that leads to its definition at the end of the report."""
    return Markup('<a class="term" href="#g-{}">{}</a>').format(anchor, text)


# -- axes ---------------------------------------------------------------------------------------------------------


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round values between ``low`` and ``high`` (both above 0): 1-2-5, else 1-3, else powers of ten."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 5), (1, 3), (1,)):
        ticks = [d * 10.0**e for e in range(first, last + 1) for d in digits if low <= d * 10.0**e <= high]
        if len(ticks) <= most:
            break
    return ticks if len(ticks) >= 2 else sorted({low, *ticks, high})


def value_axis(
    values: Iterable[float | None], text: Callable[[float], str] = latency, *, log: bool = True, title: str = ""
) -> Json:
    """A y axis that holds ``values`` with a little room; logarithmic where they span more than a factor of 4."""
    shown = [v for v in (finite(v) for v in values) if v is not None and (v > 0 or not log)]
    if not shown:
        return {"title": {"text": title}}
    low, high = min(shown), max(shown)
    if not log or high / low < 4:
        top = high * 1.12 or 1.0
        step = _step(top)
        ticks = [step * i for i in range(int(top / step) + 1)]
        axis: Json = {"range": [0, top]}
    else:
        low, high = low / 1.25, high * 1.25
        ticks = log_ticks(low, high)
        axis = {"type": "log", "range": [math.log10(low), math.log10(high)]}
    return axis | {"tickvals": ticks, "ticktext": [text(t) or "0" for t in ticks], "title": {"text": title}}


def share_axis(low: float, high: float, step: float = 0.5) -> Json:
    """An axis of shares from 0 to 100 %, which has room from ``low`` to ``high``."""
    ticks = [step * k for k in range(round(1.0 / step) + 1)]
    return {"range": [low, high], "tickvals": ticks, "ticktext": [percent(t) for t in ticks]}


def _step(top: float) -> float:
    """A round step that gives three to six ticks up to ``top``."""
    power = 10.0 ** math.floor(math.log10(top))
    return next(power * d for d in (0.1, 0.2, 0.25, 0.5, 1.0, 2.0) if top / (power * d) <= 6)


def load_axis(rows: Sequence[Row], also: Iterable[float | None] = (), *, log: bool = True) -> Json:
    """The x axis of the load: one tick a step where there is room; logarithmic for a ramp of factors."""
    asked = sorted({v for v in (row.axis_load for row in rows) if v})
    ends = sorted({v for v in (*asked, *(finite(v) for v in also)) if v})
    title = "users" if r.closed_loop(rows) else "asked rate, req/s"
    if any(offered_load.differs(row) for row in rows):
        title = "rate, req/s (as offered where that is not what was asked)"
    if not ends:
        return {"title": {"text": title}}
    log = log and ends[-1] / ends[0] >= 4
    scaled: Callable[[float], float] = math.log10 if log else float
    low, high = scaled(ends[0]), scaled(ends[-1])
    room = (high - low or (0.3 if log else ends[0])) * 0.06
    ticks: list[float] = []
    for v in reversed(asked):  # from the top: the busy end is the one that matters
        if not ticks or (scaled(ticks[-1]) - scaled(v)) / ((high - low) or 1) >= 1 / AXIS_WIDTH:
            ticks.append(v)
    return {
        "type": "log" if log else "linear",
        "range": [low - room, high + room],
        "tickvals": ticks[::-1],
        "ticktext": [sig(v) for v in ticks[::-1]],
        "title": {"text": title + (" (log scale)" if log else "")},
    }


def place(axis: Json, value: float | None) -> float:
    """Where ``value`` stands on an axis that has a range, as a share of its length; -1 for no value."""
    if value is None:
        return -1.0
    low, high = axis["range"]
    return float(((math.log10(value) if axis.get("type") == "log" else value) - low) / (high - low))


# -- the three numbers --------------------------------------------------------------------------------------------

BANDS = (
    ("ceiling", "ceiling", "--ceiling", "solid"),
    ("p99_itl_knee", "p99 ITL knee", "--knee", "dash"),
    ("slo_capacity", "SLO capacity", "--slo", "dot"),
)


def bands(run: Run) -> tuple[list[Json], list[Key], list[float]]:
    """Shapes, key and rates of the three numbers, for charts whose x is the asked rate."""
    if r.closed_loop(run.rows):
        return [], [], []
    shapes: list[Json] = []
    keys: list[Key] = []
    at: list[float] = []
    for name, words, colour, dash in BANDS:
        estimate = run.estimates.get(name)
        if estimate is None or estimate.status != "found" or not estimate.rate_rps:
            continue
        low, high = estimate.low_rps or estimate.rate_rps, estimate.high_rps or estimate.rate_rps
        shapes.append(
            {"type": "rect", "xref": "x", "yref": "paper", "x0": low, "x1": high, "y0": 0, "y1": 1, "layer": "below",
             "fillcolor": f"var({colour}-fill)", "line": {"width": 0}},
        )  # fmt: skip
        shapes.append(upright(estimate.rate_rps, f"var({colour})", dash))
        between = span_of(estimate.low_rps, estimate.high_rps)
        keys.append(Key(f"{words} {sig(estimate.rate_rps)}{f' ({between})' if between else ''}", colour, "band", dash))
        at += [low, estimate.rate_rps, high]
        if estimate.sustained_rps:
            shapes.append(upright(estimate.sustained_rps, "var(--ceiling)", "longdashdot", 1.2))
            keys.append(Key(f"sustained {sig(estimate.sustained_rps)}", "--ceiling", "band", "longdashdot"))
            at.append(estimate.sustained_rps)
    return shapes, keys, at


def upright(x: float, colour: str, dash: str = "solid", width: float = 1.5) -> Json:
    """A vertical line over the whole height."""
    return {"type": "line", "xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "layer": "below",
            "line": {"color": colour, "width": width, "dash": dash}}  # fmt: skip


def level_line(y: float, colour: str, dash: str = "dash") -> Json:
    """A horizontal line over the whole width."""
    return {"type": "line", "xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y,
            "line": {"color": colour, "width": 1.5, "dash": dash}}  # fmt: skip


# -- series -------------------------------------------------------------------------------------------------------


def series(
    key: Key, x: Iterable[float | None], y: Iterable[float | None], *, text: Sequence[str] = (), **more: Any
) -> Json:
    """A line (or dots) in the look of its key; numbers at four digits."""
    colour = f"var({key.colour})"
    trace: Json = {
        "type": "scatter",
        "mode": "markers" if key.shape == "dot" else "lines+markers" if key.symbol else "lines",
        "name": key.name,
        "x": rounded(x),
        "y": rounded(y),
        "line": {"color": colour, "width": 2, "dash": key.dash},
    }
    if key.symbol:
        inside = "var(--paper)" if key.hollow else colour
        trace["marker"] = {"symbol": key.symbol, "size": 7, "color": inside, "line": {"color": colour, "width": 1.6}}
    if text:
        trace |= {"text": list(text), "hoverinfo": "text"}
    return trace | more


def over_load(key: Key, rows: Sequence[Row], y: Sequence[float | None], words: Iterable[str]) -> Json:
    """A line of ``y`` over the load of ``rows``; a point shows its step and its words."""
    text = [f"{r.label(row)}<br>{detail}" for row, detail in zip(rows, words, strict=True)]
    return series(key, [row.axis_load for row in rows], y, text=text, connectgaps=True)


def hollow_markers(trace: Json, empty: Sequence[bool]) -> Json:
    """The same trace with hollow markers where ``empty`` says so."""
    colour = trace["line"]["color"]
    trace["marker"] = trace["marker"] | {"color": ["var(--paper)" if hole else colour for hole in empty]}
    return trace


def whiskers(
    value: Sequence[float | None], low: Sequence[float | None], high: Sequence[float | None], colour: str
) -> Json:
    """Plotly error bars from limits; a limit that is not known draws nothing on its side."""
    up = [h - v if v is not None and h is not None else None for v, h in zip(value, high, strict=True)]
    down = [v - lo if v is not None and lo is not None else None for v, lo in zip(value, low, strict=True)]
    return {
        "type": "data", "symmetric": False, "array": rounded(up), "arrayminus": rounded(down),
        "color": f"var({colour})", "thickness": 1.2, "width": 3,
    }  # fmt: skip
