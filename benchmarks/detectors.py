"""Other knee rules that people use, to compare with ``ceiling``; docs/method.md says why none is the default.

Each is a function ``f(rows, *, options) -> Estimate`` on the climb's rows in order of their rates. If a rule names a
step, the rate is the geometric mean of the bracket [that step, the next]. With this folder on PYTHONPATH a scenario
selects one by ``[knee] kind = "detectors:usl"``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, sqrt
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta

from loadramp.analysis.load_errors import load_arrival_rps
from loadramp.analysis.offered_load import load_of
from loadramp.analysis.overload import climb
from loadramp.analysis.throughput import corpus_output_tokens, fit, read
from loadramp.record.row import Row
from loadramp.record.table import Floats
from loadramp.record.types import Estimate
from loadramp.units import multiple

Positive = Annotated[float, Meta(gt=0)]
Ratio = Annotated[float, Meta(gt=0, lt=1)]
Count = Annotated[int, Meta(ge=1)]
Latency = Literal["ttft_p50", "ttft_p99", "itl_p50", "itl_p99", "itl_mean", "gap_p99", "tpot_p50", "e2e_p50"]
Scale = Literal["linear", "log"]


def elasticity(
    rows: Sequence[Row],
    *,
    metric: Latency = "itl_p99",
    threshold: Positive = 1.0,
    sure: bool = False,
    in_a_row: Count = 1,
) -> Estimate:
    """First step from which ln latency grows more than ``threshold`` times as fast as ln rate.

    With the defaults the rule of thumb "p99 ITL turns super-linear". ``sure`` asks for it with 95 % confidence
    (p99 only, from the intervals), ``in_a_row`` for so many steps together.
    """
    steps = _with(rows, metric)
    if len(steps) < 2:
        return _unmeasurable("elasticity", metric)
    rates, values = _rates(steps), _values(steps, metric)
    width = np.diff(np.log(rates))
    growth = np.diff(np.log(values)) / width
    if sure:
        errors = np.array([0.2 if (s := row.statistic(metric).log_se) is None else s for row in steps])
        growth = growth - 1.645 * np.hypot(errors[1:], errors[:-1]) / width
    fired = growth > threshold
    for k in range(len(fired) - in_a_row + 1):
        if fired[k : k + in_a_row].all():
            return _bracket(
                "elasticity", steps, k, f"{metric} grows more than {multiple(threshold)} as fast as the rate"
            )
    return _not_found("elasticity", steps)


def extrapolation(rows: Sequence[Row], *, metric: Latency = "itl_p99", margin: Positive = 0.1) -> Estimate:
    """First step above the straight line through all earlier ones (at least 3) by more than ``margin``."""
    steps = _with(rows, metric)
    if len(steps) < 4:
        return _unmeasurable("extrapolation", metric)
    rates, values = _rates(steps), _values(steps, metric)
    for k in range(3, len(steps)):
        slope, offset = np.polyfit(rates[:k], values[:k], 1)
        if values[k] > (1.0 + margin) * (offset + slope * rates[k]):
            return _bracket("extrapolation", steps, k - 1, f"{metric} leaves the line of the steps before")
    return _not_found("extrapolation", steps)


def broken_stick(rows: Sequence[Row], *, metric: Latency = "itl_p99", slope: Positive = 1.0) -> Estimate:
    """Two straight lines in log-log, where BIC prefers them to one and the second is steeper than ``slope``."""
    steps = _with(rows, metric)
    if len(steps) < 5:
        return _unmeasurable("broken_stick", metric)
    x, y = np.log(_rates(steps)), np.log(_values(steps, metric))
    best: tuple[float, float, float] | None = None
    for at in np.linspace(x[1], x[-2], 200):
        design = np.column_stack((np.ones_like(x), x, np.maximum(x - at, 0.0)))
        rest, params = _least_squares(design, y)
        if best is None or rest < best[0]:
            best = (rest, float(at), float(params[1] + params[2]))
    assert best is not None
    straight, _ = _least_squares(np.column_stack((np.ones_like(x), x)), y)
    n = len(x)
    gain = n * log(max(straight, 1e-12) / max(best[0], 1e-12)) - 2.0 * log(n)  # two parameters more
    if gain <= 0.0 or best[2] <= slope:
        return _not_found("broken_stick", steps)
    rate = float(np.exp(best[1]))
    return Estimate("found", rate, rate, rate, "broken_stick", f"second slope {best[2]:.2g}")


def kneedle(
    rows: Sequence[Row],
    *,
    metric: Latency | Literal["throughput"] = "itl_p99",
    scale: Scale = "linear",
    sensitivity: Positive = 1.0,
) -> Estimate:
    """Satopaa et al. 2011: the point farthest from the chord of the curve scaled to the unit square.

    Latencies are taken as convex and rising, throughput as concave and rising.
    """
    steps = _with(rows, metric)
    if len(steps) < 3:
        return _unmeasurable("kneedle", metric)
    rates = _rates(steps)
    x, y = (np.log(v) if scale == "log" else v for v in (rates, np.maximum(_values(steps, metric), 1e-9)))
    if np.ptp(y) <= 0.0:
        return _not_found("kneedle", steps)
    x, y = (x - x[0]) / (x[-1] - x[0]), (y - y.min()) / np.ptp(y)
    apart = y - x if metric == "throughput" else x - y
    k = int(np.argmax(apart))
    if k in {0, len(steps) - 1} or apart[k] < sensitivity * float(np.diff(x).mean()) * 0.1:
        return _not_found("kneedle", steps)
    rate = float(rates[k])
    return Estimate("found", rate, rate, rate, "kneedle", f"{metric} bends most at {rate:.3g} req/s")


def hyperbola(rows: Sequence[Row], *, metric: Latency = "itl_p99") -> Estimate:
    """c of the least-squares fit ln(a + b / (1 - r / c)) to ln latency: the waiting time of a single queue."""
    steps = _with(rows, metric)
    if len(steps) < 4:
        return _unmeasurable("hyperbola", metric)
    rates, values = _rates(steps), _values(steps, metric)
    best: tuple[float, float] | None = None
    for c in np.geomspace(1.01 * rates[-1], 8.0 * rates[-1], 200):
        pole = 1.0 / (1.0 - rates / c)
        weights = 1.0 / values
        design = np.column_stack((weights, pole * weights))
        rest, params = _least_squares(design, np.ones_like(rates))
        if params[1] > 0.0 and (best is None or rest < best[0]):
            best = (rest, float(c))
    if best is None:
        return _not_found("hyperbola", steps)
    return Estimate("found", best[1], best[1], best[1], "hyperbola", f"{metric} tends to infinity there")


def usl(rows: Sequence[Row]) -> Estimate:
    """Gunther's universal scalability law on (mean in flight, throughput): its peak throughput."""
    steps = [row for row in _with(rows, "throughput") if row.in_flight_mean > 0]
    if len(steps) < 4:
        return _unmeasurable("usl", "throughput")
    n = np.array([row.in_flight_mean for row in steps])
    x = _values(steps, "throughput")
    _, params = _least_squares(np.column_stack((np.ones_like(n), n, n**2)) / (n / x)[:, None], np.ones_like(n))
    alone, contention, coherence = (float(value) for value in params)  # n / X = a + b n + c n^2
    if coherence > 0.0 and alone > 0.0:
        peak = sqrt(alone / coherence)
        rate = peak / (alone + contention * peak + coherence * peak**2)
    elif contention > 0.0:
        rate = 1.0 / contention
    else:
        return _not_found("usl", steps)
    if not rate > 0.0:
        return _not_found("usl", steps)
    return Estimate("found", rate, rate, rate, "usl", "peak of the fitted law")


