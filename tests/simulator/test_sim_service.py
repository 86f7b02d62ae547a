"""The simulated server on the wire, in simulated time: vLLM's shapes, exact instants, keep-alive, errors, metrics."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_pipe import Connect
from metrics_pages import read
from prometheus_client.parser import text_string_to_metric_families
from raw_http_client import CHAT, QUICK, Reply, Wire, chat, on_simulator, text_of

from benchmarks.offline_engine import simulate
from loadramp.simulator.profiles import PROFILES, EngineProfile
from loadramp.simulator.service import Service


def one(
    method: str, path: str, body: Any = None, profile: EngineProfile = QUICK, headers: Any = None, **options: Any
) -> Reply:
    async def talk(service: Service, connect: Connect) -> Reply:
        return await (await Wire.open(connect)).send(method, path, body, **(headers or {}))

    reply = on_simulator(talk, profile, **options)
    assert isinstance(reply, Reply)
    return reply


def test_a_chat_stream_has_vllms_chunks_in_vllms_order_at_the_engines_instants() -> None:
    reply = one("POST", CHAT, chat(tokens=3))
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert reply.headers_s == 0.0  # before any token: no first-token time there
    role, first, second, last, usage = (chunk for _, chunk in reply.chunks)
    assert role["choices"][0] == {
        "index": 0,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }
    assert role["usage"]["completion_tokens"] == 0
    assert first["choices"][0]["delta"].keys() == {"content"}
    assert [c["usage"]["completion_tokens"] for c in (first, second, last)] == [1, 2, 3]
    assert (second["choices"][0]["finish_reason"], last["choices"][0]["finish_reason"]) == (None, "length")
    assert usage["choices"] == []
    assert usage["usage"] | {"prompt_tokens_details": 0} == {
        "prompt_tokens": 3, "total_tokens": 6, "completion_tokens": 3, "prompt_tokens_details": 0,
    }  # fmt: skip
    assert reply.events[-1][1] == "[DONE]"
    assert [t for t, _ in reply.chunks] == pytest.approx([0.0103, 0.0103, 0.0213, 0.0323, 0.0323])


def shape(value: Any) -> Any:
    """Keys and types of a JSON value, its leaves forgotten."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    return [shape(part) for part in value] if isinstance(value, list) else type(value).__name__


@pytest.mark.parametrize(
    ("path", "body", "real"),
    [
        (CHAT, chat(tokens=2), "chat"),
        ("/v1/completions", {**chat(tokens=2), "prompt": "a b", "messages": None}, "completions"),
    ],
)
def test_the_keys_of_each_chunk_are_those_of_a_real_vllm(path: str, body: Any, real: str) -> None:
    expected = json.loads((Path(__file__).parents[1] / "data" / "sim" / "vllm_chunks.json").read_text())[real]
    got = [chunk for _, chunk in one("POST", path, body).chunks]
    got[-1]["usage"].pop("prompt_tokens_details")  # shown there only when asked for at start
    assert [shape(chunk) for chunk in got] == [shape(chunk) for chunk in expected]


def test_completions_stream_without_usage_ends_with_done() -> None:
    reply = one(
        "POST",
        "/v1/completions",
        {"model": "sim", "prompt": "a b c", "max_tokens": 4, "stream": True, "ignore_eos": True},
    )
    assert len(reply.chunks) == 4
    assert all("usage" not in chunk for _, chunk in reply.chunks)
    assert [text_of(c)[:1] == " " for _, c in reply.chunks] == [False, True, True, True]
    assert reply.events[-1][1] == "[DONE]"


@pytest.mark.parametrize("path", [CHAT, "/v1/completions"])
def test_without_stream_the_whole_answer_comes_when_it_is_done(path: str) -> None:
    body = {
        "model": "sim",
        "messages": [{"role": "user", "content": "a b c"}],
        "prompt": "a b c",
        "max_tokens": 4,
        "ignore_eos": True,
    }
    reply = one("POST", path, body)
    choice = reply.json["choices"][0]
    text = choice["message"]["content"] if path == CHAT else choice["text"]
    assert len(text.split()) == 4
    assert reply.json["usage"]["completion_tokens"] == 4
    assert reply.headers_s == pytest.approx(0.0103 + 3 * 0.011)


