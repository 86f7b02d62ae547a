"""Calls beside the measurement: is the server ready, which models has it. The key goes with every one of them.

Nothing is read from the environment's proxy settings: a NO_PROXY that cannot be parsed is nobody's concern here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from loadramp.drive.dial import proxy_of, tls_context_of
from loadramp.drive.endpoint import Endpoint
from loadramp.drive.faults import error_words, fault_of
from loadramp.drive.replies import status_words
from loadramp.plan.scenario import Target
from loadramp.registry import CannotMeasure, ScenarioError

CALL_TIMEOUT_S = 5.0
POLL_S = 0.5
_NOT_YET = {408, 425, 429, 500, 502, 503, 504}
_NOT_HERE = {404, 405, 501}


class Unreachable(CannotMeasure):
    """The server cannot be used: its address, the last error and its class, secrets taken out. Exit code 1."""


@dataclass(slots=True, frozen=True)
class Ready:
    """A server that answers. ``notes`` say which of its calls do not."""

    models: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class _Look:
    state: Literal["ready", "not yet", "never"]
    words: str = ""
    models: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def control_client(target: Target, endpoint: Endpoint, timeout_s: float = CALL_TIMEOUT_S) -> httpx.AsyncClient:
    """An HTTP client for calls to ``endpoint``, with its headers, TLS settings and the proxy of ``target`` only."""
    proxy_of(target)
    context = tls_context_of(target, endpoint)
    return httpx.AsyncClient(
        headers=dict(endpoint.headers),
        verify=False if context is None else context,  # plain HTTP: spares reading the certificates
        proxy=target.proxy or None,
        timeout=timeout_s,
        trust_env=False,
    )


async def wait_until_ready(
    target: Target,
    endpoint: Endpoint,
    *,
    clock: Callable[[], float],
    say: Callable[[str], None] = lambda words: None,
    sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> Ready:
    """Return when ``endpoint`` can take requests.

    Ready is: ``/health`` does not say otherwise, and the models are listed; a server without ``/health``, or without
    a list when the model is named, is ready too. What cannot mend itself (key refused, certificate) ends the wait.

    Args:
        target: ``ready_timeout_s`` is how long to wait; 0: look once.
        endpoint: where.
        clock: seconds.
        say: told what is waited for, once for each change.
        sleep: waits between two looks.

    Raises:
        Unreachable: with the URL and the last error.
    """
    end_s = clock() + target.ready_timeout_s
    said = ""
    async with control_client(target, endpoint) as http:
        while True:
            left_s = max(0.5, end_s - clock())
            look = await _look(http, target, endpoint, min(CALL_TIMEOUT_S, left_s))
            if look.state == "ready":
                return Ready(look.models, tuple(look.notes))
            words = endpoint.redact(look.words)
            if look.state == "never" or clock() + POLL_S > end_s:
                waited = f" within {target.ready_timeout_s:g} s" if look.state == "not yet" else ""
                raise Unreachable(f"{endpoint.url} is not ready{waited}: {words}")
            if words != said:
                say(f"waiting for {endpoint.url}: {words}")
                said = words
            await sleep(POLL_S)


async def list_models(target: Target, endpoint: Endpoint) -> tuple[str, ...]:
    """The ids of the models that the server lists. Raises Unreachable when it does not list any."""
    async with control_client(target, endpoint) as http:
        try:
            reply = await http.get(endpoint.address("models"))
        except httpx.HTTPError as error:
            raise Unreachable(endpoint.redact(f"{endpoint.shown('models')}: {fault_of(error)[1]}")) from None
    found = _ids(reply)
    if reply.status_code != 200 or found is None:
        said = _words(reply) if reply.status_code != 200 else "no list of models"
        raise Unreachable(endpoint.redact(f"{endpoint.shown('models')}: {said}"))
    return found


def choose_model(target: Target, listed: tuple[str, ...]) -> str:
    """The model to ask for: the one named, else the only one listed. Raises ScenarioError when that is not one."""
    if target.model:
        return target.model
    if len(listed) == 1:
        return listed[0]
    what = f"the server lists {len(listed)}: {', '.join(listed[:8])}" if listed else "the server lists none"
    raise ScenarioError(f"[target] model: name one (--model); {what}")


async def _look(http: httpx.AsyncClient, target: Target, endpoint: Endpoint, timeout_s: float) -> _Look:
    replies: dict[str, httpx.Response] = {}
    for api in ("health", "models"):
        where = endpoint.shown(api)
        try:
            reply = await http.get(endpoint.address(api), timeout=timeout_s)
        except httpx.HTTPError as error:
            kind, words = fault_of(error)
            return _Look("never" if kind == "tls" else "not yet", f"{where}: {words}")
        replies[api] = reply
        if api == "health" and reply.status_code in _NOT_YET:
            return _Look("not yet", f"{where}: {_words(reply)}")
    return _judge(target, endpoint, replies["health"].status_code, replies["models"])


def _judge(target: Target, endpoint: Endpoint, health: int, models: httpx.Response) -> _Look:
    status, where = models.status_code, endpoint.shown("models")
    notes = [] if 200 <= health < 300 else [f"no health check here (HTTP {health})"]
    listed = _ids(models)
    if status == 200 and listed is not None:
        if target.model and listed and target.model not in listed:
            notes.append(f"model {target.model!r} is not among those listed: {', '.join(listed[:8])}")
        return _Look("ready", models=listed, notes=notes)
    words = f"{where}: {_words(models)}" if status != 200 else f"{where} is no list of models: is the base URL right?"
    if status in {401, 403}:
        name = target.api_key_env
        sent = any(header.lower() == "authorization" for header in endpoint.headers)
        why = "the key is refused" if sent else f"no key was sent: the environment variable {name} is not set"
        return _Look("never", f"{words}; {why}")
    if target.model and (status in _NOT_HERE or status == 200 or 200 <= health < 300):
        return _Look("ready", notes=[*notes, f"no list of models here ({words})"])
    if 300 <= status < 400:
        return _Look("never", f"{words}; it redirects to {models.headers.get('location')}: name that address")
    return _Look("not yet" if status in _NOT_YET | _NOT_HERE else "never", words)


def _ids(reply: httpx.Response) -> tuple[str, ...] | None:
    """Model ids of a models reply; None when it is none."""
    try:
        body = reply.json()
    except ValueError:
        return None
    listed = body.get("data", body.get("models")) if isinstance(body, dict) else body
    if not isinstance(listed, list):
        return None
    ids = [one.get("id", one.get("name")) if isinstance(one, dict) else one for one in listed]
    return tuple(str(one) for one in ids if one)


def _words(reply: httpx.Response) -> str:
    return status_words(reply.status_code, error_words(reply.content))
