"""Why a server did not start or died, in words: from its exit code and its log. Pure."""

from __future__ import annotations

import re

from loadramp.registry import data_of

TAIL_LINES, LINE_CHARS = 12, 300
SIGNALS = {6: "abort", 7: "bus error", 9: "killed", 11: "segmentation fault", 15: "terminated"}
_CALM = re.compile(r"\b(INFO|DEBUG|WARNING)\b")
"""A server that runs well names NCCL, memory and missing files, too."""
_CAUSES = [(c["name"], re.compile("|".join(c["says"]))) for c in data_of(__package__, "causes.toml")["cause"]]


def cause_of(log: str, exit_code: int | None) -> str:
    """The first known cause that ``log`` tells of; where it tells of none, what the exit code does; "": not known."""
    name, _ = _found(log)
    return name or ("killed: by the kernel where memory ran out, or by somebody" if exit_code == 137 else "")


def telling_line(log: str) -> str:
    """The line of ``log`` that tells the cause, with an indented one below it; "": not known."""
    _, lines = _found(log)
    below = lines[1:2] if any(line.startswith(" ") for line in lines[1:2]) else []
    return " ".join(line.strip() for line in [*lines[:1], *below])


def _found(log: str) -> tuple[str, list[str]]:
    """The first known cause, and the log from the last line on that tells it."""
    lines = [line for line in log.splitlines() if line.strip() and not _CALM.search(line)]
    for name, says in _CAUSES:
        at = [k for k, line in enumerate(lines) if says.search(line.lower())]
        if at:
            return str(name), lines[at[-1] :]
    return "", []


def ending(exit_code: int | None) -> str:
    """How a process ended, in words; codes above 128 are signals."""
    if exit_code is None:
        return "it did not end"
    number = exit_code - 128
    return f"exit code {exit_code}" + (f" ({SIGNALS[number]})" if number in SIGNALS else "")


def tail_of(log: str) -> list[str]:
    """The last lines of a log that say something."""
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    return [line[:LINE_CHARS] for line in lines[-TAIL_LINES:]]


def failure_words(what: str, log: str, exit_code: int | None) -> str:
    """``did not start: out of memory (exit code 1); its log: <the line that says so, else the last one>``."""
    cause, line = cause_of(log, exit_code), telling_line(log) or "".join(tail_of(log)[-1:])
    words = f"{what}: {cause or 'cause not known'} ({ending(exit_code)})"
    return f"{words}; its log: {line[:LINE_CHARS]}" if line else words
