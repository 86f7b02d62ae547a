"""Request bodies for the three APIs."""

import json
from typing import Any

import pytest

from loadramp.client.request_body import OPTIONAL_FIELDS, request_body
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target


def body(
    prompt: Any = "hi", output_tokens: int | None = 8, extra: Any = None, fields: Any = None, **target: Any
) -> Any:
    force = target.pop("force", True)
    more = {} if fields is None else {"fields": frozenset(fields)}
    return json.loads(
        request_body(Target(**target), "m", prompt, output_tokens, force_length=force, extra=extra, **more)
    )


def test_chat_asks_for_a_stream_of_exactly_so_many_tokens_with_running_counts() -> None:
    assert body("é") == {
        "model": "m",
        "messages": [{"role": "user", "content": "é"}],
        "stream": True,
        "max_tokens": 8,
        "ignore_eos": True,
        "min_tokens": 8,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_completions_and_responses_take_the_prompt_under_their_own_names() -> None:
    asked = body(api="completions")
    assert (asked["prompt"], asked["max_tokens"], "messages" in asked) == ("hi", 8, False)
    asked = body(api="responses")
    assert (asked["input"], asked["max_output_tokens"], "stream_options" in asked, "max_tokens" in asked) == (
        "hi", 8, False, False,
    )  # fmt: skip


def test_messages_are_sent_as_they_are_and_joined_where_an_api_takes_text() -> None:
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    assert body(talk)["messages"] == talk
    assert body(talk, api="responses")["input"] == talk
    assert body(talk, api="completions")["prompt"] == "Be brief.\nHi"


def test_a_length_that_is_not_forced_is_only_a_limit() -> None:
    asked = body(force=False)
    assert (asked["max_tokens"], "ignore_eos" in asked, "min_tokens" in asked) == (8, False, False)
    assert "max_tokens" not in body(output_tokens=None)
    assert "min_tokens" not in body(output_tokens=None)


def test_without_a_stream_no_stream_options_are_sent() -> None:
    asked = body(stream=False)
    assert (asked["stream"], "stream_options" in asked) == (False, False)


@pytest.mark.parametrize("dropped", sorted(OPTIONAL_FIELDS))
def test_a_field_that_the_server_refuses_is_left_out(dropped: str) -> None:
    asked = json.dumps(body(fields=OPTIONAL_FIELDS - {dropped}))
    assert dropped not in asked
    assert ("stream_options" in asked) is (dropped != "include_usage")


def test_the_newer_name_of_the_limit_replaces_the_older_one() -> None:
    asked = body(fields=[*OPTIONAL_FIELDS, "max_completion_tokens"])
    assert (asked["max_completion_tokens"], "max_tokens" in asked) == (8, False)
    asked = body(body={"max_completion_tokens": 5})
    assert (asked["max_completion_tokens"], asked["min_tokens"], "max_tokens" in asked) == (5, 5, False)


def test_fields_of_the_target_and_of_the_prompt_win_over_what_is_built() -> None:
    asked = body(body={"temperature": 0.5, "max_tokens": 3, "top_p": 1}, extra={"temperature": 0, "tools": []})
    assert (asked["temperature"], asked["max_tokens"], asked["min_tokens"], asked["top_p"], asked["tools"]) == (
        0, 3, 3, 1, [],
    )  # fmt: skip


@pytest.mark.parametrize("where", [{"body": {"n": 2}}, {"extra": {"n": 3}}])
def test_md17_several_answers_to_one_request_are_refused_in_words(where: Any) -> None:
    with pytest.raises(ScenarioError, match=r"\[target\] body n: [23] answers to one request are not measured"):
        body(**where)
    assert body(body={"n": 1})["n"] == 1


def test_streaming_is_no_body_field() -> None:
    with pytest.raises(ScenarioError, match=r"\[target\] body stream: .* set \[target\] stream"):
        body(body={"stream": False})
