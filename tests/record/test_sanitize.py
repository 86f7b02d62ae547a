"""Text from outside: no control character of it is kept or shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadramp.client.endpoint import endpoint_of
from loadramp.client.preflight import facts_of, shown
from loadramp.record.sanitize import clean, clean_all
from loadramp.scenario.scenario import Target


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("plain words, 10 %", "plain words, 10 %"),
        ("grüße 世界 🙂", "grüße 世界 🙂"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x9b31mred", "red"),
        ("\x1b]0;new title\x07rest", "rest"),
        ("\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b]0;never ended", "0;never ended"),
        ("\x1bPq data\x1b\\x", "x"),
        ("\x1b(B\x1bc", ""),
        ("one\r\ntwo\tthree\u2028four", "one two three four"),
        ("over\rwritten", "over written"),
        ("a\x00b\x08c\x7fd\x85e", "a\ufffdb\ufffdc\ufffdd e"),
        ("\u202eevil\u202c \u2066x\u2069", "evil x"),
        ("half \ud83d", "half \ufffd"),
        ("\ufeffmarked", "marked"),
    ],
)
def test_one_line_remains_of_what_a_server_says(text: str, kept: str) -> None:
    assert clean(text) == kept


def test_an_answer_keeps_its_lines() -> None:
    assert clean("a\r\nb\rc\n\td\x1b[1m!\x00", lines=True) == "a\nb\nc\n\td!\ufffd"


@given(st.text(), st.booleans())
def test_what_is_cleaned_prints_and_stays_as_it_is(text: str, lines: bool) -> None:
    told = clean(text, lines)
    told.encode()
    held = "\n\t" if lines else ""
    assert not [c for c in told if (ord(c) < 32 and c not in held) or 0x7F <= ord(c) < 0xA0]
    assert clean(told, lines) == told


def test_every_text_in_a_document_is_cleaned() -> None:
    told = clean_all({"a\x1b[1m": ["b\x00", 1, None, True, {"c": "d\ne"}], "f": 0.5})
    assert told == {"a": ["b\ufffd", 1, None, True, {"c": "d e"}], "f": 0.5}


def test_what_a_server_says_of_itself_is_kept_without_secrets_and_escapes() -> None:
    endpoint = endpoint_of(Target(base_url="http://127.0.0.1", api_key_env="K"), {"K": "sk-canary-1234"})
    facts = facts_of("m", [{"id": "m", "owned_by": "us \x1b[5msk-canary-1234"}])
    assert shown(endpoint, facts["engine"]) == "us ***"
