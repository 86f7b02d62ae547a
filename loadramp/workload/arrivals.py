"""Arrival processes: a rate, a duration and an rng to an array of due times. Pure.

Each function returns ascending instants in ``[0, duration_s)``, shape (n,), float64 seconds from the step's begin.
One with a key ``file`` gets the instants of a trace as its first argument.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from loadramp.registry import Choice, options_of
from loadramp.workload.prompts.trace_formats import FormatName, TimeUnit
from loadramp.workload.prompts.traces import Window

Floats = NDArray[np.float64]
Positive = Annotated[float, Meta(gt=0)]


@dataclass(slots=True, frozen=True)
class Instants:
    """When the requests of a trace came: ascending seconds from the begin of its window, which lasts ``span_s``."""

    t_s: Floats
    span_s: float

    @property
    def rate_rps(self) -> float:
        """The trace's own mean rate."""
        return len(self.t_s) / self.span_s


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


def replay(
    trace: Instants,
    rate_rps: float,
    duration_s: float,
    rng: np.random.Generator,
    *,
    file: str = "",
    format: FormatName = "auto",
    time_unit: TimeUnit | None = None,
    window_s: Window | None = None,
    columns: Mapping[str, str] | None = None,
    only: Mapping[str, str] | None = None,
    at_end: Literal["repeat", "stop"] = "repeat",
) -> Floats:
    """The gaps of a trace, divided by one speed factor: ``rate_rps`` over the trace's own mean rate. Ignores ``rng``.

    Every step begins at the begin of the window. Without ``file`` the trace is that of ``[prompts]``, row by row.
    """
    speed = rate_rps / trace.rate_rps
    passes = int(np.ceil(duration_s * speed / trace.span_s)) if at_end == "repeat" else 1
    parts = []
    for k in range(passes):
        until_s = duration_s * speed - k * trace.span_s
        parts.append(trace.t_s[: np.searchsorted(trace.t_s, until_s)] + k * trace.span_s)
    due_s = np.concatenate(parts) / speed if parts else np.empty(0)
    return np.asarray(due_s[due_s < duration_s])


def diurnal(
    rate_rps: float,
    duration_s: float,
    rng: np.random.Generator,
    *,
    period_s: Positive = 600.0,
    swing: Annotated[float, Meta(ge=0, le=1)] = 0.5,
    shape: Annotated[list[Annotated[float, Meta(ge=0)]], Meta(min_length=2)] | None = None,
) -> Floats:
    """Poisson arrivals whose rate goes up and down like a day that lasts ``period_s``; its mean is ``rate_rps``.

    ``rate_rps * (1 + swing * sin(2 pi t / period_s))``, or straight lines between the relative rates of ``shape``,
    which are evenly spaced over the period and come round to the first.
    """
    return _modulated(rate_rps, duration_s, rng, *_day(period_s=period_s, swing=swing, shape=shape))


def spike(
    rate_rps: float,
    duration_s: float,
    rng: np.random.Generator,
    *,
    every_s: Positive = 60.0,
    spike_s: Positive = 5.0,
    factor: Annotated[float, Meta(ge=1, le=1000)] = 5.0,
) -> Floats:
    """Poisson arrivals that come ``factor`` times as fast for ``spike_s`` at the end of every ``every_s``.

    The mean is ``rate_rps``: between spikes the rate is ``rate_rps * every_s / (every_s + (factor - 1) * spike_s)``.
    """
    return _modulated(rate_rps, duration_s, rng, *_spikes(every_s=every_s, spike_s=spike_s, factor=factor))


ARRIVALS: dict[str, Callable[..., Any]] = {
    "constant": constant,
    "poisson": poisson,
    "gamma": gamma,
    "replay": replay,
    "diurnal": diurnal,
    "spike": spike,
}


