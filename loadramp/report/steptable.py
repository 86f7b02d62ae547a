"""The table of steps as cells of text, for HTML, Markdown and the terminal. A null is a dash and a note on why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from loadramp.analysis import offered_load
from loadramp.record.row import SHORT_NAMES, Row
from loadramp.report import rows as r
from loadramp.units import NOTHING, count, latency, latency_span, percent, sig


@dataclass(slots=True, frozen=True)
class Column:
    """``key`` is the row's column whose reason explains an empty text; ``group`` stands above several heads."""

    head: str
    key: str
    text: Callable[[Row], str]
    group: str = ""
    small: Callable[[Row], str] | None = None
    rough: Callable[[Row], bool] | None = None

    @property
    def label(self) -> str:
        return f"{self.group} {self.head}".strip()


@dataclass(slots=True, frozen=True)
class StepCell:
    text: str
    small: str = ""
    note: int | None = None
    """Number of the note (from 1) that says why there is no number."""
    rough: bool = False
    """Its interval is wide (``ROUGH_RATIO``): shown in grey."""


ROUGH_RATIO = 0.25
ROUGH_WORDS = "its interval reaches further than 25 % from it"


@dataclass(slots=True)
class Sheet:
    """Cells by row and column; ``notes[n - 1]`` is note n."""

    columns: list[Column]
    lines: list[tuple[Row, list[StepCell]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def rough(self) -> bool:
        """Some cell is."""
        return any(cell.rough for _, cells in self.lines for cell in cells)

    def groups(self) -> list[tuple[str, int]]:
        """Runs of neighbouring columns under one group: (group, how many)."""
        out: list[tuple[str, int]] = []
        for column in self.columns:
            if out and column.group and out[-1][0] == column.group:
                out[-1] = (column.group, out[-1][1] + 1)
            else:
                out.append((column.group, 1))
        return out


def sheet(rows: Sequence[Row], columns: Sequence[Column]) -> Sheet:
    """Every row's cells; equal reasons share one note."""
    out = Sheet(list(columns))
    for row in rows:
        out.lines.append((row, [_cell(row, column, out.notes) for column in columns]))
    return out


def _cell(row: Row, column: Column, notes: list[str]) -> StepCell:
    text = column.text(row)
    if text:
        rough = column.rough is not None and column.rough(row)
        return StepCell(text, column.small(row) if column.small else "", rough=rough)
    why = row.reason(column.key)
    if why not in notes:
        notes.append(why)
    return StepCell(NOTHING, note=notes.index(why) + 1)


def columns_of(rows: Sequence[Row], *, good: bool) -> list[Column]:
    """The columns of the step table; ``good`` where a service level was set.

    What was offered has a column where it was not what was asked, malformed events where there were any.
    """
    closed = r.closed_loop(rows)
    out = [
        Column("Users" if closed else "Asked req/s", "users" if closed else "rate_rps", _asked),
        *([_OFFERED] if any(offered_load.differs(row) for row in rows) else []),
        Column("Requests", "requests", lambda row: count(row.requests)),
        Column("Failed", "errors", _failed),
        *([_MALFORMED] if any(row.malformed_answers for row in rows) else []),
        Column("Delivered req/s", "throughput_rps", lambda row: sig(row.throughput_rps, trim=False)),
        Column("Output tok/s", "output_tokens_per_s", lambda row: sig(row.output_tokens_per_s)),
    ]
    for metric in SHORT_NAMES:
        quantiles = ("p50", "p95", "p99") if metric in ("ttft", "itl") else ("p50", "p99")
        out += [_latency_column(metric, q) for q in quantiles]
        out += _STALLS if metric == "itl" else []
    if good:
        out.append(Column("Good", "good_ratio", lambda row: percent(row.good_ratio)))
    return [*out, Column("Verdict", "saturated", r.state_words)]


def short_columns(rows: Sequence[Row]) -> list[Column]:
    """What fits in 80 characters."""
    wanted = {"Asked req/s": "req/s", "Users": "Users", "Requests": "Due", "Failed": "Failed",
              "Delivered req/s": "Served", "Offered req/s": "Offered", "Malformed": "Malformed",
              "Verdict": "Verdict"}  # fmt: skip
    wanted |= dict.fromkeys(("TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "E2E p99"), "")
    chosen = [column for column in columns_of(rows, good=False) if column.label in wanted]
    return [replace(column, head=wanted[column.label] or column.head) for column in chosen]


_OFFERED = Column("Offered req/s", "arrival_rps", lambda row: sig(row.arrival_rps))
_MALFORMED = Column("Malformed", "malformed_ratio", lambda row: percent(row.malformed_ratio, 2))
"""Share of the answers with events that cannot be read."""
_STALLS = [
    Column("share", "stalled_ratio", lambda row: percent(row.stalled_ratio, 2), "Stall"),
    Column("p99 gap", "longest_gap_p99_s", lambda row: latency(row.longest_gap_p99.value, trim=False), "Stall"),
]
"""Beside ITL, because one stall of a request hardly shows among all its tokens."""


def _latency_column(metric: str, q: str) -> Column:
    name = f"{metric}_{q}"

    def between(row: Row) -> str:
        low, high = row.number(f"{name}_low_s"), row.number(f"{name}_high_s")
        if low is None:
            return ""
        return latency_span(low, high) if high is not None else f"≥ {latency(low)}"

    def rough(row: Row) -> bool:
        value, low, high = (row.number(f"{name}{end}_s") for end in ("", "_low", "_high"))
        return bool(value) and low is not None and (high is None or high - low > 2.0 * ROUGH_RATIO * (value or 0.0))

    return Column(q, f"{name}_s", lambda row: latency(row.number(f"{name}_s"), trim=False), SHORT_NAMES[metric],
                  between if q == "p99" else None, rough)  # fmt: skip


def _asked(row: Row) -> str:
    asked = sig(row.load)
    text = f"{asked} {row.role}" if asked and row.role != "step" else asked
    return f"{text} (partial)" if row.partial else text


def _failed(row: Row) -> str:
    return count(row.failed)
