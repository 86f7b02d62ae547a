"""The stream cases (SP) and their whole kind: bytes played at given times, and the record they must give."""

import json
from typing import Any

import pytest
from scripted_server import (
    DONE,
    FIN,
    HEAD,
    LAST,
    ROLE,
    UNTIL_CLOSE,
    USE,
    Act,
    C,
    chunk,
    counted,
    cut,
    delta,
    event,
    framed,
    record_of,
    stream,
)

from loadramp.record.types import Record
from loadramp.report.probe_text import probe_document


def near(*values_ms: float) -> Any:
    return pytest.approx([value / 1000 for value in values_ms])


def at(ms: float) -> Any:
    return pytest.approx(ms / 1000)


def seen(script: list[Act], **options: Any) -> dict[str, Any]:
    """What ``probe --json --show-text`` prints."""
    return probe_document(record_of(script, **options))


# -- SP-01: a field name split from its space at a read boundary


def test_sp01_an_event_is_stamped_by_the_read_that_completes_it() -> None:
    first = framed(C("A"))
    at_colon = first.index(b"data:") + 5
    script = [
        (50, HEAD),
        (100, first[:at_colon]),
        (101, first[at_colon:]),
        (130, framed(C("B"))),
        (131, framed(FIN("stop") + DONE) + LAST),
    ]
    got = seen(script)
    assert (got["status"], got["ttft_s"], got["itl_s"], got["output_tokens"]) == ("ok", at(101), near(29), 2)


def test_sp01_data_without_a_space_reads_the_same() -> None:
    script = stream((101, C("A").replace(b"data: ", b"data:")), (130, C("B")), (131, FIN("stop") + DONE))
    got = seen(script)
    assert (got["status"], got["text"], got["itl_s"]) == ("ok", "AB", near(29))


# -- SP-03: JSON split over several reads

SP03_BODY = C("hello") + FIN("stop") + DONE
SP03 = HEAD + framed(SP03_BODY) + LAST


