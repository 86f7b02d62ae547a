"""Accepting a level: what there is to accept, and the line that says that somebody did."""

from collections.abc import Sequence

from loadramp.nightly.alarms import Rules, accepted_nights, alarms_of, open_alarms
from loadramp.nightly.history import Entry, History
from loadramp.nightly.levels import Acceptable, Level
from loadramp.nightly.page import build_trend_html
from loadramp.nightly.series import METRICS, all_series, of_series
from loadramp.registry import ScenarioError


def acceptable(history: History, metrics: Sequence[str], scenario: str | None) -> Acceptable:
    """What ``accept`` would take as the level from now on.

    Args:
        history: where.
        metrics: whose levels; empty: of every metric.
        scenario: whose; None: of the latest night.

    Raises:
        ScenarioError: no such metric, or it was never measured.
    """
    unknown = [metric for metric in metrics if metric not in METRICS]
    if unknown:
        raise ScenarioError(f"--metric: no {unknown[0]!r}; there are {', '.join(METRICS)}")
    entries, _ = history.read()
    measured = [e for e in entries if e.kind == "measured" and scenario in {None, e.scenario}]
    if not measured:
        names = sorted({e.scenario for e in entries if e.kind == "measured"})
        where = f" of the scenario {scenario!r}; it holds {', '.join(names)}" if scenario and names else ""
        raise ScenarioError(f"{history.path}: no measured night to accept{where}")
    latest = measured[-1]
    entries_of_scenario = of_series(entries, latest.scenario)
    every = all_series(entries_of_scenario)
    wanted = metrics or [metric for metric in METRICS if metric in every]
    missing = [metric for metric in wanted if metric not in every]
    if missing:
        raise ScenarioError(f"{history.path}: {missing[0]} was measured on no night, so there is no level to accept")
    still = {
        metric: open_alarms(
            alarms_of(entries_of_scenario, metric), every[metric], accepted_nights(entries_of_scenario, metric), Rules()
        )
        for metric in wanted
    }
    nights = [(metric, every[metric][-1], still[metric]) for metric in wanted]
    return Acceptable(latest.night, latest.scenario, [Level(metric, n.value, n.night, s) for metric, n, s in nights])


def accept(history: History, metrics: Sequence[str], why: str, scenario: str | None = None) -> Entry:
    """Write down that the level of the latest night is the level from now on, and the trend page again.

    Args:
        history: where.
        metrics: whose levels; empty: of every metric.
        why: for whoever reads the history later.
        scenario: whose; None: of the latest night.

    Returns:
        The line written, of several the last.

    Raises:
        ScenarioError: no such metric, or it was never measured.
    """
    latest = acceptable(history, metrics, scenario)
    lines = [Entry(latest.night, latest.scenario, "accepted", metric, reason=why) for metric in metrics or [""]]
    history.append(lines)
    entries, _ = history.read()
    history.write("trend.html", build_trend_html(entries, latest.scenario))
    return lines[-1]
