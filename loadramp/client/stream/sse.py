"""Server-sent events, read as they come. Pure: bytes in, events out; the events never depend on how the bytes were cut.

Lines end at LF, CRLF or CR and nowhere else (WHATWG HTML, "Server-sent events"), so a raw U+2028 stays inside its text.
Liberties, for servers that exist: JSON outside any field is an event where its brackets close, a bare ``[DONE]`` is
one, a field called ``error`` is an event of that name, an event whose name tells of a failure needs no data, and where
data lines follow each other without blank lines each JSON object is an event.

No byte is looked at more than a few times, whatever the cuts.
"""

import re
from typing import Literal

_BOM = b"\xef\xbb\xbf"
_DONE = b"[DONE]"
_FIELDS = frozenset({b"data", b"event", b"error", b"id", b"retry"})
_LONGEST_FIELD = max(map(len, _FIELDS))
_STRAY_BYTES = 2000
_IN_STRING = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_FLAT = rb'(?:[^"{}\[\]]++|"' + _IN_STRING + rb'")*+'  # JSON without brackets
_STRING_REST = re.compile(_IN_STRING + rb'("?)', re.DOTALL)
_FIRST = re.compile(_FLAT + rb"([{}\[\]]?)", re.DOTALL)  # the next bracket that is in no string, and what is before it
_NEXT = re.compile(  # the same within brackets, past pairs of them that hold none
    rb'(?:[^"{}\[\]]++|"' + _IN_STRING + rb'"|\{' + _FLAT + rb"\}|\[" + _FLAT + rb"\])*+([{}\[\]]?)", re.DOTALL
)
_SPACE = re.compile(rb"[ \t\v\f]*+")
_JSON_OR_SPACE = frozenset({b"{", b"[", b" ", b"\t", b"\v", b"\f"})
_FAILURE = re.compile(
    r"response\.(error|failed|cancell?ed)$"  # of the responses API; its other failures are those of single tools
    r"|(?!response\.).*(error|abort|fail|cancel|insufficient|unavailable|overload|time(d?_)?out|interrupt|exception)",
    re.IGNORECASE | re.DOTALL,
)
SseEvent = tuple[bytes, bytes]
"""One dispatched event: its name (``event:``, empty when there was none) and its data lines joined by LF."""
_Kind = Literal["", "json", "other"]
"""What a line is that has begun; empty where too little of it has come to tell."""


class Brackets:
    """The brackets that are open in JSON of which pieces come in; those within strings are none."""

    __slots__ = ("_escaped", "_in_string", "depth")

    def __init__(self) -> None:
        self.depth = 0
        self._in_string = False
        self._escaped = False  # the last byte was a backslash within a string

    def closes(self, data: bytes, at: int = 0) -> int:
        """Read on, ``data`` from ``at``: where the last open bracket closes; -1: it does not, and all was read."""
        if self._in_string:
            at = self._string(data, at + self._escaped)
        while at < len(data):
            found = (_NEXT if self.depth else _FIRST).match(data, at)
            assert found is not None  # it matches nothing, too
            at = found.end()
            if not found[1]:
                if at < len(data):  # a string begins that does not end here
                    self._string(data, at + 1)
                return -1
            self.depth += 1 if found[1] in {b"{", b"["} else -1
            if self.depth <= 0:
                self.depth = 0
                return at
        return -1

    def line_ends(self) -> None:
        """No string goes on in another line."""
        self._in_string = self._escaped = False

    def _string(self, data: bytes, at: int) -> int:
        """Read on within a string; returns where it ends, or where ``data`` does."""
        found = _STRING_REST.match(data, min(at, len(data)))
        assert found is not None
        self._in_string = not found[1]
        self._escaped = self._in_string and found.end() < len(data)  # a backslash with nothing behind it
        return found.end() + self._escaped