@pytest.mark.parametrize("block", range(8))
def test_sp03_every_cut_gives_the_same_record(block: int) -> None:
    whole = record_of([(0, SP03)])
    size = len(SP03)
    for offset in range(1 + block * size // 8, 1 + (block + 1) * size // 8):
        assert _without_times(record_of(cut(SP03, offset))) == _without_times(whole), offset
    assert (whole.status, whole.output_tokens, whole.text) == ("ok", 1, "hello")


def test_sp03_one_byte_a_read_gives_the_same_record() -> None:
    assert _without_times(record_of(cut(SP03, *range(1, len(SP03))))) == _without_times(record_of([(0, SP03)]))


def test_sp03_the_instant_is_that_of_the_last_byte_of_the_event() -> None:
    begin = SP03.index(b"data: ")
    ends = begin + len(C("hello"))  # the read that brings this byte completes the event
    for offset in (ends - 1, ends):
        record = record_of(cut(SP03, offset, gap_ms=10.0))
        assert record.ttft_s == (at(10) if offset < ends else at(0)), offset


# -- SP-04: a multi-byte character cut in two


def test_sp04_a_cut_character_stays_whole() -> None:
    script = [*cut(HEAD + framed(C("é世🙂")), *range(1, 2000)), (5000, framed(FIN("stop") + DONE) + LAST)]
    got = seen(script)
    end = len(HEAD + framed(C("é世🙂"))) - len(b"\r\n") - 1
    assert (got["text"], got["malformed_events"], got["ttft_s"]) == ("é世🙂", 0, at(end))


# -- SP-06: Unicode line separators within JSON


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\x85", "\x7f", "\xa0", "\ufeff"])
def test_sp06_unicode_separators_end_nothing(char: str) -> None:
    got = seen(stream((10, C(f"a{char}b")), (20, C(char)), (30, C("c")), (40, FIN("stop") + USE(3, 3) + DONE)))
    assert (got["text"], len(got["gap_s"]), got["output_tokens"], got["token_source"]) == (
        f"a{char}b{char}c", 2, 3, "usage",
    )  # fmt: skip


# -- SP-08: comment keep-alives before the first token


def test_sp08_comments_are_counted_and_are_no_output() -> None:
    got = seen(
        stream((1000, b":\n\n"), (2000, b":\n\n"), (2500, C("x")), (2520, C("y")), (2530, FIN("stop") + DONE)),
        first_timeout_s=2.6,
    )
    assert (got["status"], got["ttft_s"], got["itl_s"], got["keepalives"]) == ("ok", at(2500), near(20), 2)
    assert got["time_to_first_byte_s"] == at(1000)


def test_sp08_comments_do_not_hold_off_the_wait_for_the_first_token() -> None:
    got = seen(stream((1000, b":\n\n"), (2000, b":\n\n"), (2500, C("x")), (2520, FIN("stop"))), first_timeout_s=2.2)
    assert (got["status"], got["error"], got["keepalives"], got["ttft_s"]) == ("error", "timeout_first", 2, None)


# -- SP-09: a comment and a blank line after an event that had an id


def test_sp09_an_empty_event_is_never_parsed() -> None:
    got = seen(
        stream(
            (50, b"id: 7\n" + C("a")),
            (15050, b": ping\n\n"),
            (15100, b"id: 8\n" + C("b")),
            (15100, FIN("stop") + DONE),
        )
    )
    assert (got["output_tokens"], got["itl_s"], got["error"], got["malformed_events"]) == (2, near(15050), None, 0)


@pytest.mark.parametrize(
    "empty", [b"data:\n\n", b"data: \n\n", b"data\n\n", b"event: ping\n\n", b"id: 9\n\n", b"\n\n\n"]
)
def test_sp09_events_without_data_are_passed_over(empty: bytes) -> None:
    got = seen(stream((50, C("a")), (60, empty), (70, C("b") + FIN("stop") + DONE)))
    assert (got["output_tokens"], got["malformed_events"], got["gap_s"]) == (2, 0, near(20))


# -- SP-11: a role-only first chunk is not the first token


@pytest.mark.parametrize(
    "early",
    [
        ROLE,
        delta(role="assistant"),
        delta(role="assistant", content=None),
        delta(role="assistant", content="", reasoning="", reasoning_content=None, tool_calls=[], refusal=None),
        chunk({"index": 0, "delta": None, "finish_reason": None}),
        chunk({"index": 0}),
        chunk(usage=counted(5, 0)),
        delta(tool_calls=[{"index": 0, "id": "call_1", "type": "function", "function": {"name": "", "arguments": ""}}]),
        delta(content=[]),
        delta(content=[{"type": "text", "text": ""}]),
        delta(function_call={"name": None, "arguments": ""}),
    ],
    ids=["role and empty", "role", "null", "all empty", "null delta", "no delta", "usage 0", "empty call", "list",
         "part", "function"],
)  # fmt: skip
def test_sp11_what_says_nothing_is_not_output(early: bytes) -> None:
    got = seen(stream((900, early), (2200, C("a")), (2220, C("b")), (2220, FIN("stop") + DONE)))
    assert (got["ttft_s"], got["itl_s"], got["time_to_first_byte_s"]) == (at(2200), near(20), at(900))


def test_sp11_headers_alone_are_not_the_first_byte_of_the_answer() -> None:
    got = seen(stream((900, ROLE), (2200, C("a") + FIN("stop") + DONE), head_ms=3))
    assert got["time_to_first_byte_s"] == at(900)


# -- SP-12: reasoning is output, in every spelling


@pytest.mark.parametrize(
    "thought",
    [
        {"reasoning": "t1"},
        {"reasoning_content": "t1"},
        {"reasoning": "t1", "reasoning_content": "t1"},
        {"content": None, "reasoning_content": "t1"},
        {"content": "", "reasoning": "t1"},
        {"reasoning": {"text": "t1"}},
        {"reasoning": {"content": "t1"}},
        {"reasoning_content": [{"type": "text", "text": "t1"}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "t1"}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "t1"}]},
        {"reasoning_text": "t1"},
        {"thinking": "t1"},
        {"thinking_blocks": [{"type": "thinking", "thinking": "t1"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t1"}]}]},
    ],
    ids=lambda parts: "+".join(f"{key}:{type(value).__name__}" for key, value in parts.items()),
)
def test_sp12_reasoning_counts_for_the_first_token(thought: dict[str, Any]) -> None:
    got = seen(
        stream((200, delta(**thought)), (220, delta(**thought)), (240, C("a")), (240, USE(9, 3) + FIN("stop") + DONE))
    )
    assert (got["ttft_s"], got["itl_s"], got["output_tokens"]) == (at(200), near(20, 20), 3)
    assert (got["time_to_first_answer_s"], got["text"], got["token_source"]) == (at(240), "a", "usage")


def test_sp12_without_finish_reason_done_is_the_end() -> None:  # as the case has it
    got = seen(stream((200, delta(reasoning="t1")), (220, delta(reasoning="t2")), (240, C("a") + USE(9, 3) + DONE)))
    assert (got["status"], got["finish_reason"], got["ttft_s"], got["itl_s"]) == ("ok", None, at(200), near(20, 20))


def test_sp12_an_answer_of_reasoning_alone_never_answers() -> None:
    got = seen(stream((200, delta(reasoning="t1")), (220, FIN("length") + DONE)))
    assert (got["status"], got["ttft_s"], got["time_to_first_answer_s"], got["text"]) == ("ok", at(200), None, "")


def test_sp12_a_refusal_is_output_and_an_answer() -> None:
    got = seen(stream((30, delta(refusal="I can")), (50, delta(refusal="not.")), (50, FIN("stop") + DONE)))
    assert (got["ttft_s"], got["gap_s"], got["text"], got["time_to_first_answer_s"]) == (
        at(30), near(20), "I cannot.", at(30),
    )  # fmt: skip


# -- SP-14, SP-16, SP-23: usage and metadata chunks


def test_sp14_a_usage_chunk_without_choices_is_no_token() -> None:
    got = seen(stream((10, ROLE), (20, C("a")), (30, FIN("stop")), (40, USE(5, 1)), (40, DONE)))
    assert (got["status"], got["output_tokens"], got["prompt_tokens"], got["itl_s"]) == ("ok", 1, 5, [])


@pytest.mark.parametrize("odd", [{"choices": None}, {}], ids=["null choices", "no choices"])
def test_sp14_usage_without_the_choices_key_counts(odd: dict[str, Any]) -> None:
    got = seen(stream((20, C("a")), (30, FIN("stop") + event({"id": "c1", "usage": counted(5, 1), **odd}) + DONE)))
    assert (got["status"], got["output_tokens"], got["error"]) == ("ok", 1, None)


def _with_usage(text: str, usage: Any) -> bytes:
    return chunk({"index": 0, "delta": {"content": text}, "finish_reason": None}, usage=usage)


def test_sp16_a_null_usage_overwrites_nothing() -> None:
    script = stream(
        (10, _with_usage("a", None)), (20, _with_usage("b", counted(7, 3))), (30, _with_usage("c", None)),
        (30, FIN("stop") + DONE),
    )  # fmt: skip
    got = seen(script)
    assert (got["output_tokens"], got["prompt_tokens"], got["token_source"], got["itl_s"]) == (
        3,
        7,
        "usage",
        near(10, 10),
    )


def test_sp16_usage_that_was_not_asked_for_is_used() -> None:
    got = seen(stream((10, C("a")), (20, C("b")), (30, FIN("stop") + USE(7, 2) + DONE)))
    assert (got["output_tokens"], got["token_source"]) == (2, "usage")


@pytest.mark.parametrize(
    "last",
    [
        None,
        {},
        {"prompt_tokens": None, "completion_tokens": None},
        {"completion_tokens": 0},
        {"completion_tokens": "2"},
    ],
)
def test_sp16_unusable_figures_leave_the_usable_ones(last: Any) -> None:
    usage = {"usage": last}
    script = stream((10, C("a")), (20, C("b") + FIN("stop") + USE(7, 2)), (30, chunk(**usage) + DONE))
    assert (seen(script)["output_tokens"], seen(script)["prompt_tokens"]) == (2, 7)


def test_sp16_usage_in_the_last_choice_chunk_is_the_final_usage() -> None:
    script = stream((10, C("a")), (20, C("b")), (30, delta(finish_reason="length", usage=counted(7, 2)) + DONE))
    assert (seen(script)["output_tokens"], seen(script)["token_source"]) == (2, "usage")


@pytest.mark.parametrize("odd", ["many", [3], 3.5, True])
def test_sp16_usage_of_an_odd_type_is_passed_over(odd: Any) -> None:
    got = seen(stream((10, _with_usage("a", odd)), (20, C("b") + FIN("stop") + DONE)))
    assert (got["status"], got["token_source"], got["output_tokens"], got["malformed_events"]) == ("ok", "events", 2, 0)


def test_sp23_metadata_before_the_first_token_is_neither_token_nor_end() -> None:
    filters = event({"id": "", "object": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]})
    got = seen(stream((60, filters), (150, ROLE), (180, C("a")), (200, C("b")), (200, FIN("stop") + DONE)))
    assert (got["ttft_s"], got["itl_s"], got["output_tokens"], got["status"]) == (at(180), near(20), 2, "ok")


# -- SP-17, SP-19: how streams end


@pytest.mark.parametrize(
    "script",
    [
        stream((50, C("a")), (60, C("b")), (60, FIN("stop"))),
        [(50, UNTIL_CLOSE + C("a")), (60, C("b") + FIN("stop")), (60, "close")],
        [(50, UNTIL_CLOSE + C("a")), (60, C("b") + FIN("stop").rstrip()), (60, "close")],
    ],
    ids=["chunked", "close", "no blank line"],
)
def test_sp17_a_finish_reason_is_enough(script: list[Act]) -> None:
    got = seen(script)
    assert (got["status"], got["e2e_s"], got["stream_end_s"], got["done_marker"]) == ("ok", at(60), at(60), False)
    assert "no_done" in got["warnings"]


@pytest.mark.parametrize("end", ["chunked", "close"])
def test_sp17_without_finish_reason_and_done_the_answer_is_incomplete(end: str) -> None:
    script = (
        stream((50, C("a")), (60, C("b")))
        if end == "chunked"
        else [(50.0, UNTIL_CLOSE + C("a")), (60.0, C("b")), (60.0, "close")]
    )
    got = seen(script)
    assert (got["status"], got["error"], got["output_tokens"]) == ("incomplete", "truncated", 2)


@pytest.mark.parametrize("empty", ["", None, "null"])
def test_sp17_an_empty_finish_reason_is_none(empty: Any) -> None:
    first = chunk({"index": 0, "delta": {"content": "a"}, "finish_reason": empty})
    assert seen(stream((50, first)))["status"] == "incomplete"
    got = seen(stream((50, first), (60, C("b") + FIN("stop"))))
    assert (got["status"], got["finish_reason"]) == ("ok", "stop")


def test_sp17_done_alone_is_enough() -> None:
    got = seen(stream((50, C("a")), (60, DONE)))
    assert (got["status"], got["finish_reason"], got["done_marker"], got["warnings"]) == (
        "ok",
        None,
        True,
        ["no_usage"],
    )


@pytest.mark.parametrize(
    "marker",
    [
        b"data: [DONE]\n\n",
        b"data:[DONE]\n\n",
        b"data: [DONE] \r\n\r\n",
        b"data: [DONE]",
        b'data: "[DONE]"\n\n',
        b"data: data: [DONE]\n\n",
    ],
)
def test_sp17_the_end_marker_in_its_spellings(marker: bytes) -> None:
    assert seen(stream((50, C("a")), (60, marker)))["done_marker"]


def test_sp19_a_finished_stream_left_open_ends_after_the_grace() -> None:
    got = seen(stream((50, C("a")), (60, FIN("stop")), end=False), grace_s=5.0)
    assert (got["status"], got["e2e_s"], got["stream_end_s"]) == ("ok", at(50), at(60))
    assert "no_done" in got["warnings"]


def test_sp19_output_after_a_finish_reason_keeps_the_stream_open() -> None:
    acts = [(1000.0 * i, delta(finish_reason="stop", content="a")) for i in range(1, 9)]
    got = seen(stream(*acts, (8000, DONE)), grace_s=2.0)
    assert (got["status"], got["output_tokens"], got["done_marker"]) == ("ok", 8, True)


@pytest.mark.parametrize("last", [DONE, FIN("stop") + DONE, FIN("stop") + USE(3, 1) + DONE])
def test_sp19_done_left_open_ends_at_done(last: bytes) -> None:
    got = seen(stream((50, C("a")), (60, last), end=False))
    assert (got["status"], got["stream_end_s"], got["done_marker"]) == ("ok", at(60), True)


def test_sp19_usage_that_comes_within_the_grace_is_taken() -> None:
    got = seen(stream((50, C("a")), (60, FIN("stop")), (2060, USE(4, 1)), end=False), grace_s=3.0)
    assert (got["output_tokens"], got["token_source"], got["stream_end_s"]) == (1, "usage", at(2060))


# -- SP-21: tool calls are output


def _call(**function: Any) -> bytes:
    return delta(tool_calls=[{"index": 0, "id": "c1", "type": "function", "function": function}])


def test_sp21_tool_calls_are_tokens_too() -> None:
    got = seen(
        stream(
            (100, _call(name="f", arguments="")),
            (120, _call(arguments='{"a"')),
            (160, _call(arguments=":1}") + FIN("tool_calls") + USE(8, 6) + DONE),
        )
    )
    assert (got["ttft_s"], got["gap_s"], got["output_tokens"], got["e2e_s"]) == (at(100), near(20, 40), 6, at(160))
    assert (got["finish_reason"], got["token_source"], got["time_to_first_answer_s"]) == (
        "tool_calls",
        "pro_rata",
        at(100),
    )
    assert len(got["itl_s"]) == 5
    assert sum(got["itl_s"]) == pytest.approx(0.06)


@pytest.mark.parametrize(
    "parts",
    [
        {"function_call": {"name": "f"}},
        {"function_call": {"arguments": '{"a"'}},
        {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": None}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": {"a": 1}}}]},
        {"tool_calls": [{"index": 0, "type": "custom", "custom": {"name": "g", "input": "x"}}]},
        {"tool_calls": {"index": 0, "function": {"name": "f"}}},
    ],
    ids=["legacy name", "legacy arguments", "null content", "null arguments", "object", "custom", "no list"],
)
def test_sp21_tool_calls_in_other_shapes(parts: dict[str, Any]) -> None:
    got = seen(stream((100, delta(**parts)), (130, C("x") + FIN("stop") + DONE)))
    assert (got["ttft_s"], got["gap_s"], got["malformed_events"]) == (at(100), near(30), 0)


