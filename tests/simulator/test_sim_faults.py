"""Every fault that can be switched on is seen on the wire, and nothing else changes."""

import asyncio
from typing import Any

import numpy as np
import pytest
from memory_pipe import Connect
from metrics_pages import read
from raw_http_client import CHAT, Reply, Wire, chat, on_simulator

from loadramp.registry import ScenarioError, bind_options
from loadramp.simulator.faults import Fate, Faults
from loadramp.simulator.service import Service


def replies(n: int, tokens: int, faults: Faults, gap_s: float = 1.0, body: Any = None, **options: Any) -> list[Reply]:
    """``n`` chats a second apart, each on a connection of its own."""

    async def talk(service: Service, connect: Connect) -> list[Reply]:
        seen = []
        for i in range(n):
            await asyncio.sleep(max(0.0, i * gap_s - service.clock()))
            wire = await Wire.open(connect)
            seen.append(await wire.post(CHAT, body or chat(tokens=tokens)))
        return seen

    result = on_simulator(talk, faults=faults, **options)
    assert isinstance(result, list)
    return result


def only(tokens: int, faults: Faults, **options: Any) -> Reply:
    return replies(1, tokens, faults, **options)[0]


HEALTHY_S = [0.0103 + 0.011 * i for i in range(10)]


def test_a_share_of_requests_is_refused_with_the_status_asked_for() -> None:
    seen = replies(400, 1, Faults(error_ratio=0.25, error_status=503, retry_after_s=7), gap_s=0.1)
    refused = [r for r in seen if r.status == 503]
    assert 70 <= len(refused) <= 130
    assert refused[0].json["error"]["code"] == 503
    assert refused[0].headers["retry-after"] == "7"
    assert {r.status for r in seen} == {200, 503}


@pytest.mark.parametrize("status", [429, 500])
def test_other_statuses_have_error_bodies_too(status: int) -> None:
    reply = only(1, Faults(error_ratio=1.0, error_status=status))
    assert (reply.status, reply.json["error"]["code"], "retry-after" in reply.headers) == (status, status, False)


@pytest.mark.parametrize("after", [0, 1, 4])
def test_an_error_event_comes_inside_the_stream_after_so_many_tokens(after: int) -> None:
    reply = only(10, Faults(in_band_ratio=1.0, in_band_tokens=after))
    assert (reply.status, reply.complete, len(reply.token_s)) == (200, True, after)
    assert '"error"' in reply.events[-2][1]
    assert reply.events[-1][1] == "[DONE]"


@pytest.mark.parametrize("after", [0, 3])
def test_a_reset_breaks_the_connection_after_so_many_tokens(after: int) -> None:
    reply = only(10, Faults(reset_ratio=1.0, reset_tokens=after))
    assert (reply.closed, reply.complete, len(reply.token_s)) == ("reset", False, after)


@pytest.mark.parametrize("after", [0, 3])
def test_a_truncated_stream_ends_in_the_middle_of_a_chunk(after: int) -> None:
    reply = only(10, Faults(truncate_ratio=1.0, truncate_tokens=after))
    assert (reply.closed, reply.complete, len(reply.token_s)) == ("end", False, after)
    assert reply.body.decode().split("\n\n")[-1].startswith('data: {"id"')


def test_a_request_that_breaks_leaves_the_engine() -> None:
    async def talk(service: Service, connect: Connect) -> tuple[int, int]:
        await (await Wire.open(connect)).post(CHAT, chat(tokens=100))
        await asyncio.sleep(0.1)
        return service.engine.running, service.engine.pool.used

    assert on_simulator(talk, faults=Faults(in_band_ratio=1.0, in_band_tokens=3)) == (0, 0)


def test_one_stream_stalls_and_then_gets_all_at_once_while_others_flow() -> None:
    seen = replies(40, 10, Faults(stall_ratio=0.5, stall_tokens=4, stall_s=0.5))
    stalled = [r for r in seen if max(np.diff(r.token_s)) > 0.4]
    assert 10 <= len(stalled) <= 30
    for reply in stalled:
        late = np.asarray(reply.token_s) - reply.headers_s
        assert late[:4] == pytest.approx(HEALTHY_S[:4])
        assert late[4:] == pytest.approx([HEALTHY_S[3] + 0.5] * 6)
        assert reply.events[-1][1] == "[DONE]"
    healthy = next(r for r in seen if r not in stalled)
    assert np.asarray(healthy.token_s) - healthy.headers_s == pytest.approx(HEALTHY_S)


