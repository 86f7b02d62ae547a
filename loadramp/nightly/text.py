"""A judged night in words, as Markdown and as data. Pure. An alarm names night, metric, size with interval, and what
else changed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from loadramp.nightly.alarms import Change, changes_of
from loadramp.nightly.history import Alarm
from loadramp.nightly.levels import Level
from loadramp.nightly.series import METRICS
from loadramp.nightly.trend import NightOutcome, Standing
from loadramp.record.codec import plain_data
from loadramp.record.types import GateResult
from loadramp.report.markdown import escaped, table
from loadramp.report.thresholds import MARKS, interval_words, value_words
from loadramp.report.verdict_text import Tone
from loadramp.units import NOTHING, capital, latency, percent, plural, sig, signed

RULES = {"page": "page: two nights running, or measured again at once", "ticket": "ticket: a lasting change of level"}
STATES = {
    "no_baseline": "no baseline yet",
    "steady": "steady",
    "suspect": "looks worse; the next night decides",
    "worse": "worse",
    "better": "better",
    "missing": "not measured",
}
KEY_WORDS = {"client": "loadramp", "host": "client machine", "libraries": "client libraries", "kv_blocks": "KV blocks"}


def night_words(night: str) -> str:
    """``2026-01-02 03:04`` of an ISO instant."""
    return night[:16].replace("T", " ")


def number(metric: str, value: float | None) -> str:
    """A value of the metric for people; empty for none."""
    if value is None:
        return ""
    unit = METRICS[metric].unit
    return latency(value) if unit == "s" else f"{sig(value)} {unit}"


def size_words(alarm: Alarm) -> str:
    """``-12 % (-15 % to -9 %)``."""
    return f"{signed(alarm.change_ratio, 2)} ({signed(alarm.low_ratio, 2)} to {signed(alarm.high_ratio, 2)})"


def alarm_words(alarm: Alarm) -> str:
    """The whole alarm as one sentence or two."""
    name = METRICS[alarm.metric].words
    return (
        f"{capital(name)} is {alarm.direction} since {night_words(alarm.since)}: {size_words(alarm)}, "
        f"now {number(alarm.metric, alarm.after)}, before {number(alarm.metric, alarm.before)}. {changed_words(alarm)}"
    )


def changed_words(alarm: Alarm) -> str:
    """What else changed on that night."""
    if not alarm.changed:
        return "Nothing that is known of the endpoint changed that night."
    return f"Changed that night: {', '.join(pairs_words(alarm.changed))}."


def pairs_words(changed: Mapping[str, tuple[str, str]]) -> list[str]:
    """``version 1 → 2`` for each key of the fingerprint that differs."""
    return [f"{KEY_WORDS.get(key, key)} {old} → {new}" for key, (old, new) in changed.items()]


def headline(outcome: NightOutcome) -> tuple[str, Tone]:
    """The night in one sentence, and its tone."""
    worse = [alarm for change in outcome.changes if change.fails for alarm in change.alarms]
    broken = [floor for floor in outcome.floors if floor.status == "fail"]
    if not outcome.night:
        return "No night has been measured yet.", "warn"
    if worse:
        return changes_words(worse), "bad"
    if broken:
        return f"Beyond a floor: {'; '.join(minimum_words(floor) for floor in broken)}.", "bad"
    known = [alarm for change in outcome.changes if change.known_before for alarm in change.alarms]
    if known:
        return f"Part of a change that an earlier night has told: {changes_words(known)}", "warn"
    if outcome.alarms:
        return changes_words(outcome.alarms), "plain"
    missing = [standing.metric for standing in outcome.standings if standing.state == "missing"]
    if outcome.standings and len(missing) == len(outcome.standings):
        return f"Not measured this night ({outcome.standings[0].reason}); that is no regression.", "warn"
    if outcome.open:
        names = ", ".join(sorted({METRICS[alarm.metric].words for alarm in outcome.open}))
        return f"Nothing new. Worse than accepted, as told before: {names}.", "warn"
    return _quiet(outcome, missing)


def changes_words(alarms: Sequence[Alarm]) -> str:
    """Alarms of one night; metrics that one change has moved are told together."""
    return " ".join(change_words(change) for change in changes_of(alarms))


def change_words(change: Change) -> str:
    """One change, with every metric that it has moved this night."""
    sizes = [
        f"{METRICS[a.metric].words} {size_words(a)}, now {number(a.metric, a.after)} after {number(a.metric, a.before)}"
        for a in change.alarms
    ]
    caused = next((alarm for alarm in change.alarms if alarm.changed), change.alarms[0])
    since = f"{change.direction.capitalize()} since {night_words(change.since)}"
    return f"{since}: {'; '.join(sizes)}. {changed_words(caused)}"


def level_words(level: Level) -> str:
    """What accepting the level of a metric means: ``p99 ITL: 57 ms ...; closes: worse since ...``."""
    name = capital(METRICS[level.metric].words)
    closed = "; ".join(
        f"{alarm.direction} since {night_words(alarm.since)}, {size_words(alarm)}, "
        f"before {number(alarm.metric, alarm.before)}"
        for alarm in level.open
    )
    closes = f"; closes: {closed}" if closed else "; nothing is open"
    return f"{name}: {number(level.metric, level.value)} on {night_words(level.night)}{closes}"


def _quiet(outcome: NightOutcome, missing: Sequence[str]) -> tuple[str, Tone]:
    """Nothing has happened; how much that says."""
    lacking = [standing for standing in outcome.standings if standing.state == "no_baseline"]
    suspects = [METRICS[metric].words for metric in outcome.suspects]
    tail = f" Not measured: {', '.join(METRICS[metric].words for metric in missing)}." if missing else ""
    if suspects:
        return f"One night looks worse ({', '.join(suspects)}); the next one decides.{tail}", "warn"
    if lacking:
        known = min(standing.nights for standing in lacking) + 1
        return (
            f"{plural(known, 'night')} under these conditions: too few to tell a change. Floors are judged.{tail}",
            "warn",
        )
    return (
        f"No change: every judged metric is within what its nights usually vary by.{tail}",
        "warn" if tail else "plain",
    )


def standing_words(standing: Standing) -> str:
    """``steady`` and why, for one metric."""
    return STATES[standing.state] + (f" ({standing.reason})" if standing.reason else "")


def baseline_words(standing: Standing) -> str:
    """``15.9 req/s ± 3 % over 28 nights``."""
    if standing.baseline is None:
        return NOTHING
    spread = f" ± {percent(standing.sd_ratio, 2)}" if standing.sd_ratio else ""
    over = f" over {plural(standing.nights, 'night')}" if standing.nights else ""
    return f"{number(standing.metric, standing.baseline)}{spread}{over}"


def minimum_words(floor: GateResult) -> str:
    between = interval_words(floor)
    measured = value_words(floor) + (f", {between}" if between else "")
    return f"{floor.rule}: {measured}" + (f" ({floor.reason})" if floor.reason else "")


def terminal_lines(outcome: NightOutcome) -> list[str]:
    """The night for a terminal: the sentence, then a line a metric, floor and open change."""
    lines = [headline(outcome)[0], ""]
    silent = all(standing.state == "missing" for standing in outcome.standings)  # the sentence has said why
    for standing in outcome.standings:
        change = "" if standing.change_ratio is None else f"  {signed(standing.change_ratio, 2)}"
        value = number(standing.metric, standing.value) or NOTHING
        state = STATES[standing.state] if silent else standing_words(standing)
        lines.append(f"  {standing.metric:24s} {value:>14s}{change:>9s}  {state}")
    floors = [floor for floor in outcome.floors if not silent or floor.status != "inconclusive"]
    lines += [f"  {MARKS[floor.status]} floor {minimum_words(floor)}" for floor in floors]
    raised = {(alarm.metric, alarm.since) for alarm in outcome.alarms}
    lines += [f"  open: {alarm_words(alarm)}" for alarm in outcome.open if (alarm.metric, alarm.since) not in raised]
    return lines


def night_markdown(outcome: NightOutcome, scenario: str) -> str:
    """The night for a pull request or a chat."""
    lines = [
        f"# {escaped(scenario)}: night of {night_words(outcome.night)}",
        "",
        f"**{escaped(headline(outcome)[0])}**",
        "",
    ]
    rows = []
    for standing in outcome.standings:
        low, high = number(standing.metric, standing.low), number(standing.metric, standing.high)
        between = f"{low} to {high}" if low and high else NOTHING
        change = signed(standing.change_ratio, 2) if standing.change_ratio is not None else NOTHING
        cells = [
            METRICS[standing.metric].words, number(standing.metric, standing.value) or NOTHING, between,
            baseline_words(standing), change, standing_words(standing),
        ]  # fmt: skip
        rows.append([escaped(cell) for cell in cells])
    lines += table(["metric", "this night", "interval", "baseline", "change", ""], rows)
    if outcome.floors:
        lines += ["", *(f"- {MARKS[floor.status]} floor {escaped(minimum_words(floor))}" for floor in outcome.floors)]
    if outcome.open:
        lines += ["", "Open changes for the worse (`loadramp accept` closes one that is meant):", ""]
        lines += [f"- {escaped(alarm_words(alarm))}" for alarm in outcome.open]
    return "\n".join(lines) + "\n"


def night_document(outcome: NightOutcome, exit_code: int, runs: Sequence[str], scenario: str) -> dict[str, Any]:
    """The night as strict JSON data: what ``nightly --json`` and ``trend --json`` print."""
    verdicts = {0: "pass", 1: "not_measured", 3: "inconclusive", 99: "fail"}
    document: dict[str, Any] = plain_data(
        {
            "schema": "loadramp.night/1",
            "scenario": scenario,
            "night": outcome.night,
            "verdict": verdicts.get(exit_code, "interrupted"),
            "exit_code": exit_code,
            "sentence": headline(outcome)[0],
            "metrics": [asdict(standing) for standing in outcome.standings],
            "alarms": [_alarm_document(alarm) for alarm in outcome.alarms],
            "changes": [_change_document(change) for change in outcome.changes],
            "open": [_alarm_document(alarm) for alarm in outcome.open],
            "floors": [asdict(floor) for floor in outcome.floors],
            "runs": list(runs),
        }
    )
    return document


def _change_document(change: Change) -> dict[str, Any]:
    return {
        "direction": change.direction,
        "since": change.since,
        "told_before": change.known_before,
        "metrics": [alarm.metric for alarm in change.alarms],
        "words": change_words(change),
    }


def _alarm_document(alarm: Alarm) -> dict[str, Any]:
    return {
        **asdict(alarm),
        "changed": {key: list(pair) for key, pair in alarm.changed.items()},
        "words": alarm_words(alarm),
    }
