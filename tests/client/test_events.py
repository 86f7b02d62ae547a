"""What events say, where servers keep to no document; and errors in words."""

import ssl
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted_server import HEAD, LAST, event, framed, reply

from loadramp.client.error_text import (
    classify_error,
    describe_error,
    describe_error_body,
    describe_os_error,
    describe_tls_error,
    error_of,
)
from loadramp.client.http.response import ResponseReader
from loadramp.client.stream import answer
from loadramp.client.stream.answer import StreamAnswer
from loadramp.client.stream.events import Event, Output, event_of_sdk, finishes, outputs, read_event, usage_of
from loadramp.client.stream.known_event import known_event
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.codec import decode, encode
from loadramp.record.types import Record


def read(data: Any) -> Event:
    event = read_event(msgspec.json.encode(data))
    assert event is not None
    return event


KEYS = st.sampled_from(
    [*Event.__struct_fields__, "index", "delta", "message", "text", "finish_reason", "content", "reasoning", "refusal",
     "tool_calls", "function", "function_call", "name", "arguments", "prompt_tokens", "completion_tokens", "loc", "msg",
     "completion_tokens_details", "reasoning_tokens", "reasoning_details", "status", "summary", "data", "input",
     "custom", "thought", "usage", "x_groq", "timings", "predicted_n", "errors", "error_message", "statusCode",
     "success", "base_resp", "status_code", "part", "arguments"]
)  # fmt: skip
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)


@given(st.dictionaries(KEYS, JSON, max_size=8))
@settings(max_examples=150)
@example({"code": "\n", "detail": True})
def test_no_shape_of_json_raises(data: dict[str, Any]) -> None:
    one = read(data)
    assert all(output.size > 0 for output in outputs(one))
    assert all(reason for _, reason in finishes(one))
    usage = usage_of(one)
    if usage is not None:
        counts = (usage.prompt, usage.output, usage.cached, usage.reasoning)
        assert all(count is None or count >= 0 for count in counts)
    said = error_of(one)
    assert said is None or (0 < len(said) <= 400 and "\n" not in said)


@given(st.lists(st.dictionaries(KEYS, JSON, max_size=6), max_size=4), st.booleans())
@settings(max_examples=150)
def test_no_stream_of_json_breaks_a_record(data: list[dict[str, Any]], whole: bool) -> None:
    asked = RequestedOutput(save_text=True)
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), asked)
    if whole:
        exchange.feed(reply(msgspec.json.encode(data[0] if data else {}))[0][1], 1.0)
    else:
        exchange.feed(HEAD + b"".join(framed(event(one)) for one in data) + LAST, 1.0)
    record = exchange.finish()
    assert (record.status == "ok") == (record.error_detail is None)
    assert decode(encode(record)).event_s == record.event_s


TEXTS = st.none() | st.just("") | st.text(max_size=4) | st.lists(st.text(max_size=2), max_size=2)
COUNTS = st.none() | st.fixed_dictionaries(
    {"prompt_tokens": st.just(3), "completion_tokens": st.integers(0, 5) | st.sampled_from(["4", "x", None])}
)
CHUNKS = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {"index": st.sampled_from([0, 0, 0, 1, None])},
                optional={
                    "delta": st.fixed_dictionaries(
                        {"content": TEXTS},
                        optional={
                            "reasoning": TEXTS,
                            "refusal": TEXTS,
                            "thought": TEXTS,
                            "text": TEXTS,
                            "usage": COUNTS,
                        },
                    ),
                    "text": TEXTS,
                    "message": st.fixed_dictionaries({"content": TEXTS}),
                    "content": TEXTS,
                    "reasoning_content": TEXTS,
                    "usage": COUNTS,
                    "finish_reason": st.sampled_from([None, "", "stop", "length", "ERROR"]),
                },
            ),
            max_size=2,
        )
    },
    optional={
        "usage": COUNTS,
        "x_groq": st.fixed_dictionaries({"usage": COUNTS}),
        "timings": st.just({"prompt_n": 1, "predicted_n": 2}),
        "error_msg": st.sampled_from([None, "", "no"]),
        "code": st.sampled_from([0, 200, 500]),
        "msg": st.sampled_from(["", "no"]),
    },
)


KNOWN_CHUNKS = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries(
                {"index": st.sampled_from([0, 0, 0, 1])},
                optional={
                    "delta": st.fixed_dictionaries(
                        {},
                        optional={
                            "role": st.sampled_from([None, "assistant"]),
                            "content": st.none() | st.text(max_size=3),
                            "tool_calls": st.sampled_from([None, []]),
                            "reasoning": st.none() | st.just("hm"),
                        },
                    ),
                    "text": st.none() | st.text(max_size=3),
                    "finish_reason": st.sampled_from([None, "stop", "length", "abort"]),
                    "stop_reason": st.sampled_from([None, 2, "end"]),
                    "logprobs": st.none(),
                },
            ),
            max_size=1,
        )
    },
    optional={
        "object": st.sampled_from(["chat.completion.chunk", "text_completion", "response", "error"]),
        "usage": COUNTS,
        "model": st.just("m"),
        "error": st.none() | st.just({"message": "no"}),
    },
)


@given(st.lists(CHUNKS | KNOWN_CHUNKS, max_size=6), st.booleans())
@settings(max_examples=300)
def test_the_short_ways_come_to_the_same(chunks: list[dict[str, Any]], bare: bool) -> None:
    def record() -> Record:
        exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), RequestedOutput(save_text=True))
        for at, one in enumerate(chunks):
            data = event(one).removeprefix(b"data: ") if bare else event(one)
            exchange.feed((HEAD if at == 0 else b"") + framed(data), float(at))
        exchange.closed(None, "", 9.0)
        return exchange.finish()

    short = record()
    with patch.object(StreamAnswer, "_plain", return_value=False), patch.object(answer, "known_event", lambda _: None):
        assert record() == short


