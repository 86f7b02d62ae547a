"""``{session}``, ``{turn}`` and ``{request}`` in ``[target] headers`` and ``body``: numbers of the request.

Pure. Only these names are replaced; every other brace stays as it is, so that patterns, grammars and JSON in a body are
sent as written. What looks like a placeholder and is none is an error before anything is sent.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from loadramp.record.types import Arrival
from loadramp.registry import ScenarioError

NAMES = ("session", "turn", "request")
NO_SESSION = {"session": "preflight", "turn": "0", "request": "0"}
"""For requests before the run and control calls, such as the list of models, which belong to no session of its own."""
FIRST_TURN = 1 << 40
"""Later turns of a session count their ``seq`` on from its first request by so much each (``client.sender.TURN``)."""
_ANY = re.compile(r"(?<!\{)\{([A-Za-z_][A-Za-z0-9_]*)\}(?!\})")
_KNOWN = re.compile(r"(?<!\{)\{(session|turn|request)\}(?!\})")
_PLAIN = re.compile(r"[\w.:/@=,+ -]*")
"""What stands around the placeholders of an identifier; a pattern or a grammar has other characters."""


def numbers_of(arrival: Arrival) -> dict[str, str]:
    """The values for one request.

    ``session``: the session's number, the same for all its turns and for every arm of a canary; a request outside
    sessions is one of its own. ``turn``: from 0. ``request``: the record's ``seq``, another for each request.
    """
    prompt = arrival.prompt
    session = arrival.seq % FIRST_TURN if prompt.session is None else prompt.session
    return {"session": str(session), "turn": str(prompt.turn), "request": str(arrival.seq)}


def used_in(value: Any) -> bool:
    """Whether ``value``, or a text anywhere within it, has a placeholder."""
    if isinstance(value, str):
        return _KNOWN.search(value) is not None
    if isinstance(value, Mapping):
        return any(map(used_in, value.values()))
    return isinstance(value, list | tuple) and any(map(used_in, value))


def filled(value: Any, numbers: Mapping[str, str]) -> Any:
    """``value`` with the placeholders in its texts replaced; names of fields stay."""
    if isinstance(value, str):
        return _KNOWN.sub(lambda match: numbers[match[1]], value)
    if isinstance(value, Mapping):
        return {key: filled(item, numbers) for key, item in value.items()}
    return [filled(item, numbers) for item in value] if isinstance(value, list | tuple) else value


def literals(text: str) -> list[str]:
    """What stands around the placeholders of a text."""
    return [part for part in _KNOWN.split(text) if part not in NAMES]


def check(headers: Mapping[str, str], body: Mapping[str, Any]) -> None:
    """Refuse placeholders that there are not.

    Raises:
        ScenarioError: one is unknown; names the key.
    """
    for name, value in headers.items():
        unknown = next((word for word in _ANY.findall(value) if word not in NAMES), None)
        if unknown:
            raise ScenarioError(f"[target] headers {name}: {_words(unknown)}")
    for key, value in body.items():
        _check_body(f"[target] body {key}", value)


def _check_body(where: str, value: Any) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _check_body(f"{where}.{key}", item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_body(where, item)
    elif isinstance(value, str):
        identifier = _PLAIN.fullmatch(_ANY.sub("", value)) is not None
        for word in _ANY.findall(value):
            if word not in NAMES and (identifier or _meant(word)):
                raise ScenarioError(f"{where}: {_words(word)}")


def _meant(word: str) -> bool:
    """A name that is nearly one of NAMES."""
    small = word.lower()
    return bool(get_close_matches(small, NAMES, cutoff=0.85)) or small.startswith(tuple(f"{name}_" for name in NAMES))


def _words(word: str) -> str:
    there = ", ".join(f"{{{name}}}" for name in NAMES)
    return f"no placeholder {{{word}}}; there are {there} (double braces are left alone)"
