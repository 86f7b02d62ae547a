"""Finds out what must be known of an endpoint before the first measured request: that it is ready, which model it
serves, which request fields it takes, how its tokenizer counts our words.
"""

import asyncio
import contextlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from loadramp.client.endpoint import Endpoint, endpoint_of
from loadramp.client.probe import AcceptedFields, SingleRequests, find_accepted_fields
from loadramp.client.readiness import (
    Trial,
    Unreachable,
    call,
    choose_model,
    control_client,
    describe_key,
    wait_until_ready,
)
from loadramp.client.request_body import OPTIONAL_FIELDS, unforced
from loadramp.record.run_info import Fact
from loadramp.record.sanitize import clean
from loadramp.record.types import LENGTH_NOT_FORCED, Calibration, ErrorKind, Prompt, Record
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.units import latency
from loadramp.workload.prompts.content import Content, content_of

Say = Callable[[str], None]
Sleep = Callable[[float], Awaitable[Any]]

SHORT_WORDS, LONG_WORDS = 16, 200
FACT_CHARS = 200
"""Of what a server says about itself."""
PAUSES_S = (1.0, 2.0, 4.0, 8.0)
"""Before a first request is tried again. It is no measurement: a server that warms up may refuse one or two."""
PASSING: frozenset[ErrorKind | None] = frozenset({"http_429", "http_5xx", "connect", "reset", "truncated"})
"""Errors that may pass by themselves. A time-out has waited long enough; a 4xx says the same again."""
WARNING_WORDS = {
    "dropped_include_usage": "the server refuses stream_options.include_usage: tokens are counted by events",
    "dropped_continuous_usage_stats": "the server has no running token counts: events of several tokens are spread",
    "dropped_ignore_eos": "the server refuses ignore_eos: answers may be shorter than asked",
    "dropped_min_tokens": "the server refuses min_tokens: answers may be shorter than asked",
    "no_usage": "the server does not count tokens: each event counts as one",
    LENGTH_NOT_FORCED: "[target] body gives answers a form of their own: their length is not forced",
    "burst_delivery": "most tokens of an answer came in one read: something on the way may hold them back",
    "short_output": "answers are shorter than asked: the length cannot be forced here",
}


@dataclass(slots=True, frozen=True)
class EndpointFacts:
    """What was found out about an endpoint."""

    model: str
    fields: frozenset[str]
    """The optional request fields that the server takes."""
    warnings: tuple[str, ...]
    calibration: Calibration
    identity: dict[str, Fact]
    """What the server says it is; what it does not say is left out."""
    models: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    """For each model that the scenario names: time to first token of its first request and of its second, seconds."""
    cards: Sequence[Mapping[str, Any]] = ()
    """What the server says of the models that it lists."""


async def examine_endpoint(
    target: Target,
    endpoint: Endpoint,
    say: Callable[[str], None],
    basis: Calibration = Calibration(),  # noqa: B008 (frozen)
    models: Sequence[str] = (),
    samples: Sequence[Prompt] = (),
    sleep: Sleep = asyncio.sleep,
) -> EndpointFacts:
    """Wait until the endpoint is ready, then find out all of it with a few requests.

    Args:
        target: how to talk to it.
        endpoint: where.
        say: told what is found.
        basis: how made-up text is written.
        models: names that requests will ask for beside the target's.
        samples: requests that carry more than text (images, tools, a format), each sent once to see that it is taken.
        sleep: waits before a request is tried again.

    Raises:
        Unreachable: the endpoint does not answer as it must.
        ScenarioError: no model can be chosen.
    """
    trial = trial_of(target, endpoint, models)
    ready = await wait_until_ready(target, endpoint, clock=time.monotonic, say=say, trial=trial)
    for note in ready.notes:
        say(f"note: {note}")
    model = _base(target, ready.models, models)
    if not target.model:
        say(f"note: {_guessed(model, models)}")
    texts = _texts(basis)

    async def ask(prompt: Content, name: str = model, fields: frozenset[str] = OPTIONAL_FIELDS) -> AcceptedFields:
        requests = SingleRequests(target, endpoint, name, time.monotonic)
        once = partial(find_accepted_fields, requests, prompt, fields=fields)
        return await with_retries(once, target.ready_timeout_s, lambda text: say(endpoint.redact(text)), sleep)

    first = await ask(texts[0])
    if not first.record.ok and basis.ids:
        say(f"note: no token ids here ({first.record.error_detail}): prompts are sent as text")
        basis = replace(basis, ids=())
        texts = _texts(basis)
        first = await ask(texts[0])
    if not first.record.ok:
        raise Unreachable(
            f"{endpoint.url}: a first request failed: {_why(first.record)}{_way_out(target, endpoint, first)}"
        )
    if ready.list_refused:
        say("note: it is the list of models that is refused, not the key: a first request was answered")
    second = await ask(texts[1], fields=first.fields)
    warnings = tuple(dict.fromkeys(first.warnings))
    for warning in warnings:
        if warning in WARNING_WORDS:  # of others the run's own answers tell more
            say(f"note: {WARNING_WORDS[warning]}")
    calibration = _calibrated(basis, first.prompt_tokens, second.prompt_tokens)
    for sample in samples:
        await _try_sample(SingleRequests(target, endpoint, model, time.monotonic), first.fields, calibration, sample)
    if any(unforced(target, replace(sample, output_tokens=1)) for sample in samples):
        say("note: [prompts] body gives answers a form of their own: their length is not forced")
    starts = {name: await _first_answers(partial(ask, _texts(basis)[0], name, first.fields), name) for name in models}
    for name, (cold_s, warm_s) in starts.items():
        if cold_s is not None and warm_s is not None:
            say(f"{name}: first token after {latency(cold_s)}, the second time after {latency(warm_s)}")
    identity = await _identity(target, endpoint, model, ready.cards)
    return EndpointFacts(model, first.fields, warnings, calibration, identity, starts, ready.cards)


