"""Prompt sources that go through a file: traces, JSON rows, conversations, plain text. Pure: the file was read before.

Request k takes row ``k mod n`` of the n rows; the k-th pass through the file has text of its own, so that no prefix
cache serves the second pass from the first.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from msgspec import Meta

from loadramp.record.types import Prompt
from loadramp.workload.prompts.conversations import History, PerToken
from loadramp.workload.prompts.draw import Draw, Share
from loadramp.workload.prompts.synthetic import Cv, Seconds, Tokens, lognormal_tokens, session_of, think_times
from loadramp.workload.prompts.text_files import MOST_ROWS, Rows, Split, Texts
from loadramp.workload.prompts.trace_formats import FormatName, TimeUnit
from loadramp.workload.prompts.traces import Trace, Window

AtEnd = Literal["repeat", "stop"]
Order = Literal["file", "shuffled"]
TURNS = Annotated[int, Meta(ge=0)]


def trace(
    draw: Draw,
    *,
    file: str,
    format: FormatName = "auto",
    time_unit: TimeUnit | None = None,
    block_tokens: Tokens | None = None,
    window_s: Window | None = None,
    columns: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
    max_input_tokens: Tokens | None = None,
    max_output_tokens: Tokens | None = None,
    use_images: bool = False,
    share: Share = "pass",
    at_end: AtEnd = "repeat",
) -> list[Prompt]:
    """Made-up text of the lengths in a trace; equal block ids of the trace are equal text, so prefixes are shared.

    Longer prompts and answers are cut at ``max_*``. ``use_images`` sends as many images as the trace says.
    """
    rows: Trace = draw.corpus
    again, at = np.divmod(draw.rows, len(rows))
    inputs = np.minimum(rows.inputs[at], max_input_tokens or rows.inputs.max()).tolist()
    outputs = np.minimum(rows.outputs[at], max_output_tokens or rows.outputs.max()).tolist()
    bases = {int(time): draw.base(share, int(time)) for time in np.unique(again)}
    prompts = []
    for k, (row, seed) in enumerate(zip(at.tolist(), draw.seeds(), strict=True)):
        ids = rows.blocks[rows.begin[row] : rows.begin[row + 1]].tolist()
        base = bases[int(again[k])]
        segments = _blocks(base, ids, rows.block_tokens, inputs[k]) if ids else ((seed, inputs[k]),)
        images = tuple((seed + i, 512, 512) for i in range(int(rows.images[row]))) if use_images else ()
        label = rows.labels[int(rows.label[row])]
        prompts.append(Prompt(inputs[k], outputs[k], segments, label=label, images=images))
    return prompts


def jsonl(
    draw: Draw,
    *,
    file: str,
    output_tokens: Tokens | None = None,
    time_unit: TimeUnit = "s",
    order: Order = "shuffled",
    max_rows: Rows = MOST_ROWS,
    unique: bool = True,
    share: Share = "pass",
    at_end: AtEnd = "repeat",
) -> list[Prompt]:
    """The requests of a file of JSON rows. ``output_tokens`` is asked where a row does not say; None: no limit then."""
    return _given(draw, output_tokens, unique, share)


def conversations(
    draw: Draw,
    *,
    file: str,
    turns: TURNS = 1,
    history: History = "answers",
    output_tokens: Tokens | None = None,
    chars_per_token: PerToken = 4.0,
    min_tokens: TURNS = 4,
    max_input_tokens: Tokens | None = None,
    max_output_tokens: Tokens | None = None,
    max_context_tokens: Tokens | None = None,
    think_s: Seconds = 10.0,
    think_cv: Cv = 1.0,
    order: Order = "shuffled",
    max_rows: Rows = MOST_ROWS,
    unique: bool = True,
    share: Share = "pass",
    at_end: AtEnd = "repeat",
) -> list[Prompt]:
    """Real conversations: the first question of each, or (``turns`` other than 1) sessions of several turns.

    Between an answer and the next turn lie lognormal pauses of median ``think_s``.
    """
    prompts = _given(draw, None, unique, share)
    if turns == 1:
        return prompts
    pauses_s = iter(think_times(draw.lengths, think_s, think_cv, sum(1 + len(prompt.following) for prompt in prompts)))
    return [
        session_of(number, [replace(turn, think_s=next(pauses_s)) for turn in (prompt, *prompt.following)])
        for number, prompt in zip(draw.numbers.tolist(), prompts, strict=True)
    ]


def text(
    draw: Draw,
    *,
    file: str,
    split: Split = "line",
    input_tokens: Tokens | None = None,
    input_cv: Cv = 0.0,
    output_tokens: Tokens = 128,
    output_cv: Cv = 0.0,
    max_output_tokens: Tokens = 2048,
    chars_per_token: PerToken = 4.0,
    order: Order = "shuffled",
    max_rows: Rows = MOST_ROWS,
    unique: bool = True,
    share: Share = "pass",
    at_end: AtEnd = "repeat",
) -> list[Prompt]:
    """Plain text, a prompt a row; or, where ``input_tokens`` is given, rows drawn at random until about so many."""
    rows: Texts = draw.corpus
    outputs = lognormal_tokens(draw.lengths, output_tokens, output_cv, max_output_tokens, draw.n).tolist()
    if input_tokens is None:
        given = _given(draw, None, unique, share)
        return [replace(prompt, output_tokens=out) for prompt, out in zip(given, outputs, strict=True)]
    wanted = lognormal_tokens(draw.lengths, input_tokens, input_cv, 2**20, draw.n)
    mean = sum(len(row.text or "") + 1 for row in rows.rows) / len(rows) / chars_per_token
    tag = draw.base(share)
    prompts = []
    for tokens, out in zip(wanted.tolist(), outputs, strict=True):
        picked = draw.choices.integers(0, len(rows), max(1, round(tokens / mean))).tolist()
        joined = "\n".join(rows.rows[row].text or "" for row in picked)
        prompts.append(Prompt(output_tokens=out, text=joined, tag=tag if unique else None))
    return prompts


def _given(draw: Draw, output_tokens: int | None, unique: bool, share: Share) -> list[Prompt]:
    """The rows of a file of texts. All of one pass open with the same tag, so that what they share stays shared."""
    rows: Texts = draw.corpus
    again, at = np.divmod(draw.rows, len(rows))
    tags = {time: draw.base(share, time) if unique else None for time in set(again.tolist())}
    prompts = [(rows.rows[row], tags[time]) for row, time in zip(at.tolist(), again.tolist(), strict=True)]
    return [replace(prompt, tag=tag, output_tokens=prompt.output_tokens or output_tokens) for prompt, tag in prompts]


def _blocks(base: int, ids: list[int], block_tokens: int, tokens: int) -> tuple[tuple[int, int], ...]:
    """One segment a block; the last one, and with it the prompt, ends at ``tokens``."""
    full, rest = divmod(tokens, block_tokens)
    whole = [(base | block, block_tokens) for block in ids[:full]]
    return (*whole, (base | ids[full], rest)) if rest else tuple(whole)
