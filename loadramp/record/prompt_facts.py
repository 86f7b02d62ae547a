"""What the prompts of a run were, as its scenario and its files say. Pure.

Rule: what loadramp made up itself is no evidence: words that it chose have in common what it chose.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from loadramp.record.table import Run

MADE_UP = frozenset({"fixed", "uniform", "lognormal"})
"""Kinds of ``[prompts]`` that are words without any pattern of real traffic."""


def always_new(run: Run) -> bool:
    """Every prompt has text of its own, so a prefix cache should find none of it."""

    def new(where: str, table: Mapping[str, Any]) -> bool:
        if _kind(table) == "trace":
            return _blocks(run, where) == 0
        return _kind(table) in MADE_UP and bool(table.get("unique", True))

    return all(new(where, table) for where, table in _sources(run.scenario.asked.get("prompts", {})))


def prefix_reuse_unknown(run: Run) -> str:
    """Why the prefix reuse of this run's prompts says nothing about real traffic; empty where it does."""
    for where, table in _sources(run.scenario.asked.get("prompts", {})):
        kind = _kind(table)
        if kind in MADE_UP:
            why = f"prompts of kind {kind!r} are made up"
        elif kind == "trace" and not _blocks(run, where):
            why = "the trace has no blocks (hash_ids), so its prompts are made up"
        elif kind == "text" and table.get("input_tokens") is not None:
            why = "prompts were put together from lines drawn at random"
        else:
            continue
        return (
            f"{why}: what they have in common says nothing about real traffic; measure with prompts like the real ones"
        )
    return ""


def _sources(table: Mapping[str, Any], where: str = "prompts") -> list[tuple[str, Mapping[str, Any]]]:
    """(name, table) of a ``[prompts]`` table, or of every source of a mixture."""
    parts = table.get("sources")
    if _kind(table) != "mix" or not isinstance(parts, Sequence):
        return [(where, table)]
    tables = [(f"{where}.{i}", part) for i, part in enumerate(parts) if isinstance(part, Mapping)]
    return [source for name, part in tables for source in _sources(part, name)]


def _kind(table: Mapping[str, Any]) -> str:
    return str(table.get("kind", "lognormal"))


def _blocks(run: Run, where: str) -> int | None:
    """How many block ids the trace of a table has; None: it is no trace, or the run does not say."""
    return next((file.blocks for file in run.info.files or () if file.table == where), None)
