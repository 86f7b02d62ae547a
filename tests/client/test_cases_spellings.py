"""Answers under names and in places that no document has, and what they must give all the same."""

from typing import Any

import pytest
from scripted_server import (
    DONE,
    FIN,
    HEAD,
    LAST,
    USE,
    Act,
    C,
    chunk,
    delta,
    event,
    framed,
    record_of,
    reply,
    same_however_cut,
    stream,
)

from loadramp.client.http.response import ResponseReader
from loadramp.client.stream.outcome import RequestedOutput
from loadramp.record.types import Record


def at(ms: float) -> Any:
    return pytest.approx(ms / 1000)


def near(*values_ms: float) -> Any:
    return pytest.approx([value / 1000 for value in values_ms])


# -- names and places within an event


@pytest.mark.parametrize(
    "name",
    ["thought", "thoughts", "thinking_content", "reasoning_summary", "reasoningContent", "reasoning_delta", "cot",
     "thinkingText", "chain_of_thought", "cot_content", "internal_thoughts"],
)  # fmt: skip
@pytest.mark.parametrize(
    "value", ["t1", {"text": "t1"}, [{"type": "text", "text": "t1"}]], ids=["text", "object", "list"]
)
def test_reasoning_is_output_under_any_name(name: str, value: Any) -> None:
    record = record_of(stream((10, delta(**{name: value})), (30, C("a")), (40, FIN("stop") + USE(3, 2) + DONE)))
    assert (record.event_s, record.answer_s, record.token_source, record.text) == (near(10, 30), at(30), "usage", "a")


@pytest.mark.parametrize(
    "parts",
    [
        {"text": "", "reasoning_content": "t1"},
        {"text": "", "reasoning": "t1"},
        {"text": None, "thought": "t1"},
        {"delta": {}, "reasoning_content": "t1"},
        {"delta": {"content": ""}, "thinking": "t1"},
    ],
    ids=str,
)
def test_reasoning_beside_an_empty_text_is_output(parts: dict[str, Any]) -> None:
    thought = chunk({"index": 0, "finish_reason": None, **parts})
    answer = chunk({"index": 0, "text": "a"})
    record = record_of(stream((10, thought), (30, answer), (40, FIN("stop") + USE(3, 2) + DONE)))
    assert (record.event_s, record.answer_s, record.text) == (near(10, 30), at(30), "a")


@pytest.mark.parametrize(
    "parts",
    [{"thought": True}, {"thought_signature": "xyz"}, {"reasoning_tokens": "3"}, {"reasoning_effort": "high"},
     {"stop_reason": "x"}, {"native_finish_reason": "STOP"}, {"reasoning_id": "rs_1"},
     {"thinking": {"type": "enabled"}}, {"reasoning_item_id": "r"}, {"thinking_status": "started"},
     {"is_thinking": False}],
    ids=str,
)  # fmt: skip
def test_what_is_said_about_reasoning_is_no_output(parts: dict[str, Any]) -> None:
    for odd in (delta(**parts), chunk({"index": 0, "delta": {}, "text": "", **parts})):
        record = record_of(stream((10, odd), (30, C("a")), (40, FIN("stop") + DONE)))
        assert record.event_s == near(30)


@pytest.mark.parametrize(
    "choice",
    [
        {"delta": {}, "text": "a"},
        {"delta": {"content": ""}, "text": "a"},
        {"delta": {"role": "assistant", "content": None}, "text": "a"},
        {"delta": {"text": "a"}},
        {"delta": {"content": None, "text": "a"}},
        {"content": "a"},
        {"delta": {}, "content": "a"},
        {"delta": {}, "content": [{"type": "text", "text": "a"}]},
        {"delta": "a"},
        {"delta": {}, "message": {"content": "a"}},
    ],
    ids=str,
)
def test_text_that_is_not_in_its_place_is_found(choice: dict[str, Any]) -> None:
    script = stream((10, chunk({"index": 0, **choice})), (30, C("b")), (40, FIN("stop") + USE(3, 2) + DONE))
    record = record_of(script)
    assert (record.status, record.text, record.event_s) == ("ok", "ab", near(10, 30))
    assert (record.answer_s, record.token_source, record.malformed_events) == (at(10), "usage", 0)


COUNTS = {"prompt_tokens": 3, "completion_tokens": 2}


