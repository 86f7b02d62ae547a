"""SLO capacity: the highest rate that meets every limit, by isotonic regression in log-log. Formulas: docs/method.md.

A latency that rises with the rate is what queues do; noise that breaks it is pooled away before the limit is crossed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np
from scipy.special import betaincinv

from loadramp.analysis.ceiling import ceiling
from loadramp.analysis.latency import BY_EVENTS, BY_TOKEN
from loadramp.analysis.load_errors import load_error_ratio, load_requests
from loadramp.analysis.offered_load import load_of
from loadramp.analysis.overload import Climb, climb
from loadramp.analysis.quantiles import needed, quantile_name
from loadramp.record.row import SHORT_NAMES, Row
from loadramp.record.table import Bools, Floats
from loadramp.record.types import EVENTS, Estimate, EstimateStatus
from loadramp.scenario.scenario import Slo
from loadramp.units import plural


@dataclass(slots=True, frozen=True)
class LimitCurve:
    """One limit along the ramp: value with its interval at each rate, all in a scale where they may be interpolated."""

    name: str
    rates: Floats
    values: Floats
    lows: Floats
    highs: Floats
    weights: Floats
    limit: float
    surely_met: Bools
    """Rates at which the limit is met beyond doubt."""

    def without_refuted(self) -> LimitCurve:
        """Without the rates at which the limit was missed beyond doubt though a higher one meets it beyond doubt: what
        missed it there is not the rate (a restart, a slow minute)."""
        met_above = np.append(np.logical_or.accumulate(self.surely_met[::-1])[::-1][1:], False)
        keep = ~((self.lows > self.limit) & met_above)
        columns = {name: getattr(self, name)[keep] for name in ("rates", "values", "lows", "highs", "weights")}
        return replace(self, surely_met=self.surely_met[keep], **columns)


@dataclass(slots=True, frozen=True)
class Crossing:
    """Where a line passes its limit: ``rate`` with interval; ``below``/``beyond`` when that is outside the range."""

    name: str
    rate: float
    """The lowest known rate when ``below``, the highest when ``beyond``."""
    low: float | None
    high: float | None
    below: bool = False
    beyond: bool = False
    doubtful: bool = False
    """``below``, but the interval of the lowest rate's value reaches down to the limit."""
    known_from_rps: float = 0.0
    """Below that rate no step carries the quantile."""


def slo_capacity(rows: Sequence[Row], slo: Slo) -> Estimate:
    """The highest rate within every limit, within ``error_ratio`` and, if asked, with ``good_ratio`` good requests and
    within ``malformed_ratio``. Errors and good requests are of those that were a load: a request that fails whatever
    the load says nothing about a rate.

    The smallest of the rates at which each limit is reached, and never above the ceiling: past it waits grow without
    end, however few of them a short step has seen.
    """
    limits, quantile = slo.limits, slo.quantile
    if not limits and slo.good_ratio is None and slo.malformed_ratio is None:
        return _none("not_measurable", "no limit is set in [slo]")
    climbed = climb(rows)
    if not climbed.rows:
        return _none("not_measurable", "no open-loop step could be used")
    if not any(row.ok for row in climbed.rows):
        return _none("not_measurable", "every request failed")
    lines = _lines(climbed, slo)
    lowest_rps = load_of(climbed.rows[0])
    crossings = [_since(cross(line.without_refuted()), line, lowest_rps) for line in lines if len(line.rates)]
    top = ceiling(rows)
    if top.known_rps is not None:
        crossings.append(Crossing("ceiling", top.known_rps, top.low_rps, top.high_rps, top.status == "below_range"))
    unknown = [metric for metric in limits if metric not in {line.name for line in lines}]
    if slo.good_ratio is not None and (why := _why_unknown(climbed.rows)):
        return _none("inconclusive", f"the share of good requests is not known: {why}")
    estimate = _answer(crossings, unknown, climbed, limits, quantile)
    if lower := missed_below(rows, slo, estimate):
        return replace(estimate, reason=f"{estimate.reason}; missed all the same at {rates_words(lower)}")
    return estimate


def missed_below(rows: Sequence[Row], slo: Slo, estimate: Estimate) -> list[float]:
    """Rates (req/s) below the ``slo_capacity`` found, at which a limit was missed beyond doubt all the same. As higher
    rates meet the limit, the rate does not explain it."""
    if estimate.rate_rps is None:
        return []
    top_rps = estimate.low_rps if estimate.low_rps is not None else estimate.rate_rps
    return [rate for rate in missed(rows, slo) if rate < top_rps]


