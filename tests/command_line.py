"""The command line, in a process of its own or in this one, and servers for it: what its tests share."""

from __future__ import annotations

import os
import re
import resource
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from loadramp.cli import cli, main

KEY = "sk-canary-7f3a9b"
QUICK = """
name = "quick"
seed = 3
[slo]
ttft_s = 5
[prompts]
kind = "fixed"
input_tokens = 30
output_tokens = 6
[ramp]
kind = "ladder"
rates = [20, 40]
warmup_s = 0.3
measure_s = 1.2
settle_s = 0.2
settle_requests = 0
tail_s = 0.3
"""


def loadramp(
    *arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None, most_bytes: int | None = None
) -> tuple[int, str, str]:
    """Exit code, stdout, stderr. ``most_bytes``: how long any file may get, as if the disk were full then."""

    def limit() -> None:
        assert most_bytes is not None
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    done = subprocess.run(
        [sys.executable, "-m", "loadramp", *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        preexec_fn=None if most_bytes is None else limit,
    )
    return done.returncode, done.stdout, done.stderr


def in_process(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> tuple[int, str, str]:
    """The same without a process: a second less for what ends before anything heavy begins."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        patch.chdir(cwd or Path.cwd())
        with pytest.raises(SystemExit) as leaving:
            main(list(arguments))
    return int(leaving.value.code or 0), out.getvalue(), err.getvalue()


def commands_in(text: str) -> list[list[str]]:
    """The words after ``loadramp`` of each of our commands in a text; lines that end in a backslash go on."""
    shown = text.replace("\\\n", " ").splitlines()
    ours = (re.sub(r" (&|> [\w.-]+)$", "", line.strip()) for line in shown if line.strip().startswith("loadramp "))
    return [shlex.split(line, comments=True)[1:] for line in ours]


def parsed(words: list[str]) -> None:
    """Have the command line take the words, and do nothing.

    Raises:
        click.ClickException: it does not take them.
    """
    cli.commands[words[0]].make_context(words[0], words[1:])


@contextmanager
def keyed_simulator(variable: str, key: str) -> Iterator[str]:
    """A simulator that demands a key; ended by its own process."""
    port = free_port()
    command = [sys.executable, "-m", "loadramp", "simulate", "--port", str(port), "--api-key-env", variable]
    with subprocess.Popen(command, env={**os.environ, variable: key}, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
