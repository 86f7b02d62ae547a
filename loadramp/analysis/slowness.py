"""How slow an engine was in each window of a run, and how its latencies follow. Pure; docs/method.md, "Regimes"."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log, sqrt

import numpy as np

from loadramp.analysis.latency import FAMILIES, QUANTILES, Slower, WindowView, families
from loadramp.analysis.long_run import Track, learn, tracks_of
from loadramp.analysis.quantiles import BLOCK_S
from loadramp.record.row import Row
from loadramp.record.table import Floats

USUAL = 0.25
"""The pace of the fast state, as a quantile of the pace."""
PIECE_S = 15.0
STRIDES = 8
BIN = 0.01
"""Of logarithms, in the distributions of values and of slowness."""
SLOWEST = 0.95
"""The slow times of an engine: the slowest twentieth, in blocks of BLOCK_S."""
FLOOR_S = 1e-6
STEEPEST = 1.5
LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99])
"""At which an elasticity is learnt."""
LEAST_VALUES, MOST_PARTS = 25, 10
"""Values that met about the same slowness, of which levels are taken; parts of one window at most."""
MOST_VALUES = 50_000
"""More values than these tell an elasticity or a distribution no better; evenly picked."""


@dataclass(slots=True, frozen=True)
class Slowness:
    """The logarithm of the pace over that of the fast state, block by block, of every window of a run.

    The fast state is that of all windows of the same load together: a window may have seen none of it.
    """

    tracks: Sequence[Track]
    logs: Sequence[Floats]

    def over(self, k: int, begin_s: float) -> Slower:
        """The mean of window ``k``, which begins at ``begin_s``, over spans of time, as a factor."""
        width_s, blocks = self.tracks[k].width_s, self.logs[k]
        edges = begin_s + width_s * np.arange(len(blocks) + 1)
        total = np.concatenate(([0.0], np.cumsum(blocks) * width_s))

        def factor(from_s: Floats, to_s: Floats) -> Floats:
            end = np.clip(to_s, edges[0] + FLOOR_S, edges[-1])
            begin = np.minimum(np.clip(from_s, edges[0], edges[-1]), end - FLOOR_S)
            return np.asarray(np.exp((np.interp(end, edges, total) - np.interp(begin, edges, total)) / (end - begin)))

        return factor


def slowness_of(tracks: Sequence[Track]) -> Slowness:
    levels = []
    for track in tracks:
        alike = [other.log_pace for other in tracks if track.load is not None and other.load == track.load]
        levels.append(float(np.quantile(np.concatenate(alike or [track.log_pace]), USUAL)))
    return Slowness(tracks, [track.log_pace - level for track, level in zip(tracks, levels, strict=True)])


def slow_times_factor(rows: Sequence[Row]) -> float:
    """How many times as much an engine does a second in the long run as in its slow times, by the steps of ``rows``
    that kept up: 1 where its pace is steady."""
    tracks = tracks_of(rows)
    if learn(rows) is None:
        return 1.0
    logs = slowness_of(tracks).logs
    means = []
    for track, each in zip(tracks, logs, strict=True):
        size = max(1, round(BLOCK_S / track.width_s))
        means += [each[i : i + size].mean() for i in range(0, max(1, len(each) - size // 2), size)]
    return float(np.exp(np.quantile(means, SLOWEST)) * np.exp(-np.concatenate(logs)).mean())


def met(window: WindowView, slower: Slower) -> dict[str, tuple[Floats, Floats]]:
    """Values of each family, seconds, and the mean log slowness of the time that each lasted."""
    plain, still = families(window), families(window, slower)
    return {
        name: (plain[name].values, np.log(np.maximum(plain[name].values, 1e-9) / np.maximum(still[name].values, 1e-9)))
        for name in FAMILIES
        if len(plain[name])
    }


@dataclass(slots=True, frozen=True)
class Elastic:
    """With what elasticity the values of one window follow the slowness: ``of`` where their logarithm without regimes
    is ``at``, in between in proportion; shapes (len(LEVELS),)."""

    at: Floats
    of: Floats

    def __call__(self, calm_logs: Floats) -> Floats:
        return np.asarray(np.interp(calm_logs, self.at, self.of), dtype=np.float64)

    def calm(self, logs: Floats, slowness: Floats) -> Floats:
        """The logarithms without regimes, shape (n,), of values that met this slowness.

        At each slowness the levels lie at ``at + of * slowness``; a value between two of them has an elasticity between
        theirs, one beyond them all that of the last.
        """
        low = self.at[0] + self.of[0] * slowness
        follows = np.full(len(logs), self.of[0])
        for j in range(1, len(self.at)):
            high = np.maximum(low, self.at[j] + self.of[j] * slowness)
            part = np.clip((logs - low) / np.maximum(high - low, FLOOR_S), 0.0, 1.0)
            follows = np.where(logs > low, self.of[j - 1] + part * (self.of[j] - self.of[j - 1]), follows)
            low = high
        return np.asarray(logs - slowness * follows)

    def chances(self, calm_logs: Floats, slowness: Floats) -> Callable[[float], Floats]:
        """How likely each value was to exceed a limit in seconds, by the slowness it met: the share of all of the
        window that would have, shape (n,)."""
        ordered, (each, back) = np.sort(calm_logs), np.unique(np.rint(slowness / BIN), return_inverse=True)

        def exceed(limit_s: float) -> Floats:
            calm = self.calm(np.full(len(each), log(max(limit_s, FLOOR_S))), BIN * each)
            return np.asarray(1.0 - np.searchsorted(ordered, calm, "right") / len(ordered))[back]

        return exceed


@dataclass(slots=True)
class Following:
    """With what elasticity each family of latencies follows the slowness that its values met, level by level.

    Tokens of plain decoding follow the pace in full, a gap that holds a prefill hardly: the tail of a family follows it
    otherwise than its middle. Least squares over all windows of the levels among values that met about the same
    slowness, each window about its own means and weighted by the root of its number of values.
    """

    sums: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)

    def add(self, measured: Mapping[str, tuple[Floats, Floats]]) -> None:
        for name, (values, slowness) in measured.items():
            met_, levels = _levels(values, slowness)
            x = met_ - met_.mean()
            squares, products = self.sums.get(name, (np.zeros(len(LEVELS)), np.zeros(len(LEVELS))))
            weight = float(np.sqrt(len(values))) / len(x)
            self.sums[name] = squares + weight * float(x @ x), products + weight * (x @ levels)

    def of(self, name: str, values: Floats, slowness: Floats) -> Elastic:
        """How the values of one window, seconds, follow the slowness that they met: elasticities between 0, a latency
        that has nothing to do with the pace, and STEEPEST."""
        squares, products = self.sums.get(name, (np.zeros(len(LEVELS)), np.ones(len(LEVELS))))
        slope = np.where(squares > 0.0, products / np.maximum(squares, FLOOR_S**2), 1.0)
        elasticity = np.clip(slope, 0.0, STEEPEST)
        met_, levels = _levels(values, slowness)
        return Elastic(np.maximum.accumulate((levels - np.outer(met_, elasticity)).mean(axis=0)), elasticity)


def _levels(values: Floats, slowness: Floats) -> tuple[Floats, Floats]:
    """Mean slowness, shape (m,), and levels of the logarithm, (m, len(LEVELS)), of m parts of the values that met
    about the same slowness."""
    evenly = slice(None, None, max(1, len(values) // MOST_VALUES))
    logs, slowness = np.log(np.maximum(values[evenly], FLOOR_S)), slowness[evenly]
    parts = np.array_split(np.argsort(slowness, kind="stable"), min(max(len(logs) // LEAST_VALUES, 1), MOST_PARTS))
    return (
        np.array([slowness[part].mean() for part in parts]),
        np.array([np.quantile(logs[part], LEVELS) for part in parts]),
    )


def responses(
    calm_logs: Floats, slowness: Slowness, elastic: Elastic, span_s: float, length_s: float,
    quantiles: Sequence[float] = QUANTILES,
) -> tuple[float, list[float]]:  # fmt: skip
    """How much the mean and the quantiles of a window vary per unit of its mean log slowness.

    Standard deviation of their logarithms over that of the mean log slowness, over windows put together from pieces of
    the run: the values without regimes are slowed down as often and as much as the pieces were slow.

    Args:
        calm_logs: logarithms of the values without regimes, shape (n,).
        slowness: of all windows.
        elastic: how the values follow it.
        span_s: how long one value lasts; it meets the mean slowness of so long a time.
        length_s: of the window.
        quantiles: which.
    """
    shares, lowest = _windows(slowness, span_s, length_s)
    grid = lowest + BIN * np.arange(shares.shape[1])
    sd = float((shares @ grid).std())
    logs = calm_logs[:: max(1, len(calm_logs) // MOST_VALUES)]
    if sd < FLOOR_S:
        return 1.0, [float(value) for value in np.interp(np.quantile(logs, quantiles), elastic.at, elastic.of)]
    begin = float(logs.min())
    counts = np.bincount(((logs - begin) / BIN).astype(np.int64)) / len(logs)
    steps = np.arange(len(counts))
    follows = elastic(np.asarray(begin + BIN * steps, dtype=np.float64))
    last = float(follows.max()) * shares.shape[1]
    slowed = np.array(
        [
            np.bincount(steps + np.rint(follows * k).astype(np.int64), counts, len(counts) + int(last) + 1)
            for k in range(shares.shape[1])
        ]
    )
    mixed = shares @ slowed
    values = begin + BIN * np.arange(mixed.shape[1])
    below = np.cumsum(mixed, axis=1)
    of_mean = float(np.log(mixed @ np.exp(values)).std()) / sd
    return of_mean, [float(np.std([np.interp(q, line, values) for line in below])) / sd for q in quantiles]


def usual_responses(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Root mean square of each statistic's responses over the steps.

    A quantile may lie where the values of one step are all alike, far from where slow times take it, and seem not to
    follow the pace: the other steps tell.
    """
    stems = {stem for each in steps for stem in each}
    return {stem: sqrt(np.mean([each[stem] ** 2 for each in steps if stem in each])) for stem in stems}


def _windows(slowness: Slowness, span_s: float, length_s: float) -> tuple[Floats, float]:
    """Windows put together from pieces: shares of time in bins of log slowness, (windows, bins), and the lowest bin."""
    pieces = []
    for track, logs in zip(slowness.tracks, slowness.logs, strict=True):
        span = max(1, round(span_s / track.width_s))
        felt = np.convolve(logs, np.full(span, 1.0 / span), "valid") if span < len(logs) else logs
        size = max(1, round(PIECE_S / track.width_s))
        pieces += [felt[i : i + size] for i in range(0, max(1, len(felt) - size // 2), size)]
    lowest = min(float(piece.min()) for piece in pieces)
    bins = 1 + int((max(float(piece.max()) for piece in pieces) - lowest) / BIN)
    each = np.array(
        [np.bincount(((part - lowest) / BIN).astype(np.int64), minlength=bins)[:bins] / len(part) for part in pieces]
    )
    wanted, start = max(1, round(length_s / PIECE_S)), np.arange(len(pieces))
    shares = [
        np.mean([each[(start + stride * j) % len(pieces)] for j in range(wanted)], axis=0)
        for stride in range(1, 1 + STRIDES)
    ]
    return np.concatenate(shares), lowest
