"""The sections of the report in reading order. Each is f(run) -> HTML or None; what has no data says so in a line."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from loadramp.analysis.checks.run_checks import NAMES_STEP
from loadramp.analysis.overload import SIGNS
from loadramp.record.codec import plain_data
from loadramp.record.row import Row, columns_of
from loadramp.record.table import Run
from loadramp.record.types import Check, CheckLevel
from loadramp.report import charts as c
from loadramp.report import rows as r
from loadramp.report import steptable, verdict_text
from loadramp.report.charts import Cell
from loadramp.report.client_health import client_section
from loadramp.report.curves import latency_section
from loadramp.report.diagnosis import diagnosis_section
from loadramp.report.glossary import glossary
from loadramp.report.redact import redact
from loadramp.report.repeats import repeats_section
from loadramp.report.tails import tails_section, waterfall_section
from loadramp.report.thresholds import gates_section
from loadramp.report.throughput import errors_section, throughput_section
from loadramp.report.timeline import timeline_section
from loadramp.report.traffic_classes import classes_section
from loadramp.units import NOTHING, capital, count, counted, percent, plural, sentence, sig, span

MOST_CHECKS = 60
MOST_MESSAGES = 8
MOST_SCENARIO_CHARS = 40_000
MOST_FULL_ROWS = 40
LEVELS = ("void", "warn", "note")
CARDS = (
    ("ceiling", "Ceiling", "The rate above which the queue grows without end."),
    ("p99_itl_knee", "p99 ITL knee", "The rate from which the slowest 1 % of token gaps grow faster than the load."),
    ("slo_capacity", "SLO capacity", "The highest rate at which your service level holds."),
)
ANCHORS = {"ceiling": "ceiling", "p99_itl_knee": "knee", "slo_capacity": "slo"}


def opening(run: Run) -> str:
    """What was measured, and the sentence."""
    return c.opening(subtitle(run), verdict_text.headline(run), verdict_text.verdict(run))


def subtitle(run: Run) -> list[str]:
    """Scenario, model, host, date, size: one short fact each."""
    facts = [run.info.name, run.info.target.model, run.info.target.base_url, run.info.began_at]
    n = len(run.table)
    facts.append(f"{plural(n, 'request')}, {counted(count(float(run.table.event_tokens.sum())), 'token')}" if n else "")
    if run.steps:
        facts.append(span(max(step.end_s for step in run.steps)))
    return [redact(fact) for fact in facts if fact]


def numbers_section(run: Run) -> str:
    """The three numbers as cards: rate, interval, reason."""
    cards = [_card(run, *card) for card in CARDS]
    return c.section("numbers", "The three numbers", c.render("cards.html.j2", cards=cards))


def _card(run: Run, name: str, title: str, meaning: str) -> dict[str, Any]:
    estimate = run.estimate(name)
    rate = sig(estimate.rate_rps)
    low, high = sig(estimate.low_rps), sig(estimate.high_rps)
    big, status = {
        "found": (rate, "found"),
        "not_found_up_to": (f"> {rate}" if rate else NOTHING, "not reached"),
        "below_range": (f"< {_lowest(run) or rate}", "below the lowest step"),
        "inconclusive": (NOTHING, "inconclusive"),
        "not_measurable": (NOTHING, "not measured"),
    }[estimate.status]
    facts = []
    if low and high and estimate.status == "found":
        facts.append(f"95 % interval{verdict_text.interval_words(run, estimate)}: {low} to {high} req/s")
    elif low and high and estimate.status == "inconclusive":
        facts.append(f"between {low} and {high} req/s")
    if (held := estimate.sustained_rps) is not None:
        facts.append(f"sustained: {sig(held)} req/s{verdict_text.soak_words(run, held)}")
    if estimate.cause:
        facts.append("cause: " + estimate.cause.replace("_", " "))
    if estimate.limit:
        facts.append(f"gives way first: {verdict_text.limit_words(estimate.limit)}")
    if name == "slo_capacity" and (wanted := verdict_text.slo_words(run)):
        facts.append(f"service level: {wanted}")
    return {
        "title": title, "anchor": ANCHORS[name], "meaning": meaning, "big": big,
        "unit": "" if big == NOTHING else "req/s", "status": status, "facts": facts,
        "reason": sentence(estimate.reason), "detector": estimate.detector,
        "found": estimate.status == "found",
    }  # fmt: skip


def _lowest(run: Run) -> str:
    steps = [row for row in r.rising_rows(run) if not row.void]
    return sig(steps[0].axis_load) if steps else ""


def checks_section(run: Run) -> str:
    """What to believe: void first, then warnings, each with advice; notes folded away."""
    groups = checks_by_code(run)
    loud, notes = [g for g in groups if g.level != "note"], [g for g in groups if g.level == "note"]
    body = c.render(
        "checks.html.j2", loud=loud[:MOST_CHECKS], more=max(0, len(loud) - MOST_CHECKS), notes=notes[:MOST_CHECKS]
    )
    return c.section("checks", "Can it be believed?", body)


@dataclass(slots=True, frozen=True)
class CheckGroup:
    """The checks of one code and level: each message once, with the steps it concerns."""

    level: CheckLevel
    code: str
    advice: str
    steps: dict[str, list[str]]
    """Message to the labels of its steps; none where the message names its step."""

    @property
    def messages(self) -> list[tuple[str, str]]:
        """(message, steps) in words, the first MOST_MESSAGES."""
        return [(redact(sentence(text)), ", ".join(labels)) for text, labels in [*self.steps.items()][:MOST_MESSAGES]]

    def words(self, escape: Callable[[str], str] = str) -> str:
        """All of it in one line, each part through ``escape``."""
        parts = [f"{escape(text)} ({escape(steps)})" if steps else escape(text) for text, steps in self.messages]
        return " ".join([*parts, escape(self.advice)]).rstrip()


def checks_by_code(run: Run) -> list[CheckGroup]:
    """The checks of a run in groups, void first."""
    labels: dict[int | None, str] = {row.step: r.label(row) for row in run.rows}
    groups: dict[tuple[str, str], CheckGroup] = {}
    for check in sorted(run.checks, key=_rank):
        new = CheckGroup(check.level, check.code, sentence(redact(check.advice)), {})
        steps = groups.setdefault((check.level, check.code), new).steps
        named = steps.setdefault(check.message, [])
        if check.step is not None and check.code not in NAMES_STEP:
            named.append(labels.get(check.step) or f"step {check.step}")
    return list(groups.values())


def _rank(check: Check) -> tuple[int, int]:
    return LEVELS.index(check.level), -1 if check.step is None else check.step


def evidence_section(run: Run) -> str | None:
    """Which signals fired where."""
    if not run.rows:
        return None
    names = [*SIGNS, *sorted({name for row in run.rows for name in row.signals} - SIGNS.keys())]
    heads = ["Load", *(capital(SIGNS.get(name, name)) for name in names)]
    heads += ["Delivered of due", "Elasticity of p99 ITL", "Verdict"]
    lines = [_evidence_line(row, names) for row in run.rows]
    text = Markup(
        "A step is {} when a signal fires and less than 85 % of what was due is delivered. {} tells how fast p99 ITL "
        "grows from this step to the next; above 1 is faster than the load."
    ).format(c.term("saturated", "overloaded"), c.term("elasticity", "Elasticity"))
    return c.section("evidence", "Evidence", c.grid(heads, lines), words=text)


def _evidence_line(row: Row, names: list[str]) -> list[str | Cell]:
    signals = [
        Cell("● fired", "hot", _figures(row, name)) if name in row.signals else Cell("no", "dim", _figures(row, name))
        for name in names
    ]
    due, delivered = row.arrival_rps or row.rate_rps, row.throughput_rps
    share = percent(delivered / due) if due else NOTHING
    slope, se = row.p99_itl_elasticity, row.p99_itl_elasticity_se
    slope_text = NOTHING if slope is None else sig(slope, 2) + ("" if se is None else f" ± {sig(1.96 * se, 2)}")
    return [
        r.label(row),
        *signals,
        Cell(share, "hot" if row.deficit else ""),
        Cell(slope_text, "" if slope is None or slope <= 1 else "hot"),
        Cell(r.state_words(row), "hot" if r.hollow(row) else ""),
    ]


def _figures(row: Row, name: str) -> str:
    """What a signal looked at, where the row tells."""
    figures = {key: sig(value, 2) for key, value in row.evidence.get(name, {}).items() if key != "p"}
    words = ("{first} to {last}, limit {limit}", "{last}, limit {limit}", "rise {rise}, limit {limit}", "times {ratio}")
    for template in words:
        with suppress(KeyError):
            return template.format_map(figures)
    return ""


def steps_section(run: Run) -> str:
    """The table of steps, and all columns behind a fold."""
    if not run.rows:
        return c.section("steps", "Steps", words="No step was finished.")
    shown = steptable.sheet(run.rows, steptable.columns_of(run.rows, good=bool(run.scenario.slo.limits)))
    body = c.render("steps.html.j2", sheet=shown, tone=_row_tone, rough=steptable.ROUGH_WORDS)
    if len(run.rows) <= MOST_FULL_ROWS:
        return c.section("steps", "Steps", body, _all_columns(run))
    return c.section("steps", "Steps", body, words="All columns of the curve are in curve.csv.")


def _row_tone(row: Row) -> str:
    return "void" if row.void else "over" if row.saturated else ""


def _all_columns(run: Run) -> Markup:
    columns = [(row, columns_of(row)) for row in run.rows]
    names = list(dict.fromkeys(name for _, values in columns for name in values if name != "reasons"))
    lines = [
        [Cell(name, "name"), *(Cell(_raw(row, name, values.get(name))) for row, values in columns)] for name in names
    ]
    heads = ["Column", *(r.label(row) for row in run.rows)]
    return c.render("fold.html.j2", title="Every column of the curve, in seconds and shares (docs/format.md)",
                    body=c.render("wide.html.j2", heads=heads, lines=lines))  # fmt: skip


def _raw(row: Row, name: str, column: object) -> str:
    value = plain_data(column)
    return f"– {row.reason(name)}" if value is None else _words(value)


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return sig(value, 4)
    if isinstance(value, Mapping):
        each = (f"{k} ({_words(v)})" if isinstance(v, Mapping) else f"{k} {_words(v)}" for k, v in value.items())
        return ", ".join(each) or "none"
    return (", ".join(map(_words, value)) or "none") if isinstance(value, list) else str(value)


RESULTS = frozenset({"steps", "estimates", "checks"})
"""Keys of run.json that are no conditions."""


def conditions_section(run: Run) -> str:
    """Under what conditions: everything the run says about itself, and the scenario as it was read."""
    shown = {key: value for key, value in run.info.document().items() if key not in RESULTS}
    return conditions(shown, run.scenario.source, run.path, "Run conditions")


def conditions(info: Mapping[str, Any], source: str, path: str, title: str = "Conditions") -> str:
    """What is known of how something was measured, and the text of its scenario, without secrets."""
    facts = [(key, redact(text)) for key, text in flat("", info)]
    scenario, cut = redact(source[:MOST_SCENARIO_CHARS]), len(source) > MOST_SCENARIO_CHARS
    body = c.render("conditions.html.j2", facts=facts, scenario=scenario, cut=cut, path=path)
    return c.section("conditions", title, body)


def flat(prefix: str, value: Any) -> list[tuple[str, str]]:
    """Nested mappings as ``a.b`` keys; lists as one line."""
    if isinstance(value, Mapping):
        return [pair for key, item in value.items() for pair in flat(f"{prefix}.{key}" if prefix else str(key), item)]
    if isinstance(value, list | tuple):
        return [(prefix, " ".join(str(item) for item in value)[:2000])]
    return [(prefix, NOTHING if value is None else str(value)[:2000])]


def glossary_section(run: Run) -> str:
    return glossary()


SECTIONS: list[Callable[[Run], str | None]] = [
    opening,
    numbers_section,
    gates_section,
    diagnosis_section,
    checks_section,
    repeats_section,
    latency_section,
    throughput_section,
    errors_section,
    classes_section,
    timeline_section,
    client_section,
    tails_section,
    waterfall_section,
    evidence_section,
    steps_section,
    conditions_section,
    glossary_section,
]
