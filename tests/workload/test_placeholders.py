"""``{session}``, ``{turn}`` and ``{request}`` in headers and body: turns of a session say that they belong together."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from command_line import in_process
from run_in_memory import scenario_of
from scripted_server import DONE, FIN, C, Scripted, arrival, client_on, jump, stream

from loadramp.client.comparison_base import ComparisonClient
from loadramp.client.endpoint import endpoint_of
from loadramp.client.probe import probe
from loadramp.client.sender import TURN, Sender
from loadramp.record.types import Step
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.workload.placeholders import check, filled, literals, numbers_of, used_in

ANSWER = stream((10, C("a")), (20, C("b")), (20, FIN("stop")), (20, DONE))
SESSIONS = """
[prompts]
kind = "sessions"
turns = 3
vary_turns = false
system_tokens = 10
input_tokens = 10
output_tokens = 6
think_s = 0.5
think_cv = 0
[arrivals]
kind = "constant"
"""
HEADERS = {"X-Session-ID": "{session}", "X-Turn": "t{turn}", "X-Correlation": "run7-{session}-{turn}/{request}"}
BODY: dict[str, Any] = {
    "user": "user-{session}",
    "session_params": {"id": "{session}", "offset": 0},
    "metadata": [{"k": "{request}"}, 7, None],
    "guided_regex": r"\d{3}-[a-z]{2,4}\p{Lu}",
    "chat_template": "{% for m in messages %}{{ m }}{{session}}{% endfor %}",
    "guided_grammar": 'root ::= "{" pair "}"',
    "example": '{"session": {"turn": 1}, "name": "{}"}',
}


def sent(step: Step, salt: int = 0) -> Scripted:
    """What a server saw of the sessions of one step."""
    server = Scripted([ANSWER])

    async def main() -> None:
        loop = asyncio.get_running_loop()
        client = client_on(server, headers=HEADERS, body=BODY)
        share = Sender(scenario_of(SESSIONS), client, loop.time, 0.0, lambda _: None, precise=False, salt=salt)
        share.begin(step, 40)
        await asyncio.sleep(12.0)
        await share.finish(100.0)
        await share.close()

    jump(main())
    return server


OPEN = Step(0, rate_rps=3.0, begin_s=1.0, warmup_s=0.0, measure_s=4.0)


@pytest.mark.parametrize("step", [OPEN, Step(0, users=2, begin_s=1.0, warmup_s=0.0, measure_s=4.0)])
def test_all_turns_of_a_session_carry_its_number_and_each_its_own(step: Step) -> None:
    """Field case 14: every turn looked like a new session to a router."""
    requests = sent(step).requests
    by_session: dict[str, list[str]] = {}
    for request in requests:
        by_session.setdefault(request.headers["x-session-id"], []).append(request.headers["x-turn"])
    assert len(by_session) > 3
    assert sum(turns == ["t0", "t1", "t2"] for turns in by_session.values()) > 2
    assert all(turns == ["t0", "t1", "t2"][: len(turns)] for turns in by_session.values())
    one = requests[0]
    session, request_id = one.headers["x-session-id"], one.headers["x-request-id"].rpartition("-")[2]
    assert one.headers["x-correlation"] == f"run7-{session}-0/{request_id}"
    assert len({request.headers["x-correlation"] for request in requests}) == len(requests)


def test_a_body_says_the_same_and_every_other_brace_stays() -> None:
    for request in sent(OPEN).requests:
        session = request.headers["x-session-id"]
        body = request.body
        assert body["user"] == f"user-{session}"
        assert body["session_params"] == {"id": session, "offset": 0}
        assert body["metadata"] == [{"k": request.headers["x-request-id"].rpartition("-")[2]}, 7, None]
        for name in ("guided_regex", "chat_template", "guided_grammar", "example"):
            assert body[name] == BODY[name]


def test_both_arms_of_a_mirrored_canary_send_the_same_numbers_in_the_same_order() -> None:
    """The arms have one plan; what one run's texts are salted with changes none of the numbers."""
    first, second = sent(OPEN, salt=1).requests, sent(OPEN, salt=2).requests
    assert [r.headers["x-session-id"] for r in first] == [r.headers["x-session-id"] for r in second]
    assert [r.headers["x-correlation"] for r in first] == [r.headers["x-correlation"] for r in second]
    assert first[0].body["messages"] != second[0].body["messages"]


def test_a_request_outside_sessions_is_a_session_of_its_own() -> None:
    assert numbers_of(arrival(7)) == {"session": "7", "turn": "0", "request": "7"}
    later = arrival(7 + 2 * TURN, session=7, turn=2)
    assert numbers_of(later) == {"session": "7", "turn": "2", "request": str(7 + 2 * TURN)}


