"""Events of which every key is known: the first, the last and the usage event of nearly every stream. Pure.

Nothing can hide in such an event, so it needs no second look for what servers put where no API documents it. That
look takes five times as long as reading the event.
"""

from typing import Annotated, Any, Literal

import msgspec

from loadramp.client.stream.events import MOST_CHOICES
from loadramp.client.stream.usage import MOST_TOKENS, Usage

MOST_BYTES = 8192
"""A longer event takes long in any case."""
_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)]
_Nothing = Annotated[list[Any], msgspec.Meta(max_length=0)]


class _Delta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    role: str | None = None
    content: str | None = None
    reasoning: None = None
    reasoning_content: None = None
    refusal: None = None
    tool_calls: _Nothing | None = None
    function_call: None = None


class KnownChoice(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    index: Annotated[int, msgspec.Meta(ge=0, lt=MOST_CHOICES)] = 0
    delta: _Delta | None = None
    text: str | None = None
    """Of the completions API."""
    finish_reason: Literal["stop", "length"] | None = None
    stop_reason: int | str | None = None
    matched_stop: int | str | None = None
    logprobs: None = None
    token_ids: None = None

    @property
    def output(self) -> str:
        """The text that it adds."""
        return (self.delta is not None and self.delta.content) or self.text or ""


class _Usage(Usage, gc=False, kw_only=True):
    """Counts that need no second look."""

    prompt_tokens: _Tokens
    completion_tokens: _Tokens


class KnownEvent(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """An event that says nothing but a role, text, why the answer ended and how many tokens there are."""

    choices: Annotated[list[KnownChoice], msgspec.Meta(max_length=1)]
    usage: _Usage | None = None
    object: Literal["chat.completion.chunk", "text_completion"] | None = None
    id: str | None = None
    created: int | float | None = None
    model: str | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    prompt_token_ids: None = None
    prompt_text: None = None
    error: None = None


_decoder = msgspec.json.Decoder(KnownEvent)


def known_event(payload: bytes) -> KnownEvent | None:
    """The event in ``payload``; None when there is more in it, or less."""
    if len(payload) > MOST_BYTES:
        return None
    try:
        return _decoder.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
