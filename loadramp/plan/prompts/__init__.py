"""Prompt sources."""

from collections.abc import Callable
from typing import Any

PROMPTS: dict[str, Callable[..., Any]] = {}
