"""What each kind of trace calls its columns, in which unit it counts time and how long its blocks are. Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loadramp.registry import ScenarioError
from loadramp.workload.prompts.timestamps import TimeUnit

FormatName = Literal["auto", "azure", "burstgpt", "vidur", "qwen", "mooncake", "plain"]
COLUMNS = ("time", "input", "output", "blocks", "label", "images")


@dataclass(slots=True, frozen=True)
class Format:
    """How one kind of trace calls its columns, in which unit it counts time and how long its blocks are."""

    time: str
    input: str
    output: str
    unit: TimeUnit = "s"
    block_tokens: int = 0
    blocks: str = ""
    """Column of the block ids: one a block, the same id for the same content."""
    label: str = ""
    images: str = ""
    mark: str = ""
    """A column that only this format has."""


FORMATS: dict[str, Format] = {
    "azure": Format("TIMESTAMP", "ContextTokens", "GeneratedTokens", images="NumImages"),
    "burstgpt": Format("Timestamp", "Request tokens", "Response tokens", label="Model"),
    "vidur": Format("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    "qwen": Format(
        "timestamp", "input_length", "output_length", "s", 16, blocks="hash_ids", label="type", mark="chat_id"
    ),
    "mooncake": Format("timestamp", "input_length", "output_length", "ms", 512, blocks="hash_ids"),
    "plain": Format("time", "input_tokens", "output_tokens"),
}
"""In the order in which they are looked for."""


def format_of(names: Sequence[str], asked: str, columns: Mapping[str, str], file: str) -> tuple[str, Format]:
    """The format's name, and the format in the file's own spelling (names are compared without regard to case).

    Args:
        names: the file's columns.
        asked: a key of FORMATS, or ``auto``: the first whose columns are all there.
        columns: what the file calls them instead.
        file: how errors call it.

    Raises:
        ScenarioError: none fits; names the columns that are there.
    """
    wrong = set(columns) - set(COLUMNS)
    if wrong:
        raise ScenarioError(f"{file}: columns {', '.join(sorted(wrong))}: there are {', '.join(COLUMNS)}")
    known = {name.lower(): name for name in names}
    candidates = FORMATS if asked == "auto" else {asked: FORMATS[asked]}
    missed = []
    for name, form in candidates.items():
        wanted = {key: columns.get(key) or getattr(form, key) for key in COLUMNS}
        needed = [wanted[key] for key in ("time", "input", "output")] + [mark for mark in (form.mark,) if mark]
        if all(one.lower() in known for one in needed):
            mine = {key: known.get(one.lower(), "") for key, one in wanted.items()}
            return name, Format(**mine, unit=form.unit, block_tokens=form.block_tokens, mark=form.mark)
        missed.append(f"{name}: {', '.join(needed)}")
    raise ScenarioError(f"{file}: its columns are {', '.join(names)}; wanted are those of {'; '.join(missed)}")
