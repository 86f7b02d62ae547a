"""Replies of real servers, byte for byte as they were read (tests/data/captures)."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data" / "captures"


def _captures() -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(DATA.glob("*.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            capture = json.loads(line)
            found[f"{path.name.removesuffix('.jsonl.gz')}/{capture['name']}"] = capture
    return found


CAPTURES = _captures()
"""File and name of a capture: its path, its reads and how it ended."""


def reads_of(capture: dict[str, Any]) -> list[tuple[bytes, float]]:
    """The reads of a capture: bytes, and the instant in seconds at which they came."""
    return [
        (data.encode() if kind == "text" else base64.b64decode(data), t_ns / 1e9)
        for t_ns, kind, data in capture["reads"]
    ]
