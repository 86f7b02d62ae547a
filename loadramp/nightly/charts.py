"""One chart a metric: a dot a night, its runs small behind it, changes as upright lines. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from loadramp.nightly.alarms import Rules, alarms_of
from loadramp.nightly.change_points import hampel, shifts
from loadramp.nightly.history import Entry
from loadramp.nightly.series import METRICS, Night, differences
from loadramp.nightly.text import KEY_WORDS, alarm_words, night_words, number
from loadramp.nightly.trend import NightOutcome
from loadramp.report import charts as c
from loadramp.report.charts import Figure, Json, Key
from loadramp.report.redact import redact
from loadramp.units import capital, latency, percent, plural, sig

NIGHT = Key("median of the night", "--p50", symbol="circle", shape="dot")
RUN = Key("one run", "--sky", symbol="circle", shape="dot", hollow=True)
WORSE = Key("change for the worse", "--p99", shape="band", dash="solid")
BETTER = Key("change for the better", "--slo", shape="band", dash="dash")
QUIET = Key("change that raised no alarm", "--quiet", shape="band", dash="dot")
VERSION = Key("the endpoint or the client changed", "--knee", symbol="triangle-up", shape="dot")
FAILED = Key("nothing was measured", "--bad", symbol="x-thin", shape="dot")
LEVEL = Key("level between changes", "--ink", dash="solid")
MANY = 90
"""Nights beyond which dots are small and have no whiskers."""
LABELS = 5
"""Most version labels across a chart."""
KEYS = (NIGHT, RUN, LEVEL, WORSE, BETTER, QUIET, VERSION, FAILED)


@dataclass(slots=True, frozen=True)
class TrendView:
    """What one page shows: the comparable entries of one scenario, and the latest night judged."""

    entries: list[Entry]
    outcome: NightOutcome
    scenario: str
    nights: dict[str, list[Night]] = field(default_factory=dict)
    """Every metric that was ever measured."""
    others: tuple[str, ...] = ()
    """Other scenarios of the same history."""


def figure(shown: TrendView, metric: str) -> Figure:
    """The chart of one metric."""
    nights = shown.nights[metric]
    many = len(nights) > MANY
    first = nights[0].night
    runs = [e for e in shown.entries if e.kind == "measured" and e.metric == metric and e.value and e.night >= first]
    low, high = [night.low for night in nights], [night.high for night in nights]
    dots = c.series(NIGHT, [], [night.value for night in nights], text=[_hover(night, metric) for night in nights])
    dots |= {"x": [night.night for night in nights]}
    behind = c.series(RUN, [], [e.value for e in runs]) | {"x": [e.night for e in runs], "hoverinfo": "skip"}
    dots["marker"] |= {"size": 4 if many else 7}
    behind["marker"] |= {"size": 2.5 if many else 4, "line": {"color": "var(--sky)", "width": 1}}
    limits: list[float | None] = []
    if not many:
        dots["error_y"] = c.whiskers([night.value for night in nights], low, high, NIGHT.colour) | {"width": 0}
        limits = [*low, *high]
    axis = _axis([*(night.value for night in nights), *(e.value for e in runs), *limits], METRICS[metric].unit)
    at = axis["range"][0] + (axis["range"][1] - axis["range"][0]) * 0.04
    shapes, levels = _changes(shown, metric, nights)
    marks = [_versions(nights, at), _failures(shown, at, first)]
    words = METRICS[metric].words
    return Figure(
        title=capital(words),
        data=[behind, dots, *levels, *(mark for mark in marks if mark)],
        layout={"xaxis": {"type": "date", "title": {"text": "night"}, "nticks": 6}, "yaxis": axis, "shapes": shapes},
        words=f"{METRICS[metric].better.capitalize()} is better. {_story(shown, metric, nights)}",
    )


def _axis(values: Sequence[float | None], unit: str) -> Json:
    """A level and its changes are what is looked for, not its distance from nothing: the axis need not begin at 0."""
    known = [v for v in values if v]
    low, high = min(known), max(known)
    room = (high - low or high * 0.1) * 0.12
    low, high = max(low - 2.0 * room, 0.0), high + room
    step = next(
        power * digit
        for power in (10.0 ** math.floor(math.log10(high - low) - 1),)
        for digit in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0, 25.0, 50.0)
        if (high - low) / (power * digit) <= 6
    )
    ticks = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    texts = [latency(t) if unit == "s" else sig(t, 4) for t in ticks]
    return {
        "range": [low, high],
        "tickvals": ticks,
        "ticktext": [text or "0" for text in texts],
        "title": {"text": "" if unit == "s" else unit},
    }


def _hover(night: Night, metric: str) -> str:
    low, high = number(metric, night.low), number(metric, night.high)
    spread = f", {percent(night.spread_ratio, 2)} apart" if night.spread_ratio else ""
    lines = [
        night_words(night.night),
        number(metric, night.value) + (f" ({low} to {high})" if low and high else ""),
        plural(night.runs, "run") + spread + (", measured again" if night.rerun else ""),
        night.fingerprint.get("version") or night.fingerprint.get("engine") or "",
    ]
    return "<br>".join(line for line in lines if line)


def change_points(nights: Sequence[Night], rules: Rules) -> list[int]:
    """Where the whole series, looked back at, changes its level."""
    if len(nights) < 2 * rules.nights_after:
        return []
    logs = hampel(np.array([night.log for night in nights]))
    return [s.at for s in shifts(logs, p_limit=rules.p_limit, least=rules.change_ratio, window=rules.window)]


def _changes(shown: TrendView, metric: str, nights: Sequence[Night]) -> tuple[list[Json], list[Json]]:
    """Upright lines at changes, and the level between them."""
    rules = Rules()
    known = alarms_of(shown.entries, metric)
    index = {night.night: i for i, night in enumerate(nights)}
    begun = {index[a.since]: a for a in known if a.since in index}
    quiet = [at for at in change_points(nights, rules) if all(abs(at - other) > rules.apart for other in begun)]
    shapes = [_upright(nights[at], WORSE if a.direction == "worse" else BETTER) for at, a in begun.items()]
    shapes += [_upright(nights[at], QUIET) for at in quiet]
    edges = sorted({0, *begun, *quiet, len(nights)})
    levels = []
    for begin, end in pairwise(edges):
        level = float(np.median([night.value for night in nights[begin:end]]))
        ends = {"x": [nights[begin].night, nights[end - 1].night], "hoverinfo": "skip"}
        levels.append(c.series(LEVEL, [], [level, level]) | ends)
    for level_line in levels:
        level_line["line"] |= {"width": 1.6}
    return shapes, levels


def _upright(night: Night, key: Key) -> Json:
    return c.upright(0.0, f"var({key.colour})", key.dash) | {"x0": night.night, "x1": night.night}


def _versions(nights: Sequence[Night], y: float) -> Json | None:
    """A mark, with words, on nights whose fingerprint differs from the night before."""
    marked = [(b, diff) for a, b in pairwise(nights) if (diff := differences(a.fingerprint, b.fingerprint))]
    if not marked:
        return None
    text = []
    for night, diff in marked:
        changes = [f"{KEY_WORDS.get(key, key)}: {redact(old)} → {redact(new)}" for key, (old, new) in diff.items()]
        text.append("<br>".join([night_words(night.night), *changes]))
    marks = c.series(VERSION, [], [y] * len(marked)) | {"x": [night.night for night, _ in marked]}
    labels = _labels(nights, marked)
    return marks | {
        "mode": "markers+text",
        "text": labels,
        "textposition": "top right",
        "textfont": {"size": 10.5, "color": "var(--quiet)"},
        "hovertext": text,
        "hoverinfo": "text",
    }


def _labels(nights: Sequence[Night], marked: Sequence[tuple[Night, dict[str, tuple[str, str]]]]) -> list[str]:
    """The new version (or whatever is new) beside a mark, where there is room for it."""
    index = {night.night: i for i, night in enumerate(nights)}
    labels: list[str] = []
    last = -len(nights)
    for night, diff in marked:
        _, new = diff.get("version") or next(iter(diff.values()))
        room = index[night.night] - last >= len(nights) / LABELS
        labels.append(redact(new)[:10] if room else "")
        last = index[night.night] if room else last
    return labels


def _failures(shown: TrendView, y: float, first: str) -> Json | None:
    measured = {e.night for e in shown.entries if e.kind == "measured"}
    failed = {e.night: e.reason for e in shown.entries if e.kind == "failed" and e.night not in measured}
    failed = {night: reason for night, reason in failed.items() if night >= first}
    if not failed:
        return None
    text = [f"{night_words(night)}<br>not measured: {redact(reason)[:120]}" for night, reason in failed.items()]
    return c.series(FAILED, [], [y] * len(failed), text=text) | {"x": list(failed)}


def _story(shown: TrendView, metric: str, nights: Sequence[Night]) -> str:
    alarms = alarms_of(shown.entries, metric)
    if alarms:
        return alarm_words(alarms[-1])
    low, high = min(nights, key=lambda night: night.value), max(nights, key=lambda night: night.value)
    span = f"{number(metric, low.value)} and {number(metric, high.value)}"
    return f"Between {span} in {plural(len(nights), 'night')}, without an alarm."