# -- beyond the cases: frames, shapes, endings


@pytest.mark.parametrize("end", [b"\r\n", b"\r"], ids=["CRLF", "CR"])
def test_other_line_ends_frame_the_same_events(end: bytes) -> None:
    def turned(data: bytes) -> bytes:
        return data.replace(b"\n", end)

    got = seen(stream((10, turned(C("a"))), (30, turned(C("b"))), (40, turned(FIN("stop") + DONE))))
    assert (got["status"], got["gap_s"], got["text"], got["done_marker"]) == ("ok", near(20), "ab", True)


def test_data_on_several_lines_is_one_event() -> None:
    pretty = json.dumps({"choices": [{"index": 0, "delta": {"content": "a"}}]}, indent=2)
    lines = "".join(f"data: {line}\n" for line in pretty.split("\n")).encode() + b"\n"
    assert seen(stream((10, lines), (20, FIN("stop") + DONE)))["text"] == "a"


def test_a_byte_order_mark_before_the_stream_is_dropped() -> None:
    got = seen(stream((10, b"\xef\xbb"), (11, b"\xbf" + C("a")), (20, FIN("stop") + DONE)))
    assert (got["status"], got["text"], got["ttft_s"]) == ("ok", "a", at(11))


def test_a_huge_event_is_one_event() -> None:
    got = seen(stream((10, C("x" * 2_000_000)), (20, FIN("stop") + USE(1, 1) + DONE)))
    assert (len(got["text"]), got["output_tokens"]) == (2_000_000, 1)


