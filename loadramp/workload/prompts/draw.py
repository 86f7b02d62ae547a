"""What a prompt source is given: which requests to choose prompts for, and the chance it may use. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Share = Literal["pass", "run", "always"]
"""How long equal content stays equal text: within one pass through the file, within the run, or between runs too."""


@dataclass(slots=True, frozen=True)
class Draw:
    """One block of requests to choose prompts for.

    ``numbers``: their numbers within the run, ascending, shape (n,). ``rows``: the numbers by which a source goes
    through its file; they begin anew with each pass of ``anew`` (a step that replays the file). ``lengths`` and
    ``choices`` give the same in every run of a scenario, ``texts`` depends on ``salt``, which is the run's own.
    """

    numbers: Ints
    lengths: np.random.Generator
    texts: np.random.Generator
    choices: np.random.Generator
    rows: Ints
    anew: int = 0
    salt: int = 0
    corpora: Mapping[str, Any] = field(default_factory=dict)
    where: str = "prompts"
    """The table that is drawn from, as ``corpora`` calls it."""

    @property
    def n(self) -> int:
        return len(self.numbers)

    @property
    def corpus(self) -> Any:
        """What the file of this table held."""
        return self.corpora[self.where]

    def part(self, keep: Ints, where: str) -> Draw:
        """The requests at ``keep``, for another table."""
        return replace(self, numbers=self.numbers[keep], rows=self.rows[keep], where=where)

    def seeds(self) -> list[int]:
        """One fresh seed a request: text that nobody else has."""
        fresh: list[int] = self.texts.integers(0, 2**63, self.n).tolist()
        return fresh

    def base(self, share: Share, again: int = 0) -> int:
        """A seed below 2**128 whose lower 64 bits are free for an id: the same id gives the same text while shared.

        Args:
            share: how long.
            again: which pass through the file.
        """
        key = {"pass": (self.salt, self.anew, again), "run": (self.salt,), "always": ()}[share]
        digest = hashlib.blake2b(repr((self.where, *key)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") << 64
