"""What a campaign's directory says: phases seen and judged, the scorecard settled, everything derived written anew."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from loadramp.analysis.thresholds import judge_gates
from loadramp.campaign import judge
from loadramp.campaign.criteria import Criterion, PhaseView, Strike
from loadramp.campaign.evidence import CANARY, Facts
from loadramp.campaign.health_check import read_health
from loadramp.campaign.page import build_campaign_html
from loadramp.campaign.phases import HEALTH, STRIKE
from loadramp.campaign.scorecard import (
    Item,
    ItemAnswer,
    ScorecardLine,
    answers_text,
    questionnaire,
    read_answers,
    read_items,
    score,
)
from loadramp.campaign.state import CampaignState, read_state
from loadramp.campaign.table import PHASES, campaign_of, in_order
from loadramp.campaign.text import CampaignView, campaign_document, campaign_markdown, scorecard_markdown
from loadramp.record.preparation import Alerts, Sized
from loadramp.record.run_directory import RunDir
from loadramp.registry import evidence_of
from loadramp.runner import finish, scenarios
from loadramp.runner.finish import EXIT
from loadramp.runner.scenarios import text_of
from loadramp.scenario.scenario import Scenario

ANSWERS = "answers.toml"
SCORECARD = "scorecard.toml"
UNDER_LOAD = ("ramp", "sustained", "overload")
"""Phases that rules can be made of, the one that knows a capacity first."""
RULES = "alerts.yml"


def write_campaign(path: Path, answers: Path | None = None) -> CampaignView:
    """Judge the campaign in ``path`` anew and write everything derived.

    Args:
        path: its directory.
        answers: a file of answers beside that of the directory.

    Raises:
        ScenarioError: it is no campaign, or scorecard or answers are wrong.
        OSError: the files cannot be written.
    """
    keep_answers(path, answers)
    view = judge_campaign(path)
    write_derived(view)
    return view


def judge_campaign(path: Path) -> CampaignView:
    """The answer of the campaign in ``path``; nothing is written.

    Raises:
        ScenarioError: it is no campaign, or scorecard or answers are wrong.
    """
    state = read_state(path)
    base = scenarios.read_scenario(path / "scenario.toml", state.overrides)
    items, given = card_of(path / SCORECARD, path / ANSWERS)
    measured: dict[str, PhaseView] = {
        phase: view for phase in PHASES if (view := read_phase(path, state, phase, base)) is not None
    }
    criteria: dict[str, Sequence[Criterion]] = {
        phase: criteria_of(phase, view, base) for phase, view in measured.items()
    }
    alerts, rules = alerts_of(base, measured)
    card = score(items, given, facts_of(base, state, measured, criteria, alerts))
    return CampaignView(
        path.name, state, measured, criteria, card, base.source, str(path), in_order(campaign_of(base)), rules
    )


def write_derived(view: CampaignView) -> None:
    """Write everything derived of a campaign, and the questions that are open.

    Raises:
        OSError: the files cannot be written.
    """
    rundir = RunDir(Path(view.path))
    if not (rundir.path / ANSWERS).exists() and view.card.count("open"):
        rundir.write(ANSWERS, questionnaire(view.card.lines))
    rundir.write_json("verdict.json", campaign_document(view))
    rundir.write("summary.md", campaign_markdown(view))
    rundir.write("scorecard.md", scorecard_markdown(view))
    rundir.write("report.html", build_campaign_html(view))
    if view.rules:
        rundir.write(RULES, view.rules)


def exit_code(view: CampaignView) -> int:
    """99: a phase failed or a critical item is missing. 3: something is open. 0: go."""
    return EXIT[{"no-go": "fail", "go": "pass"}.get(view.verdict, "inconclusive")]


def read_phase(path: Path, state: CampaignState, phase: str, base: Scenario) -> PhaseView | None:
    """A phase from its run's directory; None where there is no such run."""
    entry = state.phase(phase)
    place = path / entry.run
    if not entry.run or not (place / "run.json").is_file():
        return None
    run = finish.judge(place).run
    run.gates = judge_gates(run, base.gates.rules, base.gates.when_unsure) if phase == "ramp" else []
    strike = None
    if (place / STRIKE).is_file():
        strike = msgspec.json.decode((place / STRIKE).read_bytes(), type=Strike)
    return PhaseView(run, entry.target_rps, read_health(place / HEALTH), strike, base.slo)


