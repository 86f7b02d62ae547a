"""What is found out before a run, asked of a simulated server on a socket: counting, token ids, cold adapters."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from loadramp.client.endpoint import endpoint_of
from loadramp.client.preflight import EndpointFacts, examine_endpoint
from loadramp.client.readiness import Unreachable
from loadramp.client.tokenizer import basis_of
from loadramp.record.types import Calibration, Prompt
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.simulator.faults import Faults
from loadramp.simulator.profiles import PROFILES
from loadramp.simulator.server import serve

QUICK = replace(PROFILES["small"], t0_s=0.0005, frontend_s=0.0, adapter_load_s=0.15, max_adapters=4)


def asked(
    target: Target,
    say: Callable[[str], None] = lambda _: None,
    adapters: tuple[str, ...] = (),
    faults: Faults | None = None,
    mended_after: int = 99,
    pauses_s: list[float] | None = None,
    **options: Any,
) -> EndpointFacts:
    """What a simulator that is healthy after ``mended_after`` pauses tells."""
    waited: list[float] = [] if pauses_s is None else pauses_s

    async def main() -> EndpointFacts:
        server = await serve(QUICK, adapters=adapters, faults=faults)

        async def wait(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == mended_after:
                server.service.faults = Faults()

        try:
            ready = replace(target, base_url=f"http://127.0.0.1:{server.port}")
            return await examine_endpoint(ready, endpoint_of(ready, {}), say, sleep=wait, **options)
        finally:
            await server.close()

    return asyncio.run(main())


def test_the_server_s_own_count_becomes_the_calibration() -> None:
    found = asked(Target(), faults=Faults(extra_prompt_tokens=7))
    assert found.calibration == Calibration(tokens_per_word=1.0, overhead_tokens=7.0)
    assert found.model == "sim"


def test_an_adapter_s_first_answer_shows_how_long_it_took_to_load() -> None:
    said: list[str] = []
    found = asked(Target(), said.append, ("billing", "legal"), models=("billing", "legal"))
    assert list(found.models) == ["billing", "legal"]
    for cold_s, warm_s in found.models.values():
        assert cold_s is not None
        assert warm_s is not None
        assert cold_s >= QUICK.adapter_load_s > 0.0  # the engine stands still so long, however busy this machine is
    assert found.model == "sim"  # asked about fields and lengths, so that no adapter was loaded for that
    assert any(line.startswith("billing: first token after ") for line in said)


def test_a_model_that_the_server_does_not_know_is_an_error_before_the_run() -> None:
    with pytest.raises(ScenarioError, match=r"\[prompts\] models: nobody: http_4xx: .*does not exist"):
        asked(Target(), models=("nobody",))


def test_a_request_that_carries_more_than_text_is_tried_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from loadramp.simulator import request_parser

    tools = Prompt(segments=((1, 20),), label="agent", body={"tools": [], "tool_choice": "none"})
    picture = Prompt(segments=((1, 20),), images=((5, 16, 16),))
    assert asked(Target(), samples=(tools, picture)).model == "sim"
    read_words = request_parser._chat_words

    def text_only(messages: Any) -> list[str]:
        if any(isinstance(message["content"], list) for message in messages):
            raise request_parser.WrongRequestError(400, "sim is not a multimodal model")
        return read_words(messages)

    monkeypatch.setattr(request_parser, "_chat_words", text_only)
    with pytest.raises(ScenarioError, match=r"refuses a request with images: .*not a multimodal model"):
        asked(Target(), samples=(tools, picture))


def test_prompts_go_as_token_ids_where_the_server_takes_them() -> None:
    target = Target(api="completions", token_ids=True)
    found = asked(target, basis=basis_of(target))
    assert len(found.calibration.ids) == 256
    assert (found.calibration.tokens_per_word, found.calibration.overhead_tokens) == (1.0, 0.0)


def test_they_go_as_text_where_it_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    from loadramp.simulator import request_parser

    words = request_parser._prompt_words

    def text_only(prompt: Any) -> list[str]:
        if not isinstance(prompt, str):
            raise request_parser.WrongRequestError(400, "prompt must be a string")
        return words(prompt)

    monkeypatch.setattr(request_parser, "_prompt_words", text_only)
    target = Target(api="completions", token_ids=True)
    found = asked(target, said.append, basis=basis_of(target))
    assert found.calibration.ids == ()
    assert any("no token ids here" in line and "prompt must be a string" in line for line in said)


@pytest.mark.parametrize("status", [429, 503, 500, 408])
def test_a_first_request_refused_while_the_server_warms_up_is_tried_again(status: int) -> None:
    said: list[str] = []
    pauses_s: list[float] = []
    ill = Faults(error_ratio=1.0, error_status=status)
    found = asked(Target(), said.append, faults=ill, mended_after=2, pauses_s=pauses_s)
    assert found.calibration.tokens_per_word == 1.0
    assert pauses_s == [1.0, 2.0]
    again = [line for line in said if "trying again" in line]
    assert len(again) == 2
    assert again[0].startswith("a first request failed (http_")
    assert again[0].endswith("; trying again in 1 s")


def test_it_is_given_up_after_four_pauses() -> None:
    pauses_s: list[float] = []
    with pytest.raises(Unreachable, match=r"http://127.0.0.1:\d+/v1: a first request failed: http_5xx: HTTP 503"):
        asked(Target(), faults=Faults(error_ratio=1.0, error_status=503), pauses_s=pauses_s)
    assert pauses_s == [1.0, 2.0, 4.0, 8.0]


def test_the_pauses_are_those_the_server_asks_for_and_end_with_the_time_to_be_ready_in() -> None:
    pauses_s: list[float] = []
    ill = Faults(error_ratio=1.0, error_status=503, retry_after_s=5.0)
    with pytest.raises(Unreachable, match="a first request failed"):
        asked(Target(ready_timeout_s=12.0), faults=ill, pauses_s=pauses_s)
    assert pauses_s == [5.0, 5.0]


@pytest.mark.parametrize("status", [401, 403, 404, 422, 501])
def test_what_says_the_same_again_is_not_asked_again(status: int) -> None:
    pauses_s: list[float] = []
    with pytest.raises(Unreachable, match=f"HTTP {status}"):
        asked(Target(), faults=Faults(error_ratio=1.0, error_status=status), pauses_s=pauses_s)
    assert pauses_s == []


def test_it_is_said_that_answers_with_a_form_of_their_own_are_not_forced_to_a_length() -> None:
    said: list[str] = []
    tools = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
    agent = Prompt(segments=((1, 20),), label="agent", body={"tools": tools})
    asked(Target(), said.append, samples=(agent,))
    assert "note: [prompts] body gives answers a form of their own: their length is not forced" in said
