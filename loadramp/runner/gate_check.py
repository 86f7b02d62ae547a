"""Thresholds before a run: whether they can be judged at all, and whether one of them can pass."""

from collections.abc import Sequence

from loadramp.analysis.far_bounds import may_bound
from loadramp.analysis.interval_policy import gives
from loadramp.analysis.quantiles import needed
from loadramp.analysis.threshold_rules import ThresholdRule, parse
from loadramp.analysis.thresholds import matches, requests_needed
from loadramp.record.row import Row
from loadramp.record.types import Step
from loadramp.registry import FEATURES, ScenarioError, reach
from loadramp.scenario.scenario import Scenario
from loadramp.units import plural, sig
from loadramp.workload.preview import MOST_STEPS, PreviewStep

NEEDS_A_STREAM = frozenset({
    "ttft_s", "sent_ttft_s", "itl_s", "gap_s", "tpot_s", "all_ttft_s", "stalled_ratio", "knee_rps",
})  # fmt: skip
"""What thresholds may name and only a stream can tell."""
OF_REQUESTS = ("ttft_s", "sent_ttft_s", "tpot_s", "e2e_s", "all_ttft_s", "all_e2e_s")
"""Latencies of which a request gives one value; tokens are many."""


def check_rules(scenario: Scenario) -> None:
    """Find out before a run that every threshold can be judged after it, by detectors from outside too.

    Raises:
        ScenarioError: one is no rule, or names what does not exist.
    """
    scenario.knee([])
    if not scenario.target.stream:
        _need_no_stream(scenario)
    rules = [parse(text) for text in scenario.gates.rules]
    if scenario.gates.abort and not any(rule.place for rule in rules):
        raise ScenarioError("[gates] abort: no rule is on a step (@ rate = 8), so none can be missed before the end")
    for feature in FEATURES.values():
        if feature.check and feature.tables.keys() & scenario.asked.keys():
            reach(feature.check)(scenario)


def _need_no_stream(scenario: Scenario) -> None:
    """Answers that come whole have one instant: no limit on what only a stream can tell."""
    why = "needs a stream, and [target] stream = false; limit e2e_s, or set stream = true"
    for name in ("ttft_s", "itl_s", "tpot_s"):
        if getattr(scenario.slo, name) is not None:
            raise ScenarioError(f"[slo] {name}: {why}")
    for text in scenario.gates.rules:
        if parse(text).name in NEEDS_A_STREAM:
            raise ScenarioError(f"[gates] rules: {text!r} {why}")


def unpassable(scenario: Scenario, steps: Sequence[PreviewStep], beside: Sequence[float] = ()) -> list[str]:
    """A line for each threshold of ``[gates]`` that a run of ``steps`` leaves open however fast the endpoint is.

    Raises:
        ScenarioError: one is no rule.
    """
    rules = [parse(text) for text in scenario.gates.rules]
    reasons = [(rule, _why(scenario, steps, rule, beside)) for rule in rules]
    return [f"{rule.text} cannot pass: {why}." for rule, why in reasons if why]


def _why(scenario: Scenario, steps: Sequence[PreviewStep], rule: ThresholdRule, beside: Sequence[float]) -> str:
    if rule.place is not None and rule.place.field == "soak":
        return _of_soak(scenario, rule)
    if rule.place is not None and rule.place.field == "step":
        return ""
    measured = [planned for planned in steps if planned.step.measured]
    if rule.place is None:
        return _of_all(scenario, measured, rule)
    asked = [planned for planned in measured if matches(_row(planned.step), rule.place)]
    if not asked:
        cut = len(measured) >= MOST_STEPS or any(matches(_row(Step(0, rate_rps=rate)), rule.place) for rate in beside)
        return "" if cut else f"no step is offered there; the steps are {_offered(measured)}"
    return _too_few(asked, rule)


def _of_soak(scenario: Scenario, rule: ThresholdRule) -> str:
    ramp = scenario.ramp
    soak_s, ratio = (ramp.option("soak_s"), ramp.option("soak_ratio")) if ramp.kind == "ceiling" else (0.0, 0.0)
    if not soak_s:
        return "there is no soak"
    family = rule.name.removesuffix("_s")
    if rule.upper and may_bound(family, rule.aggregate, ratio):
        return ""  # what is far below its limit needs no interval
    if not rule.aggregate or gives(f"{family}_{rule.aggregate}", ratio, soak_s):
        return ""
    return (
        f"a soak of {sig(soak_s)} s at {sig(ratio)} of the ceiling gives no interval of it (docs/gates.md); "
        "--repeats would"
    )


def _of_all(scenario: Scenario, measured: Sequence[PreviewStep], rule: ThresholdRule) -> str:
    if rule.aggregate and rule.upper and scenario.ramp.kind == "ceiling":
        return "the ramp goes into overload, whose latencies have no upper limit; name the rates, @ rate <= ..."
    if rule.name != "error_ratio" or any(planned.requests is None for planned in measured):
        return ""
    requests = sum(_requests(planned) for planned in measured)
    least = requests_needed(rule)
    if requests >= least:
        return ""
    return f"it takes {plural(least, 'request')} without a failure, and all steps have about {sig(requests)}"


def _too_few(asked: Sequence[PreviewStep], rule: ThresholdRule) -> str:
    """The step with the fewest requests decides."""
    open_loop = [planned for planned in asked if planned.requests is not None]
    if not open_loop:
        return ""
    fewest = min(open_loop, key=_requests)
    requests = _requests(fewest)
    at = f"the step at {sig(fewest.step.rate_rps)} req/s has about {sig(requests)}"
    if rule.name == "error_ratio":
        least = requests_needed(rule)
        return f"it takes {plural(least, 'request')} without a failure, and {at}" if requests < least else ""
    if rule.name not in OF_REQUESTS or rule.aggregate == "mean":
        return ""
    least = needed(float(rule.aggregate[1:]) / 100.0, 0.05)  # fewer have no value
    if requests >= least:
        return ""
    return f"a {rule.aggregate} takes {plural(least, 'request')}, and {at} (min_requests, measure_s)"


def _requests(planned: PreviewStep) -> float:
    """Requests due in the measured part of an open-loop step."""
    measure_s, warmup_s = planned.step.measure_s or 0.0, planned.step.warmup_s or 0.0
    return (planned.requests or 0) * measure_s / max(measure_s + warmup_s, 1e-9)


def _row(step: Step) -> Row:
    return Row(role=step.role, rate_rps=step.rate_rps, users=step.users, step=step.index)


def _offered(measured: Sequence[PreviewStep]) -> str:
    loads = [
        sig(planned.step.users if planned.step.rate_rps is None else planned.step.rate_rps) or ""
        for planned in measured
    ]
    if len(loads) > 8:
        loads = [*loads[:6], "...", loads[-1]]
    closed = any(planned.step.users is not None for planned in measured)
    return f"{', '.join(loads) or 'none'} {'users' if closed else 'req/s'}"
