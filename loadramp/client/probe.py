"""One request, looked at closely; and the requests before a run that find out what the server takes."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from loadramp.client.client import CLIENTS
from loadramp.client.endpoint import Endpoint, endpoint_of
from loadramp.client.http.sockets import Connect
from loadramp.client.readiness import Unreachable, choose_model, list_models
from loadramp.client.request_body import OPTIONAL_FIELDS
from loadramp.record.types import Arrival, Prompt, Record
from loadramp.scenario.scenario import Target
from loadramp.workload.placeholders import NO_SESSION, filled
from loadramp.workload.prompts.content import Content

PREFLIGHT_TOKENS = 16
PREFLIGHT_PROMPT = "Tell me in a few plain words what a queue in front of a busy counter does to those who wait in it."
DEFAULT_MODEL = "default"
"""What is asked for where no model is named and none can be listed: single-model servers ignore the name."""
MODERN_LIMIT = "max_completion_tokens"
_NOT_THE_BODY = frozenset({401, 403, 404, 408, 425, 429, 502, 503, 504})
"""Refusals that have nothing to do with the fields of a request, unless they name one."""


@dataclass(slots=True, frozen=True)
class SingleRequests:
    """Sends requests to one endpoint beside a measurement, each through a client of its own.

    ``clock``: absolute seconds. ``connect``: opens pipes in place of sockets.
    """

    target: Target
    endpoint: Endpoint
    model: str
    clock: Callable[[], float]
    connect: Connect | None = None
    save_text: bool = False

    async def send(
        self,
        prompt: Content,
        output_tokens: int | None,
        fields: frozenset[str] = OPTIONAL_FIELDS,
        body: Mapping[str, Any] | None = None,
    ) -> Record:
        """The record of one request. Cancelling it raises CancelledError, as usual: what comes next is not done.

        Args:
            prompt: text, messages or token ids.
            output_tokens: how long the answer may be.
            fields: the optional request fields to send.
            body: further fields of the body.
        """
        record = await self.send_or_cut(prompt, output_tokens, fields, body)
        if record.status == "unfinished":
            raise asyncio.CancelledError
        return record

    async def send_or_cut(
        self,
        prompt: Content,
        output_tokens: int | None,
        fields: frozenset[str] = OPTIONAL_FIELDS,
        body: Mapping[str, Any] | None = None,
    ) -> Record:
        """As ``send``, but a cancelled request is a record of what arrived."""
        t0_s = self.clock()
        client = CLIENTS[self.target.via](
            replace(self.target, body=filled(self.target.body, NO_SESSION)),
            replace(self.endpoint, templates={}),
            self.model,
            connect=self.connect,
            clock=self.clock,
            t0_s=t0_s,
            save_text=self.save_text,
            fields=fields,
        )
        asked = Prompt(output_tokens=output_tokens, body=body)
        request = client.prepare(Arrival(0, 0, 0.0, asked), prompt)
        due_s = self.clock() - t0_s
        record = await client.send(Arrival(0, 0, due_s, asked), request)
        await client.close()
        return record


async def probe(
    target: Target,
    *,
    prompt: str,
    output_tokens: int | None,
    clock: Callable[[], float],
    connect: Connect | None = None,
    save_text: bool = False,
    say: Callable[[str], None] = lambda words: None,
) -> Record:
    """Send one request and return its record; instants count from just before it.

    If the server refuses an optional field by name, the request is sent again without it (warning ``dropped_FIELD``),
    and the record is that of the last request. Nothing else is sent twice.

    Args:
        target: the endpoint; an unnamed model is the only one listed, or ``default`` where none are listed.
        prompt: the user's message.
        output_tokens: how long the answer may be.
        clock: absolute seconds.
        connect: opens pipes in place of sockets; then the model is not looked up.
        save_text: keep the answer.
        say: called with the model that was chosen where none is named.

    Raises:
        ScenarioError: the target cannot be understood, or several models are listed and none is named.
    """
    endpoint = endpoint_of(target)
    model = target.model or await _only_model(target, endpoint, connect, say)
    requests = SingleRequests(target, endpoint, model, clock, connect, save_text)
    fields, dropped = OPTIONAL_FIELDS, []
    while True:
        record = await requests.send_or_cut(prompt, output_tokens, fields)
        refused = fields ^ without_refused(record, fields)
        if not refused:
            break
        fields ^= refused
        dropped += [f"dropped_{name}" for name in sorted(refused & OPTIONAL_FIELDS)]
    record.warnings += dropped
    if connect is None and target.via == "direct" and record.first_byte_s is not None and record.stamps == "user":
        record.warnings.append("kernel_stamps_unavailable")
    return record


@dataclass(slots=True, frozen=True)
class AcceptedFields:
    """Which request fields a server takes, as the requests before a run showed."""

    fields: frozenset[str]
    """The optional request fields that the server takes: give them to every client of the run."""
    warnings: tuple[str, ...]
    """``dropped_FIELD`` and the codes of the last request (``no_usage``, ``short_output``, ...)."""
    record: Record
    """The last request; if it failed, the run would fail as well, for the same reason."""
    plain_failed: bool = False
    """A request without any optional field failed, too."""

    @property
    def prompt_tokens(self) -> int | None:
        """The server's count of the prompt that was sent, template included."""
        return self.record.prompt_tokens