def test_several_events_in_one_read_share_its_instant() -> None:
    got = seen(stream((10, C("a") + C("b")), (40, C("c")), (70, C("d") + FIN("stop") + DONE)))
    assert got["gap_s"] == near(0, 30, 30)


def test_one_event_may_hold_several_choices() -> None:
    both = [{"index": i, "delta": {"content": "x"}, "finish_reason": None} for i in (0, 1)]
    got = seen(stream((10, chunk(*both)), (30, chunk(*both)), (40, FIN("stop", 0) + FIN("stop", 1) + DONE)))
    assert (got["gap_s"], got["output_tokens"], "multiple_choices" in got["warnings"]) == (near(20, 20), 4, True)


@pytest.mark.parametrize("bad", [b"data: {broken\n\n", b"data: 17\n\n", b"data: [1, 2]\n\n", b'data: "text"\n\n'])
def test_data_that_is_no_object_is_counted_and_passed_over(bad: bytes) -> None:
    got = seen(stream((10, C("a")), (20, bad), (30, C("b") + FIN("stop") + DONE)))
    assert (got["status"], got["malformed_events"], got["gap_s"]) == ("ok", 1, near(20))
    assert "malformed_events" in got["warnings"]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b'data: {"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"logprob":NaN}]}}]}\n\n', "a"),
        (b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"},"logprobs":-Infinity}]}\n\n', "a?"),
        (b'data: {"choices":[{"index":0,"delta":{"content":"a\xff"}}]}\n\n', "a\ufffd"),
        (b'data: {"choices":[{"index":"0","delta":{"content":"a"}}]}\n\n', "a"),
        (b'data: {"choices":[{"delta":{"content":"a"}, "index":null}], "usage":"none"}\n\n', "a"),
        (b'data:   {"choices":[{"delta":{"content":"a"}}]}   \n\n', "a"),
    ],
    ids=["NaN", "lone surrogate", "broken UTF-8", "text index", "null index", "spaces"],
)
def test_json_that_is_not_quite_json_is_read_all_the_same(payload: bytes, text: str) -> None:
    got = seen(stream((10, payload), (30, C("b") + FIN("stop") + DONE)))
    assert (got["status"], got["malformed_events"], got["gap_s"]) == ("ok", 0, near(20))
    assert got["text"] == text + "b"


