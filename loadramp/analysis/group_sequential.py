"""Looking more than once: boundaries of the O'Brien-Fleming type, and p values that stay true under several looks.

The standardised sum after k of K blocks, z * sqrt(k / K), behaves like a Brownian motion at time k / K. A look decides
when it is above one constant c, so early looks need far stronger evidence than the last one (docs/method.md, "Looks").
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import inf, sqrt

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from loadramp.record.table import Floats

LOWEST = -8.0
"""Below this a Brownian motion of unit variance is not found."""
NODES = 96


@lru_cache(maxsize=4096)
def crossing(limit: float, times: tuple[float, ...]) -> float:
    """P(a Brownian motion is above ``limit`` at one of ``times`` at least), times ascending in (0, 1].

    The density of the paths that stayed below is carried from look to look by Gauss-Legendre quadrature (Armitage,
    McPherson and Rowe 1969); good to 1e-7.
    """
    if limit <= LOWEST:
        return 1.0
    if len(times) == 1:
        return float(ndtr(-limit / sqrt(times[0])))
    nodes, weights = _gauss()
    half = (limit - LOWEST) / 2.0
    at, weight = LOWEST + half * (nodes + 1.0), half * weights
    density = _normal(at / sqrt(times[0])) / sqrt(times[0])
    crossed = 1.0 - float(ndtr(limit / sqrt(times[0])))
    for before, now in pairwise(times):
        step = sqrt(now - before)
        mass = density * weight
        crossed += float(mass @ ndtr((at - limit) / step))
        density = (_normal((at[None, :] - at[:, None]) / step) / step).T @ mass
    return min(crossed, 1.0)


@lru_cache(maxsize=1024)
def boundary(alpha: float, times: tuple[float, ...]) -> float:
    """The constant c with ``crossing(c, times) == alpha``: 1.733 for 0.05 at quarters, 2.024 for 0.025."""
    from scipy.optimize import brentq  # not at the start of every command: it takes 0.2 s

    return float(brentq(lambda c: crossing(c, times) - alpha, 0.0, 8.0, xtol=1e-6))


def times_of(looks: Sequence[int], total: int) -> tuple[float, ...]:
    """The looks as shares of ``total`` blocks; the last block is always looked at."""
    return tuple(k / total for k in sorted({*(k for k in looks if 0 < k < total), total}))


def z_of(t: float, df: float) -> float:
    """The normal quantile that is as improbable as Student's ``t`` with ``df`` degrees of freedom."""
    if not np.isfinite(t) or df == inf:
        return t
    if t < 0.0:
        return -z_of(-t, df)
    above = float(stdtr(df, -t))  # the upper tail, which does not lose its digits
    return -float(ndtri(above)) if above > 0.0 else inf


def t_of(z: float, df: float) -> float:
    """The quantile of Student's t with ``df`` degrees of freedom that is as improbable as the normal ``z``."""
    if not np.isfinite(z) or df == inf:
        return z
    if z < 0.0:
        return -t_of(-z, df)
    return -float(stdtrit(df, float(ndtr(-z))))


def look_z(alpha: float, times: tuple[float, ...], now: float) -> float:
    """The z that a look at ``now`` (a share of all blocks) needs: c / sqrt(now)."""
    return boundary(alpha, times) / sqrt(now)


def look_p(z: float, times: tuple[float, ...], now: float) -> float:
    """One-sided p value that is true whenever one looks: the chance to be so far out at any of the looks."""
    if z == inf:
        return 0.0
    return 1.0 if z <= 0.0 else crossing(round(z * sqrt(now), 6), times)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values (1979), in the order given: reject where they are at most alpha."""
    order = np.argsort(np.asarray(p), kind="stable")
    adjusted = [0.0] * len(p)
    worst = 0.0
    for rank, which in enumerate(order):
        worst = max(worst, min(1.0, (len(p) - rank) * p[which]))
        adjusted[int(which)] = worst
    return adjusted


@lru_cache(maxsize=1)
def _gauss() -> tuple[Floats, Floats]:
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return np.asarray(nodes, dtype=np.float64), np.asarray(weights, dtype=np.float64)


def _normal(x: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * np.square(x)) / sqrt(2.0 * np.pi))
