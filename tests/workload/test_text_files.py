"""Files of real text: JSON rows as tools write them, conversations as the public sets store them, plain text."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadramp.registry import ScenarioError
from loadramp.workload.prompts.conversations import read_conversations
from loadramp.workload.prompts.text_files import Texts, read_rows, read_text

DATA = Path(__file__).parents[1] / "data" / "workloads"
LONG = "a question of several words"
ANSWER = "an answer that is forty characters long."


def rows(*objects: Any, **options: Any) -> Texts:
    return read_rows([b"\n".join(json.dumps(one).encode() for one in objects)], "t", **options)


def talks(*objects: Any, **options: Any) -> Texts:
    return read_conversations([json.dumps(objects).encode()], "t", **options)


@pytest.mark.parametrize(
    ("row", "text", "output_tokens"),
    [
        ({"prompt": "Say this", "output_tokens": 64}, "Say this", 64),
        ({"prompt": "Say this"}, "Say this", None),
        ({"text": "Say this"}, "Say this", None),
        ({"text_input": "Say this", "output_length": "128"}, "Say this", 128),
        ({"question": "Why?", "system_prompt": "Be brief.", "tok_output_length": 9}, "Be brief.\n\nWhy?", 9),
        ({"instruction": "Translate.", "input": "Hallo", "output": "Hello"}, "Translate.\n\nHallo", None),
        ({"instruction": "Sing.", "input": ""}, "Sing.", None),
        ({"context": "A page.", "question": "What?"}, "A page.\n\nWhat?", None),
        ({"problem": "1 + 1", "solution": "2"}, "1 + 1", None),
        ({"prompt": ["one in a list"], "max_tokens": 3}, "one in a list", 3),
        ({"prompt": "a\u2028b"}, "a\u2028b", None),
    ],
)
def test_prompts_are_found_under_their_usual_names(row: Any, text: str, output_tokens: int | None) -> None:
    (said,) = rows(row).rows
    assert (said.text, said.output_tokens) == (text, output_tokens)


def test_chat_messages_stay_as_they_are_with_tools_and_formats_beside_them() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
    ]
    tools = [{"type": "function", "function": {"name": "look"}}]
    (said,) = rows({"messages": messages, "max_tokens": 64, "tools": tools, "id": 7}).rows
    assert list(said.messages or ()) == messages
    assert (said.output_tokens, said.body) == (64, {"tools": tools})


def test_a_line_of_a_batch_file_is_its_body() -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "x"}],
        "max_tokens": 8,
        "temperature": 0,
        "stream": True,
    }
    (said,) = rows({"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": body}).rows
    assert list(said.messages or ()) == body["messages"]
    assert (said.output_tokens, said.body) == (8, {"temperature": 0})


def test_the_first_turn_of_a_two_turn_row_is_the_prompt() -> None:
    (said,) = rows({"conversations": [{"content": "q"}, {"content": "a"}]}).rows
    assert list(said.messages or ()) == [{"role": "user", "content": "q"}]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": None}, "no prompt"),
        ({"prompt": "  "}, "an empty prompt"),
        ({"prompt": 7}, "prompt is no text"),
        ({"name": "a header line", "version": 1}, "no prompt"),
        ({"messages": []}, "messages without a role"),
        ({"messages": [{"content": "x"}]}, "messages without a role"),
        ({"prompt": "x", "max_tokens": 0}, "a length below 1"),
        ({"prompt": "x", "max_tokens": "many"}, "a length that is no number"),
        ({"prompt": "x", "n": 4}, "more than one answer (n)"),
        ([1], "no object"),
        ("x", "no object"),
    ],
)
def test_a_row_of_no_use_is_counted_and_named(row: Any, reason: str) -> None:
    found = rows({"prompt": "good"}, row)
    assert len(found) == 1
    assert found.tally.skipped == {reason: 1}
    assert found.tally.problems == [f"line 2: {reason}"]


def test_lines_that_are_no_json_are_counted_too() -> None:
    found = read_rows([b'{"prompt": "a"},\r\n\r\n{"prompt": "b"\n\xff\xfe\n{"prompt": "c"}\n'], "t")
    assert [said.text for said in found.rows] == ["a", "c"]
    assert sum(found.tally.skipped.values()) == 2
    assert found.tally.problems[0].startswith("line 3: no JSON")


def test_a_document_that_holds_the_list_is_that_list() -> None:
    found = rows({"dataset": [{"prompt": "a"}, {"prompt": "b"}], "metadata": {}})
    assert [said.text for said in found.rows] == ["a", "b"]


def test_rows_with_stamps_can_be_replayed() -> None:
    found = rows({"prompt": "b", "timestamp": 7.5}, {"prompt": "a", "timestamp": 5.5})
    assert found.t_s is not None
    assert found.t_s.tolist() == [0.0, 2.0]
    assert [said.text for said in found.rows] == ["a", "b"]
    iso = rows(
        {"prompt": "a", "timestamp": "2026-01-01T00:00:00Z"}, {"prompt": "b", "timestamp": "2026-01-01T00:00:02.5Z"}
    )
    assert iso.t_s is not None
    assert iso.t_s.tolist() == [0.0, 2.5]
    assert rows({"prompt": "a", "timestamp": 1}, {"prompt": "b"}).t_s is None


def test_more_rows_than_wanted_are_left_out_and_counted() -> None:
    found = rows(*({"prompt": f"p{i}"} for i in range(5)), max_rows=3)
    assert [said.text for said in found.rows] == ["p0", "p1", "p2"]
    assert found.tally.left_out == {"beyond max_rows": 2}


def test_the_order_of_a_seed_is_always_the_same() -> None:
    found = rows(*({"prompt": f"p{i}"} for i in range(50)))
    one, two = (found.shuffled(np.random.default_rng(3)).rows for _ in range(2))
    assert one == two
    assert [said.text for said in one] != [f"p{i}" for i in range(50)]
    assert sorted(str(said.text) for said in one) == sorted(f"p{i}" for i in range(50))


@pytest.mark.parametrize(
    ("name", "questions", "later"),
    [
        ("sharegpt.json", ["Name three rivers of Europe.", "Hello there, how are you?"], [1, 0]),
        ("lmsys.jsonl", ["What is a good name for a cat?"], [1]),
        ("wildchat.jsonl", ["How do I boil an egg?"], [0]),
        ("share_gpt_pairs.jsonl", ["Where is the next lake?"], [1]),
        ("ultrachat.jsonl", ["Tell me of the sea."], [1]),
    ],
)
def test_conversations_of_each_public_set(name: str, questions: list[str], later: list[int]) -> None:
    found = read_conversations([(DATA / name).read_bytes()], name, turns=0)
    assert [said.text for said in found.rows] == questions
    assert [len(said.following) for said in found.rows] == later


def test_the_answer_of_the_file_says_how_long_an_answer_is_asked() -> None:
    talk = {"conversations": [{"from": "human", "value": LONG}, {"from": "gpt", "value": ANSWER}]}
    assert talks(talk).rows[0].output_tokens == 10
    assert talks(talk, chars_per_token=2.0).rows[0].output_tokens == 20
    assert talks(talk, output_tokens=77).rows[0].output_tokens == 77
    assert talks(talk, max_output_tokens=6).rows[0].output_tokens == 6


def test_rows_of_sharegpt_that_cannot_be_used_are_counted() -> None:
    tally = read_conversations([(DATA / "sharegpt.json").read_bytes()], "sharegpt.json").tally
    assert tally.skipped == {"nobody asks": 1, "no answer": 1, "an empty message": 2, "no conversation": 1}
    assert tally.left_out == {"shorter than min_tokens": 1}
    assert tally.problems[0] == "row 3: nobody asks"
    assert "1 began with an answer, which is dropped" in tally.words()


def test_too_long_conversations_are_left_out_or_end_earlier() -> None:
    turns = [{"from": who, "value": "x" * 400} for who in ("human", "gpt") * 3]
    assert [len(s.following) for s in talks({"conversations": turns}, turns=0).rows] == [2]
    assert [len(s.following) for s in talks({"conversations": turns}, turns=2).rows] == [1]
    assert [len(s.following) for s in talks({"conversations": turns}, turns=0, max_context_tokens=450).rows] == [1]
    with pytest.raises(ScenarioError, match="no row can be used: longer than max_input_tokens"):
        talks({"conversations": turns}, max_input_tokens=50)


def test_later_turns_carry_the_model_s_answers_or_those_of_the_file() -> None:
    talk = {"conversation": [
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": LONG},
        {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": ANSWER},
    ]}  # fmt: skip
    (own,) = talks(talk, turns=0).rows
    assert [message["role"] for message in own.messages or ()] == ["system", "user"]
    assert (own.following[0].text, own.following[0].messages) == ("And then?", None)
    (given,) = talks(talk, turns=0, history="file").rows
    assert [m["role"] for m in given.following[0].messages or ()] == ["system", "user", "assistant", "user"]
    assert [m["content"] for m in given.following[0].messages or ()][2:] == [ANSWER, "And then?"]


def test_questions_without_answers_need_a_length() -> None:
    """MT-Bench: turns are what is asked, one after the other."""
    bench = {"question_id": 81, "category": "writing", "turns": ["Write a poem of the sea.", "Now make it shorter."]}
    with pytest.raises(ScenarioError, match="no answer"):
        talks(bench, turns=0)
    (said,) = talks(bench, turns=0, output_tokens=50).rows
    assert (said.text, said.following[0].text) == ("Write a poem of the sea.", "Now make it shorter.")


def test_messages_of_one_speaker_in_a_row_are_one() -> None:
    turns = [("human", "First part."), ("human", "Second part."), ("gpt", ANSWER)]
    (said,) = talks({"conversations": [{"from": who, "value": text} for who, text in turns]}).rows
    assert said.text == "First part.\n\nSecond part."


def test_plain_text_by_line_by_paragraph_and_whole() -> None:
    text = b"\xef\xbb\xbfOne line.\r\nTwo lines.\n\n\nThree\xe2\x80\xa8still three.\n"
    assert [s.text for s in read_text([text], "t").rows] == ["One line.", "Two lines.", "Three\u2028still three."]
    assert [s.text for s in read_text([text], "t", split="paragraph").rows] == [
        "One line.\nTwo lines.", "Three\u2028still three.",
    ]  # fmt: skip
    assert len(read_text([text], "t", split="whole")) == 1
    with pytest.raises(ScenarioError, match="t: no row can be used: it is empty"):
        read_text([b"\n\n"], "t")


@given(st.lists(st.binary(max_size=60), max_size=5))
@settings(max_examples=80)
def test_no_bytes_at_all_break_the_readers_of_text(pieces: list[bytes]) -> None:
    for reader in (read_rows, read_conversations, read_text):
        try:
            reader(pieces, "noise")
        except ScenarioError as error:
            assert str(error).startswith("noise: ")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["prompt", "messages", "role", "content", "conversations", "from", "value", "turns", "body", "n"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
@settings(max_examples=150)
def test_no_shape_of_json_breaks_the_readers_of_rows(value: Any) -> None:
    for reader in (read_rows, read_conversations):
        try:
            reader([json.dumps([value]).encode()], "noise")
        except ScenarioError as error:
            assert "no row can be used" in str(error)
