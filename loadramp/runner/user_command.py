"""Runs a command that the user gives: without a shell, with a time limit, in a process group of its own."""

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Mapping, Sequence
from typing import IO

from loadramp.registry import ScenarioError

STDERR = 2


def words_of(option: str, line: str) -> list[str]:
    """The words of a command, split as a shell does.

    Raises:
        ScenarioError: it cannot be split, is empty, or names a program that is not there. A first word with a
            placeholder is not looked for.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ScenarioError(f"{option}: {error}: {line}") from None
    if not words:
        raise ScenarioError(f"{option}: expected a command; got {line!r}")
    if "{" not in words[0] and shutil.which(words[0]) is None:
        raise ScenarioError(f"{option}: {words[0]}: no program of that name that may be run (there is no shell)")
    return words


async def run_to_its_end(
    words: Sequence[str], limit_s: float, variables: Mapping[str, str] | None = None, output: int | IO[bytes] = STDERR
) -> int | None:
    """The exit code of a program; None where it took too long, and was ended with all that it had started.

    Args:
        words: the program and its arguments.
        limit_s: seconds that it has.
        variables: put on top of the environment.
        output: where what it prints goes; our own stderr, as stdout is for the answer.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *words, env={**os.environ, **(variables or {})}, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
        start_new_session=True,
    )  # fmt: skip
    try:
        return await asyncio.wait_for(process.wait(), limit_s)
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
