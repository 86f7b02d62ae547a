"""The page of a campaign: verdict, phases with their criteria, what callers met, scorecard. Pure."""

from collections.abc import Callable
from typing import Any

from loadramp.analysis.diagnosis.remedies import RUNBOOKS, runbook_of
from loadramp.campaign import charts as figures
from loadramp.campaign.criteria import Criterion
from loadramp.campaign.text import (
    STATE_TONES,
    TITLES,
    TONES,
    CampaignView,
    facts,
    headline,
    phase_words,
    run_link,
    weight_of,
)
from loadramp.report import charts as c
from loadramp.report import diagnosis
from loadramp.report.html import page
from loadramp.report.redact import redact
from loadramp.report.sections import conditions
from loadramp.units import sig

RUNBOOK_OF_CRITERION = {
    "no_crash": "out_of_memory", "no_restart": "out_of_memory", "to_the_end": "out_of_memory",
    "memory": "out_of_memory", "recovery": "high_latency", "steady": "high_latency", "slo": "high_latency",
    "drift": "high_latency", "headroom": "high_latency",
}  # fmt: skip


def build_campaign_html(view: CampaignView) -> str:
    """One offline page."""
    made = [text for make in SECTIONS if (text := make(view))]
    sentence = " ".join(phrase.text for phrase in headline(view))
    return page(f"loadramp: {view.state.name or view.name}, before a launch", sentence, made)


def opening(view: CampaignView) -> str:
    return c.opening(facts(view), headline(view), view.verdict, tone=TONES[view.verdict], what="before a launch")


def scorecard_section(view: CampaignView) -> str:
    """All items; those that a run shows lead to it."""
    lines = [
        {
            "text": line.item.text, "critical": line.item.critical, "weight": weight_of(line),
            "state": line.state, "tone": STATE_TONES[line.state], "words": redact(line.words),
            "phase": line.phase, "link": f"#phase-{line.phase}" if line.phase in view.measured else "",
        }
        for line in view.card.ordered
    ]  # fmt: skip
    words = (
        "A critical item that is missing means no go; an open one, not yet. Evidence of the campaign wins over an "
        "answer; a waiver over both. answers.toml beside this file asks for what is open."
    )
    return c.section(
        "scorecard", "Scorecard", c.render("loadramp.campaign:scorecard.html.j2", lines=lines), words=words
    )


def phases_section(view: CampaignView) -> str:
    """Each phase with what it had to show."""
    phases = [
        {
            "name": phase, "title": TITLES[phase], "verdict": view.phase_verdict(phase),
            "tone": TONES.get(view.phase_verdict(phase), ""), "link": run_link(view, phase),
            "words": phase_words(view, phase), "criteria": list(map(_criterion, view.criteria.get(phase, ()))),
        }
        for phase in view.wanted
    ]  # fmt: skip
    return c.section("phases", "Phases", c.render("loadramp.campaign:phases.html.j2", phases=phases))


def _criterion(criterion: Criterion) -> dict[str, Any]:
    return {
        "code": criterion.code, "asked": redact(criterion.asked), "said": redact(criterion.observed),
        "status": criterion.status, "tone": TONES[criterion.status],
    }  # fmt: skip


def why_section(view: CampaignView) -> str | None:
    """What the diagnosis found in the phases, each thing once, and runbooks for it and for what failed."""
    findings: dict[str, dict[str, str]] = {}
    books = []
    for phase, measured in view.measured.items():
        for finding, (what, why) in zip(measured.run.findings, diagnosis.lines(measured.run), strict=True):
            link = f"{run_link(view, phase)}#why"
            if finding.code != "healthy":
                findings.setdefault(finding.code, {"what": what, "why": redact(why), "phase": phase, "link": link})
                books.append(runbook_of(finding.code))
    failed = [
        criterion.code for criteria in view.criteria.values() for criterion in criteria if criterion.status == "fail"
    ]
    books += [RUNBOOKS[name] for code in failed if (name := runbook_name(code))]
    shown = list(dict.fromkeys(book for book in books if book is not None))
    if not findings and not shown:
        return None
    body = c.render("loadramp.campaign:why.html.j2", findings=list(findings.values()), runbooks=shown)
    words = "From the diagnosis of each phase; its report has the evidence and all cures. Runbooks are for the night."
    return c.section("why", "Why, and what to do", body, words=words)


def runbook_name(code: str) -> str:
    """The runbook for a criterion that failed; empty where there is none."""
    stem = "slo" if code.startswith("slo_") else "drift" if code.startswith("drift_") else code
    return RUNBOOK_OF_CRITERION.get(stem, "")


def soak_section(view: CampaignView) -> str | None:
    """Block p99s and memory over the soak."""
    measured = view.measured.get("sustained")
    words = "Each point is one stretch of the soak; the line is what was tested against chance."
    return c.chart_section("soak", "Does it drift?", figures.drift_figures(measured) if measured else [], words=words)


def overload_section(view: CampaignView) -> str | None:
    """What callers met while the load rose and fell."""
    measured = view.measured.get("overload")
    if measured is None:
        return None
    marks = [(row.begin_s, f"{sig(row.rate_rps)} req/s") for row in measured.rows]
    words = "What was asked stands above; after the load falls it should soon look as in the first stage."
    return c.chart_section("overload", "Overload", figures.event_figures(measured, marks, words))


def chaos_section(view: CampaignView) -> str | None:
    """What callers met when a worker went away."""
    measured = view.measured.get("chaos")
    if measured is None:
        return None
    marks = [(measured.strike.begin_s, "command")] if measured.strike is not None else []
    words = "Failed requests stand where they were due. On the shaded ground the health check failed."
    return c.chart_section("chaos", "A worker goes away", figures.event_figures(measured, marks, words))


def conditions_section(view: CampaignView) -> str:
    """What the campaign says about itself, and the scenario as it was read."""
    shown = {key: value for key, value in view.state.document().items() if key != "phases"}
    return conditions(shown, view.scenario_text, view.path)


SECTIONS: list[Callable[[CampaignView], str | None]] = [
    opening,
    scorecard_section,
    phases_section,
    why_section,
    overload_section,
    chaos_section,
    soak_section,
    conditions_section,
]
