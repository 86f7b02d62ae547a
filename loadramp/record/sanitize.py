"""Text from outside, made fit to be kept and shown: the one place where it is cleaned, as it enters the record.

A server's words may hold escape sequences that rewrite a terminal, characters that turn the direction of a line, or
halves of characters. Pure.
"""

import re
from typing import Any

_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor movements
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]{0,2000}(?:\x07|\x1b\\|\x9c)"  # OSC, DCS, ...: titles, links
    r"|\x1b[ -/]*[0-~]?"  # any other
)
_SPACES = re.compile(r"[\t\n\x0b\x0c\r\x1c-\x1f\x85\u2028\u2029]+")
_LINE_ENDS = re.compile(r"\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_UNSEEN = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb]")
"""Marks that change the direction of what follows, byte order marks, and anchors of annotations."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def clean(text: str, lines: bool = False) -> str:
    """``text`` without escape sequences, control characters and lone surrogates.

    Args:
        text: anybody's.
        lines: keep line ends (as ``\\n``) and tabs: for whole answers. Otherwise the result is one line.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _UNSEEN.sub("", _ESCAPES.sub("", text))
    text = _LINE_ENDS.sub("\n", text) if lines else _SPACES.sub(" ", text)
    return _CONTROLS.sub(REPLACEMENT, text)


def encodable(text: str) -> str:
    """A whole answer as UTF-8 can carry it, otherwise as it came: sessions send it back, and answers are compared. What
    shows it cleans it."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean_all(value: Any) -> Any:
    """``value``, of dicts, lists and scalars as JSON knows them, with every text in it cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(key) if isinstance(key, str) else key: clean_all(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean_all(item) for item in value]
    return value
