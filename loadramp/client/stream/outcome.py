"""What became of a request: the verdict of its record and the codes of what is remarkable about it. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from operator import sub

from loadramp.client.error_text import status_named
from loadramp.client.http.reply_parts import describe_status, http_kind
from loadramp.client.stream.answer import StreamAnswer
from loadramp.record.sanitize import clean
from loadramp.record.types import LENGTH_NOT_FORCED, ErrorKind, Record, RecordStatus
from loadramp.scenario.scenario import Target
from loadramp.units import agreed, plural

BURST_GAP_S = 0.0002
BURST_WAIT_S = 0.02
DETAIL_CHARS = 500
CUT_OFF = "cut off by the client"
"""The fault of a request that was still being answered when the client ended the run."""
UNREAD_CHARS = 200


@dataclass(slots=True, frozen=True)
class RequestedOutput:
    """What was asked of every answer."""

    streamed: bool = True
    done_expected: bool = True
    """The API ends its streams with ``[DONE]``, and the client gets to see it."""
    exact_length: bool = False
    """Exactly ``asked_output_tokens``, not at most."""
    save_text: bool = False
    max_event_bytes: int = 4 << 20
    """Limit of what may come without the end of an event, as which a whole JSON reply counts."""
    max_events: int | None = None
    """Limit of the output events of one answer; None: by the length that was asked for (``bounds.most_events``)."""
    redact: Callable[[str], str] = str
    """Takes secrets out of any text that reaches a record."""


@dataclass(slots=True, frozen=True)
class Outcome:
    """What is known of a reply beside its answer."""

    status: int | None = None
    fault: tuple[ErrorKind, str] | None = None
    """What broke it off, on the way or by the client's own clock."""
    refusal: str = ""
    """The message of a reply that refuses."""
    content_type: str = ""
    compressed: bool = False


def requested_output(
    target: Target, save_text: bool, redact: Callable[[str], str], sees_done: bool = True
) -> RequestedOutput:
    """What requests to ``target`` ask for."""
    done_expected = sees_done and target.stream and target.api != "responses"
    return RequestedOutput(
        target.stream,
        done_expected,
        target.force_length,
        save_text,
        target.max_event_bytes,
        target.max_events,
        redact,
    )


def conclude(record: Record, answer: StreamAnswer, outcome: Outcome, asked: RequestedOutput) -> None:
    """Write status, error and warnings into ``record``, which ``answer`` has filled."""
    record.status, record.error, detail = _verdict(record, answer, outcome, asked)
    record.error_detail = clean(asked.redact(detail))[:DETAIL_CHARS] if detail else None
    record.error_status = status_named(detail) if detail and record.error in {"in_band", "empty"} else None
    if outcome.compressed:
        record.warnings.append("compressed")
    record.warnings += warnings_of(record, asked, answer.whole, answer.implausible_usage)


def _verdict(
    record: Record, answer: StreamAnswer, outcome: Outcome, asked: RequestedOutput
) -> tuple[RecordStatus, ErrorKind | None, str | None]:
    """ok: output, and a finish reason or ``[DONE]``. What breaks after either changes nothing for the caller.
    unfinished: nobody knows how it would have ended, since the client did not wait for it.

    Output that no one can see (special tokens only) is ``empty`` even with a finish reason: there is no first token
    to time.
    """
    if outcome.status is not None and outcome.status >= 300:
        return "error", http_kind(outcome.status), describe_status(outcome.status, outcome.refusal)
    if answer.error is not None:
        return "error", "in_band", answer.error
    n = len(answer.event_s)
    if n and (answer.finished_s is not None or answer.done_s is not None):
        return "ok", None, None
    if outcome.fault is not None:
        kind, detail = outcome.fault
        words = f"{detail}, after {plural(n, 'output event')}" if n else detail
        return ("unfinished", None, words) if detail == CUT_OFF else ("error", kind, words)
    if n:
        return (
            "incomplete",
            "truncated",
            f"the stream ended without finish reason or [DONE] after {plural(n, 'output event')}",
        )
    return "empty", "empty", _why_empty(record, answer, outcome, asked)


