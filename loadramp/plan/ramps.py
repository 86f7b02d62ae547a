"""Ramps: the rows so far to the next step, or why to stop. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RAMPS: dict[str, Callable[..., Any]] = {}
