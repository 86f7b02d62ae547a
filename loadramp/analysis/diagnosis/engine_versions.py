"""Versions of vLLM, and the flags that came with them. Pure."""

import re

from loadramp.registry import ScenarioError

Version = tuple[int, int]

SINCE: dict[str, Version] = {"--max-num-queued-reqs": (0, 29)}
"""Flags that not every version in use has, and the first that has them."""


def version_of(text: str) -> Version | None:
    """Major and minor of a version as an engine tells it ("0.29.1", "v0.30.0rc2+cu128"); None for builds without one
    ("0.1.dev1+g1234").

    Raises:
        ScenarioError: no version.
    """
    match = re.match(r"v?(\d+)\.(\d+)(.*)", text.strip())
    if match is None:
        raise ScenarioError(f"engine version {text!r}: expected one like 0.29.1")
    if "dev" in match[3] and (int(match[1]), int(match[2])) <= (0, 1):
        return None
    return int(match[1]), int(match[2])


def has_flag(name: str, version: Version | None) -> bool:
    """Whether that version has the flag; a version that is not known is taken for a new one."""
    return version is None or version >= SINCE.get(name, (0, 0))


def since(name: str, version: Version | None) -> str:
    """From which version on there is the flag, in words."""
    first = ".".join(str(part) for part in SINCE[name])
    if version is None:
        return f"vLLM {first} or newer"
    return f"vLLM {version[0]}.{version[1]} has no such flag, {first} is the first that has"
