"""One generation on its way through the service: what the wire asks of the engine, and whom the engine tells."""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from loadramp.simulator.engine.request import FinishReason, Request


@dataclass(slots=True)
class GenerationJob:
    """What is asked of the engine and who hears of it. Filled in by the service from ``number`` on."""

    prompt_tokens: int
    output_tokens: int
    on_tokens: Callable[[int, bool], None]
    """(new tokens, whether these are the last)."""
    on_error: Callable[[int, str], None]
    """(status, message): it ends here."""
    blocks: Sequence[Hashable] = ()
    adapter: str | None = None
    finish: FinishReason = "length"
    number: int = -1
    emitted: int = 0
    request: Request | None = None
    timer: asyncio.TimerHandle | None = None

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the prefix cache had."""
        return (self.request.cached_tokens or 0) if self.request is not None else 0
