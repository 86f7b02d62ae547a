"""The table of configurations in all its forms: page, Markdown, terminal, JSON, CSV. Pure."""

from itertools import cycle, product
from typing import Any

from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from loadramp.comparison.configurations import METRICS, NUMBERS, ConfigurationFigure, Tiers
from loadramp.comparison.page import KINDS
from loadramp.comparison.text import times
from loadramp.record.codec import plain_data
from loadramp.report import charts as c
from loadramp.report import rows as r
from loadramp.report.charts import Cell, Key
from loadramp.report.curves import floored
from loadramp.report.document import csv_text
from loadramp.report.glossary import glossary
from loadramp.report.html import page
from loadramp.report.markdown import escaped, table
from loadramp.report.redact import redact
from loadramp.report.verdict_text import Phrase
from loadramp.units import NOTHING, latency, percent, plural, sig, times_of

SCHEMA = "loadramp.tiers/1"
TITLES = {
    "ceiling": "Ceiling, req/s",
    "p99_itl_knee": "p99 ITL knee, req/s",
    "slo_capacity": "SLO capacity, req/s",
    "at_once": "Requests at once",
    "ttft_p50": "TTFT p50",
    "ttft_p99": "TTFT p99",
    "itl_p50": "ITL p50",
    "itl_p99": "ITL p99",
}
LOOKS = (
    ("--p50", "solid", "circle"),
    ("--p99", "dash", "diamond"),
    ("--slo", "dot", "square"),
    ("--p95", "longdashdot", "triangle-up"),
    ("--knee", "solid", "x-thin"),
    ("--quiet", "dash", "circle"),
)
TERMS = ("ceiling", "knee", "slo", "ttft", "itl", "percentile", "interval", "inflight")


def columns(tiers: Tiers) -> list[str]:
    """Columns that some configuration has a number or a reason for."""
    names = [*NUMBERS, "at_once", *METRICS]
    return [name for name in names if any(_known(figures.get(name)) for figures in tiers.figures)]


def sentence(tiers: Tiers) -> str:
    """What the best configuration bought, in one sentence."""
    numbered = [(figures["ceiling"], side.name) for figures, side in zip(tiers.figures, tiers.sides, strict=True)]
    known = [(figure.value, figure, name) for figure, name in numbered if figure.value is not None]
    if not known:
        return f"{plural(len(tiers.sides), 'configuration')}; none of them has a ceiling that was found."
    value, best, name = max(known, key=lambda item: item[0])
    if beyond := _beyond(tiers, value):
        return (
            f"{' and '.join(beyond)} showed no ceiling up to the highest rate offered; the highest that was found is "
            f"that of {name}, {sig(best.value)} req/s."
        )
    if best.ratio is None:
        near = [other for _, figure, other in known if other != name and _as_high(figure)]
        if near:
            others = f"{' and '.join(near)} as much within {'its interval' if len(near) == 1 else 'their intervals'}"
            return f"No ceiling is shown to be the highest: {name} has {sig(best.value)} req/s, and {others}."
        of = plural(len(tiers.sides), "configuration")
        return f"{name} has the highest ceiling of {of}, {sig(best.value)} req/s."
    between = f" ({times(best.low)} to {times(best.high)})" if best.low is not None else ""
    first = tiers.sides[0].name
    if (best.low is not None and best.low <= 1.0) or f"{best.ratio:.3g}" == "1":
        return (
            f"No configuration is shown to have a higher ceiling than {first}: that of {name}, {sig(best.value)} "
            f"req/s, {times_of(best.ratio, f'that of {first}')}{between}."
        )
    return (
        f"{name} has the highest ceiling, {sig(best.value)} req/s, {times(best.ratio)} times that of {first}{between}."
    )


def _as_high(figure: ConfigurationFigure) -> bool:
    """Not shown to be lower than the first configuration."""
    return figure.ratio is not None and (
        f"{figure.ratio:.3g}" == "1" or (figure.high is not None and figure.high >= 1.0)
    )


