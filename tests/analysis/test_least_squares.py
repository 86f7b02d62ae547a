"""Least squares without negative parts: literal cases, and the same as scipy.optimize finds."""

import numpy as np
import pytest

from loadramp.analysis.least_squares import nonnegative


def test_parts_that_fit_are_found() -> None:
    matrix = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nonnegative(matrix, np.array([2.0, 5.0, 8.0])).tolist() == pytest.approx([2.0, 3.0])


def test_a_part_that_would_be_negative_is_none() -> None:
    matrix = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nonnegative(matrix, np.array([3.0, 2.0, 1.0])).tolist() == pytest.approx([2.0, 0.0])
    assert nonnegative(matrix, np.array([-1.0, -1.0, -1.0])).tolist() == [0.0, 0.0]


def test_what_no_equation_speaks_of_is_none() -> None:
    assert nonnegative(np.array([[2.0, 0.0]]), np.array([6.0])).tolist() == pytest.approx([3.0, 0.0])
    assert nonnegative(np.zeros((2, 3)), np.ones(2)).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("equations", "unknowns"), [(3, 5), (5, 5), (12, 5), (40, 5)])
def test_it_is_what_scipy_finds(equations: int, unknowns: int) -> None:
    from scipy.optimize import nnls

    rng = np.random.default_rng(equations)
    for _ in range(200):
        matrix = rng.uniform(0.0, 1.0, (equations, unknowns)) ** rng.uniform(0.1, 4.0, unknowns)
        wanted = rng.normal(0.5, 1.0, equations) * rng.uniform(0.01, 100.0)
        found, known = nonnegative(matrix, wanted), nnls(matrix, wanted)[0]
        assert found.min() >= 0.0
        gain = matrix.T @ (wanted - matrix @ found)  # none where a part is, none to be had elsewhere: this is the least
        assert max(gain.max(), np.abs(gain[found > 0.0]).max(initial=0.0)) <= 1e-9 * np.abs(matrix.T @ wanted).max()
        least, left = (np.linalg.norm(matrix @ x - wanted) for x in (found, known))
        assert least <= left * (1.0 + 1e-9) + 1e-9  # what SciPy 1.15.0 finds is not always the least
        if equations >= unknowns and left == pytest.approx(least, rel=1e-9, abs=1e-9):  # else several fit as well
            assert found.tolist() == pytest.approx(known.tolist(), rel=1e-6, abs=1e-6 * np.abs(wanted).max())
