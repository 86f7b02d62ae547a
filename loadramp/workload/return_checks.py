"""Does a function from outside the repository return what its table needs? Pure; each check says what was expected.

A check is ``f(result, *args) -> str``, args being those the function was called with; empty where all is well.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from loadramp.record.types import Estimate, Prompt, Step, Stop


def step(result: Any, *_: Any) -> str:
    """Of a ramp."""
    if isinstance(result, Stop):
        return ""
    if not isinstance(result, Step):
        return "expected a Step or a Stop"
    if (result.rate_rps is None) == (result.users is None):
        return "expected a Step with rate_rps or users"
    load = result.rate_rps if result.users is None else result.users
    fine = isinstance(load, int | float) and isfinite(load) and load > 0
    return "" if fine else "expected a Step with a load above 0"


def estimate(result: Any, *_: Any) -> str:
    """Of a knee detector."""
    return "" if isinstance(result, Estimate) else "expected an Estimate"


def instants(result: Any, *args: Any) -> str:
    """Of an arrival process; the last arguments are rate, duration and rng."""
    duration_s = args[-2]
    fine = (
        isinstance(result, np.ndarray)
        and result.ndim == 1
        and np.issubdtype(result.dtype, np.floating)
        and bool(np.isfinite(result).all())
        and bool((np.diff(result) >= 0).all())
        and (len(result) == 0 or (result[0] >= 0 and result[-1] < duration_s))
    )
    return "" if fine else f"expected a numpy array of ascending seconds in [0, {duration_s:g})"


def prompts(result: Any, draw: Any) -> str:
    """Of a prompt source: as many as were drawn."""
    fine = isinstance(result, list) and len(result) == draw.n and all(isinstance(one, Prompt) for one in result)
    return "" if fine else f"expected a list of {draw.n} Prompts"
