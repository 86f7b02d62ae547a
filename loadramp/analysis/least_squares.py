"""Least squares without negative parts. Pure.

scipy.optimize has it too, but its import takes a quarter of the CPU time of a short run, while the run goes on.
"""

import numpy as np
from numpy.typing import NDArray

from loadramp.record.table import Floats

_ROUNDING = 1e-12


def nonnegative(matrix: Floats, wanted: Floats) -> Floats:
    """The ``x >= 0`` for which ``|matrix @ x - wanted|`` is least: Lawson and Hanson, Solving Least Squares Problems,
    1974, algorithm NNLS (23.10).

    Args:
        matrix: equations by unknowns; a column of zeros gets 0.
        wanted: one number an equation.
    """
    x = np.zeros(matrix.shape[1])
    free = np.zeros(len(x), dtype=bool)
    least = _ROUNDING * np.abs(matrix.T @ wanted).max(initial=0.0)
    for _ in range(3 * len(x)):  # more are never needed but where rounding lets a part come and go
        gain = np.where(free, -np.inf, matrix.T @ (wanted - matrix @ x))
        if gain.max(initial=-np.inf) <= least:
            break
        free[gain.argmax()] = True
        x = _within(matrix, wanted, x, free)
    return x


def _within(matrix: Floats, wanted: Floats, x: Floats, free: NDArray[np.bool_]) -> Floats:
    """The best of the ``free`` parts, from ``x`` as far as none is negative; what came to 0 is free no longer."""
    while True:
        best = np.zeros(len(x))
        best[free] = np.linalg.lstsq(matrix[:, free], wanted, rcond=None)[0]
        bad = free & (best <= 0.0)
        if not bad.any():
            return best
        at, to = x[bad], best[bad]
        x = x + np.min(np.divide(at, at - to, out=np.zeros_like(at), where=at > to)) * (best - x)
        free &= x > _ROUNDING * x.max()
        x[~free] = 0.0
