"""What requests say: text, messages, tags, images, token ids, and a conversation so far."""

import base64
import json
import struct
import zlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from loadramp.client.request_body import request_body
from loadramp.record.types import Calibration, Prompt
from loadramp.scenario.scenario import Target
from loadramp.workload.prompts.content import content_of, data_url, next_content, png
from loadramp.workload.prompts.vocabulary import render, tag_of

PLAIN = Calibration()
IDS = Calibration(ids=tuple(range(1000, 1256)))


def test_made_up_text_has_as_many_words_as_tokens_were_asked() -> None:
    assert len(str(content_of(Prompt(7, 3, ((5, 7),)), PLAIN)).split()) == 7


def test_token_ids_are_exactly_as_many_and_share_what_segments_share() -> None:
    one = content_of(Prompt(segments=((5, 30), (1, 10))), IDS, "completions")
    two = content_of(Prompt(segments=((5, 30), (2, 10))), IDS, "completions")
    assert isinstance(one, list)
    assert (len(one), len(two)) == (40, 40)
    assert one[:30] == two[:30]
    assert one[30:] != two[30:]
    assert set(one) <= set(range(1000, 1256))
    body = json.loads(request_body(Target(api="completions"), "m", one, 8))
    assert body["prompt"] == one


def test_given_text_is_sent_as_text_where_others_are_ids() -> None:
    assert content_of(Prompt(text="Hello"), IDS, "completions") == "Hello"


def test_a_tag_stands_before_the_first_text_and_is_the_same_for_all_of_a_pass() -> None:
    assert content_of(Prompt(text="Hello", tag=9), PLAIN) == f"{tag_of(9)}\nHello"
    assert len(tag_of(9).split()) == 4
    messages = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"})
    tagged: Any = content_of(Prompt(messages=messages, tag=9), PLAIN)
    assert [message["content"] for message in tagged] == [f"{tag_of(9)}\nBe brief.", "Hi"]
    parts = ({"role": "user", "content": [{"type": "text", "text": "Hi"}]},)
    tagged = content_of(Prompt(messages=parts, tag=9), PLAIN)
    assert tagged[0]["content"] == [{"type": "text", "text": tag_of(9)}, {"type": "text", "text": "Hi"}]
    assert messages[0]["content"] == "Be brief."  # what was read stays as it is


def test_a_later_turn_carries_all_that_was_said() -> None:
    first = content_of(Prompt(text="One?"), PLAIN)
    second = next_content(first, "Answer one.", Prompt(text="Two?"), PLAIN)
    third = next_content(second, "Answer two.", Prompt(segments=((3, 2),)), PLAIN)
    assert [message["role"] for message in third] == ["user", "assistant", "user", "assistant", "user"]
    assert [message["content"] for message in third[:4]] == ["One?", "Answer one.", "Two?", "Answer two."]
    assert len(third[4]["content"].split()) == 2
    assert len(second) == 3


def test_a_turn_with_messages_of_its_own_brings_the_whole_conversation() -> None:
    given_ = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"})
    assert next_content("a", "what the model said", Prompt(messages=given_), PLAIN) == list(given_)


def test_the_template_s_overhead_is_taken_off_once_in_a_conversation() -> None:
    template = Calibration(overhead_tokens=10)
    first = content_of(Prompt(segments=((1, 30),)), template)
    second = next_content(first, "x", Prompt(segments=((2, 30),)), template)
    assert (len(second[0]["content"].split()), len(second[2]["content"].split())) == (20, 30)


def test_images_go_behind_the_text_under_each_api_s_names() -> None:
    prompt = Prompt(text="What is this?", images=((5, 16, 16),))
    (chat,) = content_of(prompt, PLAIN)
    assert [part["type"] for part in chat["content"]] == ["text", "image_url"]
    assert chat["content"][1]["image_url"]["url"] == data_url(5, 16, 16)
    (responses,) = content_of(prompt, PLAIN, "responses")
    assert [part["type"] for part in responses["content"]] == ["input_text", "input_image"]
    assert responses["content"][1]["image_url"].startswith("data:image/png;base64,")
    body = json.loads(request_body(Target(api="responses"), "m", [responses], 8))
    assert body["input"] == [responses]


@given(st.integers(0, 2**63), st.integers(8, 200), st.integers(8, 200))
@settings(max_examples=20)
def test_a_picture_is_a_valid_png_of_its_size(seed: int, width: int, height: int) -> None:
    data = png(seed, width, height)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (width, height)
    length = struct.unpack(">I", data[33:37])[0]
    pixels = zlib.decompress(data[41 : 41 + length])
    assert len(pixels) == height * (1 + 3 * width)
    assert struct.unpack(">I", data[29:33])[0] == zlib.crc32(data[12:29])
    assert base64.b64decode(data_url(seed, width, height).partition(",")[2]) == data


def test_pictures_are_small_and_differ_by_seed() -> None:
    assert len(png(1, 1024, 1024)) < 30_000
    assert png(1, 64, 64) != png(2, 64, 64)


@given(st.lists(st.tuples(st.integers(0, 2**120), st.integers(1, 40)), min_size=1, max_size=30), st.floats(0.6, 2.0))
@settings(max_examples=60)
def test_many_short_segments_do_not_add_up_their_roundings(segments: list[tuple[int, int]], per_word: float) -> None:
    """A trace in blocks of 16 tokens is as long as it says, however a word counts."""
    words = len(render(segments, Calibration(tokens_per_word=per_word)).split())
    assert abs(words - sum(tokens for _, tokens in segments) / per_word) <= max(1, len(segments) * (per_word > 1))
    longer = render([*segments, (7, 30)], Calibration(tokens_per_word=per_word)).split()
    assert longer[: words - 1] == render(segments, Calibration(tokens_per_word=per_word)).split()[: words - 1]
