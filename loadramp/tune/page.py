"""The page of a tuning: the answer, the configurations by rank, what each flag did, every measurement. Pure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from math import exp

from loadramp.report import charts as c
from loadramp.report.charts import Cell, Figure, Key
from loadramp.report.glossary import glossary
from loadramp.report.html import page
from loadramp.report.redact import redact
from loadramp.report.verdict_text import Phrase
from loadramp.tune.configurations import HEADS, table_of
from loadramp.tune.flags import apart
from loadramp.tune.text import OBJECTIVES, JudgedTuning, Line, cautions, lines_of, sentence
from loadramp.units import NOTHING, plural, sig, span

TERMS = ("ceiling", "knee", "slo", "ttft", "itl", "percentile", "interval")
CHIPS = {"best": "pass", "no_difference": "pass", "undecided": "inconclusive", "not_measurable": "void"}
"""Verdicts as the words that the page knows a colour for."""
LEVEL = Key("objective with its 95 % interval", "--p99", "dot", symbol="circle")
LOOKS = (
    ("--quiet", "circle"), ("--p99", "diamond"), ("--slo", "square"), ("--p95", "triangle-up"), ("--p50", "x"),
    ("--knee", "cross"),
)  # fmt: skip


def tuning_html(tuning: JudgedTuning) -> str:
    """One offline page."""
    made = [text for make in SECTIONS if (text := make(tuning))]
    return page(f"loadramp: {tuning.state.name}, tuned", sentence(tuning), made)


def _opening(tuning: JudgedTuning) -> str:
    word = tuning.verdict.word
    phrases = [Phrase(redact(sentence(tuning)), "plain" if word in {"best", "no_difference"} else "warn")]
    phrases += [Phrase(words, "warn", minor=True) for words in cautions(tuning)]
    facts = [
        OBJECTIVES[tuning.state.objective],
        plural(len(lines_of(tuning)), "configuration"),
        f"{plural(len(tuning.state.visits), 'measurement')} in {span(tuning.state.spent_s)}",
        tuning.state.began_at,
    ]
    return c.opening([fact for fact in facts if fact], phrases, CHIPS[word])


def _table(tuning: JudgedTuning) -> str:
    rows = table_of(tuning)
    used = [k for k in range(len(HEADS)) if k < 3 or any(row[k] != "–" for row in rows)]
    lines = [[Cell(redact(row[k]), "hot" if k == len(HEADS) - 1 and row[1] == NOTHING else "") for k in used]
             for row in rows]  # fmt: skip
    words = (
        f"Ranked by {OBJECTIVES[tuning.state.objective]}, with 95 % intervals that count how far measurements of one "
        "configuration lie apart. Latencies are those of its highest step that kept up."
        + (" The value at the top rests on the confirming measurements alone." if tuning.verdict.rival else "")
    )
    return c.section("configurations", "Configurations", c.grid([HEADS[k] for k in used], lines), words=words)


def _charts(tuning: JudgedTuning) -> str | None:
    lines = [line for line in lines_of(tuning) if line.level is not None]
    if not lines:
        return None
    return c.section("race", "The race", c.figures(_ranks(tuning, lines), _course(tuning, lines)))


def _ranks(tuning: JudgedTuning, lines: list[Line]) -> Figure:
    """The objective of each configuration with its interval, the best first."""
    levels = [line.level.values(tuning.rules.sign) for line in lines if line.level is not None]
    value, low, high = ([triple[k] for triple in levels] for k in range(3))
    places = [float(k) for k in range(1, len(lines) + 1)]
    text = [f"{_short(tuning, line)}<br>{sig(v)} {tuning.unit}" for line, v in zip(lines, value, strict=True)]
    dots = c.series(LEVEL, places, value, text=text, mode="markers")
    dots["error_y"] = c.whiskers(value, low, high, LEVEL.colour)
    ticks = {"tickvals": places, "ticktext": [str(k) for k in range(1, len(lines) + 1)]}
    layout = {
        "xaxis": {"title": {"text": "rank"}, "range": [0.4, len(lines) + 0.6], **ticks},
        "yaxis": c.value_axis([*value, *low, *high], sig, title=tuning.unit),
    }
    return Figure(f"{OBJECTIVES[tuning.state.objective].capitalize()} by rank", [dots], layout,
                  "Bars are 95 % intervals; the numbers are those of the table.")  # fmt: skip


def _course(tuning: JudgedTuning, lines: list[Line]) -> Figure:
    """Every measurement in the order of time: a host that drifts shows in the baseline's."""
    keys, series, values = [], [], []
    others = [line for line in lines if line.flags != tuning.rules.baseline][: len(LOOKS) - 1]
    shown = [line for line in lines if line in others or line.flags == tuning.rules.baseline]
    for line, (colour, symbol) in zip(shown, cycle(LOOKS), strict=False):
        measured = [visit for visit in line.visits if visit.value is not None and visit.state == "measured"]
        key = Key(_short(tuning, line), colour, symbol=symbol)
        y = [visit.value for visit in measured]
        text = [f"{key.name}<br>{sig(visit.value)} {tuning.unit}<br>{visit.purpose}" for visit in measured]
        series.append(c.series(key, [visit.begin_s / 60.0 for visit in measured], y, text=text))
        keys.append(key)
        values += y
    layout = {
        "xaxis": {"title": {"text": "minutes since the tuning began"}},
        "yaxis": c.value_axis(values, sig, title=tuning.unit),
    }
    return Figure("Every measurement", series, layout, "A level that moves over time is the host's.", key=keys)


