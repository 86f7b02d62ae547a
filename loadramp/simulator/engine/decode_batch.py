"""The decoding requests of an engine: each gets a token (or, with a draft, a few) in every decode step, a *tick*.

``Lockstep`` never touches a request between joining and leaving: tokens are one a tick, so instants, context and the
blocks it needs follow from the tick numbers, and a tick costs the same for one request as for a thousand. ``Drafting``
has to look at each, because every request accepts another number of proposed tokens.
"""

from collections.abc import Hashable

import numpy as np

from loadramp.simulator.engine.request import Request
from loadramp.simulator.engine.stats import Stats


class Lockstep:
    """Requests that get exactly one token a tick."""

    tokens_each = 1

    def __init__(self, block_tokens: int, stats: Stats) -> None:
        self.requests: dict[Hashable, Request] = {}
        """In the order in which they were admitted."""
        self.context_tokens = 0
        self.tick_end_s: list[float] = []
        self._block_tokens = block_tokens
        self._stats = stats
        self._phases = [0] * block_tokens
        """How many requests need a new block at ticks of each remainder."""
        self._ends: dict[int, list[Request]] = {}
        self._fresh: dict[Hashable, float] = {}
        """Requests that joined since the last tick -> when their latest token came."""

    def __len__(self) -> int:
        return len(self.requests)

    def needed_blocks(self) -> int:
        """Blocks that the coming tick takes."""
        return self._phases[-len(self.tick_end_s) % self._block_tokens]

    def grow(self) -> None:
        """The needed blocks were granted: nothing to note, they follow from the tick number."""

    def add(self, request: Request) -> None:
        """``request`` has its prompt computed, its latest token at ``last_s``, and more to come."""
        tick = len(self.tick_end_s)
        request.joined = tick
        request.ends = tick + request.output_tokens - request.emitted - 1
        self._ends.setdefault(request.ends, []).append(request)
        self._phases[(request.computed - tick) % self._block_tokens] += 1
        self.context_tokens += request.computed
        self.requests[request.id] = request
        assert request.last_s is not None
        self._fresh[request.id] = request.last_s

    def remove(self, request: Request) -> None:
        """Take ``request`` out and bring its own numbers up to date."""
        tick, joined = len(self.tick_end_s), request.joined
        self._phases[(request.computed - joined) % self._block_tokens] -= 1
        if tick > joined:
            request.pieces.append((joined, tick, None))
            request.computed += tick - joined
            request.emitted += tick - joined
            request.last_s = self.tick_end_s[-1]
        request.own_blocks = -(-request.computed // self._block_tokens) - len(request.held)
        request.ends = -1
        self.context_tokens -= request.computed
        del self.requests[request.id]
        self._fresh.pop(request.id, None)

    def advance(self, end_s: float) -> list[Request]:
        """One tick, over at ``end_s``: the requests it finished, taken out."""
        n = len(self.requests)
        if n > len(self._fresh):
            self._stats.itl_s.observe(end_s - self.tick_end_s[-1], n - len(self._fresh))
        for last_s in self._fresh.values():
            self._stats.itl_s.observe(end_s - last_s)
        self._fresh.clear()
        tick = len(self.tick_end_s)
        self.tick_end_s.append(end_s)
        self.context_tokens += n
        self._stats.output_tokens += n
        done = []
        for request in self._ends.pop(tick, ()):
            if request.ends == tick:  # else it was preempted or aborted since
                self.remove(request)
                done.append(request)
        return done

    def emitted(self) -> list[tuple[Hashable, int]]:
        """(id, tokens) that the coming tick brings."""
        return [(key, 1) for key in self.requests]


class Drafting:
    """Requests that get one token a tick and as many proposed ones as are accepted in a row."""

    def __init__(
        self, block_tokens: int, stats: Stats, draft_tokens: int, accept_ratio: float, rng: np.random.Generator
    ) -> None:
        self.requests: dict[Hashable, Request] = {}
        self.context_tokens = 0
        self.tick_end_s: list[float] = []
        self.tokens_each = 1 + draft_tokens
        self._block_tokens = block_tokens
        self._stats = stats
        self._draft_tokens = draft_tokens
        self._accept_ratio = accept_ratio
        self._rng = rng
        self._accepted: list[int] = []

    def __len__(self) -> int:
        return len(self.requests)

    def _wanted(self, request: Request) -> int:
        """Blocks ``request`` lacks for the coming tick, should all proposals be accepted."""
        most = request.computed + min(self.tokens_each, request.output_tokens - request.emitted)
        return max(0, -(-most // self._block_tokens) - len(request.held) - request.own_blocks)

    def needed_blocks(self) -> int:
        """Blocks that the coming tick takes."""
        return sum(map(self._wanted, self.requests.values()))

    def grow(self) -> None:
        """The needed blocks were granted."""
        for request in self.requests.values():
            request.own_blocks += self._wanted(request)

    def add(self, request: Request) -> None:
        """``request`` has its prompt computed, its latest token at ``last_s``, and more to come."""
        self.context_tokens += request.computed
        self.requests[request.id] = request

    def remove(self, request: Request) -> None:
        """Take ``request`` out."""
        self.context_tokens -= request.computed
        del self.requests[request.id]

    def emitted(self) -> list[tuple[Hashable, int]]:
        """(id, tokens) that the coming tick brings: draws how many proposals are accepted."""
        self._accepted = self._draw()
        return list(zip(self.requests, self._accepted, strict=True))

    def advance(self, end_s: float) -> list[Request]:
        """One tick, over at ``end_s``: the requests it finished, taken out."""
        brought = self._accepted or self._draw()
        self._accepted = []
        stats, done = self._stats, []
        self.tick_end_s.append(end_s)
        for request, tokens in zip(list(self.requests.values()), brought, strict=True):
            assert request.last_s is not None
            stats.itl_s.observe(end_s - request.last_s)
            request.pieces.append((end_s, tokens))
            request.computed += tokens
            request.emitted += tokens
            request.last_s = end_s
            self.context_tokens += tokens
            if request.emitted == request.output_tokens:
                self.remove(request)
                done.append(request)
        n = len(brought)
        stats.output_tokens += sum(brought)
        stats.drafts += n
        stats.draft_tokens += n * self._draft_tokens
        stats.accepted_tokens += sum(brought) - n
        return done

    def _draw(self) -> list[int]:
        """Tokens of each request in the coming tick: 1 plus accepted proposals, no more than it lacks."""
        n = len(self.requests)
        accepted = self._rng.random((n, self._draft_tokens)) < self._accept_ratio
        in_a_row = np.cumprod(accepted, axis=1).sum(axis=1) + 1
        lacking = [r.output_tokens - r.emitted for r in self.requests.values()]
        return [min(int(k), most) for k, most in zip(in_a_row, lacking, strict=True)]


Lane = Lockstep | Drafting
