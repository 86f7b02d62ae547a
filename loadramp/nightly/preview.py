"""What ``loadramp plan`` shows of ``loadramp nightly``, and what must hold of its table before a night begins."""

from collections.abc import Callable, Sequence

from loadramp.analysis.threshold_rules import parse
from loadramp.nightly.night import with_reference
from loadramp.nightly.series import METRICS
from loadramp.nightly.table import nightly_of
from loadramp.registry import ScenarioError
from loadramp.runner.preview import ramp_part
from loadramp.scenario.scenario import Scenario
from loadramp.units import percent, plural
from loadramp.workload.preview import PreviewPart


def check_nightly(scenario: Scenario) -> None:
    """Every floor and metric of ``[nightly]`` can be judged.

    Raises:
        ScenarioError: one is no rule, or names what does not exist.
    """
    for floor in nightly_of(scenario).floors:
        parse(floor, METRICS)
    for metric in nightly_of(scenario).metrics:
        if metric not in METRICS:
            raise ScenarioError(f"[nightly] metrics: no {metric!r}; there are {', '.join(METRICS)}")


def reference_rates(scenario: Scenario) -> list[float]:
    """The rate that every run offers beside the steps of the ramp, where it is known before."""
    rate_rps = nightly_of(scenario).reference_rps
    return [] if rate_rps is None else [rate_rps]


def nightly_parts(scenario: Scenario, _: Callable[[Sequence[str]], Scenario] | None = None) -> list[PreviewPart]:
    """One run of ``loadramp nightly``, as often as it repeats."""
    settings = nightly_of(scenario)
    known = settings.reference_rps is not None
    full = scenario if settings.reference_rps is None else with_reference(scenario, settings.reference_rps)
    notes = [] if known else [
        f"Once a ceiling is known, a step at {percent(settings.reference_ratio)} of the first one found comes before "
        "these, in every run."
    ]  # fmt: skip
    rerun = ["A night that looks bad is measured twice."] if settings.rerun else []
    title = f"nightly: {plural(settings.repeats, 'run')} of these steps"
    return [ramp_part(title, full, *rerun, before=notes, runs=settings.repeats)]
