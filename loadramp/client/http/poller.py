"""One wait for all sockets of an event loop: each is read as soon as it has data or, where much data comes evenly, all
of them on a beat.

Waking a sleeping process costs more than reading, stamping and parsing a token. Where the kernel stamps incoming data,
a read some milliseconds later gives the same result (docs/decisions/0004-reading-on-a-beat.md), so one wake can serve
many sockets.
"""

import asyncio
import os
import re
import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from loadramp.client.http.c_reader import Beat, CReader, KeptReads, new_c_reader
from loadramp.client.timer import PeriodicTimer

Read = Callable[[float, float | None], None]
"""Called with the loop's clock (CLOCK_MONOTONIC) of just before, and how far the wall's (CLOCK_REALTIME), by which the
kernel stamps, is ahead of it; None when the wall clock was moved, and stamps with it. Seconds."""

BEAT_S = 0.004
LEAST_BEAT_S = 0.001
"""A thread of the reader in C can keep a quicker beat, and does for streams that are too fast for the other."""
LATE_READ_S = 0.005
"""A read this long after its segment arrived (on the beat: this and a beat) was late: the loop was busy, and everything
that arrived meanwhile shares one stamp."""
WAKES, QUICK_S, THREAD_QUICK_S = 64, 0.032, 0.64
"""So many wakes within that time start the beat: two a millisecond, or a hundred a second where it is a thread's, which
wakes the loop for few of its reads."""
LATE_BEATS = 1.5
"""A beat that comes more than this many periods after the one before was late: what it reads says nothing of the
streams."""
LOOK_BEATS = 32
"""The beat is judged after so many beats; a timer's stops if more than half of them found nothing, and a thread's waits
for the next read by itself."""
EMPTY_CALM_S = 1.0
"""No beat for this long after one that found too little."""
BLURRED_RATIO, BLURRED_LOOKS = 0.002, 3
"""The beat stops, or becomes quicker, when more than this share of the reads was blurred in this many more looks than
not: then the streams are too fast for it, and it was no hiccup."""
BLURRED_CALM_S = 60.0
"""No beat for this long after that: the reads blurred until then are too few to move a p99."""
MOST_READS = 128
"""In one turn of the loop: other tasks must not wait for a whole engine step."""
STEP_S, DISTRUST_S = 0.001, 0.1
"""When wall and loop clock have moved apart by STEP_S since the last reads, one of them was set or has slept: no stamp
is believed for DISTRUST_S."""
_TOGETHER_S = 0.00002
"""Two clocks read within that time of each other were read together."""
_FINAL = re.compile(rb'\[DONE\]|"finish_reason": ?"|"choices": ?\[\]')


def running_events(data: bytes) -> int:
    """Events in ``data`` that do not belong to the end of an answer, whose events come together by their nature."""
    events = data.count(b"data:")
    return events if events < 2 else max(0, events - len(_FINAL.findall(data)))


def clocks() -> tuple[float, float]:
    """The wall clock and the loop's, both read at the same instant."""
    for _ in range(3):  # again if something else had the core in between
        before_s = time.monotonic()
        wall_s = time.time()
        now_s = time.monotonic()
        if now_s - before_s < _TOGETHER_S:
            break
    return wall_s, now_s


@dataclass(slots=True)
class _Epoll:
    """What one loop waits with while there are sockets."""

    loop: asyncio.AbstractEventLoop
    epoll: select.epoll
    timer: PeriodicTimer
    c_reader: CReader | None
    told_fd: int
    """By which the thread of ``c_reader`` wakes the loop; -1 without one."""


