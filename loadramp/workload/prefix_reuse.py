"""How much of a workload's prompt text a prefix cache could have seen before. Pure: prompts in, tokens out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from loadramp.record.types import Prompt

CHARS_PER_TOKEN = 4.0
BLOCK_CHARS = 64
"""Given text is compared in pieces of so many characters: about a block of 16 tokens."""


@dataclass(slots=True, frozen=True)
class PromptSize:
    """One request: prompt tokens, how many of them began an earlier prompt, answer tokens (None: not limited)."""

    input_tokens: float
    reused_tokens: float
    output_tokens: int | None
    estimated: bool = False
    """The tokens were guessed from the number of characters."""


@dataclass(slots=True)
class PrefixHistory:
    """All prompts so far, as a cache that forgets nothing would hold them."""

    _whole: set[int] = field(default_factory=set)
    _longest: dict[int, int] = field(default_factory=dict)

    def sizes(self, prompt: Prompt) -> list[PromptSize]:
        """The requests that ``prompt`` stands for: itself and its session's later turns, which reuse what was said."""
        given = prompt.text is not None or prompt.messages is not None
        sizes = [self._given(prompt) if given else self._made_up(prompt)]
        for turn in prompt.following:
            before = sizes[-1].input_tokens + (sizes[-1].output_tokens or 0)
            if turn.messages is not None:
                tokens = len(text_of(turn)) / CHARS_PER_TOKEN
                sizes.append(PromptSize(tokens, min(before, tokens), turn.output_tokens, True))
            elif turn.text is not None:
                tokens = before + len(turn.text) / CHARS_PER_TOKEN
                sizes.append(PromptSize(tokens, before, turn.output_tokens, True))
            else:
                tokens = float(turn.input_tokens or before)
                sizes.append(PromptSize(tokens, min(before, tokens), turn.output_tokens))
        return sizes

    def _made_up(self, prompt: Prompt) -> PromptSize:
        parent, reused, sharing = 0, 0, True
        for seed, tokens in prompt.segments:
            place = hash((parent, seed))
            longest = self._longest.get(place, 0)
            if sharing:
                reused += min(longest, tokens)
            self._longest[place] = max(longest, tokens)
            parent = hash((place, tokens))
            sharing = sharing and parent in self._whole
            self._whole.add(parent)
        total = float(prompt.input_tokens or sum(tokens for _, tokens in prompt.segments))
        return PromptSize(total, min(reused, total), prompt.output_tokens)

    def _given(self, prompt: Prompt) -> PromptSize:
        text = text_of(prompt)
        parent, reused, sharing = hash(prompt.tag), 0, True
        for begin in range(0, len(text) - BLOCK_CHARS + 1, BLOCK_CHARS):
            parent = hash((parent, text[begin : begin + BLOCK_CHARS]))
            sharing = sharing and parent in self._whole
            reused += sharing
            self._whole.add(parent)
        guessed = len(text) / CHARS_PER_TOKEN
        total = float(prompt.input_tokens or guessed)
        share = reused * BLOCK_CHARS / max(1, len(text))
        return PromptSize(total, share * total, prompt.output_tokens, prompt.input_tokens is None)


def text_of(prompt: Prompt) -> str:
    """All that a prompt says, roles left out."""
    if prompt.text is not None:
        return prompt.text
    return "\n".join(_words(message.get("content")) for message in prompt.messages or ())


def _words(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts: Iterable[Any] = content if isinstance(content, list) else ()
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))
