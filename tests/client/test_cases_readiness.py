"""Readiness is what requests need: calls beside the API may fail, as field cases 02, 03 and 17 and their like do."""

import asyncio
import json
import re
import time
from typing import Any

import httpx
import pytest
from scripted_server import DONE, FIN, USE, Act, C, reply, stream
from test_client_readiness import HEALTHY, LOADING, NOT_FOUND, ONE, Routed

from loadramp.client import readiness
from loadramp.client.endpoint import endpoint_of
from loadramp.client.error_text import classify_error
from loadramp.client.preflight import EndpointFacts, examine_endpoint, facts_of
from loadramp.client.probe import probe
from loadramp.client.readiness import Unreachable, wait_until_ready
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target

ANSWER = stream((0.0, C("a") + FIN("stop") + USE(9, 1) + DONE))
SILENT: list[Act] = [(60_000.0, "close")]
DRIPS: list[Act] = [(0.0, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"), *((20.0 * i, b" ") for i in range(90))]
GARBAGE: list[Act] = [(0.0, b"SSH-2.0-OpenSSH_9.6\r\n"), (0.0, "close")]
NO_LIST = "URL/models is no list of models: is the base URL right?"
FORBIDDEN = reply(b'{"error":{"message":"You lack the scope api.model.read."}}', "403 Forbidden")
UNAUTHORIZED = reply(b'{"error":{"message":"Invalid token"}}', "401 Unauthorized")


def server_of(health: list[Act], models: list[Act], chat: list[Act] = ANSWER) -> Routed:
    def route(path: str, headers: dict[str, str], number: int) -> list[Act]:
        return {"/health": health, "/v1/models": models, "/v1/chat/completions": chat}.get(path, NOT_FOUND)

    return Routed(route)


def surveyed(server: Routed, env: dict[str, str] | None = None, **target: Any) -> tuple[EndpointFacts, list[str]]:
    """What is found out of ``server`` before a run, and what is said; a second passes at each wait."""
    said: list[str] = []
    now_s = 0.0

    def clock() -> float:
        return now_s

    async def wait(seconds: float) -> None:
        nonlocal now_s
        now_s += max(seconds, 1.0)

    async def waited(asked: Target, where: Any, **options: Any) -> Any:
        return await wait_until_ready(asked, where, **{**options, "clock": clock, "sleep": wait})

    async def main() -> EndpointFacts:
        listener, url = await server.serve()
        asked = Target(**{"base_url": url, "ready_timeout_s": 20.0, **target})
        try:
            return await examine_endpoint(asked, endpoint_of(asked, env or {}), said.append, sleep=wait)
        finally:
            listener.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("loadramp.client.preflight.wait_until_ready", waited)
        patch.setattr(readiness, "CALL_TIMEOUT_S", 0.2)
        return asyncio.run(main()), said


@pytest.mark.parametrize("model", ["", "tiny"])
@pytest.mark.parametrize("health", [SILENT, DRIPS], ids=["silent", "drips"])
def test_a_silent_health_check_is_a_note_where_models_are_listed_and_a_request_is_answered(
    health: list[Act], model: str
) -> None:
    found, said = surveyed(server_of(health, ONE), model=model)
    assert found.model == "tiny"
    assert said.count("note: the health check does not answer within 0.2 s") == 1
    assert not any("waiting" in line or "scope" in line for line in said)


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (LOADING, "HTTP 503 Service Unavailable: Loading model"),
        (reply(b'{"unhealthy_count":1}', "500 Internal Server Error"), "HTTP 500 Internal Server Error"),
        (GARBAGE, "RemoteProtocolError"),
    ],
    ids=["503", "500", "garbage"],
)
def test_a_health_check_that_goes_on_failing_is_doubted_after_ten_seconds(health: list[Act], words: str) -> None:
    server = server_of(health, ONE)
    found, said = surveyed(server, model="tiny")
    assert found.model == "tiny"
    assert words in next(line for line in said if line.startswith("note: the health check fails ("))
    assert len([line for line in said if line.startswith("waiting for ")]) == 1  # said once, however often it is seen
    assert [request.path for request in server.requests].index("/v1/chat/completions") >= 9


