"""Server-sent events, read as they come. Pure: bytes in, events out; the events never depend on how the bytes were cut.

Lines end at LF, CRLF or CR and nowhere else (WHATWG HTML, "Server-sent events"), so a raw U+2028 stays inside its text.
Three liberties, for servers that exist: a bare JSON line is data, a field called ``error`` is an event of that name,
and where data lines follow each other without blank lines each JSON object is an event.
"""

from __future__ import annotations

_BOM = b"\xef\xbb\xbf"
SseEvent = tuple[bytes, bytes]
"""One dispatched event: its name (``event:``, empty when there was none) and its data lines joined by LF."""


class SseParser:
    """Feed bytes, get the events that they complete. Events without data are dropped, comments counted.

    ``id`` and ``retry`` fields are read over: nothing here reconnects.
    """

    __slots__ = ("_at_start", "_data", "_name", "_skip_lf", "_tail", "by_line", "comments")

    def __init__(self) -> None:
        self.comments = 0
        """Comment lines so far (servers send them to keep a connection alive)."""
        self.by_line = False
        """No blank lines between events: each line is one."""
        self._tail: list[bytes] = []  # pieces of a line that has not ended; joined once, so a huge line costs O(n)
        self._data: list[bytes] = []
        self._name = b""
        self._skip_lf = False  # the last byte was a CR: an LF that follows belongs to it
        self._at_start = True

    @property
    def idle(self) -> bool:
        """Past the start, between two events that blank lines set apart."""
        return not (self._at_start or self._tail or self._data or self._name or self._skip_lf or self.by_line)

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that ``data`` completes, in order."""
        if (
            data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and not (self._tail or self._data or self._name or self._skip_lf)
            and b"\r" not in data
        ):  # one whole event in one piece, as nearly always: no line list
            self._at_start = False
            return [(b"", data[6:-2])]
        return self._feed(data)

    def flush(self) -> list[SseEvent]:
        """At a clean end of the body: an event that lacks only its blank line still counts."""
        return self._feed(b"\n\n")

    def _feed(self, data: bytes) -> list[SseEvent]:
        if self._skip_lf and data:
            data = data.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in data:
            if data:
                self._tail.append(data)
            return []
        if self._tail:
            self._tail.append(data)
            data = b"".join(self._tail)
            self._tail = []
        *lines, rest = data.split(b"\n")
        if rest:
            self._tail.append(rest)
        events: list[SseEvent] = []
        for line in lines:
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)  # noqa: PLW2901  # the same line without its mark
            if line:
                self._field(line, events)
            else:
                self._dispatch(events)
        return events

    def _field(self, line: bytes, events: list[SseEvent]) -> None:
        if line.startswith(b":"):
            self.comments += 1
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value, events)
        elif name == b"event":
            self._name = value
        elif name == b"error":
            self._add(value, events, name)
        elif line.startswith(b"{"):
            self._add(line, events)

    def _add(self, value: bytes, events: list[SseEvent], name: bytes = b"") -> None:
        """One line of data. A ``}`` before a ``{`` or ``[`` is no JSON on any number of lines: an event ended between.

        From then on a line that ends as a JSON object does is an event at once: its instant is its own.
        """
        if self._data and self._data[-1].endswith(b"}") and value.startswith((b"{", b"[DONE]")):
            self.by_line = True
            self._dispatch(events)
        self._name = name or self._name
        self._data.append(value)
        if self.by_line and len(self._data) == 1 and value.startswith(b"{") and value.endswith(b"}"):
            self._dispatch(events)

    def _dispatch(self, events: list[SseEvent]) -> None:
        data = b"\n".join(self._data)
        if data:
            events.append((self._name, data))
        self._data.clear()
        self._name = b""
