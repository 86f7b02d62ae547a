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
from loadramp.report import row_access as r
from loadramp.report.charts import Cell, Key
from loadramp.report.curves import floored
from loadramp.report.document import csv_text
from loadramp.report.glossary import glossary
from loadramp.report.html import page
from loadramp.report.markdown import escaped
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


def columns(found: Tiers) -> list[str]:
    """Columns that some configuration has a number or a reason for."""
    told = [*NUMBERS, "at_once", *METRICS]
    return [name for name in told if any(_known(own.get(name)) for own in found.figures)]


def sentence(found: Tiers) -> str:
    """What the best configuration bought, in one sentence."""
    numbered = [(own["ceiling"], side.name) for own, side in zip(found.figures, found.sides, strict=True)]
    known = [(one.value, one, name) for one, name in numbered if one.value is not None]
    if not known:
        return f"{plural(len(found.sides), 'configuration')}; none of them has a ceiling that was found."
    value, best, name = max(known, key=lambda item: item[0])
    if beyond := _beyond(found, value):
        return (
            f"{' and '.join(beyond)} showed no ceiling up to the highest rate offered; the highest that was found is "
            f"that of {name}, {sig(best.value)} req/s."
        )
    if best.ratio is None:
        near = [other for _, one, other in known if other != name and _as_high(one)]
        if near:
            others = f"{' and '.join(near)} as much within {'its interval' if len(near) == 1 else 'their intervals'}"
            return f"No ceiling is shown to be the highest: {name} has {sig(best.value)} req/s, and {others}."
        of = plural(len(found.sides), "configuration")
        return f"{name} has the highest ceiling of {of}, {sig(best.value)} req/s."
    between = f" ({times(best.low)} to {times(best.high)})" if best.low is not None else ""
    first = found.sides[0].name
    if (best.low is not None and best.low <= 1.0) or f"{best.ratio:.3g}" == "1":
        return (
            f"No configuration is shown to have a higher ceiling than {first}: that of {name}, {sig(best.value)} "
            f"req/s, {times_of(best.ratio, f'that of {first}')}{between}."
        )
    return (
        f"{name} has the highest ceiling, {sig(best.value)} req/s, {times(best.ratio)} times that of {first}{between}."
    )


def _as_high(one: ConfigurationFigure) -> bool:
    """Not shown to be lower than the first configuration."""
    return one.ratio is not None and (f"{one.ratio:.3g}" == "1" or (one.high is not None and one.high >= 1.0))


def _beyond(found: Tiers, value_rps: float) -> list[str]:
    """Configurations that kept up with more than ``value_rps`` and have no ceiling to show for it."""
    ceilings = [(side.name, side.runs[0].estimates.get("ceiling")) for side in found.sides]
    return [
        name for name, one in ceilings if one and one.status == "not_found_up_to" and (one.rate_rps or 0.0) >= value_rps
    ]


def headline(found: Tiers) -> list[Phrase]:
    parts = [Phrase(sentence(found))]
    if not found.rates:
        parts.append(Phrase("They have no rate in common, so latencies are not compared.", "warn", minor=True))
    for name, differs in found.broken:
        listed = ", ".join(f"{one.key} ({one.base} → {one.candidate})" for one in differs)
        words = f"{name} was measured under other conditions than the first: {redact(listed)}."
        parts.append(Phrase(words, "warn", minor=True))
    if found.indicative:
        words = f"One run of each: a spread from run to run of {percent(found.run_sd)} is assumed; indicative only."
        parts.append(Phrase(words, "warn", minor=True))
    return parts


def tiers_document(found: Tiers) -> dict[str, Any]:
    """The JSON document: strict data, one object a configuration."""
    document: dict[str, Any] = plain_data(
        {
            "schema": SCHEMA,
            "sentence": sentence(found),
            "indicative": found.indicative,
            "comparison_dir": found.path,
            "rate_rps": found.rate_rps,
            "matched_rates_rps": found.rates,
            "configurations": [
                {
                    "name": side.name,
                    "run_dirs": [run.path for run in side.runs],
                    "figures": {
                        name: {"value": one.value, "ratio": one.ratio, "ci": [one.low, one.high], "reason": one.reason}
                        for name, one in own.items()
                    },
                    "changed": {one.key: [one.base, one.candidate] for one in changed},
                    "other_conditions": [one.key for one in changed if one.kind == "condition" and one.certain],
                }
                for side, own, changed in zip(found.sides, found.figures, found.environment, strict=True)
            ],
        }
    )
    return document


def tiers_csv(found: Tiers) -> str:
    """One line a configuration and figure."""
    heads = ["configuration", "figure", "value", "ratio", "ratio_low", "ratio_high", "reason"]
    lines = [
        [side.name, name, *plain_data([one.value, one.ratio, one.low, one.high]), one.reason]
        for side, own in zip(found.sides, found.figures, strict=True)
        for name, one in own.items()
    ]
    return csv_text(heads, lines)


