"""What a campaign makes of its runs for a launch: alert rules and the size, as ``alerts`` and ``advise`` make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from loadramp.advise.alerts import prometheus_rules
from loadramp.advise.demand import demand_of
from loadramp.advise.rulecheck import faults_of, rules_in, unwatched
from loadramp.advise.sizing import Load, size_of
from loadramp.jobs.exports import contract_of
from loadramp.judge.criteria import Seen
from loadramp.judge.prepared import Alerts, Sized
from loadramp.observe.dialects import wanted
from loadramp.plan.scenario import Scenario
from loadramp.record.rundir import safe_name
from loadramp.record.table import Run
from loadramp.registry import ScenarioError

PEAK_HEADROOM = 1.3
UNDER_LOAD = ("ramp", "sustained", "overload")
"""Phases that rules can be made of, the one that knows a capacity first."""


def alerts_of(base: Scenario, seen: Mapping[str, Seen]) -> tuple[Alerts | None, str]:
    """The rules that ``loadramp alerts`` makes of the first phase under load, as text, and what a check of the text
    finds; None without such a phase."""
    phase = next((phase for phase in UNDER_LOAD if phase in seen), None)
    if phase is None:
        return None, ""
    run = seen[phase].run
    try:
        contract = replace(contract_of(run, replicas=replicas_of(run)), scenario=safe_name(base.name))
        text = prometheus_rules(contract)
    except ScenarioError as error:
        return Alerts(phase, refused=str(error)), ""
    return checked(phase, contract.engine, text), text


def checked(phase: str, engine: str, text: str) -> Alerts:
    """What a check of a rule file finds."""
    try:
        rules = rules_in(text)
    except ValueError as error:
        return Alerts(phase, engine=engine, faults=[f"not YAML that can be read: {error}"])
    return Alerts(phase, len(rules), engine, unwatched(rules), faults_of(rules, series_of(engine)))


def series_of(engine: str) -> frozenset[str]:
    """Every series that rules may read: the engine's, the GPU exporter's, and ``up``."""
    names = wanted(engine) | wanted("dcgm") | {"up"}
    return names | {f"{name.removesuffix('_sum')}_bucket" for name in names if name.endswith("_sum")}


def replicas_of(run: Run) -> int:
    """Servers behind the endpoint: as many as have shown a metrics page, at least one."""
    return max(1, len({sample.url for sample in run.samples if "running" in sample.values}))


def sized_of(base: Scenario, seen: Mapping[str, Seen]) -> Sized | None:
    """How often what was measured is needed for the peak and its headroom; None where peak or ramp are missing."""
    peak_rps = base.campaign.target_rps
    if peak_rps is None or "ramp" not in seen:
        return None
    asked_rps = PEAK_HEADROOM * peak_rps
    try:
        size = size_of(demand_of(seen["ramp"].run), Load(asked_rps, headroom_ratio=0.0, spare=0), 1, None)
    except ScenarioError as error:
        return Sized(peak_rps, asked_rps, reason=str(error).removeprefix("sizing: "))
    return Sized(peak_rps, asked_rps, size.rate.low_rps, size.needed)
