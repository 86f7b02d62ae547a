"""A campaign in words: the sentences that open it, its phases, Markdown and JSON data. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadramp.campaign.criteria import Criterion, PhaseView, verdict_of
from loadramp.campaign.recovery import availability
from loadramp.campaign.scorecard import Scorecard, ScorecardLine, Verdict
from loadramp.campaign.state import CampaignState
from loadramp.record.codec import plain_data
from loadramp.record.run_info import TargetInfo
from loadramp.report.markdown import escaped, table
from loadramp.report.redact import redact
from loadramp.report.thresholds import MARKS
from loadramp.report.verdict_text import Phrase
from loadramp.units import percent, plural, sig, span

SCHEMA = "loadramp.campaign/1"
TITLES = {
    "baseline": "Baseline: one user at a time",
    "ramp": "Ramp: how much it takes",
    "sustained": "Sustained: the target for a long time",
    "overload": "Overload: more than it was made for",
    "chaos": "Chaos: a worker goes away",
}
TONES = {
    "pass": "pass",
    "fail": "fail",
    "inconclusive": "inconclusive",
    "go": "pass",
    "no-go": "fail",
    "open": "inconclusive",
}
STATE_TONES = {"shown": "pass", "said": "pass", "waived": "warn", "gap": "fail", "open": "inconclusive"}
STATE_WORDS = {
    "shown": "shown by the campaign",
    "said": "answered yes",
    "waived": "waived",
    "gap": "missing",
    "open": "open",
}


@dataclass(slots=True)
class CampaignView:
    """A campaign, judged: all that a report sees. ``measured`` and ``criteria`` hold the phases that have a run."""

    name: str
    state: CampaignState
    measured: Mapping[str, PhaseView]
    criteria: Mapping[str, Sequence[Criterion]]
    card: Scorecard
    scenario_text: str = ""
    path: str = ""
    wanted: Sequence[str] = field(default_factory=tuple)
    """The phases that were asked for."""
    rules: str = ""
    """Alert rules made of what was measured."""

    def phase_verdict(self, phase: str) -> str:
        """pass, fail, inconclusive; ``not run`` where it has none."""
        if phase not in self.measured:
            return "not run"
        verdict = verdict_of(self.criteria[phase])
        return verdict if self.state.phase(phase).state == "done" or verdict == "fail" else "inconclusive"

    @property
    def missing(self) -> list[str]:
        """Phases that were asked for and have not come to their end."""
        return [phase for phase in self.wanted if self.state.phase(phase).state != "done"]

    @property
    def undecided(self) -> bool:
        """A rehearsal, an interruption, or no phase under load: that decides nothing, neither go nor no go."""
        phases = self.state.phases.values()
        cut = any(phase.state == "running" or phase.reason == "interrupted" for phase in phases)
        return cut or self.state.rehearsal or not set(self.measured) - {"baseline"}

    @property
    def verdict(self) -> Verdict:
        """no-go: a critical item is missing, or a phase failed and nobody waived what it showed. open: a critical item
        or a phase is open. go otherwise."""
        if self.undecided:
            return "open"
        failed = [phase for phase in self.measured if self.phase_verdict(phase) == "fail" and not self._waived(phase)]
        if self.card.verdict == "no-go" or failed:
            return "no-go"
        unclear = self.phase_verdict("ramp") == "inconclusive" and "ramp" in self.wanted
        return "open" if self.card.verdict == "open" or self.missing or unclear else "go"

    def _waived(self, phase: str) -> bool:
        """Somebody took what the phase showed upon themselves, all of it."""
        states = {line.state for line in self.card.lines if line.phase == phase}
        return "waived" in states and "gap" not in states


def headline(view: CampaignView) -> list[Phrase]:
    """The sentences that open every form of the report, the verdict first."""
    return [*_decision(view), *_figures(view)]


def _decision(view: CampaignView) -> list[Phrase]:
    card = view.card
    critical = [line for line in card.lines if line.item.critical]
    gaps = [line for line in critical if line.state == "gap"]
    waived = card.count("waived", True)
    done = len(critical) - card.count("open", True) - len(gaps)
    settled = f"{done} of {plural(len(critical), 'critical item')} are settled"
    if view.verdict == "go":
        more = f", {waived} of them waived" if waived else ""
        return [Phrase(f"Go: all {plural(len(critical), 'critical item')} are settled{more}.")]
    if view.verdict == "no-go":
        out = []
        if gaps:
            listed = "; ".join(line.item.text[0].lower() + line.item.text[1:] for line in gaps[:3])
            more = f"; and {len(gaps) - 3} more" if len(gaps) > 3 else ""
            out.append(Phrase(f"No go: {plural(len(gaps), 'critical item')} not met: {listed}{more}.", "bad"))
        else:
            failed = [phase for phase in view.measured if view.phase_verdict(phase) == "fail"]
            out.append(Phrase(f"No go: the {' and the '.join(failed)} phase failed.", "bad"))
        return [*out, Phrase(f"{settled}.", minor=True)]
    opened = card.count("open", True)
    if view.state.rehearsal:
        words = "Not decided: this was a rehearsal, too short to prove anything."
        cut = [Phrase(f"Not finished: {', '.join(view.missing)}.", "warn")] if view.missing else []
        return [Phrase(words, "warn"), *cut, Phrase(f"{settled} by answers or waivers.", minor=True)]
    why = [plural(opened, "critical item") + " open"] if opened else []
    why += [f"the {', '.join(view.missing)} phase not finished"] if view.missing else []
    why += ["every load test waived"] if card.untested else []
    return [
        Phrase(f"Not decided yet: {' and '.join(why) or 'the ramp gave no clear answer'}.", "warn"),
        Phrase(f"{settled}.", minor=True),
    ]


def _figures(view: CampaignView) -> list[Phrase]:
    """What was measured, a sentence a phase."""
    out = []
    if "ramp" in view.measured:
        out += [f"Ceiling: {c.observed}." for c in view.criteria.get("ramp", ()) if c.code == "ceiling"]
    soak = view.measured.get("sustained")
    if soak is not None and soak.rows:
        rows = [row for row in soak.rows if not row.void] or soak.rows
        length = span(rows[-1].window_end_s - rows[0].window_begin_s)
        failed = sum(row.failed for row in rows)
        out.append(
            f"{sig(soak.target_rps)} req/s for {length}: {failed:,} of "
            f"{plural(sum(row.requests for row in rows), 'request')} failed."
        )
    for phase, what in (("overload", "the overload"), ("chaos", "a worker went away")):
        recovery = next((criterion for criterion in view.criteria.get(phase, ()) if criterion.code == "recovery"), None)
        if recovery is not None:
            out.append(f"After {what} {recovery.outcome}.")
    return [Phrase(text, minor=True) for text in out]


def facts(view: CampaignView) -> list[str]:
    """Name, model, host, date: one short fact each."""
    run = next((phase.run for phase in view.measured.values()), None)
    target = run.info.target if run is not None else TargetInfo()
    listed = [view.state.name, target.model, target.base_url, view.state.began_at]
    aimed = target_rps(view)
    listed.append(f"target {sig(aimed)} req/s" if aimed else "")
    return [redact(str(fact)) for fact in listed if fact]


def target_rps(view: CampaignView) -> float | None:
    """What was asked for, or what the ramp was taken to allow."""
    return view.state.target_rps or next((s.target_rps for s in view.measured.values() if s.target_rps), None)


def phase_words(view: CampaignView, phase: str) -> str:
    """What was done in a phase, in a line."""
    about = view.state.phase(phase)
    measured = view.measured.get(phase)
    if measured is None:
        return redact(about.reason or "it did not come to that")
    rates = [row.rate_rps for row in measured.rows if row.rate_rps]
    at = (
        f"{sig(min(rates))} to {sig(max(rates))} req/s"
        if len(set(rates)) > 1
        else f"{sig(rates[0])} req/s"
        if rates
        else ""
    )
    length = span(max((step.end_s for step in measured.run.steps), default=0.0))
    requests = plural(len(measured.run.table), "request")
    there = availability(measured.health, 0.0, float("inf"))
    up = f"health check {percent(there.ratio)} of {plural(there.checks, 'check')}" if there.checks else ""
    tries = f"{plural(len(about.attempts), 'earlier attempt')} interrupted" if about.attempts else ""
    stopped = f"not finished: {about.reason}" if about.state != "done" and about.reason else ""
    return redact(", ".join(part for part in (at, length, requests, up, tries, stopped) if part)) + "."


def run_link(view: CampaignView, phase: str) -> str:
    """The report of a phase's run, from the campaign's directory; empty where there is none."""
    run = view.state.phase(phase).run
    return f"{run}/report.html" if run and phase in view.measured else ""


def campaign_markdown(view: CampaignView) -> str:
    """summary.md: verdict, phases with their criteria, scorecard."""
    out = ["# loadramp: before a launch", ""]
    out += [" ".join(f"**{escaped(p.text)}**" if p.tone != "plain" else escaped(p.text) for p in headline(view)), ""]
    out += [f"Verdict: **{view.verdict}** · " + " · ".join(escaped(fact) for fact in facts(view)), ""]
    for phase in view.wanted:
        link = run_link(view, phase)
        where = f" ([report]({link}))" if link else ""
        out += [f"## {TITLES[phase]}: {view.phase_verdict(phase)}{where}", "", escaped(phase_words(view, phase)), ""]
        if view.criteria.get(phase):
            lines = [(c.status, escaped(redact(c.asked)), escaped(redact(c.observed))) for c in view.criteria[phase]]
            out += [*table(("", "asked", "seen"), lines), ""]
    return "\n".join([*out, *_card_lines(view)]).rstrip() + "\n"


def scorecard_markdown(view: CampaignView) -> str:
    """scorecard.md: the items alone."""
    head = ["# Scorecard", "", escaped(" ".join(phrase.text for phrase in _decision(view))), ""]
    return "\n".join([*head, *_card_lines(view)]).rstrip() + "\n"


def _card_lines(view: CampaignView) -> list[str]:
    rows = []
    for line in view.card.ordered:
        link = run_link(view, line.phase)
        by = f"[{line.phase}]({link})" if link and line.state in {"shown", "gap"} else line.phase
        rows.append(
            [weight_of(line), escaped(line.item.text), STATE_WORDS[line.state], by, escaped(redact(line.words))]
        )
    return ["## Scorecard", "", *table(("", "item", "state", "shown by", "why"), rows)]


def weight_of(line: ScorecardLine) -> str:
    """critical, wanted (due within the first week) or additional."""
    return "critical" if line.item.critical else "additional" if line.item.additional else "wanted"


def campaign_document(view: CampaignView) -> dict[str, Any]:
    """verdict.json and ``campaign --json``: plain data."""
    document = {
        "schema": SCHEMA,
        "campaign_dir": view.path, "verdict": view.verdict, "state": view.state.state,
        "sentence": " ".join(phrase.text for phrase in headline(view)),
        "target_rps": target_rps(view),
        "phases": [
            {"phase": phase, "verdict": view.phase_verdict(phase),
             "run": view.state.phase(phase).run or None, "state": view.state.phase(phase).state or "not run",
             "availability": _there(view.measured.get(phase)),
             "criteria": [{"code": c.code, "asked": c.asked, "status": c.status, "said": c.observed}
                          for c in view.criteria.get(phase, ())]}
            for phase in view.wanted
        ],
        "scorecard": {"verdict": view.card.verdict, "items": [_item(line) for line in view.card.lines]},
    }  # fmt: skip
    checked: dict[str, Any] = plain_data(document)
    return checked


def _there(phase: PhaseView | None) -> dict[str, Any] | None:
    """What the health checks of a phase say; None where none was made."""
    there = availability(phase.health, 0.0, float("inf")) if phase is not None else None
    if there is None or not there.checks:
        return None
    return {"checks": there.checks, "good": there.good, "ratio": there.ratio, "down_s": there.down_s,
            "outages": len(there.outages)}  # fmt: skip


def _item(line: ScorecardLine) -> dict[str, Any]:
    return {"id": line.item.id, "area": line.item.area, "additional": line.item.additional,
            "critical": line.item.critical, "text": line.item.text, "state": line.state,
            "phase": line.phase or None, "words": line.words}  # fmt: skip


def campaign_text(view: CampaignView) -> str:
    """For a terminal."""
    out = [phrase.text for phrase in headline(view)]
    for phase in view.wanted:
        why = "" if phase in view.measured else f" ({phase_words(view, phase)})"
        out += ["", f"{TITLES[phase]}: {view.phase_verdict(phase)}{why}"]
        out += [
            f"  {MARKS[criterion.status]} {criterion.asked}: {redact(criterion.observed)}"
            for criterion in view.criteria.get(phase, ())
        ]
    out += ["", "Scorecard"]
    for line in view.card.ordered:
        weight = "" if line.item.critical else f" ({weight_of(line)})"
        words = redact(line.words)
        out.append(f"  {CARD_MARKS[line.state]} {line.item.text}{weight}: {line.state}{f', {words}' if words else ''}")
    return "\n".join(out)


CARD_MARKS = {"shown": "✓", "said": "✓", "waived": "~", "gap": "✗", "open": "?"}
