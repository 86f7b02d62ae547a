"""What one arm did in one block of time, as the numbers that two arms are compared by. Pure.

A block has no interval of its own: the spread over blocks is the uncertainty. What too few values carry is None.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import log

import numpy as np

from loadramp.analysis import latency
from loadramp.analysis.proportions import Proportion
from loadramp.analysis.quantiles import FLOOR_S, Values, fewest_values, quantile
from loadramp.analysis.step_time import steady_s
from loadramp.record.row import SHORT_NAMES
from loadramp.record.table import Floats, Table
from loadramp.record.types import EVENTS
from loadramp.scenario.scenario import Slo

QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
SHIFT_QUANTILES = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)


@dataclass(slots=True, frozen=True)
class Measure:
    """One number of a block. ``worse`` is +1 where more is worse (latencies), -1 where less is (rates)."""

    words: str
    worse: int = 1
    family: str = ""
    statistic: str = ""


MEASURES: dict[str, Measure] = {
    **{
        f"{family}_{statistic}": Measure(f"{statistic} {words}" if statistic != "mean" else f"mean {words}", 1, family,
                                         statistic)
        for family, words in SHORT_NAMES.items()
        for statistic in (*QUANTILES, "mean")
    },
    "step_time": Measure("step time outside slow stretches"),
    "output_tokens_per_s": Measure("output tokens a second", -1),
    "good_rps": Measure("good requests a second", -1),
}  # fmt: skip
CEILING = Measure("ceiling", -1)
OF_TOKENS = frozenset({
    "step_time", "output_tokens_per_s", *(name for name, one in MEASURES.items() if one.family in {"itl", "tpot"}),
})  # fmt: skip
"""Measures that depend on how many tokens an event carries."""
COUNTED_OTHERWISE = "one side sends no usage, so its events count as tokens, and an event may carry several"
"""Why these compare nothing then."""


def words_of(metric: str) -> str:
    return CEILING.words if metric == "ceiling" else MEASURES[metric].words


@dataclass(slots=True, frozen=True)
class Block:
    """One arm in one block: numbers by measure (seconds, tokens/s, req/s), why some are None, and failures."""

    values: Mapping[str, float | None]
    reasons: Mapping[str, str] = field(default_factory=dict)
    failures: Proportion = field(default_factory=Proportion)
    shift: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """Quantiles at SHIFT_QUANTILES by family, seconds."""
    pending: int = 0
    length_s: float = 60.0


def measure(
    table: Table,
    window_s: tuple[float, float],
    slo: Slo = Slo(),  # noqa: B008 (frozen)
    shift: bool = True,
) -> Block:
    """The block of ``window_s``.

    Args:
        table: every request that was alive in the window; requests belong to the block they were due in, gaps to the
            one they ended in.
        window_s: begin and end, seconds since the run began.
        slo: ``good_rps`` needs its limits.
        shift: also the quantiles of the shift plot.
    """
    window = latency.window_view(table, window_s)
    families = latency.families(window)
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, measure in MEASURES.items():
        if measure.family:
            values[name], why = _statistic(families[measure.family], measure.statistic)
            if why:
                reasons[name] = why
    values["step_time"] = steady_s(window)
    if values["step_time"] is None:
        reasons["step_time"] = "too few tokens to tell the engine's pace"
    arrived = float(window.arrivals(1)[0][0])
    values["output_tokens_per_s"] = arrived / window.length_s if arrived else None
    if not arrived:
        reasons["output_tokens_per_s"] = "no token arrived"
    if slo.limits:
        fine, _, unknown = latency.good(window, slo)
        values["good_rps"] = None if unknown else fine / window.length_s
        if unknown:
            reasons["good_rps"] = latency.BY_EVENTS
    else:
        values["good_rps"], reasons["good_rps"] = None, "the scenario sets no [slo] limit"
    return Block(
        values,
        reasons,
        failures_of(window.due),
        {name: _shift(families[name]) for name in SHORT_NAMES} if shift else {},
        int(np.count_nonzero(window.due.in_flight & ~window.due.unfinished)),
        window.length_s,
    )


def counted_alike(sources: Iterable[str | None]) -> bool:
    """Whether both sides, or neither, say how many tokens an event carries; None: a side that answered nothing."""
    return len({source == EVENTS for source in sources if source}) < 2


def without_tokens(block: Block) -> Block:
    """The block without its measures of tokens."""
    values, reasons = dict.fromkeys(OF_TOKENS), dict.fromkeys(OF_TOKENS, COUNTED_OTHERWISE)
    return replace(block, values={**block.values, **values}, reasons={**block.reasons, **reasons})


def failures_of(due: Table) -> Proportion:
    """Failed of ended requests; those that this client did not send or cut off are not the server's."""
    of_client = np.asarray(due.error == "client", dtype=np.bool_)
    return Proportion(
        int(np.count_nonzero(due.failed & ~of_client)), int(np.count_nonzero(~due.in_flight & ~of_client))
    )


def pair_log(metric: str, base: float | None, candidate: float | None, length_s: float) -> float | None:
    """How much worse the candidate's block of ``length_s`` is: ln of the ratio, positive is worse; None where a side
    has no number.

    Good requests are counts: half a request is added to both sides, so that none at all is a large ratio, not infinity.
    """
    if base is None or candidate is None:
        return None
    if metric == "good_rps":
        base, candidate = base * length_s + 0.5, candidate * length_s + 0.5
    elif MEASURES[metric].family:
        base, candidate = max(base, FLOOR_S), max(candidate, FLOOR_S)
    if base <= 0.0 or candidate <= 0.0 or not np.isfinite(base) or not np.isfinite(candidate):
        return None
    return MEASURES[metric].worse * log(candidate / base)


def _statistic(data: Values, statistic: str) -> tuple[float | None, str]:
    n = len(data)
    if n == 0:
        return None, "nothing to measure in this block"
    if statistic == "mean":
        return float(data.values.mean()), ""
    q = QUANTILES[statistic]
    if n < fewest_values(q):
        return None, f"{n} {data.unit} in a block cannot carry a {statistic}: it needs {fewest_values(q)}"
    return quantile(data.ordered, q), ""


def _shift(data: Values) -> list[float | None]:
    ordered: Floats = data.ordered
    return [
        max(quantile(ordered, q), FLOOR_S) if len(ordered) >= fewest_values(max(q, 1.0 - q)) else None
        for q in SHIFT_QUANTILES
    ]
