"""Files of real text to rows: lines of text, and JSON rows of the many forms that are in use. Pure.

A row without anything to ask is counted and named by line, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from loadramp.record.types import Prompt
from loadramp.units import plural
from loadramp.workload.prompts.json_forms import objects_of
from loadramp.workload.prompts.lines import RowCounts, lines_of, text_of
from loadramp.workload.prompts.row_fields import TIMES, requests_of
from loadramp.workload.prompts.trace_formats import Stamps, TimeUnit

Split = Literal["line", "paragraph", "whole"]
Rows = Annotated[int, Meta(ge=1)]
MOST_ROWS = 100_000


@dataclass(slots=True, frozen=True)
class Texts:
    """The rows of one file. ``t_s``, where the rows have stamps: by time, from the first one; ``span_s`` one pass."""

    tally: RowCounts
    rows: Sequence[Prompt]
    t_s: NDArray[np.float64] | None = None
    span_s: float = 0.0

    def __len__(self) -> int:
        return len(self.rows)

    def shuffled(self, rng: np.random.Generator) -> Texts:
        """The same rows in another order, without their stamps."""
        order = rng.permutation(len(self.rows)).tolist()
        return replace(self, rows=[self.rows[i] for i in order], t_s=None)


@dataclass(slots=True)
class KeptRows:
    """Rows as they are read, at most ``most`` of them."""

    tally: RowCounts
    most: int
    rows: list[Prompt] = field(default_factory=list)
    t_s: list[float] = field(default_factory=list)

    def add(self, prompt: Prompt, t_s: float | None = None) -> None:
        if len(self.rows) >= self.most:
            self.tally.leave("beyond max_rows")
            return
        self.rows.append(prompt)
        if t_s is not None:
            self.t_s.append(t_s)

    def texts(self) -> Texts:
        """What was kept.

        Raises:
            ScenarioError: nothing was.
        """
        if not self.rows:
            raise self.tally.unusable("it is empty")
        self.tally.rows = len(self.rows)
        if len(self.t_s) < len(self.rows):
            if self.t_s:
                lacking = f"{len(self.rows) - len(self.t_s):,} of {plural(len(self.rows), 'row')} have no time stamp"
                self.tally.notes.append(f"{lacking}, so that none can be replayed")
            return Texts(self.tally, self.rows)
        t_s = np.array(self.t_s)
        order = self.tally.by_time(t_s)
        t_s = t_s[order] - t_s[order[0]]
        last_s = float(t_s[-1])
        span_s = last_s * len(t_s) / (len(t_s) - 1) if len(t_s) > 1 else 1.0
        return Texts(self.tally, [self.rows[i] for i in order.tolist()], t_s, span_s)


def read_text(chunks: Iterable[bytes], file: str, *, split: Split = "line", max_rows: Rows = MOST_ROWS) -> Texts:
    """Plain text: a prompt a line, a prompt a paragraph (blank lines between), or all of it as one."""
    tally = RowCounts(file, "text")
    kept = KeptRows(tally, max_rows)
    paragraph: list[tuple[int, bytes]] = []
    before = 0
    for number, line in lines_of(chunks):
        if paragraph and (split == "line" or (split == "paragraph" and number > before + 1)):
            _keep(kept, paragraph, split)
            paragraph = []
        paragraph.append((number, line))
        before = number
    if paragraph:
        _keep(kept, paragraph, split)
    return kept.texts()


def _keep(kept: KeptRows, lines: Sequence[tuple[int, bytes]], split: Split) -> None:
    """Add the row of these lines, or skip all of it where one of them is no text."""
    texts = []
    for number, line in lines:
        try:
            texts.append(text_of(line))
        except ValueError as error:
            kept.tally.skip(f"line {number}", str(error))
            return
    kept.add(Prompt(text=texts[0].strip() if split == "line" else "\n".join(texts)))


def read_rows(chunks: Iterable[bytes], file: str, *, time_unit: TimeUnit = "s", max_rows: Rows = MOST_ROWS) -> Texts:
    """JSON rows, one request each: JSON lines, or one JSON array.

    Taken are the usual spellings of a prompt (PROMPTS; ``instruction`` with ``input``, ``context`` with a question,
    a system prompt before it), chat ``messages``, two-turn ``conversations``, batch lines with a ``body``, and rows
    with ``payload`` or ``payloads``; the length of the answer (OUTPUTS), that of the prompt (INPUTS), the time (TIMES)
    and fields for the body (BODY).
    """
    tally = RowCounts(file, "JSON rows")
    kept = KeptRows(tally, max_rows)
    stamps = Stamps(time_unit)
    for place, row in objects_of(chunks, tally):
        if not isinstance(row, dict):
            tally.skip(place, "no object")
            continue
        try:
            stamp = next((row[key] for key in TIMES if row.get(key) is not None), None)
            t_s = None if stamp is None else stamps.read(stamp)
            for prompt in requests_of(row, tally):
                kept.add(prompt, t_s)
        except ValueError as error:
            tally.skip(place, str(error))
    return kept.texts()
