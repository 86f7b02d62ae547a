"""Files of real text to rows: lines of text, and JSON rows of the many forms that are in use. Pure.

A row without anything to ask is counted and named by line, never dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from loadramp.plan.prompts.lines import Tally, lines_of, objects_of
from loadramp.plan.prompts.stamps import Stamps, TimeUnit
from loadramp.registry import ScenarioError

Split = Literal["line", "paragraph", "whole"]
Rows = Annotated[int, Meta(ge=1)]
MOST_ROWS = 100_000

PROMPTS = ("prompt", "text", "text_input", "question", "instruction", "problem", "query", "input", "content")
SYSTEMS = ("system_prompt", "system", "prefix")
OUTPUTS = (
    "max_tokens", "max_completion_tokens", "max_output_tokens", "output_tokens", "output_length", "completion_tokens",
    "output_tokens_count", "completion_tokens_count", "tok_output_length",
)  # fmt: skip
INPUTS = ("input_tokens", "prompt_tokens_count", "input_tokens_count", "tok_input_length", "input_length")
TIMES = ("timestamp", "time", "arrived_at")
BODY = ("tools", "tool_choice", "parallel_tool_calls", "response_format", "temperature", "top_p", "stop", "seed")
_OURS = {"model", "messages", "prompt", "input", "stream", "stream_options", "n", *OUTPUTS}


@dataclass(slots=True, frozen=True)
class Said:
    """One request that a file asks for: text, or messages in the chat format. Lengths None: the file does not say."""

    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    body: Mapping[str, Any] | None = None
    label: str = ""
    later: tuple[Said, ...] = ()
    """The turns that follow it."""


@dataclass(slots=True, frozen=True)
class Texts:
    """The rows of one file. ``t_s``, where the rows have stamps: by time, from the first one; ``span_s`` one pass."""

    tally: Tally
    rows: Sequence[Said]
    t_s: NDArray[np.float64] | None = None
    span_s: float = 0.0

    def __len__(self) -> int:
        return len(self.rows)

    def shuffled(self, rng: np.random.Generator) -> Texts:
        """The same rows in another order, without their stamps."""
        order = rng.permutation(len(self.rows)).tolist()
        return replace(self, rows=[self.rows[i] for i in order], t_s=None)


@dataclass(slots=True)
class Kept:
    """Rows as they are read, at most ``most`` of them."""

    tally: Tally
    most: int
    rows: list[Said] = field(default_factory=list)
    t_s: list[float] = field(default_factory=list)

    def add(self, said: Said, t_s: float | None = None) -> None:
        if len(self.rows) >= self.most:
            self.tally.leave("beyond max_rows")
            return
        self.rows.append(said)
        if t_s is not None:
            self.t_s.append(t_s)

    def texts(self) -> Texts:
        """What was kept.

        Raises:
            ScenarioError: nothing was.
        """
        if not self.rows:
            why = self.tally.problems[0] if self.tally.problems else ", ".join(self.tally.left_out) or "it is empty"
            raise ScenarioError(f"{self.tally.file}: no row can be used: {why}")
        self.tally.rows = len(self.rows)
        if len(self.t_s) < len(self.rows):
            return Texts(self.tally, self.rows)
        t_s = np.array(self.t_s)
        order = np.argsort(t_s, kind="stable")
        if np.any(np.diff(t_s) < 0):
            self.tally.notes.append("rows were not in order of time: sorted")
        t_s = t_s[order] - t_s[order[0]]
        last_s = float(t_s[-1])
        span_s = last_s * len(t_s) / (len(t_s) - 1) if len(t_s) > 1 else 1.0
        return Texts(self.tally, [self.rows[i] for i in order.tolist()], t_s, span_s)


def read_text(chunks: Iterable[bytes], file: str, *, split: Split = "line", max_rows: Rows = MOST_ROWS) -> Texts:
    """Plain text: a prompt a line, a prompt a paragraph (blank lines between), or all of it as one."""
    tally = Tally(file, "text")
    kept = Kept(tally, max_rows)
    paragraph: list[str] = []
    before = 0
    for number, line in lines_of(chunks):
        text = line.decode("utf-8", "replace")
        if split == "line":
            kept.add(Said(text=text.strip()))
            continue
        if split == "paragraph" and paragraph and number > before + 1:
            kept.add(Said(text="\n".join(paragraph)))
            paragraph = []
        paragraph.append(text)
        before = number
    if paragraph:
        kept.add(Said(text="\n".join(paragraph)))
    return kept.texts()


def read_rows(chunks: Iterable[bytes], file: str, *, time_unit: TimeUnit = "s", max_rows: Rows = MOST_ROWS) -> Texts:
    """JSON rows, one request each: JSON lines, or one JSON array.

    Taken are the usual spellings of a prompt (PROMPTS; ``instruction`` with ``input``, ``context`` with a question,
    a system prompt before it), chat ``messages``, two-turn ``conversations``, and batch lines with a ``body``; the
    length of the answer (OUTPUTS), that of the prompt (INPUTS), the time (TIMES) and fields for the body (BODY).
    """
    tally = Tally(file, "JSON rows")
    kept = Kept(tally, max_rows)
    stamps = Stamps(time_unit)
    for place, row in objects_of(chunks, tally):
        if not isinstance(row, dict):
            tally.skip(place, "no object")
            continue
        try:
            said = _said(row)
            stamp = next((row[key] for key in TIMES if row.get(key) is not None), None)
            kept.add(said, None if stamp is None else stamps.read(stamp))
        except ValueError as error:
            tally.skip(place, str(error))
    return kept.texts()


def _said(row: Mapping[str, Any]) -> Said:
    """What one row asks. Raises ValueError, in words, when that is nothing."""
    body = row.get("body")
    if isinstance(body, str):
        raise ValueError("a body given as text")
    inner = body if isinstance(body, dict) else row
    extra = {key: value for key, value in inner.items() if key not in _OURS} if inner is body else {}
    extra |= {key: row[key] for key in BODY if inner is row and row.get(key) is not None}
    if isinstance(inner.get("n"), int) and inner["n"] > 1:
        raise ValueError("more than one answer (n)")
    said = Said(
        input_tokens=length_of(row, INPUTS),
        output_tokens=length_of(inner, OUTPUTS),
        body=extra or None,
        label=str(row.get("label") or row.get("category") or ""),
    )
    messages = messages_of(inner)
    if messages:
        return replace(said, messages=messages)
    return replace(said, text=_text(inner))


def messages_of(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...] | None:
    """Chat messages as a row gives them; a conversation only up to what is asked first."""
    given = row.get("messages", row.get("input") if isinstance(row.get("input"), list) else None)
    if isinstance(given, list):
        usable = [one for one in given if isinstance(one, dict) and one.get("role")]
        if not usable or len(usable) != len(given):
            raise ValueError("messages without a role")
        return tuple(usable)
    turns = row.get("conversations")
    if isinstance(turns, list):
        opening = turns[0].get("content", turns[0].get("value")) if turns and isinstance(turns[0], dict) else None
        if not isinstance(opening, str) or not opening.strip():
            raise ValueError("an empty prompt")
        return ({"role": "user", "content": opening},)
    return None


def _text(row: Mapping[str, Any]) -> str:
    found = next((key for key in PROMPTS if row.get(key) is not None), None)
    if found is None:
        raise ValueError("no prompt")
    asked = row[found]
    if isinstance(asked, list) and len(asked) == 1:
        asked = asked[0]
    if not isinstance(asked, str):
        raise ValueError(f"{found} is no text")
    if not asked.strip():
        raise ValueError("an empty prompt")
    parts = [row.get(key) for key in (*SYSTEMS, "context")]
    more = row.get("input") if found == "instruction" else None
    return "\n\n".join(part for part in (*parts, asked, more) if isinstance(part, str) and part.strip())


def length_of(row: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    """The first of ``keys`` that the row has, as a number of tokens; numbers may be text.

    Raises:
        ValueError: it is none, or below 1.
    """
    value = next((row[key] for key in keys if row.get(key) is not None), None)
    if value is None:
        return None
    try:
        tokens = int(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("a length that is no number") from None
    if tokens < 1 or isinstance(value, bool):
        raise ValueError("a length below 1")
    return tokens
