"""The engine: continuous batching over a paged KV pool, one step at a time, first come first served. Pure.

A step is two calls: ``begin`` decides what goes into it and how long it takes, ``finish`` makes its tokens exist. In
between the engine looks as it does to somebody who scrapes it in mid-step. Deterministic given the rng and the calls.
"""

from collections import deque
from collections.abc import Hashable, Sequence

import numpy as np

from loadramp.simulator.engine import kv_ownership
from loadramp.simulator.engine.blocks import KvPool
from loadramp.simulator.engine.decode_batch import Drafting, Lane, Lockstep
from loadramp.simulator.engine.request import FinishReason, RefusalReason, RefusedError, Request, StepOutcome
from loadramp.simulator.engine.stats import Stats
from loadramp.simulator.engine.step_time import Adapters, StepTimeModel
from loadramp.simulator.profiles import EngineProfile


class Engine:
    """One engine with its queue, batch and KV pool.

    Args:
        profile: costs and limits.
        rng: all chance comes from it.
        start_s: the instant on the caller's clock from which ``profile.speeds`` and stalls count.
    """

    def __init__(self, profile: EngineProfile, rng: np.random.Generator, start_s: float = 0.0) -> None:
        pace_rng, draft_rng = rng.spawn(2)
        self.profile = profile
        self.stats = Stats(profile.max_model_len)
        self.pool = KvPool(profile.kv_blocks)
        self.lane: Lane = (
            Drafting(profile.block_tokens, self.stats, profile.draft_tokens, profile.accept_ratio, draft_rng)
            if profile.draft_tokens
            else Lockstep(profile.block_tokens, self.stats)
        )
        self.waiting: deque[Request] = deque()
        self.prefilling: list[Request] = []
        """Admitted, prompt not computed yet, in order; behind all decodes in the running order."""
        self._requests: dict[Hashable, Request] = {}
        self._pace = StepTimeModel(profile, pace_rng, start_s)
        self._adapters = Adapters(profile.max_adapters)
        self._aborts: list[Hashable] = []
        self._preempted: list[Hashable] = []
        self._in_step = False
        self._begin_s = self._end_s = 0.0
        self._decodes = self._prefill_tokens = 0
        self._loads = 0

    @property
    def running(self) -> int:
        return len(self.lane) + len(self.prefilling)

    def slower(self, t_s: float) -> float:
        """How many times as long things take at ``t_s``, by the engine's regimes."""
        return self._pace.slower(t_s)

    def frontend_s(self, t_s: float) -> float:
        """From an arrival at ``t_s`` to the queue; a host that is told apart (``host_s``) is slow here, too."""
        return self.profile.frontend_s * (self._pace.slower(t_s) if self.profile.host_s else 1.0)

    def submit(
        self,
        request_id: Hashable,
        t_s: float,
        prompt_tokens: int,
        output_tokens: int,
        blocks: Sequence[Hashable] = (),
        adapter: str | None = None,
        finish: FinishReason = "length",
    ) -> Request:
        """Put a request into the queue.

        Args:
            request_id: unique among those in the engine.
            t_s: when it arrived.
            prompt_tokens: at least 1.
            output_tokens: at least 1; it ends with exactly that many.
            blocks: see Request.blocks.
            adapter: LoRA adapter it needs.
            finish: why it will end there, for the counters.

        Raises:
            RefusedError: queue full, cap reached, or longer than the model or the pool can hold.
        """
        p = self.profile
        if prompt_tokens < 1 or output_tokens < 1 or request_id in self._requests:
            raise ValueError(f"request {request_id!r}: needs a new id, a prompt and at least one token to answer")
        reason: RefusalReason | None = None
        if prompt_tokens + output_tokens > p.max_model_len:
            reason = "too_long"
        elif p.max_queue is not None and len(self.waiting) >= p.max_queue:
            reason = "queue"
        elif p.max_in_flight is not None and len(self._requests) >= p.max_in_flight:
            reason = "in_flight"
        if reason:
            self.stats.rejected += reason != "too_long"
            raise RefusedError(reason)
        known = blocks if p.prefix_cache else ()
        request = Request(request_id, t_s, prompt_tokens, output_tokens, known, adapter, finish)
        self._requests[request_id] = request
        self.waiting.append(request)
        return request

    def abort(self, request_id: Hashable) -> None:
        """Take a request out; within a step it leaves at its end. Unknown ids are ignored (it may just have ended)."""
        if request_id not in self._requests:
            return
        if self._in_step:
            self._aborts.append(request_id)
        else:
            self._abort(self._requests[request_id])

    def step(self, now_s: float) -> StepOutcome | None:
        """A whole step from ``now_s``; None: nothing to do."""
        return None if self.begin(now_s) is None else self.finish()

    def begin(self, now_s: float) -> float | None:
        """Fill a step that starts at ``now_s``. Returns its duration in seconds, None when there is nothing to do."""
        assert not self._in_step
        p = self.profile
        self._preempted = []
        self._prefill_tokens = self._decodes = self._loads = 0
        if p.chunked_prefill:
            self._reserve_decodes()
            budget = p.token_budget - len(self.lane) * self.lane.tokens_each
            budget -= self._continue_prefills(budget)
            if not self._preempted:
                self._admit(now_s, budget)
            self._decodes = len(self.lane)
        else:
            self._admit(now_s, p.token_budget)
            if not self._prefill_tokens:
                self._reserve_decodes()
                self._decodes = len(self.lane)
        if not self._decodes and not self._prefill_tokens:
            return None
        context = self.lane.context_tokens if self._decodes else 0
        duration_s = self._pace.duration_s(now_s, self._decodes, context, self._prefill_tokens)
        duration_s += self._loads * p.adapter_load_s
        self._in_step = True
        self._begin_s, self._end_s = now_s, now_s + duration_s
        return duration_s

    def finish(self, want_tokens: bool = True) -> StepOutcome:
        """End the step that was begun: its tokens exist now."""
        assert self._in_step
        self._in_step = False
        end_s, stats = self._end_s, self.stats
        tokens: list[tuple[Hashable, int]] = []
        finished: list[Request] = []
        if self._decodes:
            if want_tokens:
                tokens = self.lane.emitted()
            finished = self.lane.advance(end_s)
        if self.prefilling:
            self._finish_prefills(end_s, tokens, finished)
        for request in finished:
            self._done(request, end_s)
        stats.iteration_tokens.observe(self._decodes * self.lane.tokens_each + self._prefill_tokens)
        for key in self._aborts:
            if key in self._requests:
                self._abort(self._requests[key])
        self._aborts.clear()
        return StepOutcome(self._begin_s, end_s, tokens, finished, self._preempted, self._prefill_tokens, self._decodes)

    def gauges(self) -> dict[str, float]:
        """What a scrape would show now, gauges and counters, in canonical names."""
        p = self.profile
        return {
            "running": self.running,
            "waiting": len(self.waiting),
            "kv_used_ratio": self.pool.used_ratio,
            "kv_blocks": p.kv_blocks,
            "block_size": p.block_tokens,
            **self.stats.canonical(),
        }

    def _reserve_decodes(self) -> None:
        """Blocks for one tick of all decodes; while the pool lacks them, the request admitted last is pushed out."""
        if not self.lane.requests:
            return
        needed = self.lane.needed_blocks()
        while needed > self.pool.available:
            self._preempt(self.prefilling[-1] if self.prefilling else next(reversed(self.lane.requests.values())))
            needed = self.lane.needed_blocks()
        if needed:
            self.pool.grow(needed)
        self.lane.grow()

    def _continue_prefills(self, budget: int) -> int:
        """Next chunk of the prompt that did not fit into earlier steps. Returns the tokens taken from ``budget``."""
        taken = 0
        for request in list(self.prefilling):
            chunk = min(request.target - request.computed, budget - taken)
            blocks = self._blocks_of(request.computed + chunk) - len(request.held) - request.own_blocks
            if blocks > self.pool.available:
                self._preempt(request)
                break
            self._compute(request, chunk, blocks)
            taken += chunk
        return taken

    def _admit(self, now_s: float, budget: int) -> None:
        """Move requests from the queue into the batch while seats, budget and blocks last."""
        p = self.profile
        while self.waiting and budget > 0 and self.running < p.max_num_seqs:
            request = self.waiting[0]
            shared, idle, private = (
                kv_ownership.matched(self.pool, request, p.block_tokens) if p.prefix_cache else (0, 0, 0)
            )
            cached = (shared + private) * p.block_tokens
            chunk = request.target - cached
            if chunk > budget:
                if p.chunked_prefill:
                    chunk = budget
                elif self._prefill_tokens:
                    return  # whole prompts only: it goes into the next step, alone if it is longer than the budget
            blocks = self._blocks_of(cached + chunk) - shared - private
            if blocks + idle + private + self._spare() > self.pool.available:
                return
            self.waiting.popleft()
            self._seat(request, now_s, shared, private)
            self._compute(request, chunk, blocks)
            self.prefilling.append(request)
            budget -= chunk

    def _spare(self) -> int:
        """Blocks that admission leaves free: with whole prompts going first, one per cent, or they would push each
        other out for ever."""
        return 0 if self.profile.chunked_prefill or not self.running else self.profile.kv_blocks // 100

    def _seat(self, request: Request, now_s: float, shared: int, private: int) -> None:
        """Admit ``request`` with what the prefix cache has of it."""
        kv_ownership.take(self.pool, request, shared, private, self.profile.block_tokens)
        if request.scheduled_s is None:
            request.scheduled_s = now_s
            request.cached_tokens = request.computed
            self.stats.prefix_queries += request.prompt_tokens if self.profile.prefix_cache else 0
            self.stats.prefix_hits += request.computed
            self.stats.queue_s.observe(max(0.0, now_s - request.arrival_s))
        if request.adapter is not None:
            self._loads += self._adapters.use(request.adapter)

    def _compute(self, request: Request, chunk: int, blocks: int) -> None:
        """Prefill ``chunk`` tokens of ``request`` in this step, taking ``blocks`` for them."""
        kv_ownership.extend(self.pool, request, chunk, blocks, self.profile.block_tokens)
        self._prefill_tokens += chunk

    def _preempt(self, request: Request) -> None:
        """Push ``request`` back to the head of the queue; all it had computed is to be computed again."""
        if request.id in self.lane.requests:
            self.lane.remove(request)
        else:
            self.prefilling.remove(request)
        kv_ownership.preempt(self.pool, request, self.profile.block_tokens, self.profile.prefix_cache)
        request.preemptions += 1
        self.stats.preemptions += 1
        self._preempted.append(request.id)
        self.waiting.appendleft(request)

    def _finish_prefills(self, end_s: float, tokens: list[tuple[Hashable, int]], finished: list[Request]) -> None:
        """Those whose prompt is computed emit a token and join the decodes."""
        still = []
        for request in self.prefilling:
            if request.computed < request.target:
                still.append(request)
                continue
            if request.first_s is None:
                request.first_s = end_s
                self.stats.prompt_tokens += request.prompt_tokens
                self.stats.ttft_s.observe(end_s - request.arrival_s)
            else:
                assert request.last_s is not None
                self.stats.itl_s.observe(end_s - request.last_s)
            request.last_s = end_s
            request.emitted += 1
            self.stats.output_tokens += 1
            request.pieces.append((end_s, 1))
            tokens.append((request.id, 1))
            if request.emitted == request.output_tokens:
                finished.append(request)
            else:
                self.lane.add(request)
        self.prefilling = still

    def _done(self, request: Request, end_s: float) -> None:
        kv_ownership.retire(self.pool, request, self.profile.block_tokens)
        del self._requests[request.id]
        self.stats.ended(request, end_s)

    def _abort(self, request: Request) -> None:
        if request.id in self.lane.requests:
            self.lane.remove(request)
        elif request in self.prefilling:
            self.prefilling.remove(request)
        else:
            self.waiting.remove(request)
        kv_ownership.abandon(self.pool, request)
        del self._requests[request.id]
        self.stats.aborted += 1

    def _blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.profile.block_tokens)
