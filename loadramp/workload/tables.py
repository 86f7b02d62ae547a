"""The tables of a scenario whose ``kind`` picks a function of this room: prompts, arrivals, ramp. Pure."""

from collections.abc import Mapping
from typing import Any

from loadramp.registry import Choice, ScenarioError, bind, options_of
from loadramp.scenario.scenario import PromptOptions, Target
from loadramp.workload import placeholders
from loadramp.workload.arrivals import ARRIVALS, check_due_times
from loadramp.workload.prompts import PROMPTS
from loadramp.workload.prompts.source import bind_source, images_of
from loadramp.workload.ramps import RAMPS, check_step


def bind_prompts(table: Mapping[str, Any], where: str) -> tuple[Choice, PromptOptions]:
    """``[prompts]``."""
    return bind_source(table, PROMPTS, where)


def bind_arrivals(table: Mapping[str, Any], where: str) -> Choice:
    """``[arrivals]``."""
    return bind(table, ARRIVALS, where, "poisson", check_due_times)


def bind_ramp(table: Mapping[str, Any], where: str) -> Choice:
    """``[ramp]`` without the keys that every kind takes."""
    choice = bind(table, RAMPS, where, "ceiling", check_step)
    takes = options_of(choice.function)
    if {"start_rps", "max_rps"} <= takes.keys():
        start_rps, max_rps = choice.option("start_rps"), choice.option("max_rps")
        if start_rps > max_rps:
            raise ScenarioError(f"{where} start_rps: {start_rps:g} is above max_rps = {max_rps:g}: no step is left")
    return choice


def check_target(target: Target, prompts: Choice, options: PromptOptions) -> None:
    """What an API cannot carry, and placeholders that there are not, are found before a run.

    Raises:
        ScenarioError: one of these.
    """
    placeholders.check(target.headers, target.body)
    if target.token_ids and target.api != "completions":
        raise ScenarioError(f"[target] token_ids: only api = 'completions' takes them; got {target.api!r}")
    if target.api == "completions" and images_of(prompts, options):
        raise ScenarioError("[prompts] images: api = 'completions' takes none; there are chat and responses")
