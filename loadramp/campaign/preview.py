"""What ``loadramp plan`` shows of ``loadramp campaign``: its phases."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from loadramp.campaign.table import Phase, campaign_of, in_order, longest_s, overrides_of
from loadramp.client import input_files
from loadramp.runner.preview import ramp_part
from loadramp.scenario.scenario import Scenario
from loadramp.units import percent, span
from loadramp.workload.preview import PreviewPart


def campaign_parts(_: Scenario, read: Callable[[Sequence[str]], Scenario]) -> list[PreviewPart]:
    """The phases of ``loadramp campaign``; ``read`` gives the scenario with further overrides."""
    base = read([])
    campaign = campaign_of(base)
    return [_phase(read, base, phase) for phase in in_order(campaign)]


def _phase(read: Callable[[Sequence[str]], Scenario], base: Scenario, phase: Phase) -> PreviewPart:
    campaign, target_rps = campaign_of(base), campaign_of(base).target_rps
    notes = ["Left out without --chaos CMD."] if phase == "chaos" else []
    if target_rps is None and phase not in {"baseline", "ramp"}:
        length, share = span(longest_s(replace(campaign, phases=(phase,)))), percent(campaign.target_ratio)
        notes.insert(0, f"{length}, at {share} of what the ramp finds.")
        return PreviewPart(f"campaign: {phase}", (), tuple(notes))
    full = input_files.ready(read(overrides_of(phase, campaign, base.pace, base.name, target_rps)))
    return ramp_part(f"campaign: {phase}", full, *notes)