def test_a_stall_shorter_than_the_answer_lets_the_rest_flow_on() -> None:
    reply = only(10, Faults(stall_ratio=1.0, stall_tokens=2, stall_s=0.03))
    assert reply.token_s == pytest.approx(HEALTHY_S[:2] + [HEALTHY_S[1] + 0.03] * 2 + HEALTHY_S[4:])


def test_the_first_requests_after_a_start_are_slow() -> None:
    seen = replies(4, 1, Faults(slow_requests=2, slow_s=0.5))
    assert [r.token_s[0] - r.headers_s for r in seen] == pytest.approx([0.5103, 0.5103, 0.0103, 0.0103])


def test_the_role_chunk_may_come_with_the_headers() -> None:
    reply = only(3, Faults(early_role=True))
    assert reply.chunks[0][0] == 0.0
    assert reply.chunks[0][1]["choices"][0]["delta"]["role"] == "assistant"
    assert sum("role" in c["choices"][0]["delta"] for _, c in reply.chunks if c["choices"]) == 1
    assert reply.token_s[0] == pytest.approx(0.0103)


def test_usage_may_be_missing_although_it_was_asked_for() -> None:
    assert "usage" not in only(3, Faults(no_usage=True)).body.decode()


def test_the_done_marker_may_be_missing() -> None:
    reply = only(3, Faults(no_done=True))
    assert reply.complete
    assert b"[DONE]" not in reply.body


def test_a_proxy_lets_bytes_through_only_every_so_often() -> None:
    reply = only(10, Faults(coalesce_s=0.05))
    assert reply.headers_s == 0.05
    assert len(reply.token_s) == 10
    assert len(set(np.round(reply.token_s, 9))) <= 3


def test_comments_keep_a_silent_stream_alive() -> None:
    reply = only(3, Faults(keepalive_s=0.1, slow_requests=1, slow_s=0.55))
    comments = [t for t, event in reply.events if event == ": keep-alive"]
    assert comments == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])


def test_an_event_may_carry_several_tokens() -> None:
    reply = only(10, Faults(tokens_per_event=4))
    assert [c["usage"]["completion_tokens"] for _, c in reply.chunks] == [0, 1, 5, 9, 10, 10]


def test_the_prompt_may_be_longer_than_its_sender_believes() -> None:
    reply = only(1, Faults(extra_prompt_tokens=100))
    assert reply.chunks[-1][1]["usage"]["prompt_tokens"] == 103
    assert reply.token_s[0] == pytest.approx(0.0164 + 0.0139)  # 64 tokens of the budget, then 39


def test_a_server_may_ignore_that_the_length_was_forced() -> None:
    seen = replies(30, 200, Faults(ignores_ignore_eos=True), gap_s=10, answer_tokens=50)
    reasons = {r.chunks[-2][1]["choices"][0]["finish_reason"] for r in seen}
    assert reasons == {"stop"}
    assert 30 < np.median([r.chunks[-1][1]["usage"]["completion_tokens"] for r in seen]) < 80


def test_the_engines_speed_may_change_in_mid_run() -> None:
    seen = replies(3, 2, Faults(speeds=((0.5, 0.5), (1.5, 4.0))))
    assert [np.diff(r.token_s)[0] for r in seen] == pytest.approx([0.011, 0.022, 0.00275])


def test_a_dead_engine_ends_streams_with_an_error_answers_503_and_then_refuses() -> None:
    async def talk(service: Service, connect: Connect) -> list[Any]:
        wire, other = await Wire.open(connect), await Wire.open(connect)
        broken = await wire.post(CHAT, chat(tokens=400))
        seen: list[Any] = [service.clock(), broken.events[-2][1], broken.complete]
        seen.append((await other.get("/health")).status)
        seen.append((await other.post(CHAT, chat())).status)
        await asyncio.sleep(0.6)
        seen.append(other.closed)
        with pytest.raises(ConnectionRefusedError):
            await connect(lambda *_: None, lambda *_: None)
        return seen

    at_s, error, complete, health, chat_status, closed = on_simulator(talk, faults=Faults(crash_at_s=1.0))
    assert at_s == 1.0
    assert "EngineCore encountered an issue" in error
    assert (complete, health, chat_status, closed) == (True, 503, 500, "end")


