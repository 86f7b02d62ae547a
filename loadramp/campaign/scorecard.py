"""The scorecard: items that a launch needs, shown by the campaign or answered by people. Pure.

Rule: evidence wins over an answer, a waiver over both but never in silence; what is neither shown nor answered is open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loadramp.campaign.evidence import EVIDENCE, Facts, prove
from loadramp.campaign.prepared import Evidence
from loadramp.registry import ScenarioError, bind_options
from loadramp.scenario.scenario import read_tables, toml_value

State = Literal["shown", "said", "waived", "gap", "open"]
Verdict = Literal["go", "no-go", "open"]
LOAD_TESTS = frozenset({"double_load", "sustained_hour"})
"""Proofs of which one at least must not be waived: a launch that was never tested under load is no go-ahead."""
REASON_CHARS = 15
"""A waiver's reason must be at least so long, and of two words."""


@dataclass(slots=True, frozen=True)
class Item:
    """One item as the TOML file has it."""

    id: str
    area: str
    text: str
    critical: bool = True
    additional: bool = False
    """Beyond the list of twenty; never critical."""
    evidence: str = ""
    """Name of a function in EVIDENCE; empty: only people know."""
    question: str = ""
    """What is asked of them."""


@dataclass(slots=True, frozen=True)
class ItemAnswer:
    """What people say; without names."""

    answer: Literal["yes", "no", "waived"]
    reason: str = ""


@dataclass(slots=True, frozen=True)
class ScorecardLine:
    """One item, settled."""

    item: Item
    state: State
    words: str
    phase: str = ""


@dataclass(slots=True, frozen=True)
class Scorecard:
    """All items settled."""

    lines: Sequence[ScorecardLine]

    @property
    def verdict(self) -> Verdict:
        """no-go: a critical gap. open: a critical item that nobody has shown or answered, or every critical load test
        waived. go otherwise."""
        states = {line.state for line in self.lines if line.item.critical}
        if "gap" in states:
            return "no-go"
        return "open" if "open" in states or self.untested else "go"

    @property
    def untested(self) -> bool:
        """Every critical load test was waived."""
        tests = [line.state for line in self.lines if line.item.critical and line.item.evidence in LOAD_TESTS]
        return bool(tests) and set(tests) == {"waived"}

    @property
    def ordered(self) -> list[ScorecardLine]:
        """The waived lines first, then the others, each in the order of the file."""
        return sorted(self.lines, key=lambda line: line.state != "waived")

    def count(self, state: State, critical: bool | None = None) -> int:
        return sum(line.state == state and (critical is None or line.item.critical == critical) for line in self.lines)


def read_items(text: str, name: str) -> list[Item]:
    """The items of a scorecard file.

    Raises:
        ScenarioError: not TOML, a key unknown or missing, two items of one id, evidence that there is not.
    """
    raw = read_tables(text, name=name)
    for key in raw:
        if key not in {"item", "answers"}:
            raise ScenarioError(f"{name}: {key}: no such table; there are [[item]] and [answers.ID]")
    listed = raw.get("item", [])
    if not isinstance(listed, list) or not listed:
        raise ScenarioError(f"{name}: expected a list of [[item]]")
    items = [Item(**bind_options(table, Item, f"{name}: [[item]] {i}")) for i, table in enumerate(listed, start=1)]
    ids: set[str] = set()
    for item in items:
        if item.id in ids:
            raise ScenarioError(f"{name}: [[item]] id: {item.id!r} comes twice")
        if item.evidence and item.evidence not in EVIDENCE:
            there = ", ".join(sorted(EVIDENCE))
            raise ScenarioError(f"{name}: [[item]] {item.id} evidence: no {item.evidence!r}; there are {there}")
        if item.additional and item.critical:
            raise ScenarioError(f"{name}: [[item]] {item.id} critical: an additional item must have critical = false")
        ids.add(item.id)
    return items


def read_answers(text: str, items: Sequence[Item], name: str) -> dict[str, ItemAnswer]:
    """The answers of a file: ``[answers.ID]`` with ``answer`` (yes, no, waived; empty: not yet) and ``reason``.

    Raises:
        ScenarioError: an id or key is unknown, or a waiver gives no reason.
    """
    answers = read_tables(text, name=name).get("answers", {})
    known = {item.id for item in items}
    given = {}
    for key, table in answers.items() if isinstance(answers, dict) else []:
        if key not in known:
            raise ScenarioError(f"{name}: [answers.{key}]: no such item; there are {', '.join(sorted(known))}")
        if not isinstance(table, dict):
            raise ScenarioError(f"{name}: [answers.{key}]: expected a table with answer and reason")
        if not str(table.get("answer", "")).strip():
            continue
        answer = ItemAnswer(**bind_options(table, ItemAnswer, f"{name}: [answers.{key}]"))
        reason = answer.reason.strip()
        if answer.answer == "waived" and (len(reason) < REASON_CHARS or len(reason.split()) < 2):
            asked = f"expected at least two words and {REASON_CHARS} characters; got {reason!r}"
            raise ScenarioError(f"{name}: [answers.{key}] reason: a waiver needs one: {asked}")
        given[key] = answer
    return given


def score(items: Sequence[Item], answers: Mapping[str, ItemAnswer], facts: Facts) -> Scorecard:
    """Each item by evidence and answer."""
    return Scorecard([_line(item, answers.get(item.id), facts) for item in items])


def questionnaire(lines: Sequence[ScorecardLine]) -> str:
    """A TOML file to fill in: one table for each item that is open."""
    out = ["# yes, no or waived; a reason for whoever reads it later, without names. A waiver needs one."]
    for line in lines:
        if line.state == "open":
            ask = line.item.question or line.item.text
            shown = [f"# seen: {line.words}"] if line.item.evidence and line.words else []
            out += ["", f"# {ask}", *shown, f"[answers.{line.item.id}]", 'answer = ""', 'reason = ""']
    return "\n".join(out) + "\n"


def answers_text(answers: Mapping[str, ItemAnswer]) -> str:
    """Answers as the TOML that ``read_answers`` reads."""
    out = []
    for name, answer in answers.items():
        reason = toml_value(answer.reason)
        out.append(f'\n[answers.{toml_value(name)}]\nanswer = "{answer.answer}"\nreason = {reason}\n')
    return "".join(out)


def _line(item: Item, answer: ItemAnswer | None, facts: Facts) -> ScorecardLine:
    shown = prove(item.evidence, facts) if item.evidence else Evidence("open", "")
    if answer is not None and answer.answer == "waived":
        despite = f" (despite: {shown.words})" if shown.proof == "gap" else ""
        return ScorecardLine(item, "waived", answer.reason + despite, shown.phase)
    if shown.proof != "open":
        return ScorecardLine(item, shown.proof, shown.words, shown.phase)
    if answer is None:
        return ScorecardLine(item, "open", shown.words or "not answered", shown.phase)
    words = answer.reason or ("said, not shown here" if answer.answer == "yes" else "said to be missing")
    return ScorecardLine(item, "said" if answer.answer == "yes" else "gap", words, shown.phase)