def test_completions_stream_text() -> None:
    def piece(text: str, reason: Any = None) -> bytes:
        return event({"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": reason}]})

    got = seen(
        stream((10, piece("")), (20, piece("a")), (50, piece("b")), (60, piece("", "length") + USE(2, 2) + DONE)),
        api="completions",
    )
    assert (got["ttft_s"], got["itl_s"], got["text"], got["finish_reason"]) == (at(20), near(30), "ab", "length")


def _said(kind: str, **more: Any) -> bytes:
    return f"event: {kind}\n".encode() + event({"type": kind, **more})


def _closing(kind: str, **reply: Any) -> bytes:
    usage = {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 8},
             "output_tokens_details": {"reasoning_tokens": 1}}  # fmt: skip
    return _said(kind, response={"object": "response", "usage": usage, **reply})


def test_the_responses_api_streams_deltas_of_every_kind() -> None:
    record = record_of(
        stream(
            (10, _said("response.created", response={"object": "response", "status": "in_progress", "error": None})),
            (15, _said("response.output_item.added", item={"type": "message", "content": []})),
            (20, _said("response.reasoning_text.delta", delta="hm")),
            (30, _said("response.output_text.delta", delta="a")),
            (40, _said("response.output_item.added", item={"type": "function_call", "name": "f", "arguments": ""})),
            (55, _said("response.function_call_arguments.delta", delta="{}")),
            (60, _said("response.output_text.done", text="a") + _closing("response.completed", status="completed")),
        ),
        api="responses",
    )
    got = probe_document(record)
    assert (got["status"], got["ttft_s"], got["gap_s"]) == ("ok", at(20), near(10, 10, 15))
    assert (got["output_tokens"], got["prompt_tokens"], got["token_source"], got["text"]) == (4, 9, "usage", "a")
    assert (got["finish_reason"], got["time_to_first_answer_s"], got["warnings"]) == ("stop", at(30), [])
    assert (record.cached_tokens, record.reasoning_tokens) == (8, 1)


