"""What a campaign may show of a launch with the code of ``alerts`` and ``advise``: rules, size, the longest context."""

import re
from dataclasses import replace

from loadramp.advise.alert_export import contract_of
from loadramp.advise.alerts import made_rules, prometheus_rules
from loadramp.advise.demand import demand_of
from loadramp.advise.hf_config import read_config
from loadramp.advise.options import config_of
from loadramp.advise.sizing import Load, size_of
from loadramp.record.preparation import Alerts, Sized
from loadramp.record.run_directory import safe_name
from loadramp.record.table import Run
from loadramp.registry import ScenarioError

PEAK_HEADROOM = 1.3
WATCHED = {
    "error rate": re.compile(r"LLMErrors"),
    "latency": re.compile(r"LLM(?:TTFT|ITL|TPOT|E2E)(?:Warning|Critical)"),
    "GPU health": re.compile(r"LLMGPU(?:Memory|Temperature)"),
}
"""What alerts a launch needs, and how their rules are called."""


def alerts_of(name: str, phase: str, run: Run) -> tuple[Alerts, str]:
    """What the rules that ``loadramp alerts`` makes of the run of a phase watch, and their text.

    Args:
        name: of the scenario.
        phase: whose run it is.
        run: judged.
    """
    try:
        contract = replace(contract_of(run, replicas=replicas_of(run)), scenario=safe_name(name))
        text = prometheus_rules(contract)
    except ScenarioError as error:
        return Alerts(phase, refused=str(error)), ""
    called = [rule.alert for rule in made_rules(contract)[0]]
    return Alerts(phase, len(called), contract.engine, unwatched(called)), text


def unwatched(alerts: list[str]) -> list[str]:
    """Which of error rate, latency and GPU health none of ``alerts`` watches."""
    return [what for what, pattern in WATCHED.items() if not any(pattern.match(name) for name in alerts)]


def replicas_of(run: Run) -> int:
    """Servers behind the endpoint: as many as have shown a metrics page, at least one."""
    return max(1, len({sample.url for sample in run.samples if "running" in sample.values}))


def sized_of(peak_rps: float, ramp: Run) -> Sized:
    """How often what the ramp measured is needed for the peak and its headroom."""
    asked_rps = PEAK_HEADROOM * peak_rps
    try:
        size = size_of(demand_of(ramp), Load(asked_rps, headroom_ratio=0.0, spare=0), 1, None)
    except ScenarioError as error:
        return Sized(peak_rps, asked_rps, reason=str(error))
    return Sized(peak_rps, asked_rps, size.rate.low_rps, size.needed)


def model_max_of(text: str, name: str) -> int | None:
    """The longest context of a model, from the text of its config.json; ``name`` is how errors call the file.

    Raises:
        ScenarioError: it is no such config.
    """
    longest = read_config(config_of(text, name))["max_context"]
    return int(longest) if longest else None
