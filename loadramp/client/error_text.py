"""Errors in words: any shape of error object, body or exception becomes one short line."""

import asyncio
import json
import os
import re
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from loadramp.client.stream.events import Event, final_response, reason_in
from loadramp.client.stream.sse import tells_failure
from loadramp.client.stream.vendor_quirks import MOST_DEPTH
from loadramp.record.types import ErrorKind

MOST_ERROR_BYTES = 1 << 20
_WORDLESS = "error without a message"
_MESSAGE_KEYS = (
    "message", "msg", "detail", "error", "errors", "title", "error_message", "error_msg", "errorMessage", "errorMsg",
    "errmsg", "err", "status_msg", "fault", "faultstring", "exception",
)  # fmt: skip
_CODE_KEYS = ("type", "error_type", "code", "param", "error_code", "errorCode", "errcode", "statusCode", "status_code")
_STATUS_CODES = {str(code) for code in (*map(int, HTTPStatus), 499, 529) if code >= 400}
_MARKS = re.compile(r"\(([^()]*)\)")
_SPELLED = re.compile(r"\b(?:error code|status code|status|http)[ :=]*([45]\d\d)\b", re.IGNORECASE)
_MOST_ERRORS = 50
"""Of a list, that are put into words."""
_KINDS: dict[str, ErrorKind] = {
    "ConnectError": "connect",
    "ConnectTimeout": "connect",
    "ProxyError": "connect",
    "ReadError": "reset",
    "WriteError": "reset",
    "RemoteProtocolError": "truncated",
    "DecodingError": "truncated",
}


def error_of(event: Event, name: bytes = b"") -> str | None:
    """The error that ``event`` reports, in words, or None.

    Args:
        event: the data.
        name: the event's SSE name; an event called ``error`` is one whatever its data.
    """
    reported = _reported(event, name)
    return _WORDLESS if reported == "" else reported


def _reported(event: Event, name: bytes) -> str | None:
    if event.error:
        return describe_error(event.error)
    for choice in event.choices or ():
        if choice.error:
            return describe_error(choice.error)
        if (reason := reason_in(choice)) and tells_failure(reason):
            return f"the server ended the answer with finish_reason {reason!r}"
    return None if event.choices else _failure_in_data(event, name)


def _failure_in_data(event: Event, name: bytes) -> str | None:
    """The failure in the data of an event without choices, or in its name."""
    reply = final_response(event)
    if reply is not None and reply.status in ("failed", "cancelled"):
        return describe_error(reply.error) if reply.error else f"the response ended as {reply.status}"
    message = event.detail or event.message
    if event.detail or names_failure(name) or any(map(_marks_failure, (event.type, event.object))):
        return describe_error({"message": message, "type": event.type, "code": event.code} if message else _WORDLESS)
    return None


def names_failure(name: bytes) -> bool:
    """An SSE event of this name is a failure whatever its data."""
    return tells_failure(name.decode("latin-1"))


def _marks_failure(value: Any) -> bool:
    return isinstance(value, str) and tells_failure(value)


def describe_error(error: Any, limit: int = 400, depth: int = MOST_DEPTH) -> str:
    """An error object in one line: message, then type and code. Of validation errors the place and message, not the
    input they repeat, which may be the whole prompt."""
    if depth == 0:
        return _WORDLESS
    if isinstance(error, list):
        return "; ".join(filter(None, (describe_error(part, limit, depth - 1) for part in error[:_MOST_ERRORS])))[
            :limit
        ]
    if not isinstance(error, dict):
        return " ".join(_last_line_of_traceback(str(error)).split())[:limit]
    for key in _MESSAGE_KEYS:
        if error.get(key):
            message = describe_error(error[key], limit, depth - 1)
            break
    else:
        message = _WORDLESS
    place = error.get("loc")
    if isinstance(place, list | tuple):
        message = f"{'.'.join(map(str, place))}: {message}"
    marks = [str(error[key]) for key in _CODE_KEYS if isinstance(error.get(key), str | int)]
    marks = [mark for mark in marks if mark and mark not in {"error", message}]
    suffix = f" ({', '.join(marks)})"[: limit // 2] if marks else ""  # type and code outlive a long message
    return " ".join(f"{message[: limit - len(suffix)]}{suffix}".split())


def status_named(words: str) -> int | None:
    """The HTTP status that the words of an error name: one of the marks in parentheses behind the message (the first
    one: it is that of the server that began it), or spelled out as ``error code: 400``."""
    marks = [mark.strip() for group in _MARKS.findall(words) for mark in group.split(",")]
    codes = [int(mark) for mark in marks if mark in _STATUS_CODES]
    spelled = _SPELLED.search(words)
    return codes[0] if codes else int(spelled[1]) if spelled else None


def _last_line_of_traceback(text: str) -> str:
    """Of a Python traceback its last line, which says what went wrong; other text as it is."""
    lines = text.strip().splitlines()
    traced = any(line.startswith("Traceback (most recent call last)") for line in lines)
    return lines[-1] if traced else text


def describe_error_body(body: bytes) -> str:
    """What the body of an error reply says, in one line; JSON of any shape, an event, HTML or plain text."""
    text = body[:MOST_ERROR_BYTES].removeprefix(b"\xef\xbb\xbf").strip()
    if text.startswith(b"data:"):
        text = text[5:].split(b"\n")[0].strip()
    try:
        raw = json.loads(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        plain = _last_line_of_traceback(text.decode("utf-8", "replace"))[:2000]
        return " ".join(plain.split())[:200]
    if isinstance(raw, dict):
        return describe_error(raw.get("error") or raw.get("detail") or raw)
    return describe_error(raw)


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """``error``, what caused it, and so on, up to the cancellation by which a library's time-out works inside; of a
    group of exceptions the first."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, asyncio.CancelledError):
        yield cause
        inner = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else None
        cause = inner or cause.__cause__ or cause.__context__


def classify_error(error: BaseException, connect_timeout_s: float | None = None) -> tuple[ErrorKind, str]:
    """The kind and words of a library's transport error, from the first of its causes that says more than it.

    ``connect_timeout_s``: what a time-out while connecting is worded with.
    """
    kind: ErrorKind = "client"
    message = str(error)
    for cause in causes_of(error):
        if isinstance(cause, ssl.SSLError):
            return "tls", describe_tls_error(cause)
        kind = _KINDS.get(type(cause).__name__, kind)
        if type(cause).__name__ == "ConnectTimeout" and connect_timeout_s is not None:
            return kind, f"no connection within {connect_timeout_s:g} s"
        message = (describe_os_error(cause) if isinstance(cause, OSError) and cause.errno else str(cause)) or message
    if kind == "truncated" and "without sending a response" in message:
        kind = "reset"
    return kind, f"{type(error).__name__}: {message or 'no answer in time'}"


def describe_os_error(error: OSError) -> str:
    """``Connection reset by peer`` rather than ``[Errno 104] ...``."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else (error.strerror or str(error))


def describe_tls_error(error: ssl.SSLError) -> str:
    """Why TLS failed, with the name of the certificate error where it is one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not trusted: {error.verify_message} (name a CA file, or use --insecure)"
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version number" in reason or "record layer failure" in reason or "packet length" in reason:
        return f"the server does not speak TLS on this port: write http:// ({reason})"
    return f"TLS handshake failed: {reason}"
