"""What the server counted and how full it was between two instants, over all its replicas. Pure.

Unknown is None, never zero: after a restart, without a scrape near both ends, or when one of several replicas is
silent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from loadramp.analysis.quantiles import median_of_known
from loadramp.metrics.dialects import COUNTERS, fold
from loadramp.record.row import Row
from loadramp.record.table import Floats
from loadramp.record.types import Sample

SLACK_S = 2.0
"""How far a scrape may be from its instant; one and a half periods where scrapes are rarer."""
NEAR_S = 60.0
"""Scrapes further from a window than this say nothing about it."""


@dataclass(slots=True, frozen=True)
class Deltas:
    """How far each counter went, all replicas together. A name that no replica shows is not in ``values``."""

    values: Mapping[str, float | None]
    restarted: bool = False
    """A replica restarted between the two instants: its counters are unknown, and so are the sums."""

    def get(self, name: str) -> float | None:
        """The counter's growth, None when it is unknown or not shown."""
        return self.values.get(name)

    def ratio(self, over: str, under: str) -> float | None:
        """One counter's growth over another's, e.g. hits over queries, or a sum of seconds over its count."""
        top, bottom = self.get(over), self.get(under)
        return None if top is None or not bottom else top / bottom


@dataclass(slots=True, frozen=True)
class Gauge:
    """A gauge over a window, all replicas together: over time its mean, largest and smallest value of n."""

    mean: float
    max: float
    min: float
    n: int


def deltas(samples: Sequence[Sample], begin_s: float, end_s: float) -> Deltas:
    """Growth of every counter between the scrapes nearest to ``begin_s`` and ``end_s``.

    A counter that a replica shows at the end but not yet at the beginning began at zero: labelled counters are often
    made with their first count. A counter that went down, or a process that started anew, is a restart. Where a page
    came to name an asked model only between the two instants, its counters of before are another's: unknown.

    Args:
        samples: scrapes of all replicas, of the whole run or more than the window.
        begin_s: seconds since the run began.
        end_s: seconds since the run began.
    """
    values: dict[str, float | None] = {}
    restarted = False
    for scrapes in pages(sorted((s for s in samples if s.values), key=lambda sample: sample.t_s)).values():
        names = COUNTERS & set().union(*(s.values for s in scrapes if s.t_s <= end_s + SLACK_S))
        between = _between(scrapes, begin_s, end_s)
        turned = len({bool(s.unasked) for s in between}) > 1
        again = not turned and _restarted(between)
        restarted |= again
        for name in names:
            grown = None if again or turned or len(between) < 2 else _growth(between[0], between[-1], name)
            known = values.get(name, 0.0)
            values[name] = None if grown is None or known is None else known + grown
    return Deltas(values, restarted)


def with_server(row: Row, samples: Sequence[Sample]) -> Row:
    """The row with what the server says of its window; as it is when no page was read within it.

    A ratio comes from the counters where the engine has them, else from its gauge of the same name.
    """
    begin_s, end_s = row.window_s
    if not any(begin_s <= s.t_s < end_s and s.values for s in samples):
        return row
    near = [s for s in samples if begin_s - NEAR_S <= s.t_s <= end_s + NEAR_S]
    shown = gauges(near, begin_s, end_s)
    counted = deltas(near, begin_s, end_s)

    def largest(name: str) -> float | None:
        return shown[name].max if name in shown else None

    def mean(name: str) -> float | None:
        return shown[name].mean if name in shown else None

    def ratio(name: str, over: str, under: str) -> float | None:
        ratio = counted.ratio(over, under)
        return mean(name) if ratio is None and over not in counted.values else ratio

    return replace(
        row,
        waiting_max=largest("waiting"),
        running_max=largest("running"),
        kv_used_ratio_max=largest("kv_used_ratio"),
        running_mean=mean("running"),
        kv_used_ratio_mean=mean("kv_used_ratio"),
        prefix_hit_ratio=ratio("prefix_hit_ratio", "prefix_hits", "prefix_queries"),
        spec_accept_ratio=ratio("spec_accept_ratio", "spec_accepted_tokens", "spec_draft_tokens"),
        server_queue_mean_s=counted.ratio("queue_s_sum", "queue_s_count"),
        server_ttft_mean_s=counted.ratio("ttft_s_sum", "ttft_s_count"),
        server_itl_mean_s=counted.ratio("itl_s_sum", "itl_s_count"),
        preemptions=counted.get("preemptions"),
        requests_rejected=counted.get("requests_rejected"),
        server_restarted=counted.restarted,
    )