def completions(rows: Sequence[Row], *, ratio: Ratio = 0.9) -> Estimate:
    """First step that finished fewer than ``ratio`` of its arrivals within its window."""
    steps = _with(rows, "done")
    for k, row in enumerate(steps):
        if row.done_rps < ratio * load_arrival_rps(row):
            return _bracket(
                "completions", steps, k - 1, f"{row.done_rps:.3g} of {load_arrival_rps(row):.3g} req/s done"
            )
    return _not_found("completions", steps) if steps else _unmeasurable("completions", "arrivals")


def signal(
    rows: Sequence[Row],
    *,
    name: Literal["any", "queue", "backlog", "backlog_slope", "backlog_size", "ttft_trend", "server_queue"] = "any",
) -> Estimate:
    """First step at which a signal of saturation fired: any, one of them, or one half of the backlog test alone."""
    steps = _with(rows, "throughput")
    for k, row in enumerate(steps):
        if _fired(row, name):
            return _bracket("signal", steps, k - 1, f"{name} fired at {load_of(row):.3g} req/s")
    return _not_found("signal", steps) if steps else _unmeasurable("signal", name)


def throughput_fit(rows: Sequence[Row], *, deficit_ratio: Ratio = 0.85) -> Estimate:
    """The min(r, c) fit of ``ceiling`` alone, without asking whether any queue grew."""
    steps = list(climb(rows).rows)
    mean = corpus_output_tokens(steps)
    rates = np.array([load_arrival_rps(row) for row in steps])
    through = np.array([read(row, mean).rate_rps for row in steps])
    if not steps or not (through < deficit_ratio * rates).any():
        return _not_found("throughput_fit", steps) if steps else _unmeasurable("throughput_fit", "throughput")
    rate = fit(rates, through, np.array([row.requests for row in steps], dtype=np.float64))
    return Estimate("found", rate, rate, rate, "throughput_fit", "throughput no longer follows the load")


