"""What a campaign may show of a launch with the code of ``alerts`` and ``advise``: rules, size, the longest context.

A rule file is valid where its YAML parses, each rule is complete, and its PromQL balances and names known series.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from loadramp.advise.alert_export import contract_of
from loadramp.advise.alerts import prometheus_rules
from loadramp.advise.demand import demand_of
from loadramp.advise.hf_config import read_config
from loadramp.advise.options import config_of
from loadramp.advise.sizing import Load, size_of
from loadramp.metrics.dialects import wanted
from loadramp.record.preparation import Alerts, Sized
from loadramp.record.run_directory import safe_name
from loadramp.record.table import Run
from loadramp.registry import ScenarioError

PEAK_HEADROOM = 1.3


STRING = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'")
NAME = re.compile(r"[a-zA-Z_:][\w:]*")
PAIRS = {")": "(", "]": "[", "}": "{"}
WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)")
DURATION = re.compile(r"\d+(?:ms|[smhdwy])")
NEEDED = ("alert", "expr", "for", "labels")
WATCHED = {
    "error rate": re.compile(r"LLMErrors"),
    "latency": re.compile(r"LLM(?:TTFT|ITL|TPOT|E2E)(?:Warning|Critical)"),
    "GPU health": re.compile(r"LLMGPU(?:Memory|Temperature)"),
}
"""What alerts a launch needs, and how their rules are called."""


def alerts_of(name: str, phase: str, run: Run) -> tuple[Alerts, str]:
    """The rules that ``loadramp alerts`` makes of the run of a phase, and what a check of their text finds.

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
    found = read_config(config_of(text, name))["max_context"]
    return int(found) if found else None


def rules_in(text: str) -> list[dict[str, Any]]:
    """The rules of all groups.

    Raises:
        ValueError: it is not YAML, or no rule file.
    """
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    groups = found.get("groups") if isinstance(found, dict) else None
    if not isinstance(groups, list) or not groups:
        raise ValueError("no groups")
    listed = [group.get("rules") if isinstance(group, dict) else None for group in groups]
    rules = [rule for one in listed if isinstance(one, list) for rule in one if isinstance(rule, dict)]
    if not rules:
        raise ValueError("no rules")
    return rules


def faults_of(rules: Sequence[Mapping[str, Any]], names: Collection[str]) -> list[str]:
    """What is wrong with rules, in words.

    Args:
        rules: as of ``rules_in``.
        names: the series that there are.
    """
    out = []
    for rule in rules:
        called = str(rule.get("alert") or "a rule without a name")
        lacking = [key for key in NEEDED if not rule.get(key)]
        out += [f"{called}: no {', '.join(lacking)}"] if lacking else []
        if rule.get("for") and not DURATION.fullmatch(str(rule["for"])):
            out.append(f"{called}: for is no duration: {rule['for']}")
        expr = str(rule.get("expr") or "")
        out += [f"{called}: {words}" for words in expr_faults(expr, names)]
    return out


def unwatched(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which of error rate, latency and GPU health no rule watches."""
    called = [str(rule.get("alert")) for rule in rules]
    return [what for what, pattern in WATCHED.items() if not any(pattern.match(name) for name in called)]


def expr_faults(expr: str, names: Collection[str]) -> list[str]:
    """What is wrong with a PromQL expression: quotes and brackets that do not balance, series that there are not."""
    plain = STRING.sub('""', expr)
    if plain.replace('""', "").count('"') or "'" in plain:
        return [f"a quote is not closed: {expr}"]
    opened: list[str] = []
    for letter in plain:
        if letter in PAIRS.values():
            opened.append(letter)
        elif letter in PAIRS and (not opened or opened.pop() != PAIRS[letter]):
            return [f"brackets do not balance: {expr}"]
    if opened:
        return [f"brackets do not balance: {expr}"]
    strange = sorted(set(series_in(expr)) - set(names))
    return [f"no such series: {', '.join(strange)}"] if strange else []


def series_in(expr: str) -> list[str]:
    """Names of the series that a PromQL expression reads."""
    plain = GROUPING.sub(" ", re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", STRING.sub('""', expr)))
    return [
        found[0]
        for found in NAME.finditer(plain)
        if found[0].lower() not in WORDS
        and not plain[found.end() :].lstrip().startswith("(")
        and not plain[: found.start()].endswith(tuple("0123456789."))
    ]