def test_the_responses_api_says_why_it_is_incomplete() -> None:
    closing = _closing("response.incomplete", status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    got = seen(stream((20, _said("response.output_text.delta", delta="a")), (30, closing)), api="responses")
    assert (got["status"], got["finish_reason"]) == ("ok", "length")


@pytest.mark.parametrize(
    "failure",
    [
        _closing("response.failed", status="failed", error={"code": "server_error", "message": "out of memory"}),
        _said("error", code="server_error", message="out of memory", param=None),
        _said("error", error={"code": "server_error", "message": "out of memory"}),
    ],
    ids=["failed", "error", "nested"],
)
def test_the_responses_api_fails_in_band(failure: bytes) -> None:
    got = seen(stream((20, _said("response.output_text.delta", delta="a")), (30, failure)), api="responses")
    assert (got["status"], got["error"], len(got["gap_s"]), got["ttft_s"]) == ("error", "in_band", 0, at(20))
    assert "out of memory" in got["error_detail"]


def _without_times(record: Record) -> dict[str, Any]:
    timed = {"first_byte_s", "event_s", "answer_s", "stream_end_s"}
    return {name: getattr(record, name) for name in Record.__dataclass_fields__ if name not in timed}


# -- framing that is not quite that of server-sent events


def test_events_without_blank_lines_between_them_are_timed_one_by_one() -> None:
    lines = [part[:-1] for part in (ROLE, C("a"), C("b"), FIN("stop"))]
    got = seen(stream(*zip((5, 10, 30, 40), lines, strict=True), (50, b"data: [DONE]\n")))
    assert (got["status"], got["text"], got["malformed_events"], got["done_marker"]) == ("ok", "ab", 0, True)
    assert (got["ttft_s"], got["gap_s"]) == (at(10), near(20))


def test_json_on_several_data_lines_stays_one_event() -> None:
    pretty = json.dumps({"choices": [{"index": 0, "delta": {"content": "a"}}], "error": None}, indent=1)
    got = seen(stream((10, "".join(f"data: {line}\n" for line in pretty.split("\n")).encode() + b"\n"), (30, DONE)))
    assert (got["text"], got["malformed_events"], got["ttft_s"]) == ("a", 0, at(10))


def test_json_lines_are_a_stream() -> None:
    lines = [part.removeprefix(b"data: ")[:-1] for part in (C("a"), C("b"), FIN("stop"))]
    got = seen(stream(*zip((10, 30, 40), lines, strict=True)))
    assert (got["status"], got["text"], got["finish_reason"], got["gap_s"]) == ("ok", "ab", "stop", near(20))
    assert "not_streamed" not in got["warnings"]


def test_data_framed_twice_is_read() -> None:
    got = seen(stream((10, b"data: " + C("a")), (30, b"data: " + C("b") + FIN("stop") + DONE)))
    assert (got["text"], got["malformed_events"], got["gap_s"]) == ("ab", 0, near(20))


def test_usage_inside_the_last_choice_counts() -> None:
    last = chunk(
        {"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 4, "completion_tokens": 2}}
    )
    got = seen(stream((10, C("a")), (30, C("b")), (40, last + DONE)))
    assert (got["output_tokens"], got["prompt_tokens"], got["token_source"]) == (2, 4, "usage")


@pytest.mark.parametrize("count", [b"1e400", b"1e12", b"99999999999999999999999999", b"NaN", b"-1", b'"two"'])
def test_sp16_a_count_that_cannot_be_is_no_usage(count: bytes) -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":%s}}\n\n' % (count, count)
    got = seen(stream((10, C("a")), (30, C("b") + FIN("stop")), (40, usage + DONE)))
    assert (got["status"], got["output_tokens"], got["prompt_tokens"], got["token_source"]) == ("ok", 2, None, "events")


@pytest.mark.parametrize("index", [10**30, -1, True, "x"])
def test_a_choice_number_that_cannot_be_is_choice_0(index: Any) -> None:
    parts = [chunk({"index": index, "delta": {"content": text}, "finish_reason": None}) for text in "ab"]
    record = record_of(stream((10, parts[0]), (30, parts[1]), (40, FIN("stop") + DONE)))
    assert (record.status, record.event_choice, record.output_tokens) == ("ok", [], 2)
