"""Is the server ready: what is waited for, what ends the wait, what is said."""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from certs import Certificates, certificates
from scripted_server import DONE, FIN, USE, Act, C, Scripted, reply, stream

from loadramp.client.endpoint import endpoint_of
from loadramp.client.preflight import examine_endpoint
from loadramp.client.readiness import Ready, Unreachable, choose_model, list_models, wait_until_ready
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target

ONE = reply(b'{"object":"list","data":[{"id":"tiny","object":"model"}]}')
HEALTHY = reply(b"")
NOT_FOUND = reply(b'{"detail":"Not Found"}', "404 Not Found")
LOADING = reply(
    b'{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}', "503 Service Unavailable"
)
Route = Callable[[str, dict[str, str], int], list[Act]]
"""(path, headers, number of the request) to the reply."""


class Routed(Scripted):
    """A server whose replies depend on what is asked."""

    def __init__(self, route: Route) -> None:
        super().__init__([HEALTHY])
        self.route = route

    def take(self, head: bytes, body: bytes, connection: int) -> list[Act]:
        super().take(head, body, connection)
        asked = self.requests[-1]
        return self.route(asked.path, asked.headers, len(self.requests))


def routes(health: list[Act], models: list[Act]) -> Route:
    return lambda path, headers, number: health if "health" in path else models


def looked(route: Route, env: dict[str, str] | None = None, **target: Any) -> tuple[Ready, list[str], Routed]:
    """What waiting for a server with these replies gives, what was said meanwhile, and the server."""
    said: list[str] = []
    server = Routed(route)

    async def main() -> Ready:
        listener, url = await server.serve()
        options = {"ready_timeout_s": 5.0, "base_url": url, **target}
        asked = Target(**options)
        try:
            return await wait_until_ready(
                asked, endpoint_of(asked, env or {}), clock=time.monotonic, say=said.append, sleep=_no_wait
            )
        finally:
            listener.close()

    return asyncio.run(main()), said, server


async def _no_wait(seconds: float) -> None:
    await asyncio.sleep(0)


def test_a_healthy_server_that_lists_its_models_is_ready() -> None:
    ready, said, server = looked(routes(HEALTHY, ONE))
    assert (ready, said) == (Ready(("tiny",)), [])
    assert [request.path for request in server.requests] == ["/health", "/v1/models"]


def test_cf03_every_call_carries_the_key_and_a_missing_health_check_is_a_note() -> None:
    def route(path: str, headers: dict[str, str], number: int) -> list[Act]:
        if headers.get("authorization") != "Bearer sk-right":
            return reply(b'{"error":"Unauthorized"}', "401 Unauthorized")
        return NOT_FOUND if "health" in path else ONE

    ready, _, _ = looked(route, {"OPENAI_API_KEY": "sk-right"})
    assert (ready.models, ready.notes) == (("tiny",), ("no health check here (HTTP 404)",))
    locked, _, _ = looked(
        lambda path, headers, number: (
            (ONE if "models" in path else HEALTHY) if headers.get("authorization") == "Bearer sk-right" else NOT_FOUND
        ),
        {"OPENAI_API_KEY": "sk-right"},
    )
    assert locked == Ready(("tiny",))


@pytest.mark.parametrize("env", [{}, {"OPENAI_API_KEY": "sk-wrong-canary"}])
def test_cf05_a_refused_key_ends_the_wait_at_once(env: dict[str, str]) -> None:
    body = b'{"error":{"message":"Incorrect API key provided: sk-wrong-canary"}}'
    with pytest.raises(Unreachable) as error:
        looked(routes(HEALTHY, reply(body, "401 Unauthorized")), env, ready_timeout_s=600.0)
    words = str(error.value)
    assert "HTTP 401 Unauthorized: Incorrect API key provided" in words
    assert ("the key is refused" if env else "OPENAI_API_KEY is not set") in words
    assert "canary" not in words or not env


def test_er13_a_loading_server_is_waited_for_and_what_is_waited_for_is_said_once() -> None:
    def route(path: str, headers: dict[str, str], number: int) -> list[Act]:
        if number <= 3:
            return LOADING
        return HEALTHY if "health" in path else ONE

    ready, said, server = looked(route)
    assert ready.models == ("tiny",)
    assert len(server.requests) == 5
    assert len(said) == 1
    assert said[0].endswith("/health: HTTP 503 Service Unavailable: Loading model (unavailable_error, 503)")


