"""Plain data as YAML text: mappings, lists, strings, numbers. Pure; strings that need it are quoted as in JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_BARE = re.compile(r"[A-Za-z_/][\w ./()-]*")
_HIDDEN = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_RESERVED = re.compile(r"(?i)(y|n|yes|no|on|off|true|false|null|~)")


def to_yaml(value: Any, comment: str = "") -> str:
    """A document; ``comment`` stands above it, a ``#`` before each of its lines."""
    head = [f"# {line}".rstrip() for line in comment.splitlines()]
    return "\n".join([*head, *_lines(value)]) + "\n"


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _entry(f"{indent}{_scalar(str(key))}:", item, indent + "  ")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            first, *rest = list(_lines(item, indent + "  ")) or [f"{indent}  {{}}"]
            yield f"{indent}- {first[len(indent) + 2 :]}"
            yield from rest
    else:
        yield f"{indent}{_scalar(value)}"


def _entry(head: str, item: Any, indent: str) -> Iterator[str]:
    if isinstance(item, Mapping | list | tuple) and item:
        yield head
        yield from _lines(item, indent)
    else:
        yield f"{head} {_scalar(item)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and not _RESERVED.fullmatch(value) and value == value.strip()
        return value if bare else _HIDDEN.sub(lambda c: f"\\u{ord(c[0]):04x}", json.dumps(value, ensure_ascii=False))
    text = json.dumps(value)
    return text if not isinstance(value, float) or "." in text else text.replace("e", ".0e")  # 1e+16 would be a word
