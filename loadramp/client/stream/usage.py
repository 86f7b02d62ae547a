"""Token counts as servers spell them, and which of them can be believed. Pure."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

Made = TypeVar("Made", bound=msgspec.Struct)

MOST_TOKENS = 10_000_000
"""Of one request: a count beyond it is a server's slip, and no count at all."""


class Usage(msgspec.Struct, gc=False):
    """Token counts as servers spell them; chat and completions on the left, responses on the right."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None
    input_tokens: Any = None
    output_tokens: Any = None
    input_tokens_details: Any = None
    output_tokens_details: Any = None
    promptTokens: Any = None  # noqa: N815  # as servers spell them that print camelCase
    completionTokens: Any = None  # noqa: N815
    inputTokens: Any = None  # noqa: N815
    outputTokens: Any = None  # noqa: N815

    @property
    def counts(self) -> bool:
        """There is a count in it."""
        return self.prompt is not None or self.output is not None

    @property
    def prompt(self) -> int | None:
        return _first_int(self.prompt_tokens, self.input_tokens, self.promptTokens, self.inputTokens)

    @property
    def output(self) -> int | None:
        return _first_int(self.completion_tokens, self.output_tokens, self.completionTokens, self.outputTokens)

    @property
    def cached(self) -> int | None:
        return _detail("cached_tokens", self.prompt_tokens_details, self.input_tokens_details)

    @property
    def reasoning(self) -> int | None:
        return _detail("reasoning_tokens", self.completion_tokens_details, self.output_tokens_details)


def struct_of(kind: type[Made], raw: Mapping[str, Any]) -> Made:
    """What ``raw`` holds of the fields of ``kind``; other keys, which UTF-8 may not even carry, are passed over."""
    return kind(**{name: raw[name] for name in kind.__struct_fields__ if name in raw})


def _first_int(*values: Any) -> int | None:
    for value in values:
        if isinstance(value, str) and len(value) < 9 and value.isascii() and value.isdigit():
            value = int(value)  # noqa: PLW2901  # the same count, quoted
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
            return int(value)
    return None


def _detail(key: str, *details: Any) -> int | None:
    return _first_int(*(detail.get(key) for detail in details if isinstance(detail, dict)))