def test_the_wire_shows_the_same_instants_as_the_engine_alone_to_the_bit() -> None:
    rng = np.random.default_rng(5)
    profile = replace(PROFILES["kv-limited"], kv_blocks=300, prefix_cache=False)
    due_s = np.sort(rng.uniform(0, 4, 120))
    prompt, output = rng.integers(1, 400, 120), rng.integers(1, 60, 120)

    async def talk(service: Service, connect: Connect) -> list[list[float]]:
        loop = asyncio.get_running_loop()
        replies: list[asyncio.Future[Reply]] = []

        async def request(i: int) -> None:
            wire = await Wire.open(connect)
            body = chat(" ".join(["w"] * int(prompt[i])), int(output[i]))
            opened = loop.create_future()
            loop.call_at(float(due_s[i]), opened.set_result, None)
            await opened
            replies.append(wire.send("POST", CHAT, body))
            await replies[-1]

        await asyncio.gather(*(request(i) for i in range(120)))
        return [(await reply).token_s for reply in replies]

    seen = on_simulator(talk, profile, seed=9)
    service_rng = np.random.default_rng(9).spawn(1)[0]
    table, samples = simulate(profile, due_s, prompt, output, service_rng)
    assert samples[-1].values["preemptions"] > 0
    expected = [table.event_s[table.begin[i] : table.begin[i + 1]].tolist() for i in range(120)]
    assert seen == expected


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert one("POST", CHAT, chat(), seed=3).body == one("POST", CHAT, chat(), seed=3).body


def test_a_connection_is_kept_alive_and_closed_after_five_idle_seconds() -> None:
    async def talk(service: Service, connect: Connect) -> tuple[Any, ...]:
        wire = await Wire.open(connect)
        for _ in range(2):
            assert (await wire.post(CHAT, chat(tokens=1))).complete
        done_s = asyncio.get_running_loop().time()
        await asyncio.sleep(4.999)
        before = wire.closed
        await asyncio.sleep(0.002)
        return before, wire.closed, done_s, len(service.connections)

    assert on_simulator(talk) == (None, "end", pytest.approx(2 * 0.0103), 0)


def test_connection_close_is_honoured() -> None:
    reply = one("GET", "/health", headers={"connection": "close"})
    assert (reply.status, reply.headers["connection"], reply.complete) == (200, "close", True)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def talk(service: Service, connect: Connect) -> list[Reply]:
        wire = await Wire.open(connect)
        return [await reply for reply in (wire.send("POST", CHAT, chat(tokens=2)), wire.send("GET", "/version"))]

    first, second = on_simulator(talk)
    assert first.events[-1][1] == "[DONE]"
    assert "version" in second.json


def test_a_request_may_arrive_a_byte_at_a_time() -> None:
    async def talk(service: Service, connect: Connect) -> Reply:
        wire = await Wire.open(connect)
        pipe, whole = wire.pipe, []
        wire.pipe = type("Catch", (), {"write": staticmethod(whole.append)})
        reply = wire.send("POST", CHAT, chat(tokens=2))
        for byte in b"".join(whole):
            pipe.write(bytes([byte]))
        return await reply

    assert on_simulator(talk).events[-1][1] == "[DONE]"


def test_a_client_that_leaves_frees_its_seat_and_is_not_counted() -> None:
    async def talk(service: Service, connect: Connect) -> tuple[Any, ...]:
        wire = await Wire.open(connect)
        wire.send("POST", CHAT, chat(tokens=400))
        await asyncio.sleep(0.1)
        during = service.engine.running
        wire.pipe.close()
        await asyncio.sleep(0.1)
        page = (await (await Wire.open(connect)).get("/metrics")).body.decode()
        return during, service.engine.running, service.engine.pool.used, service.engine.stats.aborted, page

    during, after, used, aborted, page = on_simulator(talk)
    assert (during, after, used, aborted) == (1, 0, 0, 1)
    assert read(page)[1]["requests_aborted"] == 0
    assert read(page)[1]["requests_done"] == 0


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        (CHAT, b'{"model": "sim", ', 400, "JSON decode error"),
        (CHAT, b'{"model": "sim", "messages": [{"content": "\\ud800"}]}', 400, "JSON decode error"),
        (CHAT, {"model": "sim", "stream": True}, 400, "Field required"),
        (CHAT, {"model": "sim", "messages": "hi"}, 400, "valid list"),
        (CHAT, chat(model="nope"), 404, "The model `nope` does not exist. Valid aliases: sim."),
        (CHAT, chat(tokens=0), 400, "max_tokens must be at least 1, got 0."),
        (CHAT, chat(tokens=999_999), 400, "cannot be greater than max_model_len=512"),
        (CHAT, chat("w " * 600), 400, "your prompt contains at least 513 input tokens"),
        (CHAT, chat("w " * 500, tokens=100), 400, "for a total of at least 600 tokens"),
        (CHAT, chat(min_tokens=50, tokens=10), 400, "min_tokens must be less than or equal to max_tokens=10, got 50."),
        (CHAT, chat(stream=False), 400, "Stream options can only be defined when `stream=True`."),
        (CHAT, chat(n=2), 400, "n=2"),
        (CHAT, chat(max_tokens="many"), 400, "validation error"),
        ("/v1/completions", {"model": "sim", "prompt": ""}, 400, "must be provided and non-empty"),
    ],
)
def test_wrong_requests_get_vllms_error_bodies(path: str, body: Any, status: int, words: str) -> None:
    reply = one("POST", path, body)
    assert reply.status == status
    error = reply.json["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert words in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/health", 200, b""),
        ("GET", "/v1/chat/completions", 405, b'{"detail":"Method Not Allowed"}'),
        ("POST", "/nowhere", 404, b'{"detail":"Not Found"}'),
    ],
)
def test_other_routes(method: str, path: str, status: int, body: bytes) -> None:
    reply = one(method, path)
    assert (reply.status, reply.body) == (status, body)


