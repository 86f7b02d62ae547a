"""How slow an engine was in each window of a run, and how its latencies follow. Pure; docs/method.md, "Regimes"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from loadramp.judge.latency import FAMILIES, QUANTILES, Seen, Slower, families
from loadramp.judge.longrun import Track
from loadramp.record.table import Floats

USUAL = 0.25
"""The pace of the fast state, as a quantile of the pace."""
PIECE_S = 15.0
STRIDES = 8
BIN = 0.01
"""Of logarithms, in the distributions of values and of slowness."""
FLOOR_S = 1e-6
STEEPEST = 1.5
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


def met(seen: Seen, slower: Slower) -> dict[str, tuple[Floats, Floats]]:
    """Values of each family, seconds, and the mean log slowness of the time that each lasted."""
    plain, still = families(seen), families(seen, slower)
    return {
        name: (plain[name].values, np.log(np.maximum(plain[name].values, 1e-9) / np.maximum(still[name].values, 1e-9)))
        for name in FAMILIES
        if len(plain[name])
    }


@dataclass(slots=True)
class Following:
    """With what elasticity each family of latencies follows the slowness that its values met: least squares of their
    logarithms over all windows, each about its own means and weighted by the root of its number of values."""

    sums: dict[str, tuple[float, float]] = field(default_factory=dict)

    def add(self, found: Mapping[str, tuple[Floats, Floats]]) -> None:
        for name, (values, slowness) in found.items():
            x, y = slowness - slowness.mean(), np.log(np.maximum(values, FLOOR_S))
            squares, products = self.sums.get(name, (0.0, 0.0))
            root = float(np.sqrt(len(x)))
            self.sums[name] = squares + float(x @ x) / root, products + float(x @ (y - y.mean())) / root

    def of(self, name: str) -> float:
        """Between 0, a latency that has nothing to do with the pace, and STEEPEST."""
        squares, products = self.sums.get(name, (0.0, 0.0))
        return min(max(products / squares, 0.0), STEEPEST) if squares > 0.0 else 1.0


def responses(
    calm: Floats, slowness: Slowness, elasticity: float, span_s: float, length_s: float,
    quantiles: Sequence[float] = QUANTILES,
) -> tuple[float, list[float]]:  # fmt: skip
    """How much the mean and the quantiles of a window vary per unit of its mean log slowness.

    Standard deviation of their logarithms over that of the mean log slowness, over windows put together from pieces of
    the run: the values without regimes are slowed down as often and as much as the pieces were slow.

    Args:
        calm: values without regimes, seconds, shape (n,).
        slowness: of all windows.
        elasticity: with which the values follow it.
        span_s: how long one value lasts; it meets the mean slowness of so long a time.
        length_s: of the window.
        quantiles: which.
    """
    shares, lowest = _windows(slowness, span_s, length_s)
    grid = lowest + BIN * np.arange(shares.shape[1])
    sd = float((shares @ grid).std())
    if sd < FLOOR_S or elasticity == 0.0:
        return elasticity, [elasticity] * len(quantiles)
    logs = np.log(np.maximum(calm[:: max(1, len(calm) // MOST_VALUES)], FLOOR_S))
    begin = float(logs.min())
    counts = np.bincount(((logs - begin) / BIN).astype(np.int64)) / len(logs)
    shift = np.rint(elasticity * np.arange(shares.shape[1])).astype(np.int64)
    slowed = np.zeros((shares.shape[1], len(counts) + int(shift[-1])))
    for row, at in zip(slowed, shift.tolist(), strict=True):
        row[at : at + len(counts)] = counts
    mixed = shares @ slowed
    values = begin + BIN * np.arange(mixed.shape[1])
    below = np.cumsum(mixed, axis=1)
    of_mean = float(np.log(mixed @ np.exp(values)).std()) / sd
    return of_mean, [float(np.std([np.interp(q, line, values) for line in below])) / sd for q in quantiles]


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
        [np.bincount(((one - lowest) / BIN).astype(np.int64), minlength=bins)[:bins] / len(one) for one in pieces]
    )
    wanted, start = max(1, round(length_s / PIECE_S)), np.arange(len(pieces))
    shares = [
        np.mean([each[(start + stride * j) % len(pieces)] for j in range(wanted)], axis=0)
        for stride in range(1, 1 + STRIDES)
    ]
    return np.concatenate(shares), lowest