def test_a_failing_health_check_is_right_where_a_first_request_fails_too() -> None:
    busy = reply(b'{"error":"the engine is dead"}', "503 Service Unavailable")
    with pytest.raises(Unreachable) as error:
        surveyed(server_of(LOADING, ONE, busy))
    assert "is not ready within 20 s: " in str(error.value)
    assert "Loading model" in str(error.value)
    assert "a first request fails too: http_5xx: HTTP 503 Service Unavailable: the engine is dead" in str(error.value)


def test_a_request_that_hangs_is_given_up_with_the_time_to_be_ready_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "TRIAL_S", 0.2)
    with pytest.raises(Unreachable) as error:
        surveyed(server_of(SILENT, ONE, SILENT), model="tiny", ready_timeout_s=0.1)
    assert "/health: no answer within 0.2 s; a first request fails too: timeout_first: no output within 0.2 s" in str(
        error.value
    )


def test_without_a_trial_a_failing_health_check_is_believed() -> None:
    async def main() -> None:
        listener, url = await server_of(SILENT, ONE).serve()
        target = Target(base_url=url, ready_timeout_s=0.0)
        try:
            await wait_until_ready(target, endpoint_of(target, {}), clock=time.monotonic)
        finally:
            listener.close()

    with pytest.raises(Unreachable, match=r"is not ready within 0 s: .*/health: no answer within 0\.5 s"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("models", "note"),
    [
        (FORBIDDEN, "no list of models here (URL/models: HTTP 403 Forbidden: You lack the scope api.model.read.)"),
        (UNAUTHORIZED, "no list of models here (URL/models: HTTP 401 Unauthorized: Invalid token)"),
        (NOT_FOUND, "no list of models here (URL/models: HTTP 404 Not Found: Not Found)"),
        (reply(b"gone", "410 Gone"), "no list of models here (URL/models: HTTP 410 Gone: gone)"),
        (reply(b'{"object":"list","data":[]}'), "model 'm' is not listed: the list is empty"),
        (reply(b"<html>", content_type="text/html"), f"no list of models here ({NO_LIST})"),
        (reply(b'{"data":{"m":{}}}'), f"no list of models here ({NO_LIST})"),
        (reply(b"", "302 Found", Location="/login"), "no list of models here (URL/models: HTTP 302 Found)"),
        (SILENT, "no list of models here (URL/models: no answer within 0.2 s)"),
        (reply(b" " * 9_000_000), "no list of models here (URL/models: an answer above 4 MiB)"),
    ],
    ids=["403", "401", "404", "410", "empty", "html", "no list", "login", "silent", "huge"],
)  # fmt: skip
@pytest.mark.parametrize("health", [HEALTHY, NOT_FOUND], ids=["healthy", "no health"])
def test_a_list_of_models_that_is_not_to_be_had_is_a_note_where_the_model_is_named(
    health: list[Act], models: list[Act], note: str
) -> None:
    found, said = surveyed(server_of(health, models), {"OPENAI_API_KEY": "sk-case"}, model="m")
    told = [line for line in said if line.startswith("note: ") and "model" in line.partition(" (")[0]]
    assert note in told[0].replace(told[0].partition("(")[2].partition("/models")[0] or "-", "URL")
    refused = "note: it is the list of models that is refused, not the key: a first request was answered"
    assert (refused in said) == (models in (FORBIDDEN, UNAUTHORIZED))
    assert found.model == "m"
    assert "max_model_len" not in found.identity


@pytest.mark.parametrize(("chat", "status"), [(UNAUTHORIZED, "401 Unauthorized"), (FORBIDDEN, "403 Forbidden")])
@pytest.mark.parametrize(
    ("env", "why"),
    [({"OPENAI_API_KEY": "sk-case"}, "the key is refused"), ({}, "no key was sent: the environment variable")],
)
def test_a_first_request_that_is_refused_shows_that_the_key_is(
    chat: list[Act], status: str, env: dict[str, str], why: str
) -> None:
    with pytest.raises(Unreachable) as error:
        surveyed(server_of(HEALTHY, FORBIDDEN, chat), env, model="m")
    assert f"a first request failed: http_4xx: HTTP {status}" in str(error.value)
    assert why in str(error.value)


def test_without_a_named_model_a_refused_list_ends_the_wait_as_before() -> None:
    with pytest.raises(Unreachable, match=r"HTTP 403 Forbidden: .*; the key is refused"):
        surveyed(server_of(HEALTHY, FORBIDDEN), {"OPENAI_API_KEY": "sk-case"})
    with pytest.raises(ScenarioError, match=r"\[target\] model: name one \(--model\); the server lists none"):
        surveyed(server_of(HEALTHY, reply(b'{"data":[]}')))


