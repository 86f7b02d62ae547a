"""The server's token counts against what cannot be otherwise (field case 05)."""

from typing import Any

import pytest
from scripted_server import (
    CU,
    DONE,
    FIN,
    USE,
    Act,
    C,
    Scripted,
    arrival,
    chunk,
    client_on,
    counted,
    delta,
    jump,
    stream,
)

from loadramp.client.request_body import most_tokens
from loadramp.client.stream.token_counts import UNKNOWN, tokens_of
from loadramp.record.types import Prompt, Record
from loadramp.report.probe_text import probe_document
from loadramp.scenario.scenario import Target


def asked(script: list[Act], output_tokens: int | None, **target: Any) -> Record:
    """The record of a request for so many tokens."""

    async def main() -> Record:
        client = client_on(Scripted([script]), **target)
        one = arrival(output_tokens=output_tokens)
        record = await client.send(one, client.prepare(one, "hi"))
        await client.close()
        return record

    return jump(main())


def ten(counts: list[int], last: bytes = b"", end: Any = None) -> list[Act]:
    """Ten events 20 ms apart, each with its count, then a finish reason with ``end`` as its usage, and ``last``."""
    acts = [(100.0 + 20 * i, CU(f"w{i} ", count)) for i, count in enumerate(counts)]
    return stream(*acts, (300, delta(finish_reason="stop", usage=end) + last + DONE))


TRIANGLE = [1, 3, 6, 10, 15, 21, 28, 36, 45, 55]


def doubted(record: Record) -> bool:
    return "implausible_usage" in record.warnings


# -- field case 05


def test_field_05a_counts_of_each_event_alone_leave_the_final_count() -> None:
    record = asked(ten([1] * 10, USE(7, 10), counted(7, 1)), 12)
    assert (record.output_tokens, record.token_source, doubted(record)) == (10, "usage", False)


def test_field_05b_a_running_count_that_stands_still_and_a_total_below_the_events_is_none() -> None:
    record = asked(ten([1] * 10, b"", counted(7, 1)), 12)
    document = probe_document(record)
    assert (document["output_tokens"], document["token_source"]) == (10, "events")
    assert document["itl_s"] == pytest.approx([0.02] * 9)
    assert document["tpot_s"] == pytest.approx(0.02)
    assert document["warnings"] == ["implausible_usage", "short_output"]


def test_field_05c_a_count_above_what_was_asked_is_not_believed() -> None:
    record = asked(ten(TRIANGLE, USE(7, 55), counted(7, 55)), 12)
    document = probe_document(record)
    assert (document["output_tokens"], document["token_source"]) == (10, "events")
    assert document["tpot_s"] == pytest.approx(0.02)
    assert "implausible_usage" in document["warnings"]
    assert "multi_token_events" not in document["warnings"]
    assert "no_usage" not in document["warnings"]


# -- fewer tokens than events with text


@pytest.mark.parametrize(("count", "tokens", "believed"), [(2, 4, False), (3, 4, False), (4, 4, True), (9, 9, True)])
def test_a_final_count_is_at_least_the_events_with_text(count: int, tokens: int, believed: bool) -> None:
    record = asked(stream(*[(10.0 * i, C("ab")) for i in range(1, 5)], (50, FIN("stop") + USE(3, count) + DONE)), 20)
    assert (record.output_tokens, doubted(record)) == (tokens, not believed)
    assert record.token_source == ("events" if not believed else "usage" if count == 4 else "pro_rata")


def test_a_count_of_one_choice_only_is_measured_by_that_choice() -> None:
    body = [(10.0 * i, C("a") + C("b", 1)) for i in range(1, 5)]
    ends = FIN("stop") + FIN("stop", 1)
    for count, believed in ((4, True), (8, True), (3, False)):
        record = asked(stream(*body, (50, ends + USE(3, count) + DONE)), 20)
        assert doubted(record) is not believed


def test_a_call_may_be_told_in_more_events_than_it_has_tokens() -> None:
    call = [delta(tool_calls=[{"index": 0, "function": part}]) for part in ({"name": "f"}, {"arguments": "{}"})]
    record = asked(stream((10, call[0]), (20, call[1]), (30, FIN("tool_calls") + USE(3, 1) + DONE)), 20)
    assert (record.output_tokens, doubted(record)) == (1, False)
    running = [delta(usage=counted(3, n), tool_calls=[{"function": {"arguments": "x"}}]) for n in (2, 2, 3)]
    record = asked(stream(*[(10.0 * i, part) for i, part in enumerate(running)], (40, FIN("tool_calls") + DONE)), 20)
    assert (record.event_tokens, record.token_source, doubted(record)) == ([2, 0, 1], "continuous", False)


def test_thought_and_answer_in_one_token_are_two_events() -> None:
    parts = [{"reasoning": "hm"}, {"reasoning": "m."}, {"content": "So"}, {"content": " be"}]
    acts = [(10.0, delta(usage=counted(3, n), **part)) for n, part in zip((1, 2, 2, 3), parts, strict=True)]
    record = asked(stream(*acts, (40, FIN("stop") + USE(3, 3) + DONE)), 20)
    assert (record.event_tokens, record.token_source, doubted(record)) == ([1, 1, 0, 1], "continuous", False)


# -- more than was asked for


@pytest.mark.parametrize(("count", "believed"), [(12, True), (13, False), (1_000, False), (19_503, False)])
def test_a_final_count_is_at_most_what_was_asked(count: int, believed: bool) -> None:
    script = stream((10, C("a")), (20, C("b")), (30, FIN("stop") + USE(3, count) + DONE))
    record = asked(script, 12)
    assert (record.output_tokens, doubted(record)) == ((count, False) if believed else (2, True))
    assert asked(script, None).output_tokens == count


