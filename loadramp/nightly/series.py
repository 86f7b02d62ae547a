"""What a night leaves in the history, and a history read as one series a metric. Pure.

A night is the median of its runs; a run that could not measure is no night. Rule: nights are only compared within one
series: the same scenario, model and reference rate.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from loadramp.nightly.history import Entry
from loadramp.record.row import Row
from loadramp.record.table import Run


@dataclass(slots=True, frozen=True)
class Metric:
    """One number of a night: which way is better, its unit, and how people call it."""

    better: Literal["higher", "lower"]
    unit: Literal["req/s", "s", "tokens/s"]
    words: str
    estimate: str = ""
    """Which of the three numbers it is, or empty."""
    column: str = ""
    """Which column of the row at the reference rate it is, or empty."""


METRICS: dict[str, Metric] = {
    "ceiling_rps": Metric("higher", "req/s", "ceiling", estimate="ceiling"),
    "slo_capacity_rps": Metric("higher", "req/s", "SLO capacity", estimate="slo_capacity"),
    "knee_rps": Metric("higher", "req/s", "p99 ITL knee", estimate="p99_itl_knee"),
    "sustained_rps": Metric("higher", "req/s", "rate that a soak held"),
    "peak_output_tokens_per_s": Metric("higher", "tokens/s", "most output tokens a second of any step"),
    "ref_ttft_p50_s": Metric("lower", "s", "p50 TTFT at the reference rate", column="ttft_p50"),
    "ref_ttft_p99_s": Metric("lower", "s", "p99 TTFT at the reference rate", column="ttft_p99"),
    "ref_itl_p50_s": Metric("lower", "s", "p50 ITL at the reference rate", column="itl_p50"),
    "ref_itl_p99_s": Metric("lower", "s", "p99 ITL at the reference rate", column="itl_p99"),
    "ref_tpot_p50_s": Metric("lower", "s", "p50 TPOT at the reference rate", column="tpot_p50"),
    "ref_e2e_p50_s": Metric("lower", "s", "p50 E2E at the reference rate", column="e2e_p50"),
}
JUDGED = ("ceiling_rps", "ref_itl_p50_s", "ref_itl_p99_s", "ref_ttft_p50_s")
"""Judged unless the scenario says otherwise: each metric more is one more chance of a false alarm."""

SERIES_KEYS = ("scenario", "model", "reference_rps")
"""Of the fingerprint: a change of these makes another measurement, not another level."""
CONTEXT_KEYS = ("kv_blocks", "host", "libraries")
"""Of the fingerprint: named beside an alarm, but no reason for a new baseline."""


@dataclass(slots=True, frozen=True)
class NightReading:
    """One metric of one run: the value with its 95 % interval, or why there is none.

    Without a value ``low`` and ``high`` are bounds, where one is known: floors are judged by them, trends are not.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    sets_reference: bool = False
    """No value yet: this very run set the reference rate."""


@dataclass(slots=True, frozen=True)
class Night:
    """One metric of one night: the median of its runs, and of their intervals' limits."""

    night: str
    value: float
    low: float | None
    high: float | None
    runs: int
    spread_ratio: float | None
    """Standard deviation between the night's runs as a share of the value; None with one run."""
    rerun: bool
    fingerprint: Mapping[str, str]

    @property
    def log(self) -> float:
        return math.log(self.value)

    @property
    def baseline(self) -> tuple[tuple[str, str], ...]:
        """What the night must share with others to be compared with them night by night."""
        return tuple(sorted((k, v) for k, v in self.fingerprint.items() if k not in CONTEXT_KEYS))


def readings(run: Run, reference_rps: float | None, *, set_now: bool = False) -> dict[str, NightReading]:
    """Every metric of METRICS for a judged run.

    Args:
        run: with rows and estimates.
        reference_rps: the fixed rate at which latencies are compared; None: not known yet.
        set_now: this very run set it, so its ramp did not aim at it.
    """
    row, why = reference_row(run.rows, reference_rps)
    sets = row is None and set_now and reference_rps is not None
    if sets:
        why = f"this run set the reference rate, {reference_rps:.3g} req/s: measured from the next run on"
    out = {}
    for name, metric in METRICS.items():
        if metric.column:
            out[name] = (
                NightReading(None, reason=why, sets_reference=sets) if row is None else _of_row(row, metric.column)
            )
        elif metric.estimate:
            out[name] = _of_estimate(run, metric.estimate)
    ceiling = run.estimates.get("ceiling")
    held = ceiling.sustained_rps if ceiling else None
    out["sustained_rps"] = NightReading(held, reason="" if held else "no soak was quiet")
    most = [row.output_tokens_per_s for row in run.rows if not row.void and row.output_tokens_per_s]
    out["peak_output_tokens_per_s"] = NightReading(
        max(most, default=None), reason="" if most else "no step can be used"
    )
    return out


def reference_row(rows: Sequence[Row], reference_rps: float | None) -> tuple[Row | None, str]:
    """The row at the reference rate, or why there is none that may be used."""
    if reference_rps is None:
        return None, "no reference rate yet: it is set by the first ceiling found"
    at = [row for row in rows if row.rate_rps and abs(row.rate_rps / reference_rps - 1.0) < 1e-6]
    if not at:
        return None, f"no step at the reference rate of {reference_rps:.3g} req/s"
    usable = [row for row in at if not row.void]
    whole = [row for row in usable if not row.partial]
    if usable and not whole:
        return None, "the step at the reference rate was cut short"
    usable = whole
    if not usable:
        return None, f"void: {at[0].void[0].what}"
    return usable[0], ""


