"""What a request body asks for, or the error vLLM would answer. Pure: bytes in, an Ask out."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import msgspec


class WrongRequestError(ValueError):
    """The request is refused: HTTP status and vLLM's error body."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body = msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


@dataclass(slots=True, frozen=True)
class GenerationRequest:
    """One generation that is asked for."""

    api: Literal["chat", "completions"]
    model: str
    words: list[str]
    """The prompt, a token each."""
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class _Body(msgspec.Struct):
    model: str | None = None
    messages: Any = None
    prompt: Any = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = False
    stream: bool | None = False
    stream_options: _StreamOptions | None = None
    n: int | None = 1


_decoder = msgspec.json.Decoder(_Body)


def read_ask(
    api: Literal["chat", "completions"], body: bytes, models: Collection[str], max_model_len: int, extra_words: int = 0
) -> GenerationRequest:
    """The Ask in ``body``.

    Args:
        api: which route it came by.
        body: the JSON text.
        models: names that are served; the first is used when none is given.
        max_model_len: prompt and answer tokens together.
        extra_words: tokens that a chat template would add.

    Raises:
        WrongRequestError: as vLLM refuses it.
    """
    asked = _decoded(body)
    model = asked.model or next(iter(models))
    if model not in models:
        known = ", ".join(models)
        raise WrongRequestError(
            404, f"The model `{model}` does not exist. Valid aliases: {known}.", "NotFoundError", "model"
        )
    words = _chat_words(asked.messages) if api == "chat" else _prompt_words(asked.prompt)
    words += ["<template>"] * extra_words
    options = asked.stream_options or _StreamOptions()
    if asked.stream_options is not None and not asked.stream:
        text = "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
        raise WrongRequestError(400, text, param="stream_options")
    if asked.n not in {None, 1}:
        raise WrongRequestError(400, f"this simulator makes one choice; got n={asked.n}.", param="n")
    return GenerationRequest(
        api=api,
        model=model,
        words=words,
        max_tokens=_max_tokens(asked, api, len(words), max_model_len),
        min_tokens=asked.min_tokens or 0,
        ignore_eos=bool(asked.ignore_eos),
        stream=bool(asked.stream),
        include_usage=bool(options.include_usage),
        continuous_usage=bool(options.include_usage and options.continuous_usage_stats),
    )


def prompt_of(body: bytes) -> list[str]:
    """The words of a prompt or of messages, for /tokenize.

    Raises:
        WrongRequestError: there is neither.
    """
    asked = _decoded(body)
    return _chat_words(asked.messages) if asked.messages is not None else _prompt_words(asked.prompt)


def _decoded(body: bytes) -> _Body:
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise WrongRequestError(400, f"1 validation error:\n  {error}", "Bad Request") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = f"1 validation error:\n  {{'type': 'json_invalid', 'msg': 'JSON decode error', 'ctx': '{error}'}}"
        raise WrongRequestError(400, text, "Bad Request", "body") from None


def _max_tokens(asked: _Body, api: str, prompt_tokens: int, max_model_len: int) -> int | None:
    """The limit asked for, checked against the context; completions default to 16, chat to none."""
    tokens = asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens
    if tokens is None and api == "completions":
        tokens = 16
    if tokens is not None and tokens < 1:
        text = f"max_tokens must be at least 1, got {tokens}. (parameter=max_tokens, value={tokens})"
        raise WrongRequestError(400, text, param="max_tokens")
    if tokens is not None and tokens > max_model_len:
        text = (
            f"max_tokens={tokens} cannot be greater than max_model_len={max_model_len}. Please request fewer output "
            f"tokens. (parameter=max_tokens, value={tokens})"
        )
        raise WrongRequestError(400, text, param="max_tokens")
    if tokens is not None and (asked.min_tokens or 0) > tokens:
        text = f"min_tokens must be less than or equal to max_tokens={tokens}, got {asked.min_tokens}."
        raise WrongRequestError(400, text)
    limit = f"This model's maximum context length is {max_model_len} tokens. However, "
    if prompt_tokens >= max_model_len:
        at_least = max_model_len + 1
        text = (
            f"{limit}your prompt contains at least {at_least} input tokens, which exceeds this limit even without any "
            f"output tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value={at_least})"
        )
        raise WrongRequestError(400, text, param="input_tokens")
    if tokens is not None and prompt_tokens + tokens > max_model_len:
        text = (
            f"{limit}you requested {tokens} output tokens and your prompt contains at least {prompt_tokens} input "
            f"tokens, for a total of at least {prompt_tokens + tokens} tokens. Please reduce the length of the input "
            f"prompt or the number of requested output tokens. (parameter=input_tokens, value={prompt_tokens})"
        )
        raise WrongRequestError(400, text, param="input_tokens")
    return tokens


def _chat_words(messages: Any) -> list[str]:
    if messages is None:
        text = "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required'}"
        raise WrongRequestError(400, text, "Bad Request", "body.messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        text = "1 validation error:\n  {'type': 'list_type', 'loc': 'body.messages', 'msg': 'Should be a valid list'}"
        raise WrongRequestError(400, text, "Bad Request", "body.messages")
    words: list[str] = []
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content}]
        for part in parts:
            content_text = part.get("text") if isinstance(part, dict) else None
            words += content_text.split() if isinstance(content_text, str) else []
    return words or ["<empty>"]


def _prompt_words(prompt: Any) -> list[str]:
    while isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt.strip():
        return prompt.split()
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return [str(token) for token in prompt]
    if not prompt:
        text = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
        raise WrongRequestError(400, text, param="prompt")
    raise WrongRequestError(400, "this simulator takes one prompt: a string or a list of token ids.", param="prompt")
