"""A run made of records that another tool, or a log, has written: the same judgement for them as for our own."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import get_args

import numpy as np

from loadramp import __version__
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import ENDS, ErrorKind, Record, RecordStatus, Step, TokenSource
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load

FILL_UP_RATIO = 1 / 3
"""At most this share of a step is its warm-up."""
SIGNS: Sequence[tuple[Sequence[str], ErrorKind]] = (
    (("too many requests", "rate limit"), "http_429"),
    (("bad request", "unauthorized", "forbidden"), "http_4xx"),
    (("service unavailable", "internal server error", "bad gateway"), "http_5xx"),
    (("certificate", "ssl", "tls"), "tls"),
    (("timeout", "timed out", "deadline"), "timeout_total"),
    (("cannot connect", "connection refused", "connect call failed", "name or service not known"), "connect"),
    (("payload", "incomplete", "truncated"), "truncated"),
    (("reset", "disconnected", "broken pipe", "closed"), "reset"),
)
"""Words of an error to its kind; the first that is there counts."""
TICK_S = 1e-5
"""The last request belongs to its step, also where instants are rounded to a microsecond on disk."""
CODE = re.compile(r"\b(?:http|status|code)\D{0,12}([45]\d\d)\b")
"""A status code in words: a number alone may be a time or a count."""
FEWEST = 20
"""Requests that a window needs to be a step."""


def recorded_run(
    records: Sequence[Record],
    steps: Sequence[Step],
    *,
    name: str,
    slo: Mapping[str, float] | None = None,
    arrivals: str = 'kind = "replay"',
    info: RunInfo | None = None,
) -> Run:
    """A run that is ready to be judged. Nothing is written.

    Args:
        records: of all steps, in any order; their ``step`` and ``seq`` are set here.
        steps: levels of load, by ``begin_s``; records that fall due before or between them belong to the one before.
        name: what the run is called.
        slo: the keys of ``[slo]``.
        arrivals: the ``[arrivals]`` table, in TOML. By default arrivals are what they were, no matter of chance.
        info: what else run.json says.

    Raises:
        ScenarioError: nothing to judge, or a key of ``slo`` that cannot be.
    """
    if not records or not steps:
        raise ScenarioError(f"{name}: no requests, so nothing can be judged")
    if (slo or {}).get("itl_s") is not None and all(record.token_source in {None, ENDS} for record in records):
        raise ScenarioError(
            f"{name}: itl_s cannot be judged: only the first and the last token of each answer are known"
        )
    begins = np.array([step.begin_s for step in steps])
    ordered = sorted(records, key=lambda record: record.due_s)
    for seq, record in enumerate(ordered):
        record.seq = seq
        record.step = max(0, int(np.searchsorted(begins, record.due_s, "right")) - 1)
    scenario = load(scenario_text(name, steps, slo or {}, arrivals), f"{name}: scenario")
    known = replace(
        info or RunInfo(),
        name=name,
        loadramp=__version__,
        state="complete",
        ending="all records were read",
        repeats=1,
        seed=0,
        workers=1,
        arrivals=scenario.arrivals.kind,
        steps=list(steps),
    )
    return Run(known, scenario, list(steps), Table.of(ordered))


def record_of(
    due_s: float,
    *,
    sent_s: float | None = None,
    token_s: Sequence[float] = (),
    event_tokens: Sequence[int] = (),
    first_s: float | None = None,
    last_s: float | None = None,
    end_s: float | None = None,
    output_tokens: int | None = None,
    prompt_tokens: int | None = None,
    error: str | None = None,
    http_status: int | None = None,
    label: str = "",
    model: str | None = None,
) -> Record:
    """A request as another tool recorded it. Instants are seconds on one clock.

    Args:
        due_s: when it was to be sent; the instant of sending where nothing else is known.
        sent_s: when it was sent; None: when it was due.
        token_s: when each output event came; empty: only ``first_s`` and ``last_s`` are known.
        event_tokens: how many tokens each event brought; empty: one each.
        first_s, last_s: first and last output event.
        end_s: when the stream ended; None: with its last event.
        output_tokens, prompt_tokens: as the server or the tool counted them.
        error: one of our kinds, or any other words; None: it succeeded.
        http_status, label, model: as far as they are known.
    """
    events, counts = list(token_s), list(event_tokens)
    source: TokenSource = "events" if output_tokens is None else "usage"
    if counts:
        source = "continuous"
    if not events and first_s is not None:
        events, source = [first_s], ENDS
        if last_s is not None and last_s > first_s:
            events.append(last_s)
            counts = [1, max(0, (output_tokens or 2) - 1)]
    kind = None if error is None else kind_of(error, http_status)
    status: RecordStatus = "error" if kind else "incomplete" if error is not None else "ok" if events else "empty"
    return Record(
        seq=0,
        step=0,
        due_s=due_s,
        sent_s=due_s if sent_s is None else sent_s,
        first_byte_s=events[0] if events else None,
        event_s=events,
        event_tokens=counts,
        stream_end_s=end_s if end_s is not None else events[-1] if events else due_s,
        status=status,
        error="empty" if status == "empty" else kind,
        error_detail=error if error != kind else None,
        http_status=http_status,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        token_source=source if events else None,
        label=label,
        model=model,
    )


def kind_of(error: str, http_status: int | None = None) -> ErrorKind | None:
    """The kind of error that another tool's words speak of; None where they speak of none."""
    if error in get_args(ErrorKind):
        return error  # type: ignore[return-value]  # one of them
    words = error.lower()
    match = CODE.search(words)
    code = http_status or (int(match[1]) if match else 0)
    if code >= 400:
        return "http_429" if code == 429 else "http_4xx" if code < 500 else "http_5xx"
    return next((kind for signs, kind in SIGNS if any(sign in words for sign in signs)), None)


