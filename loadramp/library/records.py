"""A frame of requests as records: what ``loadramp.judge`` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from loadramp.record.types import Record, Step
from loadramp.registry import ScenarioError, hint
from loadramp.runner.recorded import FEWEST, LATEST_S, LONGEST_S, check_load, record_of, step_of, windows
from loadramp.units import plural

if TYPE_CHECKING:
    import pandas as pd

INSTANTS = ("due_s", "sent_s", "first_token_s", "last_token_s", "end_s")
COLUMNS = (*INSTANTS, "token_s", "event_tokens", "output_tokens", "prompt_tokens", "http_status", "label", "model",
           "error", "step", "rate_rps", "users")  # fmt: skip
MOST_WINDOWS = 100_000


def records_of(frame: pd.DataFrame) -> list[Record]:
    """One record a row, in the frame's order; instants count from the first one.

    Raises:
        ScenarioError: a column is unknown or missing, or holds what it cannot.
    """
    import pandas as pd

    if unknown := [name for name in frame.columns if name not in COLUMNS]:
        near = hint(str(unknown[0]), COLUMNS)
        raise ScenarioError(f"judge: {unknown[0]}: no such column{near}; there are {', '.join(COLUMNS)}")
    if not frame.columns.is_unique:
        raise ScenarioError(f"judge: {frame.columns[frame.columns.duplicated()][0]}: two columns of this name")
    if "step" not in frame.columns and (asked := {"rate_rps", "users"} & set(frame.columns)):
        raise ScenarioError(
            f"judge: {asked.pop()}: needs a column step, which says which requests were asked for at it"
        )
    if not {"due_s", "sent_s"} & set(frame.columns):
        raise ScenarioError("judge: expected a column due_s or sent_s: when each request was to be sent, or was")
    try:
        known = {name: _seconds(frame[name]) for name in INSTANTS if name in frame.columns}
        due_s = known["due_s"] if "due_s" in known else known["sent_s"]
        if "sent_s" in known:
            due_s = due_s.fillna(known["sent_s"])
        if due_s.isna().any():
            raise ScenarioError("due_s: a request without an instant cannot be judged")
        origin_s = float(due_s.min())
        plain = pd.DataFrame({**{str(name): frame[name] for name in frame.columns}, **known, "due_s": due_s})
        return [
            _record_at(place, row, origin_s) for place, row in zip(frame.index, plain.to_dict("records"), strict=True)
        ]
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"judge: {error}") from None


def steps_of(frame: pd.DataFrame, records: Sequence[Record], window_s: float) -> list[Step]:
    """The levels of load: those of the column ``step``, else windows of ``window_s``.

    Raises:
        ScenarioError: a step has two rates, or lies within another one.
    """
    if "step" not in frame.columns:
        if not 0.0 < window_s < LONGEST_S:
            raise ScenarioError(f"judge: window_s: expected seconds above 0; got {window_s:g}")
        if len(records) and max(record.due_s for record in records) / window_s > MOST_WINDOWS:
            raise ScenarioError(f"judge: window_s: {window_s:g} s cut the log into more than {MOST_WINDOWS:,} windows")
        cut = windows(records, window_s)
        if records and not cut:
            raise ScenarioError(f"judge: no window of {window_s:g} s has {FEWEST} requests; choose a longer window_s")
        return cut
    if none := int(frame["step"].isna().sum()):
        raise ScenarioError(
            f"judge: step: {plural(none, 'row')} without one; each request belongs to one level of load"
        )
    members: dict[Any, list[int]] = {}
    for place, step in enumerate(frame["step"]):
        members.setdefault(step, []).append(place)
    steps = []
    for step, places in members.items():
        asked = {name: _only(frame[name].iloc[places], name, step) for name in ("rate_rps", "users") if name in frame}
        users = asked.get("users")
        check_load(asked.get("rate_rps"), users)
        of_step = [records[place] for place in places]
        steps.append(step_of(of_step, 0, rate_rps=asked.get("rate_rps"), users=None if users is None else int(users)))
    steps.sort(key=lambda step: step.begin_s)
    for step, following in pairwise(steps):
        if following.begin_s < step.end_s:
            raise ScenarioError("judge: step: two steps overlap in time; each request belongs to one level of load")
    return [replace(step, index=index) for index, step in enumerate(steps)]


def _only(values: Iterable[Any], name: str, step: Any) -> float | None:
    known = {float(value) for value in values if value == value and value is not None}  # noqa: PLR0124 (NaN)
    if len(known) > 1:
        raise ScenarioError(f"judge: {name}: step {step} has several: {', '.join(map(str, sorted(known)))}")
    return known.pop() if known else None


def _seconds(column: pd.Series[Any]) -> pd.Series[float]:
    """Seconds of a column of numbers or time stamps."""
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        at = column.dt.tz_localize("UTC") if column.dt.tz is None else column
        return (at - pd.Timestamp(0, tz="UTC")).dt.total_seconds()
    if pd.api.types.is_timedelta64_dtype(column):
        column = column.dt.total_seconds()
    try:
        seconds = column.astype("float64")
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"{column.name}: expected seconds or time stamps: {error}") from None
    if (seconds.abs() >= LATEST_S).any():
        raise ScenarioError(f"{column.name}: expected seconds or time stamps; got {seconds.abs().max():g}")
    return seconds


def _record_at(place: Any, row: Mapping[Any, Any], origin_s: float) -> Record:
    try:
        return _record(row, origin_s)
    except (TypeError, ValueError) as error:
        raise ScenarioError(f"row {place}: {error}; instants count from the first request") from None


def _record(row: Mapping[Any, Any], origin_s: float) -> Record:
    def number(name: str) -> float | None:
        value = row.get(name)
        return None if value is None or value != value else float(value)  # noqa: PLR0124 (NaN)

    def since(name: str) -> float | None:
        value = number(name)
        return None if value is None else value - origin_s

    def count(name: str) -> int | None:
        value = number(name)
        if value is not None and not value.is_integer():
            raise ValueError(f"{name}: expected a whole number; got {value}")
        return None if value is None else int(value)

    def word(name: str) -> str | None:
        value = row.get(name)
        missing = value is None or value != value or value is False or value == 0  # noqa: PLR0124 (NaN)
        return None if missing else str(value) or None

    tokens = row.get("token_s")
    events = [] if tokens is None or isinstance(tokens, float) else [float(at_s) - origin_s for at_s in tokens]
    counts = row.get("event_tokens")
    return record_of(
        since("due_s") or 0.0,
        sent_s=since("sent_s"),
        token_s=events,
        event_tokens=[] if counts is None or isinstance(counts, float) else [int(count) for count in counts],
        first_s=since("first_token_s"),
        last_s=since("last_token_s"),
        end_s=since("end_s"),
        output_tokens=count("output_tokens"),
        prompt_tokens=count("prompt_tokens"),
        error=word("error"),
        http_status=count("http_status"),
        label=word("label") or "",
        model=word("model"),
    )