def test_a_server_that_does_not_keep_to_what_was_asked_is_believed_all_the_same() -> None:
    acts = [(10.0 * i, C("a")) for i in range(1, 21)]
    record = asked(stream(*acts, (300, FIN("stop") + USE(3, 21) + DONE)), 12)
    assert (record.output_tokens, doubted(record)) == (21, False)


def test_thoughts_that_are_counted_beyond_the_limit_are_believed() -> None:
    usage = counted(3, 40) | {"completion_tokens_details": {"reasoning_tokens": 30}}
    body = [(10.0 + i, delta(reasoning="t")) for i in range(8)]
    record = asked(stream(*body, (50, C("a")), (60, delta(finish_reason="stop", usage=usage) + DONE)), 12)
    assert (record.output_tokens, record.reasoning_tokens, doubted(record)) == (40, 30, False)


def test_a_whole_reply_is_checked_as_well() -> None:
    message = {"index": 0, "message": {"content": "a b c"}, "finish_reason": "stop"}
    script = stream((10, chunk(message, usage=counted(3, 400)).removeprefix(b"data: ")))
    assert (asked(script, 12).output_tokens, doubted(asked(script, 12))) == (1, True)
    assert (asked(script, 400).output_tokens, doubted(asked(script, 400))) == (400, False)


@pytest.mark.parametrize(
    ("target", "prompt", "most"),
    [
        ({}, Prompt(output_tokens=12), 12),
        ({}, Prompt(), None),
        ({"body": {"max_tokens": 50}}, Prompt(output_tokens=12), 50),
        ({"body": {"max_tokens": 50}}, Prompt(output_tokens=12, body={"max_tokens": 60}), 60),
        ({"body": {"max_tokens": 50, "max_completion_tokens": 70}}, Prompt(), 70),
        ({"body": {"max_tokens": None}}, Prompt(output_tokens=12), None),
        ({"body": {"max_tokens": "50"}}, Prompt(output_tokens=12), None),
        ({"api": "responses", "body": {"max_output_tokens": 7}}, Prompt(output_tokens=12), 7),
    ],
)
def test_what_was_asked_is_what_the_body_says(target: dict[str, Any], prompt: Prompt, most: int | None) -> None:
    assert most_tokens(Target(**target), prompt) == most


# -- running counts that do not grow


@pytest.mark.parametrize(
    "counts",
    [[1, 2, 3, 3, 4], [1, 2, 1, 2, 5], [5, 4, 3, 2, 6], [1, 1, 2, 3, 4]],
    ids=["stands still", "starts again", "falls", "late"],
)
def test_a_running_count_that_does_not_grow_is_not_believed(counts: list[int]) -> None:
    tokens = tokens_of([1] * 5, counts, [0] * 5, 9)
    assert (tokens.source, tokens.implausible, sum(tokens.of_events)) == ("pro_rata", True, 9)
    assert tokens_of([1] * 5, counts, [0] * 5, counts[-1]).implausible


def test_the_last_figure_of_a_series_that_fell_is_no_total() -> None:
    assert tokens_of([1] * 4, [5, 9, 3, 12], [0] * 4, 12) == ([1] * 4, "events", None, True)
    assert tokens_of([1] * 4, [2, 9, 3, 4], [0] * 4, 4) == ([1] * 4, "usage", 4, True)


def test_running_counts_stand_by_themselves_where_the_total_cannot_be_right() -> None:
    assert tokens_of([1] * 3, [4, 8, 12], [0] * 3, 1, most=20) == ([4, 4, 4], "continuous", None, True)
    assert tokens_of([1] * 3, [4, 8, 12], [0] * 3, 900, most=20) == ([4, 4, 4], "continuous", None, True)
    assert tokens_of([1] * 3, [4, 8, 32], [0] * 3, 1, most=20) == ([1, 1, 1], "events", None, True)


def test_counts_of_each_event_alone_that_add_up_to_the_total_are_its_tokens() -> None:
    assert tokens_of([1] * 4, [1, 4, 4, 2], [0] * 4, 11) == ([1, 4, 4, 2], "continuous", 11, False)


def test_a_total_in_every_event_is_a_total() -> None:
    assert tokens_of([1] * 4, [6] * 4, [0] * 4, 6).source == "pro_rata"
    assert not tokens_of([1] * 4, [6] * 4, [0] * 4, 6).implausible


def test_running_counts_of_several_choices_are_kept_to_what_was_asked_of_each() -> None:
    running, choices = [1, 1, 2, 3], [0, 1, 0, 1]
    assert not tokens_of([1] * 4, running, choices, None, most=3).implausible
    assert tokens_of([1] * 4, running, choices, None, most=2).implausible
    assert tokens_of([1] * 4, [9, 9, 10, 11], choices, None, most=3) == ([1] * 4, "events", None, True)


def test_events_without_any_count_are_no_reason_to_doubt() -> None:
    assert tokens_of([1, 1], [UNKNOWN] * 2, [0, 0], None, most=12) == ([1, 1], "events", None, False)


def test_a_part_that_is_more_than_its_whole_is_no_count() -> None:
    usage = counted(9, 2) | {
        "prompt_tokens_details": {"cached_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    record = asked(stream((10, C("a")), (20, C("b")), (30, delta(finish_reason="stop", usage=usage) + DONE)), None)
    assert (record.prompt_tokens, record.cached_tokens) == (9, None)
    assert (record.output_tokens, record.reasoning_tokens) == (2, None)
