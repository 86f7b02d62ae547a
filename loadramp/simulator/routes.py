"""What the server answers on which path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from loadramp.simulator.answers import ENGINE_DEAD, error_document
from loadramp.simulator.generation import FAULT_WORDS, Generation
from loadramp.simulator.metrics_page import metrics_page
from loadramp.simulator.request_parser import WrongRequestError, prompt_of, read_ask

if TYPE_CHECKING:
    from loadramp.simulator.http import HttpRequest, ServerConnection
    from loadramp.simulator.service import Service

VERSION = "0.0.0+loadramp-sim"
_GET = {"/health", "/ping", "/version", "/v1/models", "/metrics"}
_POST = {"/v1/chat/completions", "/v1/completions", "/tokenize"}


def answer(connection: ServerConnection, request: HttpRequest) -> None:
    """Serve one request on ``connection``."""
    service = connection.service
    path = request.path.partition("?")[0]
    allowed = "GET" if path in _GET else "POST" if path in _POST else ""
    key = service.api_key
    if key and path.startswith("/v1") and request.headers.get("authorization") != f"Bearer {key}":
        connection.respond(401, b'{"error":"Unauthorized"}')
    elif not allowed:
        connection.respond(404, b'{"detail":"Not Found"}')
    elif request.method != allowed:
        connection.respond(405, b'{"detail":"Method Not Allowed"}', headers=[("allow", allowed)])
    elif path == "/metrics":
        _metrics(connection)
    elif path in {"/health", "/ping"}:
        connection.respond(200 if service.state == "up" else 503)
    elif allowed == "GET":
        document = {"version": VERSION} if path == "/version" else _models(service)
        connection.respond(200, msgspec.json.encode(document))
    else:
        _post(connection, request, path)


def _post(connection: ServerConnection, request: HttpRequest, path: str) -> None:
    service = connection.service
    if not request.headers.get("content-type", "application/json").startswith("application/json"):
        text = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        connection.respond(400, WrongRequestError(400, text, "Bad Request").body)
    elif service.state != "up":
        connection.respond(500, error_document(500, ENGINE_DEAD))
    elif path == "/tokenize":
        _tokenize(connection, request)
    else:
        _generate(connection, request, "chat" if path == "/v1/chat/completions" else "completions")


def _generate(connection: ServerConnection, request: HttpRequest, api: Literal["chat", "completions"]) -> None:
    service = connection.service
    faults = service.faults
    fate = service.fate()
    try:
        ask = read_ask(
            api,
            request.body,
            service.models,
            service.profile.max_model_len,
            faults.extra_prompt_tokens if api == "chat" else 0,
        )
    except WrongRequestError as wrong:
        connection.respond(wrong.status, wrong.body)
        return
    if fate.error:
        wait_s = faults.retry_after_s
        headers = [("retry-after", f"{wait_s:g}")] if wait_s is not None else []
        connection.respond(faults.error_status, error_document(faults.error_status, FAULT_WORDS), headers=headers)
    elif service.at_cap:
        connection.respond(429, error_document(429, "too many requests in flight"), headers=[("retry-after", "1")])
    else:
        connection.exchange = Generation(connection, ask, fate, request.headers.get("x-request-id", ""))
        connection.exchange.start()


def _metrics(connection: ServerConnection) -> None:
    service = connection.service
    fault = service.faults.metrics
    if fault == "missing":
        connection.respond(404, b'{"detail":"Not Found"}')
    elif fault == "html":
        connection.respond(200, b"<!doctype html><title>Sign in</title>", "text/html; charset=utf-8")
    elif fault == "none":
        started_at_s = service.epoch_s + service.started_s
        page = metrics_page(service.engine, service.models[0], started_at_s, service.memory_bytes())
        connection.respond(200, page.encode(), "text/plain; version=1.0.0; charset=utf-8")


def _models(service: Service) -> dict[str, Any]:
    created = int(service.epoch_s + service.started_s)
    base = service.models[0]
    data: list[dict[str, Any]] = [
        {
            "id": model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": model,
            "parent": None if model == base else base,
            "max_model_len": service.profile.max_model_len,
            "permission": [],
        }
        for model in service.models
    ]
    return {"object": "list", "data": data}


def _tokenize(connection: ServerConnection, request: HttpRequest) -> None:
    service = connection.service
    try:
        words = prompt_of(request.body)
    except WrongRequestError as wrong:
        connection.respond(wrong.status, wrong.body)
        return
    numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
    document = {
        "count": len(words),
        "max_model_len": service.profile.max_model_len,
        "tokens": [numbers[word] for word in words],
        "token_strs": None,
    }
    connection.respond(200, msgspec.json.encode(document))