DETECTORS: dict[str, Callable[..., Any]] = {
    "elasticity": elasticity,
    "extrapolation": extrapolation,
    "broken_stick": broken_stick,
    "kneedle": kneedle,
    "hyperbola": hyperbola,
    "usl": usl,
    "completions": completions,
    "signal": signal,
    "throughput_fit": throughput_fit,
}


def _with(rows: Sequence[Row], metric: str) -> list[Row]:
    """Rows that have the metric, of rates measured more than once the last."""
    column = f"{metric}_rps" if metric in {"throughput", "done"} else f"{metric}_s"
    return list({load_of(row): row for row in climb(rows).rows if row.number(column) is not None}.values())


def _rates(steps: Sequence[Row]) -> Floats:
    return np.array([load_of(row) for row in steps], dtype=np.float64)


def _values(steps: Sequence[Row], metric: str) -> Floats:
    column = f"{metric}_rps" if metric == "throughput" else f"{metric}_s"
    return np.array([row.number(column) for row in steps], dtype=np.float64)


def _fired(row: Row, name: str) -> bool:
    if name == "any":
        return bool(row.saturated)
    if name not in {"backlog_slope", "backlog_size"}:
        return name in row.signals
    seen = row.evidence.get("backlog")
    if not seen:
        return False
    if name == "backlog_size":
        return bool(seen["rise"] > seen["limit"])
    return bool(seen["p"] < 0.01 and seen["slope_rps"] > 0.05 * row.arrival_rps)


def _least_squares(design: Floats, y: Floats) -> tuple[float, Floats]:
    params = np.linalg.lstsq(design, y, rcond=None)[0]
    return float(np.square(y - design @ params).sum()), np.asarray(params, dtype=np.float64)


def _bracket(detector: str, steps: Sequence[Row], k: int, reason: str) -> Estimate:
    """Between step k and the next; ``k = -1``: at or below the first step."""
    high = load_of(steps[k + 1])
    if k < 0:
        return Estimate("below_range", high, None, high, detector, reason)
    low = load_of(steps[k])
    return Estimate("found", sqrt(low * high), low, high, detector, reason)


def _not_found(detector: str, steps: Sequence[Row]) -> Estimate:
    top = load_of(steps[-1])
    return Estimate("not_found_up_to", top, top, None, detector, f"nothing of the kind up to {top:.3g} req/s")


def _unmeasurable(detector: str, metric: str) -> Estimate:
    return Estimate("not_measurable", detector=detector, reason=f"too few steps with {metric}")