def criteria_of(phase: str, measured: PhaseView, base: Scenario) -> Sequence[Criterion]:
    """What the phase had to show, by the scenario's table."""
    campaign = campaign_of(base)
    if phase == "baseline":
        return judge.baseline(measured)
    if phase == "ramp":
        return judge.ramp(measured, asked_rps=campaign.target_rps)
    if phase == "sustained":
        return judge.sustained(measured, campaign.sustained)
    if phase == "overload":
        return judge.overload(measured, campaign.overload)
    return judge.chaos(measured, recovery_limit_s=campaign.chaos.recovery_s)


def scorecard_text(base: Scenario) -> str:
    """The scorecard that the scenario names, or the one that ships.

    Raises:
        ScenarioError: the file is not there.
    """
    named = campaign_of(base).scorecard
    return text_of(Path(base.folder) / named if named else Path(__file__).parent / SCORECARD)


def card_of(card: Path, *answers: Path | None) -> tuple[list[Item], dict[str, ItemAnswer]]:
    """The scorecard's items and all answers: of its own file, then of ``answers``; later ones win.

    The directory's own answers need not be there; others must.

    Raises:
        ScenarioError: a file is missing, or something in it is wrong.
    """
    text = text_of(card)
    items = read_items(text, card.name)
    answers_given = read_answers(text, items, card.name)
    for file in answers:
        if file is not None and (file.exists() or file != card.parent / ANSWERS):
            answers_given |= read_answers(text_of(file), items, file.name)
    return items, answers_given


def keep_answers(path: Path, answers: Path | None) -> None:
    """Write the answers of a file into the directory's own, over those there, so that later reports know them.

    Raises:
        ScenarioError: the file is missing, or something in it is wrong.
        OSError: they cannot be written.
    """
    items, _ = card_of(path / SCORECARD, answers)
    if answers is None or answers.resolve() == (path / ANSWERS).resolve():
        return
    given = read_answers(text_of(answers), items, answers.name)
    kept = path / ANSWERS
    before = read_answers(text_of(kept), items, kept.name) if kept.exists() else {}
    blank = [ScorecardLine(item, "open", "") for item in items if item.id not in before | given]
    RunDir(path).write(ANSWERS, questionnaire(blank) + answers_text(before | given))


def model_max_of(base: Scenario) -> int | None:
    """The longest context of the model itself, from the config.json that the scenario names; None without.

    Raises:
        ScenarioError: it is not there, or no such config.
    """
    named = campaign_of(base).model_config
    if not named:
        return None
    read = evidence_of("model_max")
    longest: int | None = read(text_of(Path(base.folder) / named), named) if read else None
    return longest


def alerts_of(base: Scenario, phases: Mapping[str, PhaseView]) -> tuple[Alerts | None, str]:
    """The alert rules of the first phase under load, and their text; None without such a phase, or without a feature
    that makes rules."""
    phase = next((phase for phase in UNDER_LOAD if phase in phases), None)
    make = evidence_of("alerts")
    if phase is None or make is None:
        return None, ""
    made: tuple[Alerts, str] = make(base.name, phase, phases[phase].run)
    return made


def sized_of(base: Scenario, phases: Mapping[str, PhaseView]) -> Sized | None:
    """How often what was measured is needed for the peak and its headroom; None where peak, ramp or a feature that
    sizes are missing."""
    peak_rps, size = campaign_of(base).target_rps, evidence_of("size")
    if peak_rps is None or "ramp" not in phases or size is None:
        return None
    sized: Sized = size(peak_rps, phases["ramp"].run)
    return sized


def facts_of(
    base: Scenario,
    state: CampaignState,
    phases: Mapping[str, PhaseView],
    criteria: Mapping[str, Sequence[Criterion]],
    alerts: Alerts | None,
) -> Facts:
    """What the scorecard's proofs are made of."""
    over = campaign_of(base).overload
    lengths = lengths_of(phases)
    if state.rollback is not None:
        lengths[CANARY] = (state.rollback.measured_s, state.rollback.requests)
    return Facts(
        criteria, phases, {"factor": over.factor, "check_factor": over.check_factor}, state.model_max_context,
        lengths=lengths,
        rehearsal=state.rehearsal,
        unfinished=frozenset(phase for phase in phases if state.phase(phase).state != "done"),
        alerts=alerts,
        sized=sized_of(base, phases),
        rollback=state.rollback,
    )  # fmt: skip


def lengths_of(phases: Mapping[str, PhaseView]) -> dict[str, tuple[float, int]]:
    """Measured seconds and requests of each phase; of the overload, of its stages above the target."""
    rows = {phase: list(view.rows) for phase, view in phases.items()}
    over = rows.pop("overload", [])
    rows |= {"check": over[1:2], "overload": over[2:3]}
    return {
        phase: (sum(row.length_s for row in some), sum(row.requests for row in some)) for phase, some in rows.items()
    }
