"""Quantiles with their uncertainty. Rule: what a sample cannot carry is None with a reason, never a number.

Gaps that end in the same engine step share their length, so neither tokens nor requests are independent; stretches of
time nearly are. All intervals come from time blocks (Woodruff 1952; Korn and Graubard 1998; docs/method.md).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit

from loadramp.record.table import Bools, Floats, Ints
from loadramp.units import latency, plural

BLOCK_S = 5.0
MIN_BLOCKS = 6
FLOOR_S = 1e-5
"""A latency below it is taken as this: two tokens in one read are no time apart, and zero has no logarithm."""
NOT_STATIONARY = "not stationary: no interval"
Unit = Literal["requests", "tokens", "gaps"]
Blocks = NDArray[np.uint16] | NDArray[np.int64]


@dataclass(slots=True, frozen=True)
class QuantileEstimate:
    """A statistic of one window: ``value`` with its 95 % interval; None where the sample cannot carry it.

    ``reason`` says why the value is None, ``interval_reason`` why a limit is.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    interval_reason: str = ""
    log_se: float | None = None
    """Standard error of the logarithm from the blocks alone, ln(high / low) / 3.92; also where no interval is shown."""


@dataclass(slots=True, frozen=True)
class Values:
    """n values of one kind in one window, with the time block of each.

    ``ordered`` is ``values`` sorted, ``by_block`` those of each block, sorted; ``censored`` marks values that are only
    known to be longer than this (a request that has not finished: its age), None when there are none. ``requests`` is
    how many requests they come from, ``carry`` how much more a mean over the window varies than its blocks tell
    (``carry_over``). ``chances``: how likely each value was to exceed a limit, shape (n,), by what is known of its
    time; what that explains is no chance.
    """

    values: Floats
    ordered: Floats
    by_block: Sequence[Floats]
    block: Blocks
    blocks: int
    unit: Unit
    requests: int
    censored: Bools | None = None
    carry: float = 1.0
    chances: Callable[[float], Floats] | None = None
    effects: dict[tuple[float, float], float] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Design effects by value and quantile: those of lower quantiles are asked for again by each higher one."""

    def __len__(self) -> int:
        return len(self.values)

    @property
    def counts(self) -> Ints:
        """How many values each block has."""
        return np.array([len(block) for block in self.by_block], dtype=np.int64)


def pool(
    values: Floats,
    at_s: Floats,
    window_s: tuple[float, float],
    unit: Unit,
    requests: int | None = None,
    censored: Bools | None = None,
    carry: float = 1.0,
) -> Values:
    """Put ``values`` (shape n, NaN-free) into the time blocks of ``window_s`` by their instants ``at_s`` (shape n)."""
    block, blocks = blocks_of(at_s, window_s)
    cut = censored if censored is not None and bool(censored.any()) else None
    count = len(values) if requests is None else requests
    parts = by_block(values, block, blocks)
    for part in parts:
        part.sort()
    return Values(values, np.sort(values), parts, block, blocks, unit, count, cut, carry)


def by_block(values: Floats, block: Blocks, n: int) -> list[Floats]:
    """The values of each of ``n`` blocks, in their order."""
    block = block.astype(np.uint16, copy=False) if _small(n) else block
    order = np.argsort(block, kind="stable")
    values, bounds = values[order], np.searchsorted(block[order], np.arange(1, n, dtype=block.dtype))
    return [values[begin:end] for begin, end in pairwise((0, *bounds.tolist(), len(values)))]


def block_order(block: Blocks, n: int) -> Ints:
    """What sorts values by their block, of ``n``, and leaves those of one block as they are."""
    return np.argsort(block.astype(np.uint16, copy=False) if _small(n) else block, kind="stable")


def blocks_of(at_s: Floats, window_s: tuple[float, float]) -> tuple[Blocks, int]:
    """Block of each instant and how many blocks there are: equal, about BLOCK_S long, at least 6."""
    begin_s, end_s = window_s
    count = max(MIN_BLOCKS, int((end_s - begin_s) / BLOCK_S + 1e-9))
    scale = count / max(end_s - begin_s, 1e-9)
    at = (at_s - begin_s) * scale
    np.clip(at, 0, count - 1, out=at)
    return (at.astype(np.uint16) if _small(count) else at.astype(np.int64)), count


def _small(blocks: int) -> bool:
    """Their numbers fit into 16 bits, which a stable sort puts in order by radix."""
    return blocks <= 1 << 16


def quantile(ordered: Floats, q: float) -> float:
    """Type-7 quantile (linear between order statistics) of an ascending array; never above its maximum."""
    at = q * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    low, high = float(ordered[below]), float(ordered[above])
    if low == high or above == below:  # also keeps inf - inf out
        return low
    return high if np.isinf(high) and at > below else low + (high - low) * (at - below)


def median_of_known(values: Floats) -> float:
    """Of those that are not NaN; 0 without any."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0


