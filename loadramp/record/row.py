"""One row of the curve: what one measured step showed. Flattened to the columns of docs/format.md only where written.

Rule: a null has its reason beside it, under the name of its column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from loadramp.record.types import Role
from loadramp.units import finite

Measure = Literal["ttft", "sent_ttft", "tpot", "e2e", "gap", "itl", "all_ttft", "all_e2e"]
"""``all_*``: failed requests count as infinitely long."""
SHORT_NAMES = {"ttft": "TTFT", "itl": "ITL", "tpot": "TPOT", "e2e": "E2E"}
LONG_NAMES = {
    "ttft": "time to first token",
    "itl": "inter-token latency",
    "tpot": "time per output token",
    "e2e": "end-to-end time",
}
"""What people call the latencies that limits and reports speak of."""


@dataclass(slots=True, frozen=True)
class Statistic:
    """A statistic of a latency with its 95 % interval, seconds. ``log_se``: standard error of its logarithm."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    log_se: float | None = None


@dataclass(slots=True, frozen=True)
class Quantiles:
    """The statistics of one latency over ``n`` values; None: not counted (``all_*``, which have no mean either)."""

    n: float | None = None
    mean: Statistic = Statistic()
    p50: Statistic = Statistic()
    p90: Statistic = Statistic()
    p95: Statistic = Statistic()
    p99: Statistic = Statistic()

    @property
    def statistics(self) -> list[tuple[str, Statistic]]:
        """The statistics that there are, by name."""
        mean = [] if self.n is None else [("mean", self.mean)]
        return [*mean, ("p50", self.p50), ("p90", self.p90), ("p95", self.p95), ("p99", self.p99)]

    def changed(self, measure: str, to: Mapping[str, Statistic]) -> Quantiles:
        """With other statistics, which ``to`` has by their stems (``ttft_p99``)."""

        def now(name: str, figure: Statistic) -> Statistic:
            return to.get(f"{measure}_{name}", figure)

        mean, p50, p90 = now("mean", self.mean), now("p50", self.p50), now("p90", self.p90)
        return Quantiles(self.n, mean, p50, p90, now("p95", self.p95), now("p99", self.p99))


@dataclass(slots=True, frozen=True)
class SloStatistic:
    """A latency at the quantile of the SLO, and the share of its values beyond the limit."""

    figure: Statistic = Statistic()
    over_ratio: float | None = None


@dataclass(slots=True, frozen=True)
class ClassFigures:
    """What the requests of one class of traffic showed."""

    requests: int
    ok: int = 0
    error_ratio: float | None = None
    arrival_rps: float = 0.0
    input_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    good_ratio: float | None = None
    latency: Mapping[str, float | None] = field(default_factory=dict)
    """By column (``ttft_p50_s``)."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a latency is null, by its column."""


NO_RECORD = "no_record"
"""The rule of a step that is void because its records are not all there, which says nothing of the client."""


@dataclass(slots=True, frozen=True)
class Void:
    """Why a step shows the client and not the server, and what to do about it."""

    what: str
    cure: str = ""
    rule: str = ""
    """Which rule found it (``late``, ``cpu``, ...): the same one has other figures in each step."""


