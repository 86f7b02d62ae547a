"""The report's charts as plotly figures: its colours and keys, with a legend that a notebook can show."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache, partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from loadramp.registry import ScenarioError, hint
from loadramp.report.curves import latency_figure
from loadramp.report.throughput import achieved_figure, good_figure
from loadramp.report.timeline import timeline_figure

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from loadramp.record.table import Run
    from loadramp.report.charts import Figure, Key

FIGURES: dict[str, Callable[[Run], Figure | None]] = {
    **{metric: partial(latency_figure, metric=metric) for metric in ("ttft", "itl", "tpot", "e2e")},
    "throughput": achieved_figure,
    "goodput": good_figure,
    "timeline": timeline_figure,
}
_AXIS = {"gridcolor": "var(--grid)", "linecolor": "var(--line)", "tickcolor": "var(--line)", "zeroline": False,
         "showline": True, "ticks": "outside", "automargin": True}  # fmt: skip


def figure(run: Run, name: str) -> go.Figure:
    """One of ``FIGURES`` of a judged run.

    Raises:
        ScenarioError: there is no figure of that name, or this run has nothing to show in it.
    """
    import plotly.graph_objects as go

    if name not in FIGURES:
        raise ScenarioError(f"figure({name!r}): no such figure{hint(name, FIGURES)}; there are {', '.join(FIGURES)}")
    made = FIGURES[name](run)
    if made is None:
        raise ScenarioError(f"figure({name!r}): this run has nothing to show in it")
    keys = [*made.key, *(key for _, lane in made.lanes for key in lane)] or list(latency_key())
    axes = {key: {**_AXIS, **axis} for key, axis in made.layout.items() if re.fullmatch(r"[xy]axis\d*", key)}
    layout = {
        "template": "none",
        "font": {"color": "var(--ink)", "size": 12},
        "hovermode": "closest",
        "title": {"text": made.title, "font": {"size": 15}},
        "height": max(made.height, 360),
        **made.layout,
        **axes,
        "margin": {"t": 60, "r": 20},
        "showlegend": True,
    }
    data = [{**trace, "showlegend": False} for trace in made.data] + [_legend_line(key) for key in keys]
    return go.Figure(_in_colours({"data": data, "layout": layout}))


def latency_key() -> tuple[Key, ...]:
    """What the lines of a latency figure are."""
    from loadramp.report.curves import QUANTILES

    return tuple(key for _, key in QUANTILES)


def _legend_line(key: Key) -> dict[str, Any]:
    """A trace of no point that stands for ``key`` in the legend."""
    colour = f"var({key.colour})"
    drawn = "markers" if key.shape == "dot" else "lines+markers" if key.symbol else "lines"
    marker = {"color": colour, "symbol": key.symbol or "circle"}
    line = {"color": colour, "dash": key.dash, "width": 8 if key.shape == "band" else 2}
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": drawn,
        "name": key.name,
        "line": line,
        "marker": marker,
    }


def _in_colours(value: dict[str, Any]) -> dict[str, Any]:
    """``value`` with the colours of the light page in the place of their names."""
    text = re.sub(r"var\((--[\w-]+)\)", lambda match: colours()[match[1]], json.dumps(value))
    coloured: dict[str, Any] = json.loads(text)
    return coloured


@cache
def colours() -> dict[str, str]:
    """Name to colour of the page's light theme."""
    css = resources.files("loadramp.report").joinpath("page.css").read_text("utf-8")
    return dict(re.findall(r"(--[\w-]+):\s*([^;]+);", css.partition("}")[0]))
