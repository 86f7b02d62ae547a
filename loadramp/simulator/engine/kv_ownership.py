"""What a request holds of the KV pool, from its admission to its end, and what of it is remembered afterwards. Pure."""

from collections.abc import Hashable

from loadramp.simulator.engine.blocks import KvPool
from loadramp.simulator.engine.request import Request


def matched(pool: KvPool, request: Request, block_tokens: int) -> tuple[int, int, int]:
    """Leading blocks of a waiting request that the prefix cache has: shareable ones, how many of these lie idle, and
    its own from before it was pushed out. One token at least is left to compute."""
    limit = (request.target - 1) // block_tokens
    shareable = _shareable(request, block_tokens)
    shared, idle = pool.match(request.blocks, min(limit, shareable)) if shareable else (0, 0)
    private = 0
    if request.preemptions and shared == shareable:
        private = min(pool.resting(_private_name(request)), limit - shared)
    return shared, idle, private


def take(pool: KvPool, request: Request, shared: int, private: int, block_tokens: int) -> None:
    """Hold what was found; the request has that much computed."""
    for key in request.blocks[:shared]:
        pool.hold(key)
    request.held = list(request.blocks[:shared])
    if private:
        pool.reclaim(_private_name(request), private)
    elif request.preemptions:
        pool.forget(_private_name(request))
    request.own_blocks = private
    request.computed = (shared + private) * block_tokens


def extend(pool: KvPool, request: Request, tokens: int, blocks: int, block_tokens: int) -> None:
    """``tokens`` more of the prompt are computed into ``blocks`` new blocks; full ones of known content are shared."""
    pool.grow(blocks)
    request.own_blocks += blocks
    full = request.computed // block_tokens
    request.computed += tokens
    now_full = min(request.computed // block_tokens, _shareable(request, block_tokens))
    for key in request.blocks[full:now_full]:
        if pool.share(key):
            request.held.append(key)
            request.own_blocks -= 1


def preempt(pool: KvPool, request: Request, block_tokens: int, remember: bool) -> None:
    """It is pushed out and will come back: blocks free, content remembered, nothing computed."""
    beyond = max(0, request.computed // block_tokens - _shareable(request, block_tokens)) if remember else 0
    _release(pool, request, beyond)
    request.computed = 0


def retire(pool: KvPool, request: Request, block_tokens: int) -> None:
    """It has ended: blocks free; full ones whose content is known stay in the prefix cache, answers included."""
    known = request.blocks[_shareable(request, block_tokens) : request.computed // block_tokens]
    for key in reversed(known):
        pool.rest(key, 1)
    request.own_blocks -= len(known)
    _release(pool, request, 0)


def abandon(pool: KvPool, request: Request) -> None:
    """It is given up, running or waiting: blocks free, its own content forgotten."""
    _release(pool, request, 0)
    pool.forget(_private_name(request))


def _release(pool: KvPool, request: Request, keep: int) -> None:
    """Give all blocks back, remembering the content of ``keep`` private ones for when it comes back."""
    pool.free(request.own_blocks - keep)
    pool.rest(_private_name(request), keep)
    pool.drop(request.held)
    request.own_blocks = 0
    request.held = []


def _shareable(request: Request, block_tokens: int) -> int:
    """Leading blocks that hold nothing but prompt and whose content is known."""
    return min(len(request.blocks), request.prompt_tokens // block_tokens)


def _private_name(request: Request) -> Hashable:
    """The name under which a pushed-out request's private content is remembered."""
    return ("own", request.id)