def mean_of_known(values: Floats) -> float | None:
    """Of those that are not NaN; None without any."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def needed(q: float, miss: float = 0.025) -> int:
    """Independent values that a quantile with an interval of both sides needs: q**n <= 0.025 (p99: 368, p95: 72)."""
    return ceil(log(miss) / log(max(q, 1.0 - q)))


def fewest_values(q: float) -> int:
    """Values that a quantile without an interval needs to be called that: 1 / (1 - q), so 100 for p99, 20 for p95."""
    return max(3, ceil(1.0 / (1.0 - q) - 1e-9))


def quantile_name(q: float) -> str:
    """``p99`` for 0.99, ``p99.9`` for 0.999."""
    return f"p{100 * q:.6g}"


def estimate(data: Values, q: float, stationary: bool = True) -> QuantileEstimate:
    """The q-quantile with its 95 % interval.

    Requests: refused when even one side has no limit (n < 299 for p99). Tokens and gaps: refused when they are worth
    fewer than 1 / (1 - q) independent ones. No interval when fewer than one independent value lies beyond the quantile.
    No upper limit under ``needed(q)`` values, independent ones for requests beyond p95. A window that is not stationary
    gets the value of what was seen and no interval.
    """
    n = len(data)
    if n == 0:
        return QuantileEstimate(None, reason="nothing to measure in this window")
    if n < needed(q, 0.05):
        more = needed(q) - n
        return QuantileEstimate(
            None, reason=f"{n} {data.unit} cannot carry a {quantile_name(q)}: needs about {more} more"
        )
    value = value_of(data, q)
    if value is None:
        longest = latency(data.ordered[-1])
        return QuantileEstimate(
            None, reason=f"{quantile_name(q)} is longer than the longest wait seen so far ({longest})"
        )
    n_eff = independent(data, value, q)
    if data.unit != "requests" and stationary and n_eff < 1.0 / (1.0 - q):
        more = ceil(data.requests * (needed(q) / max(n_eff, 1.0) - 1.0))
        worth = f"worth about {plural(round(n_eff), 'independent one')}"
        values = plural(n, data.unit.removesuffix("s"), "are")
        return QuantileEstimate(
            None, reason=f"{values} {worth}: a {quantile_name(q)} needs about {plural(more, 'more request')}"
        )
    log_se = _log_se(data, q, n_eff)
    if not stationary:
        return QuantileEstimate(value, interval_reason=NOT_STATIONARY, log_se=log_se)
    n_eff /= data.carry
    if n_eff < max(2.0, 1.0 / (1.0 - q)):
        words_ = f"worth about {plural(round(n_eff), 'independent value')}: no interval without about "
        more = ceil(data.requests * (needed(q) / max(n_eff, 1.0) - 1.0))
        return QuantileEstimate(value, interval_reason=f"{words_}{plural(more, 'more request')}", log_se=log_se)
    low, high = _limits(data, q, max(2.0, n_eff * _kept(data, n_eff * min(q, 1.0 - q))))
    if low is None:
        return QuantileEstimate(value, interval_reason="what failed or has not ended hides the limits", log_se=log_se)
    reach = n_eff if data.unit == "requests" and q > 0.95 else n
    if q**reach > 0.025:
        more = ceil(data.requests * (needed(q) / reach - 1.0))
        high, reason = None, f"no upper limit: needs about {plural(more, 'more request')}"
    else:
        reason = "" if high is not None else "no upper limit: what failed or has not ended hides it"
    return QuantileEstimate(value, low, high, interval_reason=reason, log_se=log_se)


def mean(data: Values, stationary: bool = True) -> QuantileEstimate:
    """The mean with its 95 % interval from block sums: ratio estimator, variance times the carry-over, Student's t with
    ``freedom`` degrees, the heaviness of its values being their excess kurtosis."""
    if len(data) == 0:
        return QuantileEstimate(None, reason="nothing to measure in this window")
    value, counts = float(data.values.mean()), data.counts
    sums = np.bincount(data.block, weights=data.values, minlength=data.blocks)
    used = counts > 0
    if np.count_nonzero(used) < 3:
        return QuantileEstimate(value, interval_reason="fewer than 3 time blocks hold any")
    if not stationary:
        return QuantileEstimate(value, interval_reason=NOT_STATIONARY)
    variance = data.carry * _ratio_variance(sums[used], counts[used], value)
    squares = data.values - value
    np.square(squares, out=squares)
    spread = float(squares.mean())
    if variance <= 0.0 or spread <= 0.0:
        return QuantileEstimate(value, value, value)
    squares /= spread
    excess = max(float(np.square(squares, out=squares).mean()) - 3.0, 0.0)
    n_eff = min(float(len(data)), spread / variance)
    half = t_limit(1.0 + freedom(int(used.sum()), data.carry, excess / n_eff)) * float(np.sqrt(variance))
    return QuantileEstimate(value, max(value - half, 0.0), value + half)


def freedom(blocks: float, carry: float, heaviness: float = 0.0) -> float:
    """Degrees of freedom of a block variance: ``1 / (carry / (blocks - 1) + 2 heaviness)``.

    The relative variance of a sum of squares is 2 / (J - 1) for J independent normal blocks. Values come in episodes:
    few large ones add 3 K / n_eff when their sizes are exponential, 6 K / n_eff when these grow as length^1.5, K the
    kurtosis of the values; 4 is between them. Of a share p beyond a quantile K is 1 / p, and ``heaviness``, K / n_eff,
    one over how many independent values lie beyond (docs/method.md, step 5).
    """
    return 1.0 / (carry / max(blocks - 1.0, 1.0) + 2.0 * heaviness)


def independent(data: Values, value: float, q: float) -> float:
    """How many independent values the sample is worth for its q-quantile ``value`` (Korn and Graubard's n_eff).

    ``n / deff`` times ``(1.96 / t)**2`` for the few blocks it rests on, at most n. The design effect deff is the block
    variance of the share above ``value`` over that of independent values. For requests it is the largest of all lower
    quantiles too: the few requests beyond a p99 cannot show how they cluster.
    """
    known = None if data.censored is None else ~data.censored
    counts = data.counts
    if np.count_nonzero(counts) < 3:
        return 0.0
    effect = _design_effect(data, value, q, known)
    if data.unit == "requests":
        lower = [p for p in (0.5, 0.75, 0.9, 0.95, 0.99) if p < q]
        effect = max(
            [effect, *(_design_effect(data, v, p, known) for p in lower if (v := value_of(data, p)) is not None)]
        )
    kept = (1.96 / t_limit(int(np.count_nonzero(counts)))) ** 2
    return float(min(len(data), len(data) * kept / effect))


def carry_over(e2e_s: Floats, window_s: tuple[float, float]) -> float:
    """How much more a mean over the window varies than its blocks, taken for independent, tell. At least 1.

    Requests live across blocks, so what they share does too. With v(x) the variance of a mean over x seconds of a
    process whose autocorrelation is that of an M/G/inf system, ``rho(h) = E max(S - h, 0) / E S`` for end-to-end times
    S: ``J v(T) / (J / (J - 1) (v(L) - v(T)))`` for J blocks of L that make T.
    """
    e2e_s = e2e_s[e2e_s > 0.0]
    if len(e2e_s) == 0:
        return 1.0
    length_s = max(window_s[1] - window_s[0], 1e-9)
    _, blocks = blocks_of(np.empty(0), window_s)
    whole, block = _mean_variance(e2e_s, length_s), _mean_variance(e2e_s, length_s / blocks)
    return float(max(1.0, whole * (blocks - 1) / max(block - whole, 1e-9)))


def _mean_variance(e2e_s: Floats, length_s: float) -> float:
    """v(x) of ``carry_over``, in units of the variance of one instant: 2 / x^2 int_0^x (x - h) rho(h) dh."""
    short, long = np.minimum(e2e_s, length_s), np.maximum(e2e_s, length_s)
    return float(2.0 / length_s**2 * np.sum(short**2 * long / 2.0 - short**3 / 6.0) / e2e_s.sum())


def _design_effect(data: Values, value: float, q: float, known: Bools | None) -> float:
    if (value, q) not in data.effects:
        data.effects[value, q] = _effect(data, value, q, known)
    return data.effects[value, q]


def _effect(data: Values, value: float, q: float, known: Bools | None) -> float:
    """Block variance of the share above ``value``, less what its chances explain, over p (1 - p) / n; at least a half,
    which is chance."""
    block, expected = data.block, None if data.chances is None else data.chances(value)
    if known is None:
        counts = data.counts
        up_to, below = (
            np.array([block.searchsorted(value, side) for block in data.by_block]) for side in ("right", "left")
        )
        over, ties = (counts - up_to).astype(np.float64), up_to - below
    else:  # whose side of the quantile is unknown says nothing
        above, equal = data.values > value, data.values == value
        sure = known | above
        above, equal, block = above[sure], equal[sure], block[sure]
        expected = None if expected is None else expected[sure]
        counts = np.bincount(block, minlength=data.blocks)
        over = np.bincount(block[above], minlength=data.blocks).astype(np.float64)
        ties = np.bincount(block[equal], minlength=data.blocks)
    if ties.sum() > 1:  # of those that equal the quantile count the share that makes 1 - q of all
        over += ties * min(max((1.0 - q) * counts.sum() - over.sum(), 0.0) / ties.sum(), 1.0)
    used, n = counts > 0, int(counts.sum())
    p = float(over.sum()) / max(n, 1)
    if np.count_nonzero(used) < 3 or not 0.0 < p < 1.0:
        return 1.0
    if expected is not None:
        over -= np.bincount(block, weights=expected, minlength=data.blocks)
    return max(0.5, _ratio_variance(over[used], counts[used], float(over.sum()) / n) * n / (p * (1.0 - p)))


def t_limit(blocks: float) -> float:
    """97.5 % point of Student's t with ``blocks - 1`` degrees of freedom, at least 1."""
    return float(stdtrit(max(blocks - 1.0, 1.0), 0.975))


def kaplan_meier(values: Floats, censored: Bools, q: float) -> float | None:
    """q-quantile when some values are only known to be longer (Kaplan and Meier 1958).

    Smallest value at which the survival estimate is at most ``1 - q``; None when it never gets there.
    """
    order = np.lexsort((censored, values))  # of equal values those that ended come first
    ended = ~censored[order]
    at_risk = len(values) - np.arange(len(values))
    survival = np.cumprod(1.0 - ended / at_risk)
    reached = np.flatnonzero(survival <= 1.0 - q + 1e-12)
    return float(values[order][reached[0]]) if len(reached) else None


def value_of(data: Values, q: float) -> float | None:
    """The q-quantile; None where what is censored hides it."""
    if data.censored is None:
        return quantile(data.ordered, q)
    return kaplan_meier(data.values, data.censored, q)


def _kept(data: Values, beyond: float) -> float:
    """What is left of n_eff, ``(t_{J-1} / t_v)**2`` with v of ``freedom``: ``independent`` took J - 1 degrees.

    ``beyond``: how many independent values lie beyond the quantile. Requests do not come in episodes of their own: what
    they share is the largest design effect of all lower quantiles already.
    """
    blocks = int(np.count_nonzero(data.counts))
    heaviness = 0.0 if data.unit == "requests" else 1.0 / beyond
    return (t_limit(blocks) / t_limit(1.0 + freedom(blocks, data.carry, heaviness))) ** 2


def _limits(data: Values, q: float, n_eff: float) -> tuple[float | None, float | None]:
    """Lower and upper limit: the sample's quantiles at the Clopper-Pearson limits of q; None where they are hidden."""
    k = n_eff * q
    low = value_of(data, float(betaincinv(k, n_eff - k + 1.0, 0.025)))
    high = value_of(data, float(betaincinv(k + 1.0, max(n_eff - k, 1e-9), 0.975)))
    return low, high if high is not None and np.isfinite(high) else None


def _log_se(data: Values, q: float, n_eff: float) -> float | None:
    """Standard error of the logarithm, ln(high / low) / 3.92; None without both limits."""
    low, high = _limits(data, q, n_eff) if n_eff >= 2.0 else (None, None)
    return log(high / low) / 3.92 if low is not None and high is not None and low > 0.0 else None


def _ratio_variance(tops: Floats | Ints, counts: Ints, ratio: float) -> float:
    """Variance of sum(tops) / sum(counts) from J blocks: J / (J - 1) sum((top - ratio count)^2) / (sum count)^2."""
    blocks = len(counts)
    squares = float(np.square(tops - ratio * counts).sum())
    return blocks / (blocks - 1.0) * squares / float(counts.sum()) ** 2