def scenario_text(name: str, steps: Sequence[Step], slo: Mapping[str, float], arrivals: str) -> str:
    """The scenario that would have offered the steps, as TOML."""
    rates = [step.rate_rps for step in steps if step.rate_rps is not None]
    users = [step.users for step in steps if step.users is not None]
    ramp = f'kind = "users"\nusers = {users}' if users else f'kind = "ladder"\nrates = {rates}'
    limits = "".join(f"{key} = {float(value)}\n" for key, value in slo.items())
    return (
        f"name = {json.dumps(name)}\n\n[slo]\n{limits}\n[arrivals]\n{arrivals}\n\n[ramp]\n{ramp}\n\n"
        "[metrics]\nenabled = false\n"
    )


def step_of(records: Sequence[Record], index: int, *, rate_rps: float | None = None, users: int | None = None) -> Step:
    """The step that ``records`` are: from the first to the last that fell due, less the time it took to fill up.

    A tool that starts each level on an idle server shows it half empty at first: the warm-up is the p90 of the
    end-to-end times, at most a third of the step. Without ``rate_rps`` and ``users`` the rate is the one that was seen.
    """
    due_s = np.sort([record.due_s for record in records])
    begin_s, end_s = float(due_s[0]), float(due_s[-1]) + TICK_S
    length_s = end_s - begin_s
    e2e_s = [record.e2e_s for record in records if record.e2e_s is not None]
    warmup_s = min(float(np.quantile(e2e_s, 0.9)), FILL_UP_RATIO * length_s) if e2e_s else 0.0
    if rate_rps is None and users is None:
        rate_rps = (len(due_s) - 1) / length_s if length_s > 0.0 else float(len(due_s))
    return Step(index, "step", rate_rps, users, begin_s, warmup_s, length_s - warmup_s)


def windows(records: Sequence[Record], window_s: float) -> list[Step]:
    """Equal windows of a log as steps, each with the rate that was seen in it. Windows with fewer than ``FEWEST``
    requests are none; a last one that is not full is left out."""
    if not records:
        return []
    due_s = np.sort([record.due_s for record in records])
    begin_s = float(due_s[0])
    counts = np.histogram(due_s, begin_s + window_s * np.arange(ceil((due_s[-1] - begin_s) / window_s) + 1))[0]
    full = int((due_s[-1] - begin_s) // window_s)
    return [
        Step(place, "step", float(count / window_s), None, begin_s + number * window_s, 0.0, window_s)
        for place, (number, count) in enumerate(
            (number, count) for number, count in enumerate(counts[:full]) if count >= FEWEST
        )
    ]