def test_the_first_and_the_last_events_of_vllm_hide_nothing() -> None:
    start = '{"id":"c","object":"chat.completion.chunk","created":1795813271,"model":"tiny",'
    events = [
        start
        + '"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
        '"usage":{"prompt_tokens":19,"total_tokens":19,"completion_tokens":0},"prompt_token_ids":null}',
        start + '"choices":[{"index":0,"delta":{"content":"ls"},"logprobs":null,"finish_reason":"length",'
        '"stop_reason":null,"token_ids":null}],"usage":{"prompt_tokens":19,"total_tokens":35,"completion_tokens":16}}',
        start + '"choices":[],"usage":{"prompt_tokens":19,"total_tokens":35,"completion_tokens":16},'
        '"system_fingerprint":"vllm-0.32.0"}',
    ]
    assert all(known_event(one.encode()) is not None for one in events)
    hidden = ('"timings":{}}', '"x_groq":{}}', '"error":{}}', '"status":"failed"}')
    assert not any(known_event(events[2].removesuffix("}").encode() + b"," + more.encode()) for more in hidden)


@pytest.mark.parametrize("payload", [b"", b"17", b"[]", b'"x"', b"null", b"{", b"\xff", b"[" * 100_000, b"{'a': 1}"])
def test_what_is_no_json_object_is_no_event(payload: bytes) -> None:
    assert read_event(payload) is None


def test_depth_without_end_is_no_event_and_no_crash() -> None:
    assert read_event(b'{"error":' + b"[" * 100_000) is None


def test_reasoning_and_answer_in_one_event_are_one_output_and_an_answer() -> None:
    one = read({"choices": [{"index": 2, "delta": {"reasoning": "hmm", "content": "a"}}]})
    assert outputs(one) == [Output(2, 4, False, "a")]


def test_parts_of_a_content_list_are_told_apart() -> None:
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hmm"}]}, {"type": "text", "text": "a"}]
    assert outputs(read({"choices": [{"delta": {"content": parts}}]})) == [Output(0, 4, False, "a")]
    assert outputs(read({"choices": [{"delta": {"content": parts[:1]}}]})) == [Output(0, 3, True, "")]


def test_an_engine_s_own_form_of_finish_reason_is_read() -> None:
    one = read({"choices": [{"index": 0, "delta": {}, "finish_reason": {"type": "length", "length": 64}}]})
    assert finishes(one) == [(0, "length")]


def test_whole_replies_of_the_responses_api_are_read_like_streams() -> None:
    one = read(
        {
            "object": "response",
            "status": "incomplete",
            "incomplete_details": {"reason": "content_filter"},
            "error": None,
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"type": "message", "content": [{"type": "output_text", "text": "abc"}]},
                {"type": "function_call", "name": "f", "arguments": "{}"},
            ],
            "usage": {"input_tokens": 3, "output_tokens": 7},
        }
    )
    assert outputs(one) == [Output(0, 8, False, "abc")]
    assert finishes(one) == [(0, "content_filter")]
    usage = usage_of(one)
    assert usage is not None
    assert (usage.prompt, usage.output) == (3, 7)
    assert error_of(one) is None


def test_counts_that_are_whole_floats_are_counts() -> None:
    usage = usage_of(read({"usage": {"prompt_tokens": 3.0, "completion_tokens": True}}))
    assert usage is not None
    assert (usage.prompt, usage.output) == (3, None)


def test_an_object_of_the_sdk_is_the_event_it_was_made_of() -> None:
    from openai.types.chat import ChatCompletionChunk

    data = {
        "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "usage": None,
        "choices": [{"index": 0, "delta": {"reasoning": "hm", "content": None}, "finish_reason": "stop"}],
    }  # fmt: skip
    one = event_of_sdk(ChatCompletionChunk.model_validate(data))
    assert outputs(one) == [Output(0, 2, True, "")]
    assert finishes(one) == [(0, "stop")]


def test_a_validation_error_is_named_by_place_without_the_input_it_repeats() -> None:
    said = describe_error(
        [{"type": "extra_forbidden", "loc": ["body", "x"], "msg": "Extra inputs", "input": "the whole prompt"}]
    )
    assert said == "body.x: Extra inputs (extra_forbidden)"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", ""),
        (b"<html>\n <b>502</b>\n</html>", "<html> <b>502</b> </html>"),
        (b'\xef\xbb\xbf{"error":"no"}', "no"),
        (b'data: {"error":"no"}\n\n', "no"),
        (b'{"title":"no"}', "no"),
        (b"[1, 2]", "1; 2"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[" * 100_000, "[" * 200),
    ],
    ids=["empty", "html", "BOM", "event", "title", "list", "binary", "deep"],
)
def test_error_bodies_in_one_line(body: bytes, said: str) -> None:
    assert describe_error_body(body) == said


def test_exceptions_in_words() -> None:
    assert describe_os_error(ConnectionResetError(104, "x")) == "Connection reset by peer"
    assert describe_os_error(OSError("bare")) == "bare"
    wrong = ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
    wrong.reason = "WRONG_VERSION_NUMBER"
    assert describe_tls_error(wrong).startswith("the server does not speak TLS on this port: write http://")
    outer = RuntimeError("outer")
    outer.__cause__ = wrong
    assert classify_error(outer)[0] == "tls"
    assert classify_error(RuntimeError("plain")) == ("client", "RuntimeError: plain")