def test_control_calls_belong_to_no_session_and_nothing_is_sent_as_a_template() -> None:
    endpoint = endpoint_of(Target(base_url="http://h:1", headers=HEADERS), {})
    assert endpoint.headers["X-Correlation"] == "run7-preflight-0/0"
    assert not any(used_in(value) for value in endpoint.headers.values())
    server = Scripted([ANSWER])

    async def main() -> None:
        client = client_on(server, headers={"x-request-id": "mine-{request}", "X-Plain": "as it is"})
        asked = arrival(5)
        await client.send(asked, client.prepare(asked, "hi"))
        await client.close()

    jump(main())
    headers = server.requests[0].headers
    assert headers["x-request-id"] == "mine-5"
    assert headers["x-loadramp-id"].endswith("-5")
    assert headers["x-plain"] == "as it is"


def test_the_comparison_clients_send_the_same() -> None:
    target = Target(base_url="http://h:1", headers=HEADERS, body=BODY)
    client = ComparisonClient(target, endpoint_of(target, {}), "m", clock=lambda: 0.0, t0_s=0.0)
    asked = arrival(9, session=4, turn=1)
    assert client._headers_of(asked)["X-Correlation"] == "run7-4-1/9"
    body = json.loads(client.prepare(asked, "hi"))
    assert body["session_params"]["id"] == "4"
    assert body["guided_regex"] == BODY["guided_regex"]


def test_secrets_beside_a_placeholder_stay_secret_and_numbers_are_none() -> None:
    target = Target(base_url="http://h:1", headers={
        "X-Session-ID": "{session}", "X-Api-Token": "s3cr3t-{session}", "Authorization": "Bearer abcdefgh.{request}",
    })  # fmt: skip
    endpoint = endpoint_of(target, {})
    told = 'X-Api-Token = "s3cr3t-{session}" sent s3cr3t-preflight, abcdefgh.17 after 0 of 10 turns {session}'
    shown = endpoint.redact(told)
    assert "s3cr3t" not in shown
    assert "abcdefgh" not in shown
    assert shown.endswith("after 0 of 10 turns {session}")


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({"X-S": "{sesion}"}, {}, "[target] headers X-S: no placeholder {sesion}; there are {session}, {turn}, {req"),
        ({"X-S": "a-{user}-{session}"}, {}, "[target] headers X-S: no placeholder {user}"),
        ({}, {"user": "{foo}"}, "[target] body user: no placeholder {foo}"),
        ({}, {"user": "u-{session_id}"}, "[target] body user: no placeholder {session_id}"),
        ({}, {"a": {"b": ["x", "for {Session}!"]}}, "[target] body a.b: no placeholder {Session}"),
        ({}, {"note": "see {sessions} \\d"}, "[target] body note: no placeholder {sessions}"),
    ],
)  # fmt: skip
def test_a_placeholder_that_there_is_not_is_an_error_that_names_the_key(
    headers: dict[str, str], body: dict[str, Any], words: str
) -> None:
    with pytest.raises(ScenarioError) as error:
        check(headers, body)
    assert str(error.value).startswith(words)


@pytest.mark.parametrize(
    "value",
    [r"\p{L}+\{return\}", "function() {return}", "{{user}}", "{}", '{"name": "{x}"}', "{1}", "a{2,3}", "{ session }"],
)
def test_braces_that_are_no_placeholder_are_left_alone(value: str) -> None:
    check({}, {"stop": value})
    assert filled({"stop": [value]}, numbers_of(arrival(1))) == {"stop": [value]}
    assert literals("a{session}b{turn}") == ["a", "b", ""]


@pytest.mark.parametrize("how", ["scenario", "option"])
def test_an_unknown_placeholder_ends_a_run_before_it_starts(how: str, tmp_path: Any) -> None:
    (tmp_path / "s.toml").write_text('[target]\nheaders = { X-S = "{sesion}" }\n' if how == "scenario" else "")
    more = ["--header", "X-S={sesion}"] if how == "option" else []
    code, _, err = in_process("run", str(tmp_path / "s.toml"), "--base-url", "http://127.0.0.1:9", *more)
    assert code == 2
    assert "headers X-S: no placeholder {sesion}" in " ".join(err.split())
    if how == "scenario":
        assert "s.toml" in err


def test_requests_before_the_run_are_of_no_session_of_its_own() -> None:
    server = Scripted([ANSWER])

    async def main() -> None:
        target = Target(base_url="http://h:1", model="m", headers=HEADERS, body={"user": "u-{session}"})
        loop = asyncio.get_running_loop()
        await probe(target, prompt="hi", output_tokens=4, connect=server.connect, clock=loop.time)

    jump(main())
    assert server.requests[0].headers["x-session-id"] == "preflight"
    assert server.requests[0].body["user"] == "u-preflight"
