"""What must be known of an endpoint before the first measured request: that it may be loaded, is ready, which model it
serves, which request fields it takes, how its tokenizer counts our words.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

from loadramp.drive.endpoint import Endpoint, is_private
from loadramp.drive.probe import preflight
from loadramp.drive.ready import Unreachable, choose_model, control_client, wait_until_ready
from loadramp.plan.prompts.words import Calibration, render
from loadramp.plan.scenario import Target
from loadramp.registry import ScenarioError

SHORT_WORDS, LONG_WORDS = 16, 200
WARNING_WORDS = {
    "dropped_include_usage": "the server refuses stream_options.include_usage: tokens are counted by events",
    "dropped_continuous_usage_stats": "the server has no running token counts: events of several tokens are spread",
    "dropped_ignore_eos": "the server refuses ignore_eos: answers may be shorter than asked",
    "dropped_min_tokens": "the server refuses min_tokens: answers may be shorter than asked",
    "no_usage": "the server does not count tokens: each event counts as one",
    "short_output": "answers are shorter than asked: the length cannot be forced here",
}


def guard(endpoint: Endpoint, permitted: str | None) -> None:
    """Refuse to load a public host unless its name was given once more.

    Raises:
        ScenarioError: it is public and ``permitted`` is not its name.
    """
    if permitted is not None and permitted.strip("[]").lower() == endpoint.host.lower():
        return
    if not is_private(endpoint.host, _addresses):
        raise ScenarioError(
            f"{endpoint.host} is a public host: a load test needs its owner's leave; "
            f"if you have it, add --yes-i-may-load-test {endpoint.host}"
        )


def _addresses(host: str) -> list[str]:
    return [str(info[4][0]) for info in socket.getaddrinfo(host, None)]


@dataclass(slots=True, frozen=True)
class Survey:
    """What was found out."""

    model: str
    fields: frozenset[str]
    """The optional request fields that the server takes."""
    warnings: tuple[str, ...]
    calibration: Calibration
    identity: dict[str, Any]
    """What the server says it is; what it does not say is left out."""


async def survey(target: Target, endpoint: Endpoint, say: Callable[[str], None]) -> Survey:
    """Wait until the endpoint is ready, then find out all of it with a few requests.

    Raises:
        Unreachable: the endpoint does not answer as it must.
        ScenarioError: no model can be chosen.
    """
    ready = await wait_until_ready(target, endpoint, clock=time.monotonic, say=say)
    for note in ready.notes:
        say(f"note: {note}")
    model = choose_model(target, ready.models)
    texts = [render(((secrets.randbits(60), words),), Calibration()) for words in (SHORT_WORDS, LONG_WORDS)]
    first = await preflight(target, endpoint, model, clock=time.monotonic, prompt=texts[0])
    if not first.record.ok:
        raise Unreachable(f"{endpoint.url}: a first request failed: {first.record.error}: {first.record.error_detail}")
    second = await preflight(target, endpoint, model, clock=time.monotonic, prompt=texts[1], fields=first.fields)
    warnings = tuple(dict.fromkeys(first.warnings))
    for warning in warnings:
        say(f"note: {WARNING_WORDS.get(warning, warning)}")
    calibration = _calibration(first.prompt_tokens, second.prompt_tokens)
    return Survey(model, first.fields, warnings, calibration, await _identity(target, endpoint))


def _calibration(short: int | None, long: int | None) -> Calibration:
    if short is None or long is None or long <= short:
        return Calibration()
    per_word = (long - short) / (LONG_WORDS - SHORT_WORDS)
    return Calibration(tokens_per_word=per_word, overhead_tokens=max(0.0, short - per_word * SHORT_WORDS))


async def _identity(target: Target, endpoint: Endpoint) -> dict[str, Any]:
    """What the server says it is: header, version, longest context. Whatever is missing is left out."""
    found: dict[str, Any] = {}
    base = endpoint.address("health").partition("?")[0].removesuffix("/health")
    async with control_client(target, endpoint) as http:
        with contextlib.suppress(httpx.HTTPError, ValueError):
            reply = await http.get(f"{base}/version")
            found["server"] = reply.headers.get("server")
            body = reply.json() if reply.status_code == 200 else {}
            found["version"] = body.get("version") if isinstance(body, dict) else None
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, IndexError, TypeError):
            card = (await http.get(endpoint.address("models"))).json()["data"][0]
            found["max_model_len"] = card.get("max_model_len")
            found["engine"] = card.get("owned_by")
    return {key: value for key, value in found.items() if value is not None}
