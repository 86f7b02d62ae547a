"""Prompt sources: which request is asked next. Pure.

A source is a function ``f(draw, *, options) -> Sequence[Prompt]`` that returns ``draw.n`` prompts. The k-th request of
a step is always drawn in the same block from the same generators, so every process plans the same prompt for it. A
source with a key ``file`` finds in ``draw.corpus`` what READERS made of that file, once in each process.
"""

from collections.abc import Callable
from typing import Any

from loadramp.workload.prompts.conversations import read_conversations
from loadramp.workload.prompts.files import conversations, jsonl, text, trace
from loadramp.workload.prompts.source import mix
from loadramp.workload.prompts.synthetic import fixed, lognormal, sessions, shared_prefix, uniform
from loadramp.workload.prompts.text_files import read_rows, read_text
from loadramp.workload.prompts.traces import read_trace

PROMPTS: dict[str, Callable[..., Any]] = {
    "fixed": fixed,
    "uniform": uniform,
    "lognormal": lognormal,
    "shared_prefix": shared_prefix,
    "sessions": sessions,
    "trace": trace,
    "jsonl": jsonl,
    "conversations": conversations,
    "text": text,
    "mix": mix,
}

READERS: dict[str, Callable[..., Any]] = {
    "trace": read_trace,
    "jsonl": read_rows,
    "conversations": read_conversations,
    "text": read_text,
    "replay": read_trace,
}
"""Kind to the function that reads its file: ``f(chunks, name, *, options)``; ``replay`` is an arrival process."""
