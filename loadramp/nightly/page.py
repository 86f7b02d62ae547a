"""Nights as one offline page: this night, its alarms, every metric over all nights, and what changed when. Pure."""

from collections.abc import Callable, Sequence

from loadramp.nightly.alarms import alarms_of
from loadramp.nightly.charts import KEYS, TrendView, figure
from loadramp.nightly.history import Alarm, Entry
from loadramp.nightly.series import JUDGED, METRICS, all_series, differences, latest_night, of_series
from loadramp.nightly.text import (
    KEY_WORDS,
    RULES,
    baseline_words,
    headline,
    minimum_words,
    night_words,
    number,
    pairs_words,
    size_words,
    standing_words,
)
from loadramp.nightly.trend import NightOutcome, Standing, judge_night
from loadramp.report import charts as c
from loadramp.report.charts import Cell
from loadramp.report.html import page
from loadramp.report.redact import redact
from loadramp.report.verdict_text import Phrase
from loadramp.units import NOTHING, plural, sig, signed

MOST_NIGHTS = 1500
"""Drawn; older ones are in the history."""
TONES = {"worse": "hot", "suspect": "hot", "missing": "dim", "no_baseline": "dim"}


def build_trend_html(entries: Sequence[Entry], scenario: str | None = None, outcome: NightOutcome | None = None) -> str:
    """The page.

    Args:
        entries: a history.
        scenario: whose nights; None: of the latest entry.
        outcome: the latest night as it was judged; None: judged here with the default limits, without its own alarms.
    """
    shown = trend_view(entries, scenario, outcome)
    title = f"loadramp: nights of {shown.scenario or 'nothing yet'}"
    made = [text for make in SECTIONS if (text := make(shown))]
    return page(title, headline(shown.outcome)[0], made)


def trend_view(entries: Sequence[Entry], scenario: str | None = None, outcome: NightOutcome | None = None) -> TrendView:
    """Cut the scenario's latest series out of a history."""
    entries_of_scenario = of_series(entries, scenario)
    name = next((entry.scenario for entry in reversed(entries_of_scenario) if entry.kind == "measured"), scenario or "")
    every = all_series(entries_of_scenario)
    nights = {metric: every[metric][-MOST_NIGHTS:] for metric in METRICS if metric in every}
    others = tuple(sorted({entry.scenario for entry in entries} - {name}))
    return TrendView(entries_of_scenario, outcome or rejudge(entries_of_scenario, name), name, nights, others)


def rejudge(entries: Sequence[Entry], scenario: str) -> NightOutcome:
    """The latest night as the history tells it: its standings anew, its alarms as they were raised."""
    night = latest_night(entries)
    earlier = [entry for entry in entries if entry.kind != "alarm" or entry.night != night]
    raised = [alarm for metric in METRICS for alarm in alarms_of(entries, metric) if alarm.raised == night]
    standings = judge_night(earlier, scenario=scenario or None).standings
    return NightOutcome(night, standings, raised, judge_night(entries, scenario=scenario or None).open, [])


def opening(shown: TrendView) -> str:
    sentence, tone = headline(shown.outcome)
    verdict = {"plain": "pass", "warn": "inconclusive", "bad": "fail"}[tone]
    measured = {entry.night for entry in shown.entries if entry.kind == "measured"}
    failed = {entry.night for entry in shown.entries if entry.kind == "failed"} - measured
    facts = [f"scenario {shown.scenario}", f"{plural(len(measured), 'night')} measured"]
    facts += [f"{plural(len(failed), 'night')} without a measurement"] if failed else []
    facts += [f"latest {night_words(shown.outcome.night)}"] if shown.outcome.night else []
    facts += [f"also in this history: {', '.join(shown.others)}"] if shown.others else []
    return c.opening([redact(fact) for fact in facts], [Phrase(sentence, tone)], verdict)


def tonight_section(shown: TrendView) -> str | None:
    """Each judged metric against its baseline, then the floors."""
    if not shown.outcome.standings:
        return None
    heads = ["Metric", "This night", "Baseline", "Change", "Standing"]
    body = c.grid(heads, [_standing_line(effect) for effect in shown.outcome.standings])
    floors: list[c.Line] = [
        [minimum_words(floor), Cell(floor.status, "hot" if floor.status == "fail" else "")]
        for floor in shown.outcome.floors
    ]
    more = [c.grid(["Floor", ""], floors)] if floors else []
    words = "The baseline is the median of up to 28 nights under the same conditions; ± is their robust spread."
    return c.section("tonight", "This night", body, *more, words=words)


