"""The same plan through httpx and through the openai SDK: what an application built on them would see.

Instants are those at which their iterators yield. No retries, no limit on connections, no proxy but the one named.
"""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from loadramp.client.comparison_base import Foreign, Sent
from loadramp.client.endpoint import Endpoint
from loadramp.client.error_text import error_words, fault_of, words
from loadramp.client.http.connect import proxy_of, tls_context_of
from loadramp.client.http.pool import IDLE_S
from loadramp.client.http.response import ERROR_BODY_BYTES, REFUSAL_BYTES
from loadramp.client.stream.events import event_of_sdk
from loadramp.record.types import Arrival
from loadramp.scenario.scenario import Target


class HttpxClient(Foreign):
    """Through ``httpx.AsyncClient.stream``, reading bytes as they come."""

    def __init__(self, target: Target, endpoint: Endpoint, model: str, **options: Any) -> None:
        super().__init__(target, endpoint, model, **options)
        import httpx

        self._error = httpx.HTTPError
        self._http = httpx.AsyncClient(**_http_options(httpx, target, endpoint))
        self._url = endpoint.address(target.api)
        self._headers = {
            "Accept": "text/event-stream, application/json" if target.stream else "application/json",
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
            **endpoint.headers,
        }

    async def close(self) -> None:
        await self._http.aclose()

    async def _stream(self, sent: Sent, arrival: Arrival, request: bytes) -> None:
        headers = self._headers | self._request_id(arrival)
        refused = bytearray()
        try:
            async with self._http.stream("POST", self._url, content=request, headers=headers) as response:
                sent.status = response.status_code
                sent.headers = {name.lower(): value for name, value in response.headers.raw}
                async for data in response.aiter_bytes():
                    t_s = self.now_s()
                    if response.status_code >= 300:
                        refused += data[: REFUSAL_BYTES - len(refused)]
                        if len(refused) == REFUSAL_BYTES:
                            break
                    else:
                        sent.answer.body(data, t_s)
                        self._heard(sent, t_s)
                        if self._beyond(sent):
                            break
            if sent.fault is None:
                sent.answer.end(self.now_s())
        except self._error as error:
            sent.fault = fault_of(error, self._target.connect_timeout_s)
        sent.said = error_words(bytes(refused[:ERROR_BODY_BYTES]))


class OpenaiClient(Foreign):
    """Through ``openai.AsyncOpenAI``: chunks as the SDK hands them out."""

    def __init__(self, target: Target, endpoint: Endpoint, model: str, **options: Any) -> None:
        super().__init__(target, endpoint, model, **options)
        import openai

        self._sdk = openai
        library = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.split(".")[0])
        self._broken = (openai.APIConnectionError, library.HTTPError)  # older SDKs let the latter out of a stream
        keyless = not any(name.lower() == "authorization" for name in endpoint.headers)
        self._omitted: dict[str, Any] = {"Authorization": openai.Omit()} if keyless else {}  # no key, no header
        self._client = openai.AsyncOpenAI(
            api_key="none",
            base_url=endpoint.url,
            default_headers={"Accept-Encoding": "identity", **endpoint.headers},
            default_query=dict(parse_qsl(endpoint.query)),
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(**_http_options(library, target, endpoint)),
        )
        self._create = {
            "chat": self._client.chat.completions.create,
            "completions": self._client.completions.create,
            "responses": self._client.responses.create,
        }[target.api]

    async def close(self) -> None:
        await self._client.close()

    async def _stream(self, sent: Sent, arrival: Arrival, request: bytes) -> None:
        body: dict[str, Any] = msgspec.json.decode(request)
        asked = {key: body.pop(key) for key in ("model", "messages", "prompt", "input", "stream") if key in body}
        create: Any = self._create
        try:
            reply = await create(**asked, extra_body=body, extra_headers=self._request_id(arrival) | self._omitted)
            sent.status = 200
            if not self._target.stream:
                self._took(sent, reply)
                sent.answer.whole, sent.answer.done_s = True, sent.answer.last_s
                return
            sent.status = reply.response.status_code
            async with reply:  # older SDKs leave the socket of a stream that breaks open
                async for chunk in reply:
                    self._took(sent, chunk)
                    if self._beyond(sent):
                        break
            sent.answer.end(self.now_s())
        except self._sdk.APIStatusError as error:
            sent.status, sent.said = error.status_code, words(error.body or error.message)
            sent.headers = {name.lower().encode(): value.encode() for name, value in error.response.headers.items()}
        except self._broken as error:
            sent.fault = fault_of(error, self._target.connect_timeout_s)
        except self._sdk.APIError as error:  # the SDK raises what a stream reports in band
            sent.answer.error = words(error.body or error.message)
        except ValueError as error:
            sent.answer.malformed += 1
            sent.fault = ("in_band", f"the SDK cannot read an event: {type(error).__name__}")

    def _took(self, sent: Sent, chunk: Any) -> None:
        t_s = self.now_s()
        sent.answer.event(event_of_sdk(chunk), b"", t_s)
        self._heard(sent, t_s)


def _http_options(library: Any, target: Target, endpoint: Endpoint) -> dict[str, Any]:
    """How both make their HTTP client; ``library`` is httpx or one with its interface."""
    proxy_of(target)
    context = tls_context_of(target, endpoint)
    return {
        "limits": library.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_S),
        "timeout": library.Timeout(None, connect=target.connect_timeout_s),
        "trust_env": False,
        "follow_redirects": False,
        "proxy": target.proxy or None,
        "verify": True if context is None else context,
    }
