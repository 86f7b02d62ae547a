"""Which rows of a run the parts of the report show, and what they call them. Pure."""

from collections.abc import Sequence

from loadramp.analysis import offered_load
from loadramp.analysis.diagnosis.diagnose import STALLED_RATIO
from loadramp.analysis.overload import alarmed, highest
from loadramp.record.row import Row
from loadramp.record.table import Run
from loadramp.registry import data_of
from loadramp.units import percent, sig

WORDS: dict[str, dict[str, str]] = data_of(__package__, "words.toml")
"""What codes mean, by kind of code."""
ERROR_WORDS = WORDS["errors"]


def delivered(run: Run) -> list[Row]:
    """The steps that are not void: what failed in a void one may be the client's doing, so it counts nowhere. All of
    them where every one is void: then there is nothing else to tell."""
    return [row for row in run.rows if not row.void] or run.rows


def closed_loop(rows: Sequence[Row]) -> bool:
    """Users instead of rates were asked in all of them."""
    return bool(rows) and all(row.closed_loop for row in rows)


def load_unit(rows: Sequence[Row]) -> str:
    return "users" if closed_loop(rows) else "req/s"


def label(row: Row) -> str:
    """``8 req/s``, ``13.6 req/s soak``, ``32 users``; ``8 req/s (partial)`` where the step was cut short."""
    return f"{whole_label(row)} (partial)" if row.partial else whole_label(row)


def whole_label(row: Row) -> str:
    """The same, whether or not the step was cut short."""
    asked = row.load
    unit = "user" if asked == 1 and row.closed_loop else load_unit([row])
    text = f"step {row.step}" if asked is None else f"{sig(asked)} {unit}"
    return text if row.role == "step" else f"{text} {row.role}"


def labels(rows: Sequence[Row]) -> str:
    """The labels of rows, where plain rates name their unit once: ``4, 8 req/s, 6.8 req/s soak``."""
    plain = [bool(row.rate_rps) and row.role == "step" and not row.partial for row in rows]
    rates = ", ".join(sig(row.load) for row, is_plain in zip(rows, plain, strict=True) if is_plain)
    others = [label(row) for row, is_plain in zip(rows, plain, strict=True) if not is_plain]
    return ", ".join([f"{rates} req/s", *others] if rates else others)


def rising_rows(run: Run) -> list[Row]:
    """The rows of the ramp up (no soak, no way down), by load."""
    rows = [row for row in run.rows if row.role == "step" and row.load is not None]
    return sorted(rows, key=lambda row: row.axis_load or 0.0)


def of_role(run: Run, role: str) -> list[Row]:
    return [row for row in run.rows if row.role == role and row.load is not None]


def usable(row: Row) -> bool:
    """The row may be used: the client delivered it, it went on to its end, and something succeeded."""
    return not (row.void or row.partial) and row.ok > 0


def quiet_row(row: Row) -> bool:
    """The server kept up: no signal, no deficit, no more errors than allowed."""
    return usable(row) and not alarmed(row)


def hollow(row: Row) -> bool:
    """Drawn hollow: overloaded, not settled, or void."""
    return not quiet_row(row) or not (row.settled and row.stationary)


def state_words(row: Row) -> str:
    """What the step showed, in two or three words."""
    if row.void:
        return "void"
    if row.partial:
        return "partial: cut short"
    if row.requests and not row.ok:
        return "all failed" if row.failed else "nothing finished"
    if row.overloaded:
        return "too many errors"
    if row.saturated and row.deficit:
        return "overloaded"
    if row.saturated:
        return "alarm, still delivers"
    if row.deficit:
        return "delivers too little"
    if not (row.settled and row.stationary):
        return "not settled"
    return f"keeps up with {sig(row.axis_load)} req/s" if offered_load.differs(row) else "keeps up"


def split_climb(run: Run) -> tuple[list[Row], list[Row]]:
    """Usable steps of the ramp up, cut after the highest that kept up: an alarm below it was a hiccup."""
    steps = [row for row in rising_rows(run) if not row.void and row.requests]
    cut = highest(steps, quiet_row) + 1
    return steps[:cut], steps[cut:]


def kept_up(run: Run) -> list[Row]:
    """Steps that kept up, by load."""
    return [row for row in split_climb(run)[0] if quiet_row(row)]


def broke(run: Run) -> Row | None:
    """The step that ended the climb: the lowest above the last quiet one with a deficit, else the lowest there."""
    above = [row for row in split_climb(run)[1] if row.saturated and not row.partial]
    return next((row for row in above if row.deficit), above[0] if above else None)


def stalls(steps: Sequence[Row]) -> str:
    """That many requests stalled in steps that kept up."""
    worst = max(steps, key=lambda row: row.stalled_ratio or 0.0, default=None)
    share = worst.stalled_ratio if worst is not None else None
    if worst is None or not share or share <= STALLED_RATIO:
        return ""
    return f" But {percent(share)} of the requests stalled at {label(worst)}."