@pytest.mark.parametrize(
    "last",
    [
        chunk({"index": 0, "delta": {}, "finish_reason": "stop"}, x_groq={"id": "r", "usage": COUNTS}),
        chunk({"index": 0, "delta": {}, "finish_reason": "stop"}, usage=None, x_groq={"usage": COUNTS}),
        chunk({"index": 0, "delta": {}, "finish_reason": "stop"}, usage={}, x_other={"usage": COUNTS}),
        chunk({"index": 0, "delta": {}, "finish_reason": "stop"}, timings={"prompt_n": 3, "predicted_n": 2}),
        chunk({"index": 0, "delta": {}, "finish_reason": "stop"},
              timings={"prompt_n": 1, "cache_n": 2, "predicted_n": 2, "predicted_ms": 7.5}),
        chunk({"index": 0, "delta": {"usage": COUNTS}, "finish_reason": "stop"}),
        chunk({"index": 0, "delta": {"content": "", "usage": COUNTS}}) + FIN("stop"),
        chunk({"index": 0, "delta": {}, "finish_reason": "stop"},
              usage={"prompt_tokens": "3", "completion_tokens": "2"}),
        chunk({"index": 0, "delta": {}, "message": {"content": "", "usage": COUNTS}, "finish_reason": "stop"}),
        FIN("stop") + event({"x_groq": {"usage": COUNTS}}),
        FIN("stop") + event({"choices": [], "usage": {"input_tokens": "3", "output_tokens": "2"}}),
    ],
)  # fmt: skip
def test_token_counts_are_found_wherever_they_are(last: bytes) -> None:
    record = record_of(stream((10, C("a")), (30, C("b")), (40, last + DONE)))
    assert (record.status, record.prompt_tokens, record.output_tokens, record.token_source) == ("ok", 3, 2, "usage")
    assert "no_usage" not in record.warnings


def test_token_counts_beside_the_last_text_are_found() -> None:
    for more in ({"x_groq": {"usage": COUNTS}}, {"timings": {"prompt_n": 3, "predicted_n": 2}}):
        last = chunk({"index": 0, "delta": {"content": "b"}, "finish_reason": "stop"}, **more)
        record = record_of(stream((10, C("a")), (30, last + DONE)))
        assert (record.prompt_tokens, record.output_tokens, record.token_source) == (3, 2, "usage")


def test_running_counts_within_deltas_or_as_text_run() -> None:
    for usage in (lambda n: {"delta": {"content": "x", "usage": {"prompt_tokens": 3, "completion_tokens": n}}},
                  lambda n: {"delta": {"content": "x"}, "usage": {"prompt_tokens": "3", "completion_tokens": str(n)}},
                  ):  # fmt: skip
        acts: list[Act] = [(10.0 * n, chunk({"index": 0, **usage(2 * n)})) for n in range(1, 80)]
        record = record_of(stream(*acts, (900, FIN("stop") + DONE)))
        assert (record.token_source, record.output_tokens, set(record.event_tokens)) == ("continuous", 158, {2})


@pytest.mark.parametrize(
    "last",
    [
        {"index": 0, "finish_reason": "stop", "message": {"content": "abcd"}},
        {"index": 0, "finish_reason": "stop", "delta": {}, "message": {"role": "assistant", "content": "abcd"}},
        {"index": 0, "finish_reason": "stop", "delta": None, "message": {"content": "abcd", "reasoning": "t"}},
        {"index": 0, "finish_reason": "stop", "text": "", "message": {"content": "abcd"}},
    ],
    ids=str,
)
def test_a_message_that_repeats_the_answer_is_no_output(last: dict[str, Any]) -> None:
    for first in (C("ab") + C("cd"), event({"choices": [{"text": "ab"}]}) + event({"choices": [{"text": "cd"}]})):
        record = same_however_cut(first + chunk(last) + USE(3, 2) + DONE)
        assert (record.status, record.text, len(record.event_s)) == ("ok", "abcd", 2)
        assert (record.token_source, record.finish_reason) == ("usage", "stop")


def test_an_answer_in_messages_alone_is_output() -> None:
    parts = [chunk({"index": 0, "message": {"content": text}}) for text in "ab"]
    record = record_of(stream((10, parts[0]), (30, parts[1]), (40, FIN("stop") + DONE)))
    assert (record.text, record.event_s) == ("ab", near(10, 30))
    after_thoughts = chunk({"index": 0, "finish_reason": "stop", "message": {"content": "ab"}})
    record = record_of(stream((10, delta(reasoning="t")), (30, after_thoughts), (40, DONE)))
    assert (record.text, record.event_s, record.answer_s) == ("ab", near(10, 30), at(30))
    record = record_of(stream((10, delta(reasoning="t")), (30, parts[0]), (40, parts[1] + FIN("stop") + DONE)))
    assert (record.text, record.event_s) == ("ab", near(10, 30, 40))


# -- failures told in a stream


@pytest.mark.parametrize(
    "reason",
    ["network_error", "insufficient_system_resource", "server_error", "failed", "cancelled", "canceled", "ERROR",
     "Abort", "aborted", "internal_error", "timeout", "TIMED_OUT", "request_cancelled", "ERROR_LIMIT"],
)  # fmt: skip
def test_finish_reasons_that_tell_of_a_failure_are_one(reason: str) -> None:
    record = record_of(stream((10, C("a")), (20, FIN(reason) + DONE)))
    assert (record.status, record.error, len(record.event_s)) == ("error", "in_band", 1)
    assert reason in (record.error_detail or "")


