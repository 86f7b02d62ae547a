"""Made-up prompts of chosen lengths, unique unless asked otherwise. Pure."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from loadramp.record.types import Prompt
from loadramp.workload.prompts.draw import Draw, Ints

Tokens = Annotated[int, Meta(ge=1)]
Cv = Annotated[float, Meta(ge=0, le=5)]


def fixed(draw: Draw, *, input_tokens: Tokens = 512, output_tokens: Tokens = 128, unique: bool = True) -> list[Prompt]:
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
) -> list[Prompt]:
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
) -> list[Prompt]:
    """Lognormal lengths: ``*_tokens`` medians, ``*_cv`` coefficients of variation; longer ones are cut at ``max_*``.

    For a lognormal, ``cv**2 = exp(sigma**2) - 1``.
    """
    inputs = lognormal_tokens(draw.lengths, input_tokens, input_cv, max_input_tokens, draw.n)
    outputs = lognormal_tokens(draw.lengths, output_tokens, output_cv, max_output_tokens, draw.n)
    return _prompts(draw, inputs, outputs, unique)


def uniform_tokens(rng: np.random.Generator, tokens: int, spread: float, n: int) -> Ints:
    low, high = round(tokens * (1 - spread)), round(tokens * (1 + spread))
    return rng.integers(max(1, low), max(1, high) + 1, n)


def lognormal_tokens(rng: np.random.Generator, median: int, cv: float, most: int, n: int) -> Ints:
    """Lengths between 1 and ``most``; ``cv`` 0: all equal."""
    drawn = rng.lognormal(np.log(median), np.sqrt(np.log1p(cv**2)), n)
    return np.clip(np.rint(drawn), 1, most).astype(np.int64)


def _prompts(draw: Draw, inputs: Ints, outputs: Ints, unique: bool) -> list[Prompt]:
    seeds = draw.seeds() if unique else [0] * draw.n
    return [
        Prompt(input_tokens=i, output_tokens=o, segments=((seed, i),))
        for i, o, seed in zip(inputs.tolist(), outputs.tolist(), seeds, strict=True)
    ]
