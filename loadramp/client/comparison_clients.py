"""The same plan through httpx and through the openai SDK: what an application built on them would see.

Instants are those at which their iterators yield. No retries, no limit on connections, no proxy but the one named.
"""

import importlib
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from loadramp.client.comparison_base import ComparedRequest, ComparisonClient
from loadramp.client.endpoint import Endpoint
from loadramp.client.error_text import classify_error, describe_error, describe_error_body
from loadramp.client.http.connect import proxy_of, tls_context_of
from loadramp.client.http.pool import IDLE_S
from loadramp.client.http.response import ERROR_BODY_BYTES, REFUSAL_BYTES
from loadramp.client.stream.events import event_of_sdk
from loadramp.record.types import Arrival
from loadramp.scenario.scenario import Target


class HttpxClient(ComparisonClient):
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

    async def _stream(self, active: ComparedRequest, arrival: Arrival, request: bytes) -> None:
        headers = self._headers | self._headers_of(arrival)
        refused = bytearray()
        try:
            async with self._http.stream("POST", self._url, content=request, headers=headers) as response:
                active.status = response.status_code
                active.headers = {name.lower(): value for name, value in response.headers.raw}
                async for data in response.aiter_bytes():
                    t_s = self.now_s()
                    if response.status_code >= 300:
                        refused += data[: REFUSAL_BYTES - len(refused)]
                        if len(refused) == REFUSAL_BYTES:
                            break
                    else:
                        active.answer.body(data, t_s)
                        self._received(active, t_s)
                        if self._passed_limit(active):
                            break
            if active.fault is None:
                active.answer.end(self.now_s())
        except self._error as error:
            active.fault = classify_error(error, self._target.connect_timeout_s)
        active.refusal = describe_error_body(bytes(refused[:ERROR_BODY_BYTES]))


class OpenaiClient(ComparisonClient):
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

    async def _stream(self, active: ComparedRequest, arrival: Arrival, request: bytes) -> None:
        body: dict[str, Any] = msgspec.json.decode(request)
        asked = {key: body.pop(key) for key in ("model", "messages", "prompt", "input", "stream") if key in body}
        create: Any = self._create
        try:
            reply = await create(**asked, extra_body=body, extra_headers=self._headers_of(arrival) | self._omitted)
            active.status = 200
            if not self._target.stream:
                self._took(active, reply)
                active.answer.whole, active.answer.done_s = True, active.answer.last_s
                return
            active.status = reply.response.status_code
            async with reply:  # older SDKs leave the socket of a stream that breaks open
                async for chunk in reply:
                    self._took(active, chunk)
                    if self._passed_limit(active):
                        break
            active.answer.end(self.now_s())
        except self._sdk.APIStatusError as error:
            active.status, active.refusal = error.status_code, describe_error(error.body or error.message)
            active.headers = {name.lower().encode(): value.encode() for name, value in error.response.headers.items()}
        except self._broken as error:
            active.fault = classify_error(error, self._target.connect_timeout_s)
        except self._sdk.APIError as error:  # the SDK raises what a stream reports in band
            active.answer.error = describe_error(error.body or error.message)
        except ValueError as error:
            active.answer.malformed += 1
            active.fault = ("in_band", f"the SDK cannot read an event: {type(error).__name__}")

    def _took(self, active: ComparedRequest, chunk: Any) -> None:
        t_s = self.now_s()
        active.answer.event(event_of_sdk(chunk), b"", t_s)
        self._received(active, t_s)


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
        "verify": False if context is None else context,  # plain HTTP: spares reading the certificates
    }