def missed(rows: Sequence[Row], slo: Slo) -> list[float]:
    """Rates (req/s) at which a limit was missed beyond doubt: the whole interval lies above it or, of too few requests
    for the quantile, too large a share is beyond it."""
    climbed = climb(rows)
    if not climbed.rows:
        return []
    over = {
        float(rate)
        for line in _lines(climbed, slo)
        if line.name not in _guessed(climbed.rows)
        for rate, low in zip(line.rates, line.lows, strict=True)
        if low > line.limit
    }
    q = slo.quantile
    over |= {load_of(row) for row in climbed.rows for metric in slo.limits
               if _value(row, metric, q) is None and _clearly_over(row, metric, q)}  # fmt: skip
    return sorted(over)


def _guessed(rows: Sequence[Row]) -> frozenset[str]:
    """Limits whose values are upper bounds: they show that a limit is met, not that it is missed."""
    return BY_TOKEN if any(row.token_source == EVENTS for row in rows) else frozenset()


def _why_unknown(rows: Sequence[Row]) -> str:
    """Why the share of good requests is known of no row that decided any; empty where it is known of one."""
    decided = [row for row in rows if row.good_n]
    whys = [row.reasons.get("good_ratio", "") for row in decided if row.good_ratio is None]
    return whys[0] if whys and len(whys) == len(decided) else ""


def rates_words(rates: Sequence[float]) -> str:
    """``4, 8 req/s``."""
    return f"{', '.join(f'{rate:.3g}' for rate in rates)} req/s"


def _lines(climbed: Climb, slo: Slo) -> list[LimitCurve]:
    """Each limit along the ramp; a latency whose quantile no row carries is left out."""
    known = (_latency(climbed, metric, limit_s, slo.quantile) for metric, limit_s in slo.limits.items())
    lines = [line for line in known if line is not None]
    requests = [load_requests(row) for row in climbed.rows]
    lines.append(
        _share("error_ratio", climbed, [load_error_ratio(row) for row in climbed.rows], slo.error_ratio, requests)
    )
    if slo.good_ratio is not None:
        decided = [row.good_n - row.load_independent_errors for row in climbed.rows]
        bad = [_not_good(row, n) for row, n in zip(climbed.rows, decided, strict=True)]
        lines.append(_share("good_ratio", climbed, bad, 1.0 - slo.good_ratio, decided))
    if slo.malformed_ratio is not None:
        shares = [row.malformed_ratio for row in climbed.rows]
        lines.append(
            _share("malformed_ratio", climbed, shares, slo.malformed_ratio, [row.requests for row in climbed.rows])
        )
    return lines


