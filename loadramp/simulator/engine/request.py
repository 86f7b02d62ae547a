"""What the engine is asked and what it answers. Plain data; times are seconds on whatever clock the caller keeps."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

RefusalReason = Literal["queue", "in_flight", "too_long"]
FinishReason = Literal["length", "stop"]


class RefusedError(ValueError):
    """The engine does not take the request: its queue is full, its cap is reached, or it could never fit."""

    def __init__(self, reason: RefusalReason) -> None:
        super().__init__(reason)
        self.reason: RefusalReason = reason


@dataclass(slots=True)
class Request:
    """One request in the engine.

    ``computed`` tokens have their keys and values in the pool, ``emitted`` answer tokens exist; while the request
    decodes in lockstep with others both are as of the moment it joined them (see lanes.py).
    """

    id: Hashable
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[Hashable] = ()
    """Content hash of each full block, first those of the prompt, then (if known) those of prompt and answer: equal
    leading hashes are a shared prefix. Empty: nobody else's."""
    adapter: str | None = None
    finish: FinishReason = "length"
    """Why it will end after ``output_tokens``: the limit asked for, or the model's own stop."""
    computed: int = 0
    emitted: int = 0
    held: list[Hashable] = field(default_factory=list)
    """Hashes of its leading blocks that others may use too."""
    own_blocks: int = 0
    """Blocks nobody else can use."""
    cached_tokens: int | None = None
    """Prompt tokens found in the prefix cache when it was first admitted."""
    scheduled_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None
    preemptions: int = 0
    joined: int = 0
    """Tick at which it joined the decodes."""
    ends: int = -1
    """Tick that brings its last token; -1: not decoding."""
    pieces: list[tuple[float, int] | tuple[int, int, None]] = field(default_factory=list)
    """When its tokens came: ``(instant, tokens)``, or ``(first tick, past the last tick, None)``, one token a tick."""

    @property
    def target(self) -> int:
        """Tokens that must be computed before the next one can be emitted."""
        return self.prompt_tokens + self.emitted


@dataclass(slots=True)
class StepOutcome:
    """What one engine step did. Its tokens exist at ``end_s``, not before."""

    begin_s: float
    end_s: float
    tokens: Sequence[tuple[Hashable, int]]
    """(request id, tokens) of every request that got some; left empty by drivers that do not ask for it."""
    finished: Sequence[Request]
    preempted: Sequence[Hashable]
    prefill_tokens: int
    decodes: int

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s
