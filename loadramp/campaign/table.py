"""``[campaign]``: the phases before a launch, how long each lasts and what it must show. Pure data.

A phase is the scenario with another ``[ramp]``: the overrides that make it one are those that ``--set`` would take.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from msgspec import Meta

from loadramp.registry import ScenarioError, bind_options
from loadramp.scenario.scenario import Count, NotNegative, Positive, RampOptions, Ratio, Scenario, toml_value

Phase = Literal["baseline", "ramp", "sustained", "overload", "chaos"]
PHASES: tuple[Phase, ...] = ("baseline", "ramp", "sustained", "overload", "chaos")

DAY_S = 86_400.0
PART_S = 3600.0
"""A soak is measured in steps of so long, without a gap between them: what is judged at once stays small."""
HOLD_S = 10.0
HOLD_REQUESTS = 10
USUAL_REQUESTS = 30
"""What is usual is read off 20 successes: with so many due, Poisson arrivals bring them in 98 of 100 cases."""


@dataclass(slots=True, frozen=True)
class BaselinePhase:
    """``[campaign.baseline]``: a closed loop without a queue, to know what the endpoint does when it has time."""

    users: Count = 1
    warmup_s: NotNegative = 10.0
    measure_s: Positive = 300.0


@dataclass(slots=True, frozen=True)
class SustainedPhase:
    """``[campaign.sustained]``: the target rate for an hour, or a day."""

    measure_s: Annotated[float, Meta(gt=0, le=DAY_S)] = 3600.0
    warmup_s: NotNegative | None = None
    """Load at the target rate before anything is measured; None: as long as ``[ramp] settle_s`` and
    ``settle_requests`` say."""
    error_ratio: Annotated[float, Meta(gt=0, lt=1)] = 0.001
    """The share of failed requests must be shown to be below it."""
    drift_ratio: NotNegative = 0.05
    """A rise of p99 TTFT or p99 ITL over the soak that is let pass."""
    drift_unseen_ratio: Positive = 0.5
    """A rise that the test must have been able to see."""
    memory_ratio: NotNegative = 0.05
    """Growth of the server's memory over the soak that is let pass."""
    availability_ratio: Ratio = 0.999
    """Share of health checks that must answer."""


@dataclass(slots=True, frozen=True)
class OverloadPhase:
    """``[campaign.overload]``: target, ``check_factor`` times, ``factor`` times, target again. The third
    lasts ``warmup_s + measure_s``, each of the others ``warmup_s + stage_s``."""

    factor: Annotated[float, Meta(gt=1)] = 2.0
    check_factor: Annotated[float, Meta(gt=1)] = 1.2
    """Up to so many times the target the service level must still hold."""
    warmup_s: NotNegative = 10.0
    measure_s: Positive = 900.0
    """At ``factor`` times the target."""
    stage_s: Positive = 120.0
    """Of each of the three other stages."""
    broken_ratio: Annotated[float, Meta(ge=0, lt=1)] = 0.001
    """Failures that are neither refusals (429, 503) nor the client's own time-outs."""
    recovery_s: Positive = 30.0
    """After the load has fallen."""


@dataclass(slots=True, frozen=True)
class ChaosPhase:
    """``[campaign.chaos]``: the target rate, and a command that kills or restarts a worker in mid-flight. The command
    itself is no key: a scenario must not be able to run anything."""

    after_s: NotNegative = 30.0
    timeout_s: Positive = 120.0
    """Longest time that the command may take."""
    warmup_s: NotNegative = 10.0
    measure_s: Positive = 600.0
    recovery_s: Positive = 60.0
    """After the command has begun."""


@dataclass(slots=True, frozen=True)
class Campaign:
    """``[campaign]`` and its tables."""

    phases: Sequence[Phase] = PHASES
    target_rps: Positive | None = None
    """What the endpoint is to serve at its peak; None: ``target_ratio`` of what the ramp finds."""
    target_ratio: Annotated[float, Meta(gt=0, lt=1)] = 0.7
    """Of the low end of ceiling or SLO capacity, whichever is lower."""
    health_url: str = ""
    """Empty: ``/health`` of the target."""
    health_period_s: Positive = 1.0
    scorecard: str = ""
    """TOML file of items; empty: the one that ships. A relative path counts from the scenario."""
    model_config: str = ""
    """The model's config.json: shows whether the context cap was set."""
    baseline: BaselinePhase = field(default_factory=BaselinePhase)
    sustained: SustainedPhase = field(default_factory=SustainedPhase)
    overload: OverloadPhase = field(default_factory=OverloadPhase)
    chaos: ChaosPhase = field(default_factory=ChaosPhase)


