"""What ``loadramp plan`` shows of ``loadramp campaign``: its phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from loadramp.drive import corpus
from loadramp.jobs.foresight import offered_notes, with_offered
from loadramp.plan import lengthening
from loadramp.plan.campaign import Phase, campaign_of, in_order, longest_s, overrides_of
from loadramp.plan.preview import Part, foresee
from loadramp.plan.scenario import Scenario
from loadramp.report.preview import ramp_notes
from loadramp.wording import percent, span


def campaign_parts(_: Scenario, read: Callable[[Sequence[str]], Scenario]) -> list[Part]:
    """The phases of ``loadramp campaign``; ``read`` gives the scenario with further overrides."""
    base = read([])
    campaign = campaign_of(base)
    return [_phase(read, base, phase) for phase in in_order(campaign)]


def _phase(read: Callable[[Sequence[str]], Scenario], base: Scenario, phase: Phase) -> Part:
    campaign, target_rps = campaign_of(base), campaign_of(base).target_rps
    notes = ["Left out without --chaos CMD."] if phase == "chaos" else []
    if target_rps is None and phase not in {"baseline", "ramp"}:
        length, share = span(longest_s(replace(campaign, phases=(phase,)))), percent(campaign.target_ratio)
        notes.insert(0, f"{length}, at {share} of what the ramp finds.")
        return Part(f"campaign: {phase}", (), tuple(notes))
    full = corpus.ready(read(overrides_of(phase, campaign, base.pace, base.name, target_rps)))
    steps = with_offered(full, list(foresee(full)))
    return Part(
        f"campaign: {phase}",
        tuple(steps),
        (*ramp_notes(full), *lengthening.words(full), *offered_notes(full, steps), *notes),
    )
