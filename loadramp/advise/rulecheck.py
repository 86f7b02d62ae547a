"""Whether a rule file is valid: its YAML reads, each rule is whole, its PromQL balances and names what is there. Pure.

The reader takes the YAML that ``yamltext`` writes and no other; ``promtool check rules`` reads all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

KEY = re.compile(r'("(?:[^"\\]|\\.)*"|[^\s"#:-][^:]*):(?: (.*))?')
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
        ValueError: it is not YAML as it is written here, or no rule file.
    """
    found = read_yaml(text)
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


def read_yaml(text: str) -> Any:
    """The data of a document of block mappings, block lists and scalars on one line.

    Raises:
        ValueError: anything else.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        raise ValueError("nothing in it")
    rest = list(lines)
    value = _block(rest, 0)
    if rest:
        raise ValueError(f"not understood: {rest[0].strip()}")
    return value


def _block(lines: list[str], indent: int) -> Any:
    """The value whose lines begin ``indent`` spaces in; they are taken away from ``lines``."""
    if lines[0][indent:].startswith("- "):
        items = []
        while lines and _at(lines[0], indent) and lines[0][indent:].startswith("- "):
            lines[0] = f"{' ' * (indent + 2)}{lines[0][indent + 2 :]}"
            items.append(_block(lines, indent + 2))
        return items
    if not KEY.fullmatch(lines[0][indent:]):
        return _scalar(lines.pop(0)[indent:])
    return dict(_pairs(lines, indent))


def _pairs(lines: list[str], indent: int) -> Iterator[tuple[str, Any]]:
    while lines and _at(lines[0], indent):
        line = lines.pop(0)
        found = KEY.fullmatch(line[indent:])
        if found is None:
            raise ValueError(f"no key: {line.strip()}")
        name = str(_scalar(found[1]))
        if found[2]:
            yield name, _scalar(found[2])
            continue
        if not lines:
            raise ValueError(f"{name}: nothing follows")
        below = len(lines[0]) - len(lines[0].lstrip(" "))
        if below <= indent and not (below == indent and lines[0][indent:].startswith("- ")):
            raise ValueError(f"{name}: nothing follows")
        yield name, _block(lines, below)


def _at(line: str, indent: int) -> bool:
    return len(line) - len(line.lstrip(" ")) == indent


def _scalar(word: str) -> Any:
    """A quoted string, a number, true, false, null, or a bare word."""
    if word[0] in '"-0123456789' or word in {"true", "false", "null"}:
        return json.loads(word)
    if re.search(r'["{}\[\]&*!|>%@`]|: | #', word):
        raise ValueError(f"not a plain word: {word}")
    return word