@pytest.mark.parametrize(
    "reason",
    ["stop", "STOP", "length", "max_tokens", "tool_calls", "function_call", "content_filter", "sensitive", "end_turn",
     "eos_token", "stop_sequence", "MAX_TOKENS", "SAFETY", "model_context_window_exceeded", "repetition"],
)  # fmt: skip
def test_other_finish_reasons_are_none(reason: str) -> None:
    record = record_of(stream((10, C("a")), (20, FIN(reason) + DONE)))
    assert (record.status, record.finish_reason) == ("ok", reason)


@pytest.mark.parametrize(
    "said",
    [
        b'event: Error\ndata: {"message":"boom"}\n\n',
        b"event: ERROR\ndata: boom\n\n",
        b"event: error\n\n",
        b"event: Error\ndata:\n\n",
        b'event: server_error\ndata: {"x":1}\n\n',
        b"event: failed\n\n",
        b'event: response.failed\ndata: {"response":{"error":{"message":"boom"}}}\n\n',
        event({"type": "response.cancelled", "response": {"status": "cancelled"}}),
        event({"type": "response.failed"}),
        event({"type": "response.error", "message": "boom"}),
        event({"type": "server_error", "message": "boom"}),
        event({"choices": [], "object": "error", "message": "boom", "code": 500}),
        event({"errors": [{"message": "boom"}], "success": False}),
        event({"success": False, "message": "boom"}),
        event({"code": 1302, "msg": "boom"}),
        event({"statusCode": 503, "message": "boom"}),
        event({"status_code": 503, "message": "boom", "choices": None}),
        event({"error_message": "boom"}),
        event({"error_msg": "boom", "error_code": 18}),
        event({"errorMessage": "boom", "choices": []}),
        event({"base_resp": {"status_code": 1004, "status_msg": "boom"}, "choices": None}),
        event([{"error": {"message": "boom", "code": 429}}]),
        event({"fault": {"faultstring": "boom"}}),
        event({"statusCode": 503}),
        event({"status": "error", "data": None}),
        event({"status": "FAILED", "msg": "boom"}),
    ],
)
@pytest.mark.parametrize("before", [b"", C("a")], ids=["nothing", "output"])
def test_failures_in_any_words_are_failures(said: bytes, before: bytes) -> None:
    record = same_however_cut(before + said + DONE)
    assert (record.status, record.error, len(record.event_s)) == ("error", "in_band", 1 if before else 0)
    assert record.error_detail
    assert ("boom" in record.error_detail) == (b"boom" in said)


@pytest.mark.parametrize(
    "odd",
    [
        {"code": 0, "msg": "success"}, {"code": 200, "message": "OK"},
        {"base_resp": {"status_code": 0, "status_msg": ""}},
        {"errors": []}, {"errors": None}, {"error_msg": ""}, {"success": True}, {"status": "completed", "message": "m"},
        {"status": "queued", "message": "3 before you"},
        {"type": "ping"}, {"message": "no code"}, {"error_message": None, "error_code": 0},
    ],
    ids=str,
)  # fmt: skip
def test_what_tells_of_no_failure_is_none(odd: dict[str, Any]) -> None:
    for data in (event(odd), chunk(**odd), chunk({"index": 0, "delta": {"content": ""}}, **odd)):
        assert same_however_cut(C("a") + data + FIN("stop") + DONE).status == "ok"
    assert record_of(stream((10, chunk({"index": 0, "delta": {"content": "a"}}, **odd)), (20, DONE))).status == "ok"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (stream((5, b"data: overloaded\n\n"), (6, DONE)), "overloaded"),
        (stream((5, b'data: "overloaded"\n\n')), "overloaded"),
        (stream((5, b"data: Service is\ndata: overloaded\n\n")), "Service is overloaded"),
        (reply(b'"overloaded"'), "overloaded"),
        (reply(b"overloaded", content_type="text/plain"), "overloaded"),
        (reply(b"overloaded\ntry later\n", content_type="text/plain"), "overloaded try later"),
        (reply(b"[1, 2]"), "[1, 2]"),
        (reply(b'{"message":"overloaded"}'), "overloaded"),
        (stream((5, b'data: {"message":"overloaded"}\n\n'), (6, DONE)), "overloaded"),
        (stream((5, b"{overloaded\n\n")), "overloaded"),
    ],
)
def test_words_that_are_no_json_are_kept_where_there_is_nothing_else(script: list[Act], said: str) -> None:
    record = record_of(script)
    assert (record.status, record.error) == ("empty", "empty")
    assert said in (record.error_detail or "")