def without_server(row: Row) -> Row:
    """The row with nothing of what ``with_server`` adds."""
    return replace(
        row,
        waiting_max=None,
        running_max=None,
        kv_used_ratio_max=None,
        running_mean=None,
        kv_used_ratio_mean=None,
        prefix_hit_ratio=None,
        spec_accept_ratio=None,
        server_queue_mean_s=None,
        server_ttft_mean_s=None,
        server_itl_mean_s=None,
        preemptions=None,
        requests_rejected=None,
        server_restarted=None,
    )


def gauges(samples: Sequence[Sample], begin_s: float, end_s: float) -> dict[str, Gauge]:
    """Every gauge over ``[begin_s, end_s)``; one that a replica showed before but not in the window is left out.

    A replica's value holds until its next scrape; replicas are joined as the quantity says (``metrics.dialects``).
    """
    before_end = [s for s in samples if s.t_s < end_s]
    shown: dict[str, set[str]] = {}
    for s in before_end:
        for name in s.values.keys() - COUNTERS:
            shown.setdefault(name, set()).add(s.url)
    inside = sorted((s for s in before_end if s.t_s >= begin_s), key=lambda sample: sample.t_s)
    out = {}
    for name, urls in shown.items():
        totals = _totals(inside, name, urls)
        if totals:
            out[name] = Gauge(sum(totals) / len(totals), max(totals), min(totals), len(totals))
    return out


def _totals(inside: Sequence[Sample], name: str, urls: set[str]) -> list[float]:
    latest: dict[str, float] = {}
    totals = []
    for s in inside:
        if name in s.values:
            latest[s.url] = s.values[name]
            if len(latest) == len(urls):
                totals.append(fold(name, latest.values()))
    return totals


def pages(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """The samples of each page, failed scrapes included, in the order given."""
    out: dict[str, list[Sample]] = {}
    for s in samples:
        out.setdefault(s.url, []).append(s)
    return out


def engine_pages(samples: Sequence[Sample]) -> list[list[Sample]]:
    """The samples of each page that showed an engine's numbers, not a GPU's alone."""
    return [
        scrapes
        for scrapes in pages(samples).values()
        if any(not name.startswith("gpu_") for s in scrapes for name in s.values)
    ]


def gauge_series(samples: Sequence[Sample], name: str) -> tuple[Floats, Floats]:
    """A gauge over time: instants and values, replicas joined as the quantity says.

    With several replicas the value at each scrape takes the latest value of the others.
    """
    readings = [s for s in sorted(samples, key=lambda s: s.t_s) if name in s.values]
    latest: dict[str, float] = {}
    values = []
    for sample in readings:
        latest[sample.url] = sample.values[name]
        values.append(fold(name, latest.values()))
    return np.array([s.t_s for s in readings], dtype=np.float64), np.array(values, dtype=np.float64)


def growth_series(samples: Sequence[Sample], name: str) -> tuple[Floats, Floats]:
    """What a counter grew by between scrapes of one replica, all replicas together; a reset counts as no growth."""
    before: dict[str, float] = {}
    at, grown = [], []
    for sample in sorted(samples, key=lambda s: s.t_s):
        if name not in sample.values:
            continue
        total = sample.values[name]
        if sample.url in before:
            at.append(sample.t_s)
            grown.append(max(0.0, total - before[sample.url]))
        before[sample.url] = total
    return np.array(at, dtype=np.float64), np.array(grown, dtype=np.float64)


def _between(scrapes: Sequence[Sample], begin_s: float, end_s: float) -> Sequence[Sample]:
    """From the scrape nearest ``begin_s`` to that nearest ``end_s``; none when one of them is too far off."""
    spacing_s = median_of_known(np.diff([scrape.t_s for scrape in scrapes]))
    allowed_s = max(SLACK_S, 1.5 * spacing_s)
    first = min(range(len(scrapes)), key=lambda i: abs(scrapes[i].t_s - begin_s))
    last = min(range(len(scrapes)), key=lambda i: abs(scrapes[i].t_s - end_s))
    near = abs(scrapes[first].t_s - begin_s) <= allowed_s and abs(scrapes[last].t_s - end_s) <= allowed_s
    return scrapes[first : last + 1] if near else []


def _restarted(between: Sequence[Sample]) -> bool:
    known: dict[str, float] = {}
    for s in between:
        for name in s.values.keys() & known.keys():
            value, before = s.values[name], known[name]
            if (value < before and name in COUNTERS) or (name == "process_start_s" and abs(value - before) > 1.0):
                return True
        known.update(s.values)
    return False


def _growth(first: Sample, last: Sample, name: str) -> float | None:
    end = last.values.get(name)
    return None if end is None else end - first.values.get(name, 0.0)
