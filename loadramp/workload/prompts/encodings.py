"""Bytes of a text file in any Unicode encoding to UTF-8. Pure.

Rule: what is no text is never replaced. It stays invalid UTF-8, so that its line is skipped and counted.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from itertools import chain

MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 256
_MOSTLY = 0.4
"""Latin text in UTF-16 has a zero in one of two bytes; other scripts have it in spaces, digits and line ends only."""


def utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same text as UTF-8 without a byte order mark.

    UTF-8, UTF-16 and UTF-32 are known by their mark; the last two also by where their zeros stand. Half a character at
    the end, or a number that is no character, becomes a byte that UTF-8 does not have.
    """
    source = iter(chunks)
    head = b""
    for chunk in source:
        head += chunk
        if len(head) >= _SAMPLE:
            break
    name, mark = encoding_of(head)
    rest = chain((head[mark:],), source)
    if name == "utf-8":
        yield from rest
        return
    decoder = codecs.getincrementaldecoder(name)("surrogatepass")
    try:
        for chunk in rest:
            yield decoder.decode(chunk).encode("utf-8", "surrogatepass")
        yield decoder.decode(b"", final=True).encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        yield b"\xff"


def encoding_of(head: bytes) -> tuple[str, int]:
    """(name, bytes of the mark) of a file that begins with ``head``."""
    for mark, name in MARKS:
        if head.startswith(mark):
            return name, len(mark)
    sample = head[:_SAMPLE]
    if not sample or sample.count(0) < _MOSTLY * len(sample) / 2:
        return "utf-8", 0
    shape = "".join("0" if sample[k::4].count(0) * 4 > _MOSTLY * len(sample) else "x" for k in range(4))
    names = {"x000": "utf-32-le", "000x": "utf-32-be", "x0x0": "utf-16-le", "0x0x": "utf-16-be"}
    return names.get(shape, "utf-8"), 0


def text_of(line: bytes) -> str:
    """A line as text.

    Raises:
        ValueError: it is not UTF-8, or holds zeros as no text does; the first word of a reason.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(NOT_UTF8) from None
    if "\0" in text:
        raise ValueError(NOT_TEXT)
    return text


NOT_UTF8 = "not UTF-8"
NOT_TEXT = "not text (zero bytes)"
