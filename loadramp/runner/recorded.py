"""A run made of records that another tool, or a log, has written: the same judgement for them as for our own."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import get_args

import numpy as np

from loadramp import __version__
from loadramp.record.run_info import RunInfo
from loadramp.record.table import Run, Table
from loadramp.record.types import ENDS, ErrorKind, Record, RecordStatus, Step, TokenSource
from loadramp.registry import ScenarioError
from loadramp.runner.scenarios import load
from loadramp.scenario.scenario import toml_value
from loadramp.units import plural

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
SLACK_S = 0.01
"""By so much may instants be out of order: timers fire early, and logs round."""
LATEST_S, LONGEST_S = 1e11, 7 * 86_400.0
"""Seconds since 1970 are below the first until the year 5138, milliseconds are not. No level of load lasts longer than
the second; instants of two clocks are further apart."""


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
        ScenarioError: nothing to judge, a key of ``slo`` that cannot be, or a level that lasts longer than any.
    """
    if not records or not steps:
        raise ScenarioError(f"{name}: no requests, so nothing can be judged")
    for step in steps:
        if (step.measure_s or 0.0) > LONGEST_S:
            days = f"{(step.measure_s or 0.0) / 86_400:,.0f} days"
            raise ScenarioError(
                f"{name}: one level of load lasts {days}: expected at most 7, in seconds of one clock; a column step "
                "tells levels apart"
            )
    streamed = _streamed(records, name)
    limits = {key for key in ("ttft_s", "itl_s", "tpot_s") if (slo or {}).get(key) is not None}
    if limits and not streamed:
        raise ScenarioError(
            f"{name}: {', '.join(sorted(limits))} cannot be judged: only the end of each answer is known"
        )
    if "itl_s" in limits and all(record.token_source in {None, ENDS} for record in records):
        raise ScenarioError(
            f"{name}: itl_s cannot be judged: only the first and the last token of each answer are known"
        )
    begins = np.array([step.begin_s for step in steps])
    ordered = sorted(records, key=lambda record: record.due_s)
    for seq, record in enumerate(ordered):
        record.seq = seq
        record.step = max(0, int(np.searchsorted(begins, record.due_s, "right")) - 1)
    scenario = load(scenario_text(name, steps, slo or {}, arrivals, streamed=streamed), f"{name}: scenario")
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


