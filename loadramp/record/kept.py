"""The last result of a command, kept for the user in a file of the cache."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Kept(Generic[T]):
    """One file; only the last result is in it."""

    name: str
    kind: type[T]

    @property
    def path(self) -> Path:
        """Raises RuntimeError where nobody has a home."""
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loadramp" / self.name

    def keep(self, result: T) -> None:
        """Put ``result`` in place of what was kept before. Raises OSError and RuntimeError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(msgspec.to_builtins(result), indent=1) + "\n")

    def read(self) -> T | None:
        """What was kept; None where there is nothing, or nothing that can be read."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=self.kind)
        except (OSError, ValueError, RuntimeError, msgspec.MsgspecError):  # which older versions make no ValueError
            return None