def trial_of(target: Target, endpoint: Endpoint, models: Sequence[str] = ()) -> Trial:
    """A first request, for ``wait_until_ready``: the model is chosen as for a run."""

    async def trial(listed: tuple[str, ...], limit_s: float) -> str | None:
        hasty = replace(target, first_timeout_s=min(target.first_timeout_s, limit_s))
        requests = SingleRequests(hasty, endpoint, _base(target, listed, models), time.monotonic)
        tried = await find_accepted_fields(requests)
        return None if tried.record.ok else _why(tried.record)

    return trial


def _guessed(model: str, models: Sequence[str]) -> str:
    """How the model was chosen that nobody named."""
    if models:
        return f"no model named (--model): {model} is asked which fields it takes and how it counts tokens"
    return f"no model named (--model): {model} is asked, the only one listed"


def _base(target: Target, listed: tuple[str, ...], models: Sequence[str]) -> str:
    """The model that is asked about fields and lengths: the target's, else one that no request names."""
    if target.model or not models:
        return choose_model(target, listed, endpoint_of(target).redact)
    return next((name for name in listed if name not in models), models[0])


def _texts(basis: Calibration) -> list[Content]:
    """A short and a long prompt, as requests will write them."""
    return [
        content_of(Prompt(segments=((secrets.randbits(60), words),)), replace(basis, tokens_per_word=1.0))
        for words in (SHORT_WORDS, LONG_WORDS)
    ]


async def _try_sample(
    requests: SingleRequests, fields: frozenset[str], calibration: Calibration, sample: Prompt
) -> None:
    """Send one request as the run will send it.

    Raises:
        ScenarioError: the endpoint refuses it.
    """
    content = content_of(sample, calibration, requests.target.api)
    tried = await find_accepted_fields(requests, content, fields=fields, body=sample.body)
    if tried.record.error == "http_4xx":
        carries = [*(["images"] if sample.images else []), *(sample.body or {})]
        where = f" ({sample.label})" if sample.label else ""
        raise ScenarioError(
            f"[prompts]{where} the endpoint refuses a request with {', '.join(carries)}: {tried.record.error_detail}"
        )


async def _first_answers(
    once: Callable[[], Awaitable[AcceptedFields]], model: str
) -> tuple[float | None, float | None]:
    """Time to first token of two requests to ``model``, one after the other: the first may have to load an adapter.

    Raises:
        ScenarioError: the server does not know the model.
        Unreachable: it could not answer just now.
    """
    checks = []
    for _ in range(2):
        tried = await once()
        if not tried.record.ok:
            wrong = ScenarioError if tried.record.error == "http_4xx" else Unreachable
            raise wrong(f"[prompts] models: {model}: {_why(tried.record)}")
        checks.append(tried.record.sent_ttft_s)
    return checks[0], checks[1]