# -- facts of the model


CARDS = [
    {"id": "tiny", "owned_by": "vllm", "max_model_len": 512},
    {"id": "m", "owned_by": "sglang", "max_model_len": 8192},
    {"id": "big", "owned_by": "other", "max_model_len": 131072},
]


def listing(cards: list[Any]) -> list[Act]:
    return reply(json.dumps({"object": "list", "data": cards}).encode())


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_facts_come_from_the_card_of_the_model_wherever_it_stands(turn: int) -> None:
    found, _ = surveyed(server_of(HEALTHY, listing(CARDS[turn:] + CARDS[:turn])), model="m")
    assert (found.identity["max_model_len"], found.identity["engine"]) == (8192, "sglang")


@pytest.mark.parametrize(
    ("model", "cards"),
    [
        ("alias", CARDS),
        ("M", CARDS),
        ("org/m", CARDS),
        ("m", [{"name": "other", "max_model_len": 4}, "m"]),
        ("lora", [{"id": "base", "max_model_len": 4096, "owned_by": "vllm"}, {"id": "lora", "parent": "base"}]),
    ],
    ids=["alias", "case", "path", "bare names", "adapter"],
)
def test_without_a_card_of_the_model_there_are_no_facts(model: str, cards: list[Any]) -> None:
    found, _ = surveyed(server_of(HEALTHY, listing(cards)), model=model)
    assert {"max_model_len", "engine"} & found.identity.keys() == set()


def test_what_several_cards_of_one_model_do_not_agree_on_is_unknown() -> None:
    cards: list[dict[str, Any]] = [
        {"id": "m", "owned_by": "vllm", "max_model_len": 4096},
        {"id": "m", "owned_by": "vllm"},
    ]
    assert facts_of("m", cards) == {"max_model_len": None, "engine": "vllm"}
    assert facts_of("m", [{"id": "m", "max_model_len": 64}, {"id": "n"}]) == {"max_model_len": 64, "engine": None}
    slots = {"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_ctx_train": 8192}}
    assert facts_of("m", [slots]) == {"max_model_len": 4096, "engine": "llamacpp"}


def test_a_run_says_that_nobody_named_the_model() -> None:
    assert "note: no model named (--model): tiny is asked, the only one listed" in surveyed(server_of(HEALTHY, ONE))[1]
    assert not any("--model" in line for line in surveyed(server_of(HEALTHY, ONE), model="tiny")[1])


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (ONE, "no model named (--model): tiny is asked, the only one listed"),
        (reply(b'{"data":[]}'), "no model named (--model): 'default' is asked, a guess (the server lists none)"),
        (FORBIDDEN, "no model named (--model): 'default' is asked, a guess (URL: HTTP 403 Forbidden: You lack the "
                    "scope api.model.read.)"),
    ],
    ids=["one", "none", "refused"],
)  # fmt: skip
def test_a_probe_says_that_it_had_to_guess_the_model(models: list[Act], said: str) -> None:
    told: list[str] = []
    server = server_of(HEALTHY, models)

    async def main(**target: Any) -> str | None:
        listener, url = await server.serve()
        asked = Target(base_url=url, **target)
        try:
            record = await probe(asked, prompt="hi", output_tokens=1, clock=time.monotonic, say=told.append)
        finally:
            listener.close()
        return record.status

    assert asyncio.run(main(model="m")) == "ok"
    assert told == []
    assert asyncio.run(main()) == "ok"
    assert [re.sub(r"http\S+models", "URL", line) for line in told] == [said]


def test_a_library_s_time_out_is_worded_without_its_insides() -> None:
    inside = httpx.ReadTimeout("")
    inside.__cause__ = asyncio.CancelledError("Cancelled via cancel scope 7f2d0c1e; reason: deadline exceeded")
    assert classify_error(inside)[1] == "ReadTimeout: no answer in time"
    slow = httpx.ConnectTimeout("")
    slow.__cause__ = asyncio.CancelledError("Cancelled via cancel scope 7f2d0c1e; reason: deadline exceeded")
    assert classify_error(slow, 10.0) == ("connect", "no connection within 10 s")