@dataclass(slots=True)
class Poller:
    """Reads many sockets by one epoll of its own; without one (not Linux) it leaves them to the loop."""

    beating: bool = False
    """Reads may come up to a beat late."""
    late_s: float = LATE_READ_S
    """A read at least this long after its data arrived was late."""
    reads: int = 0
    """Since the beginning, where there is an epoll."""
    meanwhile: Callable[[], None] | None = None
    """Called between two reads, for what must not wait for all of them."""
    _waiting: dict[int, Read] = field(default_factory=dict)
    _open: _Epoll | None = None
    _offset_s: float = 0.0  # wall clock less loop clock
    _distrust_until_s: float = 0.0
    _calm_until_s: float = 0.0
    _since_s: float = 0.0  # of the wakes counted in ``_turns``; of the last beat
    _turns: int = 0
    _period_s: float = BEAT_S
    _punctual: bool = False
    _empty: int = 0
    _beat_reads: int = 0  # on punctual beats
    _blurred: int = 0  # those of them that hold data of two instants
    _fast: int = 0

    def add(self, fd: int, read: Read) -> None:
        """Call ``read`` on the running loop whenever ``fd`` has data or has ended."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            wall_s, now_s = clocks()
            self._offset_s = wall_s - now_s
            if hasattr(select, "epoll"):
                timer, c_reader = PeriodicTimer(loop, BEAT_S, self._on_beat), new_c_reader()
                told_fd = -1 if c_reader is None else os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                self._open = _Epoll(loop, select.epoll(), timer, c_reader, told_fd)
                loop.add_reader(self._open.epoll.fileno(), self._woken)
                if c_reader is not None:
                    loop.add_reader(told_fd, self._told)
        self._waiting[fd] = read
        if self._open is None:
            loop.add_reader(fd, lambda: read(*self._now()))
        else:
            self._open.epoll.register(fd, select.EPOLLIN)

    def remove(self, fd: int) -> None:
        """Forget ``fd``; call it before the socket is closed."""
        del self._waiting[fd]
        if self._open is not None and self._open.c_reader is not None:
            self._open.c_reader.drop(fd)
        if self._open is None:
            asyncio.get_running_loop().remove_reader(fd)
            return
        self._open.epoll.unregister(fd)
        if not self._waiting:
            self._close(self._open)

    def keep(self, fd: int) -> KeptReads | None:
        """Hold back reads of ``fd`` that can wait. ``read`` is called when there is a batch of them or when something
        else has come; it must take both from the return value. None: there is no reader that could do that."""
        return None if self._open is None or self._open.c_reader is None else self._open.c_reader.keep(fd)

    def waiting(self) -> tuple[int, int, int]:
        """Events that are held back, those of their reads that were late, and replies that begin with them."""
        return (0, 0, 0) if self._open is None or self._open.c_reader is None else self._open.c_reader.waiting()

    def note_blurred(self, data: bytes, kernel: bool) -> None:
        """Call this for events that were read together on a beat, or data that the kernel did not stamp (``kernel``):
        without stamps there is no beat.

        Two events of a running answer in one read may have come at two instants of which only the later is known. A
        read after a late beat says nothing: the loop would have been as late without one.
        """
        if not kernel:
            self._stop_beat(BLURRED_CALM_S)
        elif self._punctual:
            self._blurred += running_events(data) > 1

    def _close(self, open_: _Epoll) -> None:
        open_.timer.close()
        if not self.beating:
            open_.loop.remove_reader(open_.epoll.fileno())
        open_.epoll.close()
        if open_.c_reader is not None:
            open_.loop.remove_reader(open_.told_fd)
            open_.c_reader.close()
            os.close(open_.told_fd)
        self._open = None
        self._forget_beat()

    def _woken(self) -> None:
        self._read_all()
        self._turns += 1
        if self._turns >= WAKES:
            now_s = time.monotonic()
            quick_s = QUICK_S if self._open is None or self._open.c_reader is None else THREAD_QUICK_S
            if now_s - self._since_s < quick_s and now_s >= self._calm_until_s:
                self._start_beat()
            self._turns, self._since_s = 0, now_s

    def _on_beat(self) -> None:
        now_s = time.monotonic()
        self._punctual = now_s - self._since_s < LATE_BEATS * BEAT_S
        self._since_s = now_s
        self._empty += not self._read_all()
        self._turns += 1
        self._judge()

    def _told(self) -> None:
        """Something is due on the beat of ``c_reader``, or the beat is to be judged."""
        open_ = self._open
        if open_ is None or open_.c_reader is None:
            return
        with suppress(BlockingIOError):
            os.eventfd_read(open_.told_fd)
        beats = open_.c_reader.collect()
        self._punctual = beats.reads == beats.all
        self._turns += beats.beats
        self._beat_reads += beats.reads
        self._blurred += beats.blurred
        self.reads += beats.all
        try:
            self._hand_over(open_.loop, beats.due, *self._now())
        finally:
            if beats.due and self._open is open_:
                open_.c_reader.handled()
        self._judge()

    def _judge(self) -> None:
        if self._turns >= LOOK_BEATS and self.beating:
            self._fast = max(0, self._fast + (1 if self._blurred > BLURRED_RATIO * self._beat_reads else -1))
            if self._fast >= BLURRED_LOOKS:
                self._quicken()
            elif self._period_s < BEAT_S and time.monotonic() >= self._calm_until_s:
                self._start_beat()
            elif 2 * self._empty > self._turns:
                self._stop_beat(EMPTY_CALM_S)
            self._turns = self._empty = self._beat_reads = self._blurred = 0

    def _read_all(self) -> int:
        """Read what is there; after ``MOST_READS`` the loop has a turn before the rest. Returns the number of reads."""
        if self._open is None:  # the last socket went earlier in this turn
            return 0
        epoll, c_reader = self._open.epoll, self._open.c_reader
        if c_reader is not None:
            now_s, offset_s = self._now()
            count, due, several = c_reader.read(epoll.fileno(), offset_s, self.late_s)
            self._blurred += several if self._punctual else 0
        else:
            due = [fd for fd, _ in epoll.poll(0.0, MOST_READS)]
            count = len(due)
            now_s, offset_s = self._now()
        self.reads += count
        if self._punctual:
            self._beat_reads += count
        more = count >= MOST_READS or (c_reader is not None and bool(due))
        loop = self._open.loop
        self._hand_over(loop, due, now_s, offset_s)
        if more and self.beating:
            loop.call_soon(self._read_all)
        return count

    def _hand_over(self, loop: asyncio.AbstractEventLoop, due: list[int], now_s: float, offset_s: float | None) -> None:
        """Let each of ``due`` be read, in the order of their waiting; one that fails does not delay the others."""
        waiting, done = self._waiting, 0
        try:
            for fd in due:
                done += 1
                read = waiting.get(fd)
                if read is not None:  # not closed by an earlier one
                    read(now_s, offset_s)
                    if self.meanwhile is not None:
                        self.meanwhile()
        finally:
            if done < len(due):
                loop.call_soon(self._hand_over, loop, due[done:], now_s, offset_s)

    def _now(self) -> tuple[float, float | None]:
        """The arguments of a Read."""
        wall_s, now_s = clocks()
        offset_s = wall_s - now_s
        if not -STEP_S < offset_s - self._offset_s < STEP_S:
            self._distrust_until_s = now_s + DISTRUST_S
        self._offset_s = offset_s
        return now_s, None if now_s < self._distrust_until_s else offset_s

    def _start_beat(self, period_s: float = BEAT_S) -> None:
        open_ = self._open
        if open_ is None:
            return
        if open_.c_reader is not None:
            beat = Beat(period_s, LATE_READ_S, LOOK_BEATS, LATE_BEATS - 1.0)
            started = open_.c_reader.start(open_.epoll.fileno(), open_.told_fd, self._offset_s, beat)
        else:
            started = open_.timer.start()
        if started:
            if not self.beating:
                open_.loop.remove_reader(open_.epoll.fileno())
            self.beating, self.late_s, self._period_s = True, LATE_READ_S + period_s, period_s
            self._turns = self._empty = self._beat_reads = self._blurred = self._fast = 0

    def _quicken(self) -> None:
        """The streams are too fast for this beat: a quicker one, or a thread that sleeps only until something comes."""
        if self._open is None or self._open.c_reader is None:
            self._stop_beat(BLURRED_CALM_S)
        else:
            self._start_beat(self._period_s / 2 if self._period_s > LEAST_BEAT_S else 0.0)
            self._calm_until_s = time.monotonic() + BLURRED_CALM_S

    def _stop_beat(self, calm_s: float) -> None:
        """Wake for each read again, for at least ``calm_s``."""
        open_ = self._open
        if open_ is not None:
            if open_.c_reader is not None:
                open_.c_reader.stop()
                open_.loop.call_soon(self._told)  # what is due and not collected
                open_.loop.call_soon(self._hand_over, open_.loop, list(self._waiting), *self._now())  # what is patient
            open_.timer.stop()
            open_.loop.add_reader(open_.epoll.fileno(), self._woken)
            self._forget_beat()
            self._turns, self._since_s = 0, time.monotonic()
            self._calm_until_s = self._since_s + calm_s

    def _forget_beat(self) -> None:
        self.beating, self.late_s, self._punctual = False, LATE_READ_S, False
