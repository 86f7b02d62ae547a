"""One wait for all sockets of an event loop: each is read as soon as it has data or, where data comes thick and evenly,
all of them on a beat.

To wake a sleeping process costs more than to read, stamp and parse a token. Where the kernel stamps what comes in, a
read some milliseconds later says the same (docs/decisions/0004-reading-on-a-beat.md), so there one wake serves many.
"""

from __future__ import annotations

import asyncio
import re
import select
import time
from collections.abc import Callable

from loadramp.client.http.c_reader import Gather, KeptBuffer, gather
from loadramp.client.timer import Beat

Read = Callable[[float, float | None], None]
"""Called with the loop's clock (CLOCK_MONOTONIC) of just before, and how far the wall's (CLOCK_REALTIME), by which the
kernel stamps, is ahead of it; None when the wall clock was moved, and stamps with it. Seconds."""

BEAT_S = 0.004
LATE_READ_S = 0.005
"""A read this long after its segment arrived, on the beat so long and a beat: the loop was late, and what came
meanwhile shares one stamp."""
WAKES, QUICK_S = 64, 0.032
"""So many wakes within that time begin the beat: two a millisecond."""
LATE_BEATS = 1.5
"""A beat that comes so many periods after the one before was late."""
LOOK_BEATS = 32
"""Beats after which it is asked whether the beat is right. No: more than half of them found nothing."""
EMPTY_CALM_S = 1.0
"""How long there is no beat after one that found too little."""
BLURRED_RATIO, BLURRED_LOOKS = 0.002, 3
"""Above that share of the reads, in so many looks more than were good: streams too fast for a beat, not a hiccup."""
BLURRED_CALM_S = 60.0
"""How long there is no beat after that: what was blurred until then is far from a p99."""
MOST_READS = 64
"""In one turn of the loop: what else is due must not wait for a whole engine step."""
STEP_S, DISTRUST_S = 0.001, 0.1
"""When wall and loop clock have moved apart by so much since the last reads, one of them was set or has slept: for that
time no stamp is believed."""
_TOGETHER_S = 0.00002
"""Two clocks read within that time of each other were read together."""
_FINAL = re.compile(rb'\[DONE\]|"finish_reason": ?"|"choices": ?\[\]')


def running_events(data: bytes) -> int:
    """Events in ``data`` that do not belong to the end of an answer, whose events come together by their nature."""
    events = data.count(b"data:")
    return events if events < 2 else max(0, events - len(_FINAL.findall(data)))


def clocks() -> tuple[float, float]:
    """The wall clock and the loop's, both of one instant."""
    for _ in range(3):  # unless something else had the core in between
        before_s = time.monotonic()
        wall_s = time.time()
        now_s = time.monotonic()
        if now_s - before_s < _TOGETHER_S:
            break
    return wall_s, now_s