def _standing_line(standing: Standing) -> c.Line:
    low, high = number(standing.metric, standing.low), number(standing.metric, standing.high)
    change = signed(standing.change_ratio, 2) if standing.change_ratio is not None else NOTHING
    tone = TONES.get(standing.state, "")
    return [
        METRICS[standing.metric].words,
        Cell(number(standing.metric, standing.value) or NOTHING, small=f"{low} to {high}" if low and high else ""),
        baseline_words(standing),
        Cell(change, tone, "" if standing.z is None else f"z {sig(standing.z, 2)}"),
        Cell(standing_words(standing), tone),
    ]


def alarms_section(shown: TrendView) -> str:
    """Every alarm that was raised, newest first, and whether it still stands."""
    alarms = [alarm for metric in METRICS for alarm in alarms_of(shown.entries, metric)]
    alarms += [alarm for alarm in shown.outcome.alarms if alarm not in alarms]
    if not alarms:
        return c.section("changes", "Changes", words="No change has raised an alarm in this history.")
    still = {(alarm.metric, alarm.since) for alarm in shown.outcome.open}
    newest_first = sorted(alarms, key=lambda alarm: alarm.raised, reverse=True)
    lines = [_alarm_line(alarm, (alarm.metric, alarm.since) in still) for alarm in newest_first]
    heads = ["Metric", "Since", "Size with 95 % interval", "Direction", "What else changed"]
    accepted = [
        f"Level accepted on {night_words(entry.night)}: {redact(entry.reason) or 'no reason given'}."
        for entry in shown.entries
        if entry.kind == "accepted"
    ]
    words = "One alarm for one change. What is open was neither accepted nor made up for. " + " ".join(accepted)
    return c.section("changes", "Changes", c.grid(heads, lines), words=words)


def _alarm_line(alarm: Alarm, still: bool) -> c.Line:
    return [
        METRICS[alarm.metric].words,
        Cell(night_words(alarm.since), small=f"noticed {night_words(alarm.raised)}"),
        Cell(size_words(alarm), "hot" if alarm.direction == "worse" else "", RULES[alarm.rule]),
        alarm.direction + (", open" if still else ""),
        redact(", ".join(pairs_words(alarm.changed))) or "nothing known",
    ]


def metrics_section(shown: TrendView) -> str | None:
    """A chart a metric: judged ones first."""
    if not shown.nights:
        return c.section("nights", "Night by night", words="Nothing was measured yet.")
    judged = [effect.metric for effect in shown.outcome.standings] or list(JUDGED)
    order = [*(m for m in judged if m in shown.nights), *(m for m in shown.nights if m not in judged)]
    figures = [figure(shown, metric) for metric in order]
    words = "Dots are nights (medians of their runs), whiskers (where they fit) the 95 % interval within a night."
    return c.section("nights", "Night by night", c.figures(*figures, key=KEYS), words=words)


def conditions_section(shown: TrendView) -> str | None:
    """When what was measured on what: one line for each change of the fingerprint."""
    fingerprints: dict[str, dict[str, str]] = {}
    for entry in shown.entries:
        if entry.kind == "measured":
            fingerprints.setdefault(entry.night, dict(entry.fingerprint))
    lines: list[c.Line] = []
    before: dict[str, str] = {}
    for night, fingerprint in sorted(fingerprints.items()):
        diff = differences(before, fingerprint)
        if diff:
            changed = [f"{KEY_WORDS.get(key, key)} {new}" for key, (_, new) in diff.items()]
            lines.append([night_words(night), redact(", ".join(changed))])
        before = fingerprint
    if not lines:
        return None
    body = c.grid(["From", "What is new"], lines[::-1][:100])
    words = "Nights are compared with nights of equal conditions; KV blocks and the client's machine are only told."
    return c.section("conditions", "Conditions over time", body, words=words)


SECTIONS: list[Callable[[TrendView], str | None]] = [
    opening,
    tonight_section,
    alarms_section,
    metrics_section,
    conditions_section,
]