def test_garbage_is_answered_with_400_and_the_connection_closed() -> None:
    async def talk(service: Service, connect: Connect) -> Reply:
        wire = await Wire.open(connect)
        return await wire.send("ST\x01ART", "/")

    reply = on_simulator(talk)
    assert (reply.status, reply.headers["connection"]) == (400, "close")


def test_models_list_the_context_length_and_the_adapters() -> None:
    reply = one("GET", "/v1/models", model="base", adapters=("lora-a",))
    assert [(m["id"], m["parent"], m["max_model_len"]) for m in reply.json["data"]] == [
        ("base", None, 512),
        ("lora-a", "base", 512),
    ]


def test_a_key_is_asked_for_under_v1_only() -> None:
    assert one("GET", "/v1/models", api_key="k").json == {"error": "Unauthorized"}
    assert one("GET", "/v1/models", api_key="k", headers={"authorization": "Bearer no"}).status == 401
    assert one("GET", "/v1/models", api_key="k", headers={"authorization": "Bearer k"}).status == 200
    assert one("GET", "/health", api_key="k").status == 200
    assert one("GET", "/metrics", api_key="k").status == 200


def test_a_token_is_a_word_and_the_template_adds_none() -> None:
    body = {
        "model": "sim",
        "messages": [
            {"role": "system", "content": "be kind"},
            {"role": "user", "content": [{"type": "text", "text": "a  b\nc"}]},
        ],
    }
    assert one("POST", "/tokenize", body).json["count"] == 5
    assert one("POST", "/tokenize", {"model": "sim", "prompt": "x y x"}).json["tokens"] == [0, 1, 0]
    assert one("POST", "/v1/completions", {"model": "sim", "prompt": [5, 6, 7, 8]}).json["usage"]["prompt_tokens"] == 4


def test_answers_stop_by_themselves_unless_their_length_is_forced() -> None:
    async def talk(service: Service, connect: Connect) -> list[tuple[int, str]]:
        wire, seen = await Wire.open(connect), []
        for _ in range(40):
            reply = await wire.post(
                CHAT, {"model": "sim", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 100}
            )
            seen.append((reply.json["usage"]["completion_tokens"], reply.json["choices"][0]["finish_reason"]))
        return seen

    seen = on_simulator(talk, answer_tokens=60)
    assert {reason for tokens, reason in seen if tokens < 100} == {"stop"}
    assert {reason for tokens, reason in seen if tokens == 100} == {"length"}
    assert 40 < np.median([tokens for tokens, _ in seen]) < 90