_TABLES: dict[str, Any] = {
    "baseline": BaselinePhase,
    "sustained": SustainedPhase,
    "overload": OverloadPhase,
    "chaos": ChaosPhase,
}


REHEARSED_S: Mapping[tuple[str, str], float] = {
    ("baseline", "measure_s"): 15.0,
    ("sustained", "measure_s"): 60.0,
    ("overload", "measure_s"): 45.0,
    ("overload", "stage_s"): 45.0,
    ("chaos", "after_s"): 15.0,
    ("chaos", "measure_s"): 90.0,
    ("chaos", "timeout_s"): 60.0,
}
"""What ``--rehearse`` sets, by phase and key: every phase as short as shows that it works. It proves nothing."""
REHEARSED_STEP_S = 20.0
"""Measured seconds of each step of a rehearsal's ramp, and of its soak."""


def bind_campaign(table: Mapping[str, Any], where: str) -> Campaign:
    """A ``[campaign]`` table with those below it.

    Raises:
        ScenarioError: a key is unknown, a value does not fit, or a phase is too short for what it must show.
    """
    inner: dict[str, Any] = {}
    for name, kind in _TABLES.items():
        below = table.get(name, {})
        place = f"{where.removesuffix(']')}.{name}]"
        if not isinstance(below, dict):
            raise ScenarioError(f"{place}: expected a table; got {below!r}")
        inner[name] = kind(**bind_options(below, kind, place))
    plain = {key: value for key, value in table.items() if key not in _TABLES}
    campaign = Campaign(**bind_options(plain, Campaign, where), **inner)
    _suits(campaign, where)
    return campaign


def campaign_of(scenario: Scenario) -> Campaign:
    """The table of a scenario, with those below it."""
    table: Campaign = scenario.features["campaign"]
    return table


def _suits(campaign: Campaign, where: str) -> None:
    overload, chaos = campaign.overload, campaign.chaos
    stem = where.removesuffix("]")
    if not campaign.phases:
        raise ScenarioError(f"{where} phases: expected at least one of {', '.join(PHASES)}")
    if "ramp" not in campaign.phases and campaign.target_rps is None and set(campaign.phases) - {"baseline"}:
        raise ScenarioError(f"{where} target_rps: needed where the ramp is left out")
    if overload.check_factor >= overload.factor:
        raise ScenarioError(f"{stem}.overload] check_factor: must be below factor = {overload.factor:g}")
    if overload.warmup_s + overload.stage_s < overload.recovery_s + HOLD_S:
        least = overload.recovery_s + HOLD_S
        raise ScenarioError(f"{stem}.overload] stage_s: the stage after must last {least:g} s to see recovery_s")
    if chaos.measure_s < chaos.after_s + chaos.recovery_s + HOLD_S:
        least = chaos.after_s + chaos.recovery_s + HOLD_S
        raise ScenarioError(f"{stem}.chaos] measure_s: must be at least {least:g} to see recovery_s")


def rehearsal_of(scenario: Scenario) -> list[str]:
    """The overrides that make ``scenario`` a rehearsal: REHEARSED_S and a short ramp. What is shorter already stays,
    and what a recovery must be seen in stays long enough for it."""
    campaign, ramp = campaign_of(scenario), scenario.ramp
    chaos, over = campaign.chaos, campaign.overload
    least = {
        ("overload", "stage_s"): over.recovery_s + HOLD_S - over.warmup_s,
        ("chaos", "measure_s"): min(15.0, chaos.after_s) + chaos.recovery_s + HOLD_S,
    }
    out = []
    for (phase, key), seconds in REHEARSED_S.items():
        asked_s = getattr(getattr(campaign, phase), key)
        out.append(f"campaign.{phase}.{key}={min(asked_s, max(seconds, least.get((phase, key), 0.0))):g}")
    measure_s = scenario.pace.measure_s
    out.append(f"ramp.measure_s={min(measure_s or REHEARSED_STEP_S, REHEARSED_STEP_S):g}")
    if ramp.kind == "ceiling":
        out.append(f"ramp.soak_s={min(ramp.option('soak_s'), REHEARSED_STEP_S):g}")
    return out