def test_er13_a_server_that_listens_after_1_s_and_is_loaded_after_3_s_is_waited_for_3_s() -> None:
    """The case as it stands, on a clock that goes on while one waits."""
    now_s, said, listeners = 0.0, [], []
    server = Routed(lambda path, headers, number: ONE if "models" in path else HEALTHY if now_s >= 3.0 else LOADING)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def wait(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds
        if now_s >= 1.0 and not listeners:
            listeners.append(await asyncio.start_server(server._serve_one, "127.0.0.1", port))

    async def main() -> Ready:
        target = Target(base_url=f"http://127.0.0.1:{port}", ready_timeout_s=60.0)
        try:
            return await wait_until_ready(
                target, endpoint_of(target, {}), clock=lambda: now_s, say=said.append, sleep=wait
            )
        finally:
            listeners[0].close()

    assert asyncio.run(main()) == Ready(("tiny",))
    assert now_s == 3.0
    assert [request.path for request in server.requests] == ["/health"] * 5 + ["/v1/models"]
    refused, loading = said
    assert refused.startswith(f"waiting for http://127.0.0.1:{port}/v1: ")
    assert "Connection refused" in refused
    assert loading.endswith("/health: HTTP 503 Service Unavailable: Loading model (unavailable_error, 503)")


def test_er13_nothing_is_asked_of_the_model_before_the_server_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadramp.client.readiness.POLL_S", 0.01)
    answered = stream((0.0, C("a") + FIN("stop") + USE(9, 1) + DONE))

    def route(path: str, headers: dict[str, str], number: int) -> list[Act]:
        if "health" in path:
            return LOADING if number <= 4 else HEALTHY
        return ONE if "models" in path else answered

    server = Routed(route)

    async def main() -> None:
        listener, url = await server.serve()
        target = Target(base_url=url)
        try:
            await examine_endpoint(target, endpoint_of(target, {}), lambda _: None)
        finally:
            listener.close()

    asyncio.run(main())
    paths = [request.path for request in server.requests]
    assert paths[:6] == ["/health"] * 5 + ["/v1/models"]
    assert "/v1/chat/completions" not in paths[:6]
    assert paths.count("/v1/chat/completions") > 0


@pytest.mark.parametrize(
    "status", ["429 Too Many Requests", "500 Internal Server Error", "502 Bad Gateway", "504 Gateway Timeout"]
)
def test_er13_a_gateway_whose_server_is_not_up_yet_is_waited_for(status: str) -> None:
    def route(path: str, headers: dict[str, str], number: int) -> list[Act]:
        return reply(b"<html>gateway</html>", status) if number <= 2 else routes(HEALTHY, ONE)(path, headers, number)

    assert looked(route)[0].models == ("tiny",)


def test_er13_a_path_that_is_not_there_yet_is_waited_for() -> None:
    def route(path: str, headers: dict[str, str], number: int) -> list[Act]:
        return NOT_FOUND if number <= 4 else routes(HEALTHY, ONE)(path, headers, number)

    assert looked(route)[0].models == ("tiny",)


def test_er13_a_server_that_never_becomes_ready_is_given_up_in_time_with_its_last_words() -> None:
    with pytest.raises(Unreachable) as error:
        looked(routes(LOADING, ONE), ready_timeout_s=0.6)
    assert "is not ready within 0.6 s: " in str(error.value)
    assert "HTTP 503 Service Unavailable: Loading model" in str(error.value)


@pytest.mark.parametrize(
    ("health", "models", "note"),
    [
        (HEALTHY, NOT_FOUND, "no list of models here"),
        (NOT_FOUND, NOT_FOUND, "no list of models here"),
        (HEALTHY, reply(b"Internal Server Error", "500 Internal Server Error"), "no list of models here"),
        (HEALTHY, reply(b"<html>", content_type="text/html"), "no list of models here"),
        (HEALTHY, ONE, "model 'other' is not among those listed: tiny"),
    ],
    ids=["none", "neither", "broken", "html", "another"],
)
def test_a_named_model_needs_no_list(health: list[Act], models: list[Act], note: str) -> None:
    ready, _, _ = looked(routes(health, models), model="other")
    assert note in ready.notes[-1]


@pytest.mark.parametrize(
    ("models", "words"),
    [
        (reply(b"<html>", content_type="text/html"), "is no list of models: is the base URL right?"),
        (reply(b"", "301 Moved Permanently", Location="https://elsewhere/v1"), "it redirects to https://elsewhere/v1"),
        (reply(b'{"error":"no"}', "403 Forbidden"), "HTTP 403 Forbidden: no"),
    ],
    ids=["html", "redirect", "forbidden"],
)
def test_what_cannot_mend_itself_ends_the_wait(models: list[Act], words: str) -> None:
    with pytest.raises(Unreachable) as error:
        looked(routes(HEALTHY, models), ready_timeout_s=600.0)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("base_url", "words"),
    [
        ("http://127.0.0.1:9/v1", "Connection refused"),
        ("http://localhost:9/v1", "Connection refused"),
        ("http://no-such-host.invalid:8000", ""),
    ],
)
def test_cf05_a_server_that_cannot_be_reached_is_named_with_the_last_error(base_url: str, words: str) -> None:
    async def main() -> None:
        target = Target(base_url=base_url, ready_timeout_s=0.0)
        await wait_until_ready(target, endpoint_of(target, {}), clock=time.monotonic)

    with pytest.raises(Unreachable) as error:
        asyncio.run(main())
    assert base_url.removesuffix("/v1") in str(error.value)
    assert f"ConnectError: {words}".lower() in str(error.value).lower()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("tls"))


