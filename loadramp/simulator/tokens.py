"""The simulator's language: one token is one whitespace-separated word, and the chat template adds none. Pure.

Answers are made of invented words, the same ones for the same prompt, so a conversation can be sent back and its
earlier turns are found in the prefix cache.
"""

import hashlib
import zlib
from collections.abc import Sequence

_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
VOCABULARY = tuple(first + second for first in _SYLLABLES[::3] for second in _SYLLABLES)
"""The words of answers; plain ASCII, nothing that JSON escapes."""


def answer_words(prompt: Sequence[str], tokens: int) -> list[str]:
    """The answer to ``prompt``: that many words."""
    seed = zlib.crc32(" ".join(prompt[-64:]).encode("utf-8", "surrogatepass"))
    stride = 2 * (seed // len(VOCABULARY) % 500) + 1
    return [VOCABULARY[(seed + i * stride) % len(VOCABULARY)] for i in range(tokens)]


def block_hashes(words: Sequence[str], block_tokens: int) -> list[bytes]:
    """One hash for each full block of ``block_tokens`` words, of all words up to the block's end."""
    hashes: list[bytes] = []
    before = b""
    for end in range(block_tokens, len(words) + 1, block_tokens):
        text = " ".join(words[end - block_tokens : end]).encode("utf-8", "surrogatepass")
        before = hashlib.blake2b(before + text, digest_size=8).digest()
        hashes.append(before)
    return hashes