def _of_row(row: Row, column: str) -> NightReading:
    figure = row.statistic(column)
    if not figure.value:
        return NightReading(None, reason=row.reasons.get(f"{column}_s") or "not measured")
    return NightReading(figure.value, figure.low, figure.high)


def _of_estimate(run: Run, name: str) -> NightReading:
    """A rate that was found. Below the range counts where it has a rate: a collapse must not look like a gap. What a
    ramp only bounds keeps the bound: not found up to X is at least X."""
    estimate = run.estimates.get(name)
    if estimate is None:
        return NightReading(None, reason="no estimate was made")
    if estimate.known_rps:
        return NightReading(estimate.rate_rps, estimate.low_rps, estimate.high_rps)
    reason = f"{estimate.status.replace('_', ' ')}: {estimate.reason}"
    if estimate.status == "not_found_up_to":
        return NightReading(None, estimate.rate_rps, None, reason)
    return NightReading(None, estimate.low_rps, estimate.high_rps, reason)


def all_series(entries: Iterable[Entry]) -> dict[str, list[Night]]:
    """The nights of each metric, in order. Entries of one series (see ``of_series``)."""
    by_metric: dict[str, dict[str, list[Entry]]] = {}
    for entry in entries:
        if entry.kind == "measured" and entry.value and entry.value > 0.0:
            by_metric.setdefault(entry.metric, {}).setdefault(entry.night, []).append(entry)
    return {
        metric: [_night(night, lines) for night, lines in sorted(by_night.items())]
        for metric, by_night in by_metric.items()
    }


def series(entries: Iterable[Entry], metric: str) -> list[Night]:
    """The nights of one metric."""
    return all_series(entry for entry in entries if entry.metric == metric).get(metric, [])


def _night(night: str, entries: Sequence[Entry]) -> Night:
    """The median of the first runs; after a re-run the mean (of logarithms) of both medians."""
    first = [e for e in entries if not e.rerun]
    again = [e for e in entries if e.rerun]
    middles = [_middle(part, "value") for part in (first, again) if part]
    logs = [math.log(v) for v in middles if v]
    values = [e.value for e in entries if e.value]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1)) / mean if len(values) > 1 else None
    return Night(
        night=night,
        value=math.exp(sum(logs) / len(logs)),
        low=_middle(entries, "low"),
        high=_middle(entries, "high"),
        runs=len(entries),
        spread_ratio=spread,
        rerun=bool(first and again),
        fingerprint=entries[-1].fingerprint,
    )


def minimum_reading(entries: Iterable[Entry], metric: str, night: str) -> NightReading | None:
    """What a floor on ``metric`` is judged by: the night's value, and the medians of its runs' limits; a run without a
    value counts by its bounds. None where no run of the night tells anything.

    A number without an interval (what a soak held, tokens a second) is its own limits.
    """
    lines = [e for e in entries if (e.kind, e.metric, e.night) == ("measured", metric, night)]
    known = [e for e in lines if e.value is not None or e.low is not None or e.high is not None]
    if not known:
        return None
    nights = series(known, metric)
    value = nights[0].value if nights else None
    if not (METRICS[metric].column or METRICS[metric].estimate):
        return NightReading(value, value, value)
    low, high = _middle(known, "low"), _middle(known, "high")
    if value is not None and ((low is not None and value < low) or (high is not None and value > high)):
        value = None  # most runs only bound it
    return NightReading(value, low, high, next((e.reason for e in known if e.reason), ""))


def _middle(entries: Sequence[Entry], name: Literal["value", "low", "high"]) -> float | None:
    """The median of what is known. Of limits: of all, one that is not known being endless; None where that is it."""
    numbers = [getattr(e, name) for e in entries]
    if name == "value":
        known = [value for value in numbers if value is not None]
        return float(median(known)) if known else None
    endless = -math.inf if name == "low" else math.inf
    middle = median([endless if limit is None else limit for limit in numbers])
    return float(middle) if math.isfinite(middle) else None


def of_series(entries: Sequence[Entry], scenario: str | None = None) -> list[Entry]:
    """The entries that may be compared with the latest one: its scenario, and equal in SERIES_KEYS.

    Failed runs and accepted levels of the scenario are kept: they name no series.
    """
    entries_of_scenario = [entry for entry in entries if scenario is None or entry.scenario == scenario]
    measured = [entry for entry in entries_of_scenario if entry.kind == "measured"]
    if not measured:
        return entries_of_scenario
    latest = measured[-1]
    key = series_key(latest.fingerprint)
    return [
        entry
        for entry in entries_of_scenario
        if entry.scenario == latest.scenario
        and (entry.kind in {"failed", "accepted"} or series_key(entry.fingerprint) == key)
    ]


def latest_night(entries: Iterable[Entry]) -> str:
    """The last night that was measured or failed; empty where there is none."""
    return max((entry.night for entry in entries if entry.kind in {"measured", "failed"}), default="")


def series_key(fingerprint: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(fingerprint.get(key, "") for key in SERIES_KEYS)


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Keys of the fingerprint that differ, with the value before and after; what was or is absent is ``"-"``."""
    keys = [*before, *(key for key in after if key not in before)]
    pairs = {key: (before.get(key, "-"), after.get(key, "-")) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
