"""How much of one reply the client keeps: beyond a limit the reply is a failure that names the limit. Pure.

The limits are on what comes, not on what it becomes: a byte of JSON may take 30 in memory.
"""

from loadramp.client.stream.answer import StreamAnswer
from loadramp.record.types import Record
from loadramp.units import plural

MOST_EVENTS, EVENTS_FLOOR, EVENTS_RATIO = 1_000_000, 100_000, 4
"""Limit of output events: MOST_EVENTS; where a length was asked for, EVENTS_RATIO times that, at least EVENTS_FLOOR."""
KEPT_EVENTS = 10_000
"""Of an answer that went beyond a limit, so many output events are recorded: a run may meet many such answers."""
MOST_CHARACTERS = 16 << 20
"""Limit of the text of one answer, where text is kept at all (``--save-text``, sessions)."""
LOOK_BYTES = 16 << 10
"""A look at the limits is due after so many bytes, and sooner where fewer could go beyond one."""
BEYOND = "beyond a limit: "


def most_events(asked: int | None, most_tokens: int | None) -> int:
    """How many output events one answer may have.

    Args:
        asked: ``[target] max_events``; None: by the length.
        most_tokens: how many tokens were asked for; None when that is not known.
    """
    if asked is not None:
        return asked
    return MOST_EVENTS if most_tokens is None else max(EVENTS_FLOOR, EVENTS_RATIO * most_tokens)


def limit_passed(answer: StreamAnswer, event_bytes: int, events: int) -> str:
    """The limit that ``answer`` went beyond, in words with the key that moves it; empty where there is none."""
    if answer.quiet_bytes > event_bytes:
        return f"{size_words(event_bytes)} of body without the end of an event ([target] max_event_bytes)"
    if len(answer.event_s) > events:
        return f"more than {plural(events, 'output event')} ([target] max_events)"
    if answer.save_text and answer.characters() > MOST_CHARACTERS:
        return f"more than {MOST_CHARACTERS >> 20} Mi characters of text"
    return ""


def unlooked_bytes(answer: StreamAnswer, event_bytes: int, events: int) -> int:
    """How many bytes more of the body need no look, at most LOOK_BYTES: none of them can take ``answer`` beyond a limit
    of ``limit_passed``. An output event and a character are a byte or more, where nothing is compressed."""
    room = min(LOOK_BYTES, event_bytes - answer.quiet_bytes, events - len(answer.event_s))
    return min(room, MOST_CHARACTERS - answer.characters()) if answer.save_text else room


def shorten(record: Record) -> None:
    """Leave the first KEPT_EVENTS output events in ``record``."""
    for times in (record.event_s, record.event_tokens, record.event_choice):
        del times[KEPT_EVENTS:]


def size_words(size_bytes: int) -> str:
    """``4 MiB``, or the bytes where they are no whole number of MiB."""
    return f"{size_bytes >> 20} MiB" if size_bytes and not size_bytes % (1 << 20) else plural(size_bytes, "byte")