def _streamed(records: Sequence[Record], name: str) -> bool:
    """Whether tokens of any answer are known; else the ends of answers become their one event, as in an answer that
    comes whole.

    Raises:
        ScenarioError: nothing is known of any answer.
    """
    if any(record.event_s for record in records):
        if lost := sum(record.status == "empty" and (record.output_tokens or 0) > 0 for record in records):
            raise ScenarioError(
                f"{name}: {plural(lost, 'request')} of {len(records)} with output_tokens, but without the instant of "
                "a first token, which others have: whether it failed is not known"
            )
        return True
    whole = [record for record in records if record.status == "empty" and record.stream_end_s is not None]
    for record in whole:
        record.event_s, record.first_byte_s = [record.stream_end_s or 0.0], record.stream_end_s
        record.status, record.error, record.token_source = "ok", None, ENDS
    if not whole and all(record.status == "empty" for record in records):
        raise ScenarioError(f"{name}: no answer has an instant: expected token_s, first_token_s, last_token_s or end_s")
    return not whole


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
        error: one of our kinds, or any other words; None: it succeeded, unless ``http_status`` is 400 or more.
        http_status, label, model: as far as they are known.

    Raises:
        ScenarioError: instants or counts that no request can have.
    """
    if first_s is None:
        end_s, last_s = (last_s if end_s is None else end_s), None
    events, counts = list(token_s), list(event_tokens)
    sent_or_due_s = due_s if sent_s is None else sent_s
    _check_instants(
        ("due_s", "sent_s", "first_token_s", "last_token_s", *["token_s"] * len(events), "end_s"),
        (due_s, sent_or_due_s, *((None, None) if events else (first_s, last_s)), *events, end_s),
    )
    if counts and (len(counts) != len(events) or min(counts) < 0):
        raise ScenarioError(f"request due at {due_s}: event_tokens: expected a number from 0 on for each of token_s")
    amounts = {"output_tokens": output_tokens, "prompt_tokens": prompt_tokens, "http_status": http_status}
    if wrong := next((name for name, n in amounts.items() if n is not None and n < 0), None):
        raise ScenarioError(f"request due at {due_s}: {wrong}: expected a number from 0 on; got {amounts[wrong]}")
    if error is None and (http_status or 0) >= 400:
        error = f"HTTP {http_status}"
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
        sent_s=sent_or_due_s,
        first_byte_s=events[0] if events else None,
        event_s=events,
        event_tokens=counts,
        stream_end_s=max((at_s for at_s in (end_s, *events[-1:]) if at_s is not None), default=None),
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


def _check_instants(names: Sequence[str], instants: Sequence[float | None]) -> None:
    """The instants of one request are seconds of one clock, each of them no earlier than the one before.

    Raises:
        ScenarioError: they are not.
    """
    known = [(name, at_s) for name, at_s in zip(names, instants, strict=True) if at_s is not None]
    request = f"request due at {known[0][1]}"
    for (before, before_s), (name, at_s) in pairwise([known[0], *known]):
        if not abs(at_s) < LATEST_S:  # NaN, too
            raise ScenarioError(f"{request}: {name}: expected seconds; got {at_s}")
        if at_s < before_s - SLACK_S:
            raise ScenarioError(
                f"{request}: {name} ({at_s}) lies before {before} ({before_s}): expected seconds of one clock"
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


def scenario_text(
    name: str, steps: Sequence[Step], slo: Mapping[str, float], arrivals: str, *, streamed: bool = True
) -> str:
    """The scenario that would have offered the steps, as TOML."""
    rates = [step.rate_rps for step in steps if step.rate_rps is not None]
    users = [step.users for step in steps if step.users is not None]
    ramp = f'kind = "users"\nusers = {users}' if users else f'kind = "ladder"\nrates = {rates}'
    limits = "".join(f"{key} = {float(value)}\n" for key, value in slo.items())
    whole = "" if streamed else "[target]\nstream = false\n\n"
    return (
        f"name = {toml_value(name)}\n\n{whole}[slo]\n{limits}\n[arrivals]\n{arrivals}\n\n[ramp]\n{ramp}\n\n"
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
        if len(due_s) == 1:
            raise ScenarioError("a level of one request has no rate: expected more requests, or rate_rps")
        rate_rps = (len(due_s) - 1) / length_s
    return Step(index, "step", rate_rps, users, begin_s, warmup_s, length_s - warmup_s)


def check_load(rate_rps: float | None, users: float | None) -> None:
    """Raises ScenarioError for a load that nobody can ask for."""
    if rate_rps is not None and users is not None:
        raise ScenarioError(f"rate_rps = {rate_rps:g} and users = {users:g} of one level: expected one of them")
    if rate_rps is not None and not 0.0 < rate_rps < inf:
        raise ScenarioError(f"rate_rps: expected a number above 0; got {rate_rps:g}")
    if users is not None and not (users >= 1 and float(users).is_integer()):
        raise ScenarioError(f"users: expected a whole number from 1 on; got {users:g}")


def windows(records: Sequence[Record], window_s: float) -> list[Step]:
    """Equal windows of a log as steps, each with the rate that was seen in it. Windows with fewer than ``FEWEST``
    requests are none. What is left at the end is a window if it has half the length, else part of the last one."""
    if not records:
        return []
    due_s = np.sort([record.due_s for record in records])
    begin_s, length_s = float(due_s[0]), float(due_s[-1] - due_s[0]) + TICK_S
    whole = int(length_s // window_s)
    if length_s - whole * window_s >= window_s / 2 or not whole:
        whole += 1
    begins_s = begin_s + window_s * np.arange(whole)
    ends_s = np.append(begins_s[1:], begin_s + length_s)
    counts = np.diff(np.searchsorted(due_s, np.append(begins_s, ends_s[-1])))
    return [
        Step(place, "step", float(counts[i] / span_s), None, float(begins_s[i]), 0.0, span_s)
        for place, i in enumerate(np.flatnonzero(counts >= FEWEST))
        if (span_s := float(ends_s[i] - begins_s[i]))
    ]