def test_a_conversation_sent_back_is_found_in_the_prefix_cache_answers_included() -> None:
    async def talk(service: Service, connect: Connect) -> int:
        wire = await Wire.open(connect)
        said = [{"role": "user", "content": " ".join(f"w{i}" for i in range(40))}]
        reply = await wire.post(CHAT, {"model": "sim", "messages": said, "max_tokens": 60, "ignore_eos": True})
        said += [reply.json["choices"][0]["message"], {"role": "user", "content": "and now"}]
        again = await wire.post(CHAT, {"model": "sim", "messages": said, "max_tokens": 2, "ignore_eos": True})
        return int(again.json["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert on_simulator(talk) == 96  # 100 tokens said and answered: six full blocks


def test_an_adapter_is_a_model_of_its_own_and_its_first_use_is_slow() -> None:
    async def talk(service: Service, connect: Connect) -> list[float]:
        wire, took = await Wire.open(connect), []
        for model in ("sim", "lora-a", "lora-a"):
            begun = service.clock()
            reply = await wire.post(CHAT, chat(model=model, tokens=1))
            took.append(reply.token_s[0] - begun)
        return took

    assert on_simulator(talk, replace(QUICK, adapter_load_s=2.0), adapters=("lora-a",)) == pytest.approx(
        [0.0103, 2.0103, 0.0103]
    )


def test_a_full_queue_is_told_inside_a_stream_of_status_200() -> None:
    async def talk(service: Service, connect: Connect) -> list[Reply]:
        wires = [await Wire.open(connect) for _ in range(8)]
        return list(await asyncio.gather(*(wire.post(CHAT, chat(tokens=30)) for wire in wires)))

    replies = on_simulator(talk, replace(QUICK, max_queue=3))
    assert [r.status for r in replies] == [200] * 8
    refused = [r for r in replies if '"code": 503' in r.events[0][1]]
    assert len(refused) == 5
    assert refused[0].events[1][1] == "[DONE]"


def test_a_cap_on_requests_answers_429() -> None:
    async def talk(service: Service, connect: Connect) -> list[Reply]:
        wires = [await Wire.open(connect) for _ in range(4)]
        return list(await asyncio.gather(*(wire.post(CHAT, chat(tokens=30)) for wire in wires)))

    replies = on_simulator(talk, replace(QUICK, max_in_flight=3))
    assert [r.status for r in replies] == [200, 200, 200, 429]
    assert replies[3].headers["retry-after"] == "1"


def test_the_metrics_page_holds_the_identities_of_n_requests_with_m_tokens() -> None:
    async def talk(service: Service, connect: Connect) -> str:
        wires = [await Wire.open(connect) for _ in range(7)]
        await asyncio.gather(*(wire.post(CHAT, chat("a b c d e", tokens=9)) for wire in wires))
        return (await wires[0].get("/metrics")).body.decode()

    page = on_simulator(talk)
    samples = {
        (s.name, s.labels.get("finished_reason"), s.labels.get("le")): s.value
        for family in text_string_to_metric_families(page)
        for s in family.samples
    }
    n, m, p = 7, 9, 5
    assert samples["vllm:time_to_first_token_seconds_count", None, None] == n
    assert samples["vllm:inter_token_latency_seconds_count", None, None] == n * (m - 1)
    assert samples["vllm:request_generation_tokens_sum", None, None] == n * m
    assert samples["vllm:prompt_tokens_total", None, None] == n * p
    assert samples["vllm:request_success_total", "length", None] == n
    assert samples["vllm:e2e_request_latency_seconds_bucket", None, "+Inf"] == n
    dialect, values = read(page)
    assert dialect == "vllm"
    assert (values["requests_done"], values["output_tokens"], values["kv_blocks"]) == (n, n * m, 64)


def test_the_page_read_back_is_what_the_engine_says_of_itself() -> None:
    async def talk(service: Service, connect: Connect) -> tuple[dict[str, float], dict[str, float]]:
        wires = [await Wire.open(connect) for _ in range(9)]
        for wire in wires:
            wire.send("POST", CHAT, chat("a b c d e " * 4, tokens=40))
        await asyncio.sleep(0.3)
        page = (await (await Wire.open(connect)).get("/metrics")).body.decode()
        return read(page)[1], service.engine.gauges()

    profile = replace(QUICK, draft_tokens=2, accept_ratio=0.5, token_budget=128)
    read_back, said = on_simulator(talk, profile)
    assert said["waiting"] > 0
    assert said["spec_accepted_tokens"] > 0
    assert {key: read_back.get(key) for key in said} == pytest.approx(said)


def test_a_scrape_in_mid_step_shows_only_tokens_that_exist() -> None:
    async def talk(service: Service, connect: Connect) -> list[float]:
        wire, other = await Wire.open(connect), await Wire.open(connect)
        wire.send("POST", CHAT, chat(tokens=5))
        seen = []
        for at_s in (0.005, 0.015, 0.0215):
            await asyncio.sleep(at_s - service.clock())
            seen.append(read((await other.get("/metrics")).body.decode())[1]["output_tokens"])
        return seen

    assert on_simulator(talk) == [0, 1, 2]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.sampled_from(["content", "text", "role"]), part),
    max_leaves=6,
)


@settings(max_examples=60)
@given(pieces=st.lists(st.binary(max_size=80), max_size=4), body=JSON)
def test_whatever_bytes_come_the_server_answers_or_closes_and_lives_on(pieces: list[bytes], body: Any) -> None:
    async def talk(service: Service, connect: Connect) -> tuple[int, int]:
        wild = await connect(lambda *_: None, lambda *_: None)
        for piece in pieces:
            wild.write(piece)
        odd = await (await Wire.open(connect)).post(CHAT, {"model": "sim", "messages": body, "max_tokens": 3})
        return odd.status, (await (await Wire.open(connect)).post(CHAT, chat(tokens=2))).status

    odd, fine = on_simulator(talk)
    assert odd in {200, 400}
    assert fine == 200
