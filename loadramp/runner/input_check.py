"""What a scenario asks that cannot be meant, or hardly: addresses that are none, milliseconds for seconds, ramps
without end. Looked at before anything is sent; a run that was made with it is read all the same."""

import re
from math import floor, inf, log

from loadramp.analysis.threshold_rules import parse
from loadramp.client.endpoint import endpoint_of
from loadramp.client.http.connect import proxy_of
from loadramp.metrics.fetch import FetchFailed, address_of
from loadramp.metrics.scraper import full_url
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Scenario
from loadramp.units import plural
from loadramp.workload.preview import MOST_STEPS

LONG_S = {"ttft": 60.0, "sent_ttft": 60.0, "itl": 2.0, "gap": 2.0, "tpot": 2.0, "e2e": 600.0}
"""Limits from here on are hardly meant in seconds."""
BY_FACTOR = ("ceiling", "geometric")
LEAST_FACTOR = 1.01
_HOST = re.compile(r"[\w.:%-]+")
_ONE_SLASH = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/(?!/)")


def check_input(scenario: Scenario) -> None:
    """Refuse what cannot be meant.

    Raises:
        ScenarioError: the name is empty, rates are closer than 1 %, or an address is none. Nothing is resolved.
    """
    if not scenario.name.strip():
        raise ScenarioError("name: expected a name; got ''. Without the key it is the name of the file")
    factor = scenario.ramp.option("factor") if scenario.ramp.kind in BY_FACTOR else LEAST_FACTOR
    if factor < LEAST_FACTOR:
        why = f"rates that are closer cannot be told apart; up to {plural(_count(scenario), 'step')} would be sent"
        raise ScenarioError(f"[ramp] factor: expected at least {LEAST_FACTOR:g}; got {factor!r} ({why})")
    _check_addresses(scenario)


def _check_addresses(scenario: Scenario) -> None:
    target, metrics = scenario.target, scenario.metrics
    if target.base_url:
        host = endpoint_of(target).host
        if not _HOST.fullmatch(host) or _ONE_SLASH.match(target.base_url):
            raise ScenarioError(f"[target] base_url: expected http://HOST:PORT; got {_plain(target.base_url)!r}")
    proxy = proxy_of(target)
    if proxy is not None and not _HOST.fullmatch(proxy.host):
        raise ScenarioError("[target] proxy: expected http://HOST:PORT")
    for key, urls in (("url", [metrics.url] if metrics.url else []), ("urls", metrics.urls)):
        for url in urls:
            try:
                host = address_of(full_url(url)).host
            except (FetchFailed, ValueError):
                host = ""
            if not _HOST.fullmatch(host):
                raise ScenarioError(f"[metrics] {key}: expected http://HOST:PORT/metrics; got {_plain(url)!r}")


def doubts(scenario: Scenario) -> list[str]:
    """A line for each value that can hardly be meant."""
    limits = [(f"[slo] {name}_s", name, limit_s) for name, limit_s in scenario.slo.limits.items()]
    for text in scenario.gates.rules:
        rule = parse(text)
        limits.append((f"[gates] {text}", rule.name.removesuffix("_s").removeprefix("all_"), rule.limit))
    long = [(where, limit_s) for where, name, limit_s in limits if limit_s >= LONG_S.get(name, inf)]
    return [
        *(
            f"{where}: {s:g} s is long for a limit; limits are in seconds, and {s:g} ms is {s / 1e3:g}"
            for where, s in long
        ),
        *_steps(scenario),
    ]


def _steps(scenario: Scenario) -> list[str]:
    ramp = scenario.ramp
    steps = _count(scenario) if ramp.kind in BY_FACTOR else 0
    if steps <= MOST_STEPS:
        return []
    between = f"from {ramp.option('start_rps'):g} to {ramp.option('max_rps'):g} req/s"
    return [
        f"[ramp] factor = {ramp.option('factor'):g}: up to {plural(steps, 'step')} {between}; a plan lists {MOST_STEPS}"
    ]


def _count(scenario: Scenario) -> int:
    """Steps of a ramp by a factor, up to ``max_rps``."""
    first, last, factor = (scenario.ramp.option(name) for name in ("start_rps", "max_rps", "factor"))
    return floor(log(last / first) / log(factor) + 1e-9) + 1 if last > first else 1


def _plain(url: str) -> str:
    """Without user and password."""
    return url.rpartition("@")[2]
