"""The steps by class of traffic, by model and by turn, how sessions went, and how cold each model was."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from loadramp.record.row import SHORT_NAMES, ClassFigures, Row
from loadramp.record.run_info import ColdStart
from loadramp.record.table import Floats, Run
from loadramp.report import charts as c
from loadramp.report import rows as r
from loadramp.report.charts import Cell
from loadramp.report.redact import redact
from loadramp.units import NOTHING, count, latency, percent, sig

KINDS = {"label": "class", "model": "model", "turn": "turn"}
LATENCIES = tuple((name, SHORT_NAMES[name]) for name in ("ttft", "itl", "e2e"))
LOOKS = (
    ("--p50", "circle", "solid"), ("--p95", "square", "dash"), ("--p99", "diamond", "dot"),
    ("--slo", "triangle-up", "dashdot"), ("--knee", "x", "longdash"), ("--sky", "star", "longdashdot"),
)  # fmt: skip
"""Colour, marker and dash of a class: any two differ in all three."""
NONE = ClassFigures(0)


def classes_section(run: Run) -> str | None:
    """Nothing where all traffic is of one class, one model and one turn."""
    bodies = [_by(run, kind, name) for kind, name in KINDS.items()]
    bodies += [_sessions(run), _models(run)]
    shown = [body for body in bodies if body is not None]
    if not shown:
        return None
    text = (
        "The same steps, taken apart. A class is judged like a whole step: what its requests cannot carry is not shown."
    )
    return c.section("classes", "By class of traffic", *shown, words=text)


def _by(run: Run, kind: str, title: str) -> Markup | None:
    """One line for each step and name."""
    steps = [(row, classes) for row in run.rows if (classes := _classes(row, kind))]
    if not steps:
        return None
    heads = ["Load", title.capitalize(), "Requests", "Failed", "Tokens in, out"]
    heads += [f"{level} {name}" for _, name in LATENCIES for level in ("p50", "p99")]
    good = bool(run.scenario.slo.limits)
    heads += ["Good"] if good else []
    lines = [_line(r.label(row), name, figures, good) for row, classes in steps for name, figures in classes.items()]
    return _curves(run, kind, title) + c.render("fold.html.j2", title=f"By {title}", body=c.grid(heads, lines))


def _curves(run: Run, kind: str, title: str) -> Markup:
    """Medians of TTFT and ITL against the rate, a line for each of the largest classes; nothing for one step."""
    steps = [row for row in r.rising_rows(run) if not row.void and _classes(row, kind)]
    if len(steps) < 2:
        return Markup("")
    sizes: Counter[str] = Counter()
    for row in steps:
        sizes.update({name: figures.requests for name, figures in _classes(row, kind).items()})
    names = sorted(name for name, _ in sizes.most_common(len(LOOKS)))
    keys = [
        c.Key(redact(name), colour, symbol=symbol, dash=dash)
        for name, (colour, symbol, dash) in zip(names, LOOKS, strict=False)
    ]
    figures = []
    for metric, words in LATENCIES[:2]:
        lines = [
            [_classes(row, kind).get(name, NONE).latency.get(f"{metric}_p50_s") for row in steps] for name in names
        ]
        data = [
            c.over_load(key, steps, y, [f"{key.name}: {latency(v) or NOTHING}" for v in y])
            for key, y in zip(keys, lines, strict=True)
        ]
        layout = {"xaxis": c.load_axis(steps), "yaxis": c.value_axis(v for y in lines for v in y)}
        figures.append(c.Figure(title=f"p50 {words} by {title}", data=data, layout=layout))
    return c.figures(*figures, key=keys)


def _classes(row: Row, kind: str) -> Mapping[str, ClassFigures]:
    return (row.classes or {}).get(kind, {})


def _line(load: str, name: str, figures: ClassFigures, good: bool) -> list[Cell]:
    texts = [
        load,
        redact(name),
        count(figures.requests),
        percent(figures.error_ratio),
        f"{count(figures.input_tokens_mean) or NOTHING}, {count(figures.output_tokens_mean) or NOTHING}",
    ]
    texts += [latency(figures.latency.get(f"{key}_{q}_s")) for key, _ in LATENCIES for q in ("p50", "p99")]
    texts += [percent(figures.good_ratio)] if good else []
    return _cells(texts, tone="hot" if (figures.error_ratio or 0.0) > 0.01 else "")


def _sessions(run: Run) -> Markup | None:
    """One line a step."""
    steps = [(row, sessions) for row in run.rows if (sessions := row.sessions)]
    if not steps:
        return None
    heads = ["Load", "Sessions begun", "ended", "broken", "open", "Turns"]
    heads += ["p50 duration", "p90 duration", "p50 without pauses"]
    lines = []
    for row, sessions in steps:
        texts = [r.label(row), *(count(sessions.get(key)) for key in ("started", "ended", "broken", "open"))]
        texts.append(sig(sessions.get("turns_mean"), 2))
        texts += [latency(sessions.get(f"{key}_s")) for key in ("duration_p50", "duration_p90", "answering_p50")]
        lines.append(_cells(texts))
    words = (
        "Sessions that began in the step. The first turn that fails breaks a session; an open one had turns to come."
    )
    return Markup("<h3>Sessions</h3><p>{}</p>{}").format(words, c.grid(heads, lines))


def _models(run: Run) -> Markup | None:
    """Time to first token of each model's very first request beside what is usual for it."""
    before = run.info.models or {}
    names = sorted({str(name) for name in run.table.model if name} | {*before})
    if not names:
        return None
    heads = ["Model", "First TTFT before the run", "Second", "First TTFT in the run", "Median in the run"]
    lines = []
    for name in names:
        early = before.get(name, ColdStart())
        ttft_s = _ttft_s(run, name)
        shown = [ttft_s[0], float(np.median(ttft_s))] if len(ttft_s) else [None, None]
        lines.append(_cells([redact(name), *map(latency, [early.first_ttft_s, early.second_ttft_s, *shown])]))
    words = "A first answer far slower than the second: an adapter had to be loaded."
    return Markup("<h3>Cold starts</h3><p>{}</p>{}").format(words, c.grid(heads, lines))


def _ttft_s(run: Run, model: str) -> Floats:
    """TTFT from sending of the successes of ``model``, in the order in which they were sent."""
    mine = run.table.select(np.asarray((run.table.model == model) & run.table.ok, dtype=np.bool_))
    return mine.sent_ttft_s[np.argsort(mine.sent_s, kind="stable")]


def _cells(texts: Sequence[str], tone: str = "") -> list[Cell]:
    return [Cell(text or NOTHING, tone) for text in texts]