def test_a_dead_process_breaks_streams_off_and_comes_back_with_empty_counters() -> None:
    async def talk(service: Service, connect: Connect) -> tuple[Any, ...]:
        broken = await (await Wire.open(connect)).post(CHAT, chat(tokens=400))
        before = service.started_s
        await asyncio.sleep(2.1)
        wire = await Wire.open(connect)
        assert (await wire.post(CHAT, chat(tokens=4))).complete
        _, values = read((await wire.get("/metrics")).body.decode())
        return broken.closed, broken.complete, before, service.started_s, values["output_tokens"]

    faults = Faults(crash_at_s=1.0, crash_kind="process", restart_s=2.0)
    assert on_simulator(talk, faults=faults) == ("end", False, 0.0, 3.0, 4)


def test_running_out_of_memory_is_a_crash_at_a_concurrency() -> None:
    async def talk(service: Service, connect: Connect) -> list[Reply]:
        wires = [await Wire.open(connect) for _ in range(3)]
        return list(await asyncio.gather(*(wire.post(CHAT, chat(tokens=50)) for wire in wires)))

    seen = on_simulator(talk, faults=Faults(crash_running=3))
    assert all('"code": 500' in r.events[0][1] for r in seen)
    fine = on_simulator(talk, faults=Faults(crash_running=4))
    assert all(len(r.token_s) == 50 for r in fine)


@pytest.mark.parametrize(
    ("fault", "status", "kind"), [("missing", 404, "application/json"), ("html", 200, "text/html; charset=utf-8")]
)
def test_the_metrics_page_may_be_missing_or_be_something_else(fault: Any, status: int, kind: str) -> None:
    async def talk(service: Service, connect: Connect) -> Reply:
        return await (await Wire.open(connect)).get("/metrics")

    reply = on_simulator(talk, faults=Faults(metrics=fault))
    assert (reply.status, reply.headers["content-type"]) == (status, kind)


def test_the_metrics_page_may_never_come() -> None:
    async def talk(service: Service, connect: Connect) -> bool:
        reply = (await Wire.open(connect)).send("GET", "/metrics")
        await asyncio.sleep(3600)
        return reply.done()

    assert on_simulator(talk, faults=Faults(metrics="hang")) is False


def test_without_a_stream_faults_break_the_response_too() -> None:
    body = {"model": "sim", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9, "ignore_eos": True}
    assert only(9, Faults(in_band_ratio=1.0, in_band_tokens=3), body=body).status == 500
    assert only(9, Faults(reset_ratio=1.0), body=body).closed == "reset"
    torn = only(9, Faults(truncate_ratio=1.0), body=body)
    assert (torn.status, torn.complete, torn.closed) == (200, False, "end")


def test_faults_can_be_bound_from_a_table_and_are_checked() -> None:
    bound = bind_options({"error_ratio": 0.1, "speeds": [[5, 0.5]], "crash_kind": "process"}, Faults, "--fault")
    assert Faults(**bound) == Faults(error_ratio=0.1, speeds=((5.0, 0.5),), crash_kind="process")
    for table in ({"error_ratio": 2}, {"error_status": 200}, {"crash_kind": "soft"}, {"erorr_ratio": 0.1}):
        with pytest.raises(ScenarioError, match="--fault"):
            bind_options(table, Faults, "--fault")


def test_a_healthy_server_draws_no_fault_and_the_earliest_break_wins() -> None:
    rng = np.random.default_rng(0)
    assert {Faults().draw(rng) for _ in range(100)} == {Fate()}
    both = Faults(reset_ratio=1.0, reset_tokens=5, truncate_ratio=1.0, truncate_tokens=2)
    assert both.draw(rng) == Fate(breaks="truncate", breaks_after=2)


def test_faults_do_not_change_the_instants_of_other_requests() -> None:
    healthy = replies(10, 5, Faults())
    faulty = replies(10, 5, Faults(error_ratio=0.5))
    kept = [(a, b) for a, b in zip(healthy, faulty, strict=True) if b.status == 200]
    assert 0 < len(kept) < 10
    assert all(a.token_s == b.token_s for a, b in kept)
