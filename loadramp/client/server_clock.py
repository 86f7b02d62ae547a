"""How far the endpoint's clock is ahead of this host's, by the Date header of its replies."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from loadramp.client.endpoint import Endpoint
from loadramp.client.readiness import call, control_client
from loadramp.record.run_info import ClockOffset
from loadramp.scenario.scenario import Target

CALLS, BETWEEN_S = 5, 0.23
"""Calls spread over more than a second, since a Date has whole seconds."""
STALE_S = 2.0
"""A Date is true for so long: whole seconds, and servers that write it anew only once a second."""


@dataclass(slots=True, frozen=True)
class DatedReply:
    """What a reply with a Date tells: at some instant between ``sent_s`` and ``received_s`` of ours, the server's clock
    was between ``date_s`` and STALE_S later. Seconds since 1970."""

    sent_s: float
    received_s: float
    date_s: float


async def server_clock(target: Target, endpoint: Endpoint) -> ClockOffset | None:
    """The offset of the endpoint's clock; None where its replies have no Date, or Dates that contradict one another."""
    replies: list[DatedReply] = []
    async with control_client(target, endpoint) as http:
        for _ in range(CALLS):
            sent_s = time.time()
            reply = await call(http, endpoint.address("health"))
            received_s = time.time()
            date_s = seconds_of(reply.headers.get("date", ""))
            if date_s is None:
                return None
            replies.append(DatedReply(sent_s, received_s, date_s))
            await asyncio.sleep(BETWEEN_S)
    return offset_of(replies, endpoint.shown("health"))


def offset_of(replies: Sequence[DatedReply], of: str) -> ClockOffset | None:
    """The offset that all of ``replies`` allow: the middle of what each of them allows; None where they allow none."""
    low_s = max(reply.date_s - reply.received_s for reply in replies)
    high_s = min(reply.date_s + STALE_S - reply.sent_s for reply in replies)
    if low_s > high_s:
        return None
    return ClockOffset(of, round((low_s + high_s) / 2, 6), round((high_s - low_s) / 2, 6))


def seconds_of(date: str) -> float | None:
    """A Date header as seconds since 1970; None where it is none."""
    try:
        return parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None
