"""Server-sent events, read as they come. Pure: bytes in, events out; the events never depend on how the bytes were cut.

Lines end at LF, CRLF or CR and nowhere else (WHATWG HTML, "Server-sent events"), so a raw U+2028 stays inside its text.
Liberties, for servers that exist: JSON outside any field is an event where its brackets close, a bare ``[DONE]`` is
one, a field called ``error`` is an event of that name, an event whose name tells of a failure needs no data, and where
data lines follow each other without blank lines each JSON object is an event.
"""

from __future__ import annotations

import re

_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_FIELDS = frozenset({b"data", b"event", b"error", b"id", b"retry"})
_STRAY_BYTES = 2000
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[{}\[\]]', re.DOTALL)  # a string, ended or not, or a bracket
_FAILURE = re.compile(
    r"response\.(error|failed|cancell?ed)$"  # of the responses API; its other failures are those of single tools
    r"|(?!response\.).*(error|abort|fail|cancel|insufficient|unavailable|overload|time(d?_)?out|interrupt|exception)",
    re.IGNORECASE | re.DOTALL,
)
SseEvent = tuple[bytes, bytes]
"""One dispatched event: its name (``event:``, empty when there was none) and its data lines joined by LF."""


class SseParser:
    """Feed bytes, get the events that they complete. Events without data are dropped, comments counted.

    ``id`` and ``retry`` fields are read over: nothing here reconnects.
    """

    __slots__ = ("_at_start", "_data", "_depth", "_name", "_skip_lf", "_tail", "bare", "by_line", "comments", "stray")

    def __init__(self) -> None:
        self.comments = 0
        """Comment lines so far (servers send them to keep a connection alive)."""
        self.bare: bool | None = None
        """The first event stood outside any field; None: no event yet."""
        self.stray = b""
        """The first of the lines that are nothing known."""
        self.by_line = False
        """No blank lines between events: each line is one."""
        self._tail: list[bytes] = []  # pieces of a line that has not ended; joined once, so a huge line costs O(n)
        self._data: list[bytes] = []
        self._depth = 0  # brackets that are open in JSON outside any field
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
            and len(data) > len(b"data: \n\n")
        ):  # one whole event in one piece, as nearly always: no line list
            self._at_start = False
            if self.bare is None:
                self.bare = False
            return [(b"", data[6:-2])]
        return self._feed(data)

    def flush(self) -> list[SseEvent]:
        """At a clean end of the body: an event that lacks only its blank line still counts."""
        events = self._feed(b"\n\n")
        self._dispatch(events)
        return events

    def _feed(self, data: bytes) -> list[SseEvent]:
        if self._skip_lf and data:
            data = data.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[SseEvent] = []
        if b"\n" not in data:
            if data:
                self._tail.append(data)
                self._early(events)
            return events
        if self._tail:
            self._tail.append(data)
            data = b"".join(self._tail)
            self._tail = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)  # noqa: PLW2901  # the same line without its mark
            if line:
                while line:
                    line = self._field(line, events)  # noqa: PLW2901  # what is left of it
            elif not self._pretty:
                self._dispatch(events)
        if rest:
            self._tail.append(rest)
            self._early(events)
        return events

    def _field(self, line: bytes, events: list[SseEvent]) -> bytes:
        """Take a line; returns what follows the JSON that it begins with, as a line of its own."""
        if line.startswith(b":"):
            self.comments += 1
            return b""
        name, _, value = line.partition(b":")
        if name in _FIELDS:
            if self._depth:  # broken off
                self._dispatch(events)
            value = value.removeprefix(b" ")
            if name == b"data":
                self._add(value, events)
            elif name == b"event":
                self._name = value
            elif name == b"error":
                self._add(value, events, name)
        elif is_done(line):
            self._dispatch(events)
            events.append((b"", _DONE))
        elif self._is_bare(line):
            return self._bare(line, events)
        elif len(self.stray) < _STRAY_BYTES and line.strip():
            self.stray += line[:_STRAY_BYTES] + b" "
        return b""

    def _add(self, value: bytes, events: list[SseEvent], name: bytes = b"") -> None:
        """One line of data. A ``}`` before a ``{`` or ``[`` is no JSON on any number of lines: an event ended between.

        From then on a line that ends as a JSON object does is an event at once: its instant is its own.
        """
        if self._data and self._data[-1].endswith(b"}") and (value.startswith(b"{") or is_done(value)):
            self.by_line = True
            self._dispatch(events)
        self._name = name or self._name
        self._data.append(value)
        if self.by_line and len(self._data) == 1 and value.startswith(b"{") and value.endswith(b"}"):
            self._dispatch(events)

    @property
    def _pretty(self) -> bool:
        """JSON that is spread over lines is under way: a blank line may be one of them."""
        return self._depth > 0 and self._data[0].strip() in {b"{", b"["}

    def _is_bare(self, line: bytes) -> bool:
        start = line.lstrip()
        return self._depth > 0 or start[:1] == b"{" or (start[:1] == b"[" and start[1:].lstrip()[:1] in {b"", b"{"})

    def _bare(self, line: bytes, events: list[SseEvent]) -> bytes:
        """JSON outside any field. It ends where its brackets close: its instant is that of the byte that does it."""
        if not self._depth and self._data:
            self._dispatch(events)
        end, self._depth = _closed(line, self._depth)
        self._data.append(line if end < 0 else line[:end])
        if end < 0:
            return b""
        self._dispatch(events, bare=True)
        return line[end:]

    def _early(self, events: list[SseEvent]) -> None:
        """Take JSON that is whole before its line is: some servers leave the connection open behind it."""
        if not self._tail[-1][-64:].rstrip().endswith((b"}", b"]")):
            return
        line = b"".join(self._tail)
        if self._at_start:
            line = line.removeprefix(_BOM)
        if line[:1] == b":" or line.partition(b":")[0] in _FIELDS or is_done(line) or not self._is_bare(line):
            return
        end, _ = _closed(line, self._depth)
        if end >= 0 and not line[end:].strip():
            self._at_start = False
            rest = self._bare(line, events)
            self._tail = [rest] if rest else []

    def _dispatch(self, events: list[SseEvent], *, bare: bool = False) -> None:
        data = b"\n".join(self._data)
        if data or (self._name and tells_failure(self._name.decode("latin-1"))):
            events.append((self._name, data))
            if self.bare is None:
                self.bare = bare
        self._data.clear()
        self._depth = 0
        self._name = b""


def is_done(value: bytes) -> bool:
    """The end marker of a stream, in any of its spellings."""
    return len(value) < 32 and value.strip().strip(b'"').upper() == _DONE


def tells_failure(word: str) -> bool:
    """A finish reason, a type or the name of an event says that the server failed."""
    return _FAILURE.match(word) is not None


def _closed(line: bytes, depth: int) -> tuple[int, int]:
    """Where in ``line`` the last of the open brackets closes (-1: it does not), and how many are open behind."""
    for token in _TOKEN.finditer(line):
        mark = token[0]
        if mark in {b"{", b"["}:
            depth += 1
        elif mark in {b"}", b"]"}:
            depth -= 1
            if depth <= 0:
                return token.end(), 0
    return -1, depth