async def find_accepted_fields(
    requests: SingleRequests,
    prompt: Content = PREFLIGHT_PROMPT,
    *,
    output_tokens: int = PREFLIGHT_TOKENS,
    fields: frozenset[str] = OPTIONAL_FIELDS,
    body: Mapping[str, Any] | None = None,
) -> AcceptedFields:
    """Find the optional fields that the server takes, so that no request is tried twice within a measurement.

    All fields are sent at once. Those that a failure names are dropped; when it names none of them, all are dropped
    and, if that helps, each is tried again by itself. ``prompt`` may be messages or token ids, ``body`` further fields.
    """

    async def send(fields: frozenset[str]) -> Record:
        return await requests.send(prompt, output_tokens, fields, body)

    record, echoed, plain_failed = await send(fields), False, False
    asked = fields
    while (left := without_refused(record, fields)) != fields:
        # a server that fails for another reason and repeats the whole request names every field, too
        echoed |= record.http_status not in {400, 422} and len(fields - left) > 2
        fields = left
        record = await send(fields)
    if echoed and record.ok:
        fields, record = await _singly(send, asked | fields, record)
    elif _refuses(record) and fields & OPTIONAL_FIELDS:
        plain = await send(fields - OPTIONAL_FIELDS)
        plain_failed = not plain.ok
        if plain.ok:
            fields, record = await _singly(send, fields, plain)
    dropped = tuple(f"dropped_{name}" for name in sorted(OPTIONAL_FIELDS - fields))
    return AcceptedFields(fields, (*dropped, *record.warnings), record, plain_failed)


async def _singly(
    send: Callable[[frozenset[str]], Awaitable[Record]], fields: frozenset[str], plain: Record
) -> tuple[frozenset[str], Record]:
    """The largest set that passes when fields are added singly to none of them, and the record of its request."""
    taken, record = fields - OPTIONAL_FIELDS, plain
    for name in ("include_usage", "continuous_usage_stats", "ignore_eos", "min_tokens"):
        if name in fields and (name != "continuous_usage_stats" or "include_usage" in taken):
            tried = await send(taken | {name})
            if not _refuses(tried):
                taken, record = taken | {name}, tried
    return taken, record


def _refuses(record: Record) -> bool:
    """The failure may be due to the request's fields, rather than to its sender, address or time."""
    if record.error == "in_band":
        return not record.event_s
    return record.http_status is not None and record.http_status >= 400 and record.http_status not in _NOT_THE_BODY


def without_refused(record: Record, fields: frozenset[str]) -> frozenset[str]:
    """``fields`` without those that a failure names; all of them when it is none or names none.

    The words count, whatever the status: gateways tell of a field that a library behind them does not know with 500.
    Known forms: pydantic's ``extra_forbidden``, "Unexpected fields in the request: {'ignore_eos'}", "Unrecognized
    request argument supplied: min_tokens", "got an unexpected keyword argument 'ignore_eos'", and max_tokens refused
    in favour of ``max_completion_tokens``.
    """
    detail = record.error_detail or ""
    failed = (record.http_status or 0) >= 400 or (record.error == "in_band" and not record.event_s)
    if not failed:
        return fields
    named = {name for name in fields if re.search(rf"\b{name}\b", detail)}
    if "stream_options" in detail and not named & {"include_usage", "continuous_usage_stats"}:
        named |= {"include_usage", "continuous_usage_stats"}
    if "include_usage" in named:
        named.add("continuous_usage_stats")
    left = fields - named
    if MODERN_LIMIT in detail and re.search(r"\bmax_tokens\b", detail):
        left |= {MODERN_LIMIT}
    return left


async def _only_model(target: Target, endpoint: Endpoint, connect: Connect | None, say: Callable[[str], None]) -> str:
    listed: tuple[str, ...] = ()
    why = "the server lists none"
    if connect is None:
        try:
            listed = tuple(card["id"] for card in await list_models(target, endpoint))
        except Unreachable as error:  # the request itself will say what is wrong
            why = str(error)
    if listed:
        model = choose_model(target, listed, endpoint.redact)
        say(f"no model named (--model): {model} is asked, the only one listed")
        return model
    say(f"no model named (--model): {DEFAULT_MODEL!r} is asked, a guess ({why})")
    return DEFAULT_MODEL