class SseParser:
    """Feed bytes, get the events that they complete. Events without data are dropped, comments counted.

    ``id`` and ``retry`` fields are read over: nothing here reconnects.
    """

    __slots__ = (
        "_at_start",
        "_brackets",
        "_data",
        "_kind",
        "_list_begun",
        "_name",
        "_pretty",
        "_skip_lf",
        "_tail",
        "bare",
        "by_line",
        "comments",
        "stray",
    )

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
        self._kind: _Kind = ""  # of that line
        self._list_begun = False  # all of that line so far is a bracket: perhaps of JSON
        self._data: list[bytes] = []
        self._brackets = Brackets()  # of JSON outside any field
        self._pretty = False  # that JSON is spread over lines: a blank line may be one of them
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
        if self._at_start:
            data = b"".join((*self._tail, data))
            self._tail.clear()
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._tail.append(data)
                return []
            self._at_start = False
            data = data.removeprefix(_BOM)
        if self._skip_lf and data:
            data = data.removeprefix(b"\n")
            self._skip_lf = False
        if b"\r" in data:
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[SseEvent] = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._tail or self._brackets.depth or line[:1] in _JSON_OR_SPACE:
                self._more(line, events)
                self._end_line(events)
            elif line:
                self._field(line, events)
            else:
                self._dispatch(events)
        if rest:
            self._more(rest, events)
        return events

    def _more(self, piece: bytes, events: list[SseEvent]) -> None:
        """More of a line. JSON outside any field is an event where its brackets close: what follows on the line is as a
        line of its own."""
        at = 0
        while at < len(piece):
            if not self._kind:
                self._kind = self._kind_with(piece, at)
                if self._kind == "json":
                    self._begin_json(events)
            end = self._brackets.closes(piece, at) if self._kind == "json" else -1
            self._tail.append(piece[at:] if end < 0 else piece[at:end])
            if end < 0:
                return
            at, self._kind, self._list_begun = end, "", False
            self._data.append(self._take_tail())
            self._dispatch(events, bare=True)

    def _end_line(self, events: list[SseEvent]) -> None:
        """The line that began is over."""
        kind, self._kind, self._list_begun = self._kind, "", False
        line = self._take_tail()
        if not kind and line and (line not in _FIELDS if self._brackets.depth else line.strip() == b"["):
            kind = "json"
            self._begin_json(events)
            self._brackets.closes(line)
        self._brackets.line_ends()
        if kind == "json" and not is_done(line):
            if not self._data:
                self._pretty = line.strip() in {b"{", b"["}
            self._data.append(line)
        elif line:
            self._field(line, events)
        elif not (self._brackets.depth and self._pretty):
            self._dispatch(events)

    def _take_tail(self) -> bytes:
        tail, self._tail = self._tail, []
        return b"".join(tail)

    def _begin_json(self, events: list[SseEvent]) -> None:
        if not self._brackets.depth and self._data:
            self._dispatch(events)
        for piece in self._tail:  # spaces, and perhaps the first bracket
            self._brackets.closes(piece)

    def _kind_with(self, piece: bytes, at: int) -> _Kind:
        """What the line is that has begun with ``_tail``, of which nothing could be said, and goes on so."""
        if self._brackets.depth:  # within JSON all lines are but fields and comments
            begin = b"".join((*self._tail, piece[at : at + _LONGEST_FIELD + 1]))
            name, colon, _ = begin.partition(b":")
            if begin.startswith(b":") or (colon and name in _FIELDS):
                return "other"
            return "" if not colon and any(field.startswith(begin) for field in _FIELDS) else "json"
        at = _after_space(piece, at)
        if piece[at : at + 1] == b"[" and not self._list_begun:
            self._list_begun = True
            at = _after_space(piece, at + 1)
        if at == len(piece):
            return ""
        return "json" if piece[at : at + 1] == b"{" else "other"

    def _field(self, line: bytes, events: list[SseEvent]) -> None:
        """Take a line that is not JSON."""
        if line.startswith(b":"):
            self.comments += 1
            return
        name, _, value = line.partition(b":")
        if name in _FIELDS:
            if self._brackets.depth:  # broken off
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
        elif len(self.stray) < _STRAY_BYTES and line.strip():
            self.stray += line[:_STRAY_BYTES] + b" "

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

    def _dispatch(self, events: list[SseEvent], *, bare: bool = False) -> None:
        data = b"\n".join(self._data)
        if data or (self._name and tells_failure(self._name.decode("latin-1"))):
            events.append((self._name, data))
            if self.bare is None:
                self.bare = bare
        self._data.clear()
        self._brackets.depth = 0
        self._name = b""


def is_done(value: bytes) -> bool:
    """The end marker of a stream, in any of its spellings."""
    return len(value) < 32 and value.strip().strip(b'"').upper() == _DONE


def tells_failure(word: str) -> bool:
    """A finish reason, a type or the name of an event says that the server failed."""
    return _FAILURE.match(word) is not None


def _after_space(piece: bytes, at: int) -> int:
    found = _SPACE.match(piece, at)
    return at if found is None else found.end()