def _beyond(tiers: Tiers, value_rps: float) -> list[str]:
    """Configurations that kept up with more than ``value_rps`` and have no ceiling to show for it."""
    ceilings = [(side.name, side.runs[0].estimates.get("ceiling")) for side in tiers.sides]
    return [
        name
        for name, estimate in ceilings
        if estimate and estimate.status == "not_found_up_to" and (estimate.rate_rps or 0.0) >= value_rps
    ]


def headline(tiers: Tiers) -> list[Phrase]:
    parts = [Phrase(sentence(tiers))]
    if not tiers.rates:
        parts.append(Phrase("They have no rate in common, so latencies are not compared.", "warn", minor=True))
    for name, differs in tiers.broken:
        listed = ", ".join(f"{difference.key} ({difference.base} → {difference.candidate})" for difference in differs)
        words = f"{name} was measured under other conditions than the first: {redact(listed)}."
        parts.append(Phrase(words, "warn", minor=True))
    if tiers.indicative:
        words = f"One run of each: a spread from run to run of {percent(tiers.run_sd)} is assumed; indicative only."
        parts.append(Phrase(words, "warn", minor=True))
    return parts


def tiers_document(tiers: Tiers) -> dict[str, Any]:
    """The JSON document: strict data, one object a configuration."""
    document: dict[str, Any] = plain_data(
        {
            "schema": SCHEMA,
            "sentence": sentence(tiers),
            "indicative": tiers.indicative,
            "comparison_dir": tiers.path,
            "rate_rps": tiers.rate_rps,
            "matched_rates_rps": tiers.rates,
            "configurations": [
                {
                    "name": side.name,
                    "run_dirs": [run.path for run in side.runs],
                    "figures": {
                        name: {
                            "value": figure.value,
                            "ratio": figure.ratio,
                            "ci": [figure.low, figure.high],
                            "reason": figure.reason,
                        }
                        for name, figure in figures.items()
                    },
                    "changed": {difference.key: [difference.base, difference.candidate] for difference in changed},
                    "other_conditions": [difference.key for difference in changed if difference.breaks],
                }
                for side, figures, changed in zip(tiers.sides, tiers.figures, tiers.environment, strict=True)
            ],
        }
    )
    return document


def tiers_csv(tiers: Tiers) -> str:
    """One line a configuration and figure."""
    heads = ["configuration", "figure", "value", "ratio", "ratio_low", "ratio_high", "reason"]
    lines = [
        [side.name, name, *plain_data([figure.value, figure.ratio, figure.low, figure.high]), figure.reason]
        for side, figures in zip(tiers.sides, tiers.figures, strict=True)
        for name, figure in figures.items()
    ]
    return csv_text(heads, lines)


def tiers_markdown(tiers: Tiers) -> str:
    names = columns(tiers)
    lines = ["# loadramp: configurations", "", " ".join(escaped(phrase.text) for phrase in headline(tiers)), ""]
    rows = []
    for side, figures in zip(tiers.sides, tiers.figures, strict=True):
        cells = [" ".join(part for part in cell_words(name, figures.get(name)) if part) for name in names]
        rows.append([escaped(cell) for cell in (side.name, *cells)])
    lines += table(["configuration", *(_title(name, tiers) for name in names)], rows)
    return "\n".join(lines) + "\n"


def tiers_table(tiers: Tiers) -> Group:
    """For a terminal: one column a configuration."""
    table = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("")
    for side in tiers.sides:
        table.add_column(side.name, justify="right", overflow="fold")
    for name in columns(tiers):
        cells = ["\n".join(part for part in cell_words(name, figures.get(name)) if part) for figures in tiers.figures]
        table.add_row(_title(name, tiers), *cells)
    return Group(
        *(Text(phrase.text, style="" if phrase.minor else "bold") for phrase in headline(tiers)), Text(""), table
    )


