"""Does the engine keep its own pace? Slow stretches that come and go, or a change that stays. Pure.

Only what the client sees is said here: that the step time changes, how often and by how much. Why it does is another
matter, and a return from a slow stretch is no change of capacity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from loadramp.analysis.diagnosis.gap_causes import CLIENT
from loadramp.analysis.diagnosis.queueing import kv_steps
from loadramp.analysis.diagnosis.symptoms import Case, StepView
from loadramp.analysis.long_run import LEAST_SHARE, LEAST_STRETCHES, LEAST_WHOLE
from loadramp.analysis.server_window import pages
from loadramp.analysis.step_time import LEAST_S, Stretch, slow_stretches
from loadramp.record.table import Floats
from loadramp.record.types import Confidence, Finding, Sample
from loadramp.units import latency, percent, plural

CLIENT_SHARE = 0.3
CONFIRMS, DENIES = 1.15, 1.05
"""The server's own mean gap in slow stretches over that outside: above the first it confirms them, below the second it
denies them."""
LEAST_COUNTED = 500.0
"""Gaps that the server counted, inside and outside, before its mean says anything."""


@dataclass(slots=True, frozen=True)
class Unstable:
    """The slow stretches of the steps in which the pace could be told from the load, and how slow each step was."""

    slow: Sequence[tuple[StepView, Stretch]]
    shares: Sequence[tuple[StepView, float]]
    """Every step that was looked at, and the share of its time that was slow."""
    measured_s: float

    @property
    def share(self) -> float:
        return sum(part.lasts_s for _, part in self.slow) / self.measured_s if self.measured_s else 0.0

    @property
    def comes_and_goes(self) -> bool:
        """There are several slow stretches, they take time worth speaking of, and at least two of them began and ended
        under observation: a single change of level is none of this."""
        whole = sum(
            step.window.window_s[0] + LEAST_S < part.begin_s and part.end_s < step.window.window_s[1] - LEAST_S
            for step, part in self.slow
        )
        return len(self.slow) >= LEAST_STRETCHES and whole >= LEAST_WHOLE and self.share >= LEAST_SHARE


def engine_unstable(case: Case) -> Finding | None:
    """The engine's step time changes by itself: it comes and goes, or it changed once within a step and stayed.

    Steps whose own load changes the pace are left out: overloaded, evicting, or shaped by a late client. The server's
    own inter-token latency, where it is known, confirms it (certain) or lays it at the way's door (possible).
    """
    steps = comparable_steps(case)
    slowness = unstable(steps)
    if slowness.comes_and_goes:
        sure, words = _server_says(case.run.samples, slowness)
        where = dict.fromkeys(step.index for step, _ in slowness.slow)
        return Finding("engine_unstable", sure, (*_words(slowness), *words), tuple(where))
    jumps = [(step, step.jump) for step in steps if step.jump]
    if not jumps:
        return None
    evidence = [jump.words(step.at) for step, jump in jumps[:3]]
    evidence.append("from outside it looks the same whether the machine, its neighbours or the replicas changed")
    return Finding("engine_unstable", "likely", tuple(evidence), tuple(step.index for step, _ in jumps))


def by_itself(case: Case) -> float:
    """How many times as long steps of the engine take when they are slow by themselves; 1: they never are."""
    steps = comparable_steps(case)
    slowness = unstable(steps)
    slow = [part.factor for _, part in slowness.slow] if slowness.comes_and_goes else []
    jumps = [step.jump.after_s / step.jump.before_s for step in steps if step.jump]
    return max([1.0, *slow, *(max(jump, 1.0 / jump) for jump in jumps)])


def comparable_steps(case: Case) -> list[StepView]:
    """Steps whose load does not change the pace by itself, and that no late client shaped."""
    busy = {step.index for step in (*case.over, *kv_steps(case))}
    return case.where(
        lambda step: step.index not in busy and step.gaps is not None and step.gaps.share(CLIENT) <= CLIENT_SHARE
    )


def unstable(steps: Sequence[StepView]) -> Unstable:
    """Slow stretches of at least a second in ``steps``; those whose streams tell nothing of the pace are left out."""
    slow: list[tuple[StepView, Stretch]] = []
    shares: list[tuple[StepView, float]] = []
    measured_s = 0.0
    for step in steps:
        if step.pace is None:
            continue
        stretches = slow_stretches(step.window, step.pace)
        slow += [(step, part) for part in stretches]
        length_s = len(step.pace.median_s) * step.pace.width_s
        shares.append((step, sum(part.lasts_s for part in stretches) / length_s))
        measured_s += length_s
    return Unstable(slow, shares, measured_s)


def _words(slowness: Unstable) -> list[str]:
    """What was seen, and what it does to the numbers."""
    low = min(slowness.slow, key=lambda pair: pair[0].load)[0]
    stretches = [part for step, part in slowness.slow if step is low]
    usual_s = float(np.median([part.usual_s for part in stretches]))
    slow_s = max(stretches, key=lambda part: part.lasts_s).pace_s
    parts = [part for _, part in slowness.slow]
    step, longest = max(slowness.slow, key=lambda pair: pair[1].lasts_s)
    evidence = [
        f"the engine's step time is unstable: {latency(usual_s)} and {latency(slow_s)} {low.at}",
        f"{plural(len(parts), 'slow stretch')} of median {np.median([part.lasts_s for part in parts]):.3g} s in "
        f"{slowness.measured_s:.0f} s, {percent(slowness.share)} of the time; the longest lasted "
        f"{longest.lasts_s:.3g} s, from {longest.begin_s:.0f} s into the run on, {step.at}",
    ]
    slower = float(np.median([part.factor for part in parts])) - 1.0
    least, most = (pick(share for _, share in slowness.shares) * slower for pick in (min, max))
    evidence.append(
        f"this makes the mean ITL of a step {percent(least)} to {percent(most)} longer than at the fast pace: "
        "short steps and short runs differ by that much by chance"
    )
    return evidence


def _server_says(samples: Sequence[Sample], slowness: Unstable) -> tuple[Confidence, list[str]]:
    """How sure the server's own inter-token latency makes it, and in which words.

    From the lowest step in which it counted enough gaps inside and outside the slow stretches.
    """
    by_url = pages([s for s in samples if "itl_s_sum" in s.values and "itl_s_count" in s.values])
    for counted, _ in sorted(slowness.shares, key=lambda pair: pair[0].load):
        slow = [(part.begin_s, part.end_s) for step, part in slowness.slow if step is counted]
        totals = _counted(by_url, counted.window.window_s, slow)
        if totals[:, 1].min() < LEAST_COUNTED:
            continue
        outside_s, inside_s = (totals[:, 0] / totals[:, 1]).tolist()
        evidence = [
            f"the server's own mean inter-token latency {counted.at} is {latency(inside_s)} in these stretches and "
            f"{latency(outside_s)} outside them"
        ]
        if inside_s > CONFIRMS * outside_s:
            return "certain", evidence
        if inside_s > DENIES * outside_s:
            return "likely", evidence
        return "possible", [*evidence, "so the delay may arise between server and client"]
    return "likely", []


def _counted(
    by_url: Mapping[str, Sequence[Sample]], window_s: tuple[float, float], slow: Sequence[tuple[float, float]]
) -> Floats:
    """Seconds and gaps that the servers counted outside (first row) and inside ``slow``; shape (2, 2).

    From the growth between two scrapes that both lie in one stretch, or with no slow time between them.
    """
    totals = np.zeros((2, 2))
    for scrapes in by_url.values():
        for a, b in pairwise(scrapes):
            grown = [b.values[name] - a.values[name] for name in ("itl_s_sum", "itl_s_count")]
            if min(grown) < 0.0 or a.t_s < window_s[0] or b.t_s > window_s[1]:
                continue
            if any(begin <= a.t_s and b.t_s <= end for begin, end in slow):
                totals[1] += grown
            elif not any(begin < b.t_s and a.t_s < end for begin, end in slow):
                totals[0] += grown
    return totals
