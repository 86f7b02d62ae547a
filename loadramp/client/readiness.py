"""Calls beside the measurement: is the server ready, which models has it. The key goes with every one of them.

Nothing is read from the environment's proxy settings: a NO_PROXY that cannot be parsed is nobody's concern here.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import httpx

from loadramp.client.client_failure import describe_exception
from loadramp.client.endpoint import Endpoint
from loadramp.client.error_text import classify_error, describe_error_body
from loadramp.client.http.connect import proxy_of, tls_context_of
from loadramp.client.http.reply_parts import INFLATED, Inflate, codings_of, describe_status
from loadramp.client.stream.vendor_quirks import too_many_parts
from loadramp.record.sanitize import encodable
from loadramp.record.types import ErrorKind
from loadramp.registry import CannotMeasure, ScenarioError
from loadramp.scenario.scenario import Target

CALL_TIMEOUT_S = 5.0
POLL_S = 0.5
TRIAL_S = 10.0
"""A health check that has failed for so long may be wrong: then a request is tried, and again after as long."""
LIST_CAP_BYTES = 4 << 20
"""Of an answer, unpacked: JSON takes up to 30 times that in memory."""
MOST_MODELS = 10_000
_NOT_YET = {408, 425, 429, 500, 502, 503, 504}
_NOT_HERE = {404, 405, 501}
_REFUSED = {401, 403}

Trial = Callable[[tuple[str, ...], float], Awaitable[str | None]]
"""Sends one request, given the models that are listed and how long its first token may take, in seconds; why it failed,
None when it was answered."""


class Unreachable(CannotMeasure):
    """The server cannot be used: its address, the last error and its class, secrets taken out. Exit code 1."""


@dataclass(slots=True, frozen=True)
class Ready:
    """A server that answers. ``notes`` say which of its calls do not."""

    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    list_refused: bool = False
    """The list of models needs rights that the key does not have: no word about the API itself."""
    cards: tuple[Mapping[str, Any], ...] = field(default=(), compare=False)
    """What the server says of each model that it lists, where it says more than a name."""


@dataclass(slots=True, frozen=True)
class Reply:
    """One answer of a call beside the measurement, or why there is none. Status 0: there is none."""

    status: int = 0
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: ErrorKind | Literal["silent"] | None = None
    fault: str = ""
    waited_s: float = 0.0
    """How long an answer was waited for, where there is none."""

    @property
    def words(self) -> str:
        return describe_status(self.status, describe_error_body(self.content)) if self.status else self.fault


@dataclass(slots=True, frozen=True)
class _Look:
    state: Literal["ready", "doubtful", "not yet", "never"]
    """doubtful: requests may be answered, though a call that should say so does not."""
    words: str = ""
    ready: Ready = field(default_factory=Ready)


def control_client(target: Target, endpoint: Endpoint) -> httpx.AsyncClient:
    """An HTTP client for calls to ``endpoint``, with its headers, TLS settings and the proxy of ``target`` only."""
    proxy_of(target)
    context = tls_context_of(target, endpoint)
    return httpx.AsyncClient(
        headers={"Accept-Encoding": "identity", **endpoint.headers},
        verify=False if context is None else context,  # plain HTTP: spares reading the certificates
        proxy=target.proxy or None,
        timeout=CALL_TIMEOUT_S,
        trust_env=False,
    )


async def wait_until_ready(
    target: Target,
    endpoint: Endpoint,
    *,
    clock: Callable[[], float],
    say: Callable[[str], None] = lambda words: None,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    trial: Trial | None = None,
) -> Ready:
    """Return when ``endpoint`` can take requests.

    Ready is: ``/health`` does not say otherwise, and the models are listed; a server without ``/health``, or without
    a list when the model is named, is ready too. A health check that is silent, or fails for ``TRIAL_S``, is no
    obstacle where ``trial`` is answered. What cannot mend itself (key refused, certificate) ends the wait.

    Args:
        target: ``ready_timeout_s`` is how long to wait; 0: look once.
        endpoint: where.
        clock: seconds.
        say: told what is waited for, each thing once.
        sleep: waits between two looks.
        trial: a first request, which decides in doubt; None: a health check that fails is believed.

    Raises:
        Unreachable: with the URL and the last error.
    """
    begin_s = doubted_s = clock()
    end_s = begin_s + target.ready_timeout_s
    reported: set[str] = set()
    async with control_client(target, endpoint) as http:
        while True:
            last = clock() + POLL_S > end_s
            doubt = trial is not None and (last or clock() - doubted_s >= TRIAL_S)
            look = await _look(http, target, endpoint, min(CALL_TIMEOUT_S, max(0.5, end_s - clock())), doubt)
            if look.state == "doubtful" and trial is not None:
                doubted_s = clock()
                look = await _tried(look, trial, max(TRIAL_S, end_s - doubted_s))
            if look.state == "ready":
                return look.ready
            words = endpoint.redact(look.words)
            if look.state == "never" or last:
                waited = "" if look.state == "never" else f" within {target.ready_timeout_s:g} s"
                raise Unreachable(f"{endpoint.url} is not ready{waited}: {words}")
            if words not in reported:
                say(f"waiting for {endpoint.url}: {words}")
                reported.add(words)
            await sleep(POLL_S)


async def _tried(look: _Look, trial: Trial, limit_s: float) -> _Look:
    failed = await trial(look.ready.models, limit_s)
    if failed is None:
        return replace(look, state="ready")
    return _Look("not yet", f"{look.words}; a first request fails too: {failed}")


async def list_models(target: Target, endpoint: Endpoint) -> list[dict[str, Any]]:
    """What the server says of each model that it lists, with its ``id``. Raises Unreachable when it lists none."""
    async with control_client(target, endpoint) as http:
        reply = await call(http, endpoint.address("models"), CALL_TIMEOUT_S)
    cards = cards_in(reply.content) if reply.status == 200 else None
    if cards is None:
        problem = reply.words if reply.status != 200 else "no list of models"
        raise Unreachable(endpoint.redact(f"{endpoint.shown('models')}: {problem}"))
    return cards


def choose_model(target: Target, listed: tuple[str, ...], redact: Callable[[str], str] = str) -> str:
    """The model to ask for: the one named, else the only one listed.

    Raises:
        ScenarioError: that is not one model; names those listed, without what ``redact`` takes out.
    """
    if target.model:
        return target.model
    if len(listed) == 1:
        return listed[0]
    what = f"the server lists {len(listed)}: {redact(', '.join(listed[:8]))}" if listed else "the server lists none"
    raise ScenarioError(f"[target] model: name one (--model); {what}")


def describe_key(target: Target, endpoint: Endpoint) -> str:
    """What a 401 or 403 means for the key."""
    if any(header.lower() == "authorization" for header in endpoint.headers):
        return "the key is refused: name the variable that holds the right one with --api-key-env"
    return f"no key was sent: the environment variable {target.api_key_env} is not set (--api-key-env names another)"


async def call(http: httpx.AsyncClient, url: str, timeout_s: float = CALL_TIMEOUT_S) -> Reply:
    """One GET, answered whole within ``timeout_s`` seconds, or a reply that says why there is none."""
    body = bytearray()
    try:
        # the library's limits are for each read: a server that drips needs one for all of them, a little later
        async with asyncio.timeout(timeout_s + 0.25), http.stream("GET", url, timeout=timeout_s) as got:
            unpack = _unpacker(got.headers.get("content-encoding", "").encode("latin-1", "replace"))
            async for data in got.aiter_raw():
                body += unpack(data)
                if len(body) > LIST_CAP_BYTES:
                    return Reply(kind="truncated", fault=f"an answer above {LIST_CAP_BYTES >> 20} MiB")
    except httpx.ConnectTimeout:
        return Reply(kind="connect", fault=f"no connection within {timeout_s:.3g} s")
    except (TimeoutError, httpx.TimeoutException):
        return Reply(kind="silent", fault=f"no answer within {timeout_s:.3g} s", waited_s=timeout_s)
    except httpx.HTTPError as error:
        kind, words = classify_error(error)
        return Reply(kind=kind, fault=words)
    except (
        Exception
    ) as error:  # the fence (client/client_failure.py): libraries let some replies end in other exceptions
        return Reply(kind="client", fault=describe_exception(error))
    return Reply(got.status_code, bytes(body), got.headers)


def _unpacker(encoding: bytes) -> Callable[[bytes], bytes]:
    """What takes the pieces of a body out of its Content-Encoding, however much they grow: the library's own decoders
    know no bounds. One that was not asked for and is not known here leaves the body as it is."""
    codings = codings_of(encoding)
    return Inflate().feed if len(codings) == 1 and codings[0] in INFLATED else bytes


async def _look(http: httpx.AsyncClient, target: Target, endpoint: Endpoint, timeout_s: float, doubt: bool) -> _Look:
    """``doubt``: a call that says "not yet" is no answer yet; what can be known without it is."""
    health = await call(http, endpoint.address("health"), timeout_s)
    where = f"{endpoint.shown('health')}: {health.words}"
    if health.kind in {"tls", "connect"}:
        return _Look("never" if health.kind == "tls" else "not yet", where)
    failing = health.status in _NOT_YET
    if failing and not doubt:
        return _Look("not yet", where)
    models = await call(http, endpoint.address("models"), timeout_s)
    look = _judge(target, endpoint, health, models)
    if look.state == "ready" and (failing or not health.status):
        look = replace(look, state="doubtful", words=where)
    if look.state == "doubtful" and not doubt and "silent" not in {health.kind, models.kind}:
        return replace(look, state="not yet")  # it fails quickly: it may soon say something else
    return look


def _judge(target: Target, endpoint: Endpoint, health: Reply, models: Reply) -> _Look:
    """What both replies mean together, a failing health check left aside."""
    status, words = models.status, f"{endpoint.shown('models')}: {models.words}"
    notes = _health_notes(health)
    listed = _listed(models)
    if listed is not None:
        if target.model and target.model not in listed:
            shown = f"not among those listed: {', '.join(listed[:8])}" if listed else "not listed: the list is empty"
            notes = (*notes, f"model {target.model!r} is {shown}")
        return _Look("ready", ready=Ready(listed, notes, cards=tuple(cards_in(models.content) or ())))
    if status == 200:
        words = f"{endpoint.shown('models')} is no list of models: is the base URL right?"
    if models.kind in {"tls", "connect"}:
        return _Look("never" if models.kind == "tls" else "not yet", words)
    if target.model:  # nothing is needed of the list: the first request shows the rest
        unsure = status in _NOT_YET or not status
        ready = Ready((), (*notes, f"no list of models here ({words})"), status in _REFUSED)
        return _Look("doubtful" if unsure and not 200 <= health.status < 300 else "ready", words, ready)
    if status in _REFUSED:
        return _Look("never", f"{words}; {describe_key(target, endpoint)}")
    if 300 <= status < 400:
        return _Look("never", f"{words}; it redirects to {models.headers.get('location')}: name that address")
    return _Look("not yet" if status in _NOT_YET | _NOT_HERE or not status else "never", words)


def _health_notes(health: Reply) -> tuple[str, ...]:
    if 200 <= health.status < 300:
        return ()
    if health.kind == "silent":
        return (f"the health check does not answer within {health.waited_s:.3g} s",)
    if health.status in _NOT_YET or not health.status:
        return (f"the health check fails ({health.words}), though requests are answered",)
    return (f"no health check here (HTTP {health.status})",)


def cards_in(content: bytes) -> list[dict[str, Any]] | None:
    """The entries of a models reply as objects with an ``id``, in its order; None when it is no such reply."""
    if too_many_parts(content):
        return None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        return None
    listed = body.get("data", body.get("models")) if isinstance(body, dict) else body
    if not isinstance(listed, list):
        return None
    cards = [entry if isinstance(entry, dict) else {"id": entry} for entry in listed[:MOST_MODELS]]
    named = [{**card, "id": card.get("id", card.get("name"))} for card in cards]
    return [{**card, "id": encodable(str(card["id"]))} for card in named if card["id"]]


def _listed(reply: Reply) -> tuple[str, ...] | None:
    """Model ids of a models reply; None when it is none."""
    cards = cards_in(reply.content) if reply.status == 200 else None
    return None if cards is None else tuple(card["id"] for card in cards)
