"""Did the endpoint change while it was measured? A jump of the pace within a step, or replicas that came or went. Pure.

The pace is the median gap of plain decoding in each block of time. Rule: what prompts or the number of streams explain
is no change of capacity, and what does not last is none either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from loadramp.judge import attribute
from loadramp.judge.pace import block_medians
from loadramp.judge.queueing import kv_steps
from loadramp.judge.symptoms import Case, StepSeen, indices
from loadramp.record.table import Floats
from loadramp.record.types import Confidence, Finding, Sample
from loadramp.wording import latency

BLOCK_S = 1.0
SIDE_BLOCKS = 6
"""A level lasts at least so many blocks on both sides."""
GAPS_A_BLOCK = 8
JUMP_RATIO = 1.25
GONE_S = 10.0


@dataclass(slots=True, frozen=True)
class Jump:
    """The pace changed at ``t_s`` from one median gap to another, and stayed."""

    t_s: float
    before_s: float
    after_s: float


def autoscaler_moved(case: Case) -> Finding | None:
    """The capacity changed during the ramp: an autoscaler, a throttled or replaced machine, a noisy neighbour."""
    jumps = [(one, jump) for one in case.steps if (jump := jump_of(one))]
    evidence = [
        f"{jump.t_s:.0f} s into the run, {one.at}, the median gap went from {latency(jump.before_s)} to "
        f"{latency(jump.after_s)} and stayed there"
        for one, jump in jumps
    ]
    replicas = replicas_moved(case.run.samples)
    evidence += replicas
    steps = [one for one, _ in jumps]
    busy = {one.index for one in (*case.over, *kv_steps(case))}  # a batch that fills up or thrashes changes pace itself
    sure: Confidence = "likely" if replicas or any(one.index not in busy for one in steps) else "possible"
    if not evidence:
        steps, evidence = _recovered(case)
        sure = "possible"
    return Finding("autoscaler_moved", sure, tuple(evidence[:4]), indices(steps)) if evidence else None


def jump_of(one: StepSeen) -> Jump | None:
    """The largest lasting jump of the pace within a step, if there is one.

    Medians of blocks of a second (longer where there are fewer than 8 gaps in one), at least 6 on each side. Both sides
    differ by more than 25 % and by more than the number of streams does, do not overlap (p90 of the lower against p10
    of the higher), and the jump happens within four blocks.
    """
    if one.gaps is None:
        return None
    plain = attribute.undisturbed(one.seen, one.gaps.median_s) & (one.seen.gaps.gap_s > 0.0)
    gap_s, at_s = one.seen.gaps.gap_s[plain], one.seen.gaps.end_s[plain]
    begin_s, end_s = one.seen.window_s
    width_s = max(BLOCK_S, GAPS_A_BLOCK * (end_s - begin_s) / max(len(gap_s), 1))
    n = int((end_s - begin_s) / width_s)
    if n < 2 * SIDE_BLOCKS:
        return None
    pace_s = block_medians(gap_s, np.minimum(((at_s - begin_s) / width_s).astype(np.int64), n - 1), n, 3)
    streams = _streams(one, begin_s + (np.arange(n, dtype=np.float64) + 0.5) * width_s)
    known = ~np.isnan(pace_s)
    if np.count_nonzero(known) < 0.8 * n:
        return None
    pace = np.log(np.where(known, pace_s, np.nanmedian(pace_s)))
    k = _split(pace)
    left, right = pace[:k], pace[k:]
    if not _lasting(left, right) or not _sudden(pace, np.log(np.maximum(streams, 1.0)), k):
        return None
    return Jump(begin_s + k * width_s, float(np.exp(np.median(left))), float(np.exp(np.median(right))))


def replicas_moved(samples: Sequence[Sample]) -> list[str]:
    """Words on metrics pages that began or ceased to answer in mid-run, and on capacity that they say changed."""
    by_url: dict[str, list[Sample]] = {}
    for s in samples:
        by_url.setdefault(s.url, []).append(s)
    out = []
    for number, own in enumerate(by_url.values(), start=1):
        told = [s.t_s for s in own if s.values]
        if not told:
            continue
        if told[0] - own[0].t_s > GONE_S:
            out.append(f"replica {number} appeared {told[0]:.0f} s into the run")
        if own[-1].t_s - told[-1] > GONE_S and len(by_url) > 1:
            out.append(f"replica {number} fell silent {told[-1]:.0f} s into the run")
        for name, words in (("kv_blocks", "KV blocks"), ("max_num_seqs", "largest batch")):
            levels = list(dict.fromkeys(s.values[name] for s in own if name in s.values))
            if len(levels) > 1:
                out.append(f"the {words} of replica {number} changed from {levels[0]:.0f} to {levels[-1]:.0f}")
    return out


def _recovered(case: Case) -> tuple[list[StepSeen], list[str]]:
    """Steps that were overloaded although a later one at a rate a quarter higher was not."""
    steps, words = [], []
    for one in case.climb:
        later = [b for b in case.climb if b.load > 1.25 * one.load and not (b.row["saturated"] or b.row["deficit"])]
        if one.row["saturated"] and one.row["deficit"] and later:
            steps.append(one)
            words.append(f"overloaded {one.at} but not {later[0].at}: capacity was added, or a hiccup passed")
    return steps, words


def _streams(one: StepSeen, t_s: Floats) -> Floats:
    """Streams under way at the instants ``t_s``."""
    near = one.seen.near
    last_s = np.where(near.in_flight, np.inf, near.last_s)[near.events > 0]
    first_s = near.first_s[near.events > 0]
    begun = np.searchsorted(np.sort(first_s), t_s, "right")
    return np.asarray(begun - np.searchsorted(np.sort(last_s), t_s, "right"), dtype=np.float64)


def _split(pace: Floats) -> int:
    """Where two levels fit best: the k that minimises the squared distance to the means of both sides."""
    n = len(pace)
    k = np.arange(SIDE_BLOCKS, n - SIDE_BLOCKS + 1)
    total, squares = np.cumsum(pace), float(np.square(pace).sum())
    left = total[k - 1]
    costs = squares - np.square(left) / k - np.square(total[-1] - left) / (n - k)
    return int(k[np.argmin(costs)])


def _lasting(left: Floats, right: Floats) -> bool:
    low, high = (left, right) if np.median(left) < np.median(right) else (right, left)
    apart = float(np.median(high) - np.median(low))
    return apart > log(JUMP_RATIO) and bool(np.quantile(low, 0.9) < np.quantile(high, 0.1))


def _sudden(pace: Floats, streams: Floats, k: int) -> bool:
    """Most of the difference arises within two blocks to either side, beyond what the change of streams explains.

    How the pace follows the streams (both as logarithms) is taken from within the two sides, half as much again and a
    tenth for noise in the counts, at most in proportion.
    """
    jump = float(np.median(pace[k + 1 : k + 4]) - np.median(pace[k - 4 : k - 1]))
    whole = float(np.median(pace[k:]) - np.median(pace[:k]))
    more = float(np.median(streams[k + 1 : k + 4]) - np.median(streams[k - 4 : k - 1]))
    x = np.concatenate((streams[:k] - streams[:k].mean(), streams[k:] - streams[k:].mean()))
    y = np.concatenate((pace[:k] - pace[:k].mean(), pace[k:] - pace[k:].mean()))
    slope = float((x * y).sum() / max(float(np.square(x).sum()), 1e-9))
    explained = min(max(1.5 * slope + 0.1, 0.1), 1.0) * (more if more * jump > 0.0 else 0.0)
    return jump * whole > 0.0 and abs(jump) > 0.7 * abs(whole) and abs(jump) - abs(explained) > 0.8 * log(JUMP_RATIO)
