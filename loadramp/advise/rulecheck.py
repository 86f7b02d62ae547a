"""Whether a rule file is valid: its YAML parses, each rule is complete, its PromQL balances and names known series.

Pure. ``promtool check rules`` checks more.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import yaml

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
