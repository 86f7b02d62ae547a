"""Arrival processes: a rate, a duration and an rng to an array of due times. Pure.

Each function returns ascending instants in ``[0, duration_s)``, shape (n,), float64 seconds from the step's begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def constant(rate_rps: float, duration_s: float, rng: np.random.Generator) -> Floats:
    """Evenly spaced, the first one half a gap after the begin. Ignores ``rng``."""
    n = int(np.floor(rate_rps * duration_s + 0.5))
    return np.asarray((np.arange(n) + 0.5) / rate_rps, dtype=np.float64)


def poisson(rate_rps: float, duration_s: float, rng: np.random.Generator) -> Floats:
    """A Poisson process: independent exponential gaps of mean ``1 / rate_rps``."""
    return _renewal(lambda n: rng.exponential(1.0 / rate_rps, n), rate_rps, duration_s, 1.0)


def gamma(
    rate_rps: float, duration_s: float, rng: np.random.Generator, *, cv: Annotated[float, Meta(gt=0, le=20)] = 2.0
) -> Floats:
    """Independent gamma gaps of mean ``1 / rate_rps`` and coefficient of variation ``cv`` (1: Poisson; more: bursts).

    Shape ``1 / cv**2``, scale ``cv**2 / rate_rps``.
    """
    shape = 1.0 / cv**2
    return _renewal(lambda n: rng.gamma(shape, 1.0 / (rate_rps * shape), n), rate_rps, duration_s, cv)


ARRIVALS: dict[str, Callable[..., Any]] = {"constant": constant, "poisson": poisson, "gamma": gamma}


def _renewal(draw: Callable[[int], Floats], rate_rps: float, duration_s: float, cv: float) -> Floats:
    """Cumulate gaps until ``duration_s`` is passed.

    The draw size depends only on the arguments, so the stream of random numbers is the same in every process.
    """
    expected = rate_rps * duration_s
    chunk = int(expected + 4.0 * cv * np.sqrt(expected) + 16)
    parts: list[Floats] = []
    reached_s = 0.0
    while reached_s < duration_s:
        part = reached_s + np.cumsum(draw(chunk))
        parts.append(part)
        reached_s = float(part[-1])
    due_s = np.concatenate(parts) if parts else np.empty(0)
    return due_s[due_s < duration_s]
