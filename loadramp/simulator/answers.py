"""One answer on the wire, exactly in vLLM's shape: server-sent events or one JSON document. Pure: text out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

FINGERPRINT = "loadramp-sim"
ENGINE_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keep-alive\n\n"
_CHUNK = {
    "chat": ('[{"index":0,"delta":{"content":"', '"},"logprobs":null,"finish_reason":', ',"token_ids":null}]'),
    "completions": (
        '[{"index":0,"text":"',
        '","logprobs":null,"finish_reason":',
        ',"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]',
    ),
}
"""What stands before the text of a chunk, between it and the reason of the end, and behind that."""
_LAST = {"chat": ',"stop_reason":null,"token_ids":null}]'}
"""The same of the last chunk, where it differs."""


@dataclass(slots=True)
class WireAnswer:
    """The text of one answer, piece by piece.

    Args:
        api: shape.
        id: ``chatcmpl-...`` or ``cmpl-...``.
        created: Unix time.
        model: as asked.
        words: all of the answer, a token each.
        finish: why it ends.
        prompt_tokens: as usage tells it.
    """

    api: Literal["chat", "completions"]
    id: str
    created: int
    model: str
    words: Sequence[str]
    finish: str
    prompt_tokens: int
    sent: int = 0
    cached_tokens: int = 0
    _head: str = field(init=False)

    def __post_init__(self) -> None:
        kind = "chat.completion.chunk" if self.api == "chat" else "text_completion"
        head = msgspec.json.encode({"id": self.id, "object": kind, "created": self.created, "model": self.model})
        self._head = f'data: {head.decode()[:-1]},"choices":'

    def role(self, continuous_usage: bool) -> bytes:
        """The first chunk of a chat, which carries no text. Nothing for completions."""
        if self.api == "completions":
            return b""
        usage = f',"usage":{self._usage(details=False)}' if continuous_usage else ""
        choice = '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return self._event(f'[{choice}]{usage},"prompt_token_ids":null,"prompt_text":null')

    def text(self, tokens: int, last: bool, continuous_usage: bool) -> bytes:
        """The chunk of the next ``tokens`` tokens."""
        text = self.words[self.sent] if tokens == 1 else " ".join(self.words[self.sent : self.sent + tokens])
        space = " " if self.sent else ""
        self.sent += tokens
        before, behind, ending = _CHUNK[self.api]
        if last:
            ending = _LAST.get(self.api, ending)
        reason = f'"{self.finish}"' if last else "null"
        usage = f',"usage":{self._usage(details=False)}' if continuous_usage else ""
        return f"{self._head}{before}{space}{text}{behind}{reason}{ending}{usage}}}\n\n".encode()

    def usage(self) -> bytes:
        """The last chunk before the end marker: no choice, all counts."""
        return self._event(f'[],"usage":{self._usage(details=True)},"system_fingerprint":"{FINGERPRINT}"')

    def document(self) -> bytes:
        """The whole answer as one JSON document, for a request that does not stream."""
        text = " ".join(self.words)
        ending = {"logprobs": None, "finish_reason": self.finish, "stop_reason": None, "token_ids": None}
        choice: dict[str, Any] = {"index": 0, "text": text, **ending}
        if self.api == "chat":
            message = {"role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None}
            choice = {"index": 0, "message": {**message, "function_call": None, "reasoning": None}, **ending}
        self.sent = len(self.words)
        return msgspec.json.encode(
            {
                "id": self.id,
                "object": "chat.completion" if self.api == "chat" else "text_completion",
                "created": self.created,
                "model": self.model,
                "choices": [choice],
                "service_tier": None,
                "system_fingerprint": FINGERPRINT,
                "usage": msgspec.Raw(self._usage(details=True).encode()),
                "prompt_logprobs": None,
                "kv_transfer_params": None,
            }
        )

    def _usage(self, details: bool) -> str:
        total = self.prompt_tokens + self.sent
        counts = f'"prompt_tokens":{self.prompt_tokens},"total_tokens":{total},"completion_tokens":{self.sent}'
        if not details:
            return f'{{{counts},"completion_tokens_details":null}}' if self.api == "chat" else f"{{{counts}}}"
        cached = f'"prompt_tokens_details":{{"cached_tokens":{self.cached_tokens}}}'
        return f"{{{counts},{cached}}}"

    def _event(self, rest: str) -> bytes:
        return f"{self._head}{rest}}}\n\n".encode()


def error_event(status: int, message: str) -> bytes:
    """An error inside a stream that began as 200. (vLLM writes this one with spaces.)"""
    kind = {500: "InternalServerError", 503: "Service Unavailable"}.get(status, "BadRequestError")
    return (
        f'data: {{"error": {{"message": "{message}", "type": "{kind}", "param": null, "code": {status}}}}}\n\n'.encode()
    )


def error_document(status: int, message: str) -> bytes:
    """The body of an error response."""
    kinds = {429: "Too Many Requests", 500: "InternalServerError", 503: "Service Unavailable"}
    kind = kinds.get(status, "BadRequestError")
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": None, "code": status}})
