"""Words of one token each, from a tokenizer file: made-up prompts then have exactly the length that was asked.

Needs the extra ``tokenizers`` (``pip install loadramp[tokenizers]``) and a ``tokenizer.json``; nothing is downloaded.
"""

import json
import re
from pathlib import Path
from typing import Any

from loadramp.record.types import Calibration
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.units import plural
from loadramp.workload.prompts.vocabulary import WORDS

LETTERS = 256
"""Words that text is written with: one for each byte."""
FEWEST = 32
FIRST_ID = 1000
"""Ids to send where no tokenizer is known: in nearly every vocabulary these are plain pieces of text."""
_PLAIN = re.compile(r"[A-Za-z]{3,10}")


def basis_of(target: Target) -> Calibration:
    """How made-up text is written for ``target``, before its server has been asked how it counts.

    Raises:
        ScenarioError: the tokenizer cannot be had, or has too few words of one token.
    """
    if not target.tokenizer:
        return Calibration(ids=tuple(range(FIRST_ID, FIRST_ID + LETTERS))) if target.token_ids else Calibration()
    tokenizer = _opened(target.tokenizer)
    words = single_words(tokenizer)
    if len(words) < FEWEST:
        raise ScenarioError(
            f"[target] tokenizer: {target.tokenizer} has only {plural(len(words), 'word')} of one token"
        )
    letters = tuple(words[i % len(words)] for i in range(LETTERS))
    ids = tuple(_ids(tokenizer, f" {word}")[-1] for word in letters) if target.token_ids else ()
    return Calibration(words=letters, ids=ids)


def single_words(tokenizer: Any) -> list[str]:
    """At most 256 words that are one token each, at the begin of a text and within it, whatever stands beside them."""
    named = re.sub(r"[^A-Za-z]+", " ", " ".join(sorted(tokenizer.get_vocab()))).split()
    candidates: dict[str, None] = dict.fromkeys(word for word in (*WORDS, *named) if _PLAIN.fullmatch(word))
    words = []
    for word in candidates:
        if len(_ids(tokenizer, word)) == 1 and len(_ids(tokenizer, f"{word} {word}")) == 2:
            words.append(word)
        if len(words) == LETTERS:
            break
    text = " ".join(words)
    return words if len(_ids(tokenizer, text)) == len(words) else []


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _opened(name: str) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ScenarioError("[target] tokenizer needs the extra: pip install 'loadramp[tokenizers]'") from None
    path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        raise ScenarioError(f"[target] tokenizer: {path}: no such file")
    try:
        text = path.read_text("utf-8")
        json.loads(text)["model"]["vocab"]
    except (ValueError, KeyError, TypeError) as error:
        raise ScenarioError(f"[target] tokenizer: {path} is no tokenizer.json: {error!r}") from None
    return Tokenizer.from_str(text)