def tiers_html(tiers: Tiers) -> str:
    """The page: the table, curves of all, what was changed."""
    made = (_opening(tiers), _table_section(tiers), _curves_section(tiers), _changes_section(tiers), glossary(TERMS))
    return page("loadramp: configurations", sentence(tiers), [text for text in made if text])


def cell_words(name: str, figure: ConfigurationFigure | None) -> tuple[str, str]:
    """The number, and its ratio to the first configuration's with interval."""
    if figure is None or not _known(figure):
        return NOTHING, ""
    if figure.value is None:
        return figure.reason, ""
    value = latency(figure.value) if name in METRICS else sig(figure.value)
    return value, f"× {_change(figure)}" if figure.ratio is not None else ""


def _change(figure: ConfigurationFigure) -> str:
    between = f" ({times(figure.low)}-{times(figure.high)})" if figure.low is not None else ""
    return f"{times(figure.ratio)}{between}"


def _known(figure: ConfigurationFigure | None) -> bool:
    return figure is not None and (figure.value is not None or bool(figure.reason))


def _title(name: str, tiers: Tiers) -> str:
    return f"{TITLES[name]} at {sig(tiers.rate_rps)} req/s" if name in METRICS and tiers.rate_rps else TITLES[name]


def _opening(tiers: Tiers) -> str:
    facts = [
        plural(len(tiers.sides), "configuration"),
        tiers.info.name or "",
        tiers.info.began_at or "",
    ]
    return c.opening(facts, headline(tiers), "indicative" if tiers.indicative else "measured")


def _table_section(tiers: Tiers) -> str:
    names = columns(tiers)
    heads = ["Configuration", *(_title(name, tiers) for name in names)]
    lines = []
    for side, figures in zip(tiers.sides, tiers.figures, strict=True):
        cells = [cell_words(name, figures.get(name)) for name in names]
        runs = plural(len(side.runs), "run") if len(side.runs) > 1 else ""
        lines.append([Cell(side.name, small=runs), *(Cell(text, small=small) for text, small in cells)])
    words = (
        "Each number, and how many times that of the first configuration it is, with the 95 % interval of that ratio."
    )
    return c.section("tiers", "Configurations", c.grid(heads, lines), words=words)


def _curves_section(tiers: Tiers) -> str | None:
    looks = zip(tiers.sides, cycle(LOOKS), strict=False)
    keys = [Key(side.name, colour, dash=dash, symbol=symbol) for side, (colour, dash, symbol) in looks]
    figures = []
    for metric, q in product(("ttft", "itl"), ("p99", "p50")):
        column, words = f"{metric}_{q}", f"{q} {metric.upper()}"
        series, values, rows = [], [], []
        for key, side in zip(keys, tiers.sides, strict=True):
            usable = [row for row in r.rising_rows(side.runs[0]) if not row.void]
            y = floored(row.number(f"{column}_s") for row in usable)
            text = [f"{side.name}, {r.label(row)}<br>{words} {latency(v)}" for row, v in zip(usable, y, strict=True)]
            series.append(c.series(key, [row.axis_load for row in usable], y, text=text, connectgaps=True))
            values += y
            rows += usable
        if any(v is not None for v in values):
            layout = {"xaxis": c.load_axis(rows), "yaxis": c.value_axis(values)}
            figures.append(c.Figure(words, series, layout, "Further right before it rises is better."))
    return c.chart_section("curves", "Latency against load", figures, key=keys)


def _changes_section(tiers: Tiers) -> str:
    lines = [
        [Cell(redact(text), "hot" if text == "condition" and difference.breaks else "")
         for text in (side.name, difference.key, KINDS[difference.kind], difference.base, difference.candidate)]
        for side, changed in zip(tiers.sides, tiers.environment, strict=True)
        for difference in changed
    ]  # fmt: skip
    if not lines:
        return c.section("changes", "What was changed", words="Nothing that the runs tell of themselves.")
    heads = ["Configuration", "Key", "Kind", "First", "Here"]
    return c.section("changes", "What was changed", c.grid(heads, lines))