def test_words_that_are_no_json_are_cut_short_and_hide_secrets() -> None:
    record = record_of(stream((5, b"data: " + b"x" * 5000 + b"\n\n")))
    assert "x" * 200 in (record.error_detail or "")
    assert "x" * 201 not in (record.error_detail or "")
    unsaved = record_of(stream((5, b"data: " + b"x" * 5000 + b"\n\n")), save_text=False)  # it may be an answer
    assert unsaved.error_detail == "1 event that is not JSON, and no output: 2,000 characters or more"
    asked = RequestedOutput(redact=lambda text: text.replace("sk-secret", "***"))
    exchange = ResponseReader(Record(0, 0, 0.0, sent_s=0.0), asked)
    exchange.feed(HEAD + framed(b"data: " + b"y" * 195 + b"sk-secret\n\n") + LAST, 1.0)
    assert exchange.finish().error_detail == "1 event that is not JSON, and no output: " + "y" * 195 + "***"


# -- the responses API


def _named(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\n".encode() + event(more)


MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "ab"}]}
TEXT_DONE = event({"type": "response.output_text.done", "text": "ab"})
PART_DONE = event({"type": "response.content_part.done", "part": {"type": "output_text", "text": "ab"}})
ITEM_DONE = event({"type": "response.output_item.done", "item": MESSAGE})
FILLED = event(
    {"type": "response.completed", "response": {"object": "response", "status": "completed", "output": [MESSAGE],
                                                "usage": {"input_tokens": 3, "output_tokens": 1}}}
)  # fmt: skip


def _deltas(*texts: str) -> bytes:
    return b"".join(event({"type": "response.output_text.delta", "delta": text}) for text in texts)


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (FILLED, 1),
        (TEXT_DONE + FILLED, 1),
        (PART_DONE + FILLED, 1),
        (ITEM_DONE + FILLED, 1),
        (TEXT_DONE + PART_DONE + ITEM_DONE + FILLED, 1),
        (_deltas("a", "b") + TEXT_DONE + PART_DONE + ITEM_DONE + FILLED, 2),
        (event({"type": "response.reasoning_text.delta", "delta": "t"}) + FILLED, 2),
        (event({"type": "response.reasoning_text.done", "text": "t"}) + TEXT_DONE + FILLED, 2),
    ],
    ids=["completed", "text", "part", "item", "all", "streamed", "thoughts streamed", "thoughts done"],
)
def test_an_answer_that_comes_only_at_its_end_is_output_once(body: bytes, events: int) -> None:
    record = same_however_cut(body)
    assert (record.status, record.text, len(record.event_s)) == ("ok", "ab", events)
    assert (record.finish_reason, record.prompt_tokens) == ("stop", 3)


def test_types_that_stand_in_the_event_line_alone_count() -> None:
    body = (
        _named("response.created", response={"object": "response"})
        + _named("response.reasoning_summary_text.delta", delta="t")
        + _named("response.output_text.delta", delta="a")
        + _named("response.output_text.delta", delta="b")
        + _named("response.completed", response={"usage": {"input_tokens": 3, "output_tokens": 3}})
    )
    record = same_however_cut(body)
    assert (record.status, record.text, len(record.event_s), record.token_source) == ("ok", "ab", 3, "usage")
    assert record.finish_reason == "stop"


@pytest.mark.parametrize(("kind", "reason"), [("completed", "stop"), ("done", "stop"), ("incomplete", "length")])
@pytest.mark.parametrize(
    "reply_", [{}, {"status": None}, {"status": "in_progress"}, None], ids=["no status", "null", "old", "no object"]
)
def test_a_closing_event_says_its_status_by_its_type(kind: str, reason: str, reply_: Any) -> None:
    more = {} if reply_ is None else {"response": reply_}
    record = same_however_cut(_deltas("a") + event({"type": f"response.{kind}", **more}))
    assert (record.status, record.finish_reason) == ("ok", reason)


def test_arguments_and_refusals_that_come_only_at_their_end_are_output() -> None:
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    for closing in (
        {"type": "response.function_call_arguments.done", "name": "f", "arguments": "{}"},
        {"type": "response.refusal.done", "refusal": "no"},
        {"type": "response.output_item.done", "item": call},
    ):
        record = record_of(stream((10, event(closing)), (20, event({"type": "response.completed"}))))
        assert (record.status, record.event_s) == ("ok", near(10))


def test_a_tool_that_fails_is_no_failure_of_the_response() -> None:
    body = (
        event({"type": "response.mcp_call.failed", "item_id": "x"})
        + _deltas("a")
        + event({"type": "response.completed"})
    )
    assert same_however_cut(body).status == "ok"
