"""``[tune]``: what is to become as good as possible, what is tried, how long each step lasts, when it ends. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from loadramp.analysis.threshold_rules import ThresholdRule
from loadramp.analysis.threshold_rules import parse as parse_rule
from loadramp.registry import ScenarioError, bind_options
from loadramp.scenario.scenario import Count, Positive, Scenario, Slo

Objective = Literal["slo_capacity", "ceiling", "goodput", "cost"]
_AS_PEOPLE_WRITE = re.compile(r"(mean|p50|p90|p95|p99)\s+(ttft|itl|tpot|e2e)\b", re.IGNORECASE)


@dataclass(slots=True, frozen=True)
class Tune:
    """``[tune]``. Times in seconds."""

    objective: Objective | None = None
    """What is compared. None: ``slo_capacity`` where there is an ``[slo]``, else ``ceiling``."""
    limit: str = ""
    """Must hold, too: ``p99 ITL <= 60 ms``, or any threshold that ``gate`` takes."""
    baseline: str = ""
    """Flags of the configuration that the others are set against."""
    candidates: Sequence[str] = ()
    """Flags to try, each on its own and then together; none: the cures of the findings."""
    skip: Sequence[str] = ()
    """Names of cures that are not tried (``quantized_weights``)."""
    price_per_hour: Positive | None = None
    """Of the machine, in any currency."""
    step_s: Annotated[Sequence[Positive], Meta(min_length=1)] = (20.0, 40.0, 60.0)
    """Measured seconds of a step in each round of the race; confirmation uses the last one."""
    most_candidates: Count = 16
    """Configurations that are tried at most, the baseline not counted."""
    return_every: Count = 3
    """The baseline is measured again after so many new configurations."""
    confirmations: Count = 2
    """The last two are measured in ABBA order so often at most."""
    same_ratio: Annotated[float, Meta(gt=0, lt=1)] = 0.15
    """A difference within it need not be told apart any further."""
    visit_sd: Positive = 0.05
    """Spread of ln(objective) between two measurements of one configuration that is assumed until it is known."""
    start_s: Positive = 60.0
    """What a start of the server is taken to last until one was seen."""
    start_timeout_s: Positive = 600.0
    """Longest time from the start of a server, or of a switch command, to its first answer."""
    stop_timeout_s: Positive = 30.0
    """A server that has not ended so long after it was asked to is killed."""
    max_hours: Positive | None = None
    """Nothing is begun that would end later."""


def bind_tune(table: Mapping[str, Any], where: str) -> Tune:
    """A ``[tune]`` table.

    Raises:
        ScenarioError: a key is unknown, a value does not fit, or a limit is no threshold.
    """
    tune = Tune(**bind_options(table, Tune, where))
    if list(tune.step_s) != sorted(tune.step_s):
        raise ScenarioError(f"{where} step_s: each round must be at least as long as the one before it")
    if tune.objective == "cost" and tune.price_per_hour is None:
        raise ScenarioError(f"{where} price_per_hour: needed for objective = 'cost'")
    if tune.limit:
        rule_of(tune.limit)
    return tune


def tune_of(scenario: Scenario) -> Tune:
    """The table of a scenario."""
    table: Tune = scenario.features["tune"]
    return table


def rule_of(limit: str) -> ThresholdRule:
    """A limit as the threshold that it is: ``p99 ITL <= 60 ms`` is ``p99(itl_s) <= 60 ms``.

    Raises:
        ScenarioError: it is none.
    """
    try:
        return parse_rule(_AS_PEOPLE_WRITE.sub(lambda match: f"{match[1].lower()}({match[2].lower()}_s)", limit))
    except ScenarioError as error:
        raise ScenarioError(f"[tune] limit: {error}") from None


def objective_of(scenario: Scenario) -> Objective:
    """What is compared.

    Raises:
        ScenarioError: it needs an ``[slo]`` that is not there.
    """
    table, has_slo = tune_of(scenario), bool(scenario.slo.limits) or scenario.slo.good_ratio is not None
    if table.objective is None:
        return "slo_capacity" if has_slo else "ceiling"
    if table.objective in {"slo_capacity", "goodput"} and not has_slo:
        raise ScenarioError(f"[tune] objective = {table.objective!r}: needs limits in [slo]")
    return table.objective


def slo_with_limit(slo: Slo, limit: str) -> dict[str, float]:
    """Keys of ``[slo]`` that let a limit on a latency be measured as a service level; none for another threshold.

    Raises:
        ScenarioError: ``[slo]`` asks for another quantile.
    """
    rule = rule_of(limit) if limit else None
    if rule is None or not rule.aggregate.startswith("p") or not rule.upper or rule.place is not None:
        return {}
    metric, quantile = rule.name.removesuffix("_s"), float(rule.aggregate[1:]) / 100.0
    if metric not in {"ttft", "itl", "tpot", "e2e"}:
        return {}
    if slo.limits and slo.quantile != quantile:
        asked = f"p{100 * slo.quantile:g}"
        raise ScenarioError(f"[tune] limit {limit!r}: [slo] quantile is {slo.quantile:g}; state the limit of {asked}")
    return {f"slo.{metric}_s": min(rule.limit, slo.limits.get(metric, rule.limit)), "slo.quantile": quantile}