def _short(tuning: JudgedTuning, line: Line) -> str:
    return "baseline" if line.flags == tuning.rules.baseline else apart(tuning.rules.baseline, line.flags)


def _effects(tuning: JudgedTuning) -> str | None:
    if not tuning.effects:
        return None
    lines = []
    for effect in tuning.effects:
        ratio = "–" if effect.ratio is None else f"{exp(tuning.rules.sign * effect.ratio.mean):.3g}"
        lines.append([effect.flag, ratio, redact(effect.words(tuning.rules.sign))])
    words = "Each flag alone on top of the baseline, as a multiple of the baseline's objective."
    return c.section("flags", "What each flag did on its own", c.grid(("Flag", "Times", "Shown"), lines), words=words)


def _command(tuning: JudgedTuning) -> str | None:
    if not tuning.command:
        return None
    facts = [("command", redact(tuning.command)), *((flag, redact(why)) for flag, why in tuning.reasons)]
    body = c.render("conditions.html.j2", facts=facts, scenario="", cut=False, path="")
    return c.section("command", "The command line", body, words="Each flag that the baseline has not, with its reason.")


def _left(tuning: JudgedTuning) -> str | None:
    left = tuning.verdict.now.descent.left
    if not left:
        return None
    return c.section(
        "not-tried", "Not tried", c.grid(("Flag or cure", "Why"), [[redact(a), redact(b)] for a, b in left])
    )


def _failures(tuning: JudgedTuning) -> str | None:
    """The last lines of the log of each configuration that failed."""
    failed = [visit for visit in tuning.state.visits if visit.failed]
    if not failed:
        return None
    facts = [
        (
            visit.flags or "baseline",
            redact("\n".join([visit.reason, *(line for line in visit.log_tail[-4:] if line not in visit.reason)])),
        )
        for visit in failed
    ]
    body = c.render("conditions.html.j2", facts=facts, scenario="", cut=False, path="")
    return c.section(
        "failures", "What did not serve", body, words="The logs are in the directory logs beside this page."
    )


def _conditions(tuning: JudgedTuning) -> str:
    state = tuning.state
    facts = [
        ("server", redact(state.server or state.switch_command)),
        ("overrides", redact(" ".join(state.overrides)) or "none"),
        ("of the run", state.of_run or "none"),
        ("loadramp", state.loadramp),
    ]
    body = c.render("conditions.html.j2", facts=facts, scenario="", cut=False, path=tuning.path)
    return c.section("conditions", "Conditions", body)


def _terms(_: JudgedTuning) -> str:
    return glossary(TERMS)


SECTIONS: list[Callable[[JudgedTuning], str | None]] = [
    _opening,
    _table,
    _charts,
    _effects,
    _command,
    _left,
    _failures,
    _conditions,
    _terms,
]
