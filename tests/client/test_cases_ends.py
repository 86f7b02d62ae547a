"""Where a stream ends: finish reasons under other names, and several of them in one stream."""

from typing import Any

import pytest
from scripted_server import DONE, FIN, USE, C, chunk, delta, record_of, same_however_cut, stream

from loadramp.record.types import Record


def near(*values_ms: float) -> Any:
    return pytest.approx([value / 1000 for value in values_ms])


def ended(record: Record) -> tuple[str, str | None, str | None]:
    return record.status, record.error, record.finish_reason


# -- a finish reason in camelCase (field case 16)


def test_field_16_a_finish_reason_in_camel_case_beside_a_null_one_ends_the_answer() -> None:
    last = chunk({"index": 0, "delta": {"content": " four"}, "finish_reason": None, "finishReason": "stop"})
    record = record_of(stream((100, C("one two")), (150, C(" three")), (200, last)))
    assert ended(record) == ("ok", None, "stop")
    assert record.event_s == near(100, 150, 200)


def test_field_16_without_any_finish_reason_the_answer_is_incomplete() -> None:
    record = record_of(stream((100, C("one two")), (150, C(" three")), (200, C(" four")), (205, USE(5, 4))))
    assert ended(record) == ("incomplete", "truncated", None)


@pytest.mark.parametrize(
    "last",
    [
        chunk({"index": 0, "delta": {}, "finishReason": "stop"}),
        chunk({"index": 0, "delta": {"content": "c"}, "finishReason": "stop"}),
        chunk({"index": 0, "text": "c", "finishReason": "stop"}),
        chunk({"index": 0, "delta": {"finishReason": "stop"}}),
        chunk({"index": 0, "delta": {"content": "c", "finish_reason": "stop"}}),
        chunk({"index": 0, "delta": {"content": "c"}}, finishReason="stop"),
        chunk({"index": 0, "delta": {"content": "c"}, "finish_reason": ""}, finish_reason="stop"),
        chunk(finishReason="stop"),
        chunk({"index": 0, "delta": {}, "finish_reason": None, "finishReason": {"type": "stop"}}),
    ],
)
def test_a_finish_reason_is_read_wherever_it_stands(last: bytes) -> None:
    assert ended(record_of(stream((10, C("a")), (30, C("b")), (40, last)))) == ("ok", None, "stop")
    same_however_cut(C("a") + last)


@pytest.mark.parametrize("empty", [None, "", "null", "NULL", "None", "FINISH_REASON_UNSPECIFIED"])
def test_an_empty_finish_reason_in_camel_case_is_none(empty: Any) -> None:
    goes_on = chunk({"index": 0, "delta": {"content": "a"}, "finishReason": empty})
    assert record_of(stream((10, goes_on), (30, goes_on))).status == "incomplete"


def test_a_failure_told_by_a_finish_reason_in_camel_case_is_one() -> None:
    record = record_of(stream((10, C("a")), (30, chunk({"index": 0, "delta": {}, "finishReason": "error"}))))
    assert ended(record) == ("error", "in_band", "error")


def test_a_finish_reason_in_camel_case_ends_a_stream_that_is_left_open() -> None:
    lot = [(10.0 + i, C("a")) for i in range(70)]
    last = chunk({"index": 0, "delta": {"content": "b"}, "finishReason": "length"})
    record = record_of(stream(*lot, (100, last), end=False), grace_s=2.0)
    assert ended(record) == ("ok", None, "length")
    assert record.stream_end_s == pytest.approx(0.1)