def isotonic(values: Floats, weights: Floats) -> Floats:
    """Closest non-decreasing sequence by weighted squares (pool adjacent violators). Shapes (k,)."""
    pools: list[list[float]] = []  # mean, weight, count
    for value, weight in zip(values, weights, strict=True):
        pools.append([float(value), float(weight), 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, total, count = pools.pop()
            below = pools[-1]
            joint = below[1] + total
            pools[-1] = [(below[0] * below[1] + mean * total) / joint, joint, below[2] + count]
    return np.repeat([pool[0] for pool in pools], [int(pool[2]) for pool in pools])


def cross(line: LimitCurve) -> Crossing:
    """Where the isotonic line reaches its limit; its interval from where the limits of the values do.

    Latency curves bend upwards between two rates, so a straight line meets the limit too early: the upper end is put
    higher by a fifth of the step, at most to the next rate.
    """
    rate, below, beyond = _reach(line.rates, line.values, line.weights, line.limit)
    low, low_below, _ = _reach(line.rates, line.highs, line.weights, line.limit)
    high, surely_below, high_beyond = _reach(line.rates, line.lows, line.weights, line.limit)
    return Crossing(
        line.name,
        rate,
        None if low_below else min(low, rate),
        None if high_beyond else _bent(line.rates, max(high, rate)),
        below,
        beyond,
        doubtful=below and not surely_below,
    )


def _since(crossing: Crossing, line: LimitCurve, lowest_rps: float) -> Crossing:
    known_rps = float(line.rates[0])
    return replace(crossing, known_from_rps=known_rps) if known_rps > lowest_rps else crossing


def _reach(rates: Floats, values: Floats, weights: Floats, limit: float) -> tuple[float, bool, bool]:
    """Rate at which the isotonic line reaches ``limit`` (linear in ln rate), and whether it lies below or beyond."""
    line = isotonic(values, weights)
    over = np.flatnonzero(line > limit)
    if len(over) == 0:
        return float(rates[-1]), False, True
    i = int(over[0])
    if i == 0:
        return float(rates[0]), True, False
    share = (limit - line[i - 1]) / (line[i] - line[i - 1])
    return exp(log(rates[i - 1]) + share * log(rates[i] / rates[i - 1])), False, False


def _bent(rates: Floats, high: float) -> float:
    above = int(np.searchsorted(rates, high, side="right"))
    if not 0 < above < len(rates):
        return high
    step = float(rates[above] / rates[above - 1])
    return float(min(high * step**0.2, float(rates[above])))


def _latency(climbed: Climb, metric: str, limit_s: float, q: float) -> LimitCurve | None:
    """One latency limit, in logarithms; None when no row carries the quantile."""
    known = [(row, value) for row in climbed.rows if (value := _value(row, metric, q)) is not None and value > 0.0]
    if not known:
        return None
    values = np.log([value for _, value in known])
    spreads = np.array([_spread(row, metric) for row, _ in known])
    lows, highs = values - spreads, values + spreads
    rates = np.array([load_of(row) for row, _ in known], dtype=np.float64)
    weights = np.array([row.requests for row, _ in known], dtype=np.float64)
    return LimitCurve(metric, rates, values, lows, highs, weights, log(limit_s), highs < log(limit_s))


def _value(row: Row, metric: str, q: float) -> float | None:
    value = row.statistic(f"slo_{metric}").value
    if value is not None or (metric == "itl" and row.token_source == EVENTS):  # by events it is no upper bound
        return value
    return row.statistic(f"{metric}_{quantile_name(q)}").value


def _spread(row: Row, metric: str) -> float:
    """Half-width of the interval in logarithms: half of the printed one; where none is printed (not stationary, or too
    near the ceiling) twice what the blocks alone would give."""
    low, high = row.statistic(f"slo_{metric}").low, row.statistic(f"slo_{metric}").high
    if low and high:
        return log(high / low) / 2.0
    return 2.0 * 1.96 * (row.statistic(f"slo_{metric}").log_se or 0.0)


def _not_good(row: Row, decided: int) -> float | None:
    """Share of ``decided`` requests that were not good."""
    if row.good_ratio is None or decided <= 0:
        return None
    return max(0.0, 1.0 - row.good_ratio * row.good_n / decided)


def _share(
    name: str, climbed: Climb, shares: Sequence[float | None], limit: float, counts: Sequence[int]
) -> LimitCurve:
    """A share that must not exceed ``limit``, with its binomial (Clopper-Pearson) interval at each rate.

    Args:
        name: of the limit.
        climbed: the rows.
        shares: one a row; None: not known.
        limit: the largest share allowed.
        counts: how many requests each share is of.
    """
    known = [(row, share) for row, share in zip(climbed.rows, shares, strict=True) if share is not None]
    n = np.array([max(k, 1) for k, share in zip(counts, shares, strict=True) if share is not None], dtype=np.float64)
    values = np.array([share for _, share in known], dtype=np.float64)
    k = np.rint(values * n)
    lows = np.where(k > 0, betaincinv(np.maximum(k, 1), n - k + 1, 0.025), 0.0)
    highs = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 1), 0.975), 1.0)
    rates = np.array([load_of(row) for row, _ in known], dtype=np.float64)
    met = highs < limit
    highs = np.where(k == 0, 0.0, highs)  # no failure seen is not held against the rate
    return LimitCurve(name, rates, values, lows, highs, n, limit, met)


