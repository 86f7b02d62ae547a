"""Several whole ramps side by side: what each found, and how far they lie apart. Pure."""

from dataclasses import replace
from typing import Any

from loadramp.analysis.repeats import not_enough, spread_of
from loadramp.record.table import Run
from loadramp.record.types import Estimate
from loadramp.report import charts as c
from loadramp.report.charts import Cell
from loadramp.units import percent, plural, sentence, sig, span_of

NAMES = {"ceiling": "Ceiling", "p99_itl_knee": "p99 ITL knee", "slo_capacity": "SLO capacity"}


def repeats_section(run: Run) -> str | None:
    """A line a ramp and a line for all of them; None where there was one ramp."""
    if len(run.repeats) < 2:
        return None
    lines: list[list[str | Cell]] = [
        [f"ramp {i}", *(_number(each[name]) for name in NAMES)] for i, each in enumerate(run.repeats, start=1)
    ]
    lines.append(["together", *(_together(run, name) for name in NAMES)])
    return c.section("repeats", "Repeats", c.grid(["", *NAMES.values()], lines), words=repeats_words(run))


def repeats_words(run: Run) -> str:
    """How far apart the ramps lie, and whether one would have been enough."""
    spread = spread_of(each["ceiling"].rate_rps for each in run.repeats if each["ceiling"].status == "found")
    if spread is None or spread.n < 2:
        return f"{plural(len(run.repeats), 'ramp')}, one after the other."
    ramps = plural(len(run.repeats), "ramp")
    words = f"{ramps}, one after the other; their ceilings lie {percent(spread.log_sd, 2)} apart."
    scatter = not_enough(run.repeats)
    verdict = sentence(scatter) or "That is no more than one ramp's interval states."
    return f"{words} {verdict} Latencies are means over the ramps; their intervals are those of the repeats."


def repeats_document(run: Run) -> list[dict[str, Any]]:
    """One object a ramp for the JSON document: status, rate and interval of each number."""
    keys = ("status", "rate_rps", "low_rps", "high_rps")
    return [
        {name: {key: getattr(estimate, key) for key in keys} for name, estimate in each.items()} for each in run.repeats
    ]


def _together(run: Run, name: str) -> Cell:
    spread = spread_of(each[name].rate_rps for each in run.repeats if each[name].status == "found")
    cell = _number(run.estimates[name])
    if spread is None or spread.n < 2:
        return cell
    return replace(cell, small=f"{cell.small}, {percent(spread.log_sd, 2)} apart".lstrip(", "))


def _number(estimate: Estimate) -> Cell:
    if estimate.status != "found":
        return Cell(estimate.status.replace("_", " "), small=sig(estimate.rate_rps))
    return Cell(f"{sig(estimate.rate_rps)} req/s", small=span_of(estimate.low_rps, estimate.high_rps))