class Intake:
    """Reads many sockets by one epoll of its own; without one (not Linux) it leaves them to the loop."""

    __slots__ = (
        "_beat",
        "_blurred",
        "_calm_until_s",
        "_distrust_until_s",
        "_empty",
        "_epoll",
        "_fast",
        "_gather",
        "_loop",
        "_offset_s",
        "_punctual",
        "_reads",
        "_since_s",
        "_turns",
        "_waiting",
        "beating",
        "late_s",
        "reads",
    )

    def __init__(self) -> None:
        self.beating = False
        """Reads may come up to a beat late."""
        self.late_s = LATE_READ_S
        """The age from which what is read was read late."""
        self.reads = 0
        """Since the beginning, where there is an epoll."""
        self._waiting: dict[int, Read] = {}
        self._epoll: select.epoll | None = None
        self._gather: Gather | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat: Beat | None = None
        self._offset_s = 0.0  # wall clock less loop clock
        self._distrust_until_s = 0.0
        self._calm_until_s = 0.0
        self._since_s = 0.0  # of the wakes counted in ``_turns``; of the last beat
        self._turns = 0
        self._punctual = False
        self._empty = 0
        self._reads = 0  # on punctual beats, and those of them that hold what came at two instants
        self._blurred = 0
        self._fast = 0

    def add(self, fd: int, read: Read) -> None:
        """Call ``read`` on the running loop whenever ``fd`` has data or has ended."""
        if not self._waiting:
            self._open()
        self._waiting[fd] = read
        if self._epoll is not None:
            self._epoll.register(fd, select.EPOLLIN)
        elif self._loop is not None:
            self._loop.add_reader(fd, lambda: read(*self._now()))

    def remove(self, fd: int) -> None:
        """Forget ``fd``; call it before the socket is closed."""
        del self._waiting[fd]
        self.drop(fd)
        if self._epoll is not None:
            self._epoll.unregister(fd)
        elif self._loop is not None:
            self._loop.remove_reader(fd)
        if not self._waiting:
            self._close()

    def keep(self, fd: int) -> KeptBuffer | None:
        """Keep back what can wait of ``fd``; ``read`` is called when it has come to a lot or something else has come,
        which it must take from what this returns. None: there is no reader that could."""
        return None if self._gather is None else self._gather.keep(fd)

    def drop(self, fd: int) -> None:
        """Nothing is kept back any more, and what was is gone."""
        if self._gather is not None:
            self._gather.drop(fd)

    def mind(self, data: bytes, kernel: bool) -> None:
        """Events that were read together on a beat, or something that the kernel did not stamp (``kernel``): without
        that there is no beat.

        Two events of a running answer in one read may have come at two instants of which only the later is known. A
        read after a late beat says nothing: the loop would have been as late without one.
        """
        if not kernel:
            self._wake_for_each(BLURRED_CALM_S)
        elif self._punctual:
            self._blurred += running_events(data) > 1

    def _open(self) -> None:
        self._loop = asyncio.get_running_loop()
        wall_s, now_s = clocks()
        self._offset_s = wall_s - now_s
        if hasattr(select, "epoll"):
            self._epoll = select.epoll()
            self._gather = gather()
            self._loop.add_reader(self._epoll.fileno(), self._woken)
            self._beat = Beat(self._loop, BEAT_S, self._on_beat)

    def _close(self) -> None:
        if self._epoll is None or self._loop is None or self._beat is None:
            return
        self._beat.close()
        if not self.beating:
            self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        if self._gather is not None:
            self._gather.close()
        self._epoll, self._beat, self._gather = None, None, None
        self._rest()

    def _woken(self) -> None:
        self._read_all()
        self._turns += 1
        if self._turns >= WAKES:
            now_s = time.monotonic()
            if now_s - self._since_s < QUICK_S and now_s >= self._calm_until_s:
                self._wait_for_beats()
            self._turns, self._since_s = 0, now_s

    def _on_beat(self) -> None:
        now_s = time.monotonic()
        self._punctual = now_s - self._since_s < LATE_BEATS * BEAT_S
        self._since_s = now_s
        self._empty += not self._read_all()
        self._turns += 1
        if self._turns >= LOOK_BEATS and self.beating:
            self._fast = max(0, self._fast + (1 if self._blurred > BLURRED_RATIO * self._reads else -1))
            if self._fast >= BLURRED_LOOKS:
                self._wake_for_each(BLURRED_CALM_S)
            elif 2 * self._empty > self._turns:
                self._wake_for_each(EMPTY_CALM_S)
            self._turns = self._empty = self._reads = self._blurred = 0

    def _read_all(self) -> int:
        """Read what is there; with ``MOST_READS`` the loop has a turn before the rest."""
        if self._epoll is None:  # the last socket went earlier in this turn
            return 0
        if self._gather is not None:
            now_s, offset_s = self._now()
            count, due = self._gather.read(self._epoll.fileno(), offset_s, self.late_s)
        else:
            due = [fd for fd, _ in self._epoll.poll(0.0, MOST_READS)]
            count = len(due)
            now_s, offset_s = self._now()
        self.reads += count
        if self._punctual:
            self._reads += count
        more = count >= MOST_READS or (self._gather is not None and bool(due))
        self._hand_over(due, now_s, offset_s)
        if more and self.beating and self._loop is not None:
            self._loop.call_soon(self._read_all)
        return count

    def _hand_over(self, due: list[int], now_s: float, offset_s: float | None) -> None:
        """Let each of ``due`` be read, in the order of their waiting; one that fails keeps no other waiting."""
        waiting, done = self._waiting, 0
        try:
            for fd in due:
                done += 1
                read = waiting.get(fd)
                if read is not None:  # not closed by an earlier one
                    read(now_s, offset_s)
        finally:
            if done < len(due) and self._loop is not None:
                self._loop.call_soon(self._hand_over, due[done:], now_s, offset_s)

    def _now(self) -> tuple[float, float | None]:
        """What a read is told."""
        wall_s, now_s = clocks()
        offset_s = wall_s - now_s
        if not -STEP_S < offset_s - self._offset_s < STEP_S:
            self._distrust_until_s = now_s + DISTRUST_S
        self._offset_s = offset_s
        return now_s, None if now_s < self._distrust_until_s else offset_s

    def _wait_for_beats(self) -> None:
        if self._epoll is not None and self._loop is not None and self._beat is not None and self._beat.start():
            self._loop.remove_reader(self._epoll.fileno())
            self.beating, self.late_s = True, LATE_READ_S + BEAT_S
            self._turns = self._empty = self._reads = self._blurred = self._fast = 0

    def _wake_for_each(self, calm_s: float) -> None:
        if self._epoll is not None and self._loop is not None and self._beat is not None:
            self._beat.stop()
            self._loop.add_reader(self._epoll.fileno(), self._woken)
            self._rest()
            self._turns, self._since_s = 0, time.monotonic()
            self._calm_until_s = self._since_s + calm_s

    def _rest(self) -> None:
        self.beating, self.late_s, self._punctual = False, LATE_READ_S, False