def tiers_markdown(found: Tiers) -> str:
    names = columns(found)
    lines = ["# loadramp: configurations", "", " ".join(escaped(phrase.text) for phrase in headline(found)), ""]
    lines += ["| configuration | " + " | ".join(_title(name, found) for name in names) + " |"]
    lines += ["|" + "---|" * (len(names) + 1)]
    for side, own in zip(found.sides, found.figures, strict=True):
        cells = [" ".join(part for part in cell_words(name, own.get(name)) if part) for name in names]
        lines.append("| " + " | ".join(escaped(cell) for cell in (side.name, *cells)) + " |")
    return "\n".join(lines) + "\n"


def tiers_table(found: Tiers) -> Group:
    """For a terminal: one column a configuration."""
    table = RichTable(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("")
    for side in found.sides:
        table.add_column(side.name, justify="right", overflow="fold")
    for name in columns(found):
        cells = ["\n".join(part for part in cell_words(name, own.get(name)) if part) for own in found.figures]
        table.add_row(_title(name, found), *cells)
    return Group(
        *(Text(phrase.text, style="" if phrase.minor else "bold") for phrase in headline(found)), Text(""), table
    )


def tiers_html(found: Tiers) -> str:
    """The page: the table, curves of all, what was changed."""
    made = [_opening(found), _table_section(found), *_curves_section(found), _changes_section(found), glossary(TERMS)]
    return page("loadramp: configurations", sentence(found), made)


def cell_words(name: str, one: ConfigurationFigure | None) -> tuple[str, str]:
    """The number, and its ratio to the first configuration's with interval."""
    if one is None or not _known(one):
        return NOTHING, ""
    if one.value is None:
        return one.reason, ""
    value = latency(one.value) if name in METRICS else sig(one.value)
    return value, f"× {_change(one)}" if one.ratio is not None else ""


def _change(one: ConfigurationFigure) -> str:
    between = f" ({times(one.low)}-{times(one.high)})" if one.low is not None else ""
    return f"{times(one.ratio)}{between}"


def _known(one: ConfigurationFigure | None) -> bool:
    return one is not None and (one.value is not None or bool(one.reason))


def _title(name: str, found: Tiers) -> str:
    return f"{TITLES[name]} at {sig(found.rate_rps)} req/s" if name in METRICS and found.rate_rps else TITLES[name]


def _opening(found: Tiers) -> str:
    facts = [
        plural(len(found.sides), "configuration"),
        found.info.name or "",
        found.info.began_at or "",
    ]
    return c.opening(facts, headline(found), "indicative" if found.indicative else "measured")


def _table_section(found: Tiers) -> str:
    names = columns(found)
    heads = ["Configuration", *(_title(name, found) for name in names)]
    lines = []
    for side, own in zip(found.sides, found.figures, strict=True):
        cells = [cell_words(name, own.get(name)) for name in names]
        runs = plural(len(side.runs), "run") if len(side.runs) > 1 else ""
        lines.append([Cell(side.name, small=runs), *(Cell(text, small=small) for text, small in cells)])
    words = (
        "Each number, and how many times that of the first configuration it is, with the 95 % interval of that ratio."
    )
    return c.section("tiers", "Configurations", c.grid(heads, lines), words=words)


def _curves_section(found: Tiers) -> list[str]:
    looks = zip(found.sides, cycle(LOOKS), strict=False)
    keys = [Key(side.name, colour, dash=dash, symbol=symbol) for side, (colour, dash, symbol) in looks]
    figures = []
    for metric, q in product(("ttft", "itl"), ("p99", "p50")):
        column, words = f"{metric}_{q}", f"{q} {metric.upper()}"
        series, values, rows = [], [], []
        for key, side in zip(keys, found.sides, strict=True):
            own = [row for row in r.rising_rows(side.runs[0]) if not row.void]
            y = floored(row.number(f"{column}_s") for row in own)
            text = [f"{side.name}, {r.label(row)}<br>{words} {latency(v)}" for row, v in zip(own, y, strict=True)]
            series.append(c.series(key, [r.axis_load(row) for row in own], y, text=text, connectgaps=True))
            values += y
            rows += own
        if any(v is not None for v in values):
            layout = {"xaxis": c.load_axis(rows), "yaxis": c.value_axis(values)}
            figures.append(c.Figure(words, series, layout, "Further right before it rises is better."))
    return [c.section("curves", "Latency against load", c.figures(*figures, key=keys))] if figures else []


def _changes_section(found: Tiers) -> str:
    lines = [
        [Cell(redact(text), "hot" if text == "condition" and one.certain else "")
         for text in (side.name, one.key, KINDS[one.kind], one.base, one.candidate)]
        for side, changed in zip(found.sides, found.environment, strict=True)
        for one in changed
    ]  # fmt: skip
    if not lines:
        return c.section("changes", "What was changed", words="Nothing that the runs tell of themselves.")
    heads = ["Configuration", "Key", "Kind", "First", "Here"]
    return c.section("changes", "What was changed", c.grid(heads, lines))
