"""How an engine's pace changes by itself: slow stretches, drift, stalls. Pure; all chance from one rng.

The path is a function of time alone: the same seed gives the same path whatever load the engine gets. Two engines with
generators of their own are independent, as two on one host were (docs/simulator.md, "Regimes").
"""

from bisect import bisect_right
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np

GRID_S = 0.25
"""The drift moves in steps of this length."""


@dataclass(slots=True, frozen=True)
class Stall:
    """Moments at which a step of the whole engine takes longer: garbage collection, a slow collective, a neighbour.

    They come on average every ``every_s`` of engine time, at random instants (gaps uniform in 0.5-1.5 of it) unless
    ``periodic``, and last ``duration_s``, or an exponential time of that mean.
    """

    every_s: float
    duration_s: float
    exponential: bool = False
    periodic: bool = False


@dataclass(slots=True, frozen=True)
class Slow:
    """Stretches of time in which every step takes ``factor`` times as long.

    The time between two stretches and the length of each are exponential, or exactly ``every_s`` and ``lasts_s`` when
    ``periodic``. ``spread`` is the standard deviation of the logarithm of the factor from stretch to stretch.
    """

    every_s: float
    """Mean time from the end of one stretch to the begin of the next."""
    lasts_s: float
    """Mean length."""
    factor: float
    """Median over the stretches."""
    spread: float = 0.0
    periodic: bool = False


@dataclass(slots=True, frozen=True)
class SlowDrift:
    """The logarithm of the step time wanders (Ornstein-Uhlenbeck) with this standard deviation and correlation time."""

    sd: float
    over_s: float


@dataclass(slots=True, frozen=True)
class Regimes:
    """What changes the pace of one engine. Where slow stretches overlap the larger factor counts."""

    slow: tuple[Slow, ...] = ()
    drift: SlowDrift | None = None
    stalls: tuple[Stall, ...] = ()

    @property
    def changes(self) -> bool:
        """Whether the factor on the step time is ever other than 1."""
        return bool(self.slow) or self.drift is not None


NO_REGIMES = Regimes()
CAPTURED = Regimes(
    slow=(
        Slow(every_s=1.3, lasts_s=0.45, factor=1.5, spread=0.18),
        Slow(every_s=20.0, lasts_s=5.0, factor=1.8, spread=0.2),
    ),
    drift=SlowDrift(sd=0.07, over_s=20.0),
)
"""Fitted to nine minutes of vLLM 0.25.1 on one H200, eager, 24 req/s: moments of about half a second, stretches of
about five, a slow wandering underneath (``benchmarks/regimes.py`` prints it beside what was captured)."""

REGIMES: dict[str, Regimes] = {
    "none": NO_REGIMES,
    "captured": CAPTURED,
    "doubling": Regimes(slow=(Slow(every_s=42.0, lasts_s=12.0, factor=2.0),)),
    "periodic_stalls": Regimes(stalls=(Stall(every_s=10.0, duration_s=0.3, periodic=True),)),
    "slow_drift": Regimes(drift=SlowDrift(sd=0.1, over_s=120.0)),
    "neighbour": Regimes(slow=(Slow(every_s=180.0, lasts_s=60.0, factor=1.5, spread=0.1),)),
}
"""By name, as the fault ``regimes`` takes them. All but ``captured`` are plausible, not measured: half speed for
stretches of 12 s, a collector every ten seconds, clocks that wander, a neighbour that works for about a minute."""


class RegimePath:
    """The factor on the step time along one realization that starts at ``start_s``, in its long-run state.

    Args:
        regimes: what changes the pace.
        rng: all chance; one generator an engine.
        start_s: the instant at which the path begins.
    """

    __slots__ = ("_drift", "_slow")

    def __init__(self, regimes: Regimes, rng: np.random.Generator, start_s: float = 0.0) -> None:
        chance = rng.spawn(len(regimes.slow) + 1)
        self._slow = [
            _Stretches(slow, generator, start_s) for slow, generator in zip(regimes.slow, chance[1:], strict=True)
        ]
        self._drift = _Wander(regimes.drift, chance[0], start_s) if regimes.drift else None

    def factor(self, t_s: float) -> float:
        """How many times as long things take at the instant ``t_s``; in any order of instants."""
        factor = max((stretches.factor(t_s) for stretches in self._slow), default=1.0)
        return factor * self._drift.factor(t_s) if self._drift else factor


class _Stretches:
    """One kind of slow stretch, drawn as far as was asked for."""

    __slots__ = ("_begin_s", "_end_s", "_factor", "_rng", "_slow")

    def __init__(self, slow: Slow, rng: np.random.Generator, start_s: float) -> None:
        self._slow, self._rng = slow, rng
        within = rng.random() < slow.lasts_s / (slow.every_s + slow.lasts_s)
        if slow.periodic:
            rest_s = rng.random() * (slow.lasts_s if within else slow.every_s)
        else:  # what is left of an exponential time is exponential
            rest_s = rng.exponential(slow.lasts_s if within else slow.every_s)
        self._begin_s = [start_s if within else start_s + rest_s]
        self._end_s = [start_s + rest_s if within else self._begin_s[0] + self._time(slow.lasts_s)]
        self._factor = [self._drawn()]

    def factor(self, t_s: float) -> float:
        while t_s >= self._end_s[-1]:
            self._begin_s.append(self._end_s[-1] + self._time(self._slow.every_s))
            self._end_s.append(self._begin_s[-1] + self._time(self._slow.lasts_s))
            self._factor.append(self._drawn())
        at = bisect_right(self._end_s, t_s)
        return self._factor[at] if t_s >= self._begin_s[at] else 1.0

    def _time(self, mean_s: float) -> float:
        return mean_s if self._slow.periodic else float(self._rng.exponential(mean_s))

    def _drawn(self) -> float:
        return exp(log(self._slow.factor) + self._slow.spread * float(self._rng.standard_normal()))


class _Wander:
    """An Ornstein-Uhlenbeck path of ln(step time), one value every GRID_S, drawn as far as was asked for."""

    __slots__ = ("_factor", "_fresh", "_keep", "_rng", "_start_s", "_value")

    def __init__(self, drift: SlowDrift, rng: np.random.Generator, start_s: float) -> None:
        self._rng, self._start_s = rng, start_s
        self._keep = exp(-GRID_S / drift.over_s)
        self._fresh = drift.sd * sqrt(1.0 - self._keep**2)
        self._value = drift.sd * float(rng.standard_normal())
        self._factor = [exp(self._value)]

    def factor(self, t_s: float) -> float:
        at = max(0, int((t_s - self._start_s) / GRID_S))
        while at >= len(self._factor):
            self._value = self._keep * self._value + self._fresh * float(self._rng.standard_normal())
            self._factor.append(exp(self._value))
        return self._factor[at]