def test_cf05_a_certificate_error_is_named_and_ends_the_wait_at_once(made: Certificates) -> None:
    async def main(**options: Any) -> Ready:
        server = Routed(routes(HEALTHY, ONE))
        listener, url = await server.serve(made.server)
        target = Target(base_url=url, ready_timeout_s=600.0, **options)
        try:
            return await wait_until_ready(target, endpoint_of(target, {}), clock=time.monotonic)
        finally:
            listener.close()

    with pytest.raises(Unreachable) as error:
        asyncio.run(main())
    assert "certificate not trusted: self" in str(error.value)
    assert asyncio.run(main(ca_file=str(made.ca_file))).models == ("tiny",)
    assert asyncio.run(main(insecure=True)).models == ("tiny",)


def test_cf06_a_no_proxy_that_cannot_be_parsed_disturbs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,::1,localhost")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert looked(routes(HEALTHY, ONE))[0].models == ("tiny",)


@pytest.mark.parametrize(
    ("body", "models"),
    [
        (b'{"data":[{"id":"a"},{"id":"b"}]}', ("a", "b")),
        (b'{"models":[{"name":"a"}]}', ("a",)),
        (b'[{"id":"a"}]', ("a",)),
        (b'{"data":["a"]}', ("a",)),
        (b'{"data":[]}', ()),
    ],
)
def test_models_are_listed_in_the_shapes_there_are(body: bytes, models: tuple[str, ...]) -> None:
    assert looked(routes(HEALTHY, reply(body)))[0].models == models


def test_listing_models_says_why_it_cannot() -> None:
    async def main(models: list[Act]) -> list[str]:
        listener, url = await Routed(routes(HEALTHY, models)).serve()
        target = Target(base_url=url)
        try:
            return [card["id"] for card in await list_models(target, endpoint_of(target, {}))]
        finally:
            listener.close()

    assert asyncio.run(main(ONE)) == ["tiny"]
    with pytest.raises(Unreachable, match="models: HTTP 404 Not Found: Not Found"):
        asyncio.run(main(NOT_FOUND))
    with pytest.raises(Unreachable, match="models: no list of models"):
        asyncio.run(main(reply(b"<html>")))


def test_the_model_is_the_one_named_or_the_only_one() -> None:
    assert choose_model(Target(model="x"), ("a", "b")) == "x"
    assert choose_model(Target(), ("a",)) == "a"
    with pytest.raises(ScenarioError, match=r"\[target\] model: name one .* the server lists 2: a, b"):
        choose_model(Target(), ("a", "b"))
    with pytest.raises(ScenarioError, match="the server lists none"):
        choose_model(Target(), ())