@dataclass(slots=True, frozen=True)
class Row:
    """One row of the curve; the columns are explained in docs/format.md.

    Rows are never changed: a later judgement returns new ones.
    """

    step: int = 0
    role: Role = "step"
    rate_rps: float | None = None
    users: int | None = None
    partial: bool = False
    begin_s: float = 0.0
    window_begin_s: float = 0.0
    window_end_s: float = 0.0
    p99_itl_elasticity: float | None = None
    p99_itl_elasticity_se: float | None = None
    requests: int = 0
    ok: int = 0
    pending: int = 0
    malformed_events: int = 0
    malformed_answers: int = 0
    malformed_ratio: float | None = None
    errors: Mapping[str, int] = field(default_factory=dict)
    error_ratio: float | None = None
    load_independent_errors: int = 0
    load_error_ratio: float | None = None
    lag_p50_s: float | None = None
    lag_p99_s: float | None = None
    token_source: str | None = None
    arrival_rps: float = 0.0
    sent_rps: float = 0.0
    done_rps: float = 0.0
    throughput_rps: float = 0.0
    throughput_blocks: Sequence[float] = ()
    first_token_blocks: Sequence[float] = ()
    output_tokens_mean: float | None = None
    output_tokens_sd: float = 0.0
    output_tokens_n: float = 0
    input_tokens_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    peak_output_tokens_per_s: float = 0.0
    waiting_max: float | None = None
    running_max: float | None = None
    kv_used_ratio_max: float | None = None
    running_mean: float | None = None
    kv_used_ratio_mean: float | None = None
    prefix_hit_ratio: float | None = None
    spec_accept_ratio: float | None = None
    server_queue_mean_s: float | None = None
    server_ttft_mean_s: float | None = None
    server_itl_mean_s: float | None = None
    preemptions: float | None = None
    requests_rejected: float | None = None
    server_restarted: bool | None = None
    in_flight_begin: float = 0.0
    in_flight_end: float = 0.0
    in_flight_mean: float = 0.0
    in_flight_max: float = 0.0
    queue_first_third: float = 0.0
    queue_last_third: float = 0.0
    saturated: bool = False
    deficit: bool = False
    signals: Sequence[str] = ()
    evidence: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    began_with_backlog: bool = False
    settled: bool = True
    stationary: bool = True
    latency: Mapping[str, Quantiles] = field(default_factory=dict)
    stalled_ratio: float | None = None
    longest_gap_p99: Statistic = Statistic()
    longest_gap_max_s: float | None = None
    pace_s: Sequence[float] | None = None
    slow_times_s: Sequence[tuple[float, float]] | None = None
    pace_log_sd: float | None = None
    pace_degrees: float | None = None
    prefill_share: float | None = None
    good_ratio: float | None = None
    good_rps: float | None = 0.0
    good_n: int = 0
    slo: Mapping[str, SloStatistic] = field(default_factory=dict)
    """By metric of the SLO."""
    classes: Mapping[str, Mapping[str, ClassFigures]] | None = None
    """By kind (``label``, ``model``, ``turn``) and name."""
    sessions: Mapping[str, float | None] | None = None
    load_rps: float | None = None
    void: tuple[Void, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a column is null, by its name."""
    repeat: int = 0
    overloaded: bool | None = None
    ceiling_rps: float | None = None
    window_intervals: Mapping[str, tuple[float, float]] | None = None
    repeats: int | None = None
    windows: Sequence[tuple[float, float]] | None = None

    @property
    def window_s(self) -> tuple[float, float]:
        """The measured window (begin, end)."""
        return self.window_begin_s, self.window_end_s

    @property
    def length_s(self) -> float:
        """Measured seconds."""
        return self.window_end_s - self.window_begin_s

    @property
    def measured_windows(self) -> Sequence[tuple[float, float]]:
        """The measured window; of a row of several repeats, that of each that counts."""
        return self.windows or (self.window_s,)

    @property
    def ended(self) -> int:
        """Requests that have ended."""
        return self.requests - self.pending

    @property
    def failed(self) -> int:
        return sum(self.errors.values())

    @property
    def closed_loop(self) -> bool:
        """Users instead of a rate were asked."""
        return self.rate_rps is None and self.users is not None

    @property
    def load(self) -> float | None:
        """What was asked: the rate (req/s) of an open-loop row, the number of users of a closed-loop one."""
        asked = self.users if self.closed_loop else self.rate_rps
        return None if asked is None else float(asked)

    @property
    def axis_load(self) -> float | None:
        """Where the row stands on an axis of load: what was asked, or what was offered where that clearly differed."""
        return self.load if self.load_rps is None or self.closed_loop else self.load_rps

    def of(self, measure: Measure) -> Quantiles:
        """The statistics of a latency; all null where there are none."""
        return self.latency.get(measure, NOTHING)

    def statistic(self, stem: str) -> Statistic:
        """The statistic called ``stem`` (``ttft_p99``, ``all_e2e_p50``, ``slo_itl``, ``longest_gap_p99``); null where
        there is none."""
        measure, _, name = stem.rpartition("_")
        if measure == "slo":
            return self.slo[name].figure if name in self.slo else UNKNOWN
        if measure == "longest_gap":
            return self.longest_gap_p99 if name == "p99" else UNKNOWN
        return dict(self.latency[measure].statistics).get(name, UNKNOWN) if measure in self.latency else UNKNOWN

    @property
    def statistics(self) -> dict[str, Statistic]:
        """Every statistic of a latency by its stem, in the order of the columns."""
        figures = {
            f"{measure}_{name}": figure
            for measure, quantiles in self.latency.items()
            for name, figure in quantiles.statistics
        }
        figures["longest_gap_p99"] = self.longest_gap_p99
        return figures | {f"slo_{metric}": figure.figure for metric, figure in self.slo.items()}

    def with_statistics(self, changed: Mapping[str, Statistic], reasons: Mapping[str, str]) -> Row:
        """The row with other statistics, by their stems, and with ``reasons`` for what is null."""
        return replace(
            self,
            latency={measure: quantiles.changed(measure, changed) for measure, quantiles in self.latency.items()},
            longest_gap_p99=changed.get("longest_gap_p99", self.longest_gap_p99),
            slo={
                name: replace(figure, figure=changed.get(f"slo_{name}", figure.figure))
                for name, figure in self.slo.items()
            },
            reasons=reasons,
        )

    def number(self, column: str) -> float | None:
        """The number in a column; None where there is none."""
        if column in self.__dataclass_fields__:
            return finite(getattr(self, column))
        for suffix in ("_low_s", "_high_s", "_s"):
            if column.endswith(suffix):
                return finite(getattr(self.statistic(column.removesuffix(suffix)), _PARTS[suffix]))
        return finite((_latency_columns(self) | _slo_columns(self)).get(column))

    @property
    def void_what(self) -> str:
        """What made the step void; empty: nothing."""
        return "; ".join(dict.fromkeys(rule.what for rule in self.void))

    @property
    def no_record(self) -> bool:
        """Void because records of its requests are missing, not because the client could not deliver it."""
        return any(rule.rule == NO_RECORD for rule in self.void)

    @property
    def void_cure(self) -> str:
        """What to do about it."""
        return cures(self.void)

    def reason(self, column: str) -> str:
        """Why ``column`` is null, in words."""
        of_value = f"{column.removesuffix('_low_s').removesuffix('_high_s')}_s"
        if why := self.reasons.get(column) or self.reasons.get(of_value):
            return why
        if self.void:
            return f"void: {void_words(self.void)}"
        return "not measured" if self.requests else "no request was due in this window"


NOTHING, UNKNOWN = Quantiles(), Statistic()


def void_lines(void: Sequence[Void]) -> list[str]:
    """What happened, with every cure behind the last of it, once."""
    whats, cure = list(dict.fromkeys(rule.what for rule in void)), cures(void)
    return [*whats[:-1], f"{whats[-1]}; {cure}" if cure else whats[-1]] if whats else []


def cures(void: Sequence[Void]) -> str:
    return ", and ".join(dict.fromkeys(rule.cure for rule in void if rule.cure))


def void_words(void: Sequence[Void]) -> str:
    return "; ".join(void_lines(void))


def columns_of(row: Row) -> dict[str, Any]:
    """The documented columns of a row, in their order; what only some runs have is left out of the others."""
    out: dict[str, Any] = {}
    for name in Row.__dataclass_fields__:
        if name in _FLATTENED:
            out |= _FLATTENED[name](row)
        elif (value := getattr(row, name)) is not None or name not in OPTIONAL:
            out[name] = value
    return out


def _latency_columns(row: Row) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for measure, quantiles in row.latency.items():
        out |= {} if quantiles.n is None else {f"{measure}_n": quantiles.n}
        for name, figure in quantiles.statistics:
            out |= _interval(f"{measure}_{name}", figure)
        out |= {} if quantiles.n is None else {f"{measure}_p99_log_se": quantiles.p99.log_se}
    return out


def _slo_columns(row: Row) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for metric, figure in row.slo.items():
        stem = f"slo_{metric}"
        out |= _interval(stem, figure.figure)
        out |= {f"{stem}_log_se": figure.figure.log_se, f"{stem}_over_ratio": figure.over_ratio}
    return out


def _class_columns(row: Row) -> dict[str, Any]:
    """Nothing where all requests were of one class."""
    if row.classes is None:
        return {}
    return {"classes": {kind: {n: _flat(f) for n, f in named.items()} for kind, named in row.classes.items()}}


def _flat(figures: ClassFigures) -> dict[str, Any]:
    scalars = asdict(figures)
    latency, reasons = scalars.pop("latency"), scalars.pop("reasons")
    return {**scalars, **latency, **({"reasons": reasons} if reasons else {})}


def _interval(stem: str, figure: Statistic) -> dict[str, float | None]:
    return {f"{stem}{suffix}": getattr(figure, part) for suffix, part in _PARTS.items()}


_PARTS = {"_s": "value", "_low_s": "low", "_high_s": "high"}
OPTIONAL = frozenset({"sessions", "longest_gap_max_s", "window_intervals", "repeats", "windows"})
_FLATTENED: dict[str, Callable[[Row], dict[str, Any]]] = {
    "latency": _latency_columns,
    "longest_gap_p99": lambda row: _interval("longest_gap_p99", row.longest_gap_p99),
    "slo": _slo_columns,
    "classes": _class_columns,
    "void": lambda row: {"void": bool(row.void)},
    "reasons": lambda row: {"reasons": {**row.reasons, **({"void": void_words(row.void)} if row.void else {})}},
}
