"""Why a server did not start or died, in words: from its exit code and its log. Pure."""

from __future__ import annotations

import re

from loadramp.registry import data_of

TAIL_LINES, LINE_CHARS = 12, 300
SIGNALS = {6: "abort", 7: "bus error", 9: "killed", 11: "segmentation fault", 15: "terminated"}
_CALM = re.compile(r"\b(INFO|DEBUG|WARNING)\b")
"""A server that runs well names NCCL, memory and missing files, too."""
_CAUSES = [(one["name"], re.compile("|".join(one["says"]))) for one in data_of(__package__, "causes.toml")["cause"]]


def cause_of(log: str, exit_code: int | None) -> str:
    """The first known cause that ``log`` tells of; where it tells of none, what the exit code does; "": not known."""
    text = "\n".join(line for line in log.splitlines() if not _CALM.search(line)).lower()
    for name, says in _CAUSES:
        if says.search(text):
            return str(name)
    return "killed: by the kernel where memory ran out, or by somebody" if exit_code == 137 else ""


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
    """``did not start: out of memory (exit code 1): <last line>``."""
    cause, tail = cause_of(log, exit_code), tail_of(log)
    return f"{what}: {cause or 'cause not known'} ({ending(exit_code)})" + (f"; last line: {tail[-1]}" if tail else "")