def hold_s(rate_rps: float) -> float:
    """Recovered means well for so long, in seconds: 10 s, longer at low rates: for 10 requests."""
    return max(HOLD_S, HOLD_REQUESTS / rate_rps)


def strike_after_s(chaos: ChaosPhase, target_rps: float) -> float:
    """When the command runs, in seconds of the measured window: not before enough was seen to know what is usual."""
    return max(chaos.after_s, USUAL_REQUESTS / target_rps)


def _chaos_s(chaos: ChaosPhase, target_rps: float) -> float:
    """Measured seconds of the chaos phase: longer at rates so low that the recovery would not be seen."""
    return max(chaos.measure_s, strike_after_s(chaos, target_rps) + chaos.recovery_s + hold_s(target_rps))


def _stage_s(over: OverloadPhase, target_rps: float) -> float:
    """Measured seconds of each short stage of the overload: longer at rates so low that neither what is usual nor the
    recovery would be seen."""
    return max(over.stage_s, USUAL_REQUESTS / target_rps, over.recovery_s + hold_s(target_rps) - over.warmup_s)


def in_order(campaign: Campaign) -> list[Phase]:
    """The phases that are wanted, in the order in which they make sense."""
    return [phase for phase in PHASES if phase in campaign.phases]


def longest_s(campaign: Campaign) -> float:
    """How long the phases take, the ramp not counted."""
    over, chaos, soak = campaign.overload, campaign.chaos, campaign.sustained
    target_rps = campaign.target_rps or math.inf
    seconds: dict[str, float] = {
        "baseline": campaign.baseline.warmup_s + campaign.baseline.measure_s,
        "sustained": soak.measure_s + (soak.warmup_s or 0.0),
        "overload": 4.0 * over.warmup_s + 3.0 * _stage_s(over, target_rps) + over.measure_s,
        "chaos": chaos.warmup_s + _chaos_s(chaos, target_rps),
    }
    return sum(seconds.get(phase, 0.0) for phase in campaign.phases)


def overrides_of(phase: Phase, campaign: Campaign, pace: RampOptions, name: str, target_rps: float | None) -> list[str]:
    """What ``--set`` would have to be given to make the scenario this phase.

    Args:
        phase: which one.
        campaign: its table.
        pace: the scenario's Pace: how to settle and to end is kept.
        name: of the scenario.
        target_rps: None only for phases that do not need it.
    """
    named = f"name={toml_value(f'{name}-{phase}')}"
    if phase == "ramp":
        return [named]
    keys = {"settle_s": pace.settle_s, "settle_requests": pace.settle_requests, "tail_s": pace.tail_s,
            "max_in_flight": pace.max_in_flight, **_ramp(phase, campaign, target_rps)}  # fmt: skip
    return [named, f"ramp={toml_value(keys)}", "gates={}"]


def _ramp(phase: Phase, campaign: Campaign, target_rps: float | None) -> dict[str, Any]:
    if phase == "baseline":
        options = campaign.baseline
        return {"kind": "users", "users": [options.users], "warmup_s": options.warmup_s, "measure_s": options.measure_s}
    assert target_rps is not None
    if phase == "sustained":
        soak = campaign.sustained
        parts = math.ceil(soak.measure_s / PART_S - 1e-9)
        settle = {} if soak.warmup_s is None else {"settle_s": soak.warmup_s, "settle_requests": 0}
        return {"kind": "ladder", "rates": [target_rps] * parts, "warmup_s": 0.0, "measure_s": soak.measure_s / parts,
                "max_error_ratio": 1.0, **settle}  # fmt: skip
    if phase == "overload":
        over = campaign.overload
        rates = [target_rps, over.check_factor * target_rps, over.factor * target_rps, target_rps]
        stage_s = _stage_s(over, target_rps)
        patience_s = over.recovery_s + stage_s
        lengths = [stage_s, stage_s, over.measure_s, stage_s]
        return {"kind": "ladder", "rates": rates, "lengths": lengths, "warmup_s": over.warmup_s,
                "measure_s": max(lengths),
                "max_error_ratio": 1.0, "give_up_s": patience_s}  # fmt: skip
    chaos, measure_s = campaign.chaos, _chaos_s(campaign.chaos, target_rps)
    return {"kind": "ladder", "rates": [target_rps], "warmup_s": chaos.warmup_s, "measure_s": measure_s,
            "max_error_ratio": 1.0, "give_up_s": chaos.recovery_s + chaos.timeout_s + measure_s}  # fmt: skip