def _answer(
    crossings: Sequence[Crossing], unknown: Sequence[str], climbed: Climb, limits: Mapping[str, float], q: float
) -> Estimate:
    below = [crossing for crossing in crossings if crossing.below]
    lowest = [crossing for crossing in below if not crossing.known_from_rps]
    guessed = _guessed(climbed.rows)
    first = min(lowest, key=lambda c: (c.doubtful or c.name in guessed, c.rate), default=None)
    if first is not None and (first.doubtful or first.name in guessed):
        why = "longer steps ([ramp] measure_s or min_requests), or start lower"
        if first.name in guessed:
            why = BY_EVENTS
        words_ = f"{_limit(first.name, limits, q)} is missed at the lowest rate, but not beyond doubt: {why}"
        high_rps = min((c.high for c in crossings if c.high is not None), default=None)
        return Estimate("inconclusive", None, None, high_rps, "slo_capacity", words_, limit=first.name)
    if first is not None:
        words_ = f"{_limit(first.name, limits, q)} is missed at the lowest rate already: start lower"
        return Estimate("below_range", None, None, first.rate, "slo_capacity", words_, limit=first.name)
    if any(crossing.name not in guessed for crossing in below):
        return _unseen([crossing for crossing in crossings if crossing.name not in guessed], limits, q)
    if below:
        return _none("inconclusive", f"whether {_limit(below[0].name, limits, q)} is met is not known: {BY_EVENTS}")
    if unknown:
        return _unknown(unknown, climbed, q)
    first = min(
        (crossing for crossing in crossings if not crossing.beyond), key=lambda crossing: crossing.rate, default=None
    )
    shown = min(
        (crossing for crossing in crossings if crossing.beyond), key=lambda crossing: crossing.rate, default=None
    )
    if first is None:
        assert shown is not None  # the share of errors is known at every rate
        top = shown.rate
        words_ = f"every limit is met up to {top:.3g} req/s"
        if top < load_of(climbed.rows[-1]):
            words_ += f"; no step above it has the {plural(needed(q), 'request')} for {_limit(shown.name, limits, q)}"
        sure = min(top, *(0.0 if crossing.low is None else crossing.low for crossing in crossings))
        if sure < top:
            words_ += f", beyond doubt {f'up to {sure:.3g} req/s' if sure else 'at none of them'}"
        return Estimate("not_found_up_to", top, sure, None, "slo_capacity", words_)
    if first.name in guessed:
        certain = [c.high for c in crossings if c.name not in guessed and not c.beyond and c.high is not None]
        met = f"{_limit(first.name, limits, q)} is met up to {first.rate:.3g} req/s"
        words_ = f"{met}; above that it is not known: {BY_EVENTS}"
        return Estimate("inconclusive", None, first.low, min(certain, default=None), "slo_capacity", words_,
                        limit=first.name)  # fmt: skip
    lows = [crossing.low for crossing in crossings if not crossing.beyond]
    if shown is not None and shown.rate < first.rate:
        lows.append(shown.rate)  # that limit may be passed anywhere above
    high = min((crossing.high for crossing in crossings if crossing.high is not None), default=None)
    words_ = f"{_limit(first.name, limits, q)} is reached first"
    low = None if any(low_rps is None for low_rps in lows) else min(low_rps for low_rps in lows if low_rps is not None)
    if low is None and high is None:
        words_ = (
            f"{words_}, at about {first.rate:.3g} req/s, but neither a lower nor a higher rate shows it beyond doubt"
        )
        return Estimate("inconclusive", None, None, None, "slo_capacity", f"{words_}: longer steps", limit=first.name)
    high = None if high is None else max(high, first.rate)
    return Estimate("found", first.rate, low, high, "slo_capacity", words_, limit=first.name)


def _unseen(crossings: Sequence[Crossing], limits: Mapping[str, float], q: float) -> Estimate:
    """A limit is missed at the lowest rate at which its quantile is known, and there are steps below that."""
    missed = min((crossing for crossing in crossings if crossing.below), key=lambda crossing: crossing.rate)
    highs = [crossing.high for crossing in crossings if crossing.high is not None and not crossing.below]
    reason = (
        f"{_limit(missed.name, limits, q)} is missed at {missed.rate:.3g} req/s, and no step below it has the "
        f"{plural(needed(q), 'request')} that show whether it is met there: make them longer ([ramp] measure_s or "
        f"min_requests)"
    )
    high_rps = min([missed.rate, *highs])
    return Estimate("inconclusive", None, None, high_rps, "slo_capacity", reason, limit=missed.name)


def _unknown(unknown: Sequence[str], climbed: Climb, q: float) -> Estimate:
    """No step carries the quantile of some limit: say what is clear from the share beyond it, and what is needed."""
    failed = [(load_of(row), metric) for row in climbed.rows for metric in unknown if _clearly_over(row, metric, q)]
    most = max(row.ok for row in climbed.rows)
    what = " and ".join(f"{quantile_name(q)} {SHORT_NAMES.get(metric, metric)}" for metric in unknown)
    reason = f"no step has the {plural(needed(q), 'request')} that a {what} needs (at most {most})"
    if not failed:
        return _none("inconclusive", reason)
    rate, metric = min(failed)
    reason += f"; clearly missed at {rate:.3g} req/s"
    return Estimate("inconclusive", None, None, rate, "slo_capacity", reason, limit=metric)


def _clearly_over(row: Row, metric: str, q: float) -> bool:
    """The share of values beyond the limit exceeds 1 - q with 97.5 % confidence."""
    if metric in _guessed([row]):
        return False
    share, n = row.slo[metric].over_ratio if metric in row.slo else None, row.requests
    if not share:
        return False
    k = round(share * n)
    return k > 0 and float(betaincinv(k, n - k + 1, 0.025)) > 1.0 - q


def _limit(name: str, limits: Mapping[str, float], q: float) -> str:
    if name in limits:
        return f"{quantile_name(q)} {SHORT_NAMES.get(name, name)} of {limits[name]:g} s"
    named = {"error_ratio": "the error ratio", "good_ratio": "the share of good requests", "ceiling": "the ceiling",
             "malformed_ratio": "the share of answers with malformed events"}  # fmt: skip
    return named[name]


def _none(status: EstimateStatus, reason: str) -> Estimate:
    return Estimate(status, detector="slo_capacity", reason=reason)
