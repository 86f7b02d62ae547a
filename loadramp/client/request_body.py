"""The body of a request to chat, completions or responses. Pure: what is asked, never how it is sent."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from loadramp.client.stream.vendor_quirks import text_of
from loadramp.record.types import Arrival, Prompt
from loadramp.registry import ScenarioError
from loadramp.scenario.scenario import Target
from loadramp.units import plural
from loadramp.workload import placeholders
from loadramp.workload.prompts.content import Content

OPTIONAL_FIELDS: frozenset[str] = frozenset({"include_usage", "continuous_usage_stats", "ignore_eos", "min_tokens"})
"""Request fields that help to measure or to hold the length, and that a strict server may refuse (``preflight``)."""

_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_CONSTRAINTS = (
    "grammar", "json_schema", "structured_outputs", "regex", "ebnf", "structural_tag",
    "guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding",
)  # fmt: skip
"""Fields of the engines that say what an answer must look like, beside ``response_format`` and tools."""
_SHAPING = frozenset({*_CONSTRAINTS, "tools", "functions", "text", "response_format", "nvext"})

_encoder = msgspec.json.Encoder()


def request_body(
    target: Target,
    model: str,
    prompt: Content,
    output_tokens: int | None,
    *,
    force_length: bool = True,
    extra: Mapping[str, Any] | None = None,
    fields: frozenset[str] = OPTIONAL_FIELDS,
) -> bytes:
    """The JSON body of one request.

    Args:
        target: gives the API, whether to stream, and ``body``, whose keys win over what is built here.
        prompt: text, messages in the chat format, or (completions) token ids.
        output_tokens: how many tokens to ask for; None leaves the length to the server.
        force_length: ask for exactly that many, not at most; never of an answer whose form is given (``shaped``).
        extra: further fields of this request alone; they win over ``target.body``.
        fields: the optional fields this server takes; ``max_completion_tokens`` among them replaces ``max_tokens``.

    Raises:
        ScenarioError: ``n`` above 1 (one latency belongs to one answer), ``stream`` given as a body field, or text
            that UTF-8 cannot carry.
    """
    set_fields = {**target.body, **(extra or {})}
    _refuse(set_fields)
    body: dict[str, Any] = {"model": model, **_asked(target.api, prompt), "stream": target.stream}
    limit = _limit_name(target.api, set_fields, fields)
    force_length = force_length and not shaped(set_fields)
    if output_tokens is not None:
        body[limit] = output_tokens
        if force_length and "ignore_eos" in fields:
            body["ignore_eos"] = True
        if force_length and "min_tokens" in fields:
            body["min_tokens"] = min(output_tokens, set_fields.get(limit, output_tokens))
    if target.stream and target.api != "responses" and "include_usage" in fields:
        options = {"include_usage": True}
        if "continuous_usage_stats" in fields:
            options["continuous_usage_stats"] = True
        body["stream_options"] = options
    try:
        return _encoder.encode(body | set_fields)
    except UnicodeEncodeError as error:
        raise ScenarioError(f"a prompt or [target] body is not text: {error}") from None


@dataclass(slots=True)
class RequestBuilder:
    """Makes what differs from request to request: the body, and headers that hold placeholders."""

    target: Target
    model: str
    """Requested where a prompt names no model of its own."""
    fields: frozenset[str]
    templates: Mapping[str, str]
    """``Endpoint.templates``."""
    _marked: bool = field(init=False)

    def __post_init__(self) -> None:
        self._marked = placeholders.used_in(self.target.body)

    def body(self, arrival: Arrival, content: Content) -> bytes:
        """The JSON body of ``arrival``'s request. Raises ScenarioError as ``request_body`` does."""
        prompt, target = arrival.prompt, self.target
        if self._marked:
            target = replace(target, body=placeholders.filled(target.body, placeholders.numbers_of(arrival)))
        return request_body(
            target,
            prompt.model or self.model,
            content,
            prompt.output_tokens,
            force_length=target.force_length,
            extra=prompt.body,
            fields=self.fields,
        )

    def headers(self, arrival: Arrival) -> dict[str, str]:
        """The headers that hold placeholders, filled in."""
        numbers = placeholders.numbers_of(arrival) if self.templates else {}
        return {name: placeholders.filled(value, numbers) for name, value in self.templates.items()}


def most_tokens(target: Target, prompt: Prompt) -> int | None:
    """How many output tokens a request asks for at most; None when it sets no limit. Fields of a body win over
    ``prompt``, as in ``request_body``; of several names a server may take any."""
    fields = {**target.body, **(prompt.body or {})}
    given = [fields[name] for name in _LIMITS if name in fields] or [prompt.output_tokens]
    limits = [limit for limit in given if type(limit) is int]
    return max(limits) if len(limits) == len(given) else None


def shaped(body: Mapping[str, Any]) -> bool:
    """The fields of ``body`` give the answer a form: a format, a grammar, or tools that it may call.

    Such an answer ends where its form is complete. Forced to go on, an engine makes white space, breaks the form,
    refuses the request or hangs.
    """
    if _SHAPING.isdisjoint(body):  # nearly always
        return False
    if body.get("tools") and body.get("tool_choice") != "none":
        return True
    if body.get("functions") and body.get("function_call") != "none":
        return True
    text = body.get("text")  # the responses API
    formats = (body.get("response_format"), text.get("format") if isinstance(text, Mapping) else None)
    if any(
        bool(format_) and not (isinstance(format_, Mapping) and format_.get("type") == "text") for format_ in formats
    ):
        return True
    nested = body.get("nvext")
    holders = [body, nested] if isinstance(nested, Mapping) else [body]
    return any(holder.get(name) for holder in holders for name in _CONSTRAINTS)


def unforced(target: Target, prompt: Prompt) -> bool:
    """The length of this request would be forced, were it not for the form of its answer."""
    forced = target.force_length and prompt.output_tokens is not None
    return forced and shaped({**target.body, **(prompt.body or {})})


def _refuse(body: Mapping[str, Any]) -> None:
    if isinstance(body.get("n"), int) and body["n"] > 1:
        raise ScenarioError(
            f"[target] body n: {plural(body['n'], 'answer')} to one request are not measured; leave it out or ask "
            f"for n = 1"
        )
    if "stream" in body:
        raise ScenarioError("[target] body stream: not a body field here; set [target] stream = true or false")


def _limit_name(api: str, body: Mapping[str, Any], fields: frozenset[str]) -> str:
    if api == "responses":
        return "max_output_tokens"
    modern = "max_completion_tokens"
    return modern if modern in fields or modern in body else "max_tokens"


def _asked(api: str, prompt: Content) -> dict[str, Any]:
    if api == "completions":
        if isinstance(prompt, str) or all(isinstance(token, int) for token in prompt):
            return {"prompt": prompt}  # text, or token ids
        messages: list[Any] = list(prompt)
        return {"prompt": "\n".join(text_of(message.get("content")) for message in messages)}
    if api == "responses":
        return {"input": prompt if isinstance(prompt, str) else list(prompt)}
    return {"messages": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)}
