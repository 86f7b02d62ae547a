"""The paged KV pool and its prefix cache: how many blocks are whose. Pure counting; blocks have no addresses.

A block is held by running requests (``refs``: shareable, by content hash; the rest private), or free. Free blocks
that still hold known content wait in ``idle``, least recently used first, and are hits until they are needed.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence


class KvPool:
    """A pool of ``capacity`` blocks. The caller checks ``available`` before it takes any."""

    __slots__ = ("capacity", "idle", "idle_blocks", "refs", "used")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.refs: dict[Hashable, int] = {}
        """Content hash of a block in use -> how many requests hold it."""
        self.idle: OrderedDict[Hashable, int] = OrderedDict()
        """Content in free blocks -> blocks: 1 for a hash, any number for the leftovers of one preempted request."""
        self.idle_blocks = 0

    @property
    def available(self) -> int:
        return self.capacity - self.used

    @property
    def used_ratio(self) -> float:
        return self.used / self.capacity

    def match(self, hashes: Sequence[Hashable], limit: int) -> tuple[int, int]:
        """How many leading ``hashes`` (at most ``limit``) are in the pool, and how many of these lie idle."""
        hits = idle = 0
        for key in hashes[:limit]:
            if key not in self.refs:
                if key not in self.idle:
                    break
                idle += 1
            hits += 1
        return hits, idle

    def hold(self, key: Hashable) -> None:
        """One more request uses the block of this content, which is in the pool."""
        if key in self.refs:
            self.refs[key] += 1
        else:
            self._wake(key)
            self.refs[key] = 1
            self.used += 1

    def share(self, key: Hashable) -> bool:
        """Name a private block by its content, now that it is full. False: that content already has another block."""
        if key in self.refs or key in self.idle:
            return False
        self.refs[key] = 1
        return True

    def grow(self, blocks: int) -> None:
        """Take private blocks; content that lay idle longest is forgotten for them."""
        self.used += blocks
        over = self.used + self.idle_blocks - self.capacity
        while over > 0:
            key, count = next(iter(self.idle.items()))
            gone = min(count, over)
            over -= gone
            self.idle_blocks -= gone
            if gone == count:
                del self.idle[key]
            else:
                self.idle[key] = count - gone

    def drop(self, held: Sequence[Hashable]) -> None:
        """Stop holding shared blocks; those nobody holds any more become idle, the last of the prefix oldest."""
        for key in reversed(held):
            self.refs[key] -= 1
            if self.refs[key] == 0:
                del self.refs[key]
                self.used -= 1
                self._rest(key, 1)

    def free(self, blocks: int) -> None:
        """Give private blocks back and forget their content."""
        self.used -= blocks

    def rest(self, key: Hashable, blocks: int) -> None:
        """Give private blocks back but remember their content under ``key``, which nobody holds."""
        self.used -= blocks
        if blocks and key not in self.idle and key not in self.refs:
            self._rest(key, blocks)

    def resting(self, key: Hashable) -> int:
        """Blocks remembered under ``key``."""
        return self.idle.get(key, 0)

    def reclaim(self, key: Hashable, blocks: int) -> None:
        """Make the first ``blocks`` remembered under ``key`` private blocks in use again; forget the others."""
        self._wake(key)
        self.used += blocks

    def forget(self, key: Hashable) -> None:
        """Forget what is remembered under ``key``, if anything."""
        if key in self.idle:
            self._wake(key)

    def _rest(self, key: Hashable, blocks: int) -> None:
        self.idle[key] = blocks
        self.idle_blocks += blocks

    def _wake(self, key: Hashable) -> None:
        self.idle_blocks -= self.idle.pop(key)