def _why_empty(record: Record, answer: StreamAnswer, outcome: Outcome, asked: RequestedOutput) -> str:
    unread = asked.redact(answer.unread)  # before it is cut: half a secret is not seen as one
    if (
        len(unread) > UNREAD_CHARS
    ):  # no message of an error is so long: it may be an answer, which is not for the record
        unread = f"{unread[:UNREAD_CHARS]}..." if asked.save_text else f"{plural(len(unread), 'character')} or more"
    if answer.malformed:
        events = f"{plural(answer.malformed, 'event')} that {agreed(answer.malformed, 'are')} not JSON"
        return f"{events}, and no output: {unread}"
    if answer.finish_reason is not None:
        tokens = f"; the server counted {plural(record.output_tokens, 'token')}" if record.output_tokens else ""
        return f"finished ({answer.finish_reason}) without any visible output{tokens}"
    kind = outcome.content_type.split(";")[0] or "no content type"
    without = f"HTTP {outcome.status} ({kind}) without any output"
    return f"{without}: {unread}" if unread and not unread.startswith("<") else without


def warnings_of(record: Record, asked: RequestedOutput, whole: bool, implausible: bool = False) -> list[str]:
    """Codes of what is remarkable about a finished record; ``whole``: the reply was one document, not a stream;
    ``implausible``: the server sent token counts that cannot be right."""
    n, tokens, source = len(record.event_s), record.output_tokens, record.token_source
    asked_in, asked_out = record.asked_input_tokens, record.asked_output_tokens
    spread = source == "pro_rata"
    found = {
        "not_streamed": asked.streamed and whole and record.ok,
        "no_done": asked.done_expected and not whole and record.ok and not record.done_marker,
        "pro_rata": spread,
        "no_usage": n > 0 and source == "events" and record.status not in ("error", "unfinished") and not implausible,
        "slow_parse": record.doubtful_s is not None,
        "implausible_usage": n > 0 and implausible,
        "burst_delivery": asked.streamed and _burst(record),
        # a final count beyond the events may be the end token alone, which has no text
        "multi_token_events": not whole and n > 0 and ((tokens or n) - spread) / n > 1.05,
        "short_output": record.ok
        and asked.exact_length
        and LENGTH_NOT_FORCED not in record.warnings
        and bool(asked_out)
        and (tokens or n) < 0.95 * (asked_out or 0),
        "prompt_length_mismatch": _mismatch(record.prompt_tokens, asked_in),
        "malformed_events": record.malformed_events > 0,
        "multiple_choices": len(set(record.event_choice)) > 1,
    }
    return [code for code, holds in found.items() if holds]


def _burst(record: Record) -> bool:
    """Most events came together with the one before, and time passed elsewhere: something holds them back.

    Together: in one read, or closer than 0.2 ms where nearly all the time passed in long gaps beside, or all within
    5 % of the wait for the first. An engine that makes a token every 0.1 ms and pauses once is none of these.
    """
    gaps = list(chain.from_iterable(map(sub, instants[1:], instants) for instants in _by_choice(record).values()))
    if len(gaps) < (1 if "compressed" in record.warnings else 2):
        return False
    half = len(gaps) / 2
    if sum(map(BURST_GAP_S.__gt__, gaps)) <= half:
        return False
    within_s = sum(gap for gap in gaps if gap < BURST_GAP_S)
    spaced = max(gaps) > BURST_WAIT_S and within_s < 0.1 * sum(gaps)
    at_once = record.event_s[-1] - record.event_s[0] < 0.05 * (record.sent_ttft_s or 0.0)
    return sum(gap == 0.0 for gap in gaps) > half or spaced or at_once


def _by_choice(record: Record) -> dict[int, list[float]]:
    """The instants of each choice's output events."""
    if not record.event_choice:
        return {0: record.event_s}
    found: dict[int, list[float]] = {}
    for t_s, choice in zip(record.event_s, record.event_choice, strict=True):
        found.setdefault(choice, []).append(t_s)
    return found


def _mismatch(counted: int | None, asked: int | None) -> bool:
    """More than 10 % off, beyond the 24 tokens that a chat template may add."""
    if not counted or not asked:
        return False
    return not 0.9 * asked <= counted <= 1.1 * asked + 24