def _day(*, period_s: float, swing: float, shape: Sequence[float] | None) -> tuple[Floats, Floats]:
    """Instants of one period of ``diurnal`` and the relative rate there."""
    if shape is None:
        phase = np.linspace(0.0, 1.0, 513)
        return phase * period_s, 1.0 + swing * np.sin(2.0 * np.pi * phase)
    phase = np.linspace(0.0, 1.0, len(shape) + 1)
    return phase * period_s, np.array([*shape, shape[0]])


def _spikes(*, every_s: float, spike_s: float, factor: float) -> tuple[Floats, Floats]:
    """Instants of one period of ``spike`` and the relative rate there."""
    calm_s = max(0.0, every_s - spike_s)
    edge_s = min(1e-6, every_s / 1e3)  # a step as a very steep line
    t_s = np.array([0.0, calm_s, min(every_s, calm_s + edge_s), every_s])
    return t_s, np.array([1.0, 1.0, factor, factor])


def check_due_times(result: Any, *args: Any) -> str:
    """What was expected of an arrival process from outside the repository if it returned something else; empty if all
    is well. The last arguments are rate, duration and rng."""
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


SHAPES: dict[str, Callable[..., tuple[Floats, Floats]]] = {"diurnal": _day, "spike": _spikes}
"""The kinds whose rate changes within a step; it begins at the begin of a period."""


def share_of(arrivals: Choice, begin_s: float, end_s: float) -> float:
    """Mean rate of an arrival process between two instants since its step's begin, over its mean rate in the long run.

    1 for every kind whose rate does not change.
    """
    if arrivals.kind not in SHAPES or end_s <= begin_s:
        return 1.0
    shape = SHAPES[arrivals.kind]
    t_s, relative = shape(**{name: arrivals.option(name) for name in options_of(shape)})
    period_s = float(t_s[-1])
    total = _area(t_s, relative)

    def until(at_s: float) -> float:
        periods, within_s = divmod(at_s, period_s)
        inside = np.append(t_s[t_s < within_s], within_s)
        return periods * total + _area(inside, np.interp(inside, t_s, relative))

    return (until(end_s) - until(begin_s)) / (end_s - begin_s) / (total / period_s)


def _modulated(rate_rps: float, duration_s: float, rng: np.random.Generator, t_s: Floats, relative: Floats) -> Floats:
    """A Poisson process of changing rate: a process of rate 1 whose time runs by the integral of the rate.

    Args:
        t_s: where ``relative`` is known, over one period, from 0; it is straight between these.
        relative: the rate there, in any unit; it is scaled so that its mean over the period is ``rate_rps``.
    """
    period_s = float(t_s[-1])
    steps = _areas(t_s, relative)
    scale = rate_rps * period_s / steps.sum()
    expected = np.concatenate(([0.0], np.cumsum(steps))) * scale  # arrivals up to each of t_s
    periods = int(np.ceil(duration_s / period_s))
    whole = _renewal(lambda n: rng.exponential(1.0, n), 1.0, periods * float(expected[-1]), 1.0)
    again, within = np.divmod(whole, expected[-1])
    i = np.clip(np.searchsorted(expected, within, side="right") - 1, 0, len(steps) - 1)
    left, rise = relative[i] * scale, (relative[i + 1] - relative[i]) * scale / (t_s[i + 1] - t_s[i])
    missing = within - expected[i]
    # solve left * x + rise * x**2 / 2 = missing, in the form that keeps its digits where rise is small
    root = np.sqrt(np.maximum(left**2 + 2.0 * rise * missing, 0.0))
    x = np.divide(2.0 * missing, left + root, out=np.zeros_like(missing), where=left + root > 0)
    due_s = again * period_s + t_s[i] + x
    return np.asarray(due_s[due_s < duration_s])


def _areas(t_s: Floats, relative: Floats) -> Floats:
    """Areas under straight lines, one between each two instants."""
    return np.asarray(np.diff(t_s) * (relative[1:] + relative[:-1]) / 2.0)


def _area(t_s: Floats, relative: Floats) -> float:
    return float(_areas(t_s, relative).sum())


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