@pytest.mark.parametrize(
    "part",
    [
        {"toolCalls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]},
        {"functionCall": {"name": "f", "arguments": "{}"}},
        {"reasoningContent": "hm"},
    ],
)
def test_other_names_in_camel_case_are_output(part: dict[str, Any]) -> None:
    record = record_of(stream((10, delta(**part)), (30, C("a") + FIN("stop") + DONE)))
    assert record.event_s == near(10, 30)


def test_counts_in_camel_case_are_read() -> None:
    usage = {"promptTokens": 7, "completionTokens": 2, "totalTokens": 9}
    record = record_of(stream((10, C("a")), (30, C("b") + FIN("stop")), (40, chunk(usage=usage) + DONE)))
    assert (record.prompt_tokens, record.output_tokens, record.token_source) == (7, 2, "usage")
    running = [chunk({"index": 0, "delta": {"content": "a"}}, usage={"completionTokens": n}) for n in (1, 4)]
    record = record_of(stream((10, running[0]), (30, running[1]), (40, FIN("stop") + DONE)))
    assert (record.event_tokens, record.token_source) == ([1, 3], "continuous")


# -- several finish reasons in one stream


TURN = ((10, C("let me see")), (20, FIN("tool_calls")))


def test_a_second_finish_reason_is_no_end_where_output_followed_the_first() -> None:
    acts = [*TURN, (2_000, C("it is")), (2_010, FIN("stop")), (9_000, C("one more thing")), (9_010, FIN("stop") + DONE)]
    record = record_of(stream(*acts), grace_s=5.0, idle_timeout_s=30.0)
    assert ended(record) == ("ok", None, "stop")
    assert (record.event_s, record.done_marker) == (near(10, 2_000, 9_000), True)


def test_the_end_of_the_body_ends_a_stream_of_several_turns() -> None:
    record = record_of(stream(*TURN, (2_000, C("it is")), (2_010, FIN("stop"))), grace_s=5.0)
    assert ended(record) == ("ok", None, "stop")
    assert (record.event_s, record.stream_end_s) == (near(10, 2_000), pytest.approx(2.01))


def test_the_idle_time_out_ends_a_stream_of_several_turns_that_is_left_open() -> None:
    script = stream(*TURN, (2_000, C("it is")), (2_010, FIN("stop")), (60_000, C("too late")), end=False)
    record = record_of(script, grace_s=5.0, idle_timeout_s=30.0)
    assert ended(record) == ("ok", None, "stop")
    assert (record.event_s, record.stream_end_s) == (near(10, 2_000), pytest.approx(2.01))


def test_a_turn_that_falls_silent_before_its_finish_reason_is_a_time_out() -> None:
    script = stream(*TURN, (2_000, C("it is")), (60_000, C("too late")), end=False)
    record = record_of(script, grace_s=5.0, idle_timeout_s=30.0)
    assert ended(record) == ("error", "timeout_idle", "tool_calls")


def test_text_that_is_flushed_behind_the_finish_reason_ends_with_the_body() -> None:
    record = record_of(stream((10, C("a")), (20, FIN("stop")), (21, C("b"))))
    assert ended(record) == ("ok", None, "stop")
    cut_off = stream((10, C("a")), (20, FIN("stop")), (21, C("b")), (25, "close"), end=False)
    assert ended(record_of(cut_off)) == ("error", "truncated", "stop")


def test_a_finish_reason_in_every_event_ends_nothing() -> None:
    acts = [(10.0 + 7_000 * i, delta(finish_reason="stop", content="a")) for i in range(2)]
    late = [(8_000.0 + 9_000 * i, delta(finish_reason="stop", content="a")) for i in range(3)]
    record = record_of(stream(*acts, *late[1:], (26_000, DONE)), grace_s=8.0, idle_timeout_s=30.0)
    assert (record.status, len(record.event_s), record.done_marker) == ("ok", 4, True)


def test_plain_events_in_a_lot_follow_a_finish_reason_as_well() -> None:
    lot = [(100.0 + i, C("a")) for i in range(70)]
    script = stream(*TURN, *lot, (200, FIN("stop")), (9_000, C("b") + FIN("stop") + DONE))
    record = record_of(script, grace_s=5.0, idle_timeout_s=30.0)
    assert (record.status, len(record.event_s), record.done_marker) == ("ok", 72, True)


def test_choices_that_finish_one_after_the_other_end_with_the_last() -> None:
    body = [(10, C("a") + C("b", 1)), (20, FIN("stop") + C("c", 1)), (30, FIN("stop", 1))]
    record = record_of(stream(*body, end=False), grace_s=2.0)
    assert (record.status, record.stream_end_s) == ("ok", pytest.approx(0.03))


def test_a_choice_that_begins_when_all_others_have_finished_ends_no_stream_either() -> None:
    body = [(10, C("a")), (20, FIN("stop")), (30, C("b", 1)), (40, FIN("stop", 1)), (9_000, C("c", 2) + FIN("stop", 2))]
    record = record_of(stream(*body), grace_s=2.0, idle_timeout_s=30.0)
    assert (record.status, record.event_choice) == ("ok", [0, 1, 2])


def test_what_follows_a_finish_reason_is_the_same_however_it_was_cut() -> None:
    body = C("a") + FIN("tool_calls") + C("b") + FIN("stop") + C("c")
    record = same_however_cut(body)
    assert ended(record) == ("ok", None, "stop")
