"""Failed requests of two arms: exact limits of a share, Fisher's test, and the difference with its interval. Pure.

Nothing here divides by a count of failures: a baseline without any is the usual case.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, inf, lgamma, log, log1p, sqrt

from scipy.special import betaincinv, ndtri

MOST = 100_000_000


@dataclass(slots=True, frozen=True)
class Proportion:
    """``failed`` of ``requests`` that ended."""

    failed: int = 0
    requests: int = 0

    @property
    def ratio(self) -> float | None:
        return self.failed / self.requests if self.requests else None

    def upper(self, alpha: float = 0.05) -> float:
        """One-sided exact limit (Clopper and Pearson 1934): the share is below it with confidence 1 - alpha."""
        k, n = self.failed, self.requests
        return 1.0 if n == 0 or k >= n else float(betaincinv(k + 1.0, n - k, 1.0 - alpha))

    def lower(self, alpha: float = 0.05) -> float:
        """One-sided exact limit: the share is above it with confidence 1 - alpha."""
        k, n = self.failed, self.requests
        return 0.0 if n == 0 or k == 0 else float(betaincinv(float(k), n - k + 1.0, alpha))

    def __add__(self, other: Proportion) -> Proportion:
        return Proportion(self.failed + other.failed, self.requests + other.requests)


def needed(failed: int, limit: float, alpha: float = 0.05) -> int:
    """Requests with which ``failed`` failures still show a share below ``limit``: 2,995 for none and 0.001."""
    if failed == 0:
        return ceil(log(alpha) / log1p(-limit) - 1e-9)
    low, high = failed, MOST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if Proportion(failed, middle).upper(alpha) < limit else (middle, high)
    return high


def fisher(base: Proportion, candidate: Proportion) -> float:
    """One-sided p value of Fisher's exact test that the candidate fails more often than the baseline."""
    n_b, n_c, k = base.requests, candidate.requests, base.failed + candidate.failed
    if n_b == 0 or n_c == 0 or k == 0:
        return 1.0
    whole = _log_choose(n_b + n_c, k)
    tail = range(candidate.failed, min(k, n_c) + 1)
    return min(1.0, sum(exp(_log_choose(n_c, i) + _log_choose(n_b, k - i) - whole) for i in tail))


def difference(base: Proportion, candidate: Proportion) -> tuple[float, float, float] | None:
    """Candidate's share minus the baseline's, with its 95 % interval (Newcombe 1998); None without requests.

    Newcombe's hybrid of two Wilson intervals, which holds where the shares are small or zero.
    """
    if base.ratio is None or candidate.ratio is None:
        return None
    z = float(ndtri(0.975))
    (low_b, high_b), (low_c, high_c) = _wilson(base, z), _wilson(candidate, z)
    apart = candidate.ratio - base.ratio
    low = apart - sqrt((candidate.ratio - low_c) ** 2 + (high_b - base.ratio) ** 2)
    high = apart + sqrt((high_c - candidate.ratio) ** 2 + (base.ratio - low_b) ** 2)
    return apart, low, high


def _wilson(proportion: Proportion, z: float) -> tuple[float, float]:
    n, p = float(proportion.requests), proportion.failed / proportion.requests
    middle, half = p + z**2 / (2.0 * n), z * sqrt(p * (1.0 - p) / n + z**2 / (4.0 * n**2))
    return max(0.0, (middle - half) / (1.0 + z**2 / n)), min(1.0, (middle + half) / (1.0 + z**2 / n))


def _log_choose(n: int, k: int) -> float:
    return -inf if k < 0 or k > n else lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