async def with_retries(
    once: Callable[[], Awaitable[AcceptedFields]], most_s: float, say: Say, sleep: Sleep
) -> AcceptedFields:
    """``once()``, and again after a pause where it failed of something that may pass, up to ``len(PAUSES_S)`` times.

    A pause is as long as the server asks (Retry-After), else as PAUSES_S say; all together are at most ``most_s``.
    """
    tried = await once()
    for pause_s in PAUSES_S:
        record = tried.record
        wait_s = max(pause_s, record.retry_after_s or 0.0)
        if not _may_pass(record) or wait_s > most_s:
            break
        most_s -= wait_s
        say(f"a first request failed ({_why(record)}); trying again in {wait_s:.2g} s")
        await sleep(wait_s)
        tried = await once()
    return tried


def _may_pass(record: Record) -> bool:
    return record.http_status in {408, 425} or (record.error in PASSING and record.http_status not in {501, 505})


def _way_out(target: Target, endpoint: Endpoint, first: AcceptedFields) -> str:
    """What may help against the failure of a first request, from what it said."""
    record = first.record
    if record.http_status in {401, 403}:
        return f"; {describe_key(target, endpoint)}"
    if 300 <= (record.http_status or 0) < 400:
        return (
            "; a login or a gateway, most likely: send what it asks for (--api-key-env, --header), or, if the endpoint "
            "has moved, name that address (--base-url)"
        )
    if not target.force_length or (record.http_status or 0) < 400 or record.http_status in {404, 408, 425, 429}:
        return ""
    if first.plain_failed:
        return "; it fails without ignore_eos and min_tokens too, so [target] force_length = false does not help"
    return "; if ignore_eos or min_tokens is what it refuses: [target] force_length = false"


def _why(record: Record) -> str:
    return f"{record.error or record.status}: {record.error_detail or 'no answer in it'}"


def _calibrated(basis: Calibration, short: int | None, long: int | None) -> Calibration:
    """``basis`` as this server counts it; as it is where the server does not count."""
    if short is None or long is None or long <= short:
        return basis
    per_word = (long - short) / (LONG_WORDS - SHORT_WORDS)
    return replace(basis, tokens_per_word=per_word, overhead_tokens=max(0.0, short - per_word * SHORT_WORDS))


async def _identity(
    target: Target, endpoint: Endpoint, model: str, cards: Sequence[Mapping[str, Any]]
) -> dict[str, Fact]:
    """What the server says it is (header, version), and what it says of ``model``. Whatever is missing is left out."""
    facts: dict[str, Fact] = {}
    async with control_client(target, endpoint) as http:
        reply = await call(http, f"{endpoint.server}/version")
    facts["server"] = _short(reply.headers.get("server"))
    with contextlib.suppress(ValueError, RecursionError):
        body = json.loads(reply.content) if reply.status == 200 else {}
        facts["version"] = _short(body.get("version")) if isinstance(body, dict) else None
    known = {key: value for key, value in (facts | facts_of(model, cards)).items() if value is not None}
    return {key: shown(endpoint, value) if isinstance(value, str) else value for key, value in known.items()}


def shown(endpoint: Endpoint, text: str) -> str:
    """What a server says of itself, as it may be kept and printed."""
    return clean(endpoint.redact(text))


def facts_of(model: str, cards: Sequence[Mapping[str, Any]]) -> dict[str, Fact]:
    """``max_model_len`` and ``engine`` (who owns it) from the cards whose id is ``model``, never from another's.

    A list may have several cards of one id (a gateway over several servers): what they do not agree on is unknown.
    llama.cpp names the context of a slot ``n_ctx``, in ``meta``.
    """
    of_model = [_with_context(card) for card in cards if card.get("id") == model]
    facts = {}
    for name, key in (("max_model_len", "max_model_len"), ("engine", "owned_by")):
        values = [card.get(key) for card in of_model]
        facts[name] = _short(values[0]) if values and all(value == values[0] for value in values) else None
    return facts


def _with_context(card: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = card.get("meta")
    return {"max_model_len": meta.get("n_ctx"), **card} if isinstance(meta, dict) else card


def _short(value: Any) -> Fact:
    """A short text, or a whole number that JSON carries everywhere; None for anything else that a server says."""
    if isinstance(value, str):
        return clean(value)[:FACT_CHARS]
    return value if type(value) is int and 0 <= value < 1 << 53 else None
