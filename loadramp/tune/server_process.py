"""One server at a time: started with other flags, waited for until it answers a request, stopped.

A server that was started here runs under ``guard.py``, which ends it whatever becomes of this process. One that others
own is changed by a command, and how it is started is their affair.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from loadramp.client.endpoint import Endpoint, endpoint_of
from loadramp.client.preflight import trial_of
from loadramp.client.readiness import wait_until_ready
from loadramp.registry import CannotMeasure, ScenarioError
from loadramp.runner.launch import Say
from loadramp.runner.user_command import run_to_its_end
from loadramp.scenario.scenario import Scenario
from loadramp.tune import guard
from loadramp.tune.causes import failure_words
from loadramp.tune.flags import FLAGS, PORT, command_of, words_of
from loadramp.workload.prompts.source import models_of

FLAGS_VARIABLE = "LOADRAMP_FLAGS"
TAIL_BYTES = 65_536
KILLED_S = 10.0
"""After a server was killed, its guard has so long to say so."""


class DidNotStartError(CannotMeasure):
    """A configuration does not serve: why, in words, with exit code and log where there is one."""

    def __init__(self, words: str, exit_code: int | None = None, log: str = "") -> None:
        super().__init__(words)
        self.exit_code = exit_code
        self.log = log


@dataclass(slots=True)
class ServerProcess:
    """The server that is tuned. ``stop`` being set ends a wait for it.

    Args:
        template: the command that starts it, with ``{port}`` and ``{flags}``; empty: ``switch`` changes one that runs.
        switch: a command that makes the endpoint run with LOADRAMP_FLAGS (and ``{flags}`` in its words).
        logs: the directory for logs.
    """

    template: str
    switch: str
    logs: Path
    start_timeout_s: float
    stop_timeout_s: float
    say: Say
    stop: asyncio.Event
    flags: str | None = None
    """Those that it runs with; None: it does not run."""
    base_url: str | None = None
    log: Path | None = None
    _process: asyncio.subprocess.Process | None = None
    _watch: asyncio.Task[int] | None = field(default=None, init=False)

    @property
    def owned(self) -> bool:
        return bool(self.template)

    @property
    def exit_code(self) -> int | None:
        """Of a server that was started here and has ended."""
        return self._process.returncode if self._process is not None else None

    async def ended(self) -> None:
        """Return when the server that was started here has ended; never where others own it."""
        if self._watch is None:
            await asyncio.Event().wait()
        else:
            await asyncio.shield(self._watch)

    async def start(self, flags: str, scenario: Scenario, name: str) -> float:
        """Make the server run with ``flags``; the seconds until it answered a request.

        Raises:
            DidNotStartError: it does not, within ``start_timeout_s``.
            ScenarioError: a command cannot be split into words.
        """
        await self.end()
        began_s = time.monotonic()
        if self.owned:
            await self._launch(flags, name)
        elif self.switch:
            await self._switch(flags)
        await self._ready(scenario if self.base_url is None else _at(scenario, self.base_url), began_s)
        self.flags = flags
        return time.monotonic() - began_s

    async def end(self) -> None:
        """Stop a server that was started here, and wait until it is gone."""
        self.flags = None
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), self.stop_timeout_s + KILLED_S)
        except TimeoutError:
            self.say("the server cannot be ended: a process of it is stuck")
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def log_text(self) -> str:
        """The end of the server's log."""
        if self.log is None or not self.log.is_file():
            return ""
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return file.read().decode("utf-8", "replace")

    def died(self) -> DidNotStartError:
        """What there is to say of a server that ended by itself."""
        code, log = self.exit_code, self.log_text()
        return DidNotStartError(failure_words("died", log, code), code, log)

    async def _launch(self, flags: str, name: str) -> None:
        port = free_port() if PORT in self.template else 0
        words = command_of(self.template, flags, port)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.log = self.logs / f"{name}.log"
        if port:
            self.base_url = f"http://127.0.0.1:{port}"
        elif self.base_url and taken(self.base_url):
            raise DidNotStartError(f"port in use: something answers at {self.base_url} before the server was started")
        self.say(f"starting {' '.join(words)}")
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", guard.__file__, f"{self.stop_timeout_s:g}", str(self.log), *words,
            stdin=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._watch = asyncio.ensure_future(self._process.wait())

    async def _switch(self, flags: str) -> None:
        """Run the user's command without a shell, its output on our stderr."""
        words = [word.replace(FLAGS, flags) for word in words_of(self.switch, "--switch-command")]
        self.say(f"switching: {' '.join(words)}")
        try:
            code = await run_to_its_end(words, self.start_timeout_s, {FLAGS_VARIABLE: flags})
        except OSError as error:
            raise ScenarioError(f"--switch-command {words[0]}: {error.strerror or error}") from None
        if code is None:
            raise DidNotStartError(f"{words[0]}: not finished within {self.start_timeout_s:g} s")
        if code:
            raise DidNotStartError(f"{words[0]}: exit code {code}", code)

    async def _ready(self, scenario: Scenario, began_s: float) -> None:
        """Return when a request was answered, the server has ended, or somebody has enough."""
        target = replace(scenario.target, ready_timeout_s=self.start_timeout_s)
        answer = asyncio.ensure_future(self._answers(replace(scenario, target=target), endpoint_of(target)))
        ended, stop = asyncio.ensure_future(self.ended()), asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait({answer, ended, stop}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done() and (error := answer.exception()) is not None:
                if isinstance(error, ScenarioError):
                    raise error
                words = f"did not start within {time.monotonic() - began_s:.0f} s: {error}"
                raise DidNotStartError(words, self.exit_code, self.log_text()) from None
            if ended.done():
                code, log = self.exit_code, self.log_text()
                raise DidNotStartError(failure_words("did not start", log, code), code, log)
        finally:
            for task in (answer, ended, stop):
                task.cancel()
            await asyncio.wait({answer, ended, stop})

    async def _answers(self, scenario: Scenario, endpoint: Endpoint) -> None:
        target = scenario.target
        trial = trial_of(target, endpoint, models_of(scenario.prompts, scenario.prompt_options))
        ready = await wait_until_ready(target, endpoint, clock=time.monotonic, say=self.say, trial=trial)
        failed = await trial(ready.models, target.first_timeout_s)
        if failed is not None:
            raise CannotMeasure(f"a first request fails: {failed}")


def _at(scenario: Scenario, base_url: str) -> Scenario:
    return replace(scenario, target=replace(scenario.target, base_url=base_url))


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def taken(base_url: str) -> bool:
    """Somebody listens there already."""
    place = urlsplit(base_url if "//" in base_url else f"//{base_url}")
    try:
        socket.create_connection((place.hostname or "", place.port or 80), 0.5).close()
    except OSError:
        return False
    return True


def check_commands(template: str, switch: str, tries: Sequence[str], base_url: str | None) -> None:
    """Refuse what cannot be tuned, before anything is started.

    Raises:
        ScenarioError: neither or both commands, no address, or words that cannot be split.
    """
    if bool(template) == bool(switch):
        raise ScenarioError("--server or --switch-command: exactly one of them is needed")
    if template and PORT not in template and not base_url:
        raise ScenarioError("--server: write {port} where its port goes, or name its address with --base-url")
    if switch and not base_url:
        raise ScenarioError("--switch-command: --base-url must name the endpoint that it changes")
    words_of(switch, "--switch-command")
    for flags in tries or [""]:
        command_of(template, flags, 1)
