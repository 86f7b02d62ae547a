"""Prompt sources: which request is asked next. Pure.

A source is a function ``f(draw, *, options) -> list[Prompt]`` that returns ``draw.n`` prompts. The k-th request of a
step is always drawn in the same block from the same two generators, so every process plans the same prompt for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadramp.plan.prompts.synthetic import fixed, lognormal, uniform

PROMPTS: dict[str, Callable[..., Any]] = {"fixed": fixed, "uniform": uniform, "lognormal": lognormal}
