"""Made-up prompts: of chosen lengths, in groups with a common prefix, and as sessions of several turns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, overload

import numpy as np
from msgspec import Meta

from loadramp.record.types import Prompt
from loadramp.workload.prompts.draw import Draw, Ints, Share

Tokens = Annotated[int, Meta(ge=1)]
Cv = Annotated[float, Meta(ge=0, le=5)]
Count = Annotated[int, Meta(ge=1)]
Skew = Annotated[float, Meta(ge=0, le=10)]
Seconds = Annotated[float, Meta(ge=0)]
MOST_TURNS = 64


def fixed(
    draw: Draw, *, input_tokens: Tokens = 512, output_tokens: Tokens = 128, unique: bool = True
) -> Sequence[Prompt]:
    """Every prompt and every answer of the same length."""
    shape = np.ones(draw.n, dtype=np.int64)
    return _prompts(draw, input_tokens * shape, output_tokens * shape, unique)


def uniform(
    draw: Draw,
    *,
    input_tokens: Tokens = 512,
    output_tokens: Tokens = 128,
    spread: Annotated[float, Meta(ge=0, lt=1)] = 0.5,
    unique: bool = True,
) -> Sequence[Prompt]:
    """Lengths uniform in ``[(1 - spread) * tokens, (1 + spread) * tokens]``, prompts and answers independent."""
    return _prompts(
        draw,
        uniform_tokens(draw.lengths, input_tokens, spread, draw.n),
        uniform_tokens(draw.lengths, output_tokens, spread, draw.n),
        unique,
    )


def lognormal(
    draw: Draw,
    *,
    input_tokens: Tokens = 512,
    output_tokens: Tokens = 128,
    input_cv: Cv = 0.9,
    output_cv: Cv = 0.9,
    max_input_tokens: Tokens = 8192,
    max_output_tokens: Tokens = 2048,
    unique: bool = True,
) -> Sequence[Prompt]:
    """Lognormal lengths: ``*_tokens`` medians, ``*_cv`` coefficients of variation; longer ones are cut at ``max_*``.

    For a lognormal, ``cv**2 = exp(sigma**2) - 1``.
    """
    inputs = lognormal_tokens(draw.lengths, input_tokens, input_cv, max_input_tokens, draw.n)
    outputs = lognormal_tokens(draw.lengths, output_tokens, output_cv, max_output_tokens, draw.n)
    return _prompts(draw, inputs, outputs, unique)


def shared_prefix(
    draw: Draw,
    *,
    groups: Count = 8,
    skew: Skew = 0.0,
    reuse_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.8,
    input_tokens: Tokens = 2000,
    output_tokens: Tokens = 150,
    input_cv: Cv = 0.3,
    output_cv: Cv = 0.9,
    max_input_tokens: Tokens = 8192,
    max_output_tokens: Tokens = 2048,
    share: Share = "run",
) -> list[Prompt]:
    """The first ``reuse_ratio`` of each prompt is its group's, the rest its own; lengths are lognormal, of the whole.

    Group g is chosen with a weight of ``(g + 1) ** -skew`` (Zipf; 0: all alike). A shorter prompt of a group begins
    like a longer one. With a cache that forgets nothing, ``reuse_ratio`` of all prompt tokens are found in it.
    """
    group = pick(draw.choices, zipf(groups, skew), draw.n)
    inputs = lognormal_tokens(draw.lengths, input_tokens, input_cv, max_input_tokens, draw.n)
    outputs = lognormal_tokens(draw.lengths, output_tokens, output_cv, max_output_tokens, draw.n)
    common = np.rint(inputs * reuse_ratio).astype(np.int64)
    base = draw.base(share)
    prompts = []
    for g, shared, tokens, out, seed in zip(
        group.tolist(), common.tolist(), inputs.tolist(), outputs.tolist(), draw.seeds(), strict=True
    ):
        segments = ((base + g, shared), (seed, tokens - shared))
        kept = tuple(segment for segment in segments if segment[1])
        prompts.append(Prompt(input_tokens=tokens, output_tokens=out, segments=kept))
    return prompts


def sessions(
    draw: Draw,
    *,
    turns: Annotated[int, Meta(ge=1, le=MOST_TURNS)] = 4,
    vary_turns: bool = True,
    system_tokens: Annotated[int, Meta(ge=0)] = 200,
    systems: Count = 1,
    skew: Skew = 0.0,
    input_tokens: Tokens = 60,
    output_tokens: Tokens = 150,
    input_cv: Cv = 0.9,
    output_cv: Cv = 0.9,
    think_s: Seconds = 10.0,
    think_cv: Cv = 1.0,
    max_context_tokens: Tokens = 8192,
    share: Share = "run",
) -> list[Prompt]:
    """Sessions of several turns: each turn sends everything said so far and a new message.

    ``turns`` is the mean of a geometric number, at most 64 (``vary_turns = false``: always so many). The first message
    follows one of ``systems`` system prompts of ``system_tokens``, shared by all their sessions. ``input_tokens`` (each
    new message), ``output_tokens`` and ``think_s`` (the pause after an answer) are medians of lognormals. A session
    ends before the turn whose prompt and answer would exceed ``max_context_tokens``.
    """
    count = (
        np.minimum(draw.lengths.geometric(1.0 / turns, draw.n), MOST_TURNS) if vary_turns else np.full(draw.n, turns)
    )
    system = pick(draw.choices, zipf(systems, skew), draw.n).tolist()
    total = int(count.sum())
    lengths = lognormal_tokens(draw.lengths, input_tokens, input_cv, max_context_tokens, total).tolist()
    answers = lognormal_tokens(draw.lengths, output_tokens, output_cv, max_context_tokens, total).tolist()
    pauses_s = think_times(draw.lengths, think_s, think_cv, total)
    texts = draw.texts.integers(0, 2**63, total).tolist()
    base = draw.base(share)
    prompts, at = [], 0
    for number, n, which in zip(draw.numbers.tolist(), count.tolist(), system, strict=True):
        opening = ((base + which, system_tokens),) if system_tokens else ()
        context = system_tokens
        chain: list[Prompt] = []
        for turn in range(at, at + n):
            context += lengths[turn]
            if chain and context + answers[turn] > max_context_tokens:
                break
            segments = (*(opening if not chain else ()), (texts[turn], lengths[turn]))
            chain.append(
                Prompt(context, answers[turn], segments, think_s=pauses_s[turn], session=number, turn=len(chain))
            )
            context += answers[turn]
        at += n
        prompts.append(replace(chain[0], following=tuple(chain[1:])) if len(chain) > 1 else chain[0])
    return prompts


def uniform_tokens(rng: np.random.Generator, tokens: int, spread: float, n: int) -> Ints:
    low, high = round(tokens * (1 - spread)), round(tokens * (1 + spread))
    return rng.integers(max(1, low), max(1, high) + 1, n)


def lognormal_tokens(rng: np.random.Generator, median: int, cv: float, most: int, n: int) -> Ints:
    """Lengths between 1 and ``most``; ``cv`` 0: all equal."""
    drawn = rng.lognormal(np.log(median), np.sqrt(np.log1p(cv**2)), n)
    return np.clip(np.rint(drawn), 1, most).astype(np.int64)


@dataclass(slots=True, frozen=True)
class MadeUpPrompts(Sequence[Prompt]):
    """Prompts of chosen lengths, each built when it is looked at: a worker looks at its own share of a block alone."""

    inputs: list[int]
    outputs: list[int]
    seeds: list[int]

    def __len__(self) -> int:
        return len(self.inputs)

    @overload
    def __getitem__(self, place: int) -> Prompt: ...

    @overload
    def __getitem__(self, place: slice) -> MadeUpPrompts: ...

    def __getitem__(self, place: int | slice) -> Prompt | MadeUpPrompts:
        inputs, outputs, seeds = self.inputs[place], self.outputs[place], self.seeds[place]
        if isinstance(inputs, list) and isinstance(outputs, list) and isinstance(seeds, list):
            return MadeUpPrompts(inputs, outputs, seeds)
        assert isinstance(inputs, int) and isinstance(outputs, int) and isinstance(seeds, int)
        return Prompt(input_tokens=inputs, output_tokens=outputs, segments=((seeds, inputs),))


def _prompts(draw: Draw, inputs: Ints, outputs: Ints, unique: bool) -> MadeUpPrompts:
    seeds = list(draw.seeds()) if unique else [0] * draw.n
    return MadeUpPrompts(inputs.tolist(), outputs.tolist(), seeds)


def session_of(number: int, turns: Sequence[Prompt]) -> Prompt:
    """The opening prompt of session ``number``, which carries the later turns."""
    first, *later = [replace(prompt, session=number, turn=turn) for turn, prompt in enumerate(turns)]
    return replace(first, following=tuple(later))


def think_times(rng: np.random.Generator, median_s: float, cv: float, n: int) -> list[float]:
    """Lognormal pauses, shape (n,), in seconds, to the microsecond."""
    if median_s <= 0.0:
        return [0.0] * n
    drawn = rng.lognormal(np.log(median_s), np.sqrt(np.log1p(cv**2)), n)
    pauses: list[float] = np.round(drawn, 6).tolist()
    return pauses


def zipf(n: int, skew: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Shares ``k ** -skew`` of the ranks 1..n, summing to 1."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -skew
    return np.asarray(weights / weights.sum())


def pick(rng: np.random.Generator, shares: np.ndarray[tuple[int, ...], np.dtype[np.float64]], n: int) -> Ints:
    """``n`` indices, each drawn with its share."""
    edges = np.cumsum(shares)
    return np.minimum(np.searchsorted(edges, rng.random(n), side="right"), len(shares) - 1).astype(np.int64)
